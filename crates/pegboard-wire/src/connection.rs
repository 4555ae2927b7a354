//! A JSON-RPC connection: request ids, ordering, cancellation, and requests of the peer.

use std::collections::hash_map::Entry;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use foldhash::HashMap;
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture, Either};
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{self, AbortHandle};
use tokio::time;

use crate::era::{Era, LogLevel};
use crate::http::client::HttpTransport;
use crate::http::client::call::HttpCall;
use crate::http::client::resend::ResendSafety;
use crate::http::headers::MirroredHeaders;
use crate::http::server::streams::SessionStreams;
use crate::message::outgoing::{EncodedRequest, OutgoingMeta};
use crate::message::{Id, Message, Notification, Request, Response, RpcError, code};
use crate::pending_request::{PendingRequest, RequestDriver, RequestError, ResponseSlot};
use crate::transport::{
    CLOSE_TIMEOUT, CancelRequest, IncomingEvent, MessageTrace, OutgoingMessage, RequestPath, TransportError,
    TransportEvent, TransportHandle,
};
use pegboard_json::RawJson;

/// Method of the notification that cancels a request.
const CANCELLED_METHOD: &str = "notifications/cancelled";

/// Number of requests of a peer in progress from which on another one lets the work of other peers go first.
const CROWD: usize = 32;

/// Handler of requests and notifications that the peer initiates.
pub trait InboundHandler: Send + Sync + 'static {
    /// Handles a request of the peer. Dropping the future cancels the work.
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>>;

    /// Handles a notification; `related_request` is the local request it belongs to, if the transport can
    /// tell.
    fn notification(&self, notification: Notification, related_request: Option<Id>);
}

/// A request initiated by the peer.
#[derive(Debug)]
pub struct InboundRequest {
    /// The JSON-RPC request.
    pub request: Request,
    /// The local request it belongs to, if the transport can tell.
    pub related_request: Option<Id>,
    /// HTTP headers of the request; empty for transports without headers.
    pub headers: HeaderMap,
    /// The connection to the peer. A weak handle: it does not keep the connection alive.
    pub connection: WeakConnection,
}

/// Role of the local end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRole {
    /// Sends requests; those of the peer end with the peer's input.
    Client,
    /// Serves the requests of the peer.
    Server {
        /// Time that requests of the peer may keep running after the peer has closed its input.
        linger: Duration,
    },
}

/// Role and resource limits of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of pending requests to the peer.
    pub max_pending: usize,
    /// Maximum number of concurrent requests of the peer.
    pub max_inbound: usize,
    /// Maximum number of unread notifications per pending request.
    pub max_notifications: usize,
    /// Role of the local end.
    pub role: ConnectionRole,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        let role = ConnectionRole::Client;
        Self { max_pending: 10_000, max_inbound: 10_000, max_notifications: 10_000, role }
    }
}

/// Counters of discarded input, for monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Responses to unknown or cancelled requests.
    pub stray_responses: u64,
    /// Notifications for unknown requests, or beyond the limit of unread ones.
    pub stray_notifications: u64,
    /// Malformed input.
    pub malformed: u64,
}

/// A connection to one peer. Clones share it; it closes when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Connection(Arc<ConnectionShared>);

/// State shared by the clones of a connection, its pending requests and its dispatcher.
#[derive(Debug)]
pub(crate) struct ConnectionShared {
    outbound: Outbound,
    /// Handler of the peer's messages, for HTTP; a multiplexed connection has it in its dispatcher.
    handler: Option<HandlerRef>,
    trace: Option<MessageTrace>,
    limits: ConnectionLimits,
    next_id: AtomicI64,
    table: Mutex<RequestTable>,
    stray_responses: AtomicU64,
    stray_notifications: AtomicU64,
    malformed: AtomicU64,
    /// Number of requests of the peer in progress.
    n_inbound: Arc<InboundCounter>,
    closed: watch::Sender<Option<TransportError>>,
    /// `true` once a request of the peer was refused because too many are in flight.
    has_refused: AtomicBool,
}

/// A request of the peer that may begin.
struct AdmittedInbound {
    /// `true` if the peer has many others in progress.
    is_crowded: bool,
}

