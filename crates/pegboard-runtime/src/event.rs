//! The event bus of the runtime.
//!
//! An [`Observer`] receives every event synchronously and must not block. A [subscriber](EventBus::subscribe)
//! never slows a call down and loses the oldest events if it lags. Events are built only if there is a
//! listener.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pegboard_core::error::ErrorKind;
use pegboard_core::model::{ModelName, TokenUsage};
use pegboard_core::owner::Owner;
use pegboard_core::provider::{ServerState, ToolKind};
use pegboard_core::store::OutputHandle;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::optree::OpPath;

/// Number of events that a subscriber may lag behind before it loses the oldest.
const CAPACITY: usize = 4_096;
/// The same for state changes of servers.
const SERVER_CAPACITY: usize = 1_024;

/// An event of the runtime.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum RuntimeEvent {
    /// A call started.
    ToolStarted {
        /// The call.
        call: Arc<CallInfo>,
    },
    /// A call finished.
    ToolFinished {
        /// The call.
        call: Arc<CallInfo>,
        /// Outcome.
        end: CallEnd,
    },
    /// A tool reported progress.
    Progress {
        /// The call.
        call: Arc<CallInfo>,
        /// Amount done.
        done: f64,
        /// Total amount, if known.
        total: Option<f64>,
        /// Description of the current step.
        message: Option<String>,
    },
    /// An agent started a turn.
    Turn {
        /// The call that is the agent's session.
        call: Arc<CallInfo>,
        /// Turn number, from 1.
        turn: u32,
        /// Maximum number of turns.
        most: u32,
    },
    /// An agent reported its status.
    Status {
        /// The call that is the agent's session.
        call: Arc<CallInfo>,
        /// Status text.
        status: String,
    },
    /// An agent reported a problem that does not end its session.
    AgentWarned {
        /// The call that is the agent's session.
        call: Arc<CallInfo>,
        /// Warning text.
        what: String,
    },
    /// An agent sent a request to its model.
    ModelStarted {
        /// The call that is the agent's session.
        call: Arc<CallInfo>,
        /// Path of the operation.
        operation: String,
        /// Requested model.
        model: ModelName,
    },
    /// A model request of an agent finished.
    ModelFinished {
        /// The call that is the agent's session.
        call: Arc<CallInfo>,
        /// Path of the operation.
        operation: String,
        /// Outcome.
        end: ModelCallEnd,
    },
    /// A call is waiting for a queue slot.
    Queued {
        /// The call.
        call: Arc<CallInfo>,
        /// Name of the queue.
        queue: Arc<str>,
        /// Position in the queue, from 1.
        place: usize,
    },
    /// A call was given a queue slot.
    Dequeued {
        /// The call.
        call: Arc<CallInfo>,
        /// Name of the queue.
        queue: Arc<str>,
        /// Time spent waiting.
        waited: Duration,
    },
    /// The load of a queue changed.
    QueueDepth {
        /// Name of the queue.
        queue: Arc<str>,
        /// Number of slots; `None` if unlimited.
        capacity: Option<usize>,
        /// Number of slots in use.
        in_use: usize,
        /// Number of waiting calls.
        waiting: usize,
    },
    /// The cache handled a call.
    Cache {
        /// The call.
        call: Arc<CallInfo>,
        /// Cache result.
        result: CacheResult,
    },
    /// An answer was too large to return.
    OutputStored {
        /// The call.
        call: Arc<CallInfo>,
        /// Handle of the stored output; `None` if it was truncated instead.
        handle: Option<OutputHandle>,
        /// Reason.
        reason: StoreReason,
        /// Size in bytes.
        n_bytes: usize,
        /// Number of lines.
        n_lines: usize,
        /// Approximate number of tokens.
        n_tokens: usize,
    },
    /// A tool was resolved from an inexact name.
    Corrected {
        /// Requested name.
        asked: String,
        /// Flat name of the tool.
        tool: Arc<str>,
    },
    /// A server changed its state.
    Server {
        /// Toolbox of the server.
        toolbox: String,
        /// Name of the server.
        server: String,
        /// New state.
        state: ServerState,
    },
    /// The servers that start with the runtime have started or failed.
    Started {
        /// Start results, slowest first.
        servers: Vec<ServerStart>,
    },
    /// Entries of the call log were lost.
    LogLost {
        /// Number of entries.
        n_entries: u64,
        /// Reason.
        reason: LogLossReason,
    },
    /// Notifications to clients were dropped.
    NotificationsDropped {
        /// Number of notifications.
        n_notifications: u64,
        /// Reason.
        reason: NotificationDropReason,
    },
    /// The catalogue changed.
    Catalogue {
        /// Number of tools in the catalogue.
        n_tools: usize,
    },
}

/// Result of starting a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerStart {
    /// Toolbox of the server.
    pub toolbox: String,
    /// Name of the server.
    pub server: String,
    /// Time taken.
    pub took: Duration,
    /// Error, if the server cannot be used.
    pub error: Option<String>,
}

/// Reason why entries of the call log were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLossReason {
    /// More calls ended than the store could write.
    QueueFull,
    /// The store failed to write them.
    StoreFailed,
}

/// Reason why notifications to a client were dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotificationDropReason {
    /// The client has never read the stream.
    NoReader,
    /// The client did not read fast enough.
    SlowReader,
}

