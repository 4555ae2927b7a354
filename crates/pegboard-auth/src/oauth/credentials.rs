//! The stored login of a principal at a server.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use http::HeaderValue;
use pegboard_core::owner::Owner;
use pegboard_core::store::{CredentialKey, LeaseId, SlotStore};
use rmcp::transport::auth::{
    AuthError, AuthorizationMetadata, CredentialStore, OAuthClientConfig, StoredCredentials,
};
use serde::{Deserialize, Serialize};
use tokio::time;

use crate::oauth::{LoginState, OAuthError, OAuthSettings, REFRESH_AHEAD, client_config};
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
}

impl LoginRecord {
    /// Returns the `Authorization` header; `None` if there is no usable token.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        use rmcp::transport::auth::OAuthTokenResponse;
        let token: &OAuthTokenResponse = self.credentials.as_ref()?.token_response.as_ref()?;
        let token = serde_json::to_value(token).ok()?;
        let token = token.get("access_token")?.as_str()?;
        let mut header = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    pub(super) fn state(&self) -> LoginState {
        let credentials = self.credentials.as_ref();
        let token = credentials.and_then(|credentials| credentials.token_response.as_ref());
        let token = token.and_then(|token| serde_json::to_value(token).ok()).unwrap_or_default();
        let lifetime = token.get("expires_in").and_then(serde_json::Value::as_u64);
        let received = credentials.and_then(|credentials| credentials.token_received_at);
        let expires = received.zip(lifetime).and_then(|(received, lifetime)| {
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(received.saturating_add(lifetime)))
        });
        LoginState {
            issuer: credentials.and_then(|credentials| credentials.issuer.clone()),
            scopes: credentials.map(|credentials| credentials.granted_scopes.clone()).unwrap_or_default(),
            expires,
            is_renewable: token.get("refresh_token").is_some_and(serde_json::Value::is_string),
        }
    }

    /// Returns the time from which the token is refreshed; `None` for a token without expiry.
    pub(super) fn refresh_at(&self) -> Option<SystemTime> {
        let expires = self.state().expires?;
        let received = self.credentials.as_ref()?.token_received_at?;
        let received = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(received))?;
        let lifetime = expires.duration_since(received).unwrap_or_default();
        expires.checked_sub(REFRESH_AHEAD.min(lifetime / 10))
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

    /// Stores the client that a login uses, before its tokens exist.
    pub(super) async fn save_client(&self, config: &OAuthClientConfig) -> Result<(), OAuthError> {
        let previous = self.record().await.ok().flatten().unwrap_or_default();
        let record = LoginRecord {
            client_secret: config.client_secret.clone(),
            redirect_uri: config.redirect_uri.clone(),
            ..previous
        };
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
        let previous = self.record().await.map_err(|error| store_error(&error))?.unwrap_or_default();
        let record = LoginRecord { credentials: Some(credentials), ..previous };
        self.vault.save(&self.owner, &self.key, &record).await.map_err(|error| store_error(&error.into()))
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.vault.remove(&self.owner, &self.key).await.map(drop).map_err(|error| store_error(&error.into()))
    }

    async fn on_refresh_token_rejected(&self, rejected: &StoredCredentials) -> Result<(), AuthError> {
        let record = self.record().await.map_err(|error| store_error(&error))?;
        let is_current = record.and_then(|record| record.credentials).is_some_and(|current| {
            current.token_received_at == rejected.token_received_at && current.client_id == rejected.client_id
        });
        if is_current { self.clear().await } else { Ok(()) }
    }
}

fn store_error(error: &OAuthError) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}
