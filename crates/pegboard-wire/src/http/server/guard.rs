//! Who may speak to an endpoint at all: the right host, no foreign web page, JSON only.

use http::{HeaderMap, StatusCode, Uri, header};

use super::{HttpServerOptions, Refusal};

/// Refuses a request that does not name one allowed host, or that a foreign web page sent.
pub(super) fn check(headers: &HeaderMap, uri: &Uri, options: &HttpServerOptions) -> Result<(), Refusal> {
    let mut hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    // HTTP/2 names the host in the request itself.
    let named: Vec<&str> = hosts.by_ref().chain(uri.authority().map(http::uri::Authority::as_str)).collect();
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err(Refusal(StatusCode::BAD_REQUEST, "a request names one host"));
    }
    if named.is_empty() || !named.iter().all(|host| is_allowed_host(host, options)) {
        return Err(Refusal(StatusCode::FORBIDDEN, "this host is not served here"));
    }
    let mut origins =
        headers.get_all(header::ORIGIN).iter().map(|origin| origin.to_str().unwrap_or_default());
    if origins.all(|origin| is_allowed_origin(origin, options)) {
        Ok(())
    } else {
        Err(Refusal(StatusCode::FORBIDDEN, "this origin is not allowed"))
    }
}

fn is_allowed_host(host: &str, options: &HttpServerOptions) -> bool {
    let name = without_port(host);
    options.allowed_hosts.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(name))
}

fn is_allowed_origin(origin: &str, options: &HttpServerOptions) -> bool {
    if options.allowed_origins.iter().any(|allowed| allowed == origin) {
        return true;
    }
    let Ok(uri) = origin.parse::<Uri>() else { return false };
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    is_web && uri.authority().is_some_and(|authority| is_allowed_host(authority.as_str(), options))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether the body claims to be JSON. Browsers cannot claim so across origins without asking first.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}
