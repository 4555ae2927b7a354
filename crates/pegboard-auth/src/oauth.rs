//! OAuth client for MCP servers: discovery, registration, login, refresh.
//!
//! [`rmcp`] implements the protocol. Added here: where requests may go, encrypted credentials per principal, refresh
//! ahead of expiry as a single flight across tasks and processes, and errors that tell a lost login from a lost
//! network.

mod credentials;
mod http_client;
mod login;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use pegboard_core::fingerprint::sha256_hex;
use pegboard_core::owner::Owner;
use pegboard_core::secret::Secret;
use pegboard_core::store::{CredentialKey, SlotStore};
use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataResolution,
    OAuthClientConfig,
};
use tokio::sync::Mutex;

use crate::vault::{CredentialVault, VaultError};
use credentials::{LoginRecord, VaultCredentials};
use http_client::OAuthRequests;

pub use login::{LoginRequest, PendingLogin};

/// A token is refreshed this long before it expires, or after 90 % of its lifetime if that is later.
const REFRESH_AHEAD: Duration = Duration::from_mins(1);

/// OAuth settings of a server.
#[derive(Clone, Default)]
pub struct OAuthSettings {
    /// Id of a client that was registered beforehand.
    pub client_id: Option<String>,
    /// Secret of that client.
    pub client_secret: Option<Secret>,
    /// URL of a client metadata document, for authorization servers that accept one as client id.
    pub client_metadata_url: Option<String>,
    /// Scopes to request, instead of those that the server names.
    pub scopes: Vec<String>,
    /// Origin of the authorization server, if it is not public.
    pub issuer: Option<Url>,
}

/// State of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginState {
    /// Authorization server that issued the token.
    pub issuer: Option<String>,
    /// Scopes that were granted.
    pub scopes: Vec<String>,
    /// Expiry of the access token; `None` if the server did not say.
    pub expires: Option<SystemTime>,
    /// The login is renewed without the user when the token expires.
    pub is_renewable: bool,
}

/// Reason why there is no access token.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OAuthError {
    /// The user must log in.
    #[error("{reason}")]
    LoginRequired {
        /// The reason, such as a token that was revoked.
        reason: String,
    },
    /// The authorization server cannot be used.
    #[error("the authorization server cannot be used: {reason}")]
    Unsupported {
        /// The reason.
        reason: String,
    },
    /// The login is still valid as far as known; a later attempt may succeed.
    #[error("the token cannot be refreshed right now: {reason}")]
    Temporary {
        /// The reason, such as a network error.
        reason: String,
    },
    /// The login was refused.
    #[error("the login was refused: {reason}")]
    Refused {
        /// The reason that the authorization server gave.
        reason: String,
    },
    /// The credential cannot be stored or read.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// Authorization of one principal at one server. Tokens belong to the principal, the server and the issuer.
pub struct OAuthClient {
    resource: Url,
    settings: OAuthSettings,
    credentials: VaultCredentials,
    /// The current token, so that a call neither waits nor reads the store.
    current: ArcSwapOption<BearerToken>,
    /// Held by the task that loads or refreshes the token.
    refresh: Mutex<()>,
}

/// An access token as it is sent.
struct BearerToken {
    header: HeaderValue,
    refresh_at: Option<SystemTime>,
}

impl BearerToken {
    fn is_due(&self, now: SystemTime) -> bool {
        self.refresh_at.is_some_and(|refresh_at| refresh_at <= now)
    }
}

impl OAuthClient {
    /// Creates the client of a principal for a server.
    pub fn new(
        owner: Owner,
        resource: Url,
        settings: OAuthSettings,
        (vault, slots): (Arc<CredentialVault>, Arc<dyn SlotStore>),
    ) -> Self {
        let key = credential_key(&resource);
        let lock = format!("oauth {}", sha256_hex(format!("{}\n{}", owner.as_str(), key.0).as_bytes()));
        let credentials = VaultCredentials { owner, key, lock, vault, slots };
        Self { resource, settings, credentials, current: ArcSwapOption::empty(), refresh: Mutex::new(()) }
    }

    /// Returns the `Authorization` header of a request, refreshing the token if it is about to expire.
    pub async fn authorization(&self) -> Result<HeaderValue, OAuthError> {
        if let Some(header) = self.fresh(SystemTime::now()) {
            return Ok(header);
        }
        let _single_flight = self.refresh.lock().await;
        if let Some(header) = self.fresh(SystemTime::now()) {
            return Ok(header);
        }
        self.load_or_refresh().await
    }

    /// Discards a token that the server has rejected, and returns the header for another attempt. The login is kept:
    /// the token may only have expired early.
    pub async fn replace_rejected(&self, rejected: &HeaderValue) -> Result<HeaderValue, OAuthError> {
        let _single_flight = self.refresh.lock().await;
        let current = self.current.load_full();
        match &current {
            // Another task has replaced it meanwhile.
            Some(current) if current.header != *rejected => return Ok(current.header.clone()),
            _ => self.current.store(None),
        }
        let record = self.record().await?;
        match record.header() {
            // Another process has replaced it meanwhile.
            Some(header) if header != *rejected => self.keep(&record),
            _ => self.refresh(&record).await,
        }
    }

    /// Returns the state of the login; `None` if there is none.
    pub async fn state(&self) -> Result<Option<LoginState>, OAuthError> {
        let record = self.credentials.record().await?;
        Ok(record.filter(|record| record.header().is_some()).map(|record| record.state()))
    }

