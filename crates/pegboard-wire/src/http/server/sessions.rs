//! HTTP sessions: clients that opened with `initialize`, each with its streams.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;
use tokio::time::{self, Instant};
use tokio_util::task::AbortOnDropHandle;

use super::channel::{Channel, Next, Reader, parse_event_id};
use super::{HttpRejection, HttpServerOptions, error_response, events, json, plain_text, respond};
use crate::connection::{Connection, cancel_notification, cancelled_id};
use crate::era::Revision;
use crate::http::headers;
use crate::http::sse::KEEP_ALIVE;
use crate::link::{Arrival, Letter, Port, link};
use crate::message::{Id, Message, RpcError, code};
use crate::server::{ClientSessionId, ServiceServer};

/// Maximum number of ended streams that a session keeps for a reconnecting client.
const MAX_ENDED_STREAMS: usize = 32;

/// All sessions of one endpoint.
pub(super) struct Sessions {
    server: ServiceServer,
    options: HttpServerOptions,
    table: Arc<Mutex<HashMap<String, Arc<Session>>>>,
}

/// The session of one client.
struct Session {
    /// Keeps the serving side alive until the session ends.
    _connection: Connection,
    arrivals: mpsc::Sender<Arrival>,
    streams: Arc<Mutex<Streams>>,
    last_seen: Mutex<Instant>,
    n_channels: AtomicU64,
    /// Ends the session after the idle timeout; aborted if the session ends earlier.
    watch: OnceLock<AbortOnDropHandle<()>>,
}

/// Routes outgoing letters to event streams.
struct Streams {
    /// Messages that belong to no request of the client.
    general: Arc<Channel>,
    /// The stream of each request in progress.
    by_request: HashMap<Id, Arc<Channel>>,
    /// Number of requests in progress per channel.
    n_open: HashMap<u64, usize>,
    ended: VecDeque<Arc<Channel>>,
    /// The negotiated revision.
    revision: Option<Revision>,
}

impl Sessions {
    pub(super) fn new(server: ServiceServer, options: HttpServerOptions) -> Self {
        Self { server, options, table: Arc::default() }
    }

    pub(super) async fn post(&self, headers: &HeaderMap, messages: Vec<Message>) -> Response {
        let is_initialize = |message: &Message| matches!(message, Message::Request(request) if &*request.method == "initialize");
        let opens = messages.iter().any(is_initialize);
        if let Err(rejection) = check_version(headers) {
            return rejection.into();
        }
        if opens && messages.len() > 1 {
            return plain_text(StatusCode::BAD_REQUEST, "initialize must not be part of a batch");
        }
        let (session, id) = match self.find(headers) {
            Found::Session(session, _) if !opens => (session, None),
            Found::Session(..) => {
                return plain_text(StatusCode::BAD_REQUEST, "the session is already initialized");
            }
            Found::Unknown => return plain_text(StatusCode::NOT_FOUND, "there is no such session"),
            Found::Unnamed if opens => match self.open() {
                Ok((session, id)) => (session, Some(id)),
                Err(rejection) => return rejection.into(),
            },
            Found::Unnamed => return no_session(&messages),
        };
        if messages.len() > 1 && !session.streams.lock().has_batches() {
            let error = RpcError::new(
                code::INVALID_REQUEST,
                "Invalid request: this revision does not support batches",
            );
            return error_response(StatusCode::BAD_REQUEST, None, error);
        }
        let format =
            if prefers_stream(headers) { PostResponseFormat::Stream } else { PostResponseFormat::Json };
        let mut response = session.handle_messages(messages, headers, format, self.options.keep_alive).await;
        if let Some(id) = id {
            // A rejected `initialize` leaves no session.
            if format == PostResponseFormat::Json && session.streams.lock().revision.is_none() {
                self.table().remove(&id);
                session.end();
            } else if let Ok(id) = HeaderValue::from_str(&id) {
                response.headers_mut().insert(headers::SESSION_ID, id);
            }
        }
        response
    }

