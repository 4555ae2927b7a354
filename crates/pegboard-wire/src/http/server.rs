//! The server role over HTTP: one endpoint for clients of both eras.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::response::Response;
use axum::routing::any;
use axum::serve::ListenerExt;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use tokio::net::TcpListener;
use tokio::time;

use crate::client::Era;
use crate::era::Revision;
use crate::http::headers;
use crate::message::{Frame, Id, Message, Request, RpcError, Unreadable, code};
use crate::server::Server;

mod channel;
mod guard;
mod sessions;
mod stateless;

use sessions::Sessions;

/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// How an endpoint behaves.
#[derive(Clone, Debug)]
pub struct HttpServerOptions {
    /// The hosts that a request may name, without ports. A web page that rebinds its name to this machine names
    /// another. `*` is any, for endpoints that ask everybody for a token.
    pub allowed_hosts: Vec<String>,
    /// The origins that a browser may come from, besides the allowed hosts themselves.
    pub allowed_origins: Vec<String>,
    /// The largest body.
    pub max_body: usize,
    /// The deepest nesting of JSON.
    pub max_depth: usize,
    /// How often a quiet stream shows that it is alive.
    pub keep_alive: Duration,
    /// How many sessions there may be.
    pub max_sessions: usize,
    /// How long a session may be idle.
    pub session_idle: Duration,
}

impl Default for HttpServerOptions {
    fn default() -> Self {
        Self {
            allowed_hosts: ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec(),
            allowed_origins: Vec::new(),
            max_body: crate::MAX_MESSAGE_BYTES,
            max_depth: crate::MAX_DEPTH,
            keep_alive: Duration::from_secs(15),
            max_sessions: 10_000,
            session_idle: Duration::from_hours(1),
        }
    }
}

/// An endpoint that serves `server`, to be mounted at any path.
pub fn endpoint(server: Server, options: HttpServerOptions) -> Router {
    let sessions = Sessions::new(server.clone(), options.clone());
    let endpoint = Arc::new(Endpoint { server, options, sessions });
    Router::new().fallback(any(handle)).with_state(endpoint)
}

/// Serves an application on a listener, each connection without delay, until the listener fails.
pub async fn serve(listener: TcpListener, application: Router) -> std::io::Result<()> {
    let prompt = listener.tap_io(|stream| {
        // A connection that cannot be prompt is served all the same.
        let _ = stream.set_nodelay(true);
    });
    axum::serve(prompt, application).await
}

struct Endpoint {
    server: Server,
    options: HttpServerOptions,
    sessions: Sessions,
}

async fn handle(State(endpoint): State<Arc<Endpoint>>, request: HttpRequest) -> Response {
    if let Err(refusal) = guard::check(request.headers(), request.uri(), &endpoint.options) {
        return refusal.into();
    }
    let (parts, body) = request.into_parts();
    match parts.method {
        Method::POST => endpoint.post(parts.headers, body).await,
        Method::GET => endpoint.sessions.get(&parts.headers),
        Method::DELETE => endpoint.sessions.delete(&parts.headers),
        _ => not_allowed(),
    }
}

impl Endpoint {
    fn is_stateless(&self, message: &Message) -> bool {
        matches!(message, Message::Request(request)
            if self.server.era(Era::claimed(request.params.as_ref())) == Era::Stateless)
    }

    async fn post(&self, headers: HeaderMap, body: Body) -> Response {
        let body = match read_json(&headers, body, self.options.max_body).await {
            Ok(body) => body,
            Err(refusal) => return refusal.into(),
        };
        let frame = match Message::decode(body, self.options.max_depth) {
            Ok(frame) => frame,
            Err(Unreadable { id, error, .. }) => return error_response(StatusCode::BAD_REQUEST, id, *error),
        };
        match frame {
            Frame::One(Message::Request(request))
                if self.server.era(claimed_era(&headers, &request)) == Era::Stateless =>
            {
                stateless::answer(&self.server, request, headers, self.options.keep_alive).await
            }
            Frame::One(message) => self.sessions.post(&headers, vec![message]).await,
            Frame::Batch(messages) => match messages.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(messages) if messages.iter().any(|message| self.is_stateless(message)) => {
                    let error =
                        RpcError::new(code::INVALID_REQUEST, "Invalid request: this revision has no batches");
                    error_response(StatusCode::BAD_REQUEST, None, error)
                }
                Ok(messages) => self.sessions.post(&headers, messages).await,
                Err(Unreadable { id, error, .. }) => error_response(StatusCode::BAD_REQUEST, id, *error),
            },
        }
    }
}

