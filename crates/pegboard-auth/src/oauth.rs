//! OAuth client for MCP servers: discovery, registration, login, refresh.
//!
//! [`rmcp`] implements the protocol. Added here: where requests may go, encrypted credentials per principal, refresh
//! ahead of expiry as a single flight across tasks and processes, and errors that tell a lost login from a lost
//! network.

mod credentials;
mod http_client;
mod login;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use futures_util::FutureExt;
use http::HeaderValue;
use pegboard_core::fingerprint::sha256_hex;
use pegboard_core::owner::Owner;
use pegboard_core::secret::Secret;
use pegboard_core::store::{CredentialKey, SlotStore};
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationMetadataResolution,
    OAuthClientConfig, WWWAuthenticateParams,
};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

use crate::vault::{CredentialVault, VaultError};
use credentials::{LoginRecord, VaultCredentials};
use http_client::OAuthRequests;

pub use login::{LoginRequest, PendingLogin};
pub use reqwest::Url;

/// A token is refreshed this long before it expires, or after 90 % of its lifetime if that is later.
const REFRESH_AHEAD: Duration = Duration::from_mins(1);

/// Pause between attempts to refresh a token that is still valid.
const REFRESH_PAUSE: Duration = Duration::from_secs(5);

/// Maximum number of scopes that a server can add to the next login, and their maximum length.
const MAX_REQUIRED_SCOPES: usize = 100;
const MAX_SCOPE_BYTES: usize = 200;

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
pub enum LoginState {
    /// There is none.
    LoggedOut,
    /// The authorization server has ended it, for this reason.
    Lost(String),
    /// There is a token.
    LoggedIn(LoginDetails),
}

/// A login with its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginDetails {
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
    /// The user has not logged in.
    #[error("you are not logged in")]
    NotLoggedIn,
    /// The user must log in again.
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

/// Authorization of one principal at one server. Tokens belong to the principal, the server and the issuer. Clones share
/// it.
#[derive(Clone)]
pub struct OAuthClient(Arc<OAuthClientInner>);

struct OAuthClientInner {
    resource: Url,
    settings: OAuthSettings,
    credentials: VaultCredentials,
    /// The current token, so that a call neither waits nor reads the store.
    current: ArcSwap<CurrentToken>,
    /// Held while the token is loaded or refreshed.
    flight: Arc<Mutex<FlightState>>,
    observer: TokenObserver,
}

/// Receives the secrets of a login before they are used, so that log and output redact them.
pub type TokenObserver = Arc<dyn Fn(&Secret) + Send + Sync>;

/// Knowledge about the token.
enum CurrentToken {
    /// The store has not been read.
    Unknown,
    /// There is no login.
    Absent,
    Bearer(BearerToken),
}

/// An access token as it is sent.
struct BearerToken {
    header: HeaderValue,
    refresh_at: Option<SystemTime>,
    expires: Option<SystemTime>,
}

impl BearerToken {
    fn is_due(&self, now: SystemTime) -> bool {
        self.refresh_at.is_some_and(|refresh_at| refresh_at <= now)
    }

    fn is_expired(&self, now: SystemTime) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }
}

