//! The client under test, and its logins.

use std::sync::Arc;

use pegboard_auth::oauth::{LoginRequest, OAuthClient, OAuthError, OAuthSettings};
use pegboard_auth::vault::{CredentialVault, KEY_BYTES, SealingKey};
use pegboard_core::owner::Owner;
use pegboard_core::store::SlotStore;
use pegboard_stores::sqlite::Database;
use pegboard_testkit::authorization_server::AuthorizationServer;
use zeroize::Zeroizing;

/// State of the client that several processes share.
#[derive(Clone)]
pub(crate) struct ClientState {
    database: Database,
}

impl ClientState {
    pub(crate) fn new() -> Self {
        Self { database: Database::in_memory() }
    }

    /// Returns a client of a principal, as another process would have it.
    pub(crate) fn client(&self, owner: &str, server: &AuthorizationServer) -> OAuthClient {
        self.client_with(owner, server, OAuthSettings::default())
    }

    pub(crate) fn client_with(
        &self,
        owner: &str,
        server: &AuthorizationServer,
        settings: OAuthSettings,
    ) -> OAuthClient {
        let key = SealingKey::new(&Zeroizing::new([7; KEY_BYTES]));
        let vault = Arc::new(CredentialVault::new(Arc::new(self.database.clone()), key));
        let slots: Arc<dyn SlotStore> = Arc::new(self.database.clone());
        OAuthClient::new(Owner::new(owner), server.url.clone(), settings, (vault, slots))
    }
}

/// Logs in as a user.
pub(crate) async fn log_in(
    client: &OAuthClient,
    server: &AuthorizationServer,
    user: &str,
) -> Result<(), OAuthError> {
    let redirect_uri = "http://127.0.0.1:9/callback".parse().unwrap();
    let login = client.begin_login(&LoginRequest { redirect_uri, challenge: None }).await?;
    let callback = server.consent(login.url(), user);
    login.complete(&callback).await
}

/// Returns the token that a request would carry, or the reason why there is none.
pub(crate) async fn token_of(client: &OAuthClient) -> String {
    match client.authorization().await {
        Ok(None) => "you are not logged in".to_owned(),
        Ok(Some(header)) => header.to_str().unwrap().trim_start_matches("Bearer ").to_owned(),
        Err(error) => error.to_string(),
    }
}