/// The era that a request claims: its body says so, or nothing but its header says anything.
fn claimed_era(headers: &HeaderMap, request: &Request) -> Era {
    let named = headers.get(headers::PROTOCOL_VERSION).and_then(|version| version.to_str().ok());
    let named = named.and_then(|version| version.parse::<Revision>().ok());
    let is_named_alone = &*request.method != "initialize"
        && !headers.contains_key(headers::SESSION_ID)
        && named.is_some_and(Revision::is_stateless);
    if is_named_alone { Era::Stateless } else { Era::claimed(request.params.as_ref()) }
}

/// Refuses a request that names another host, or that a foreign web page sent. Whatever is served beside an endpoint
/// asks the same.
pub fn check_sender(headers: &HeaderMap, uri: &Uri, options: &HttpServerOptions) -> Result<(), Refusal> {
    guard::check(headers, uri, options)
}

/// Reads a body that claims to be JSON, no further than it may be long.
pub async fn read_json(headers: &HeaderMap, body: Body, max_bytes: usize) -> Result<Bytes, Refusal> {
    if !guard::is_json(headers) {
        return Err(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json"));
    }
    let reading = time::timeout(BODY_TIMEOUT, read(body, max_bytes)).await;
    reading.unwrap_or(Err(Refusal(StatusCode::REQUEST_TIMEOUT, "the body took too long")))
}

/// Reads a body, no further than it may be long.
async fn read(body: Body, max_bytes: usize) -> Result<Bytes, Refusal> {
    let mut stream = body.into_data_stream();
    let mut first: Option<Bytes> = None;
    let mut whole = BytesMut::new();
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| Refusal(StatusCode::BAD_REQUEST, "the body ended early"))?;
        let n_bytes = first.as_ref().map_or(whole.len(), Bytes::len) + chunk.len();
        if n_bytes > max_bytes {
            return Err(Refusal(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"));
        }
        // A body in one piece, as most are, is not copied.
        if whole.is_empty() && first.is_none() {
            first = Some(chunk);
        } else {
            whole.extend_from_slice(&first.take().unwrap_or_default());
            whole.extend_from_slice(&chunk);
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

/// A request that is not even looked at: the status that says so, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal(pub StatusCode, pub &'static str);

impl From<Refusal> for Response {
    fn from(Refusal(status, text): Refusal) -> Self {
        let mut response = plain(status, text);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
        }
        response
    }
}

/// An answer in words, for those who do not speak the protocol.
pub(crate) fn plain(status: StatusCode, text: &'static str) -> Response {
    respond(status, "text/plain; charset=utf-8", Body::from(text))
}

fn not_allowed() -> Response {
    let mut response =
        plain(StatusCode::METHOD_NOT_ALLOWED, "this endpoint takes POST, and GET and DELETE with a session");
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    response
}

/// A JSON-RPC error as the whole answer.
fn error_response(status: StatusCode, id: Option<Id>, error: RpcError) -> Response {
    json(status, Message::response(id, Err(error)).encode())
}

fn json(status: StatusCode, body: Bytes) -> Response {
    respond(status, "application/json", Body::from(body))
}

/// A stream of events.
pub(crate) fn events(body: Body) -> Response {
    let mut response = respond(StatusCode::OK, "text/event-stream", body);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn respond(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The status that goes with an error of the stateless era.
fn status_of(error: &RpcError) -> StatusCode {
    match error.code {
        code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    }
}