    pub(super) fn get(&self, headers: &HeaderMap) -> Response {
        let Found::Session(session, _) = self.find(headers) else { return self.without_session(headers) };
        let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        if !(accepts.contains("text/event-stream") || accepts.contains("*/*")) {
            return plain_text(StatusCode::NOT_ACCEPTABLE, "a GET must accept text/event-stream");
        }
        let last =
            headers.get(headers::LAST_EVENT_ID).and_then(|id| id.to_str().ok()).and_then(parse_event_id);
        match session.reader_after(last) {
            Some(reader) => stream_response(&session, reader, self.options.keep_alive),
            None => plain_text(StatusCode::NOT_FOUND, "the stream is no longer available"),
        }
    }

    pub(super) fn delete(&self, headers: &HeaderMap) -> Response {
        let Found::Session(session, id) = self.find(headers) else { return self.without_session(headers) };
        self.table().remove(&id);
        session.end();
        respond(StatusCode::NO_CONTENT, "text/plain", Body::empty())
    }

    fn without_session(&self, headers: &HeaderMap) -> Response {
        match self.find(headers) {
            Found::Unknown => plain_text(StatusCode::NOT_FOUND, "there is no such session"),
            Found::Unnamed | Found::Session(..) => super::method_not_allowed(),
        }
    }

    fn find(&self, headers: &HeaderMap) -> Found {
        let Some(id) = headers.get(headers::SESSION_ID) else { return Found::Unnamed };
        let id = id.to_str().unwrap_or_default();
        match self.table().get(id) {
            Some(session) => {
                session.touch();
                Found::Session(Arc::clone(session), id.to_owned())
            }
            None => Found::Unknown,
        }
    }

    fn open(&self) -> Result<(Arc<Session>, String), HttpRejection> {
        let mut table = self.table();
        if table.len() >= self.options.max_sessions {
            return Err(HttpRejection(StatusCode::SERVICE_UNAVAILABLE, "too many sessions"));
        }
        let id = ClientSessionId::random();
        let session = Arc::new(Session::open(&self.server, id.clone()));
        let id = id.as_str().to_owned();
        table.insert(id.clone(), Arc::clone(&session));
        self.watch(id.clone(), &session);
        Ok((session, id))
    }

    /// Ends the session after the idle timeout.
    fn watch(&self, id: String, session: &Arc<Session>) {
        let idle = self.options.session_idle;
        let (table, weak) = (Arc::downgrade(&self.table), Arc::downgrade(session));
        let watching = tokio::spawn(async move {
            loop {
                let Some(session) = weak.upgrade() else { return };
                let last_seen = session.last_seen();
                let is_busy = !session.streams.lock().by_request.is_empty();
                if is_busy {
                    session.touch();
                } else if last_seen.elapsed() >= idle {
                    session.end();
                    if let Some(table) = table.upgrade() {
                        table.lock().remove(&id);
                    }
                    return;
                }
                let until = session.last_seen() + idle;
                drop(session);
                time::sleep_until(until).await;
            }
        });
        session.watch.get_or_init(|| AbortOnDropHandle::new(watching));
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.table.lock()
    }
}

enum Found {
    Session(Arc<Session>, String),
    /// The request names an unknown session.
    Unknown,
    /// The request names no session.
    Unnamed,
}

/// Format of a response: JSON if it is a single message, or an event stream in any case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PostResponseFormat {
    Json,
    Stream,
}

