//! How a runtime is put together.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};

use arc_swap::ArcSwap;
use pegboard_core::chain::ChainSpec;
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::ServerName;
use pegboard_core::model::OutputReader;
use pegboard_core::provider::{Provider, ToolKind};
use pegboard_core::redact::Redactor;
use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_core::store::{CacheStore, HistoryStore, OutputStore, SessionStore, SlotStore, TraceStore};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::plan::{Plan, StartError};
use super::{Runtime, Shared, following};
use crate::batch;
use crate::calls::Calls;
use crate::catalogue::{Catalogue, Tool};
use crate::chains;
use crate::event::{Events, Observer};
use crate::history::History;
use crate::outputs::{self, Outputs};
use crate::park::Parking;
use crate::pipeline::{self, Flights};
use crate::queues::Queues;
use crate::sessions::{SessionSettings, Sessions};
use crate::spans::Spans;
use crate::trace::Traces;
use crate::wall::WallClock;

/// How many updates a listener may be behind.
const MAX_UPDATES: usize = 1_024;

/// A runtime that is put together.
#[derive(Default)]
pub struct Builder {
    plan: Plan,
    cache: Option<Arc<dyn CacheStore>>,
    outputs: Option<Arc<dyn OutputStore>>,
    reader: Option<Arc<OutputReader>>,
    slots: Option<Arc<dyn SlotStore>>,
    sessions: Option<Arc<dyn SessionStore>>,
    traces: Option<Arc<dyn TraceStore>>,
    history: Option<Arc<dyn HistoryStore>>,
    observers: Vec<Arc<dyn Observer>>,
    spans: Option<Arc<dyn Spans>>,
    wall: Option<WallClock>,
}

impl Builder {
    /// With what this plan says, and nothing of what was said before about settings, toolboxes and secrets.
    #[must_use]
    pub fn plan(mut self, plan: Plan) -> Self {
        self.plan = plan;
        self
    }

    /// With these settings.
    #[must_use]
    pub fn settings(self, settings: RuntimeSettings) -> Self {
        Self { plan: self.plan.settings(settings), ..self }
    }

    /// With a toolbox; servers that are given from here on are in it.
    #[must_use]
    pub fn toolbox(self, name: &str, description: impl Into<String>) -> Self {
        Self { plan: self.plan.toolbox(name, description), ..self }
    }

    /// With a server, in the toolbox given last or else in `default`.
    #[must_use]
    pub fn provide(self, server: &str, provider: impl Provider) -> Self {
        Self { plan: self.plan.provide(server, provider), ..self }
    }

    /// With a server that has settings of its own.
    #[must_use]
    pub fn provide_with(self, server: &str, provider: Arc<dyn Provider>, settings: ServerSettings) -> Self {
        Self { plan: self.plan.provide_with(server, provider, settings), ..self }
    }

    /// With a chain as a tool of the server `chain`, in the toolbox given last or else in `default`.
    #[must_use]
    pub fn chain(self, chain: ChainSpec) -> Self {
        Self { plan: self.plan.chain(chain), ..self }
    }

    /// With texts that are never written down.
    #[must_use]
    pub fn secrets(self, secrets: impl IntoIterator<Item = String>) -> Self {
        Self { plan: self.plan.secrets(secrets), ..self }
    }

    /// With a place for answers that may be given again.
    #[must_use]
    pub fn cache(mut self, store: Arc<dyn CacheStore>) -> Self {
        self.cache = Some(store);
        self
    }

    /// With a place for answers that are too large.
    #[must_use]
    pub fn outputs(mut self, store: Arc<dyn OutputStore>) -> Self {
        self.outputs = Some(store);
        self
    }

    /// With a model that reads stored outputs for callers that have none for it.
    #[must_use]
    pub fn output_reader(mut self, reader: OutputReader) -> Self {
        self.reader = Some(Arc::new(reader));
        self
    }

    /// With a place for slots that several processes share, for queues that are set to.
    #[must_use]
    pub fn slots(mut self, store: Arc<dyn SlotStore>) -> Self {
        self.slots = Some(store);
        self
    }