/// The way of outgoing messages.
#[derive(Clone, Debug)]
enum Outbound {
    /// All messages are queued for the transport.
    Queue { outgoing: mpsc::Sender<OutgoingMessage>, cancels: mpsc::UnboundedSender<CancelRequest> },
    /// A client over HTTP: each request is driven by its caller, the rest is queued.
    HttpClient {
        outgoing: mpsc::Sender<OutgoingMessage>,
        cancels: mpsc::UnboundedSender<CancelRequest>,
        transport: Arc<HttpTransport>,
    },
    /// A session of the HTTP server: messages go straight to its streams.
    HttpSession { streams: Arc<SessionStreams> },
}

impl Outbound {
    /// Sends a message, at once if there is space for it; an error if the transport has ended.
    fn send(&self, mut message: OutgoingMessage) -> Sending<'_> {
        let outgoing = match self {
            Self::Queue { outgoing, .. } => outgoing,
            Self::HttpClient { outgoing, transport, .. } => {
                message.turn = Some(transport.turn_of(&message.message));
                outgoing
            }
            Self::HttpSession { streams } => return Either::Left(future::ready(streams.route(&message))),
        };
        match outgoing.try_send(message) {
            Ok(()) => Either::Left(future::ready(Ok(()))),
            Err(TrySendError::Closed(_)) => Either::Left(future::ready(Err(TransportError::Closed))),
            // Boxed, so that the futures of those that send stay small.
            Err(TrySendError::Full(message)) => Either::Right(
                async move { outgoing.send(message).await.map_err(|_| TransportError::Closed) }.boxed(),
            ),
        }
    }

    /// Cancels a request on the wire. A closed transport has nothing to cancel.
    fn cancel(&self, cancel: CancelRequest) {
        match self {
            Self::Queue { cancels, .. } | Self::HttpClient { cancels, .. } => {
                let _ = cancels.send(cancel);
            }
            Self::HttpSession { streams } => {
                // Without memory for it, the client keeps a request that has ended.
                let _ = streams.route(&OutgoingMessage::new(cancel_notification(&cancel)));
            }
        }
    }
}

/// A message on its way to the transport.
type Sending<'s> =
    Either<future::Ready<Result<(), TransportError>>, BoxFuture<'s, Result<(), TransportError>>>;

/// A handler of inbound messages.
#[derive(Clone)]
struct HandlerRef(Arc<dyn InboundHandler>);

impl fmt::Debug for HandlerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HandlerRef")
    }
}

#[derive(Debug, Default)]
struct RequestTable {
    pending: HashMap<i64, PendingEntry>,
    inbound: HashMap<Id, InboundEntry>,
    closed: Option<TransportError>,
}

/// A request of the peer in progress.
#[derive(Debug)]
enum InboundEntry {
    /// Runs in a task of its own.
    Task(AbortHandle),
    /// Is driven by the transport.
    Call(future::AbortHandle),
}

impl InboundEntry {
    fn abort(&self) {
        match self {
            Self::Task(task) => task.abort(),
            Self::Call(call) => call.abort(),
        }
    }
}

/// A request of the peer, driven by its transport: the result, or `None` if the peer cancelled it. Dropping it
/// cancels the work.
pub(crate) struct InboundCall {
    work: future::Abortable<BoxFuture<'static, Result<RawJson, RpcError>>>,
    id: Id,
    shared: Weak<ConnectionShared>,
    /// `true` if the first poll only lets other tasks go first.
    is_crowded: bool,
}

impl Future for InboundCall {
    type Output = Option<Result<RawJson, RpcError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.is_crowded) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        // A panic in the handler costs only this request.
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.work).poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(result.ok()),
            Err(_panic) => Poll::Ready(Some(Err(RpcError::handler_panicked()))),
        }
    }
}

impl Drop for InboundCall {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.end_inbound(&self.id);
        }
    }
}

#[derive(Debug)]
struct PendingEntry {
    slot: Arc<ResponseSlot>,
    progress_token: ProgressToken,
    cancel: CancelMode,
}

/// The progress token under which a caller is notified. On the wire it is the id of the request, so that the
/// tokens of different callers cannot collide.
#[derive(Clone, Debug)]
pub(crate) enum ProgressToken {
    /// Progress was not requested.
    None,
    /// The id of the request.
    RequestId,
    /// The caller's own.
    Given(RawJson),
}

/// Effect of dropping a request on the wire.
#[derive(Debug)]
enum CancelMode {
    /// None: handshake requests are never cancelled, and closing an HTTP stream may be enough.
    Silent,
    /// A `notifications/cancelled`, with these headers.
    Notify(HeaderMap),
}

