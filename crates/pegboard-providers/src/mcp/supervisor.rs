//! The task that starts, monitors, restarts and stops a server.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use pegboard_json::RawJson;
use pegboard_wire::RequestError;
use pegboard_wire::client::{ClientOptions, Era, McpClient};
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio::time::{self, Instant};

use pegboard_core::client::ClientSession;
use pegboard_core::provider::with_stderr;
use pegboard_core::server_log::LogStream;
use pegboard_core::text::{clipped, clipped_start};

use super::MAX_REASON_BYTES;
use super::backoff::RestartBackoff;
use super::connect::{
    Backend, Connector, ConnectorError, EstablishedConnection, HandshakeOptions, login_hint,
};
use super::eras::EraNegotiation;
use super::handle::{
    CloseReason, LiveConnection, Outage, ServerFailure, ServerHandle, ServerPhase, StartCause,
};
use super::in_flight::InFlightCalls;
use super::input_tasks::with_input_tasks;
use super::list::FetchedList;
use super::listing::LiveListing;
use super::probe::is_responsive;
use super::runner_hint::{known_fix, stopped_runner_fix};
use pegboard_core::settings::mcp::{EraChoice, ResolvedMcpServer, RestartPolicy};

/// Time limit for shutting down the backend of a connection.
const BACKEND_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the exit of the backend after its connection has closed, to report the better reason.
const EXIT_REASON_TIMEOUT: Duration = Duration::from_millis(500);
/// Time limit for responses that are still in transit after the backend has exited.
const FINAL_RESPONSE_TIMEOUT: Duration = Duration::from_millis(250);
/// Time limit for the answers of a client to what its server asks at the start.
const START_REQUESTS_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for a server to use these answers, before the first call.
const START_ANSWERS_GRACE: Duration = Duration::from_millis(50);
/// Minimum delay before another login attempt.
const MIN_LOGIN_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Supervisor of one server.
pub(super) struct ServerSupervisor {
    handle: Arc<ServerHandle>,
    connector: Arc<dyn Connector>,
    listing: LiveListing,
    backoff: RestartBackoff,
    /// Era of the last connection.
    era: Option<Era>,
    n_started: u64,
    /// Number of times the server was lost after a successful start.
    n_lost: u64,
    current: Option<RunningServer>,
}

/// The server while it runs.
struct RunningServer {
    live: LiveConnection,
    backend: Option<Box<dyn Backend>>,
    close_requests: mpsc::Receiver<CloseReason>,
    since: Instant,
}

/// The reason a start failed.
enum StartFailure {
    NeedsLogin { fix: String },
    Failed(ServerFailure),
}

impl ServerSupervisor {
    pub(super) fn new(
        handle: Arc<ServerHandle>,
        connector: Arc<dyn Connector>,
        listing: LiveListing,
    ) -> Self {
        let backoff = RestartBackoff::default();
        Self { handle, connector, listing, backoff, era: None, n_started: 0, n_lost: 0, current: None }
    }

    /// Supervises the server until it is stopped for good.
    pub(super) async fn run(mut self) {
        let handle = Arc::clone(&self.handle);
        let _ended = handle.ended.clone().drop_guard();
        // A connector that panics must not leave callers waiting.
        let supervising = AssertUnwindSafe(self.supervise()).catch_unwind();
        if let Some(Err(_panic)) = handle.stop.run_until_cancelled(supervising).await {
            tracing::error!(server = %handle.settings.name, "The supervisor of an MCP server panicked.");
        }
        if handle.is_starting()
            && let Some(program) = handle.settings.package_runner()
        {
            let fix = stopped_runner_fix(program);
            tracing::error!("MCP server '{}' was still starting. {fix}", handle.settings.name);
        }
        handle.set_phase(ServerPhase::Stopped);
        self.close("it was shut down").await;
    }

