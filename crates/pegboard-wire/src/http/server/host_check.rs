//! Checks of the host, the origin and the content type of a request.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};

use super::{HttpRejection, HttpReply, HttpServerOptions, ReplyBody};
use crate::http::received_headers::NamedHeaders;

/// Relation between a page and the address that it requests, as the browser states it.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Origin in [`HttpServerOptions::allowed_origins`] that a request came from. Its browser shows the response to the
/// page only if the response says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedOrigin(HeaderValue);

impl AllowedOrigin {
    /// Lets the page read a response with these headers.
    pub fn add_to(&self, headers: &mut HeaderMap) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone());
        let exposed = HeaderValue::from_static("mcp-session-id, mcp-protocol-version, www-authenticate");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }

    /// Returns the response to a preflight request; `None` if the request is none.
    pub fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<HttpReply> {
        let is_preflight =
            method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        is_preflight.then(|| {
            let mut reply = HttpReply::new(ReplyBody::empty());
            *reply.status_mut() = StatusCode::NO_CONTENT;
            let replied = reply.headers_mut();
            self.add_to(replied);
            let methods = HeaderValue::from_static("GET, POST, DELETE");
            replied.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
            // The header parameters of tools have names of their own, and a wildcard excludes `authorization`.
            if let Some(requested) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
                replied.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
            }
            reply
        })
    }
}

/// Rejects a request with a disallowed host or origin. Returns the origin if it is another one that is allowed.
pub(super) fn check(
    headers: &impl NamedHeaders,
    uri: &Uri,
    options: &HttpServerOptions,
) -> Result<Option<AllowedOrigin>, HttpRejection> {
    let host = host(headers, uri, options)?;
    let Ok(origin) = headers.only(&header::ORIGIN) else { return Err(FOREIGN_ORIGIN) };
    if let Some(origin) = origin {
        let text = std::str::from_utf8(origin).unwrap_or_default();
        // A page that is allowed by name may come from any site.
        if options.allowed_origins.iter().any(|allowed| allowed == text)
            && let Ok(origin) = HeaderValue::from_bytes(origin)
        {
            return Ok(Some(AllowedOrigin(origin)));
        }
        if !is_own_origin(text, host, options) {
            return Err(FOREIGN_ORIGIN);
        }
    }
    // Images, scripts and links have no origin. Ports do not matter to `same-site`.
    match headers.first(&SEC_FETCH_SITE) {
        None | Some(b"same-origin" | b"none") => Ok(None),
        Some(_) => Err(HttpRejection(StatusCode::FORBIDDEN, "requests of other sites are not allowed")),
    }
}

const FOREIGN_ORIGIN: HttpRejection = HttpRejection(StatusCode::FORBIDDEN, "this origin is not allowed");

/// Returns the host of a request: that of its only `Host` header, or of its target in HTTP/2.
fn host<'r>(
    headers: &'r impl NamedHeaders,
    uri: &'r Uri,
    options: &HttpServerOptions,
) -> Result<&'r str, HttpRejection> {
    let header = headers.only(&header::HOST).map_err(|_repeated| NOT_ONE_HOST)?;
    let header = header.map(|host| std::str::from_utf8(host).unwrap_or_default());
    let target = uri.authority().map(http::uri::Authority::as_str);
    let host = header.or(target).filter(|host| !host.is_empty()).ok_or(NOT_ONE_HOST)?;
    if [header, target].into_iter().flatten().all(|host| is_allowed_host(host, options)) {
        Ok(host)
    } else {
        Err(HttpRejection(
            StatusCode::FORBIDDEN,
            "this host is not allowed; add its name to allowedHosts in the configuration",
        ))
    }
}

const NOT_ONE_HOST: HttpRejection =
    HttpRejection(StatusCode::BAD_REQUEST, "a request must have exactly one host");

fn is_allowed_host(host: &str, options: &HttpServerOptions) -> bool {
    let (name, _) = split_port(host);
    options.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
        || (options.allows_addresses && is_address(name))
}

/// Returns `true` for an IP address. A browser connects to it directly, so DNS rebinding does not apply.
fn is_address(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse::<std::net::IpAddr>().is_ok()
}

