//! The state of a server that its supervisor, its calls and its owner share.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use parking_lot::Mutex;
use pegboard_core::client::ClientSession;
use pegboard_core::error::CallError;
use pegboard_core::extensions::Extensions;
use pegboard_core::owner::Principals;
use pegboard_core::provider::{ProcessInfo, ServerState, custom_features, with_stderr};
use pegboard_wire::client::{Era, McpClient};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::coop;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::backoff::CIRCUIT_OPEN_THRESHOLD;
use super::eras::ServerEras;
use super::in_flight::InFlightCalls;
use super::isolation::UserIsolation;
use super::listing::PublishedListing;
use super::roots::RootsUnion;
use super::subscriptions::ServerSubscriptions;
use super::updates::ServerUpdates;
use pegboard_core::settings::mcp::{ResolvedMcpServer, RootsChoice};

/// State shared by the supervisor of a server, its calls and its owner.
pub(super) struct ServerHandle {
    pub(super) settings: ResolvedMcpServer,
    /// Principals that share the server.
    principals: Principals,
    phase: watch::Sender<ServerPhase>,
    state: watch::Sender<ServerState>,
    /// Information about the server, except for its process.
    process_info: Mutex<ProcessInfo>,
    /// Signals that a caller wants to use a resting server.
    demand: Notify,
    /// Signals that the next attempt to start is made at once.
    retry: Notify,
    /// Number of callers that wait for the start.
    n_waiters: AtomicUsize,
    /// Eras of the server.
    pub(super) eras: ServerEras,
    /// The client that the instance belongs to, if it is the only one.
    pub(super) client: Option<Arc<dyn ClientSession>>,
    /// Roots of all clients that use the instance, if the settings say so.
    pub(super) roots: Option<Arc<RootsUnion>>,
    /// Isolation of the users of the server.
    pub(super) isolation: Arc<UserIsolation>,
    /// Time without calls after which the instance is stopped, until the next call.
    idle_limit: watch::Sender<Option<Duration>>,
    /// Subscriptions and log level, which outlive single requests.
    pub(super) subscriptions: ServerSubscriptions,
    /// The published listing of the server, for further instances.
    pub(super) published: PublishedListing,
    /// Publishes messages of the server that belong to no call.
    pub(super) updates: ServerUpdates,
    /// Stops the server for good.
    pub(super) stop: CancellationToken,
    /// Cancelled when the supervisor has ended.
    pub(super) ended: CancellationToken,
}

/// Phase of a server's life, with the data that its users need.
#[derive(Clone)]
pub(super) enum ServerPhase {
    /// Not running; the next use starts it.
    Idle,
    /// Being started on demand.
    Starting,
    /// Connected.
    Ready(LiveConnection),
    /// Not running; restarted with backoff.
    Down(Outage),
    /// Waiting for a login.
    NeedsLogin {
        /// Hint for the user.
        fix: String,
        /// Earliest time of the next attempt.
        not_before: Instant,
    },
    /// Stopped for good.
    Stopped,
}

/// An outage of a server, until a restart succeeds.
#[derive(Clone)]
pub(super) struct Outage {
    pub(super) cause: StartCause,
    /// Number of the current or next attempt, from 1.
    pub(super) attempt: u32,
    /// Number of consecutive failed starts.
    pub(super) n_failed: u32,
    pub(super) failure: ServerFailure,
    /// Time of the failure.
    pub(super) since: Instant,
    /// Time of the next attempt; `None` while it is being made.
    pub(super) next_attempt: Option<Instant>,
}

/// The cause of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StartCause {
    /// A caller wants to use the server.
    Demand,
    /// The server was lost.
    Loss,
}

/// A failure of a server, with a hint for the user.
#[derive(Clone, Debug)]
pub(super) struct ServerFailure {
    pub(super) why: String,
    pub(super) fix: String,
    /// End of what the server wrote to stderr.
    pub(super) stderr: Option<String>,
}