    async fn supervise(&mut self) {
        loop {
            self.handle.wait_for_demand().await;
            let mut cause = Some(StartCause::Demand);
            self.handle.set_phase(ServerPhase::Starting);
            let mut attempt = 1;
            while let Some(why) = cause {
                cause = match self.start().await {
                    Ok(()) => {
                        attempt = 1;
                        let close_reason = self.monitor().await;
                        self.handle_close(close_reason).await
                    }
                    Err(StartFailure::NeedsLogin { fix }) => Some(self.wait_for_login(fix).await),
                    Err(StartFailure::Failed(failure)) => {
                        attempt += 1;
                        self.wait_to_retry(why, attempt, failure).await;
                        Some(why)
                    }
                };
            }
        }
    }

    /// Starts the server.
    async fn start(&mut self) -> Result<(), StartFailure> {
        let started_at = Instant::now();
        let in_flight = InFlightCalls::new(&self.handle);
        let (EstablishedConnection { client, backend }, tools) = match self.connect_and_list(&in_flight).await
        {
            Ok(started) => started,
            Err(error) => {
                // The server may have been replaced by one of another era.
                self.era = None;
                self.handle.eras.forget();
                return Err(error);
            }
        };
        if self.handle.client.is_some() || self.handle.roots.is_some() {
            settle_start_requests(&in_flight).await;
        }
        self.backoff.record_start();
        self.record_era(&client);
        self.n_started += 1;
        // Only a started server can be lost, so the number of restarts is the number of losses.
        self.handle.record_start(started_at.elapsed(), self.n_lost);
        let (live, close_requests) = LiveConnection::new(self.n_started, client, in_flight);
        self.listing.publish_tools(&live, tools);
        self.current =
            Some(RunningServer { live: live.clone(), backend, close_requests, since: Instant::now() });
        self.log_event("started");
        self.handle.set_phase(ServerPhase::Ready(live));
        Ok(())
    }

    fn record_era(&mut self, client: &McpClient) {
        let eras = &self.handle.eras;
        let is_known = self.era.is_some() || eras.fixed().is_some();
        let negotiation = if is_known { EraNegotiation::Known } else { EraNegotiation::of(client) };
        eras.record(client.era(), negotiation);
        self.era = Some(client.era());
    }