/// Returns `true` if the client prefers an event stream to JSON.
fn prefers_stream(headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let position = |kind: &str| accepts.find(kind);
    match (position("text/event-stream"), position("application/json")) {
        (Some(stream), Some(whole)) => stream < whole,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

fn no_session(messages: &[Message]) -> Response {
    let id = messages.iter().find_map(|message| match message {
        Message::Request(request) => Some(request.id.clone()),
        Message::Notification(_) | Message::Response(_) => None,
    });
    let error = RpcError::new(
        code::INVALID_REQUEST,
        "Invalid request: open a session with initialize, or send _meta with every request",
    );
    error_response(StatusCode::BAD_REQUEST, id, error)
}

/// Rejects an unknown revision in the version header.
fn check_version(headers: &HeaderMap) -> Result<(), HttpRejection> {
    let Some(version) = headers.get(headers::PROTOCOL_VERSION) else { return Ok(()) };
    let is_known = version
        .to_str()
        .is_ok_and(|version| version.parse::<Revision>().is_ok_and(|version| !version.is_stateless()));
    if is_known { Ok(()) } else { Err(HttpRejection(StatusCode::BAD_REQUEST, "unknown protocol version")) }
}

impl Session {
    fn open(server: &ServiceServer, id: ClientSessionId) -> Self {
        let (link, port) = link();
        let connection = server.open_session(link, id);
        let Port { letters, mut cancels, arrivals } = port;
        let streams = Arc::new(Mutex::new(Streams {
            general: Arc::new(Channel::new(0)),
            by_request: HashMap::new(),
            n_open: HashMap::new(),
            ended: VecDeque::new(),
            revision: None,
        }));
        let routed = Arc::clone(&streams);
        let mut letters = letters;
        // The task ends when the connection is dropped with its session.
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    letter = letters.recv() => match letter {
                        Some(letter) => routed.lock().route(&letter),
                        None => break,
                    },
                    Some(cancel) = cancels.recv() => routed.lock().route(&Letter::new(cancel_notification(&cancel))),
                }
            }
            routed.lock().close_all();
        });
        let last_seen = Mutex::new(Instant::now());
        let (n_channels, watch) = (AtomicU64::new(1), OnceLock::new());
        Self { _connection: connection, arrivals, streams, last_seen, n_channels, watch }
    }

    /// Closes every stream, so that nothing holds the session any more.
    fn end(&self) {
        self.streams.lock().close_all();
    }

    fn touch(&self) {
        *self.last_seen.lock() = Instant::now();
    }

    fn last_seen(&self) -> Instant {
        *self.last_seen.lock()
    }

    /// Passes messages to the serving side and returns its responses to the requests among them.
    async fn handle_messages(
        self: &Arc<Self>,
        messages: Vec<Message>,
        headers: &HeaderMap,
        format: PostResponseFormat,
        keep_alive: Duration,
    ) -> Response {
        let requests: Vec<Id> = messages
            .iter()
            .filter_map(|message| match message {
                Message::Request(request) => Some(request.id.clone()),
                Message::Notification(_) | Message::Response(_) => None,
            })
            .collect();
        let channel = Arc::new(Channel::new(self.n_channels.fetch_add(1, Ordering::Relaxed)));
        if !self.streams.lock().expect_answers(&requests, &channel) {
            let error = RpcError::new(
                code::INVALID_REQUEST,
                "Invalid request: a request with this id is in progress",
            );
            return error_response(StatusCode::BAD_REQUEST, requests.into_iter().next(), error);
        }
        for message in messages {
            let cancelled = match &message {
                Message::Notification(notification) => cancelled_id(notification),
                Message::Request(_) | Message::Response(_) => None,
            };
            if self.arrivals.send(Arrival::message(message).with_headers(headers.clone())).await.is_err() {
                return plain_text(StatusCode::NOT_FOUND, "the session has ended");
            }
            // No response will come, so the stream that waits for it ends.
            if let Some(id) = cancelled {
                self.streams.lock().forget_request(&id);
            }
        }
        if requests.is_empty() {
            return respond(StatusCode::ACCEPTED, "text/plain", Body::empty());
        }
        if format == PostResponseFormat::Stream {
            return stream_response(self, channel.reader(0), keep_alive);
        }
        channel.wait_for_first().await;
        match channel.only_message() {
            Some(message) => {
                // Without an event id the client cannot resume it.
                self.streams.lock().ended.retain(|ended| ended.number() != channel.number());
                json(StatusCode::OK, message)
            }
            None => stream_response(self, channel.reader(0), keep_alive),
        }
    }

    /// Returns a reader of the stream that the client last read, or of the general stream.
    fn reader_after(&self, last: Option<(u64, u64)>) -> Option<Reader> {
        let streams = self.streams.lock();
        let Some((number, n_seen)) = last else { return Some(streams.general.reader_of_unread()) };
        let channel = streams
            .by_request
            .values()
            .chain(&streams.ended)
            .chain([&streams.general])
            .find(|channel| channel.number() == number)?;
        Some(channel.reader(n_seen))
    }
}

