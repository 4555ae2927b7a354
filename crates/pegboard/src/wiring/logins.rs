//! Logins at servers: where their tokens come from, and what a rejection leads to.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use http::HeaderValue;
use parking_lot::Mutex;
use pegboard_auth::oauth::{self, LoginRequest, OAuthClient, OAuthError, OAuthSettings, TokenObserver, Url};
use pegboard_auth::secret_storage::SecretStorage;
use pegboard_auth::vault::CredentialVault;
use pegboard_core::id::ServerName;
use pegboard_core::owner::Owner;
use pegboard_core::secret::Secret;
use pegboard_core::settings::mcp::RemoteEndpoint;
use pegboard_core::store::{CredentialKey, SlotStore};
use pegboard_providers::mcp::{ServerLogins, StartedLogin};
use pegboard_stores::limits::DatabaseLimits;
use pegboard_stores::sqlite::Database;
use pegboard_wire::http::client::{
    AuthorizationError, AuthorizationRejection, RejectionReason, RequestAuthorizer,
};

use tokio::time;

use super::DATABASE;
use callback::CallbackListener;

pub mod callback;

/// Time that a user has for a login.
pub const LOGIN_TIMEOUT: Duration = Duration::from_mins(15);

/// The operator's logins at servers, which all users of a server share. Entries with one URL have one login.
pub struct Logins {
    vault: Arc<CredentialVault>,
    /// Locks of refreshes, which hold across processes.
    locks: Arc<dyn SlotStore>,
    observer: Arc<OnceLock<TokenObserver>>,
    clients: Mutex<HashMap<CredentialKey, OAuthClient>>,
    /// The last challenges of servers that require a login.
    challenges: Arc<Mutex<HashMap<CredentialKey, String>>>,
    /// The state file, if it is only open for these.
    database: Option<Arc<Database>>,
}

impl fmt::Debug for Logins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Logins").finish_non_exhaustive()
    }
}

impl Logins {
    /// Creates the logins in a vault.
    pub fn new(vault: CredentialVault, locks: Arc<dyn SlotStore>) -> Self {
        let (vault, observer) = (Arc::new(vault), Arc::default());
        Self { vault, locks, observer, clients: Mutex::default(), challenges: Arc::default(), database: None }
    }

    /// Opens the logins in a state directory, in the background.
    pub fn open(folder: &Path, secrets: Arc<SecretStorage>) -> Self {
        let path = folder.join(DATABASE);
        let database = Arc::new(Database::open_in_background(&path, DatabaseLimits::default()));
        let vault = CredentialVault::with_storage(Arc::clone(&database) as _, secrets);
        Self { database: Some(Arc::clone(&database)), ..Self::new(vault, database) }
    }

    /// Returns the reason why logins are kept in memory instead of the state directory, if so.
    pub async fn problem(&self) -> Option<String> {
        self.database.as_ref()?.problem().await.map(|error| error.to_string())
    }

    /// Sets the receiver of the secrets of logins, which gets them before they are used. The first one counts.
    pub fn observe(&self, observer: TokenObserver) {
        self.observer.get_or_init(|| observer);
    }

    /// Returns the OAuth client for the server at a URL; `None` if that is not the URL of a server.
    pub fn client(&self, url: &str) -> Option<OAuthClient> {
        let url = server_url(url)?;
        let mut clients = self.clients.lock();
        let new = || self.new_client(&url, OAuthSettings::default());
        Some(clients.entry(oauth::credential_key(&url)).or_insert_with(new).clone())
    }

    /// Same as [`client`](Self::client), for one login with these settings.
    pub fn client_with(&self, url: &str, settings: OAuthSettings) -> Option<OAuthClient> {
        Some(self.new_client(&server_url(url)?, settings))
    }

    fn new_client(&self, url: &Url, settings: OAuthSettings) -> OAuthClient {
        let stores = (Arc::clone(&self.vault), Arc::clone(&self.locks));
        let observer = Arc::clone(&self.observer);
        let observer = Arc::new(move |secret: &Secret| {
            if let Some(observer) = observer.get() {
                observer(secret);
            }
        });
        OAuthClient::new(Owner::local(), url.clone(), settings, stores).observed_by(observer)
    }
}

fn server_url(url: &str) -> Option<Url> {
    let url: Url = url.trim().parse().ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

impl ServerLogins for Logins {
    fn authorizer(
        &self,
        server: &ServerName,
        endpoint: &RemoteEndpoint,
    ) -> Option<Arc<dyn RequestAuthorizer>> {
        let client = self.client(&endpoint.url)?;
        let (key, challenges) = (client.key().clone(), Arc::clone(&self.challenges));
        Some(Arc::new(LoginAuthorizer { server: server.clone(), client, key, challenges }))
    }

    fn begin_login(
        &self,
        server: &ServerName,
        endpoint: &RemoteEndpoint,
    ) -> BoxFuture<'static, Result<StartedLogin, String>> {
        let client = self.client(&endpoint.url);
        let challenge = client.as_ref().and_then(|client| self.challenges.lock().get(client.key()).cloned());
        let server = server.clone();
        async move {
            let client = client.ok_or_else(|| "the URL of the server is invalid".to_owned())?;
            begin(client, challenge, server).await
        }
        .boxed()
    }
}

