//! A JSON-RPC connection: request ids, ordering, cancellation, and requests of the peer.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::era::LogLevel;
use crate::http::received_headers::ReceivedHeaders;
#[cfg(feature = "http-server")]
use crate::http::server::streams::SessionStreams;
use crate::message::{Id, Message, Notification, Request, RpcError};
use crate::pending_request::RequestError;
use crate::request_map::RequestMap;
use crate::transport::{MessageTrace, RequestPath, TransportError, TransportHandle};
use pegboard_json::RawJson;

use dispatch::dispatch;
use inbound::{InboundCounter, InboundEntry};
use outbound::Outbound;
use pending::PendingRequests;

mod dispatch;
mod inbound;
mod outbound;
mod pending;

pub(crate) use dispatch::cancelled_id;
pub(crate) use inbound::InboundCall;
pub(crate) use outbound::{OutgoingRequest, cancel_notification};
pub(crate) use pending::ProgressToken;

/// Method of the notification that cancels a request.
const CANCELLED_METHOD: &str = "notifications/cancelled";

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
    pub headers: ReceivedHeaders,
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
    /// Cancelled once the connection is closed, for the reason in the table, or dropped. Created on first use, since
    /// nothing waits for most connections of sessions.
    closed: OnceLock<CancellationToken>,
    /// Cancelled once the peer has closed its input; created when that is first of interest.
    input_end: OnceLock<CancellationToken>,
    /// `true` once a request of the peer was refused because too many are in flight.
    has_refused: AtomicBool,
}

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
    pending: PendingRequests,
    inbound: RequestMap<InboundEntry>,
    /// Reasons that the peer gave for its latest cancellations, oldest first.
    cancel_reasons: Vec<(Id, RawJson)>,
    closed: Option<Box<TransportError>>,
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
            #[cfg(feature = "http-client")]
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
    #[cfg(feature = "http-server")]
    pub(crate) fn open_session(
        streams: Arc<SessionStreams>,
        handler: Arc<dyn InboundHandler>,
        limits: ConnectionLimits,
    ) -> Self {
        let outbound = Outbound::HttpSession { streams };
        Self(ConnectionShared::new(outbound, Some(HandlerRef(handler)), None, limits))
    }

    /// Handles a message of the peer. Requests run in tasks of their own.
    pub(crate) async fn receive(&self, message: Message, headers: ReceivedHeaders) {
        self.0.receive(message, None, headers).await;
    }

    /// Closes the connection: pending requests fail, and requests of the peer are aborted.
    pub(crate) fn close(&self) {
        self.0.close(TransportError::Closed);
    }

    /// Begins a request of the peer, which the caller drives.
    pub(crate) fn begin(&self, request: Request, headers: ReceivedHeaders) -> Result<InboundCall, RpcError> {
        self.0.begin(request, headers)
    }

    /// Takes the reason that the peer gave for the cancellation of a request, as JSON.
    pub(crate) fn take_cancel_reason(&self, id: &Id) -> Option<RawJson> {
        self.0.take_cancel_reason(id)
    }

    /// Records the minimum level of log messages that the peer accepts.
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        match &self.0.outbound {
            #[cfg(feature = "http-server")]
            Outbound::HttpSession { streams } => streams.set_log_level(level),
            #[cfg(feature = "http-client")]
            Outbound::HttpClient { .. } => {}
            Outbound::Queue { .. } => {}
        }
    }

    /// Waits until the connection is closed and returns the reason.
    pub async fn closed(&self) -> TransportError {
        self.0.closed().cancelled().await;
        self.0.close_reason()
    }

    /// Returns a handle that does not keep the connection alive.
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection { shared: Arc::downgrade(&self.0) }
    }

    /// Returns `true` if the connection is closed.
    pub fn is_closed(&self) -> bool {
        self.0.table().closed.is_some()
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
        let closed = shared.closed().clone();
        drop(shared);
        closed.cancelled().await;
    }

    /// Waits until the peer has closed its input. Returns at once if the connection is gone.
    pub(crate) async fn input_ended(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let input_end = shared.input_end().clone();
        drop(shared);
        input_end.cancelled().await;
    }
}

impl ConnectionShared {
    fn input_end(&self) -> &CancellationToken {
        self.input_end.get_or_init(CancellationToken::new)
    }

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
            closed: OnceLock::new(),
            input_end: OnceLock::new(),
            has_refused: AtomicBool::new(false),
        })
    }

    // A panic while the lock is held cannot leave the table inconsistent.
    fn table(&self) -> MutexGuard<'_, RequestTable> {
        self.table.lock()
    }

    fn closed(&self) -> &CancellationToken {
        let closed = self.closed.get_or_init(CancellationToken::new);
        // It may have closed before.
        if self.table().closed.is_some() {
            closed.cancel();
        }
        closed
    }

    fn cancel_closed(&self) {
        if let Some(closed) = self.closed.get() {
            closed.cancel();
        }
    }

    fn close_reason(&self) -> TransportError {
        self.table().closed.as_deref().cloned().unwrap_or(TransportError::Closed)
    }

    /// Closes the connection: all pending requests fail, all requests of the peer are aborted.
    fn close(&self, reason: TransportError) {
        let error = RequestError::from(reason.clone());
        let (pending, inbound) = {
            let mut table = self.table();
            table.closed = Some(Box::new(reason));
            (std::mem::take(&mut table.pending), table.inbound.take())
        };
        pending.fail_all(&error);
        for (_, task) in inbound {
            task.abort();
        }
        self.cancel_closed();
    }
}

impl Drop for ConnectionShared {
    /// Aborts work for a peer that can no longer receive the response.
    fn drop(&mut self) {
        let table = self.table.get_mut();
        table.inbound.values().for_each(InboundEntry::abort);
        self.n_inbound.clear();
        self.cancel_closed();
    }
}

fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
