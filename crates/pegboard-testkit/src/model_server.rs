//! A scripted model with the HTTP APIs of OpenAI and Anthropic.
//!
//! It validates every request against these APIs: a missing, unknown or misplaced field is a violation that a
//! test can query. Its answers and faults are data: a [`Script`].
//!
//! ```
//! use pegboard_testkit::model_server::{ScriptAction, ModelServer, Script};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = ModelServer::start(Script::of([ScriptAction::text("Hello!")])).await?;
//! assert!(server.chat_url().ends_with("/v1"));
//! assert_eq!((server.requests().len(), server.violations()), (0, Vec::new()));
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use script::{
    Quirk, Script, ScriptAction, ScriptTurn, ScriptedCall, ScriptedError, ScriptedReply, ScriptedUsage,
    TurnCondition,
};

mod anthropic;
mod check;
mod openai;
mod responder;
mod script;

/// Maximum request size.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// A server of a scripted model. Dropping it stops it.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    state: Arc<ModelServerState>,
    task: JoinHandle<()>,
}

impl ModelServer {
    /// Starts listening on a free port.
    pub async fn start(script: Script) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(ModelServerState::new(script));
        let router = router(Arc::clone(&state));
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                eprintln!("the model server ended: {error}");
            }
        });
        Ok(Self { address, state, task })
    }

    /// Returns the base URL of the chat completions API.
    pub fn chat_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the base URL of the messages API.
    pub fn messages_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Appends turns to the script.
    pub fn append_turns(&self, turns: impl IntoIterator<Item = ScriptTurn>) {
        self.state.script_state.lock().turns.extend(turns.into_iter().map(script::TurnProgress::new));
    }

    /// Returns all requests, in order.
    pub fn requests(&self) -> Vec<RecordedModelRequest> {
        self.state.script_state.lock().requests.clone()
    }

    /// Returns all violations in the requests.
    pub fn violations(&self) -> Vec<String> {
        self.state.script_state.lock().violations.clone()
    }

    /// Returns the number of turns not yet used.
    pub fn n_unused_turns(&self) -> usize {
        self.state.script_state.lock().turns.iter().filter(|turn| turn.is_pending()).count()
    }

    /// Waits until this many clients wait for an answer that never comes. A client that disconnects is not
    /// counted.
    pub async fn wait_until_hanging(&self, n_clients: usize) {
        let mut hanging = self.state.hanging.subscribe();
        // The sender lives as long as this server.
        let _ = hanging.wait_for(|n_hanging| *n_hanging == n_clients).await;
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves a script forever, and prints violations to standard error.
pub async fn serve(listener: TcpListener, script: Script) -> io::Result<()> {
    axum::serve(
        listener,
        router(Arc::new(ModelServerState { prints_violations: true, ..ModelServerState::new(script) })),
    )
    .await
}

/// A recorded request.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedModelRequest {
    /// The API it was sent to.
    pub interface: ModelApi,
    /// Headers, with lower-case names.
    pub headers: BTreeMap<String, String>,
    /// The body; null if it is not JSON.
    pub body: Value,
}

/// The API of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelApi {
    /// OpenAI's chat completions.
    Chat,
    /// Anthropic's messages.
    Messages,
}

/// State shared by all requests.
#[derive(Debug)]
struct ModelServerState {
    script_state: Mutex<ScriptState>,
    hanging: watch::Sender<usize>,
    prints_violations: bool,
}

#[derive(Debug, Default)]
struct ScriptState {
    turns: Vec<script::TurnProgress>,
    requests: Vec<RecordedModelRequest>,
    violations: Vec<String>,
}

impl ModelServerState {
    fn new(script: Script) -> Self {
        let turns = script.turns.into_iter().map(script::TurnProgress::new).collect();
        let script_state = ScriptState { turns, ..ScriptState::default() };
        Self {
            script_state: Mutex::new(script_state),
            hanging: watch::Sender::new(0),
            prints_violations: false,
        }
    }

    /// Records a request with its violations, and returns its number and action.
    fn next(&self, request: RecordedModelRequest) -> Option<(usize, ScriptAction)> {
        let mut script_state = self.script_state.lock();
        let number = script_state.requests.len() + 1;
        let mut violations = check::violations(&request);
        let action = script_state.turns.iter_mut().find_map(|turn| turn.take(&request.body));
        if action.is_none() {
            violations.push("no matching turn in the script".to_owned());
        }
        let violations = violations.into_iter().map(|violation| format!("request {number}: {violation}"));
        for violation in violations {
            if self.prints_violations {
                eprintln!("{violation}");
            }
            script_state.violations.push(violation);
        }
        script_state.requests.push(request);
        action.map(|action| (number, action))
    }
}

fn router(state: Arc<ModelServerState>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/messages", post(messages))
        .fallback(not_found)
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

async fn chat(State(state): State<Arc<ModelServerState>>, request: Request) -> Response {
    answer(state, ModelApi::Chat, request).await
}

async fn messages(State(state): State<Arc<ModelServerState>>, request: Request) -> Response {
    answer(state, ModelApi::Messages, request).await
}

async fn not_found(State(state): State<Arc<ModelServerState>>, request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    state.script_state.lock().violations.push(format!("there is no {method} {path}"));
    StatusCode::NOT_FOUND.into_response()
}

async fn answer(state: Arc<ModelServerState>, interface: ModelApi, request: Request) -> Response {
    let headers = readable(request.headers());
    let body = axum::body::to_bytes(request.into_body(), MAX_REQUEST_BYTES).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let is_streamed = body["stream"] == true;
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let context = responder::ReplyContext { interface, model, is_streamed };
    match state.next(RecordedModelRequest { interface, headers, body }) {
        Some((number, action)) => responder::respond(action, &context, number, &state.hanging).await,
        None => (StatusCode::INTERNAL_SERVER_ERROR, Body::from(Bytes::from_static(b"{}"))).into_response(),
    }
}

fn readable(headers: &HeaderMap) -> BTreeMap<String, String> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect()
}
