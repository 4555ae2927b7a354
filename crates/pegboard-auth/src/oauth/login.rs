//! Logins through the browser of a user.

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata, OAuthClientConfig,
};

use crate::oauth::{OAuthClient, OAuthError, client_config, discover, unsupported};

/// Name under which Pegboard registers itself.
const CLIENT_NAME: &str = "Pegboard";

/// A request to log in.
#[derive(Clone, Debug)]
pub struct LoginRequest {
    /// URL to which the authorization server sends the browser back.
    pub redirect_uri: Url,
    /// `WWW-Authenticate` header of the response that asked for the login, if there was one.
    pub challenge: Option<String>,
}

/// A login that waits for its user.
pub struct PendingLogin {
    client: OAuthClient,
    manager: AuthorizationManager,
    config: OAuthClientConfig,
    url: Url,
}

impl OAuthClient {
    /// Begins a login: finds the authorization server, registers Pegboard there if needed, and returns the URL that
    /// the user opens. The present login stays until this one is complete.
    pub async fn begin_login(&self, request: &LoginRequest) -> Result<PendingLogin, OAuthError> {
        let mut manager = self.manager().await?;
        let metadata = discover(&mut manager, request.challenge.as_deref()).await?;
        let mut scopes = match self.0.settings.scopes.as_slice() {
            [] => manager.select_scopes(None, &[]),
            scopes => scopes.to_vec(),
        };
        // A record that cannot be decrypted is replaced.
        if let Ok(Some(record)) = self.0.credentials.record().await {
            for scope in record.wanted_scopes() {
                if !scopes.contains(scope) {
                    scopes.push(scope.clone());
                }
            }
        }
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let config = match self.known_client(&metadata, &request.redirect_uri) {
            Some(config) => config,
            None => register(&mut manager, &request.redirect_uri, &scopes).await?,
        };
        manager.configure_client(config.clone()).map_err(unsupported)?;
        let url = manager.get_authorization_url(&scopes).await.map_err(unsupported)?;
        let url = self.checked_url(&url)?;
        Ok(PendingLogin { client: self.clone(), manager, config, url })
    }

    /// Returns the client to log in with, if it needs no registration: one that was registered beforehand, or one
    /// with a metadata document that the authorization server accepts.
    fn known_client(
        &self,
        metadata: &AuthorizationMetadata,
        redirect_uri: &Url,
    ) -> Option<OAuthClientConfig> {
        if let Some(id) = &self.0.settings.client_id {
            let secret = self.0.settings.client_secret.as_ref().map(|secret| secret.reveal().to_owned());
            return Some(client_config(id.clone(), secret, redirect_uri.as_str()));
        }
        let accepts_documents = metadata
            .additional_fields
            .get("client_id_metadata_document_supported")
            .is_some_and(|supported| supported == true);
        let url = self.0.settings.client_metadata_url.as_ref().filter(|_| accepts_documents)?;
        Some(client_config(url.clone(), None, redirect_uri.as_str()))
    }

    /// Returns the URL for the browser, unless it could be anything but a page of the web.
    fn checked_url(&self, url: &str) -> Result<Url, OAuthError> {
        let refused = |reason: &str| OAuthError::Unsupported { reason: reason.to_owned() };
        let url: Url = url.parse().map_err(|_| refused("its login page has an invalid URL"))?;
        let is_local = url.scheme() == "http"
            && pegboard_http::is_loopback(&url)
            && pegboard_http::is_loopback(&self.0.resource);
        if url.scheme() == "https" || is_local || url.origin() == self.0.resource.origin() {
            return Ok(url);
        }
        Err(refused("its login page does not use HTTPS"))
    }
}

/// Registers Pegboard as a new client.
async fn register(
    manager: &mut AuthorizationManager,
    redirect_uri: &Url,
    scopes: &[&str],
) -> Result<OAuthClientConfig, OAuthError> {
    manager.register_client(CLIENT_NAME, redirect_uri.as_str(), scopes).await.map_err(|error| {
        let reason = match error {
            AuthError::RegistrationFailed(reason) => format!(
                "it does not accept new clients ({reason}); register Pegboard there, and set `clientId`"
            ),
            error => error.to_string(),
        };
        OAuthError::Unsupported { reason }
    })
}

impl PendingLogin {
    /// Returns the URL that the user opens.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns `true` if the browser was sent back from this login, and not from another one.
    pub fn is_answered_by(&self, callback: &Url) -> bool {
        let state = parameter(&self.url, "state");
        state.is_some() && parameter(callback, "state") == state
    }

    /// Completes the login with the URL to which the browser was sent back.
    pub async fn complete(self, callback: &Url) -> Result<(), OAuthError> {
        if let Some(error) = parameter(callback, "error") {
            let description = parameter(callback, "error_description");
            let reason = description.map_or(error.clone(), |text| format!("{text} ({error})"));
            return Err(OAuthError::Refused { reason });
        }
        let refused = |error: AuthError| OAuthError::Refused { reason: error.to_string() };
        let AuthorizationCallback { code, csrf_token, issuer, .. } =
            AuthorizationCallback::from_redirect_url(callback.as_str()).map_err(refused)?;
        let credentials = &self.client.0.credentials;
        // A refresh of the present login must not overwrite this one.
        let _lock = credentials.lock().await?;
        credentials.discard_unreadable().await?;
        self.manager
            .exchange_code_for_token_with_issuer(&code, &csrf_token, issuer.as_deref())
            .await
            .map_err(refused)?;
        credentials.save_client(&self.config).await?;
        self.client.forget();
        Ok(())
    }
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}
