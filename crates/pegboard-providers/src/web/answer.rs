//! What a web service answers, read within bounds.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http::header::{DATE, HeaderMap, LINK, RETRY_AFTER};
use jiff::fmt::rfc2822;
use reqwest::{Response, Url};
use tokio::time::{self, Instant};

use super::{Limits, WebError, after, error, stated_length};

/// How much is set aside on the word of a service before it sends anything.
const TRUSTED_BYTES: usize = 256 * 1024;

/// An answer that has begun, to be read piece by piece. Dropping it gives up what has not been read.
pub struct Incoming {
    /// How it went.
    pub status: StatusCode,
    response: Response,
    limits: Limits,
    until: Option<Instant>,
    n_read: usize,
}

impl Incoming {
    pub(super) fn new(response: Response, limits: Limits, until: Option<Instant>) -> Self {
        Self { status: response.status(), response, limits, until, n_read: 0 }
    }

    /// The headers of the answer.
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The next piece of the body, unpacked; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, WebError> {
        let idle = after(self.limits.idle);
        let late = self.until.filter(|until| *until < idle);
        let Ok(piece) = time::timeout_at(late.unwrap_or(idle), self.response.chunk()).await else {
            return Err(match (late, self.limits.total) {
                (Some(_), Some(limit)) => WebError::TooSlow { what: "the answer did not end", limit },
                _ => WebError::TooSlow { what: "the answer did not go on", limit: self.limits.idle },
            });
        };
        let piece = piece.map_err(|problem| error::network(self.response.url(), problem))?;
        self.n_read += piece.as_ref().map_or(0, Bytes::len);
        if self.n_read > self.limits.max_bytes {
            return Err(WebError::TooLarge { max_bytes: self.limits.max_bytes });
        }
        Ok(piece)
    }

    /// The whole answer.
    pub async fn read(mut self) -> Result<Answer, WebError> {
        let stated = stated_length(self.headers()).unwrap_or_default();
        if stated > self.limits.max_bytes {
            return Err(WebError::TooLarge { max_bytes: self.limits.max_bytes });
        }
        let mut body = BytesMut::with_capacity(stated.min(TRUSTED_BYTES));
        while let Some(piece) = self.next().await? {
            body.extend_from_slice(&piece);
        }
        Ok(Answer {
            status: self.status,
            url: self.response.url().clone(),
            headers: std::mem::take(self.response.headers_mut()),
            body: body.freeze(),
        })
    }
}

/// A whole answer of a web service.
#[derive(Clone)]
pub struct Answer {
    /// How it went.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, unpacked.
    pub body: Bytes,
    /// Where it came from, after all redirects.
    pub url: Url,
}

impl Answer {
    /// How long the service wants to be left alone, if it says so.
    pub fn retry_after(&self) -> Option<Duration> {
        retry_after(&self.headers)
    }

    /// The address of the next page, if the answer links to one (`Link: <…>; rel="next"`).
    pub fn next_page(&self) -> Option<Url> {
        let links = self.headers.get_all(LINK).iter().filter_map(|link| link.to_str().ok());
        links
            .flat_map(links_of)
            .find(|(_, rel)| rel.split(' ').any(|word| word.eq_ignore_ascii_case("next")))
            .and_then(|(target, _)| self.url.join(target).ok())
    }
}

/// How long a service wants to be left alone, if it says so. A time of day counts from when the answer was made, by the
/// service's own clock.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let said = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = said.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = headers.get(DATE)?.to_str().ok()?;
    let (then, now) = (rfc2822::parse(said).ok()?, rfc2822::parse(now).ok()?);
    // What is past need not be waited for.
    Some(then.timestamp().duration_since(now.timestamp()).try_into().unwrap_or_default())
}

/// The targets of a `Link` header with what they are to this answer.
fn links_of(header: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    let mut rest = header;
    while let Some((target, tail)) = rest.split_once('<').and_then(|(_, rest)| rest.split_once('>')) {
        // A comma may stand within quotes, so a link ends at one that has the next link behind it.
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

    fn answer(headers: &[(&'static str, &str)]) -> Answer {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        Answer {
            status: StatusCode::OK,
            headers: headers.collect(),
            body: Bytes::new(),
            url: "https://api.example.org/things?page=1".parse().unwrap(),
        }
    }

    #[test]
    fn the_next_page_is_where_the_answer_links_to() {
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
            let next = answer(&[("link", link)]).next_page();
            assert_eq!(next.as_ref().map(Url::as_str), expected, "{link}");
        }
    }

    #[test]
    fn how_long_to_wait_is_told_in_seconds_or_by_the_clock_of_the_service() {
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
            assert_eq!(answer(&headers).retry_after().map(|wait| wait.as_secs()), expected, "{headers:?}");
        }
    }
}
