//! How a server is, as everybody who uses it sees it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::FutureExt;
use pegboard_core::attachment::Attachments;
use pegboard_core::error::CallError;
use pegboard_core::provider::{Particulars, ServerState};
use pegboard_wire::client::Client;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::lock;
use super::patience::MAX_FAILED;
use super::traffic::Traffic;
use super::updates::Updates;
use super::wishes::Wishes;
use pegboard_core::settings::mcp::Settings;

/// What the keeper of a server, its calls and its owner share.
pub(super) struct Life {
    pub(super) settings: Settings,
    phase: watch::Sender<Phase>,
    state: watch::Sender<ServerState>,
    /// What is known of it, but for its process.
    particulars: Mutex<Particulars>,
    /// Somebody wants to use a server that is not running.
    wanted: Notify,
    /// How many wait for the server to be started.
    n_waiting: AtomicUsize,
    /// The server asks its callers things without saying whom it means.
    pub(super) asks: Arc<AtomicBool>,
    /// What callers want of the server for longer than one request.
    pub(super) wishes: Wishes,
    /// Who hears what the server says that belongs to no call.
    pub(super) updates: Updates,
    /// The server is to be ended for good.
    pub(super) stop: CancellationToken,
    /// The keeper has ended.
    pub(super) ended: CancellationToken,
}

/// How a server is, with what users of it need.
#[derive(Clone)]
pub(super) enum Phase {
    /// It does not run, and nobody wants it to.
    Idle,
    /// It is being started because somebody wants to use it.
    Starting,
    /// It answers.
    Ready(Live),
    /// It does not run, and is tried again and again.
    Down(Down),
    /// Somebody must log in first.
    NeedsLogin {
        /// What to do.
        fix: String,
        /// Until then nobody tries again.
        not_before: Instant,
    },
    /// It was ended.
    Stopped,
}

/// A server that does not run and is tried again.
#[derive(Clone)]
pub(super) struct Down {
    pub(super) cause: Cause,
    /// Which attempt is under way or next, from 1.
    pub(super) attempt: u32,
    /// How many starts in a row came to nothing.
    pub(super) n_failed: u32,
    pub(super) trouble: Trouble,
    /// When the trouble happened.
    pub(super) since: Instant,
    /// When it is tried next; `None` if that is now.
    pub(super) next: Option<Instant>,
}

/// Why a server is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Somebody wants to use it.
    Use,
    /// It ran, and went away.
    Loss,
}

/// What is wrong with a server.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) why: String,
    pub(super) fix: String,
}

/// Why a connection was given up.
#[derive(Debug)]
pub(super) enum End {
    /// It broke, or what is behind it went away.
    Lost {
        /// How.
        why: String,
    },
    /// The server does not answer any more.
    Silent,
    /// The server has forgotten the session.
    Expired,
    /// Somebody must log in first.
    NeedsLogin {
        /// What to do.
        fix: String,
    },
    /// Nobody used it for a while.
    Unused,
}

/// A server that answers: one connection, from its start to its end. Clones are the same.
#[derive(Clone)]
pub(super) struct Live(Arc<Connection>);

struct Connection {
    /// Which start of the server it is.
    number: u64,
    client: Client,
    traffic: Traffic,
    ends: mpsc::Sender<End>,
    over: CancellationToken,
    why: OnceLock<String>,
}

impl Live {
    /// A connection, and what hears why it should be given up.
    pub(super) fn new(number: u64, client: Client, traffic: Traffic) -> (Self, mpsc::Receiver<End>) {
        let (ends, heard) = mpsc::channel(1);
        let over = CancellationToken::new();
        (Self(Arc::new(Connection { number, client, traffic, ends, over, why: OnceLock::new() })), heard)
    }

    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Which start of the server it is.
    pub(super) fn number(&self) -> u64 {
        self.0.number
    }

    pub(super) fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    /// Asks the keeper to give the connection up. The first reason counts.
    pub(super) fn give_up(&self, end: End) {
        let _ = self.0.ends.try_send(end);
    }

    /// Ends every call on the connection.
    pub(super) fn close(&self, why: &str) {
        self.0.why.get_or_init(|| why.to_owned());
        self.0.over.cancel();
    }

