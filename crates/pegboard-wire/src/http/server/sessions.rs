//! HTTP sessions: clients that opened with `initialize`, each with its streams.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use foldhash::HashMap;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use super::channel::{Reader, ReaderItem, parse_event_id};
use super::event_memory::EventMemory;
use super::reply::{HttpReply, ReplyBody};
use super::streams::{RequestEnd, RequestPoll, ResumeError, SessionStreams};
use super::{HttpRejection, HttpServerOptions, error_response, events, json, plain_text, respond, whole};
use crate::connection::{Connection, InboundCall, cancelled_id};
use crate::era::Revision;
use crate::http::headers;
use crate::http::received_headers::{NamedHeaders, ReceivedHeaders};
use crate::http::sse::KEEP_ALIVE;
use crate::message::{Id, Message, Request, RpcError, code};
use crate::server::session::ServerSession;
use crate::server::{ClientSessionId, ServiceServer};
use crate::transport::OutgoingMessage;
use keeper::SessionKeeper;

mod keeper;

/// All sessions of one endpoint.
pub(super) struct Sessions {
    server: Arc<ServiceServer>,
    options: HttpServerOptions,
    table: Arc<SessionTable>,
    keeper: SessionKeeper,
}

/// Mark of a response: the client has many other requests in progress.
#[derive(Clone, Copy)]
pub(super) struct CrowdMember;

/// The open sessions by id.
type SessionTable = Mutex<HashMap<ClientSessionId, Arc<Session>>>;

/// The session of one client.
struct Session {
    connection: Connection,
    streams: Arc<SessionStreams>,
    served: Arc<ServerSession>,
    last_seen: Mutex<Instant>,
}

impl Sessions {
    pub(super) fn new(server: ServiceServer, options: HttpServerOptions) -> Self {
        let server = Arc::new(server);
        Self { server, options, table: Arc::default(), keeper: SessionKeeper::default() }
    }

    pub(super) async fn post(&self, headers: ReceivedHeaders, message: Message) -> HttpReply {
        if let Err(rejection) = check_version(&headers) {
            return rejection.into();
        }
        let opens = matches!(&message, Message::Request(request) if &*request.method == "initialize");
        let session = match self.find(&headers) {
            Found::Session(_) if opens => {
                return plain_text(StatusCode::BAD_REQUEST, "the session is already initialized");
            }
            Found::Session(session) => session,
            Found::Unknown => return plain_text(StatusCode::NOT_FOUND, "there is no such session"),
            Found::Unnamed => {
                return match message {
                    // Boxed like all that is rare, so that the future of every other request stays small.
                    Message::Request(request) if opens => Box::pin(self.initialize(request, headers)).await,
                    message => no_session(&message),
                };
            }
        };
        match message {
            Message::Request(request) => session.answer(request, headers, self.options.keep_alive).await,
            message => {
                Box::pin(session.receive(message, headers)).await;
                accepted()
            }
        }
    }

    /// Handles a batch, as in revision 2025-03-26.
    pub(super) async fn post_batch(&self, headers: ReceivedHeaders, messages: Vec<Message>) -> HttpReply {
        let is_initialize = |message: &Message| matches!(message, Message::Request(request) if &*request.method == "initialize");
        if let Err(rejection) = check_version(&headers) {
            return rejection.into();
        }
        if messages.iter().any(is_initialize) {
            return plain_text(StatusCode::BAD_REQUEST, "initialize must not be part of a batch");
        }
        let session = match self.find(&headers) {
            Found::Session(session) => session,
            Found::Unknown => return plain_text(StatusCode::NOT_FOUND, "there is no such session"),
            Found::Unnamed => {
                let request = messages.iter().find(|message| matches!(message, Message::Request(_)));
                return no_session(request.unwrap_or(&messages[0]));
            }
        };
        if !session.streams.has_batches() {
            let error = RpcError::new(
                code::INVALID_REQUEST,
                "Invalid request: this revision does not support batches",
            );
            return error_response(StatusCode::BAD_REQUEST, None, error);
        }
        session.answer_batch(messages, headers, self.options.keep_alive).await
    }