    /// Connects to the server and lists its tools within the start timeout.
    async fn connect_and_list(
        &mut self,
        in_flight: &InFlightCalls,
    ) -> Result<(EstablishedConnection, FetchedList), StartFailure> {
        let ResolvedMcpServer { name, message_limits, .. } = &self.handle.settings;
        let start_timeout = self.start_timeout();
        let log = self.handle.updates.log().clone();
        let handshake = HandshakeOptions {
            receiver: Arc::new(in_flight.clone()),
            options: self.options(),
            log,
            message_limits: *message_limits,
        };
        let connecting = async {
            let connected = self.connector.connect(handshake).await?;
            let tools = self.listing.read_tools(&connected.client).await;
            tools.map(|tools| (connected, tools)).map_err(list_error)
        };
        match time::timeout(start_timeout, connecting).await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(ConnectorError::NeedsLogin { fix })) => Err(StartFailure::NeedsLogin { fix }),
            Ok(Err(ConnectorError::Unavailable { why, fix })) => {
                let fix = with_era_hint(fix, self.handle.settings.era);
                let why = clipped(&why, MAX_REASON_BYTES);
                self.log_event(&format!("did not start: {why}"));
                let why = format!("MCP server '{name}' did not start: {why}");
                let stderr = self.stderr_tail();
                let known =
                    stderr.as_deref().and_then(|stderr| known_fix(&self.handle.settings.target, stderr));
                Err(StartFailure::Failed(ServerFailure { why, fix: known.unwrap_or(fix), stderr }))
            }
            Err(_elapsed) => {
                let limit = match start_timeout.as_secs() {
                    0 => format!("{}ms", start_timeout.as_millis()),
                    seconds => format!("{seconds}s"),
                };
                self.log_event(&format!("did not start within {limit}"));
                let why = format!("MCP server '{name}' initialization timed out after {limit}");
                let fix = match self.handle.settings.package_runner() {
                    Some(program) => stopped_runner_fix(program),
                    None => "Increase `startTimeout`, or check its log.".to_owned(),
                };
                Err(StartFailure::Failed(ServerFailure { why, fix, stderr: self.stderr_tail() }))
            }
        }
    }

    /// Returns the timeout of the next start. A package runner may install the server at the first one.
    fn start_timeout(&self) -> Duration {
        match self.n_started {
            0 => self.handle.settings.effective_first_start_timeout(),
            _ => self.handle.settings.start_timeout,
        }
    }

    fn options(&self) -> ClientOptions {
        ClientOptions {
            capabilities: match &self.handle.client {
                Some(client) => with_input_tasks(&client.capabilities()),
                None => client_capabilities(self.handle.roots.is_some()),
            },
            era: self.handle.eras.fixed().or(self.era),
            preferred_era: self.handle.eras.preferred(),
            // The start timeout covers the whole start and has its own message.
            handshake_timeout: self.start_timeout().saturating_mul(2),
            trace_name: Some(self.handle.settings.name.as_str().into()),
            ..ClientOptions::new("pegboard", env!("CARGO_PKG_VERSION"))
        }
    }

    /// Writes a lifecycle event to the server's log.
    fn log_event(&self, event: &str) {
        self.handle.updates.log().write(LogStream::Supervisor, None, event);
    }

    /// Returns the end of what the server wrote to stderr.
    fn stderr_tail(&self) -> Option<String> {
        let tail = self.connector.stderr_tail()?;
        Some(clipped_start(&tail, MAX_REASON_BYTES).into_owned())
    }

    /// Monitors a running server until there is a reason to close the connection.
    async fn monitor(&mut self) -> CloseReason {
        let Some(RunningServer { live, backend, close_requests, .. }) = &mut self.current else {
            return CloseReason::Idle;
        };
        let settings = &self.handle.settings;
        let reason = tokio::select! {
            Some(close_reason) = close_requests.recv() => return close_reason,
            why = backend_exited(backend.as_mut()) => {
                if !live.in_flight().is_idle() {
                    // A response may still be in transit, unless another process holds the output open.
                    let _ = time::timeout(FINAL_RESPONSE_TIMEOUT, live.client().connection().closed()).await;
                }
                return CloseReason::Lost { why };
            }
            () = until_unresponsive(live, settings) => return CloseReason::Unresponsive,
            () = until_idle(live, self.handle.idle_limit()) => return CloseReason::Idle,
            () = forward_roots_changes(live, &self.handle) => return CloseReason::Idle,
            // Never completes while the server runs.
            () = self.listing.keep_current(live) => return CloseReason::Idle,
            reason = live.client().connection().closed() => reason,
        };
        // The backend may exit in a moment and give a better reason.
        let why = match backend {
            Some(backend) => time::timeout(EXIT_REASON_TIMEOUT, backend.exited()).await.ok(),
            None => None,
        };
        CloseReason::Lost { why: why.unwrap_or_else(|| reason.to_string()) }
    }

    /// Closes the connection; returns the cause of the next start, or `None` if the server rests.
    async fn handle_close(&mut self, close_reason: CloseReason) -> Option<StartCause> {
        let name = self.handle.settings.name.clone();
        let (is_unused, uptime) = self.current.as_ref().map_or((true, Duration::ZERO), |current| {
            (current.live.in_flight().is_idle(), current.since.elapsed())
        });
        self.backoff.record_uptime(uptime);
        // An expired session is renewed transparently and does not count.
        if matches!(close_reason, CloseReason::Lost { .. } | CloseReason::Unresponsive) {
            self.n_lost += 1;
        }
        let (why, is_lost) = match close_reason {
            CloseReason::Idle => {
                self.handle.set_resting(ServerPhase::Idle);
                self.close("it was idle").await;
                self.log_event("stopped after the idle timeout");
                return None;
            }
            CloseReason::SessionEraWanted => {
                self.era = None;
                return Some(self.close_to_start_again("started again for clients with sessions").await);
            }
            CloseReason::Restart => {
                return Some(self.close_to_start_again("restarted by the operator").await);
            }
            CloseReason::NeedsLogin { fix } => return Some(self.wait_for_login(fix).await),
            CloseReason::Lost { why } => (why, true),
            CloseReason::Unresponsive => ("it stopped responding".to_owned(), false),
            CloseReason::SessionExpired => ("its session expired".to_owned(), false),
        };
        let why = clipped(&why, MAX_REASON_BYTES).into_owned();
        self.log_event(&format!("disconnected: {why}"));
        let stderr = self.stderr_tail();
        let full_reason = with_stderr(&why, stderr.as_deref());
        tracing::warn!(server = %name, "MCP server disconnected: {full_reason}");
        let is_unused = is_unused && !self.handle.has_waiters();
        if is_lost && is_unused && self.handle.settings.restart == RestartPolicy::OnDemand {
            self.handle.set_resting(ServerPhase::Idle);
            self.close(&why).await;
            return None;
        }
        let delay = self.backoff.next_delay_after_loss();
        let failure = ServerFailure {
            why: format!("MCP server '{name}' disconnected: {why}"),
            fix: "Check its log.".to_owned(),
            stderr,
        };
        let outage = Outage {
            cause: StartCause::Loss,
            attempt: 1,
            n_failed: 0,
            failure,
            since: Instant::now(),
            next_attempt: Some(Instant::now() + delay),
        };
        self.wait_out_backoff(outage, &why).await;
        Some(StartCause::Loss)
    }

    async fn close_to_start_again(&mut self, event: &str) -> StartCause {
        self.handle.set_phase(ServerPhase::Starting);
        self.close(&format!("it was {event}")).await;
        self.log_event(event);
        StartCause::Demand
    }

    async fn wait_to_retry(&mut self, cause: StartCause, attempt: u32, failure: ServerFailure) {
        // Subscribers of the state see the first failure.
        tracing::debug!("{}", failure.why);
        let next = Instant::now() + self.backoff.next_delay_after_failure();
        let n_failed = self.backoff.n_failed();
        let outage =
            Outage { cause, attempt, n_failed, failure, since: Instant::now(), next_attempt: Some(next) };
        self.wait_out_backoff(outage, "it did not start").await;
    }

    /// Publishes the outage, closes what is left of the connection and waits for the next attempt.
    async fn wait_out_backoff(&mut self, mut outage: Outage, why: &str) {
        let next = outage.next_attempt.take();
        self.handle.set_phase(ServerPhase::Down(Outage { next_attempt: next, ..outage.clone() }));
        self.close(why).await;
        if let Some(next) = next {
            self.handle.wait_for_attempt(next).await;
        }
        self.handle.set_phase(ServerPhase::Down(outage));
    }

    /// Waits until the server is used again, possibly after a login.
    async fn wait_for_login(&mut self, fix: String) -> StartCause {
        let not_before = Instant::now() + self.backoff.next_delay_after_failure().max(MIN_LOGIN_RETRY_DELAY);
        self.handle.set_resting(ServerPhase::NeedsLogin { fix, not_before });
        self.close("it requires a login").await;
        self.handle.wait_for_demand().await;
        self.handle.set_phase(ServerPhase::Starting);
        StartCause::Demand
    }

    /// Closes the connection and shuts down its backend, in bounded time.
    async fn close(&mut self, why: &str) {
        let Some(RunningServer { live, backend, .. }) = self.current.take() else { return };
        live.close(why);
        drop(live);
        if let Some(backend) = backend
            && time::timeout(BACKEND_SHUTDOWN_TIMEOUT, backend.shut_down()).await.is_err()
        {
            tracing::warn!(server = %self.handle.settings.name, "The backend of an MCP server did not shut down in time.");
        }
    }
}

