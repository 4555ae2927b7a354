//! A resource and its authorization server, and the client under test.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::{Form, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use pegboard_auth::oauth::{LoginRequest, OAuthClient, OAuthError, OAuthSettings};
use pegboard_auth::vault::{CredentialVault, KEY_BYTES, SealingKey};
use pegboard_core::owner::Owner;
use pegboard_core::store::SlotStore;
use pegboard_stores::sqlite::Database;
use reqwest::Url;
use serde_json::{Value, json};
use zeroize::Zeroizing;

/// Behaviour of the server, changed by tests.
#[derive(Clone, Debug)]
pub(crate) struct ServerBehaviour {
    /// Lifetime of the token that a login yields, in seconds.
    pub(crate) first_lifetime: u64,
    /// Lifetime of a refreshed token.
    pub(crate) lifetime: u64,
    /// Status and body of refreshes, instead of a token.
    pub(crate) refuse_refresh: Option<(u16, Value)>,
    /// Members of the metadata that are replaced; `null` removes one.
    pub(crate) metadata: Value,
    /// Issuer in redirects.
    pub(crate) redirect_issuer: Option<String>,
    /// Refresh tokens are exchanged with each use.
    pub(crate) rotates: bool,
}

impl Default for ServerBehaviour {
    fn default() -> Self {
        Self {
            first_lifetime: 3600,
            lifetime: 3600,
            refuse_refresh: None,
            metadata: json!({}),
            redirect_issuer: None,
            rotates: true,
        }
    }
}

/// A server that is resource and authorization server at once.
#[derive(Clone)]
pub(crate) struct TestServer {
    pub(crate) url: Url,
    state: Arc<ServerState>,
}

#[derive(Default)]
struct ServerState {
    origin: Mutex<String>,
    behaviour: Mutex<ServerBehaviour>,
    /// Challenge and user of each code.
    codes: Mutex<HashMap<String, (String, String)>>,
    /// User of each valid refresh token.
    refresh_tokens: Mutex<HashMap<String, String>>,
    n_tokens: AtomicUsize,
    n_refreshes: AtomicUsize,
    n_registrations: AtomicUsize,
    /// `resource` of every token request.
    resources: Mutex<Vec<String>>,
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(ServerState::default());
        let app = Router::new()
            .route("/.well-known/oauth-protected-resource/mcp", get(resource_metadata))
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/register", post(register))
            .route("/token", post(token))
            .with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        state.origin.lock().clone_from(&origin);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url: format!("{origin}/mcp").parse().unwrap(), state }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut ServerBehaviour)) {
        change(&mut self.state.behaviour.lock());
    }

    pub(crate) fn n_refreshes(&self) -> usize {
        self.state.n_refreshes.load(Ordering::SeqCst)
    }

    pub(crate) fn n_registrations(&self) -> usize {
        self.state.n_registrations.load(Ordering::SeqCst)
    }

    pub(crate) fn resources(&self) -> Vec<String> {
        self.state.resources.lock().clone()
    }

    /// Invalidates all refresh tokens.
    pub(crate) fn revoke_all(&self) {
        self.state.refresh_tokens.lock().clear();
    }

    /// Agrees to a login as the user, and returns the URL that the browser is sent to.
    pub(crate) fn consent(&self, login: &Url, user: &str) -> Url {
        let parameters: HashMap<_, _> = login.query_pairs().into_owned().collect();
        assert_eq!(parameters["code_challenge_method"], "S256");
        let code = format!("code-{}", self.state.n_tokens.fetch_add(1, Ordering::SeqCst));
        let challenge = parameters["code_challenge"].clone();
        self.state.codes.lock().insert(code.clone(), (challenge, user.to_owned()));
        let mut url: Url = parameters["redirect_uri"].parse().unwrap();
        url.query_pairs_mut().append_pair("code", &code).append_pair("state", &parameters["state"]);
        if let Some(issuer) = &self.state.behaviour.lock().redirect_issuer {
            url.query_pairs_mut().append_pair("iss", issuer);
        }
        url
    }
}

async fn resource_metadata(State(state): State<Arc<ServerState>>) -> Json<Value> {
    let origin = state.origin.lock().clone();
    Json(
        json!({"resource": format!("{origin}/mcp"), "authorization_servers": [origin], "scopes_supported": ["read"]}),
    )
}