    /// Opens a session. A rejected `initialize` leaves none.
    async fn initialize(&self, request: Request, headers: ReceivedHeaders) -> HttpReply {
        let (session, id) = match self.open() {
            Ok(opened) => opened,
            Err(rejection) => return rejection.into(),
        };
        let request_id = request.id.clone();
        let prefers_stream = prefers_stream(&headers);
        let result = match session.connection.begin(request, headers) {
            Ok(call) => call.await,
            Err(error) => Some(Err(error)),
        };
        let result = result.unwrap_or_else(|| Err(RpcError::handler_panicked()));
        let is_open = result.as_ref().is_ok_and(|result| session.streams.set_revision(result));
        let message = Message::response(Some(request_id.clone()), result);
        let mut reply = if prefers_stream {
            match session.streams.begin_streaming(&[request_id]) {
                Some(reader) => {
                    // A response is always delivered.
                    let _ = session.streams.route(&OutgoingMessage::new(message));
                    stream_response(&session, reader, self.options.keep_alive)
                }
                None => json(StatusCode::OK, whole(message.encode())),
            }
        } else {
            json(StatusCode::OK, whole(message.encode()))
        };
        if is_open {
            if let Ok(id) = HeaderValue::from_str(id.as_str()) {
                reply.headers_mut().insert(headers::SESSION_ID, id);
            }
        } else {
            self.table().remove(&id);
            session.end();
        }
        reply
    }

    pub(super) fn get(&self, headers: &impl NamedHeaders) -> HttpReply {
        let Found::Session(session) = self.find(headers) else { return self.without_session(headers) };
        let accepts = headers
            .first(&header::ACCEPT)
            .and_then(|accept| std::str::from_utf8(accept).ok())
            .unwrap_or_default();
        if !(accepts.contains("text/event-stream") || accepts.contains("*/*")) {
            return plain_text(StatusCode::NOT_ACCEPTABLE, "a GET must accept text/event-stream");
        }
        let reader = match headers.first(&headers::LAST_EVENT_ID) {
            None => session.streams.reader_after(None),
            Some(id) => match std::str::from_utf8(id).ok().and_then(parse_event_id) {
                Some(last) => session.streams.reader_after(Some(last)),
                None => Err(ResumeError::Unknown),
            },
        };
        match reader {
            Ok(reader) => stream_response(&session, reader, self.options.keep_alive),
            Err(error) => cannot_resume(error),
        }
    }

    pub(super) fn delete(&self, headers: &impl NamedHeaders) -> HttpReply {
        let Found::Session(session) = self.find(headers) else { return self.without_session(headers) };
        self.table().remove(session_id(headers).unwrap_or_default());
        session.end();
        respond(StatusCode::NO_CONTENT, "text/plain", ReplyBody::empty())
    }

    fn without_session(&self, headers: &impl NamedHeaders) -> HttpReply {
        match self.find(headers) {
            Found::Unknown => plain_text(StatusCode::NOT_FOUND, "there is no such session"),
            Found::Unnamed | Found::Session(_) => super::method_not_allowed(),
        }
    }

    fn find(&self, headers: &impl NamedHeaders) -> Found {
        let Some(id) = session_id(headers) else { return Found::Unnamed };
        match self.table().get(id) {
            Some(session) => {
                session.touch();
                Found::Session(Arc::clone(session))
            }
            None => Found::Unknown,
        }
    }

    fn open(&self) -> Result<(Arc<Session>, ClientSessionId), HttpRejection> {
        self.keeper.start(self);
        let mut table = self.table();
        if table.len() >= self.options.max_sessions {
            return Err(HttpRejection(StatusCode::SERVICE_UNAVAILABLE, "too many sessions"));
        }
        let id = ClientSessionId::random();
        let session = Arc::new(Session::open(&self.server, &self.options.event_memory, id.clone()));
        table.insert(id.clone(), Arc::clone(&session));
        Ok((session, id))
    }

    fn table(&self) -> MutexGuard<'_, HashMap<ClientSessionId, Arc<Session>>> {
        self.table.lock()
    }
}

enum Found {
    Session(Arc<Session>),
    /// The request names an unknown session.
    Unknown,
    /// The request names no session.
    Unnamed,
}

/// Returns the id of the session that a request names; empty if it is not readable.
fn session_id(headers: &impl NamedHeaders) -> Option<&str> {
    headers.first(&headers::SESSION_ID).map(|id| std::str::from_utf8(id).unwrap_or_default())
}

