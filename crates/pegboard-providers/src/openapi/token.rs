//! OAuth client credentials tokens, cached until they expire.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures_util::future::{BoxFuture, FutureExt, WeakShared};
use http::Method;
use parking_lot::Mutex;
use pegboard_core::error::CallError;
use pegboard_core::secret::Secret;
use reqwest::Url;
use serde::Deserialize;
use tokio::time::Instant;

use super::style::Escape;
use pegboard_http::{ResponseLimits, WebBody, WebClient, WebError, WebPolicy, WebRequest};

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
pub(super) struct TokenSource {
    request: Arc<TokenRequest>,
    state: Mutex<TokenState>,
}

/// Request for a token.
struct TokenRequest {
    /// Name of the security scheme.
    scheme: String,
    url: Url,
    web: WebClient,
    /// Value of the `Authorization` header.
    credentials: Secret,
    scopes: Vec<String>,
}

#[derive(Default)]
struct TokenState {
    cached: Option<IssuedToken>,
    /// The pending request, which all callers share. It ends with the last of them.
    flight: Option<WeakShared<TokenFlight>>,
}

type TokenFlight = BoxFuture<'static, Result<IssuedToken, CallError>>;

/// A token and its expiry.
#[derive(Clone)]
struct IssuedToken {
    token: Secret,
    expires: Instant,
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
        let request = TokenRequest { scheme: name.to_owned(), url, web, credentials, scopes };
        Ok(Self { request: Arc::new(request), state: Mutex::default() })
    }

    /// Returns a valid token. Concurrent callers share one request for it.
    pub(super) async fn token(&self) -> Result<Secret, CallError> {
        let flight = {
            let mut state = self.state.lock();
            if let Some(cached) = state.cached.as_ref().filter(|cached| cached.expires > Instant::now()) {
                return Ok(cached.token.clone());
            }
            state.flight.as_ref().and_then(WeakShared::upgrade).unwrap_or_else(|| {
                let flight = Arc::clone(&self.request).send().boxed().shared();
                state.flight = flight.downgrade();
                flight
            })
        };
        let issued = flight.await?;
        self.state.lock().cached = Some(issued.clone());
        Ok(issued.token)
    }

    /// Discards the token after the service rejected it.
    pub(super) fn invalidate(&self) {
        self.state.lock().cached = None;
    }
}

impl TokenRequest {
    async fn send(self: Arc<Self>) -> Result<IssuedToken, CallError> {
        let refused = |why: String| CallError::AuthRequired {
            reason: format!("cannot get a token for '{}': {why}. Check its credentials", self.scheme),
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
        let TokenResponse { access_token: token, expires_in } = serde_json::from_slice(&answer.body)
            .map_err(|_| refused("the response contains none".to_owned()))?;
        let lifetime = expires_in.map_or(DEFAULT_LIFETIME, Duration::from_secs).min(MAX_LIFETIME);
        Ok(IssuedToken { token, expires: Instant::now() + lifetime.saturating_sub(EXPIRY_MARGIN) })
    }
}