/// Begins a login, which a task completes when the browser comes back.
async fn begin(
    client: OAuthClient,
    challenge: Option<String>,
    server: ServerName,
) -> Result<StartedLogin, String> {
    let mut listener = CallbackListener::bind(0).await.map_err(|error| error.to_string())?;
    let request = LoginRequest { redirect_uri: listener.url().clone(), challenge };
    let login = client.begin_login(&request).await.map_err(|error| error.to_string())?;
    let url = login.url().to_string();
    // The task ends with the login, at most after its timeout.
    let task = tokio::spawn(async move {
        let completing = async {
            loop {
                if let Some(visit) = listener.visit().await.belongs_to(&login) {
                    return visit.complete(login, server.as_str()).await;
                }
            }
        };
        let done = time::timeout(LOGIN_TIMEOUT, completing).await;
        listener.close().await;
        match done {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(_elapsed) => Err("the login was not completed in time".to_owned()),
        }
    });
    let done = task.map(|done| done.unwrap_or_else(|error| Err(error.to_string())));
    Ok(StartedLogin { url, done: done.boxed() })
}

/// Authorizes requests with the login at a server.
struct LoginAuthorizer {
    server: ServerName,
    client: OAuthClient,
    key: CredentialKey,
    challenges: Arc<Mutex<HashMap<CredentialKey, String>>>,
}

impl LoginAuthorizer {
    fn login_required(&self, reason: &str) -> AuthorizationError {
        let Self { server, .. } = self;
        let reason = format!("{}. Run `pegboard auth login {server}`.", capitalized(reason));
        AuthorizationError::LoginRequired { reason }
    }

    fn error(&self, error: &OAuthError) -> AuthorizationError {
        match error {
            OAuthError::NotLoggedIn => {
                let server = &self.server;
                let reason = format!("Run `pegboard auth login {server}`, or set a token in its `headers`.");
                AuthorizationError::LoginRequired { reason }
            }
            OAuthError::LoginRequired { reason } => self.login_required(reason),
            OAuthError::Unsupported { .. } | OAuthError::Refused { .. } => {
                self.login_required(&error.to_string())
            }
            OAuthError::Temporary { .. } | OAuthError::Vault(_) => {
                AuthorizationError::Unavailable { reason: error.to_string() }
            }
        }
    }

    /// Returns another header for a request that was rejected.
    async fn replace(&self, rejection: AuthorizationRejection) -> Result<HeaderValue, AuthorizationError> {
        let AuthorizationRejection { authorization, reason, challenge } = rejection;
        match reason {
            RejectionReason::Unauthorized => {
                if let Some(challenge) = challenge {
                    self.challenges.lock().insert(self.key.clone(), challenge);
                }
                let replaced = self.client.replace_rejected(authorization.as_ref()).await;
                replaced.map_err(|error| self.error(&error))
            }
            RejectionReason::UnauthorizedAgain => {
                Err(self.login_required("it rejects the token of your login"))
            }
            RejectionReason::InsufficientScope => {
                let challenge = challenge.unwrap_or_default();
                let scopes = self.client.require_scopes(&challenge).await.unwrap_or_else(|error| {
                    tracing::debug!(%error, "The scopes that a server requires are not stored.");
                    Vec::new()
                });
                let named = match scopes.as_slice() {
                    [] => String::new(),
                    scopes => format!(" ({})", scopes.join(", ")),
                };
                let server = &self.server;
                let reason =
                    format!("The login lacks permissions{named}. Run `pegboard auth login {server}`.");
                Err(AuthorizationError::InsufficientScope { reason })
            }
        }
    }
}

impl RequestAuthorizer for LoginAuthorizer {
    fn forget(&self) {
        self.client.forget();
    }

    fn is_anonymous(&self) -> bool {
        self.client.is_logged_out()
    }

    fn authorize(&self) -> BoxFuture<'_, Result<Option<HeaderValue>, AuthorizationError>> {
        async { self.client.authorization().await.map_err(|error| self.error(&error)) }.boxed()
    }

    fn replace_rejected(
        &self,
        rejection: AuthorizationRejection,
    ) -> BoxFuture<'_, Result<HeaderValue, AuthorizationError>> {
        self.replace(rejection).boxed()
    }
}

fn capitalized(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}