    /// With a place for sessions that callers name.
    #[must_use]
    pub fn sessions(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.sessions = Some(store);
        self
    }

    /// With a place for what was done in such sessions.
    #[must_use]
    pub fn traces(mut self, store: Arc<dyn TraceStore>) -> Self {
        self.traces = Some(store);
        self
    }

    /// With a place for calls that have ended, so that people can look back when whoever made them is gone.
    #[must_use]
    pub fn history(mut self, store: Arc<dyn HistoryStore>) -> Self {
        self.history = Some(store);
        self
    }

    /// With somebody who sees every event.
    #[must_use]
    pub fn observe(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// With somebody who keeps spans.
    #[must_use]
    pub fn spans(mut self, spans: Arc<dyn Spans>) -> Self {
        self.spans = Some(spans);
        self
    }

    /// With another clock for the time of day.
    #[must_use]
    pub fn wall_clock(mut self, wall: WallClock) -> Self {
        self.wall = Some(wall);
        self
    }

    /// Starts it. Servers are made ready when somebody opens their toolbox or calls one of their tools, and those that
    /// start with everything else in the background.
    pub async fn start(self) -> Result<Runtime, StartError> {
        let (layout, secrets) = self.plan.check()?;
        let wall = self.wall.unwrap_or_else(WallClock::start);
        if let Some(store) = self.outputs.as_deref().filter(|_| layout.settings.tool_output.enabled) {
            store.usage().await.map_err(StartError::Outputs)?;
        }
        let layout = Arc::new(layout);
        let shared = Arc::new_cyclic(|shared| Shared {
            catalogue: Catalogue::default(),
            builtins: builtins(shared, self.outputs.is_some()),
            queues: Queues::new(&layout.settings.queues),
            cache: self.cache,
            flights: Flights::default(),
            slots: self.slots,
            outputs: Outputs::new(self.outputs),
            reader: self.reader,
            sessions: self.sessions.map(|store| Sessions::new(store, SessionSettings::default())),
            traces: self.traces.map(Traces::new),
            history: self.history.map(|store| History::new(store, wall)),
            events: Events::new(self.observers),
            spans: self.spans,
            calls: Arc::new(Calls::new()),
            callers: crate::callers::Callers::default(),
            parking: Parking::default(),
            pipeline: pipeline::pipeline(),
            wall,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            redactor: ArcSwap::from_pointee(Redactor::new(secrets)),
            updates: broadcast::Sender::new(MAX_UPDATES),
            shelves: Mutex::default(),
            n_catalogues: watch::Sender::default(),
            n_callers: AtomicU64::new(1),
            layout: ArcSwap::new(Arc::clone(&layout)),
        });
        shared.refresh();
        let servers: Vec<_> = layout.toolboxes.servers().collect();
        for (place, server) in &servers {
            following::follow(&shared, place, server);
        }
        following::start_eager(&shared, servers);
        Ok(Runtime(shared))
    }
}

/// The tools that are always there, by every name they have.
fn builtins(shared: &Weak<Shared>, has_outputs: bool) -> HashMap<&'static str, Arc<Tool>> {
    let mut tools = HashMap::new();
    let batch = builtin(batch::entry());
    tools.extend(batch::NAMES.map(|name| (name, Arc::clone(&batch))));
    tools.insert(chains::RUN_CHAIN, builtin(chains::run_chain()));
    if has_outputs {
        let entry = outputs::tool_output(Weak::clone(shared));
        let mut tool = builtin(entry);
        // Handles tell models to call it by this name, and no server can have it.
        Arc::make_mut(&mut tool).flat_name = "tool_output".into();
        tools.insert("tool_output", tool);
    }
    tools
}

/// A tool of the server `agent`. It judges its arguments itself, in words that models know.
fn builtin(entry: ToolEntry) -> Arc<Tool> {
    let server = ServerName::new("agent").expect("it is neither empty nor long");
    Tool::lone(&server, Arc::new(entry.judging_itself()), ToolKind::Agent, "")
}
