//! The server role over HTTP: one endpoint for clients of both eras.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use http_body_util::BodyExt;
use tokio::time;

use crate::era::{Era, Revision};
use crate::http::body::{BodyBuffer, BodyTooLarge};
use crate::http::headers;
use crate::http::received_headers::{NamedHeaders, ReceivedHeaders};
use crate::message::{Frame, Id, InvalidMessage, Message, Request, RpcError, code};
use crate::server::{ArrivingRequest, ResponseMemory, ServiceServer};

mod channel;
mod client_socket;
mod event_memory;
mod host_check;
mod http1;
mod listener;
mod reply;
mod served_connection;
mod sessions;
mod stateless;
pub(crate) mod streams;
mod threads;
mod timed_stream;

pub use client_socket::ClientSocket;
pub use event_memory::{DroppedNotifications, EventMemory, NotificationLoss};
pub use host_check::AllowedOrigin;
pub use http1::ReadAhead;
pub use listener::{BACKLOG, DirectRoutes, HttpApplication, bind, listen, serve};
pub use reply::{HttpReply, ReplyBody};
pub use served_connection::{ServedConnection, can_identify_users};
use sessions::Sessions;
pub use threads::ServerThreads;

/// Time limit for reading a request body.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_mins(1);

/// Settings of an HTTP endpoint.
#[derive(Clone, Debug)]
pub struct HttpServerOptions {
    /// Allowed hosts, without ports, as protection against DNS rebinding.
    pub allowed_hosts: Vec<String>,
    /// Allows every IP address as a host, for endpoints that other machines reach. DNS rebinding needs a name.
    pub allows_addresses: bool,
    /// Allowed origins of web pages, besides those that this endpoint serves itself.
    pub allowed_origins: Vec<String>,
    /// Maximum body size in bytes.
    pub max_body: usize,
    /// Maximum nesting depth of JSON.
    pub max_depth: usize,
    /// Interval of keep-alive comments on idle streams.
    pub keep_alive: Duration,
    /// Maximum number of sessions.
    pub max_sessions: usize,
    /// Idle timeout of a session.
    pub session_idle: Duration,
    /// Memory for the events of sessions.
    pub event_memory: EventMemory,
    /// Memory for results that clients have not read.
    pub response_memory: ResponseMemory,
    /// Memory for requests that have not arrived as a whole, and for large ones. One that does not fit is refused.
    pub request_memory: ResponseMemory,
}

impl Default for HttpServerOptions {
    fn default() -> Self {
        Self {
            allowed_hosts: ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned).to_vec(),
            allows_addresses: false,
            allowed_origins: Vec::new(),
            max_body: crate::MAX_MESSAGE_BYTES,
            max_depth: crate::MAX_DEPTH,
            keep_alive: Duration::from_secs(15),
            max_sessions: 10_000,
            session_idle: Duration::from_hours(1),
            event_memory: EventMemory::default(),
            response_memory: ResponseMemory::default(),
            request_memory: ResponseMemory::default(),
        }
    }
}

/// Returns a router that serves `server`; it can be mounted at any path.
pub fn endpoint(server: ServiceServer, options: HttpServerOptions) -> Router {
    HttpServerEndpoint::new(server, options).router()
}

/// One MCP endpoint over HTTP. Clones share its sessions.
#[derive(Clone)]
pub struct HttpServerEndpoint(Arc<EndpointState>);

struct EndpointState {
    server: ServiceServer,
    options: HttpServerOptions,
    sessions: Sessions,
}

impl HttpServerEndpoint {
    /// Creates an endpoint for `server`.
    pub fn new(server: ServiceServer, options: HttpServerOptions) -> Self {
        let server = server.with_response_memory(options.response_memory.clone());
        let sessions = Sessions::new(server.clone(), options.clone());
        Self(Arc::new(EndpointState { server, options, sessions }))
    }

    /// Returns the memory for requests that are waited for, and for large ones.
    fn request_memory(&self) -> &ResponseMemory {
        &self.0.options.request_memory
    }

    /// Returns a router that serves the endpoint at any path.
    pub fn router(&self) -> Router {
        let handle =
            async |State(endpoint): State<Self>, request: HttpRequest| endpoint.handle(request).await;
        Router::new().fallback(any(handle)).with_state(self.clone())
    }