impl Connection {
    /// Opens a connection over a transport. Requests of the peer go to `handler`.
    pub fn open(
        transport: TransportHandle,
        handler: Arc<dyn InboundHandler>,
        limits: ConnectionLimits,
    ) -> Self {
        Self::open_traced(transport, handler, limits, None)
    }

    /// Opens a connection that logs all its messages.
    pub(crate) fn open_traced(
        transport: TransportHandle,
        handler: Arc<dyn InboundHandler>,
        limits: ConnectionLimits,
        trace: Option<MessageTrace>,
    ) -> Self {
        let TransportHandle { outgoing, cancels, requests } = transport;
        match requests {
            RequestPath::Multiplexed { incoming } => {
                let shared =
                    ConnectionShared::new(Outbound::Queue { outgoing, cancels }, None, trace, limits);
                // The task ends with the transport, which ends when the last clone of the connection is
                // dropped.
                tokio::spawn(dispatch(Arc::downgrade(&shared), incoming, handler));
                Self(shared)
            }
            RequestPath::Http { transport, dispatcher } => {
                let outbound = Outbound::HttpClient { outgoing, cancels, transport };
                let shared = ConnectionShared::new(outbound, Some(HandlerRef(handler)), trace, limits);
                dispatcher.start(Arc::downgrade(&shared));
                Self(shared)
            }
        }
    }

    /// Opens the connection of an HTTP session. Its messages are passed to [`receive`](Self::receive) and
    /// [`begin`](Self::begin).
    pub(crate) fn open_session(
        streams: Arc<SessionStreams>,
        handler: Arc<dyn InboundHandler>,
        limits: ConnectionLimits,
    ) -> Self {
        let outbound = Outbound::HttpSession { streams };
        Self(ConnectionShared::new(outbound, Some(HandlerRef(handler)), None, limits))
    }

    /// Handles a message of the peer. Requests run in tasks of their own.
    pub(crate) async fn receive(&self, message: Message, headers: HeaderMap) {
        self.0.receive(message, None, headers).await;
    }

    /// Closes the connection: pending requests fail, and requests of the peer are aborted.
    pub(crate) fn close(&self) {
        self.0.close(TransportError::Closed);
    }

    /// Begins a request of the peer, which the caller drives.
    pub(crate) fn begin(&self, request: Request, headers: HeaderMap) -> Result<InboundCall, RpcError> {
        self.0.begin(request, headers)
    }

    /// Sends a request. Ids and progress tokens on the wire are the connection's own.
    pub async fn request(
        &self,
        method: &str,
        params: Option<RawJson>,
    ) -> Result<PendingRequest, RequestError> {
        self.request_with(method, params, None, HeaderMap::new()).await
    }

    /// Sends a request that belongs to a request of the peer, or that has headers.
    pub async fn request_with(
        &self,
        method: &str,
        params: Option<RawJson>,
        related_request: Option<Id>,
        headers: HeaderMap,
    ) -> Result<PendingRequest, RequestError> {
        let id = self.reserve_id();
        let era = Era::claimed(params.as_ref());
        let own = params.as_ref().and_then(|params| params.get("_meta"));
        let token = own.as_ref().and_then(|own| own.get("progressToken"));
        let meta = OutgoingMeta {
            has_progress: token.is_some(),
            given: own.as_ref(),
            hidden: &["progressToken"],
            ..OutgoingMeta::default()
        };
        let params = if own.is_some() { params.map(|params| params.without("_meta")) } else { params };
        let encoded = EncodedRequest::new(id, method, params.as_ref(), &meta);
        let progress_token = token.map_or(ProgressToken::None, ProgressToken::Given);
        let (mirrored_headers, resend) = (None, ResendSafety::of(method));
        let request =
            OutgoingRequest { id, method, encoded, progress_token, era, headers, mirrored_headers, resend };
        self.send_request(request, related_request).await
    }

