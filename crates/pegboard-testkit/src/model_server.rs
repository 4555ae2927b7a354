//! A model that follows a script, behind the interfaces of OpenAI and Anthropic.
//!
//! It takes every request apart and compares it with what these interfaces take: what is missing, unknown or in the
//! wrong order is a violation that a test can ask for. What it answers, and how it misbehaves, is data: a [`Script`].
//!
//! ```
//! use pegboard_testkit::model_server::{Act, ModelServer, Script};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = ModelServer::start(Script::of([Act::text("Hello!")])).await?;
//! assert!(server.chat_url().ends_with("/v1"));
//! assert_eq!((server.requests().len(), server.violations()), (0, Vec::new()));
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use script::{Act, Answer, Call, Quirk, Refusal, Script, Tokens, Turn, When};

mod anthropic;
mod check;
mod openai;
mod perform;
mod script;

/// How large a request may be.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// A model that follows a script. Dropping it ends it.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    stage: Arc<Stage>,
    task: JoinHandle<()>,
}

impl ModelServer {
    /// Begins to listen on a port of its own.
    pub async fn start(script: Script) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let stage = Arc::new(Stage::new(script));
        let router = router(Arc::clone(&stage));
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                eprintln!("the model server ended: {error}");
            }
        });
        Ok(Self { address, stage, task })
    }

    /// Where it speaks chat completions.
    pub fn chat_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Where it speaks messages.
    pub fn messages_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Goes on with its script, for what could not be known before.
    pub fn play(&self, turns: impl IntoIterator<Item = Turn>) {
        self.stage.lock().turns.extend(turns.into_iter().map(script::Progress::new));
    }

    /// Everything that it was asked, in order.
    pub fn requests(&self) -> Vec<Recorded> {
        self.stage.lock().requests.clone()
    }

    /// Everything that is wrong with what it was asked.
    pub fn violations(&self) -> Vec<String> {
        self.stage.lock().violations.clone()
    }

    /// How many turns of its script it has not had.
    pub fn n_left(&self) -> usize {
        self.stage.lock().turns.iter().filter(|turn| turn.is_waited_for()).count()
    }

    /// Waits until it lets so many clients wait for an answer that never comes. One that gives up is not counted.
    pub async fn until_hanging(&self, n_clients: usize) {
        let mut hanging = self.stage.hanging.subscribe();
        // It cannot go away before the server, which is here.
        let _ = hanging.wait_for(|n_hanging| *n_hanging == n_clients).await;
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves a script for ever, and tells what is wrong with the requests on standard error.
pub async fn serve(listener: TcpListener, script: Script) -> io::Result<()> {
    axum::serve(listener, router(Arc::new(Stage { is_loud: true, ..Stage::new(script) }))).await
}

/// One request as it came.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// Which interface it was for.
    pub interface: Interface,
    /// Its headers, by names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Its body; null if it was no JSON.
    pub body: Value,
}

/// Which interface a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// Chat completions, as OpenAI has them.
    Chat,
    /// Messages, as Anthropic has them.
    Messages,
}

/// Where the script is performed.
#[derive(Debug)]
struct Stage {
    played: Mutex<Played>,
    hanging: watch::Sender<usize>,
    is_loud: bool,
}

#[derive(Debug, Default)]
struct Played {
    turns: Vec<script::Progress>,
    requests: Vec<Recorded>,
    violations: Vec<String>,
}

impl Stage {
    fn new(script: Script) -> Self {
        let turns = script.turns.into_iter().map(script::Progress::new).collect();
        let played = Played { turns, ..Played::default() };
        Self { played: Mutex::new(played), hanging: watch::Sender::new(0), is_loud: false }
    }

    fn lock(&self) -> MutexGuard<'_, Played> {
        self.played.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request with all that is wrong with it, and says what to do.
    fn next(&self, request: Recorded) -> Option<(usize, Act)> {
        let mut played = self.lock();
        let number = played.requests.len() + 1;
        let mut wrong = check::violations(&request);
        let act = played.turns.iter_mut().find_map(|turn| turn.take(&request.body));
        if act.is_none() {
            wrong.push("the script has no turn for it".to_owned());
        }
        let wrong = wrong.into_iter().map(|violation| format!("request {number}: {violation}"));
        for violation in wrong {
            if self.is_loud {
                eprintln!("{violation}");
            }
            played.violations.push(violation);
        }
        played.requests.push(request);
        act.map(|act| (number, act))
    }
}

fn router(stage: Arc<Stage>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/messages", post(messages))
        .fallback(lost)
        .layer(DefaultBodyLimit::disable())
        .with_state(stage)
}

async fn chat(State(stage): State<Arc<Stage>>, request: Request) -> Response {
    answer(stage, Interface::Chat, request).await
}

async fn messages(State(stage): State<Arc<Stage>>, request: Request) -> Response {
    answer(stage, Interface::Messages, request).await
}

async fn lost(State(stage): State<Arc<Stage>>, request: Request) -> Response {
    let (method, path) = (request.method(), request.uri().path());
    stage.lock().violations.push(format!("there is no {method} {path}"));
    StatusCode::NOT_FOUND.into_response()
}

async fn answer(stage: Arc<Stage>, interface: Interface, request: Request) -> Response {
    let headers = readable(request.headers());
    let body = axum::body::to_bytes(request.into_body(), MAX_REQUEST_BYTES).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let is_streamed = body["stream"] == true;
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let asked = perform::Asked { interface, model, is_streamed };
    match stage.next(Recorded { interface, headers, body }) {
        Some((number, act)) => perform::perform(act, &asked, number, &stage.hanging).await,
        None => (StatusCode::INTERNAL_SERVER_ERROR, Body::from(Bytes::from_static(b"{}"))).into_response(),
    }
}

fn readable(headers: &HeaderMap) -> BTreeMap<String, String> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes()))).collect()
}