/// Returns the hint for a server that does not start, with another one if its era is set.
fn with_era_hint(fix: String, choice: EraChoice) -> String {
    match choice {
        EraChoice::Auto => fix,
        EraChoice::Session => format!("{fix} If it has no sessions, remove `era: session`."),
        EraChoice::Stateless => format!("{fix} If it lacks the stateless era, remove `era: stateless`."),
    }
}

/// Converts a failure to list the tools into a connector error.
fn list_error(failure: RequestError) -> ConnectorError {
    match failure {
        RequestError::Transport(error) if login_hint(&error).is_some() => error.into(),
        RequestError::Rpc(_) | RequestError::Transport(_) | RequestError::Overloaded => {
            ConnectorError::Unavailable {
                why: format!("tools/list failed: {failure}"),
                fix: "Check the server's log.".to_owned(),
            }
        }
    }
}

/// Waits, in bounded time, until a server with roots knows what it asked for at the start: its first call may depend on them.
async fn settle_start_requests(in_flight: &InFlightCalls) {
    if let Ok(true) = time::timeout(START_REQUESTS_TIMEOUT, in_flight.start_requests_answered()).await {
        time::sleep(START_ANSWERS_GRACE).await;
    }
}

/// Tells a server with sessions that the roots of its clients have changed. Never completes.
async fn forward_roots_changes(live: &LiveConnection, handle: &ServerHandle) {
    // A lost connection is noticed elsewhere.
    let notify = async || live.client().notify("notifications/roots/list_changed", None).await.ok();
    if live.client().era() != Era::Session {
        // A server without sessions asks during calls only.
    } else if let Some(client) = handle.client.as_ref().filter(|client| announces_roots_changes(&***client)) {
        let mut changes = client.roots_changes();
        while changes.changed().await.is_ok() {
            notify().await;
        }
    } else if let Some(union) = &handle.roots {
        let mut changes = union.watch_changes();
        loop {
            changes.next().await;
            notify().await;
        }
    }
    std::future::pending::<()>().await;
}