/// Returns `true` if a page of this origin was served from the host of the request: its name is allowed, and it has
/// the same port. Behind a proxy with TLS, the host has no port.
fn is_own_origin(origin: &str, host: &str, options: &HttpServerOptions) -> bool {
    let (rest, default_port) = match (origin.strip_prefix("http://"), origin.strip_prefix("https://")) {
        (Some(rest), _) => (rest, "80"),
        (None, Some(rest)) => (rest, "443"),
        (None, None) => return false,
    };
    let port = |authority| split_port(authority).1.unwrap_or(default_port);
    !rest.contains(['/', '@']) && is_allowed_host(rest, options) && port(rest) == port(host)
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (name, Some(port))
        }
        _ => (host, None),
    }
}

/// Returns `true` if the body is declared as JSON. Browsers cannot do that across origins without a preflight
/// request.
pub(super) fn is_json(headers: &impl NamedHeaders) -> bool {
    let kind = headers.first(&header::CONTENT_TYPE).unwrap_or_default();
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    essence.eq_ignore_ascii_case(b"application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(headers: &[(&'static str, &str)]) -> String {
        let options = HttpServerOptions {
            allowed_origins: vec!["http://app.example:3000".to_owned()],
            ..HttpServerOptions::default()
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_str(value).expect("it is ASCII"));
        }
        match check(&map, &Uri::from_static("/mcp"), &options) {
            Ok(None) => "ok".to_owned(),
            Ok(Some(AllowedOrigin(origin))) => format!("ok for {}", origin.to_str().expect("it is ASCII")),
            Err(HttpRejection(status, reason)) => {
                format!("{} {}", status.as_u16(), reason.split(';').next().unwrap_or_default())
            }
        }
    }

    #[test]
    fn hosts_and_origins_are_compared_with_their_ports() {
        let own = ("host", "127.0.0.1:7332");
        let foreign_host = "403 this host is not allowed";
        let foreign_origin = "403 this origin is not allowed";
        let other_site = "403 requests of other sites are not allowed";
        let one_host = "400 a request must have exactly one host";
        let allowed = "ok for http://app.example:3000";
        let cases: [(&[(&str, &str)], &str); 27] = [
            (&[own], "ok"),
            (&[("host", "localhost")], "ok"),
            (&[("host", "[::1]:7332")], "ok"),
            (&[], one_host),
            (&[("host", "")], one_host),
            (&[own, own], one_host),
            (&[("host", "evil.example")], foreign_host),
            (&[("host", "127.0.0.1.evil.example:7332")], foreign_host),
            (&[("host", "192.168.1.7:7332")], foreign_host),
            (&[("host", "localhost:evil.example")], foreign_host),
            (&[own, ("origin", "http://127.0.0.1:7332")], "ok"),
            (&[own, ("origin", "http://localhost:7332")], "ok"),
            (&[("host", "localhost"), ("origin", "https://localhost")], "ok"),
            (&[("host", "localhost:443"), ("origin", "https://localhost")], "ok"),
            (&[("host", "localhost:443"), ("origin", "http://localhost")], foreign_origin),
            (&[own, ("origin", "http://localhost:3000")], foreign_origin),
            (&[own, ("origin", "http://localhost")], foreign_origin),
            (&[own, ("origin", "http://evil.example:7332")], foreign_origin),
            (&[own, ("origin", "http://localhost:7332@evil.example:7332")], foreign_origin),
            (&[own, ("origin", "null")], foreign_origin),
            (
                &[own, ("origin", "http://localhost:7332"), ("origin", "http://localhost:7332")],
                foreign_origin,
            ),
            (&[own, ("origin", "http://app.example:3000")], allowed),
            (&[own, ("origin", "http://app.example:3000"), ("sec-fetch-site", "cross-site")], allowed),
            (&[own, ("sec-fetch-site", "cross-site")], other_site),
            (&[own, ("sec-fetch-site", "same-site")], other_site),
            (&[own, ("sec-fetch-site", "same-origin")], "ok"),
            (&[own, ("sec-fetch-site", "none")], "ok"),
        ];
        for (headers, expected) in cases {
            assert_eq!(verdict(headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn addresses_are_allowed_where_names_are_not() {
        let options = HttpServerOptions { allows_addresses: true, ..HttpServerOptions::default() };
        for (host, is_allowed) in [
            ("192.168.1.7:7332", true),
            ("[fd00::7]:7332", true),
            ("10.0.0.1", true),
            ("tools.example:7332", false),
            ("1.2.3.4.example", false),
            ("0x7f.1", false),
        ] {
            assert_eq!(is_allowed_host(host, &options), is_allowed, "{host}");
        }
    }
}