    /// Handles a request.
    pub async fn handle<B>(&self, request: http::Request<B>) -> HttpReply
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let endpoint = &*self.0;
        let checked = host_check::check(request.headers(), request.uri(), &endpoint.options);
        let origin = match checked {
            Ok(origin) => origin,
            Err(rejection) => return rejection.into(),
        };
        let (parts, body) = request.into_parts();
        let preflight = origin.as_ref().and_then(|origin| origin.preflight(&parts.method, &parts.headers));
        if let Some(preflight) = preflight {
            return preflight;
        }
        let mut reply = match parts.method {
            Method::POST => endpoint.post(parts.headers, body).await,
            Method::GET => endpoint.sessions.get(&parts.headers),
            Method::DELETE => endpoint.sessions.delete(&parts.headers),
            _ => method_not_allowed(),
        };
        reply::complete_headers(&mut reply);
        if let Some(origin) = origin {
            origin.add_to(reply.headers_mut());
        }
        reply
    }

    /// Handles a POST of which the small body has been read. The caller adds the content type of JSON.
    async fn handle_message(&self, uri: Uri, headers: ReceivedHeaders, body: Bytes) -> HttpReply {
        let endpoint = &*self.0;
        let origin = match host_check::check(&headers, &uri, &endpoint.options) {
            Ok(_) if !host_check::is_json(&headers) => return NOT_JSON.into(),
            Ok(_) if body.len() > endpoint.options.max_body => return TOO_LARGE.into(),
            Ok(origin) => origin,
            Err(rejection) => return rejection.into(),
        };
        drop(uri);
        let mut reply = endpoint.answer(headers, body).await;
        if let Some(origin) = origin {
            origin.add_to(reply.headers_mut());
        }
        reply
    }
}

impl EndpointState {
    fn is_stateless(&self, message: &Message) -> bool {
        matches!(message, Message::Request(request)
            if self.server.era(Era::claimed(request.params.as_ref())) == Era::Stateless)
    }

    async fn post(&self, headers: HeaderMap, body: impl http_body::Body<Data = Bytes> + Unpin) -> HttpReply {
        match read_json(&headers, body, &self.options).await {
            Ok(body) => self.answer(headers.into(), body).await,
            Err(rejection) => rejection.into(),
        }
    }

    /// Answers a POST with this body.
    async fn answer(&self, headers: ReceivedHeaders, body: Bytes) -> HttpReply {
        let frame = match Message::decode(body, self.options.max_depth) {
            Ok(frame) => frame,
            Err(InvalidMessage { id, error, .. }) => {
                return error_response(StatusCode::BAD_REQUEST, id, *error);
            }
        };
        match frame {
            Frame::Single(Message::Request(request))
                if self.server.era(claimed_era(&headers, &request)) == Era::Stateless =>
            {
                stateless::answer(&self.server, request, headers, self.options.keep_alive).await
            }
            Frame::Single(message) => self.sessions.post(headers, message).await,
            Frame::Batch(messages) => match messages.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(messages) if messages.iter().any(|message| self.is_stateless(message)) => {
                    let error = RpcError::new(
                        code::INVALID_REQUEST,
                        "Invalid request: this revision does not support batches",
                    );
                    error_response(StatusCode::BAD_REQUEST, None, error)
                }
                Ok(messages) => Box::pin(self.sessions.post_batch(headers, messages)).await,
                Err(InvalidMessage { id, error, .. }) => error_response(StatusCode::BAD_REQUEST, id, *error),
            },
        }
    }
}

/// Returns the era that a request claims: by its body, or by its version header if that is all there is.
fn claimed_era(headers: &ReceivedHeaders, request: &Request) -> Era {
    let names_stateless = || {
        let named = headers.first(&headers::PROTOCOL_VERSION);
        let named = named.and_then(|version| std::str::from_utf8(version).ok());
        named.and_then(|version| version.parse::<Revision>().ok()).is_some_and(Revision::is_stateless)
    };
    let is_named_alone = &*request.method != "initialize"
        && headers.first(&headers::SESSION_ID).is_none()
        && names_stateless();
    if is_named_alone { Era::Stateless } else { Era::claimed(request.params.as_ref()) }
}