/// The reason to close a connection.
#[derive(Debug)]
pub(super) enum CloseReason {
    /// The connection broke, or its backend exited.
    Lost {
        /// Description of the loss.
        why: String,
    },
    /// The server does not respond any more.
    Unresponsive,
    /// The server does not know the session any more.
    SessionExpired,
    /// The server requires a login.
    NeedsLogin {
        /// Hint for the user.
        fix: String,
    },
    /// The connection was idle for too long.
    Idle,
    /// Only clients of the session era use the server, which is connected to in the stateless era.
    SessionEraWanted,
    /// The operator restarts the server.
    Restart,
}

/// One connection to a running server. Clones share it.
#[derive(Clone)]
pub(super) struct LiveConnection(Arc<LiveConnectionInner>);

struct LiveConnectionInner {
    /// Number of the start that made this connection.
    generation: u64,
    client: McpClient,
    in_flight: InFlightCalls,
    close_requests: mpsc::Sender<CloseReason>,
    closed: CancellationToken,
    close_reason: OnceLock<String>,
}

impl LiveConnection {
    /// Creates a connection, and the receiver of requests to close it.
    pub(super) fn new(
        generation: u64,
        client: McpClient,
        in_flight: InFlightCalls,
    ) -> (Self, mpsc::Receiver<CloseReason>) {
        let (close_requests, receiver) = mpsc::channel(1);
        let closed = CancellationToken::new();
        let [experimental, extensions] = client.server().capabilities.get_all(["experimental", "extensions"]);
        if !custom_features(experimental.as_ref(), extensions.as_ref()).is_empty() {
            in_flight.permit_custom_methods();
        }
        (
            Self(Arc::new(LiveConnectionInner {
                generation,
                client,
                in_flight,
                close_requests,
                closed,
                close_reason: OnceLock::new(),
            })),
            receiver,
        )
    }

    pub(super) fn client(&self) -> &McpClient {
        &self.0.client
    }

    /// Returns the number of the start that made this connection.
    pub(super) fn generation(&self) -> u64 {
        self.0.generation
    }

    pub(super) fn in_flight(&self) -> &InFlightCalls {
        &self.0.in_flight
    }

    /// Asks the supervisor to close the connection. The first reason counts.
    pub(super) fn request_close(&self, end: CloseReason) {
        let _ = self.0.close_requests.try_send(end);
    }

    /// Fails every call on the connection.
    pub(super) fn close(&self, why: &str) {
        self.0.close_reason.get_or_init(|| why.to_owned());
        self.0.closed.cancel();
    }

    /// Waits until the connection is closed, and returns the reason.
    pub(super) async fn closed(&self) -> &str {
        // Polled beside a call, which may have used up the budget of the task.
        coop::unconstrained(self.0.closed.cancelled()).await;
        self.0.close_reason.get().map_or("the connection was closed", String::as_str)
    }
}

