//! Everything that happens, as one stream.
//!
//! Whoever wants to know registers as an [`Observer`], which sees every event at once and must not wait, or
//! [subscribes](Events::subscribe), which never slows anything down and may miss old events if it is slow itself.
//! While nobody does either, no event is even made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pegboard_core::error::ErrorKind;
use pegboard_core::model::{ModelName, Usage};
use pegboard_core::provider::{ServerState, ToolKind};
use pegboard_core::store::OutputHandle;
use serde::Serialize;
use tokio::sync::broadcast;

/// How many events a subscriber may be behind before it misses the oldest.
const CAPACITY: usize = 4_096;

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Event {
    /// A call has begun.
    ToolStarted {
        /// Which call.
        call: Arc<Subject>,
    },
    /// A call has ended.
    ToolFinished {
        /// Which call.
        call: Arc<Subject>,
        /// How.
        end: End,
    },
    /// A tool says how far it is.
    Progress {
        /// Which call.
        call: Arc<Subject>,
        /// How much is done.
        done: f64,
        /// How much there is to do.
        total: Option<f64>,
        /// What it does now.
        message: Option<String>,
    },
    /// An agent begins another turn.
    Turn {
        /// The call that is its session.
        call: Arc<Subject>,
        /// The how manieth.
        turn: u32,
        /// How many there may be.
        most: u32,
    },
    /// An agent says what it is doing.
    Status {
        /// The call that is its session.
        call: Arc<Subject>,
        /// What.
        status: String,
    },
    /// Something went wrong in the session of an agent without ending it.
    AgentWarned {
        /// The call that is its session.
        call: Arc<Subject>,
        /// What.
        what: String,
    },
    /// An agent asks its model.
    ModelStarted {
        /// The call that is its session.
        call: Arc<Subject>,
        /// The label of the operation.
        operation: String,
        /// The model.
        model: ModelName,
    },
    /// A model has replied to an agent, or will not.
    ModelFinished {
        /// The call that is its session.
        call: Arc<Subject>,
        /// The label of the operation.
        operation: String,
        /// How.
        end: ModelEnd,
    },
    /// A call waits for a slot.
    Queued {
        /// Which call.
        call: Arc<Subject>,
        /// The queue.
        queue: Arc<str>,
        /// Its place in the queue, from 1.
        place: usize,
    },
    /// A call has its slot.
    Dequeued {
        /// Which call.
        call: Arc<Subject>,
        /// The queue.
        queue: Arc<str>,
        /// How long it waited.
        waited: Duration,
    },
    /// How busy a queue is now.
    QueueDepth {
        /// The queue.
        queue: Arc<str>,
        /// How many calls may run at once; `None` for as many as come.
        capacity: Option<usize>,
        /// How many run.
        in_use: usize,
        /// How many wait.
        waiting: usize,
    },
    /// What the cache did for a call.
    Cache {
        /// Which call.
        call: Arc<Subject>,
        /// What it did.
        result: CacheResult,
    },
    /// An answer was too large to hand over.
    OutputStored {
        /// Which call.
        call: Arc<Subject>,
        /// Where it is kept; `None` if it was cut instead.
        handle: Option<OutputHandle>,
        /// Why.
        reason: StoreReason,
        /// How large it is.
        n_bytes: usize,
        /// How many lines it has.
        n_lines: usize,
        /// How many tokens it is, roughly.
        n_tokens: usize,
    },
    /// A tool was found under a name that is not quite its own.
    Corrected {
        /// What was asked for.
        asked: String,
        /// What was meant.
        tool: Arc<str>,
    },
    /// A server changed its state.
    Server {
        /// The toolbox.
        toolbox: String,
        /// The server.
        server: String,
        /// How it is now.
        state: ServerState,
    },
    /// The servers that start with the runtime were started, or will not start.
    Started {
        /// All of them, the slowest first.
        servers: Vec<Start>,
    },
    /// There are other tools than before.
    Catalogue {
        /// How many there are now.
        n_tools: usize,
    },
}