    /// Waits until the connection was given up, and says why.
    pub(super) async fn over(&self) -> &str {
        self.0.over.cancelled().await;
        self.0.why.get().map_or("the connection was given up", String::as_str)
    }
}

impl Life {
    /// Whether the server is at work on a call.
    pub(super) fn is_busy(&self) -> bool {
        self.live().is_some_and(|live| live.traffic().is_busy())
    }

    /// Whether the server is at work on a call of anybody else than this session.
    pub(super) fn is_busy_for_others(&self, session: &Attachments) -> bool {
        self.live().is_some_and(|live| live.traffic().is_busy_for_others(session))
    }

    pub(super) fn new(settings: Settings) -> Self {
        Self {
            wishes: Wishes::default(),
            updates: Updates::new(&settings),
            particulars: Mutex::new(Particulars {
                transport: settings.target.transport(),
                n_restarts: Some(0),
                ..Particulars::default()
            }),
            settings,
            phase: watch::Sender::new(Phase::Idle),
            state: watch::Sender::new(ServerState::Idle),
            wanted: Notify::new(),
            n_waiting: AtomicUsize::new(0),
            asks: Arc::default(),
            stop: CancellationToken::new(),
            ended: CancellationToken::new(),
        }
    }

    pub(super) fn state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    /// What is known of it, but for its process.
    pub(super) fn particulars(&self) -> Particulars {
        *lock(&self.particulars)
    }

    /// Notes how long the last start took, and how many were made because the server was lost.
    pub(super) fn note_start(&self, took: Duration, n_restarts: u64) {
        let mut particulars = lock(&self.particulars);
        particulars.started_in = Some(took);
        particulars.n_restarts = Some(n_restarts);
    }

    /// The connection, if the server answers.
    pub(super) fn live(&self) -> Option<Live> {
        match &*self.phase.borrow() {
            Phase::Ready(live) => Some(live.clone()),
            Phase::Idle | Phase::Starting | Phase::Down(_) | Phase::NeedsLogin { .. } | Phase::Stopped => {
                None
            }
        }
    }

    /// Tells everybody how the server is from now on.
    pub(super) fn publish(&self, phase: Phase) {
        let state = phase.state();
        self.phase.send_replace(phase);
        self.state.send_if_modified(|old| {
            let is_news = *old != state;
            *old = state;
            is_news
        });
    }

    /// Tells everybody that the server rests until somebody wants to use it.
    pub(super) fn rest(&self, phase: Phase) {
        // Who came before has been served.
        let _ = self.wanted.notified().now_or_never();
        self.publish(phase);
    }

    /// Waits until somebody wants to use a server that rests.
    pub(super) async fn wish(&self) {
        self.wanted.notified().await;
    }

    /// Whether somebody who had the server started has not yet come to use it.
    pub(super) fn is_awaited(&self) -> bool {
        self.n_waiting.load(Ordering::Relaxed) > 0
    }

    /// The connection. A server that does not run is started, and whoever comes meanwhile waits for the same start.
    pub(super) async fn ready(&self) -> Result<Live, CallError> {
        let mut phases = self.phase.subscribe();
        let is_first = {
            let phase = phases.borrow_and_update();
            match &*phase {
                Phase::Ready(live) => return Ok(live.clone()),
                Phase::Starting => false,
                Phase::Idle => true,
                Phase::NeedsLogin { not_before, .. } if *not_before <= Instant::now() => true,
                Phase::NeedsLogin { .. } | Phase::Down(_) | Phase::Stopped => {
                    return Err(self.refusal(&phase));
                }
            }
        };
        let _waiting = Waiting::new(&self.n_waiting);
        if is_first {
            self.wanted.notify_one();
            // The sender lives as long as this does.
            let _ = phases.changed().await;
        }
        let settled = phases.wait_for(|phase| !matches!(phase, Phase::Starting)).await;
        match settled.as_deref() {
            Ok(Phase::Ready(live)) => Ok(live.clone()),
            // Who has waited for this very start is told how it went.
            Ok(Phase::Down(Down { trouble, .. })) => {
                Err(CallError::ServerUnavailable { reason: trouble.why.clone() })
            }
            Ok(phase) => Err(self.refusal(phase)),
            Err(_closed) => Err(self.refusal(&Phase::Stopped)),
        }
    }

