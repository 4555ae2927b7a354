//! The stored login of a principal at a server.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use http::HeaderValue;
use pegboard_core::owner::Owner;
use pegboard_core::secret::Secret;
use pegboard_core::store::{CredentialKey, LeaseId, SlotStore};
use rmcp::transport::auth::{
    AuthError, AuthorizationMetadata, CredentialStore, OAuthClientConfig, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use tokio::time;

use crate::oauth::{
    LoginDetails, LoginState, MAX_REQUIRED_SCOPES, OAuthError, OAuthSettings, REFRESH_AHEAD, client_config,
};
use crate::vault::{CredentialVault, VaultError};

/// Time after which the lock of a process that died is free again.
const LOCK_LIFETIME: Duration = Duration::from_mins(2);

/// Time to wait for another process that refreshes the same token.
const LOCK_TIMEOUT: Duration = Duration::from_secs(45);

/// Pause between attempts to take the lock.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A login as it is stored.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoginRecord {
    /// Tokens, client id and issuer.
    credentials: Option<StoredCredentials>,
    /// Secret of a client that was registered for this login.
    client_secret: Option<String>,
    /// Redirect URI of that client.
    redirect_uri: String,
    /// Reason why the authorization server has ended the login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
    /// Scopes that the server has required since the login.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    required_scopes: Vec<String>,
}

impl LoginRecord {
    /// Returns the `Authorization` header; `None` if there is no usable token.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let token = self.token_member("access_token")?;
        let mut header = HeaderValue::from_str(&format!("Bearer {}", token.reveal())).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Returns the tokens, and the secret of the client.
    pub(super) fn secrets(&self) -> Vec<Secret> {
        let tokens = ["access_token", "refresh_token", "id_token"].map(|name| self.token_member(name));
        let client_secret = self.client_secret.as_ref().map(Secret::new);
        tokens.into_iter().chain([client_secret]).flatten().collect()
    }

    fn token_member(&self, name: &str) -> Option<Secret> {
        Some(Secret::new(self.token_response()?.get(name)?.as_str()?))
    }

    /// Returns the response of the token endpoint: its type gives access to its members in other crates' versions only.
    fn token_response(&self) -> Option<serde_json::Value> {
        let token = self.credentials.as_ref()?.token_response.as_ref()?;
        serde_json::to_value(token).ok()
    }

    pub(super) fn state(&self) -> LoginState {
        match (&self.credentials, &self.lost) {
            (_, Some(reason)) => LoginState::Lost(reason.clone()),
            (Some(credentials), None) if self.header().is_some() => LoginState::LoggedIn(LoginDetails {
                issuer: credentials.issuer.clone(),
                scopes: credentials.granted_scopes.clone(),
                expires: self.expires(),
                is_renewable: self.is_renewable(),
            }),
            (_, None) => LoginState::LoggedOut,
        }
    }

    /// Returns the reason why the authorization server has ended the login.
    pub(super) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Returns the scopes that another login must ask for: those that were granted, and those required since.
    pub(super) fn wanted_scopes(&self) -> impl Iterator<Item = &String> {
        let granted = self.credentials.as_ref().map(|credentials| &credentials.granted_scopes);
        // Without a requirement the server decides again.
        let granted = granted.filter(|_| !self.required_scopes.is_empty());
        granted.into_iter().flatten().chain(&self.required_scopes)
    }

    pub(super) fn is_renewable(&self) -> bool {
        self.token_member("refresh_token").is_some()
    }

    fn received(&self) -> Option<SystemTime> {
        let received = self.credentials.as_ref()?.token_received_at?;
        SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(received))
    }

    fn lifetime(&self) -> Option<Duration> {
        self.token_response()?.get("expires_in")?.as_u64().map(Duration::from_secs)
    }

    /// Returns the expiry of the token; `None` for a token without one.
    pub(super) fn expires(&self) -> Option<SystemTime> {
        self.received()?.checked_add(self.lifetime()?)
    }

    /// Returns the time from which the token is refreshed; `None` for a token without expiry.
    pub(super) fn refresh_at(&self) -> Option<SystemTime> {
        self.expires()?.checked_sub(REFRESH_AHEAD.min(self.lifetime()? / 10))
    }

    pub(super) fn is_expired(&self, now: SystemTime) -> bool {
        self.expires().is_some_and(|expires| expires <= now)
    }

    pub(super) fn is_due(&self, now: SystemTime) -> bool {
        self.refresh_at().is_some_and(|refresh_at| refresh_at <= now)
    }

    /// Returns `true` if the login was granted by another authorization server than the one that was discovered.
    pub(super) fn is_of_other_issuer(&self, discovered: &AuthorizationMetadata) -> bool {
        let stored = self.credentials.as_ref().and_then(|credentials| credentials.issuer.as_deref());
        stored.zip(discovered.issuer.as_deref()).is_some_and(|(stored, discovered)| stored != discovered)
    }

    pub(super) fn client_config(&self, settings: &OAuthSettings) -> OAuthClientConfig {
        let credentials = self.credentials.as_ref();
        let id = credentials.map(|credentials| credentials.client_id.clone()).unwrap_or_default();
        let secret = match &settings.client_id {
            Some(configured) if *configured == id => {
                settings.client_secret.as_ref().map(|secret| secret.reveal().to_owned())
            }
            _ => self.client_secret.clone(),
        };
        client_config(id, secret, &self.redirect_uri)
    }
}