/// How the start of a server went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    /// The toolbox.
    pub toolbox: String,
    /// The server.
    pub server: String,
    /// How long it took.
    pub took: Duration,
    /// Why it cannot be used.
    pub error: Option<String>,
}

/// What a call is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Subject {
    /// The session it was made in.
    pub session: Arc<str>,
    /// Whose call it is, for those who show nobody the calls of another. It does not travel.
    #[serde(skip)]
    pub owner: Arc<str>,
    /// The label of its operation.
    pub operation: String,
    /// The name of the tool, as clients see it.
    pub tool: Arc<str>,
    /// The server it is of.
    pub server: String,
    /// What sort of tool it is.
    pub kind: ToolKind,
    /// How large its arguments are.
    pub n_bytes_in: usize,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct End {
    /// Why there is no answer, or that the tool answered that it failed; `None` if all is well.
    pub error: Option<ErrorKind>,
    /// In words that quote no argument.
    pub message: Option<String>,
    /// How long it took in all.
    pub duration: Duration,
    /// How large the answer is.
    pub n_bytes_out: usize,
    /// The answer had been given before.
    pub is_cached: bool,
}

/// How asking a model ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelEnd {
    /// The model that replied, or the one that was asked.
    pub model: ModelName,
    /// Why there is no reply, in one stable word.
    pub error: Option<&'static str>,
    /// The same in words for people.
    pub message: Option<String>,
    /// How long it took.
    pub duration: Duration,
    /// How many tokens it took.
    pub usage: Usage,
    /// What it cost in US dollars, if that is known.
    pub cost_usd: Option<f64>,
}

/// What the cache did for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheResult {
    /// It had the answer.
    Hit {
        /// How old the answer is.
        age: Duration,
    },
    /// It had none.
    Miss,
    /// The same call was under way already, and its answer was taken.
    Joined,
    /// It keeps the answer.
    Stored,
}

/// Why an answer was not handed over whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreReason {
    /// It is larger than the caller is handed.
    SizeCap,
    /// The session has used up its tokens.
    TokenBudget,
    /// The tokens could not be set aside.
    ReserveFailed,
}

impl StoreReason {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SizeCap => "size_cap",
            Self::TokenBudget => "token_budget",
            Self::ReserveFailed => "reserve_failed",
        }
    }
}

/// Sees every event as it happens, on the path of the call. It must not wait.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, event: &Event);
}

/// The stream of events. Clones are the same stream.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_runtime::event::{Event, Events};
///
/// let events = Events::new([]);
/// let mut stream = events.subscribe();
/// events.emit(|| Event::Catalogue { n_tools: 3 });
/// assert!(matches!(stream.recv().await, Ok(Event::Catalogue { n_tools: 3 })));
/// # });
/// ```
#[derive(Clone)]
pub struct Events(Arc<Listeners>);

struct Listeners {
    observers: Vec<Arc<dyn Observer>>,
    stream: broadcast::Sender<Event>,
}

impl Events {
    /// A stream that these observers see.
    pub fn new(observers: impl IntoIterator<Item = Arc<dyn Observer>>) -> Self {
        let observers = observers.into_iter().collect();
        Self(Arc::new(Listeners { observers, stream: broadcast::Sender::new(CAPACITY) }))
    }

    /// The events from now on. A subscriber that falls far behind misses the oldest, and is told how many.
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.0.stream.subscribe()
    }

    /// Whether anybody wants to know.
    pub fn is_heard(&self) -> bool {
        !self.0.observers.is_empty() || self.0.stream.receiver_count() > 0
    }

    /// Tells everybody who wants to know.
    pub fn emit(&self, event: impl FnOnce() -> Event) {
        if !self.is_heard() {
            return;
        }
        let event = event();
        for observer in &self.0.observers {
            observer.observe(&event);
        }
        // With nobody subscribed it is simply lost.
        let _ = self.0.stream.send(event);
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("n_observers", &self.0.observers.len()).finish_non_exhaustive()
    }
}
