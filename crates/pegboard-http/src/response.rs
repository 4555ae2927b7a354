//! Responses of web services, read within limits.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{DATE, HeaderMap, LINK, RETRY_AFTER};
use jiff::fmt::rfc2822;
use reqwest::{Response, Url};
use tokio::time::{self, Instant};

use crate::{ResponseLimits, WebError, deadline_after, error, stated_length};

/// Maximum capacity reserved for a declared content length.
const MAX_PREALLOCATED_BYTES: usize = 256 * 1024;

/// Response with a body that is read in chunks. Dropping it aborts the transfer.
pub struct StreamingResponse {
    /// HTTP status.
    pub status: StatusCode,
    response: Response,
    limits: ResponseLimits,
    deadline: Option<Instant>,
    n_read: usize,
}

impl StreamingResponse {
    pub(crate) fn new(response: Response, limits: ResponseLimits, deadline: Option<Instant>) -> Self {
        Self { status: response.status(), response, limits, deadline, n_read: 0 }
    }

    /// Returns the headers.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the next decompressed chunk of the body; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, WebError> {
        let idle = deadline_after(self.limits.idle_timeout);
        let late = self.deadline.filter(|deadline| *deadline < idle);
        let Ok(piece) = time::timeout_at(late.unwrap_or(idle), self.response.chunk()).await else {
            return Err(match (late, self.limits.total_timeout) {
                (Some(_), Some(limit)) => WebError::TimedOut { what: "the response did not end", limit },
                _ => WebError::TimedOut { what: "no further data", limit: self.limits.idle_timeout },
            });
        };
        let piece = piece.map_err(|problem| error::network_error(self.response.url(), problem))?;
        self.n_read += piece.as_ref().map_or(0, Bytes::len);
        if self.n_read > self.limits.max_bytes {
            return Err(WebError::TooLarge { max_bytes: self.limits.max_bytes });
        }
        Ok(piece)
    }

    /// Reads the whole body.
    pub async fn read(mut self) -> Result<WebResponse, WebError> {
        let stated = stated_length(self.headers()).unwrap_or_default();
        if stated > self.limits.max_bytes {
            return Err(WebError::TooLarge { max_bytes: self.limits.max_bytes });
        }
        let mut body = BytesMut::with_capacity(stated.min(MAX_PREALLOCATED_BYTES));
        while let Some(piece) = self.next().await? {
            body.extend_from_slice(&piece);
        }
        Ok(WebResponse {
            status: self.status,
            url: self.response.url().clone(),
            headers: std::mem::take(self.response.headers_mut()),
            body: body.freeze(),
        })
    }
}

/// Complete response of a web service.
#[derive(Clone)]
pub struct WebResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Decompressed body.
    pub body: Bytes,
    /// Final URL after redirects.
    pub url: Url,
}

impl WebResponse {
    /// Returns the delay requested with `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.headers)
    }

    /// Returns the URL of the next page (`Link: <…>; rel="next"`).
    pub fn next_page(&self) -> Option<Url> {
        let links = self.headers.get_all(LINK).iter().filter_map(|link| link.to_str().ok());
        links
            .flat_map(parse_links)
            .find(|(_, rel)| rel.split(' ').any(|word| word.eq_ignore_ascii_case("next")))
            .and_then(|(target, _)| self.url.join(target).ok())
    }
}

/// Returns the delay requested with `Retry-After`. A date is relative to the service's own `Date` header.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = headers.get(DATE)?.to_str().ok()?;
    let (then, now) = (rfc2822::parse(value).ok()?, rfc2822::parse(now).ok()?);
    // A date in the past means no delay.
    Some(then.timestamp().duration_since(now.timestamp()).try_into().unwrap_or_default())
}

/// Parses the targets and relations of a `Link` header.
fn parse_links(header: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    let mut rest = header;
    while let Some((target, tail)) = rest.split_once('<').and_then(|(_, rest)| rest.split_once('>')) {
        // A comma may be quoted, so a link ends at a comma that is followed by another link.
        let end = tail.match_indices(',').find(|(at, _)| tail[at + 1..].trim_start().starts_with('<'));
        let (parameters, next) = tail.split_at(end.map_or(tail.len(), |(at, _)| at));
        let rel = parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("rel="));
        links.push((target, rel.unwrap_or_default().trim().trim_matches('"')));
        rest = next;
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(headers: &[(&'static str, &str)]) -> WebResponse {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        WebResponse {
            status: StatusCode::OK,
            headers: headers.collect(),
            body: Bytes::new(),
            url: "https://api.example.org/things?page=1".parse().unwrap(),
        }
    }

    #[test]
    fn the_next_page_comes_from_the_link_header() {
        let cases = [
            (
                r#"<https://api.example.org/things?page=2>; rel="next""#,
                Some("https://api.example.org/things?page=2"),
            ),
            (
                r#"</a,b>; rel="last"; title="x, y", <?page=2>; rel=next"#,
                Some("https://api.example.org/things?page=2"),
            ),
            (r#"</a>; title="<b>"; rel="prev NEXT""#, Some("https://api.example.org/a")),
            (r#"</a>; rel="last""#, None),
            ("nothing", None),
            ("<<<,,>", None),
        ];
        for (link, expected) in cases {
            let next = response(&[("link", link)]).next_page();
            assert_eq!(next.as_ref().map(Url::as_str), expected, "{link}");
        }
    }

    #[test]
    fn retry_after_is_in_seconds_or_relative_to_the_date_header() {
        let date = ("date", "Wed, 21 Oct 2015 07:28:00 GMT");
        let cases = [
            (vec![("retry-after", "7")], Some(7)),
            (vec![("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT"), date], Some(30)),
            (vec![("retry-after", "Wed, 21 Oct 2015 07:27:00 GMT"), date], Some(0)),
            (vec![("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT")], None),
            (vec![("retry-after", "soon"), date], None),
            (vec![("retry-after", "-1")], None),
            (vec![], None),
        ];
        for (headers, expected) in cases {
            assert_eq!(response(&headers).retry_after().map(|wait| wait.as_secs()), expected, "{headers:?}");
        }
    }
}