    /// Returns the id of the next request.
    pub(crate) fn reserve_id(&self) -> i64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends an encoded request.
    pub(crate) fn send_request(
        &self,
        request: OutgoingRequest<'_>,
        related_request: Option<Id>,
    ) -> impl Future<Output = Result<PendingRequest, RequestError>> + use<'_> {
        match &self.0.outbound {
            Outbound::HttpClient { transport, .. } => {
                Either::Left(future::ready(self.request_over_http(transport, request)))
            }
            Outbound::Queue { .. } | Outbound::HttpSession { .. } => {
                Either::Right(self.queue_request(request, related_request))
            }
        }
    }

    fn queue_request(
        &self,
        request: OutgoingRequest<'_>,
        related_request: Option<Id>,
    ) -> impl Future<Output = Result<PendingRequest, RequestError>> + use<'_> {
        let OutgoingRequest { id, method, encoded, progress_token, headers, .. } = request;
        let cancel = match method {
            "initialize" | "server/discover" => CancelMode::Silent,
            _ => CancelMode::Notify(HeaderMap::new()),
        };
        let sending = self.0.register_pending(id, progress_token, cancel).map(|slot| {
            // From here on, dropping the request cancels it.
            let pending = PendingRequest { id, slot, shared: Arc::clone(&self.0), driver: None };
            let message = Message::request(Id::Number(id), method, encoded.params());
            let message =
                OutgoingMessage { headers, ..OutgoingMessage::new(message).related_to(related_request) };
            (pending, self.send(message))
        });
        async move {
            let (pending, sending) = sending?;
            sending.await?;
            Ok(pending)
        }
    }

    /// Prepares a request that its caller drives.
    fn request_over_http(
        &self,
        transport: &Arc<HttpTransport>,
        request: OutgoingRequest<'_>,
    ) -> Result<PendingRequest, RequestError> {
        let (id, progress_token) = (request.id, request.progress_token.clone());
        if let Some(trace) = &self.0.trace {
            trace.sent(request.encoded.text());
        }
        let call = HttpCall::new(Arc::clone(&self.0), Arc::clone(transport), request);
        let cancel = call.cancel_headers().map_or(CancelMode::Silent, CancelMode::Notify);
        let slot = self.0.register_pending(id, progress_token, cancel)?;
        let driver: RequestDriver = Box::pin(call.run(transport.next_turn()));
        Ok(PendingRequest { id, slot, shared: Arc::clone(&self.0), driver: Some(driver) })
    }

    /// Queues a message for the transport.
    fn send(&self, message: OutgoingMessage) -> impl Future<Output = Result<(), TransportError>> + use<'_> {
        if let Some(trace) = &self.0.trace {
            trace.sent(&message.message.encode());
        }
        let sending = self.0.outbound.send(message);
        async move {
            match sending.await {
                Ok(()) => Ok(()),
                // The transport works, but has refused this message.
                Err(refused @ TransportError::Failed { .. }) => Err(refused),
                Err(_) => Err(Box::pin(self.send_error()).await),
            }
        }
    }

    /// Records the minimum level of log messages that the peer accepts.
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        if let Outbound::HttpSession { streams } = &self.0.outbound {
            streams.set_log_level(level);
        }
    }

    /// Sends a notification; `related_request` is the peer's request that it belongs to.
    pub async fn notify(
        &self,
        notification: Notification,
        related_request: Option<Id>,
    ) -> Result<(), TransportError> {
        self.send(OutgoingMessage::new(Message::Notification(notification)).related_to(related_request)).await
    }

    /// Sends a notification, after which the transport may close the stream of the peer's request
    /// `related_request`; the peer reconnects after `retry`. Transports without per-request streams only send
    /// it.
    pub async fn notify_and_close_stream(
        &self,
        notification: Notification,
        related_request: Id,
        retry: Duration,
    ) -> Result<(), TransportError> {
        let message =
            OutgoingMessage::new(Message::Notification(notification)).related_to(Some(related_request));
        self.send(OutgoingMessage { close_stream: Some(retry), ..message }).await
    }

    /// Returns the reason why the transport accepts no more messages. The transport may end a moment before
    /// the dispatcher learns the reason. The serving side does not wait for it, since the dispatcher may
    /// itself wait for the work it serves.
    async fn send_error(&self) -> TransportError {
        const SOON: Duration = Duration::from_secs(1);
        if self.0.limits.role == ConnectionRole::Client
            && let Ok(reason) = time::timeout(SOON, self.closed()).await
        {
            return reason;
        }
        self.0.close_reason()
    }

    /// Waits until the connection is closed and returns the reason.
    pub async fn closed(&self) -> TransportError {
        let mut closed = self.0.closed.subscribe();
        match closed.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(TransportError::Closed),
            Err(_) => TransportError::Closed,
        }
    }

    /// Returns a handle that does not keep the connection alive.
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection { shared: Arc::downgrade(&self.0) }
    }

    /// Returns `true` if the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.0.closed.borrow().is_some()
    }

    /// Returns the counters of discarded input.
    pub fn stats(&self) -> ConnectionStats {
        ConnectionStats {
            stray_responses: self.0.stray_responses.load(Ordering::Relaxed),
            stray_notifications: self.0.stray_notifications.load(Ordering::Relaxed),
            malformed: self.0.malformed.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of pending requests.
    pub fn n_pending(&self) -> usize {
        self.0.table().pending.len()
    }
}

/// A request before it is sent.
pub(crate) struct OutgoingRequest<'r> {
    /// Id from [`Connection::reserve_id`].
    pub(crate) id: i64,
    pub(crate) method: &'r str,
    pub(crate) encoded: EncodedRequest,
    pub(crate) progress_token: ProgressToken,
    /// The era that the parameters claim.
    pub(crate) era: Era,
    pub(crate) headers: HeaderMap,
    /// Headers of a stateless request, over which `headers` take precedence.
    pub(crate) mirrored_headers: Option<MirroredHeaders>,
    pub(crate) resend: ResendSafety,
}

