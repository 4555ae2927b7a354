//! OAuth client credentials tokens, cached until they expire.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;
use parking_lot::Mutex;
use pegboard_core::error::CallError;
use pegboard_core::settings::mcp::Secret;
use reqwest::Url;
use serde::Deserialize;
use tokio::time::Instant;

use super::style::Escape;
use crate::web::{ResponseLimits, WebBody, WebClient, WebError, WebPolicy, WebRequest};

/// Default lifetime of a token.
const DEFAULT_LIFETIME: Duration = Duration::from_mins(5);
/// Time before expiry at which a token is no longer used.
const EXPIRY_MARGIN: Duration = Duration::from_secs(30);
/// Maximum lifetime of a token.
const MAX_LIFETIME: Duration = Duration::from_hours(24);
/// Limits for token requests.
const TOKEN_LIMITS: ResponseLimits = ResponseLimits {
    max_bytes: 256 * 1024,
    start_timeout: Duration::from_secs(30),
    idle_timeout: Duration::from_secs(10),
    total_timeout: Some(Duration::from_mins(1)),
};

/// Source of tokens for client credentials.
#[derive(Debug)]
pub(super) struct TokenSource {
    /// Name of the security scheme.
    name: String,
    url: Url,
    web: WebClient,
    /// Value of the `Authorization` header.
    credentials: Secret,
    scopes: Vec<String>,
    /// Cached token and its expiry.
    token: Mutex<Option<(Secret, Instant)>>,
}

/// Response of the token endpoint.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: Secret,
    #[serde(default)]
    expires_in: Option<u64>,
}

impl TokenSource {
    pub(super) fn new(
        name: &str,
        url: Url,
        id: &Secret,
        secret: &Secret,
        scopes: Vec<String>,
    ) -> Result<Self, WebError> {
        let web = WebClient::new(WebPolicy::new(url.clone()))?;
        // Both are form-encoded first, so that they may contain a colon.
        let [id, secret] = [id, secret].map(|part| Escape::Reserved.apply(part.reveal()).into_owned());
        let credentials = Secret::new(format!("Basic {}", BASE64.encode(format!("{id}:{secret}"))));
        Ok(Self { name: name.to_owned(), url, web, credentials, scopes, token: Mutex::new(None) })
    }

    /// Returns a valid token.
    pub(super) async fn token(&self) -> Result<Secret, CallError> {
        if let Some(token) = self.cached() {
            return Ok(token);
        }
        let issued = self.request_token().await?;
        let life = issued.expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(MAX_LIFETIME);
        let until = Instant::now() + life.saturating_sub(EXPIRY_MARGIN);
        *self.token.lock() = Some((issued.access_token.clone(), until));
        Ok(issued.access_token)
    }

    /// Discards the token after the service rejected it.
    pub(super) fn invalidate(&self) {
        *self.token.lock() = None;
    }

    fn cached(&self) -> Option<Secret> {
        let cached = self.token.lock();
        cached.as_ref().filter(|(_, until)| *until > Instant::now()).map(|(token, _)| token.clone())
    }

    async fn request_token(&self) -> Result<TokenResponse, CallError> {
        let refused = |why: String| CallError::AuthRequired {
            reason: format!("cannot get a token for '{}': {why}. Check its credentials", self.name),
        };
        let mut form = "grant_type=client_credentials".to_owned();
        if !self.scopes.is_empty() {
            form.push_str("&scope=");
            form.push_str(&Escape::Reserved.apply(&self.scopes.join(" ")));
        }
        let body =
            WebBody { content_type: "application/x-www-form-urlencoded".to_owned(), bytes: form.into() };
        let mut request = WebRequest::new(Method::POST, self.url.clone()).with_body(body);
        request.set_header("authorization", self.credentials.reveal())?;
        request.set_header("accept", "application/json")?;
        let answer =
            self.web.send(request, TOKEN_LIMITS).await.map_err(|error| refused(error.to_string()))?;
        if !answer.status.is_success() {
            return Err(refused(format!("HTTP {}", answer.status.as_u16())));
        }
        // The body may contain the token, so it is not quoted.
        serde_json::from_slice(&answer.body).map_err(|_| refused("the response contains none".to_owned()))
    }
}