    /// The connection after `old`, once the keeper has tried to make one.
    pub(super) async fn successor(&self, old: &Live) -> Result<Live, CallError> {
        let mut phases = self.phase.subscribe();
        let has_tried = |phase: &Phase| match phase {
            Phase::Ready(live) => live.0.number != old.0.number,
            Phase::Down(down) => down.n_failed > 0,
            Phase::Starting => false,
            Phase::Idle | Phase::NeedsLogin { .. } | Phase::Stopped => true,
        };
        // If it takes too long whoever asks is told how the server is.
        let _ = time::timeout(self.settings.start_timeout, phases.wait_for(has_tried)).await;
        if let Phase::Down(down) = &*self.phase.borrow() {
            let reason = format!("mcp_restart_failed:{}: {}", self.settings.name, down.trouble.why);
            return Err(CallError::ServerUnavailable { reason });
        }
        self.ready().await
    }

    /// Why a server in this phase cannot be used.
    fn refusal(&self, phase: &Phase) -> CallError {
        let name = &self.settings.name;
        match phase {
            Phase::Down(down) if down.is_circuit_open() => CallError::CircuitOpen {
                reason: format!(
                    "MCP server '{name}' keeps failing ({} starts in a row): {}. {}",
                    down.n_failed,
                    down.trouble.why,
                    match down.next {
                        Some(next) => format!("It is tried again in {}s", seconds_until(next)),
                        None => "It is being tried again now".to_owned(),
                    }
                ),
            },
            Phase::Down(Down { cause: Cause::Use, since, trouble, .. }) => CallError::ServerUnavailable {
                reason: format!(
                    "MCP server '{name}' is unavailable (initialization failed {}s ago, retrying in background): {}",
                    since.elapsed().as_secs(),
                    trouble.why
                ),
            },
            Phase::Down(Down { cause: Cause::Loss, .. }) => CallError::ServerUnavailable {
                reason: format!("mcp_restart_in_progress:{name}: restart still running"),
            },
            Phase::NeedsLogin { fix, .. } => {
                CallError::AuthRequired { reason: format!("MCP server '{name}' wants a login. {fix}") }
            }
            Phase::Stopped => {
                CallError::ServerUnavailable { reason: format!("MCP server '{name}' was shut down") }
            }
            Phase::Idle | Phase::Starting | Phase::Ready(_) => {
                CallError::ServerUnavailable { reason: format!("MCP server '{name}' is not ready") }
            }
        }
    }
}

/// Somebody who waits for a server to be started, for as long as this lives.
struct Waiting<'l>(&'l AtomicUsize);

impl<'l> Waiting<'l> {
    fn new(n_waiting: &'l AtomicUsize) -> Self {
        n_waiting.fetch_add(1, Ordering::Relaxed);
        Self(n_waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Down {
    /// Whether it has failed so often that it is known to.
    fn is_circuit_open(&self) -> bool {
        self.n_failed >= MAX_FAILED
    }
}

impl Phase {
    fn state(&self) -> ServerState {
        match self {
            Self::Idle => ServerState::Idle,
            Self::Starting => ServerState::Starting,
            Self::Ready(_) => ServerState::Ready,
            Self::Down(down) if down.cause == Cause::Loss && !down.is_circuit_open() => {
                ServerState::Restarting { attempt: down.attempt }
            }
            Self::Down(Down { trouble: Trouble { why, fix }, .. }) => {
                ServerState::Failed { why: why.clone(), fix: fix.clone() }
            }
            Self::NeedsLogin { fix, .. } => ServerState::NeedsLogin { fix: fix.clone() },
            Self::Stopped => ServerState::Stopped,
        }
    }
}

/// Whole seconds until then, and never none.
fn seconds_until(then: Instant) -> u64 {
    let left = then.saturating_duration_since(Instant::now());
    (left + Duration::from_millis(999)).as_secs().max(1)
}
