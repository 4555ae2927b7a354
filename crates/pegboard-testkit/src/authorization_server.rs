//! An MCP server that requires a login, with its authorization server: both at one origin, scripted by tests.

#![expect(clippy::missing_panics_doc, reason = "its only client is a test")]

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Form, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::remote_server;

/// Maximum size of a request that is looked into.
const MAX_BODY: usize = 1024 * 1024;

/// User that agrees to logins in the browser.
const USER: &str = "ann";

/// Behaviour of the server, changed by tests.
#[derive(Clone, Debug)]
pub struct ServerBehaviour {
    /// Lifetime of the token that a login yields, in seconds.
    pub first_lifetime: u64,
    /// Lifetime of a refreshed token.
    pub lifetime: u64,
    /// Status and body of refreshes, instead of a token.
    pub refuse_refresh: Option<(u16, Value)>,
    /// Members of the metadata of the authorization server that are replaced; `null` removes one.
    pub metadata: Value,
    /// The same for the metadata of the resource.
    pub resource_metadata: Value,
    /// Issuer in redirects.
    pub redirect_issuer: Option<String>,
    /// Refresh tokens are exchanged with each use.
    pub rotates: bool,
    /// Holds back the responses to refreshes, one permit each.
    pub refresh_gate: Option<Arc<Semaphore>>,
    /// Scope without which tools cannot be called.
    pub required_scope: Option<String>,
    /// Error with which the user comes back, instead of a code.
    pub refuse_login: Option<String>,
}

impl Default for ServerBehaviour {
    fn default() -> Self {
        Self {
            first_lifetime: 3600,
            lifetime: 3600,
            refuse_refresh: None,
            metadata: json!({}),
            resource_metadata: json!({}),
            redirect_issuer: None,
            rotates: true,
            refresh_gate: None,
            required_scope: None,
            refuse_login: None,
        }
    }
}

/// A server that is resource and authorization server at once. Clones share it.
#[derive(Clone)]
pub struct AuthorizationServer {
    /// URL of the MCP server.
    pub url: Url,
    state: Arc<AuthorizationState>,
}

/// A code or a refresh token: what it stands for.
#[derive(Clone)]
struct ServerGrant {
    user: String,
    scope: String,
    /// Challenge of a code.
    challenge: String,
}

#[derive(Default)]
struct AuthorizationState {
    origin: Mutex<String>,
    behaviour: Mutex<ServerBehaviour>,
    codes: Mutex<HashMap<String, ServerGrant>>,
    refresh_tokens: Mutex<HashMap<String, ServerGrant>>,
    /// Scope of each valid access token.
    access_tokens: Mutex<HashMap<String, String>>,
    n_tokens: AtomicUsize,
    n_refreshes: AtomicUsize,
    n_registrations: AtomicUsize,
    n_rejected: AtomicUsize,
    /// Tool calls that were let through.
    n_calls: AtomicUsize,
    /// `resource` of every token request.
    resources: Mutex<Vec<String>>,
    /// `Authorization` headers of requests to the MCP server.
    authorizations: Mutex<BTreeSet<String>>,
}

