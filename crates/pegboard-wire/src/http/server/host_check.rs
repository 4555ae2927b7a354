//! Checks of the host, the origin and the content type of a request.

use http::{HeaderMap, StatusCode, Uri, header};

use super::{HttpRejection, HttpServerOptions};

/// Rejects a request with a disallowed host or origin.
pub(super) fn check(
    headers: &HeaderMap,
    uri: &Uri,
    options: &HttpServerOptions,
) -> Result<(), HttpRejection> {
    let mut hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or_default());
    // HTTP/2 has the host in the request target.
    let named: Vec<&str> = hosts.by_ref().chain(uri.authority().map(http::uri::Authority::as_str)).collect();
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err(HttpRejection(StatusCode::BAD_REQUEST, "a request must have exactly one host"));
    }
    if named.is_empty() || !named.iter().all(|host| is_allowed_host(host, options)) {
        return Err(HttpRejection(StatusCode::FORBIDDEN, "this host is not allowed"));
    }
    let mut origins =
        headers.get_all(header::ORIGIN).iter().map(|origin| origin.to_str().unwrap_or_default());
    if origins.all(|origin| is_allowed_origin(origin, options)) {
        Ok(())
    } else {
        Err(HttpRejection(StatusCode::FORBIDDEN, "this origin is not allowed"))
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

/// Returns `true` if the body is declared as JSON. Browsers cannot do that across origins without a preflight
/// request.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}