fn announces_roots_changes(client: &dyn ClientSession) -> bool {
    client.capabilities().at(&["roots", "listChanged"]).is_some_and(|flag| flag.as_str() == "true")
}

/// Waits until the backend exits; forever if there is none.
async fn backend_exited(backend: Option<&mut Box<dyn Backend>>) -> String {
    match backend {
        Some(backend) => backend.exited().await,
        None => std::future::pending().await,
    }
}

/// Waits until a probe fails. A probe is sent on request, and periodically while no call is in flight.
async fn until_unresponsive(live: &LiveConnection, settings: &ResolvedMcpServer) {
    let in_flight = live.in_flight();
    loop {
        let is_suspect = tokio::select! {
            () = in_flight.probe_requested() => true,
            () = sleep_or_pend(settings.health_interval) => false,
        };
        // A busy server may not get to answer. Its calls have their own timeouts, which request a probe.
        if !is_suspect && in_flight.is_busy() {
            continue;
        }
        if !is_responsive(live.client(), settings.health_probe).await && (is_suspect || !in_flight.is_busy())
        {
            return;
        }
    }
}

/// Sleeps for `time`; forever if there is none.
async fn sleep_or_pend(time: Option<Duration>) {
    match time {
        Some(time) => time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// Waits until the connection has been idle for the current limit; forever while there is none.
async fn until_idle(live: &LiveConnection, mut limit: watch::Receiver<Option<Duration>>) {
    loop {
        let current = *limit.borrow_and_update();
        let idle = async {
            match current {
                Some(limit) => live.in_flight().idle_for(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = idle => return,
            // The sender lives as long as the supervisor.
            Ok(()) = limit.changed() => {}
        }
    }
}

/// Client capabilities declared to servers that several clients use: those that can be bridged. A client that lacks
/// one refuses the request itself.
pub(super) fn client_capabilities(has_union_of_roots: bool) -> RawJson {
    let roots = if has_union_of_roots { json!({"listChanged": true}) } else { json!({}) };
    with_input_tasks(&RawJson::from(json!({
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}},
        "roots": roots,
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
    })))
}