impl Streams {
    fn expect_answers(&mut self, requests: &[Id], channel: &Arc<Channel>) -> bool {
        let distinct: HashSet<&Id> = requests.iter().collect();
        if distinct.len() < requests.len() || requests.iter().any(|id| self.by_request.contains_key(id)) {
            return false;
        }
        if !requests.is_empty() {
            self.n_open.insert(channel.number(), requests.len());
        }
        for id in requests {
            self.by_request.insert(id.clone(), Arc::clone(channel));
        }
        true
    }

    fn route(&mut self, letter: &Letter) {
        let message = letter.message.encode();
        if let Message::Response(response) = &letter.message
            && let Some(channel) = response.id.as_ref().and_then(|id| self.by_request.remove(id))
        {
            if self.revision.is_none() {
                // The first response is that to `initialize`.
                let version = response.result.as_ref().ok().and_then(|result| result.get("protocolVersion"));
                self.revision = version.and_then(|version| version.text()?.parse().ok());
            }
            return self.send_answer(channel, message);
        }
        let channel = letter.about.as_ref().and_then(|id| self.by_request.get(id)).unwrap_or(&self.general);
        channel.send(message);
        if let Some(retry) = letter.hang_up {
            channel.close_reader(retry);
        }
    }

    /// Sends a response; the stream ends with the last response it waits for.
    fn send_answer(&mut self, channel: Arc<Channel>, answer: Bytes) {
        let n_open = self.n_open.entry(channel.number()).or_default();
        *n_open = n_open.saturating_sub(1);
        if *n_open > 0 {
            return channel.send(answer);
        }
        self.n_open.remove(&channel.number());
        channel.send_last(answer);
        self.ended.push_back(channel);
        if self.ended.len() > MAX_ENDED_STREAMS {
            self.ended.pop_front();
        }
    }

    /// Returns `true` if the revision has batches. Only one revision ever had them.
    fn has_batches(&self) -> bool {
        self.revision == Some(Revision::V2025_03_26)
    }

    /// Forgets a cancelled request, which gets no response.
    fn forget_request(&mut self, id: &Id) {
        let Some(channel) = self.by_request.remove(id) else { return };
        let n_open = self.n_open.entry(channel.number()).or_default();
        *n_open = n_open.saturating_sub(1);
        if *n_open == 0 {
            self.n_open.remove(&channel.number());
            channel.close();
        }
    }

    fn close_all(&mut self) {
        self.general.close();
        self.by_request.drain().for_each(|(_, channel)| channel.close());
    }
}

/// Returns a response that streams a channel. A session with a reader is not idle.
fn stream_response(session: &Arc<Session>, reader: Reader, keep_alive: Duration) -> Response {
    let first = Some(reader.priming());
    let state = (Arc::clone(session), reader, first);
    events(Body::from_stream(stream::unfold(state, move |(session, mut reader, first)| async move {
        session.touch();
        let chunk = match first {
            Some(priming) => priming,
            None => match reader.next(keep_alive).await {
                Next::Event(event) => event,
                Next::KeepAlive => Bytes::from_static(KEEP_ALIVE),
                Next::End => return None,
            },
        };
        Some((Ok::<_, std::convert::Infallible>(chunk), (session, reader, None)))
    })))
}