impl AuthorizationServer {
    /// Starts the server at a free port.
    pub async fn start() -> Self {
        let state = Arc::new(AuthorizationState::default());
        let resource = remote_server::router("/")
            .layer(middleware::from_fn_with_state(Arc::clone(&state), require_token));
        let app = Router::new()
            .route("/.well-known/oauth-protected-resource/mcp", get(resource_metadata))
            .route("/.well-known/oauth-authorization-server", get(metadata))
            .route("/authorize", get(authorize))
            .route("/register", post(register))
            .route("/token", post(token))
            .with_state(Arc::clone(&state))
            .merge(resource);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let origin = format!("http://{}", listener.local_addr().expect("a bound address"));
        state.origin.lock().clone_from(&origin);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url: format!("{origin}/mcp").parse().expect("a valid URL"), state }
    }

    /// Changes the behaviour.
    pub fn set(&self, change: impl FnOnce(&mut ServerBehaviour)) {
        change(&mut self.state.behaviour.lock());
    }

    /// Returns the number of requests to refresh a token.
    pub fn n_refreshes(&self) -> usize {
        self.state.n_refreshes.load(Ordering::SeqCst)
    }

    /// Returns the number of clients that were registered.
    pub fn n_registrations(&self) -> usize {
        self.state.n_registrations.load(Ordering::SeqCst)
    }

    /// Returns the number of requests that were answered with 401 or 403.
    pub fn n_rejected(&self) -> usize {
        self.state.n_rejected.load(Ordering::SeqCst)
    }

    /// Returns the number of tool calls that were let through.
    pub fn n_calls(&self) -> usize {
        self.state.n_calls.load(Ordering::SeqCst)
    }

    /// Returns the `resource` of every token request.
    pub fn resources(&self) -> Vec<String> {
        self.state.resources.lock().clone()
    }

    /// Returns all secrets that the server has issued: none of them belongs in any output.
    pub fn issued(&self) -> Vec<String> {
        let refresh = self.state.refresh_tokens.lock().keys().cloned().collect::<Vec<_>>();
        let access = self.state.access_tokens.lock().keys().cloned().collect::<Vec<_>>();
        [refresh, access].concat()
    }

    /// Returns the `Authorization` headers of requests to the MCP server.
    pub fn authorizations(&self) -> Vec<String> {
        self.state.authorizations.lock().iter().cloned().collect()
    }

    /// Invalidates all refresh tokens.
    pub fn revoke_all(&self) {
        self.state.refresh_tokens.lock().clear();
    }

    /// Invalidates all access tokens before they expire.
    pub fn expire_all(&self) {
        self.state.access_tokens.lock().clear();
    }

    /// Agrees to a login as the user, and returns the URL that the browser is sent to.
    pub fn consent(&self, login: &Url, user: &str) -> Url {
        self.state.consent(&login.query_pairs().into_owned().collect(), user)
    }
}

impl AuthorizationState {
    fn consent(&self, parameters: &HashMap<String, String>, user: &str) -> Url {
        assert_eq!(parameters["code_challenge_method"], "S256");
        let behaviour = self.behaviour.lock().clone();
        let mut url: Url = parameters["redirect_uri"].parse().expect("a valid URL");
        url.query_pairs_mut().append_pair("state", &parameters["state"]);
        if let Some(error) = &behaviour.refuse_login {
            url.query_pairs_mut().append_pair("error", error);
            return url;
        }
        let code = format!("code-{}", self.n_tokens.fetch_add(1, Ordering::SeqCst));
        let challenge = parameters["code_challenge"].clone();
        let scope = parameters.get("scope").cloned().unwrap_or_default();
        let grant = ServerGrant { user: user.to_owned(), scope, challenge };
        self.codes.lock().insert(code.clone(), grant);
        url.query_pairs_mut().append_pair("code", &code);
        if let Some(issuer) = &behaviour.redirect_issuer {
            url.query_pairs_mut().append_pair("iss", issuer);
        }
        url
    }

    /// Returns the challenge for a request that is rejected, with its status.
    fn rejection(&self, authorization: Option<&str>, is_call: bool) -> Option<(StatusCode, String)> {
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.origin.lock());
        let tokens = self.access_tokens.lock();
        let token = authorization.and_then(|header| header.strip_prefix("Bearer "));
        let Some(scope) = token.and_then(|token| tokens.get(token)) else {
            return Some((StatusCode::UNAUTHORIZED, format!("Bearer resource_metadata=\"{metadata}\"")));
        };
        let required = self.behaviour.lock().required_scope.clone().filter(|_| is_call)?;
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{required}\"");
        let is_granted = scope.split(' ').any(|granted| granted == required);
        (!is_granted).then_some((StatusCode::FORBIDDEN, challenge))
    }
}

/// Lets only requests with a valid token through.
async fn require_token(
    State(state): State<Arc<AuthorizationState>>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let body: Bytes = to_bytes(body, MAX_BODY).await.unwrap_or_default();
    let is_call = body.windows(12).any(|bytes| bytes == b"\"tools/call\"");
    let authorization = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    state.authorizations.lock().extend(authorization.map(str::to_owned));
    if let Some((status, challenge)) = state.rejection(authorization, is_call) {
        state.n_rejected.fetch_add(1, Ordering::SeqCst);
        let challenge = HeaderValue::from_str(&challenge).expect("a valid header");
        return (status, [(header::WWW_AUTHENTICATE, challenge)]).into_response();
    }
    if is_call {
        state.n_calls.fetch_add(1, Ordering::SeqCst);
    }
    next.run(Request::from_parts(head, Body::from(body))).await
}