/// Description of a call in events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CallInfo {
    /// Session in which the call was made.
    pub session: Arc<str>,
    /// Owner of the call, for listeners that show each owner only its own calls. Not serialized.
    #[serde(skip)]
    pub owner: Owner,
    /// Path of its operation.
    pub operation: OpPath,
    /// Name of the tool, as clients see it.
    pub tool: Arc<str>,
    /// Name of its server.
    pub server: Arc<str>,
    /// Tool kind.
    pub kind: ToolKind,
    /// Size of the arguments in bytes.
    pub n_bytes_in: usize,
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallEnd {
    /// Error kind, including failures reported by the tool; `None` on success.
    pub error: Option<ErrorKind>,
    /// Error message, without argument values.
    pub message: Option<String>,
    /// Total duration.
    pub duration: Duration,
    /// Size of the answer in bytes.
    pub n_bytes_out: usize,
    /// `true` if the answer came from the cache.
    pub is_cached: bool,
}

/// Outcome of a model request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelCallEnd {
    /// The model that replied, or the requested one.
    pub model: ModelName,
    /// Error kind, as one stable word.
    pub error: Option<&'static str>,
    /// Error message.
    pub message: Option<String>,
    /// Duration of the request.
    pub duration: Duration,
    /// Token usage.
    pub usage: TokenUsage,
    /// Cost in US dollars, if known.
    pub cost_usd: Option<f64>,
}

/// Result of a cache lookup or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheResult {
    /// The answer was cached.
    Hit {
        /// Age of the answer.
        age: Duration,
    },
    /// The answer was not cached.
    Miss,
    /// The call joined an identical call in flight.
    Joined,
    /// The answer was written to the cache.
    Stored,
}

/// Reason why an answer was not returned in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreReason {
    /// It exceeds the size limit.
    SizeCap,
    /// The session's token budget is exhausted.
    TokenBudget,
    /// A concurrent call took the remaining tokens first.
    ReserveFailed,
}

impl StoreReason {
    /// Returns the stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SizeCap => "size_cap",
            Self::TokenBudget => "token_budget",
            Self::ReserveFailed => "reserve_failed",
        }
    }
}

/// Receives every event synchronously, on the path of the call. It must not block.
pub trait Observer: Send + Sync + 'static {
    /// Handles an event.
    fn observe(&self, event: &RuntimeEvent);

    /// Ends the tasks of the observer. Called at the end of [`Runtime::shut_down`](crate::Runtime::shut_down).
    fn shut_down(&self) {}
}

/// The event bus. Clones share the bus.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_runtime::event::{RuntimeEvent, EventBus};
///
/// let events = EventBus::new([]);
/// let mut stream = events.subscribe();
/// events.emit(|| RuntimeEvent::Catalogue { n_tools: 3 });
/// assert!(matches!(stream.recv().await, Ok(RuntimeEvent::Catalogue { n_tools: 3 })));
/// # });
/// ```
#[derive(Clone)]
pub struct EventBus(Arc<Listeners>);

struct Listeners {
    observers: Vec<Arc<dyn Observer>>,
    /// Created by the first subscriber: an empty channel takes as much memory as a full one.
    stream: OnceLock<broadcast::Sender<RuntimeEvent>>,
    /// State changes of servers, for subscribers that must not be woken by every call.
    servers: OnceLock<broadcast::Sender<RuntimeEvent>>,
}

impl EventBus {
    /// Creates a bus with these observers.
    pub fn new(observers: impl IntoIterator<Item = Arc<dyn Observer>>) -> Self {
        let observers = observers.into_iter().collect();
        Self(Arc::new(Listeners { observers, stream: OnceLock::new(), servers: OnceLock::new() }))
    }

    /// Subscribes to future events. A subscriber that lags loses the oldest events and is told how many.
    pub fn subscribe(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.0.stream.get_or_init(|| broadcast::Sender::new(CAPACITY)).subscribe()
    }

    /// Subscribes to future [`RuntimeEvent::Server`] events only.
    pub fn subscribe_to_servers(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.0.servers.get_or_init(|| broadcast::Sender::new(SERVER_CAPACITY)).subscribe()
    }

    /// Delivers a state change of a server.
    pub(crate) fn emit_server(&self, toolbox: String, server: String, state: ServerState) {
        let event = RuntimeEvent::Server { toolbox, server, state };
        send(&self.0.servers, || event.clone());
        self.emit(|| event);
    }

    /// Returns `true` if there is an observer or a subscriber.
    pub fn has_listeners(&self) -> bool {
        !self.0.observers.is_empty() || self.0.stream.get().is_some_and(|stream| stream.receiver_count() > 0)
    }

    /// Shuts down all observers.
    pub(crate) fn shut_down(&self) {
        for observer in &self.0.observers {
            observer.shut_down();
        }
    }

    /// Delivers an event to all observers and subscribers.
    pub fn emit(&self, event: impl FnOnce() -> RuntimeEvent) {
        if !self.has_listeners() {
            return;
        }
        let event = event();
        for observer in &self.0.observers {
            observer.observe(&event);
        }
        send(&self.0.stream, || event);
    }
}

/// Sends an event if there has ever been a subscriber.
fn send(stream: &OnceLock<broadcast::Sender<RuntimeEvent>>, event: impl FnOnce() -> RuntimeEvent) {
    if let Some(stream) = stream.get() {
        // Sending fails only if there is no subscriber any more.
        let _ = stream.send(event());
    }
}

impl fmt::Debug for EventBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBus").field("n_observers", &self.0.observers.len()).finish_non_exhaustive()
    }
}
