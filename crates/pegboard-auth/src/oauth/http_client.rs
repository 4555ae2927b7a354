//! HTTP client of the OAuth flow, bound to what a server may name.

use std::time::Duration;

use http::{Request, Response};
use pegboard_http::{NetworkAccess, ResponseLimits, WebBody, WebClient, WebError, WebPolicy, WebRequest};
use reqwest::Url;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};

/// Limits of a response: metadata and tokens are small.
const LIMITS: ResponseLimits = ResponseLimits {
    max_bytes: 256 * 1024,
    start_timeout: Duration::from_secs(20),
    idle_timeout: Duration::from_secs(10),
    total_timeout: Some(Duration::from_secs(30)),
};

/// Reason why a request of the OAuth flow was not sent, or has no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OAuthRequestError {
    #[error("the server names the URL {0}, which uses neither HTTPS nor the origin of the server")]
    Insecure(String),
    #[error("the server names the host of {0}, which is not public; name it as `issuer` if it is right")]
    NotPublic(String),
    #[error("invalid URL")]
    InvalidUrl,
    #[error(transparent)]
    Web(#[from] WebError),
}

/// HTTP client for the authorization of one server. Requests go to the origins that the configuration names, and
/// to public ones over HTTPS that the server names; a server on this machine may name others on it.
pub(crate) struct OAuthRequests {
    /// Origins that the configuration names.
    configured: Vec<Url>,
}

impl OAuthRequests {
    pub(crate) fn new(configured: Vec<Url>) -> Self {
        Self { configured }
    }

    /// Returns the addresses that a request to a URL may reach.
    pub(crate) fn network(&self, url: &Url) -> Result<NetworkAccess, OAuthRequestError> {
        if self.configured.iter().any(|configured| configured.origin() == url.origin()) {
            return Ok(NetworkAccess::ByName);
        }
        let origin = || pegboard_http::origin(url);
        if pegboard_http::is_loopback(url) {
            let is_local = self.configured.iter().any(pegboard_http::is_loopback);
            return if is_local {
                Ok(NetworkAccess::ByName)
            } else {
                Err(OAuthRequestError::NotPublic(origin()))
            };
        }
        if url.scheme() != "https" {
            return Err(OAuthRequestError::Insecure(origin()));
        }
        if !pegboard_http::may_be_public(url) {
            return Err(OAuthRequestError::NotPublic(origin()));
        }
        Ok(NetworkAccess::Public)
    }

    async fn send(&self, request: OAuthHttpRequest) -> Result<Response<Vec<u8>>, OAuthRequestError> {
        let OAuthHttpRequest { request, redirect_policy, .. } = request;
        let url: Url = request.uri().to_string().parse().map_err(|_| OAuthRequestError::InvalidUrl)?;
        let network = self.network(&url)?;
        let mut outgoing = web_request(url.clone(), request)?;
        if redirect_policy != OAuthHttpRedirectPolicy::Follow {
            outgoing = outgoing.without_redirects();
        }
        let client = WebClient::new(WebPolicy { network, ..WebPolicy::new(url) })?;
        let response = client.send(outgoing, LIMITS).await?;
        let mut converted = Response::new(response.body.to_vec());
        *converted.status_mut() = response.status;
        *converted.headers_mut() = response.headers;
        Ok(converted)
    }
}

/// Converts a request. Headers of the connection are set by the client.
fn web_request(url: Url, request: Request<Vec<u8>>) -> Result<WebRequest, WebError> {
    let (parts, body) = request.into_parts();
    let mut outgoing = WebRequest::new(parts.method, url);
    let mut content_type = String::new();
    for (name, value) in &parts.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        match name {
            &http::header::CONTENT_TYPE => content_type = value.into_owned(),
            &http::header::CONTENT_LENGTH | &http::header::HOST => {}
            _ => outgoing.set_header(name.as_str(), &value)?,
        }
    }
    if body.is_empty() {
        return Ok(outgoing);
    }
    Ok(outgoing.with_body(WebBody { content_type, bytes: body.into() }))
}

impl OAuthHttpClient for OAuthRequests {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(
            async move { self.send(request).await.map_err(|error| Box::new(error) as OAuthHttpClientError) },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_names_public_https_origins_only_and_one_on_this_machine_others_on_it() {
        let cases = [
            ("https://mcp.example.org/mcp", "https://mcp.example.org/token", "ByName"),
            ("https://mcp.example.org/mcp", "https://login.example.org/token", "Public"),
            ("https://mcp.example.org/mcp", "http://login.example.org/token", "Insecure"),
            ("https://mcp.example.org/mcp", "http://mcp.example.org/token", "Insecure"),
            ("https://mcp.example.org/mcp", "https://10.0.0.9/token", "NotPublic"),
            ("https://mcp.example.org/mcp", "https://169.254.169.254/latest", "NotPublic"),
            ("https://mcp.example.org/mcp", "https://sso.internal/token", "NotPublic"),
            ("https://mcp.example.org/mcp", "https://localhost/token", "NotPublic"),
            ("https://mcp.example.org/mcp", "https://[::1]/token", "NotPublic"),
            ("https://mcp.example.org/mcp", "http://127.0.0.1:9/token", "NotPublic"),
            ("https://mcp.example.org/mcp", "https://2130706433/token", "NotPublic"),
            ("http://127.0.0.1:7000/mcp", "http://127.0.0.1:8000/token", "ByName"),
            ("http://localhost:7000/mcp", "http://127.0.0.1:8000/token", "ByName"),
            ("http://localhost:7000/mcp", "http://169.254.169.254/token", "Insecure"),
            ("http://localhost:7000/mcp", "https://10.0.0.9/token", "NotPublic"),
        ];
        for (server, target, expected) in cases {
            let requests = OAuthRequests::new(vec![server.parse().unwrap()]);
            let network = match requests.network(&target.parse().unwrap()) {
                Ok(network) => format!("{network:?}"),
                Err(OAuthRequestError::Insecure(_)) => "Insecure".to_owned(),
                Err(OAuthRequestError::NotPublic(_)) => "NotPublic".to_owned(),
                Err(error) => error.to_string(),
            };
            assert_eq!(network, expected, "{server} names {target}");
        }
    }
}