impl ServerHandle {
    /// Returns `true` while a call is in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.connection().is_some_and(|live| live.in_flight().is_busy())
    }

    /// Returns `true` while a call of another session is in flight.
    pub(super) fn is_busy_for_others(&self, session: &Extensions) -> bool {
        self.connection().is_some_and(|live| live.in_flight().is_busy_for_others(session))
    }

    pub(super) fn new(settings: ResolvedMcpServer, principals: Principals) -> Self {
        Self {
            principals,
            subscriptions: ServerSubscriptions::default(),
            published: PublishedListing::default(),
            updates: ServerUpdates::new(&settings),
            process_info: Mutex::new(ProcessInfo {
                transport: settings.target.transport(),
                n_restarts: Some(0),
                ..ProcessInfo::default()
            }),
            eras: ServerEras::new(settings.era, Era::Stateless),
            client: None,
            roots: (settings.is_shared && settings.roots == RootsChoice::Union).then(Arc::default),
            isolation: Arc::default(),
            idle_limit: watch::Sender::new(settings.idle_stop),
            settings,
            phase: watch::Sender::new(ServerPhase::Idle),
            state: watch::Sender::new(ServerState::Idle),
            demand: Notify::new(),
            retry: Notify::new(),
            n_waiters: AtomicUsize::new(0),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
        }
    }

    /// Creates the state of an instance that is dedicated to one session of an era, for good if there is a client.
    /// Its updates go to the same subscribers.
    pub(super) fn dedicated_to_session(&self, era: Era, client: Option<Arc<dyn ClientSession>>) -> Self {
        Self { updates: self.updates.for_one_session(client.clone()), client, ..self.shared_in_era(era) }
    }

    /// Creates the state of an instance that the clients of an era share. Its updates go to the same subscribers.
    pub(super) fn shared_in_era(&self, era: Era) -> Self {
        Self {
            updates: self.updates.clone(),
            published: self.published.clone(),
            subscriptions: self.subscriptions.for_instance(),
            eras: self.eras.for_instance(era),
            isolation: Arc::clone(&self.isolation),
            ..Self::new(self.settings.clone(), self.principals.clone())
        }
    }

    /// Sets the time without calls after which the instance is stopped.
    pub(super) fn set_idle_limit(&self, limit: Option<Duration>) {
        self.idle_limit.send_replace(limit);
    }

    /// Returns a receiver of the time without calls after which the instance is stopped.
    pub(super) fn idle_limit(&self) -> watch::Receiver<Option<Duration>> {
        self.idle_limit.subscribe()
    }

    pub(super) fn state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    /// Returns information about the server, except for its process.
    pub(super) fn process_info(&self) -> ProcessInfo {
        *self.process_info.lock()
    }

    /// Records the duration of the last start and the number of restarts.
    pub(super) fn record_start(&self, took: Duration, n_restarts: u64) {
        let mut process_info = self.process_info.lock();
        process_info.started_in = Some(took);
        process_info.n_restarts = Some(n_restarts);
    }

    /// Returns `true` while the server is being started on demand.
    pub(super) fn is_starting(&self) -> bool {
        matches!(*self.phase.borrow(), ServerPhase::Starting)
    }

    /// Returns the connection if the server is ready.
    pub(super) fn connection(&self) -> Option<LiveConnection> {
        match &*self.phase.borrow() {
            ServerPhase::Ready(live) => Some(live.clone()),
            ServerPhase::Idle
            | ServerPhase::Starting
            | ServerPhase::Down(_)
            | ServerPhase::NeedsLogin { .. }
            | ServerPhase::Stopped => None,
        }
    }

    /// Publishes a new phase.
    pub(super) fn set_phase(&self, phase: ServerPhase) {
        let state = phase.state();
        self.phase.send_replace(phase);
        self.state.send_if_modified(|old| {
            let is_changed = *old != state;
            *old = state;
            is_changed
        });
    }

    /// Publishes a phase in which the server rests until it is used.
    pub(super) fn set_resting(&self, phase: ServerPhase) {
        // Earlier demand has been served.
        let _ = self.demand.notified().now_or_never();
        self.set_phase(phase);
    }

    /// Waits until a caller wants to use a resting server.
    pub(super) async fn wait_for_demand(&self) {
        self.demand.notified().await;
    }

    /// Returns `true` while callers wait for the start.
    pub(super) fn has_waiters(&self) -> bool {
        self.n_waiters.load(Ordering::Relaxed) > 0
    }

    /// Returns the connection. A resting server is started; concurrent callers wait for the same start.
    pub(super) async fn ready(&self) -> Result<LiveConnection, CallError> {
        let mut phases = self.phase.subscribe();
        let is_first = {
            let phase = phases.borrow_and_update();
            match &*phase {
                ServerPhase::Ready(live) => return Ok(live.clone()),
                ServerPhase::Starting => false,
                ServerPhase::Idle => true,
                ServerPhase::NeedsLogin { not_before, .. } if *not_before <= Instant::now() => true,
                ServerPhase::NeedsLogin { .. } | ServerPhase::Down(_) | ServerPhase::Stopped => {
                    return Err(self.unavailable_error(&phase));
                }
            }
        };
        let _waiter = StartWaiter::new(&self.n_waiters);
        if is_first {
            self.demand.notify_one();
            // The sender lives as long as `self`.
            let _ = phases.changed().await;
        }
        let settled = phases.wait_for(|phase| !matches!(phase, ServerPhase::Starting)).await;
        match settled.as_deref() {
            Ok(ServerPhase::Ready(live)) => Ok(live.clone()),
            // A caller that waited for this start gets its failure.
            Ok(ServerPhase::Down(Outage { failure, .. })) => {
                Err(CallError::ServerUnavailable { reason: self.reason_for_callers(failure).into_owned() })
            }
            Ok(phase) => Err(self.unavailable_error(phase)),
            Err(_closed) => Err(self.unavailable_error(&ServerPhase::Stopped)),
        }
    }

    /// Waits until the next attempt to start is due: at this time, or when the operator asks for it.
    pub(super) async fn wait_for_attempt(&self, due: Instant) {
        tokio::select! {
            () = time::sleep_until(due) => {}
            () = self.retry.notified() => {}
        }
    }

    /// Asks for a new connection, without waiting for it. A server that rests is not started.
    pub(super) fn request_restart(&self) {
        match &*self.phase.borrow() {
            ServerPhase::Ready(live) => live.request_close(CloseReason::Restart),
            ServerPhase::Down(Outage { next_attempt: Some(_), .. }) => self.retry.notify_one(),
            // There may be a login by now.
            ServerPhase::NeedsLogin { .. } => self.demand.notify_one(),
            ServerPhase::Down(_) | ServerPhase::Idle | ServerPhase::Starting | ServerPhase::Stopped => {}
        }
    }

    /// Connects again; completes when the server is ready or has failed. One that is starting is not interrupted.
    pub(super) async fn restart(&self) -> Result<(), CallError> {
        let before = self.phase.borrow().clone();
        self.request_restart();
        match before {
            ServerPhase::Ready(live) => self.next_connection(&live).await.map(drop),
            ServerPhase::Down(outage) => {
                let mut phases = self.phase.subscribe();
                let has_tried = |phase: &ServerPhase| !matches!(phase, ServerPhase::Down(now) if now.since == outage.since);
                let limit = self.settings.effective_first_start_timeout().max(self.settings.start_timeout);
                let _ = time::timeout(limit, phases.wait_for(has_tried)).await;
                self.ready().await.map(drop)
            }
            ServerPhase::NeedsLogin { not_before, .. } => {
                let mut phases = self.phase.subscribe();
                let has_begun = |phase: &ServerPhase| !matches!(phase, ServerPhase::NeedsLogin { not_before: known, .. } if *known == not_before);
                let limit = self.settings.effective_first_start_timeout().max(self.settings.start_timeout);
                let _ = time::timeout(limit, phases.wait_for(has_begun)).await;
                self.ready().await.map(drop)
            }
            ServerPhase::Idle | ServerPhase::Starting | ServerPhase::Stopped => self.ready().await.map(drop),
        }
    }

    /// Returns the connection that follows `old`, once the supervisor has tried to make one.
    pub(super) async fn next_connection(&self, old: &LiveConnection) -> Result<LiveConnection, CallError> {
        let mut phases = self.phase.subscribe();
        let has_tried = |phase: &ServerPhase| match phase {
            ServerPhase::Ready(live) => live.0.generation != old.0.generation,
            ServerPhase::Down(outage) => outage.n_failed > 0,
            ServerPhase::Starting => false,
            ServerPhase::Idle | ServerPhase::NeedsLogin { .. } | ServerPhase::Stopped => true,
        };
        // After a timeout the caller gets the current phase.
        let _ = time::timeout(self.settings.start_timeout, phases.wait_for(has_tried)).await;
        if let ServerPhase::Down(outage) = &*self.phase.borrow() {
            let why = self.reason_for_callers(&outage.failure);
            let reason = format!("mcp_restart_failed:{}: {why}", self.settings.name);
            return Err(CallError::ServerUnavailable { reason });
        }
        self.ready().await
    }

    /// Returns the reason of a failure for the caller of any principal: what the server wrote may be about another.
    fn reason_for_callers<'f>(&self, failure: &'f ServerFailure) -> Cow<'f, str> {
        let stderr = failure.stderr.as_deref().filter(|_| !self.principals.are_several());
        with_stderr(&failure.why, stderr)
    }

    /// Returns the error for a caller that cannot wait any longer for the start.
    pub(super) fn still_starting(&self) -> CallError {
        let name = &self.settings.name;
        CallError::ServerUnavailable {
            reason: format!("MCP server '{name}' is still starting. Call it again in a moment"),
        }
    }

    /// Returns the error for a caller that finds the server in this phase.
    pub(super) fn unavailable_error(&self, phase: &ServerPhase) -> CallError {
        let name = &self.settings.name;
        match phase {
            ServerPhase::Down(outage) if outage.is_circuit_open() => CallError::CircuitOpen {
                reason: format!(
                    "MCP server '{name}' keeps failing ({} starts in a row): {}. {}",
                    outage.n_failed,
                    self.reason_for_callers(&outage.failure),
                    match outage.next_attempt {
                        Some(next) => format!("Next attempt in {}s", seconds_until(next)),
                        None => "Retrying now".to_owned(),
                    }
                ),
            },
            ServerPhase::Down(Outage { cause: StartCause::Demand, since, failure, .. }) => {
                CallError::ServerUnavailable {
                    reason: format!(
                        "MCP server '{name}' is unavailable (initialization failed {}s ago, retrying in background): {}",
                        since.elapsed().as_secs(),
                        self.reason_for_callers(failure)
                    ),
                }
            }
            ServerPhase::Down(Outage { cause: StartCause::Loss, .. }) => CallError::ServerUnavailable {
                reason: format!("mcp_restart_in_progress:{name}: restart still running"),
            },
            ServerPhase::NeedsLogin { fix, .. } => {
                CallError::AuthRequired { reason: format!("MCP server '{name}' requires a login. {fix}") }
            }
            ServerPhase::Stopped => {
                CallError::ServerUnavailable { reason: format!("MCP server '{name}' was shut down") }
            }
            ServerPhase::Idle | ServerPhase::Starting | ServerPhase::Ready(_) => {
                CallError::ServerUnavailable { reason: format!("MCP server '{name}' is not ready") }
            }
        }
    }
}