/// Returns `true` if the client prefers an event stream to JSON.
fn prefers_stream(headers: &impl NamedHeaders) -> bool {
    let accepts = headers.first(&header::ACCEPT).unwrap_or_default();
    // Most clients send just this.
    if accepts == b"application/json, text/event-stream" {
        return false;
    }
    let position = |kind: &[u8]| accepts.windows(kind.len()).position(|part| part == kind);
    match (position(b"text/event-stream"), position(b"application/json")) {
        (Some(stream), Some(whole)) => stream < whole,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// Marks the response to a request of a client that has many others in progress.
fn of_crowd(mut reply: HttpReply) -> HttpReply {
    reply.extensions_mut().insert(CrowdMember);
    reply
}

fn no_session(message: &Message) -> HttpReply {
    let id = match message {
        Message::Request(request) => Some(request.id.clone()),
        Message::Notification(_) | Message::Response(_) => None,
    };
    let error = RpcError::new(
        code::INVALID_REQUEST,
        "Invalid request: open a session with initialize, or send _meta with every request",
    );
    error_response(StatusCode::BAD_REQUEST, id, error)
}

fn id_in_use(id: Id) -> HttpReply {
    let error =
        RpcError::new(code::INVALID_REQUEST, "Invalid request: a request with this id is in progress");
    error_response(StatusCode::BAD_REQUEST, Some(id), error)
}

/// Tells a client why it cannot resume a stream. Not with 404, which would mean that its session has ended.
fn cannot_resume(error: ResumeError) -> HttpReply {
    let (status, message) = match error {
        ResumeError::Unknown => (
            StatusCode::BAD_REQUEST,
            "Invalid request: Last-Event-ID is not the id of an event of this session",
        ),
        ResumeError::Dropped => (
            StatusCode::GONE,
            "The events after Last-Event-ID were dropped to free memory. The request was processed",
        ),
    };
    error_response(status, None, RpcError::new(code::INVALID_REQUEST, message))
}

fn accepted() -> HttpReply {
    respond(StatusCode::ACCEPTED, "text/plain", ReplyBody::empty())
}

/// Rejects an unknown revision in the version header.
fn check_version(headers: &impl NamedHeaders) -> Result<(), HttpRejection> {
    let Some(version) = headers.first(&headers::PROTOCOL_VERSION) else { return Ok(()) };
    let is_known = std::str::from_utf8(version)
        .is_ok_and(|version| version.parse::<Revision>().is_ok_and(|version| !version.is_stateless()));
    if is_known { Ok(()) } else { Err(HttpRejection(StatusCode::BAD_REQUEST, "unknown protocol version")) }
}

impl Session {
    fn open(server: &Arc<ServiceServer>, memory: &EventMemory, id: ClientSessionId) -> Self {
        let streams = Arc::new(SessionStreams::new(memory.clone()));
        let (connection, session) = server.open_http_session(Arc::clone(&streams), id);
        Self { connection, streams, served: session, last_seen: Mutex::new(Instant::now()) }
    }

    /// Closes every stream and ends every request, so that nothing holds the session any more.
    fn end(&self) {
        self.streams.close_all();
        self.connection.close();
    }

    fn touch(&self) {
        *self.last_seen.lock() = Instant::now();
    }

    /// Returns the time of the last request; a busy session is never idle.
    fn last_seen(&self) -> Instant {
        if self.streams.is_busy() {
            self.touch();
        }
        *self.last_seen.lock()
    }

    /// Handles a notification or a response of the client.
    async fn receive(&self, message: Message, headers: ReceivedHeaders) {
        let cancelled = match &message {
            Message::Notification(notification) => cancelled_id(notification),
            Message::Request(_) | Message::Response(_) => None,
        };
        self.connection.receive(message, headers).await;
        // No response will come, so the stream that waits for it ends.
        if let Some(id) = cancelled {
            self.streams.forget(&id);
        }
    }

    /// Answers a request with JSON, or with a stream if there is something to stream before the response.
    async fn answer(
        self: &Arc<Self>,
        request: Request,
        headers: ReceivedHeaders,
        keep_alive: Duration,
    ) -> HttpReply {
        let id = request.id.clone();
        if !self.streams.begin(&id) {
            return id_in_use(id);
        }
        let prefers_stream = prefers_stream(&headers);
        let call = match self.connection.begin(request, headers) {
            Ok(call) => call,
            Err(error) => {
                self.streams.finish(&id, None);
                return of_crowd(error_response(StatusCode::OK, Some(id), error));
            }
        };
        let is_crowded = call.is_crowded();
        let mut waiting = WaitingRequest { streams: Arc::clone(&self.streams), id, call: Some(call) };
        let reader = if prefers_stream {
            self.streams.start_stream(&waiting.id)
        } else {
            match poll_fn(|context| waiting.poll(context)).await {
                RequestOutcome::Response(message) if is_crowded => {
                    return of_crowd(json(StatusCode::OK, message));
                }
                RequestOutcome::Response(message) => return json(StatusCode::OK, message),
                RequestOutcome::Stream(reader) => reader,
            }
        };
        waiting.detach();
        match reader {
            Some(reader) => stream_response(self, reader, keep_alive),
            // The request was cancelled, or ended with its session, so it has no response.
            None => events(Body::empty()),
        }
    }

    /// Answers a batch with one stream.
    async fn answer_batch(
        self: &Arc<Self>,
        messages: Vec<Message>,
        headers: ReceivedHeaders,
        keep_alive: Duration,
    ) -> HttpReply {
        let requests: Vec<Id> = messages
            .iter()
            .filter_map(|message| match message {
                Message::Request(request) => Some(request.id.clone()),
                Message::Notification(_) | Message::Response(_) => None,
            })
            .collect();
        let reader = match requests.first() {
            Some(first) => match self.streams.begin_streaming(&requests) {
                Some(reader) => Some(reader),
                None => return id_in_use(first.clone()),
            },
            None => None,
        };
        for message in messages {
            match message {
                Message::Request(request) => {
                    let id = request.id.clone();
                    match self.connection.begin(request, headers.clone()) {
                        Ok(call) => {
                            WaitingRequest { streams: Arc::clone(&self.streams), id, call: Some(call) }
                                .detach();
                        }
                        Err(error) => {
                            self.streams.finish(&id, Some(Err(error)));
                        }
                    }
                }
                message => self.receive(message, headers.clone()).await,
            }
        }
        reader.map_or_else(accepted, |reader| stream_response(self, reader, keep_alive))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// A request that its HTTP handler drives. If the client disconnects, the work goes on in a task.
struct WaitingRequest {
    streams: Arc<SessionStreams>,
    id: Id,
    /// `None` once it has ended, or is driven by a task.
    call: Option<InboundCall>,
}

/// The response to a request, or the stream that it became.
enum RequestOutcome {
    /// The parts of the encoded response.
    Response([Bytes; 3]),
    /// `None` if the request was cancelled, or ended with its session.
    Stream(Option<Reader>),
}

impl WaitingRequest {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<RequestOutcome> {
        let streams = &self.streams;
        let Some(call) = &mut self.call else { return Poll::Ready(RequestOutcome::Stream(None)) };
        let Poll::Ready(result) = Pin::new(call).poll(context) else {
            return match streams.poll_request(&self.id, context) {
                RequestPoll::Waiting => Poll::Pending,
                RequestPoll::Streaming(reader) => Poll::Ready(RequestOutcome::Stream(Some(reader))),
                RequestPoll::Ended => {
                    self.call = None;
                    Poll::Ready(RequestOutcome::Stream(None))
                }
            };
        };
        self.call = None;
        Poll::Ready(match streams.finish_waiting(&self.id, result) {
            RequestEnd::Response(result) => {
                RequestOutcome::Response(Message::encode_response(&self.id, result))
            }
            RequestEnd::Stream(reader) => RequestOutcome::Stream(Some(reader)),
            RequestEnd::Ended => RequestOutcome::Stream(None),
        })
    }

    /// Lets a task drive the rest of the request.
    fn detach(&mut self) {
        let Some(call) = self.call.take() else { return };
        let (streams, id) = (Arc::clone(&self.streams), self.id.clone());
        // The task ends with the request, at the latest when the session ends and closes its connection.
        tokio::spawn(async move {
            let result = call.await;
            streams.finish(&id, result);
        });
    }
}

impl Drop for WaitingRequest {
    /// The client has disconnected before there was an answer: the work of a session goes on.
    fn drop(&mut self) {
        if self.call.is_some() {
            self.streams.abandon(&self.id);
            self.detach();
        }
    }
}

/// Returns a response that streams a channel. A session with a reader is not idle.
fn stream_response(session: &Arc<Session>, mut reader: Reader, keep_alive: Duration) -> HttpReply {
    let first = session.streams.has_priming_events().then(|| reader.priming());
    let state = (Arc::clone(session), reader, first);
    events(Body::from_stream(stream::unfold(state, move |(session, mut reader, first)| async move {
        session.touch();
        let chunk = match first {
            Some(priming) => priming,
            None => match reader.next(keep_alive).await {
                ReaderItem::Event(event) => event,
                ReaderItem::KeepAlive => Bytes::from_static(KEEP_ALIVE),
                ReaderItem::End => return None,
            },
        };
        Some((Ok::<_, std::convert::Infallible>(chunk), (session, reader, None)))
    })))
}
