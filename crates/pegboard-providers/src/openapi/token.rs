//! Tokens that a service issues to this client, kept until they expire.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::Method;
use pegboard_core::error::CallError;
use pegboard_core::settings::mcp::Secret;
use reqwest::Url;
use serde::Deserialize;
use tokio::time::Instant;

use super::style::Escape;
use crate::web::{Body, Limits, Outgoing, Policy, Web, WebError};

/// How long a token is kept that does not say how long it is good for.
const USUAL_LIFE: Duration = Duration::from_mins(5);
/// How long before its end a token is no longer used.
const MARGIN: Duration = Duration::from_secs(30);
/// How long a token is believed to be good for at most.
const MAX_LIFE: Duration = Duration::from_hours(24);
/// How a token is waited for.
const LIMITS: Limits = Limits {
    max_bytes: 256 * 1024,
    begin: Duration::from_secs(30),
    idle: Duration::from_secs(10),
    total: Some(Duration::from_mins(1)),
};

/// Who issues tokens for client credentials.
#[derive(Debug)]
pub(super) struct Issuer {
    /// What the document calls the scheme.
    name: String,
    url: Url,
    web: Web,
    /// The name and password of this client, as they are sent.
    credentials: Secret,
    scopes: Vec<String>,
    /// The token, and until when it is good.
    token: Mutex<Option<(Secret, Instant)>>,
}

/// What an issuer answers.
#[derive(Deserialize)]
struct Issued {
    access_token: Secret,
    #[serde(default)]
    expires_in: Option<u64>,
}

impl Issuer {
    pub(super) fn new(
        name: &str,
        url: Url,
        id: &Secret,
        secret: &Secret,
        scopes: Vec<String>,
    ) -> Result<Self, WebError> {
        let web = Web::new(Policy::new(url.clone()))?;
        // Both are written as in a form before they are put together, so that a colon in them stays in them.
        let [id, secret] = [id, secret].map(|part| Escape::Reserved.apply(part.reveal()).into_owned());
        let credentials = Secret::new(format!("Basic {}", BASE64.encode(format!("{id}:{secret}"))));
        Ok(Self { name: name.to_owned(), url, web, credentials, scopes, token: Mutex::new(None) })
    }

    /// A token that is good now.
    pub(super) async fn token(&self) -> Result<Secret, CallError> {
        if let Some(token) = self.kept() {
            return Ok(token);
        }
        let issued = self.ask().await?;
        let life = issued.expires_in.map_or(USUAL_LIFE, Duration::from_secs).min(MAX_LIFE);
        let until = Instant::now() + life.saturating_sub(MARGIN);
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((issued.access_token.clone(), until));
        Ok(issued.access_token)
    }

    /// Gives the token up, because the service does not take it any more.
    pub(super) fn forget(&self) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn kept(&self) -> Option<Secret> {
        let kept = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().filter(|(_, until)| *until > Instant::now()).map(|(token, _)| token.clone())
    }

    async fn ask(&self) -> Result<Issued, CallError> {
        let refused = |why: String| CallError::AuthRequired {
            reason: format!("there is no token for '{}': {why}. Check its credentials", self.name),
        };
        let mut form = "grant_type=client_credentials".to_owned();
        if !self.scopes.is_empty() {
            form.push_str("&scope=");
            form.push_str(&Escape::Reserved.apply(&self.scopes.join(" ")));
        }
        let body = Body { content_type: "application/x-www-form-urlencoded".to_owned(), bytes: form.into() };
        let mut outgoing = Outgoing::new(Method::POST, self.url.clone()).with_body(body);
        outgoing.set_header("authorization", self.credentials.reveal())?;
        outgoing.set_header("accept", "application/json")?;
        let answer = self.web.send(outgoing, LIMITS).await.map_err(|error| refused(error.to_string()))?;
        if !answer.status.is_success() {
            return Err(refused(format!("HTTP {}", answer.status.as_u16())));
        }
        // What it says may hold the token, so that it is not said again.
        serde_json::from_slice(&answer.body).map_err(|_| refused("the answer holds none".to_owned()))
    }
}
