//! The builder of a runtime.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use foldhash::HashMap;
use parking_lot::Mutex;
use pegboard_core::chain::ChainSpec;
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::ServerName;
use pegboard_core::memory::MemoryPool;
use pegboard_core::model::OutputReader;
use pegboard_core::owner::Principals;
use pegboard_core::provider::{IntoProvider, ToolKind};
use pegboard_core::redact::Redactor;
use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_core::store::{CacheStore, CallLog, OutputStore, SessionStore, SlotStore};
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::plan::{RuntimePlan, StartError};
use super::{Runtime, RuntimeShared, watch_servers};
use crate::batch;
use crate::call::registry::ActiveCalls;
use crate::call::suspended::SuspendedCallTable;
use crate::call_log::CallLogWriter;
use crate::catalogue::{Catalogue, CatalogueTool};
use crate::chains;
use crate::costly_validation::ValidationThreads;
use crate::event::{EventBus, Observer};
use crate::outputs::{self, OutputStorage};
use crate::pipeline::{self, SingleFlight};
use crate::queues::Queues;
use crate::random;
use crate::sessions::{SessionRegistry, SessionSettings};
use crate::spans::TracePropagator;
use crate::wall_clock::WallClock;

/// Number of notifications that a subscriber may lag behind.
const MAX_UPDATES: usize = 1_024;

/// Builder of a [`Runtime`].
#[derive(Default)]
pub struct RuntimeBuilder {
    plan: RuntimePlan,
    cache: Option<Arc<dyn CacheStore>>,
    outputs: Option<Arc<dyn OutputStore>>,
    reader: Option<Arc<OutputReader>>,
    slots: Option<Arc<dyn SlotStore>>,
    sessions: Option<Arc<dyn SessionStore>>,
    call_log: Option<Arc<dyn CallLog>>,
    principals: Principals,
    observers: Vec<Arc<dyn Observer>>,
    spans: Option<Arc<dyn TracePropagator>>,
    wall: Option<WallClock>,
}

impl RuntimeBuilder {
    /// Replaces the plan: settings, toolboxes and secrets.
    #[must_use]
    pub fn plan(mut self, plan: RuntimePlan) -> Self {
        self.plan = plan;
        self
    }

    /// Sets the settings.
    #[must_use]
    pub fn settings(self, settings: RuntimeSettings) -> Self {
        Self { plan: self.plan.settings(settings), ..self }
    }

    /// Adds a toolbox; servers added from here on belong to it.
    #[must_use]
    pub fn toolbox(self, name: &str, description: impl Into<String>) -> Self {
        Self { plan: self.plan.toolbox(name, description), ..self }
    }

    /// Adds a server to the last toolbox, or to `default` if there is none.
    #[must_use]
    pub fn provide(self, server: &str, provider: impl IntoProvider) -> Self {
        Self { plan: self.plan.provide(server, provider), ..self }
    }

    /// Sets the settings of the server that was added last.
    #[must_use]
    pub fn server_settings(self, settings: ServerSettings) -> Self {
        Self { plan: self.plan.server_settings(settings), ..self }
    }

    /// Adds a chain as a tool of the server `chain`, in the last toolbox or else in `default`.
    #[must_use]
    pub fn chain(self, chain: ChainSpec) -> Self {
        Self { plan: self.plan.chain(chain), ..self }
    }

    /// Adds secrets to redact from logs and records.
    #[must_use]
    pub fn secrets(self, secrets: impl IntoIterator<Item = String>) -> Self {
        Self { plan: self.plan.secrets(secrets), ..self }
    }

    /// Sets the store for cached answers.
    #[must_use]
    pub fn cache(mut self, store: Arc<dyn CacheStore>) -> Self {
        self.cache = Some(store);
        self
    }

    /// Sets the store for answers too large to return.
    #[must_use]
    pub fn outputs(mut self, store: Arc<dyn OutputStore>) -> Self {
        self.outputs = Some(store);
        self
    }

    /// Sets the default model that reads stored outputs.
    #[must_use]
    pub fn output_reader(mut self, reader: OutputReader) -> Self {
        self.reader = Some(Arc::new(reader));
        self
    }

    /// Sets the store for slots shared between processes, used by shared queues.
    #[must_use]
    pub fn slots(mut self, store: Arc<dyn SlotStore>) -> Self {
        self.slots = Some(store);
        self
    }

    /// Sets the store for named sessions.
    #[must_use]
    pub fn sessions(mut self, store: Arc<dyn SessionStore>) -> Self {
        self.sessions = Some(store);
        self
    }