/// Credentials of one principal at one server, in the vault.
#[derive(Clone)]
pub(super) struct VaultCredentials {
    pub(super) owner: Owner,
    pub(super) key: CredentialKey,
    /// Name of the lock that one refresh at a time holds, also across processes.
    pub(super) lock: String,
    pub(super) vault: Arc<CredentialVault>,
    pub(super) slots: Arc<dyn SlotStore>,
}

impl VaultCredentials {
    pub(super) async fn record(&self) -> Result<Option<LoginRecord>, OAuthError> {
        Ok(self.vault.load(&self.owner, &self.key).await?)
    }

    /// Stores the client of a login that is complete.
    pub(super) async fn save_client(&self, config: &OAuthClientConfig) -> Result<(), OAuthError> {
        self.change(|record| {
            record.client_secret.clone_from(&config.client_secret);
            record.redirect_uri.clone_from(&config.redirect_uri);
            record.required_scopes.clear();
        })
        .await
    }

    /// Removes a record that cannot be decrypted, so that it can be replaced.
    pub(super) async fn discard_unreadable(&self) -> Result<(), OAuthError> {
        match self.record().await {
            Err(OAuthError::Vault(VaultError::Unreadable)) => {
                self.vault.remove(&self.owner, &self.key).await?;
                Ok(())
            }
            record => record.map(drop),
        }
    }

    /// Adds scopes that the next login asks for.
    pub(super) async fn require_scopes(&self, scopes: &[&str]) -> Result<(), OAuthError> {
        self.change(|record| {
            for scope in scopes {
                if record.required_scopes.iter().all(|known| known != scope)
                    && record.required_scopes.len() < MAX_REQUIRED_SCOPES
                {
                    record.required_scopes.push((*scope).to_owned());
                }
            }
        })
        .await
    }

    /// Discards the tokens of a login that has ended, unless there is another one by now. The reason is kept.
    pub(super) async fn lose(&self, ended: &LoginRecord, reason: &str) -> Result<(), OAuthError> {
        let current = self.record().await?.unwrap_or_default();
        if current.header() != ended.header() {
            return Ok(());
        }
        let lost = LoginRecord { credentials: None, lost: Some(reason.to_owned()), ..current };
        Ok(self.vault.save(&self.owner, &self.key, &lost).await?)
    }

    async fn change(&self, change: impl FnOnce(&mut LoginRecord)) -> Result<(), OAuthError> {
        let mut record = self.record().await?.unwrap_or_default();
        change(&mut record);
        Ok(self.vault.save(&self.owner, &self.key, &record).await?)
    }

    /// Waits for the lock of refreshes, which also holds for other processes.
    pub(super) async fn lock(&self) -> Result<RefreshLock, OAuthError> {
        let taking = async {
            loop {
                let now = SystemTime::now();
                let lease = self.slots.lease(self.lock.clone(), 1, now, now + LOCK_LIFETIME).await;
                match lease.map_err(VaultError::from)? {
                    Some(lease) => {
                        return Ok(RefreshLock { slots: Arc::clone(&self.slots), lease: Some(lease) });
                    }
                    None => time::sleep(LOCK_PAUSE).await,
                }
            }
        };
        time::timeout(LOCK_TIMEOUT, taking).await.unwrap_or_else(|_elapsed| {
            Err(OAuthError::Temporary { reason: "another process is refreshing the token".to_owned() })
        })
    }
}

/// Lock of a refresh, released when it is dropped.
pub(super) struct RefreshLock {
    slots: Arc<dyn SlotStore>,
    lease: Option<LeaseId>,
}

impl Drop for RefreshLock {
    fn drop(&mut self) {
        if let (Some(lease), Ok(runtime)) = (self.lease.take(), tokio::runtime::Handle::try_current()) {
            let slots = Arc::clone(&self.slots);
            runtime.spawn(async move { slots.release(lease).await });
        }
    }
}

#[async_trait]
impl CredentialStore for VaultCredentials {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.record().await.map_err(|error| store_error(&error))?.and_then(|record| record.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let saved = self.change(|record| {
            record.credentials = Some(credentials);
            record.lost = None;
        });
        saved.await.map_err(|error| store_error(&error))
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.vault.remove(&self.owner, &self.key).await.map(drop).map_err(|error| store_error(&error.into()))
    }

    /// Does nothing: the refresh itself records that the login has ended.
    async fn on_refresh_token_rejected(&self, _rejected: &StoredCredentials) -> Result<(), AuthError> {
        Ok(())
    }
}

fn store_error(error: &OAuthError) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}