async fn metadata(State(state): State<Arc<ServerState>>) -> Json<Value> {
    let origin = state.origin.lock().clone();
    let mut metadata = json!({
        "issuer": origin,
        "authorization_endpoint": format!("{origin}/authorize"),
        "token_endpoint": format!("{origin}/token"),
        "registration_endpoint": format!("{origin}/register"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
    });
    for (name, value) in state.behaviour.lock().metadata.as_object().unwrap() {
        match value {
            Value::Null => metadata.as_object_mut().unwrap().shift_remove(name),
            value => metadata.as_object_mut().unwrap().insert(name.clone(), value.clone()),
        };
    }
    Json(metadata)
}

async fn register(State(state): State<Arc<ServerState>>, Json(request): Json<Value>) -> Json<Value> {
    let n_before = state.n_registrations.fetch_add(1, Ordering::SeqCst);
    Json(json!({"client_id": format!("client-{n_before}"), "redirect_uris": request["redirect_uris"]}))
}

async fn token(
    State(state): State<Arc<ServerState>>,
    Query(_query): Query<HashMap<String, String>>,
    Form(form): Form<HashMap<String, String>>,
) -> Response {
    state.resources.lock().push(form.get("resource").cloned().unwrap_or_default());
    let behaviour = state.behaviour.lock().clone();
    let invalid_grant = || (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))).into_response();
    let (user, lifetime) = if form["grant_type"] == "authorization_code" {
        let Some((challenge, user)) = state.codes.lock().remove(&form["code"]) else {
            return invalid_grant();
        };
        assert_eq!(challenge, pkce_challenge(&form["code_verifier"]));
        (user, behaviour.first_lifetime)
    } else {
        state.n_refreshes.fetch_add(1, Ordering::SeqCst);
        if let Some((status, body)) = behaviour.refuse_refresh {
            return (StatusCode::from_u16(status).unwrap(), Json(body)).into_response();
        }
        let mut known = state.refresh_tokens.lock();
        let token = &form["refresh_token"];
        let user = if behaviour.rotates { known.remove(token) } else { known.get(token).cloned() };
        let Some(user) = user else { return invalid_grant() };
        (user, behaviour.lifetime)
    };
    let number = state.n_tokens.fetch_add(1, Ordering::SeqCst);
    let refresh = format!("refresh-{user}-{number}");
    state.refresh_tokens.lock().insert(refresh.clone(), user.clone());
    Json(json!({
        "access_token": format!("access-{user}-{number}"),
        "token_type": "Bearer",
        "expires_in": lifetime,
        "refresh_token": refresh,
        "scope": "read",
    }))
    .into_response()
}

fn pkce_challenge(verifier: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(hmac_sha256::Hash::hash(verifier.as_ref()))
}

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
    pub(crate) fn client(&self, owner: &str, server: &TestServer) -> OAuthClient {
        self.client_with(owner, server, OAuthSettings::default())
    }

    pub(crate) fn client_with(
        &self,
        owner: &str,
        server: &TestServer,
        settings: OAuthSettings,
    ) -> OAuthClient {
        let key = SealingKey::new(&Zeroizing::new([7; KEY_BYTES]));
        let vault = Arc::new(CredentialVault::new(Arc::new(self.database.clone()), key));
        let slots: Arc<dyn SlotStore> = Arc::new(self.database.clone());
        OAuthClient::new(Owner::new(owner), server.url.clone(), settings, (vault, slots))
    }
}

/// Logs in as a user.
pub(crate) async fn log_in(client: &OAuthClient, server: &TestServer, user: &str) -> Result<(), OAuthError> {
    let redirect_uri = "http://127.0.0.1:9/callback".parse().unwrap();
    let login = client.begin_login(&LoginRequest { redirect_uri, challenge: None }).await?;
    let callback = server.consent(login.url(), user);
    login.complete(&callback).await
}

/// Returns the token that a request would carry, or the reason why there is none.
pub(crate) async fn token_of(client: &OAuthClient) -> String {
    match client.authorization().await {
        Ok(header) => header.to_str().unwrap().trim_start_matches("Bearer ").to_owned(),
        Err(error) => error.to_string(),
    }
}