/// A weak handle of a connection.
#[derive(Clone, Debug)]
pub struct WeakConnection {
    shared: Weak<ConnectionShared>,
}

impl WeakConnection {
    /// Returns the connection if it is still alive.
    pub fn upgrade(&self) -> Option<Connection> {
        self.shared.upgrade().map(Connection)
    }

    /// Waits until the connection is closed or dropped.
    pub async fn closed(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut closed = shared.closed.subscribe();
        drop(shared);
        let _ = closed.wait_for(Option::is_some).await;
    }
}

async fn dispatch(
    shared: Weak<ConnectionShared>,
    mut incoming: mpsc::Receiver<IncomingEvent>,
    handler: Arc<dyn InboundHandler>,
) {
    let mut reason = TransportError::Closed;
    let mut has_ended = false;
    while let Some(event) = incoming.recv().await {
        let Some(strong) = shared.upgrade() else { return };
        if let Some(trace) = &strong.trace {
            trace.received(&event.event);
        }
        // Nothing that awaits the peer may hold the connection: it could not be dropped otherwise.
        let outbound = strong.outbound.clone();
        match event.event {
            TransportEvent::Message(Message::Response(response)) => strong.handle_response(response),
            TransportEvent::Message(Message::Notification(notification)) => {
                strong.handle_notification(notification, event.related_request, &*handler);
            }
            TransportEvent::Message(Message::Request(request)) => {
                let from = (event.related_request, event.headers);
                let rejection = strong.serve(request, from, &handler);
                drop(strong);
                if let Some(rejection) = rejection {
                    let _ = outbound.send(rejection).await;
                }
            }
            TransportEvent::Malformed(malformed) => {
                increment(&strong.malformed);
                drop(strong);
                let _ = outbound
                    .send(OutgoingMessage::new(Message::response(malformed.id, Err(*malformed.error))))
                    .await;
            }
            TransportEvent::UnreadableResponse { error } => strong.fail_only_request(error),
            TransportEvent::Skipped => increment(&strong.malformed),
            TransportEvent::RequestFailed { id, error } => strong.complete(&id, Err(error.into())),
            TransportEvent::EndOfInput => has_ended = true,
            TransportEvent::Closed(error) => reason = error,
        }
    }
    // Responses matter only to a peer that still reads.
    let linger = shared.upgrade().filter(|_| has_ended).and_then(|shared| match shared.limits.role {
        ConnectionRole::Client => None,
        ConnectionRole::Server { linger } => Some((linger, Arc::clone(&shared.n_inbound))),
    });
    if let Some((linger, n_inbound)) = linger {
        // Meanwhile the connection may be dropped; then nothing is left to wait for.
        if time::timeout(linger, n_inbound.wait_for_zero()).await.is_err() {
            // A peer that does not read must not keep the connection alive.
            let _ = time::timeout(CLOSE_TIMEOUT, reject_inbound(&shared, linger)).await;
        }
    }
    if let Some(shared) = shared.upgrade() {
        shared.close(reason);
    }
}

/// Number of requests of the peer in progress.
#[derive(Debug, Default)]
struct InboundCounter {
    n_inbound: AtomicUsize,
    is_zero: Notify,
}

impl InboundCounter {
    fn get(&self) -> usize {
        self.n_inbound.load(Ordering::Relaxed)
    }