/// Counts a caller that waits for the start, until dropped.
struct StartWaiter<'l>(&'l AtomicUsize);

impl<'l> StartWaiter<'l> {
    fn new(n_waiters: &'l AtomicUsize) -> Self {
        n_waiters.fetch_add(1, Ordering::Relaxed);
        Self(n_waiters)
    }
}

impl Drop for StartWaiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Outage {
    /// Returns `true` after so many failed starts that callers are refused at once.
    fn is_circuit_open(&self) -> bool {
        self.n_failed >= CIRCUIT_OPEN_THRESHOLD
    }
}

impl ServerPhase {
    fn state(&self) -> ServerState {
        match self {
            Self::Idle => ServerState::Idle,
            Self::Starting => ServerState::Starting,
            Self::Ready(_) => ServerState::Ready,
            Self::Down(outage) if outage.cause == StartCause::Loss && !outage.is_circuit_open() => {
                ServerState::Restarting { attempt: outage.attempt }
            }
            Self::Down(Outage { failure: ServerFailure { why, fix, stderr }, .. }) => {
                ServerState::Failed { why: why.clone(), fix: fix.clone(), stderr: stderr.clone() }
            }
            Self::NeedsLogin { fix, .. } => ServerState::NeedsLogin { fix: fix.clone() },
            Self::Stopped => ServerState::Stopped,
        }
    }
}

/// Returns the whole seconds until `then`, at least 1.
fn seconds_until(then: Instant) -> u64 {
    let left = then.saturating_duration_since(Instant::now());
    (left + Duration::from_millis(999)).as_secs().max(1)
}