    /// Forgets the login; returns `false` if there was none.
    pub async fn log_out(&self) -> Result<bool, OAuthError> {
        self.current.store(None);
        Ok(self.credentials.vault.remove(&self.credentials.owner, &self.credentials.key).await?)
    }

    fn fresh(&self, now: SystemTime) -> Option<HeaderValue> {
        let current = self.current.load();
        current.as_ref().filter(|token| !token.is_due(now)).map(|token| token.header.clone())
    }

    async fn load_or_refresh(&self) -> Result<HeaderValue, OAuthError> {
        let record = self.record().await?;
        if record.is_due(SystemTime::now()) { self.refresh(&record).await } else { self.keep(&record) }
    }

    async fn record(&self) -> Result<LoginRecord, OAuthError> {
        let record = self.credentials.record().await?.filter(|record| record.header().is_some());
        record.ok_or_else(|| OAuthError::LoginRequired { reason: "you are not logged in".to_owned() })
    }

    /// Keeps the token of a record in memory.
    fn keep(&self, record: &LoginRecord) -> Result<HeaderValue, OAuthError> {
        let header = record.header().ok_or_else(|| OAuthError::LoginRequired {
            reason: "the authorization server sent a token that is no valid header".to_owned(),
        })?;
        let token = BearerToken { header: header.clone(), refresh_at: record.refresh_at() };
        self.current.store(Some(Arc::new(token)));
        Ok(header)
    }

    /// Refreshes the token of a record. A failure of the network leaves the login as it is.
    async fn refresh(&self, record: &LoginRecord) -> Result<HeaderValue, OAuthError> {
        if !record.state().is_renewable {
            let reason = "the login has expired, and the server gave no way to renew it".to_owned();
            return Err(OAuthError::LoginRequired { reason });
        }
        let mut manager = self.manager().await?;
        let metadata = discover(&mut manager, None).await?;
        if record.is_of_other_issuer(&metadata) {
            let reason = "the server uses another authorization server than at the login".to_owned();
            return Err(OAuthError::LoginRequired { reason });
        }
        manager.configure_client(record.client_config(&self.settings)).map_err(unsupported)?;
        let guard = self.credentials.lock().await?;
        let latest = self.record().await?;
        if latest.header() != record.header() && !latest.is_due(SystemTime::now()) {
            // Another process was faster.
            return self.keep(&latest);
        }
        manager.refresh_token().await.map_err(refresh_error)?;
        drop(guard);
        let refreshed = self.record().await?;
        self.keep(&refreshed)
    }

    /// Returns the state machine of the protocol, with our requests and credentials.
    async fn manager(&self) -> Result<AuthorizationManager, OAuthError> {
        let mut configured = vec![self.resource.clone()];
        configured.extend(self.settings.issuer.clone());
        let requests = Arc::new(OAuthRequests::new(configured));
        let mut manager = AuthorizationManager::new_with_oauth_http_client(self.resource.clone(), requests)
            .await
            .map_err(unsupported)?;
        manager.set_credential_store(self.credentials.clone());
        Ok(manager)
    }
}

/// Finds the authorization server of a resource.
async fn discover(
    manager: &mut AuthorizationManager,
    challenge: Option<&str>,
) -> Result<AuthorizationMetadata, OAuthError> {
    let resolution = match challenge {
        Some(_) => manager.resolve_metadata_from_challenge(challenge).await,
        None => manager.resolve_metadata().await,
    };
    let resolution = resolution.map_err(|error| match error {
        AuthError::HttpError(_) | AuthError::MetadataError(_) | AuthError::InternalError(_) => {
            OAuthError::Temporary { reason: error.to_string() }
        }
        error => unsupported(error),
    })?;
    let AuthorizationMetadataResolution { metadata, source, .. } = resolution;
    let methods = metadata.code_challenge_methods_supported.as_deref().unwrap_or_default();
    // A server of 2025-03-26 may publish no metadata at all; one that does must announce PKCE.
    if source.is_discovered() && !methods.iter().any(|method| method == "S256") {
        let reason = "it does not support PKCE with S256, which protects logins".to_owned();
        return Err(OAuthError::Unsupported { reason });
    }
    manager.set_metadata(metadata.clone());
    Ok(metadata)
}

fn unsupported(error: AuthError) -> OAuthError {
    match error {
        AuthError::CredentialStoreError(reason) => OAuthError::Temporary { reason },
        error => OAuthError::Unsupported { reason: error.to_string() },
    }
}

fn refresh_error(error: AuthError) -> OAuthError {
    match error {
        AuthError::TokenRefreshRejected(_) => OAuthError::LoginRequired {
            reason: "the login was revoked or has expired at the authorization server".to_owned(),
        },
        AuthError::AuthorizationRequired => {
            OAuthError::LoginRequired { reason: "the login cannot be renewed".to_owned() }
        }
        error => OAuthError::Temporary { reason: error.to_string() },
    }
}

/// Returns the key under which the login at a server is stored: its URL without user, password and fragment.
pub fn credential_key(resource: &Url) -> CredentialKey {
    let mut url = resource.clone();
    // A URL without a host has neither, and is no server.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    CredentialKey(url.into())
}

/// Settings of the registered client of a login.
fn client_config(client_id: String, secret: Option<String>, redirect_uri: &str) -> OAuthClientConfig {
    let config = OAuthClientConfig::new(client_id, redirect_uri);
    match secret {
        Some(secret) => config.with_client_secret(secret),
        None => config,
    }
}