    /// Sets the log for finished calls, so that they can be inspected after their caller is gone, and for trace
    /// records of calls made in named sessions.
    #[must_use]
    pub fn call_log(mut self, store: Arc<dyn CallLog>) -> Self {
        self.call_log = Some(store);
        self
    }

    /// Shares the record of principals with providers, which tell what servers wrote only while there is one.
    #[must_use]
    pub fn principals(mut self, principals: Principals) -> Self {
        self.principals = principals;
        self
    }

    /// Adds an observer of all events.
    #[must_use]
    pub fn observe(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Sets the propagator of trace contexts.
    #[must_use]
    pub fn spans(mut self, spans: Arc<dyn TracePropagator>) -> Self {
        self.spans = Some(spans);
        self
    }

    /// Sets the wall clock.
    #[must_use]
    pub fn wall_clock(mut self, wall: WallClock) -> Self {
        self.wall = Some(wall);
        self
    }

    /// Starts the runtime. Servers are opened on first use; those configured to start eagerly are opened in
    /// the background.
    #[expect(
        clippy::unused_async,
        reason = "within an async function there is a Tokio runtime for the tasks"
    )]
    pub async fn start(self) -> Result<Runtime, StartError> {
        let (active_plan, secrets) = self.plan.check()?;
        let wall = self.wall.unwrap_or_else(WallClock::start);
        let active_plan = Arc::new(active_plan);
        let events = EventBus::new(self.observers);
        let shared = Arc::new_cyclic(|shared| RuntimeShared {
            catalogue: Catalogue::default(),
            builtins: builtins(shared, self.outputs.is_some()),
            queues: Queues::new(&active_plan.settings.queues),
            cache: self.cache,
            single_flight: SingleFlight::default(),
            slots: self.slots,
            outputs: OutputStorage::new(self.outputs),
            validation_threads: ValidationThreads::default(),
            reader: self.reader,
            sessions: self.sessions.map(|store| SessionRegistry::new(store, SessionSettings::default())),
            call_log: self.call_log.map(|store| CallLogWriter::new(store, wall, events.clone())),
            events: events.clone(),
            spans: self.spans,
            calls: Arc::new(ActiveCalls::new()),
            callers: crate::caller::registry::CallerRegistry::default(),
            suspended: SuspendedCallTable::default(),
            pipeline: pipeline::pipeline(),
            memory: MemoryPool::new(MemoryPool::RUNTIME_BYTES),
            wall,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            redactor: Arc::new(ArcSwap::from_pointee(Redactor::with_escapes(secrets))),
            updates: broadcast::Sender::new(MAX_UPDATES),
            listings: Mutex::default(),
            n_catalogues: watch::Sender::default(),
            n_callers: AtomicU64::new(1),
            first_stateless_instance: random::uuid().as_u64_pair(),
            last_stateless: ArcSwapOption::empty(),
            last_visibility: ArcSwap::default(),
            principals: self.principals,
            active_plan: ArcSwap::new(Arc::clone(&active_plan)),
        });
        shared.refresh();
        let servers: Vec<_> = active_plan.toolboxes.servers().collect();
        for (id, server) in &servers {
            watch_servers::watch_server(&shared, id, server);
        }
        watch_servers::start_eager(&shared, servers);
        Ok(Runtime(shared))
    }
}

/// Returns the built-in tools, by all their names.
fn builtins(shared: &Weak<RuntimeShared>, has_outputs: bool) -> HashMap<&'static str, Arc<CatalogueTool>> {
    let mut tools = HashMap::default();
    let batch = builtin(batch::entry());
    tools.extend(batch::NAMES.map(|name| (name, Arc::clone(&batch))));
    tools.insert(chains::RUN_CHAIN, builtin(chains::run_chain()));
    if has_outputs {
        let entry = outputs::tool_output(Weak::clone(shared));
        let mut tool = builtin(entry);
        // Handles refer to the tool by this name, which no server can have.
        Arc::make_mut(&mut tool).flat_name = "tool_output".into();
        tools.insert("tool_output", tool);
    }
    tools
}

/// Creates a tool of the server `agent`. It validates its arguments itself, with messages written for models.
fn builtin(entry: ToolEntry) -> Arc<CatalogueTool> {
    let server = ServerName::new("agent").expect("the constant is a valid name");
    CatalogueTool::standalone(&server, Arc::new(entry.validating_own_arguments()), ToolKind::Agent, "")
}