    fn increment(&self) {
        self.n_inbound.fetch_add(1, Ordering::Relaxed);
    }

    fn decrement(&self) {
        if self.n_inbound.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.is_zero.notify_waiters();
        }
    }

    fn clear(&self) {
        self.n_inbound.store(0, Ordering::Relaxed);
        self.is_zero.notify_waiters();
    }

    /// Waits until no request is in progress. The caller limits the time.
    async fn wait_for_zero(&self) {
        loop {
            let is_zero = self.is_zero.notified();
            if self.get() == 0 {
                return;
            }
            is_zero.await;
        }
    }
}

/// Cancels all requests of the peer and answers them with an error.
async fn reject_inbound(shared: &Weak<ConnectionShared>, linger: Duration) {
    let Some(strong) = shared.upgrade() else { return };
    let inbound = std::mem::take(&mut strong.table().inbound);
    let outbound = strong.outbound.clone();
    drop(strong);
    // All at once, since the peer may read the responses slowly or not at all.
    inbound.values().for_each(InboundEntry::abort);
    for id in inbound.into_keys() {
        let error = RpcError::new(
            code::SERVER_ERROR,
            format!(
                "The request was cancelled: it did not finish within {linger:?} after the end of the input"
            ),
        );
        let rejection =
            OutgoingMessage::new(Message::response(Some(id.clone()), Err(error))).related_to(Some(id));
        if outbound.send(rejection).await.is_err() {
            return;
        }
    }
}

impl ConnectionShared {
    fn new(
        outbound: Outbound,
        handler: Option<HandlerRef>,
        trace: Option<MessageTrace>,
        limits: ConnectionLimits,
    ) -> Arc<Self> {
        Arc::new(Self {
            outbound,
            handler,
            trace,
            limits,
            next_id: AtomicI64::new(1),
            table: Mutex::default(),
            stray_responses: AtomicU64::new(0),
            stray_notifications: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            n_inbound: Arc::default(),
            closed: watch::Sender::new(None),
            has_refused: AtomicBool::new(false),
        })
    }