/// Outcome of the last task that loaded or refreshed the token.
#[derive(Default)]
struct FlightState {
    /// Its error, and when it occurred.
    failure: Option<(Instant, OAuthError)>,
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
        Self(Arc::new(OAuthClientInner {
            resource,
            settings,
            credentials,
            current: ArcSwap::from_pointee(CurrentToken::Unknown),
            flight: Arc::default(),
            observer: Arc::new(|_token| {}),
        }))
    }

    /// Sets the receiver of tokens. Must be called before the client is cloned.
    #[must_use]
    pub fn observed_by(self, observer: TokenObserver) -> Self {
        match Arc::try_unwrap(self.0) {
            Ok(inner) => Self(Arc::new(OAuthClientInner { observer, ..inner })),
            Err(shared) => Self(shared),
        }
    }

    /// Returns the key under which the login is stored.
    pub fn key(&self) -> &CredentialKey {
        &self.0.credentials.key
    }

    /// Forgets the token in memory, so that the next request reads the stored login.
    pub fn forget(&self) {
        self.0.current.store(Arc::new(CurrentToken::Unknown));
    }

    /// Returns `true` if it is known that there is no login.
    pub fn is_logged_out(&self) -> bool {
        matches!(**self.0.current.load(), CurrentToken::Absent)
    }

    /// Returns the `Authorization` header of a request; `None` without a login. A token that is about to expire is
    /// refreshed in the background; only once it has expired, requests wait.
    ///
    /// A refresh goes on if its caller no longer waits: a server that has exchanged the refresh token accepts only the
    /// new one.
    pub async fn authorization(&self) -> Result<Option<HeaderValue>, OAuthError> {
        if let ControlFlow::Break(known) = self.known(SystemTime::now()) {
            return Ok(known);
        }
        let flight = self.join_flight().await?;
        if let ControlFlow::Break(known) = self.known(SystemTime::now()) {
            return Ok(known);
        }
        let client = self.clone();
        flight.complete(async move { client.load_or_refresh().await }).await
    }

    /// Discards a header that the server has rejected, and returns one for another attempt. The login is kept: the token
    /// may only have expired early. `None` is a request without a header.
    pub async fn replace_rejected(&self, rejected: Option<&HeaderValue>) -> Result<HeaderValue, OAuthError> {
        let flight = self.join_flight().await?;
        if let CurrentToken::Bearer(current) = &**self.0.current.load()
            && Some(&current.header) != rejected
        {
            // Another task has replaced it meanwhile.
            return Ok(current.header.clone());
        }
        let (client, rejected) = (self.clone(), rejected.cloned());
        let replacing = async move {
            let record = client.record().await?;
            match record.header() {
                // Another process has replaced it meanwhile.
                Some(header) if Some(&header) != rejected.as_ref() => client.keep(&record),
                _ => client.refresh(&record).await,
            }
        };
        flight.complete(replacing).await
    }

    /// Returns the state of the login.
    pub async fn state(&self) -> Result<LoginState, OAuthError> {
        let record = self.0.credentials.record().await?;
        Ok(record.map_or(LoginState::LoggedOut, |record| record.state()))
    }

    /// Remembers the scopes that a challenge requires, so that the next login asks for them, too. Returns them.
    pub async fn require_scopes(&self, challenge: &str) -> Result<Vec<String>, OAuthError> {
        let scope = WWWAuthenticateParams::parse(challenge, &self.0.resource).scope.unwrap_or_default();
        let is_valid = |scope: &&str| {
            scope.len() <= MAX_SCOPE_BYTES
                && scope.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
        };
        let scopes: Vec<&str> = scope.split_whitespace().filter(is_valid).take(MAX_REQUIRED_SCOPES).collect();
        let _flight = self.0.flight.lock().await;
        self.0.credentials.require_scopes(&scopes).await?;
        Ok(scopes.into_iter().map(str::to_owned).collect())
    }

    /// Forgets the login; returns `false` if there was none.
    pub async fn log_out(&self) -> Result<bool, OAuthError> {
        let _flight = self.0.flight.lock().await;
        let credentials = &self.0.credentials;
        // One that cannot be decrypted is removed, too.
        let was_logged_in = match credentials.record().await {
            Ok(record) => record.is_some_and(|record| record.header().is_some()),
            Err(_) => true,
        };
        let is_removed = credentials.vault.remove(&credentials.owner, &credentials.key).await?;
        self.0.current.store(Arc::new(CurrentToken::Absent));
        Ok(is_removed && was_logged_in)
    }

    /// Returns the header if it needs no wait. Starts the refresh of a token that is about to expire.
    fn known(&self, now: SystemTime) -> ControlFlow<Option<HeaderValue>> {
        match &**self.0.current.load() {
            CurrentToken::Unknown => ControlFlow::Continue(()),
            CurrentToken::Absent => ControlFlow::Break(None),
            CurrentToken::Bearer(token) if token.is_expired(now) => ControlFlow::Continue(()),
            CurrentToken::Bearer(token) => {
                if token.is_due(now) {
                    self.refresh_ahead();
                }
                ControlFlow::Break(Some(token.header.clone()))
            }
        }
    }

    /// Waits for the task that loads or refreshes the token. What made it fail since then is an error here, too.
    async fn join_flight(&self) -> Result<RefreshFlight, OAuthError> {
        let since = Instant::now();
        let flight = Arc::clone(&self.0.flight).lock_owned().await;
        match &flight.failure {
            Some((at, error)) if *at >= since => Err(error.clone()),
            _ => Ok(RefreshFlight(flight)),
        }
    }

    /// Refreshes the token in a task, unless one does so already, or has failed a moment ago.
    fn refresh_ahead(&self) {
        let Ok(flight) = Arc::clone(&self.0.flight).try_lock_owned() else { return };
        if flight.failure.as_ref().is_some_and(|(at, _)| at.elapsed() < REFRESH_PAUSE) {
            return;
        }
        let client = self.clone();
        let refreshing = RefreshFlight(flight).complete(async move {
            let record = client.record().await?;
            if record.is_due(SystemTime::now()) {
                client.refresh(&record).await
            } else {
                // Another process was faster.
                client.keep(&record)
            }
        });
        let server = pegboard_http::origin(&self.0.resource);
        tokio::spawn(async move {
            if let Err(error) = refreshing.await {
                tracing::warn!(%server, %error, "The token of a server was not refreshed.");
            }
        });
    }

    async fn load_or_refresh(&self) -> Result<Option<HeaderValue>, OAuthError> {
        let record = match self.0.credentials.record().await {
            // Most servers need no login, and one that does answers so.
            Err(OAuthError::Vault(VaultError::Store(error))) => {
                tracing::debug!(%error, "Cannot read the login at a server.");
                return Ok(None);
            }
            record => record?.filter(|record| record.header().is_some()),
        };
        match record {
            None => {
                self.0.current.store(Arc::new(CurrentToken::Absent));
                Ok(None)
            }
            Some(record) if record.is_expired(SystemTime::now()) => self.refresh(&record).await.map(Some),
            Some(record) => self.keep(&record).map(Some),
        }
    }

    /// Returns the stored login, which has a token.
    async fn record(&self) -> Result<LoginRecord, OAuthError> {
        let record = self.0.credentials.record().await?;
        match record {
            Some(record) if record.header().is_some() => Ok(record),
            record => {
                self.0.current.store(Arc::new(CurrentToken::Absent));
                let lost = record.and_then(|record| record.lost().map(str::to_owned));
                Err(lost.map_or(OAuthError::NotLoggedIn, |reason| OAuthError::LoginRequired { reason }))
            }
        }
    }

    /// Keeps the token of a record in memory.
    fn keep(&self, record: &LoginRecord) -> Result<HeaderValue, OAuthError> {
        let header = record.header().ok_or_else(|| OAuthError::LoginRequired {
            reason: "the authorization server sent a token that is no valid header".to_owned(),
        })?;
        self.observe(record);
        let token = BearerToken {
            header: header.clone(),
            refresh_at: record.refresh_at(),
            expires: record.expires(),
        };
        self.0.current.store(Arc::new(CurrentToken::Bearer(token)));
        Ok(header)
    }

    fn observe(&self, record: &LoginRecord) {
        record.secrets().iter().for_each(|secret| (self.0.observer)(secret));
    }

    /// Refreshes the token of a record. A failure of the network leaves the login as it is.
    async fn refresh(&self, record: &LoginRecord) -> Result<HeaderValue, OAuthError> {
        let inner = &self.0;
        // The authorization server may repeat them in an error.
        self.observe(record);
        if !record.is_renewable() {
            let reason = "the login has expired, and the server gave no way to renew it".to_owned();
            inner.current.store(Arc::new(CurrentToken::Absent));
            inner.credentials.lose(record, &reason).await?;
            return Err(OAuthError::LoginRequired { reason });
        }
        let mut manager = self.manager().await?;
        let metadata = discover(&mut manager, None).await?;
        if record.is_of_other_issuer(&metadata) {
            let reason = "the server uses another authorization server than at the login".to_owned();
            return Err(OAuthError::LoginRequired { reason });
        }
        manager.configure_client(record.client_config(&inner.settings)).map_err(unsupported)?;
        let lock = inner.credentials.lock().await?;
        let latest = self.record().await?;
        if latest.header() != record.header() && !latest.is_due(SystemTime::now()) {
            // Another process was faster.
            return self.keep(&latest);
        }
        if let Err(error) = manager.refresh_token().await {
            let error = refresh_error(error);
            if let OAuthError::LoginRequired { reason } = &error {
                inner.current.store(Arc::new(CurrentToken::Absent));
                inner.credentials.lose(&latest, reason).await?;
            }
            return Err(error);
        }
        drop(lock);
        let refreshed = self.record().await?;
        self.keep(&refreshed)
    }

    /// Returns the state machine of the protocol, with our requests and credentials.
    async fn manager(&self) -> Result<AuthorizationManager, OAuthError> {
        let mut configured = vec![self.0.resource.clone()];
        configured.extend(self.0.settings.issuer.clone());
        let requests = Arc::new(OAuthRequests::new(configured));
        let mut manager = AuthorizationManager::new_with_oauth_http_client(self.0.resource.clone(), requests)
            .await
            .map_err(unsupported)?;
        manager.set_credential_store(self.0.credentials.clone());
        Ok(manager)
    }
}

/// The only task that loads or refreshes the token of a client.
struct RefreshFlight(OwnedMutexGuard<FlightState>);

impl RefreshFlight {
    /// Runs work on the token to its end in a task, even if the returned future is dropped.
    fn complete<T: Send + 'static>(
        mut self,
        work: impl Future<Output = Result<T, OAuthError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, OAuthError>> {
        let task = tokio::spawn(async move {
            let done = work.await;
            self.0.failure = done.as_ref().err().map(|error| (Instant::now(), error.clone()));
            done
        });
        task.map(|done| done.unwrap_or_else(|error| Err(OAuthError::Temporary { reason: error.to_string() })))
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