/// Replaces members of a document; `null` removes one.
fn changed(mut document: Value, changes: &Value) -> Json<Value> {
    if let (Value::Object(document), Value::Object(changes)) = (&mut document, changes) {
        for (name, value) in changes {
            match value {
                Value::Null => document.shift_remove(name),
                value => document.insert(name.clone(), value.clone()),
            };
        }
    }
    Json(document)
}

async fn resource_metadata(State(state): State<Arc<AuthorizationState>>) -> Json<Value> {
    let origin = state.origin.lock().clone();
    let document = json!({
        "resource": format!("{origin}/mcp"), "authorization_servers": [origin], "scopes_supported": ["read"],
    });
    changed(document, &state.behaviour.lock().resource_metadata)
}

async fn metadata(State(state): State<Arc<AuthorizationState>>) -> Json<Value> {
    let origin = state.origin.lock().clone();
    let document = json!({
        "issuer": origin,
        "authorization_endpoint": format!("{origin}/authorize"),
        "token_endpoint": format!("{origin}/token"),
        "registration_endpoint": format!("{origin}/register"),
        "response_types_supported": ["code"],
        "code_challenge_methods_supported": ["S256"],
    });
    changed(document, &state.behaviour.lock().metadata)
}

/// The login page: the user agrees at once.
async fn authorize(
    State(state): State<Arc<AuthorizationState>>,
    Query(parameters): Query<HashMap<String, String>>,
) -> Redirect {
    Redirect::to(state.consent(&parameters, USER).as_str())
}

async fn register(State(state): State<Arc<AuthorizationState>>, Json(request): Json<Value>) -> Json<Value> {
    let n_before = state.n_registrations.fetch_add(1, Ordering::SeqCst);
    Json(json!({"client_id": format!("client-{n_before}"), "redirect_uris": request["redirect_uris"]}))
}

async fn token(
    State(state): State<Arc<AuthorizationState>>,
    Form(form): Form<HashMap<String, String>>,
) -> Response {
    state.resources.lock().push(form.get("resource").cloned().unwrap_or_default());
    let behaviour = state.behaviour.lock().clone();
    let invalid_grant = || (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))).into_response();
    let (grant, lifetime) = if form["grant_type"] == "authorization_code" {
        let Some(grant) = state.codes.lock().remove(&form["code"]) else { return invalid_grant() };
        assert_eq!(grant.challenge, pkce_challenge(&form["code_verifier"]));
        (grant, behaviour.first_lifetime)
    } else {
        state.n_refreshes.fetch_add(1, Ordering::SeqCst);
        if let Some((status, body)) = behaviour.refuse_refresh {
            let status = StatusCode::from_u16(status).expect("a valid status");
            return (status, Json(body)).into_response();
        }
        let mut known = state.refresh_tokens.lock();
        let token = &form["refresh_token"];
        let grant = if behaviour.rotates { known.remove(token) } else { known.get(token).cloned() };
        let Some(grant) = grant else { return invalid_grant() };
        (grant, behaviour.lifetime)
    };
    let number = state.n_tokens.fetch_add(1, Ordering::SeqCst);
    let (access, refresh) =
        (format!("access-{}-{number}", grant.user), format!("refresh-{}-{number}", grant.user));
    if let Some(gate) = behaviour.refresh_gate.filter(|_| form["grant_type"] == "refresh_token") {
        gate.acquire().await.expect("the gate stays").forget();
    }
    state.access_tokens.lock().insert(access.clone(), grant.scope.clone());
    state.refresh_tokens.lock().insert(refresh.clone(), grant.clone());
    Json(json!({
        "access_token": access,
        "token_type": "Bearer",
        "expires_in": lifetime,
        "refresh_token": refresh,
        "scope": grant.scope,
    }))
    .into_response()
}

fn pkce_challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(hmac_sha256::Hash::hash(verifier.as_ref()))
}