    // A panic while the lock is held cannot leave the table inconsistent.
    fn table(&self) -> MutexGuard<'_, RequestTable> {
        self.table.lock()
    }

    fn close_reason(&self) -> TransportError {
        self.table().closed.clone().unwrap_or(TransportError::Closed)
    }

    fn register_pending(
        &self,
        id: i64,
        progress_token: ProgressToken,
        cancel: CancelMode,
    ) -> Result<Arc<ResponseSlot>, RequestError> {
        let mut table = self.table();
        if let Some(reason) = &table.closed {
            return Err(reason.clone().into());
        }
        if table.pending.len() >= self.limits.max_pending {
            return Err(RequestError::Overloaded);
        }
        let slot = Arc::new(ResponseSlot::default());
        table.pending.insert(id, PendingEntry { slot: Arc::clone(&slot), progress_token, cancel });
        Ok(slot)
    }

    /// Removes a pending request, because its handle was dropped, and cancels it on the wire.
    pub(crate) fn cancel_pending(&self, id: i64) {
        let cancelled = self.table().pending.remove(&id);
        if let Some(CancelMode::Notify(headers)) = cancelled.map(|pending| pending.cancel) {
            self.outbound.cancel(CancelRequest { id: Id::Number(id), headers });
        }
    }

    /// Handles a message that arrived over HTTP; `related_request` is the request that owns its stream.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        message: Message,
        related_request: Option<Id>,
        headers: HeaderMap,
    ) {
        let Some(HandlerRef(handler)) = &self.handler else { return };
        if let Some(trace) = &self.trace {
            trace.message_received(&message);
        }
        match message {
            Message::Response(response) => self.handle_response(response),
            Message::Notification(notification) => {
                self.handle_notification(notification, related_request, &**handler);
            }
            Message::Request(request) => {
                let rejection = self.serve(request, (related_request, headers), handler);
                if let Some(rejection) = rejection {
                    let _ = self.outbound.send(rejection).await;
                }
            }
        }
    }

    /// Ends a request that was driven over HTTP.
    pub(crate) fn finish_request(&self, id: &Id, response: Result<Response, TransportError>) {
        match response {
            Ok(response) => {
                if let Some(trace) = &self.trace {
                    trace.message_received(&Message::Response(response.clone()));
                }
                self.complete(id, response.result.map_err(RequestError::Rpc));
            }
            Err(error) => self.complete(id, Err(error.into())),
        }
    }

    fn handle_response(&self, response: Response) {
        match response.id {
            Some(id) => self.complete(&id, response.result.map_err(RequestError::Rpc)),
            None => increment(&self.stray_responses),
        }
    }

    fn complete(&self, id: &Id, result: Result<RawJson, RequestError>) {
        let pending = match id {
            Id::Number(id) => self.table().pending.remove(id),
            Id::Text(_) => None,
        };
        match pending {
            Some(pending) => pending.slot.finish(result),
            None => increment(&self.stray_responses),
        }
    }

    /// Fails the pending request if there is only one, because of a response that names none.
    fn fail_only_request(&self, error: TransportError) {
        increment(&self.malformed);
        let mut table = self.table();
        if let &[id] = table.pending.keys().take(2).collect::<Vec<_>>().as_slice() {
            let id = *id;
            let pending = table.pending.remove(&id);
            drop(table);
            if let Some(pending) = pending {
                pending.slot.finish(Err(error.into()));
            }
        }
    }

    fn handle_notification(
        &self,
        notification: Notification,
        related_request: Option<Id>,
        handler: &dyn InboundHandler,
    ) {
        if &*notification.method == "notifications/progress" {
            return self.route_progress(&notification);
        }
        if let Some(entry) = cancelled_id(&notification).and_then(|id| self.end_inbound(&id)) {
            return entry.abort();
        }
        match related_request.as_ref().and_then(|id| self.pending_slot(id)) {
            Some(slot) => self.enqueue_notification(&slot, notification),
            None => handler.notification(notification, related_request),
        }
    }

    fn enqueue_notification(&self, slot: &ResponseSlot, notification: Notification) {
        if !slot.push_notification(notification, self.limits.max_notifications) {
            increment(&self.stray_notifications);
        }
    }

    fn pending_slot(&self, id: &Id) -> Option<Arc<ResponseSlot>> {
        let Id::Number(id) = id else { return None };
        self.table().pending.get(id).map(|pending| Arc::clone(&pending.slot))
    }

    /// Delivers progress to the request with this token, under the caller's original token.
    fn route_progress(&self, notification: &Notification) {
        let params = notification.params.clone().unwrap_or_else(RawJson::empty_object);
        let id = params.get("progressToken").and_then(|token| token.read::<i64>().ok());
        let found = id.and_then(|id| {
            let table = self.table();
            let pending = table.pending.get(&id)?;
            Some((Arc::clone(&pending.slot), pending.progress_token.clone()))
        });
        let (slot, params) = match found {
            Some((slot, ProgressToken::Given(token))) => (slot, params.with("progressToken", &token)),
            Some((slot, ProgressToken::RequestId)) => (slot, params),
            Some((_, ProgressToken::None)) | None => return increment(&self.stray_notifications),
        };
        let notification = Notification::new(Arc::clone(&notification.method), Some(params));
        self.enqueue_notification(&slot, notification);
    }

    /// Removes a request of the peer that has ended.
    fn end_inbound(&self, id: &Id) -> Option<InboundEntry> {
        let ended = self.table().inbound.remove(id)?;
        self.n_inbound.decrement();
        Some(ended)
    }

    fn begin(self: &Arc<Self>, request: Request, headers: HeaderMap) -> Result<InboundCall, RpcError> {
        let Some(HandlerRef(handler)) = &self.handler else { return Err(RpcError::handler_panicked()) };
        let id = request.id.clone();
        let is_crowded = self.admit(&id)?.is_crowded;
        let connection = WeakConnection { shared: Arc::downgrade(self) };
        let inbound = InboundRequest { request, related_request: None, headers, connection };
        let work = catch_unwind(AssertUnwindSafe(|| handler.request(inbound)));
        let work = work.map_err(|_panic| RpcError::handler_panicked())?;
        let (abort, registration) = future::AbortHandle::new_pair();
        self.table().inbound.insert(id.clone(), InboundEntry::Call(abort));
        self.n_inbound.increment();
        let work = future::Abortable::new(work, registration);
        Ok(InboundCall { work, id, shared: Arc::downgrade(self), is_crowded })
    }

    /// Starts a request of the peer, or returns the response that rejects it.
    fn serve(
        self: &Arc<Self>,
        request: Request,
        (related_request, headers): (Option<Id>, HeaderMap),
        handler: &Arc<dyn InboundHandler>,
    ) -> Option<OutgoingMessage> {
        let id = request.id.clone();
        let answer = |id: Id, result| {
            OutgoingMessage::new(Message::response(Some(id.clone()), result)).related_to(Some(id))
        };
        let is_crowded = match self.admit(&id) {
            Ok(admitted) => admitted.is_crowded,
            Err(rejection) => return Some(answer(id, Err(rejection))),
        };
        let connection = Connection(Arc::clone(self)).downgrade();
        let inbound = InboundRequest { request, related_request, headers, connection };
        // A panic in the handler costs only this request.
        let work = match catch_unwind(AssertUnwindSafe(|| handler.request(inbound))) {
            Ok(work) => work,
            Err(_panic) => return Some(answer(id, Err(RpcError::handler_panicked()))),
        };
        let (shared, outbound) = (Arc::downgrade(self), self.outbound.clone());
        let mut table = self.table();
        let Entry::Vacant(free) = table.inbound.entry(id.clone()) else { return None };
        // The task ends with the work, or is aborted when the peer cancels or the connection closes.
        let task = tokio::spawn(async move {
            if is_crowded {
                task::yield_now().await;
            }
            let result = AssertUnwindSafe(work)
                .catch_unwind()
                .await
                .unwrap_or_else(|_| Err(RpcError::handler_panicked()));
            // From here on it cannot be cancelled, and its id is free. It still counts as in progress, so
            // that unread responses are bounded, too.
            let is_wanted =
                shared.upgrade().is_some_and(|shared| shared.table().inbound.remove(&id).is_some());
            if is_wanted {
                let _ = outbound.send(answer(id, result)).await;
                if let Some(shared) = shared.upgrade() {
                    shared.n_inbound.decrement();
                }
            }
        });
        free.insert(InboundEntry::Task(task.abort_handle()));
        self.n_inbound.increment();
        None
    }

    /// Admits a request of the peer, or returns the error that rejects it. Nothing was done for it so far.
    fn admit(&self, id: &Id) -> Result<AdmittedInbound, RpcError> {
        let table = self.table();
        if table.closed.is_some() {
            return Err(RpcError::new(
                crate::code::INVALID_REQUEST,
                "Invalid request: the session has ended",
            ));
        }
        if table.inbound.contains_key(id) {
            return Err(RpcError::new(
                crate::code::INVALID_REQUEST,
                "Invalid request: a request with this id is in progress",
            ));
        }
        drop(table);
        let n_inbound = self.n_inbound.get();
        if n_inbound >= self.limits.max_inbound {
            if !self.has_refused.swap(true, Ordering::Relaxed) {
                tracing::warn!(n_inbound, "Refusing requests of a client: too many are in flight.");
            }
            return Err(RpcError::new(code::SERVER_ERROR, "Too many requests in flight"));
        }
        Ok(AdmittedInbound { is_crowded: n_inbound >= CROWD })
    }

    /// Closes the connection: all pending requests fail, all requests of the peer are aborted.
    fn close(&self, reason: TransportError) {
        let (pending, inbound) = {
            let mut table = self.table();
            table.closed = Some(reason.clone());
            (std::mem::take(&mut table.pending), std::mem::take(&mut table.inbound))
        };
        for pending in pending.into_values() {
            pending.slot.finish(Err(reason.clone().into()));
        }
        for task in inbound.into_values() {
            task.abort();
        }
        self.closed.send_replace(Some(reason));
    }
}

impl Drop for ConnectionShared {
    /// Aborts work for a peer that can no longer receive the response.
    fn drop(&mut self) {
        let table = self.table.get_mut();
        table.inbound.values().for_each(InboundEntry::abort);
        self.n_inbound.clear();
    }
}

/// Returns the id of the request that a `notifications/cancelled` cancels.
pub(crate) fn cancelled_id(notification: &Notification) -> Option<Id> {
    if &*notification.method != CANCELLED_METHOD {
        return None;
    }
    notification.params.as_ref()?.get("requestId")?.read().ok()
}

fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Returns the `notifications/cancelled` message, for transports that cancel with a message.
pub(crate) fn cancel_notification(cancel: &CancelRequest) -> Message {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct CancelledParams<'c> {
        request_id: &'c Id,
        reason: &'static str,
    }
    let params = CancelledParams { request_id: &cancel.id, reason: "the caller cancelled the request" };
    Message::notification(CANCELLED_METHOD, Some(RawJson::of(&params)))
}

#[cfg(test)]
mod tests;