/// Rejects a request with a disallowed host or origin, and returns the origin if it is another one that is allowed.
/// Other routes served beside an endpoint use the same check.
pub fn check_host_and_origin(
    headers: &impl NamedHeaders,
    uri: &Uri,
    options: &HttpServerOptions,
) -> Result<Option<AllowedOrigin>, HttpRejection> {
    host_check::check(headers, uri, options)
}

/// Reads a JSON body within the limits of its size and of the memory for requests.
pub async fn read_json<B>(
    headers: &impl NamedHeaders,
    body: B,
    options: &HttpServerOptions,
) -> Result<Bytes, HttpRejection>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    if !host_check::is_json(headers) {
        return Err(NOT_JSON);
    }
    let mut reading = pin!(read(body, options));
    // Nearly always the body has arrived with the head, and no timer is needed.
    if let Some(body) = (&mut reading).now_or_never() {
        return body;
    }
    let reading = time::timeout(BODY_TIMEOUT, reading).await;
    reading.unwrap_or(Err(HttpRejection(StatusCode::REQUEST_TIMEOUT, "timed out reading the body")))
}

const NOT_JSON: HttpRejection =
    HttpRejection(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json");

const TOO_LARGE: HttpRejection = HttpRejection(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");

/// Reads a body. One that has not arrived at once is counted while it is read, and a large one until the message is
/// dropped.
async fn read<B>(mut body: B, options: &HttpServerOptions) -> Result<Bytes, HttpRejection>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    const FULL: HttpRejection = HttpRejection(
        StatusCode::SERVICE_UNAVAILABLE,
        "other large requests are in progress: send it again when they have ended",
    );
    let mut buffer = BodyBuffer::new(options.max_body, body.size_hint().exact().unwrap_or(0));
    let mut arriving = ArrivingRequest::new(&options.request_memory);
    loop {
        let frame = if let Some(frame) = body.frame().now_or_never() {
            frame
        } else {
            arriving.wait().map_err(|_| FULL)?;
            body.frame().await
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|_| HttpRejection(StatusCode::BAD_REQUEST, "the body is incomplete"))?;
        let Ok(chunk) = frame.into_data() else { continue };
        arriving.push(chunk.len()).map_err(|_| FULL)?;
        buffer.push(chunk).map_err(|BodyTooLarge| TOO_LARGE)?;
    }
    Ok(arriving.complete(buffer.finish()))
}

/// An HTTP rejection: status and plain-text reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpRejection(pub StatusCode, pub &'static str);

impl IntoResponse for HttpRejection {
    fn into_response(self) -> Response {
        HttpReply::from(self).into_response()
    }
}

impl From<HttpRejection> for HttpReply {
    fn from(HttpRejection(status, text): HttpRejection) -> Self {
        let mut response = plain_text(status, text);
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("30"));
        }
        response
    }
}

/// Returns a plain-text response, for clients that do not speak the protocol.
pub(crate) fn plain_text(status: StatusCode, text: &'static str) -> HttpReply {
    respond(status, "text/plain; charset=utf-8", ReplyBody::from(text))
}

fn method_not_allowed() -> HttpReply {
    let mut response = plain_text(
        StatusCode::METHOD_NOT_ALLOWED,
        "this endpoint accepts POST, and GET and DELETE with a session",
    );
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    response
}

/// Returns a response with a JSON-RPC error as its body.
fn error_response(status: StatusCode, id: Option<Id>, error: RpcError) -> HttpReply {
    json(status, whole(Message::response(id, Err(error)).encode()))
}

/// Returns a reply with JSON, of which the content type is yet to be added.
fn json(status: StatusCode, body: [Bytes; 3]) -> HttpReply {
    let mut response = HttpReply::new(ReplyBody::Json(body));
    *response.status_mut() = status;
    response
}

/// Returns the parts of a body in one piece.
fn whole(body: Bytes) -> [Bytes; 3] {
    [body, Bytes::new(), Bytes::new()]
}

/// Returns an event stream response.
pub(crate) fn events(body: Body) -> HttpReply {
    let mut response = respond(StatusCode::OK, "text/event-stream", ReplyBody::from(body));
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn respond(status: StatusCode, content_type: &'static str, body: ReplyBody) -> HttpReply {
    let mut response = HttpReply::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns the HTTP status for an error of the stateless era.
fn status_of(error: &RpcError) -> StatusCode {
    match error.code {
        code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    }
}

#[cfg(test)]
mod tests;
