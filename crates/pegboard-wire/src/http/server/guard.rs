//! Who may speak to an endpoint at all: the right host, no foreign web page, JSON only.

use http::{HeaderMap, StatusCode, Uri, header};

use super::{HttpServerOptions, Refusal};

/// Refuses a request that names another host, or that a foreign web page sent.
pub(super) fn check(headers: &HeaderMap, options: &HttpServerOptions) -> Result<(), Refusal> {
    let host = headers.get(header::HOST).map(|host| host.to_str().unwrap_or_default());
    if let Some(host) = host
        && !is_allowed_host(host, options)
    {
        return Err(Refusal(StatusCode::FORBIDDEN, "this host is not served here"));
    }
    let origin = headers.get(header::ORIGIN).map(|origin| origin.to_str().unwrap_or_default());
    match origin {
        Some(origin) if !is_allowed_origin(origin, options) => {
            Err(Refusal(StatusCode::FORBIDDEN, "this origin is not allowed"))
        }
        _ => Ok(()),
    }
}

fn is_allowed_host(host: &str, options: &HttpServerOptions) -> bool {
    let name = without_port(host);
    options.allowed_hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
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
