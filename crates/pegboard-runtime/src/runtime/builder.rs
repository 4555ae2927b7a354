//! How a runtime is put together.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use indexmap::IndexMap;
use indexmap::map::Entry;
use pegboard_core::chain::ChainSpec;
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::{InvalidName, ServerName, ToolboxName};
use pegboard_core::provider::{Provider, ToolKind};
use pegboard_core::settings::{Judge, RuntimeSettings, ServerSettings, StartRule};
use pegboard_core::store::{CacheStore, OutputStore, SessionStore, SlotStore, StoreError, TraceStore};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{DEFAULT_TOOLBOX, Runtime, Shared};
use crate::batch;
use crate::calls::Calls;
use crate::catalogue::{Catalogue, Tool};
use crate::chains::{self, PublishedChains};
use crate::event::{Event, Events, Observer};
use crate::outputs::{self, Outputs};
use crate::park::Parking;
use crate::pipeline::{self, Flights};
use crate::queues::Queues;
use crate::requests::{ServerId, ServerUpdate};
use crate::sessions::{SessionSettings, Sessions};
use crate::spans::Spans;
use crate::toolbox::{Server, Toolbox, Toolboxes};
use crate::trace::Traces;
use crate::wall::WallClock;
use pegboard_core::redact::Redactor;

/// The server of chains.
const CHAINS: &str = "chain";
/// How many updates a listener may be behind.
const MAX_UPDATES: usize = 1_024;
/// How long a server's changes are gathered before the catalogue is made anew.
const GATHERING: Duration = Duration::from_millis(20);

/// A runtime that is put together.
#[derive(Default)]
pub struct Builder {
    settings: RuntimeSettings,
    toolboxes: Toolboxes,
    current: Option<ToolboxName>,
    cache: Option<Arc<dyn CacheStore>>,
    outputs: Option<Arc<dyn OutputStore>>,
    slots: Option<Arc<dyn SlotStore>>,
    sessions: Option<Arc<dyn SessionStore>>,
    traces: Option<Arc<dyn TraceStore>>,
    chains: IndexMap<ToolboxName, PublishedChains>,
    observers: Vec<Arc<dyn Observer>>,
    spans: Option<Arc<dyn Spans>>,
    secrets: Vec<String>,
    wall: Option<WallClock>,
    problem: Option<StartError>,
}

/// Why a runtime does not start.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    /// A name cannot be one.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// Two toolboxes have the same name.
    #[error("There are two toolboxes called '{toolbox}'. Give one of them another name")]
    TwoToolboxes {
        /// The name.
        toolbox: ToolboxName,
    },
    /// Two servers of a toolbox have the same name.
    #[error("Toolbox '{toolbox}' has two servers called '{server}'. Give one of them another name")]
    TwoServers {
        /// The toolbox.
        toolbox: ToolboxName,
        /// The name.
        server: ServerName,
    },
    /// A server or tool names a queue that is not there.
    #[error("MCP server '{server}' references unknown queue '{queue}'. Add it under configuration.queues.")]
    UnknownQueue {
        /// The server.
        server: ServerName,
        /// The queue.
        queue: String,
    },
    /// A chain cannot be a tool.
    #[error("Chain {chain}: {reason}")]
    Chain {
        /// The chain.
        chain: String,
        /// Why it cannot.
        reason: String,
    },
    /// Outputs that are too large could not be stored.
    #[error("Outputs cannot be stored: {0}")]
    Outputs(StoreError),
}

impl Builder {
    /// With these settings.
    #[must_use]
    pub fn settings(mut self, settings: RuntimeSettings) -> Self {
        self.settings = settings;
        self
    }

    /// With a toolbox; servers that are given from here on are in it.
    #[must_use]
    pub fn toolbox(mut self, name: &str, description: impl Into<String>) -> Self {
        match ToolboxName::new(name) {
            Ok(name) => self.begin(name, description.into()),
            Err(error) => self.fail(error.into()),
        }
        self
    }

    /// With a server, in the toolbox given last or else in `default`.
    #[must_use]
    pub fn provide(self, server: &str, provider: impl Provider) -> Self {
        self.provide_with(server, Arc::new(provider), ServerSettings::default())
    }

    /// With a server that has settings of its own.
    #[must_use]
    pub fn provide_with(
        mut self,
        server: &str,
        provider: Arc<dyn Provider>,
        settings: ServerSettings,
    ) -> Self {
        match ServerName::new(server) {
            Ok(server) => self.add(server, Server::new(provider, settings)),
            Err(error) => self.fail(error.into()),
        }
        self
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

    /// With a chain as a tool of the server `chain`, in the toolbox given last or else in `default`.
    #[must_use]
    pub fn chain(mut self, chain: ChainSpec) -> Self {
        let toolbox = self.toolbox_at_hand();
        if !self.chains.contains_key(&toolbox) {
            let chains = PublishedChains::default();
            self = self.provide_with(CHAINS, chains.provider(), ServerSettings::default());
            self.chains.insert(toolbox.clone(), chains);
        }
        if let Err(error) = self.chains[&toolbox].add(chain) {
            self.fail(error);
        }
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

    /// With texts that are never written down.
    #[must_use]
    pub fn secrets(mut self, secrets: impl IntoIterator<Item = String>) -> Self {
        self.secrets.extend(secrets);
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
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let wall = self.wall.unwrap_or_else(WallClock::start);
        if let Some(store) = self.outputs.as_deref().filter(|_| self.settings.tool_output.enabled) {
            store.usage().await.map_err(StartError::Outputs)?;
        }
        let queues = Queues::new(&self.settings.queues);
        check_queues(&self.toolboxes, &queues)?;
        let name_limit = self.settings.tool_name_max_length;
        let shared = Arc::new_cyclic(|shared| Shared {
            catalogue: Catalogue::default(),
            toolboxes: self.toolboxes,
            builtins: builtins(shared, self.outputs.is_some()),
            queues,
            cache: self.cache,
            flights: Flights::default(),
            slots: self.slots,
            outputs: Outputs::new(self.outputs),
            sessions: self.sessions.map(|store| Sessions::new(store, SessionSettings::default())),
            traces: self.traces.map(Traces::new),
            chains: self.chains.into_values().collect(),
            events: Events::new(self.observers),
            spans: self.spans,
            calls: Arc::new(Calls::new()),
            callers: crate::callers::Callers::default(),
            parking: Parking::default(),
            pipeline: pipeline::pipeline(),
            wall,
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            redactor: Redactor::new(self.secrets),
            updates: broadcast::Sender::new(MAX_UPDATES),
            shelves: Mutex::default(),
            n_catalogues: watch::Sender::default(),
            n_callers: AtomicU64::new(1),
            settings: RuntimeSettings { tool_name_max_length: name_limit.clamp(20, 200), ..self.settings },
        });
        shared.refresh();
        watch_servers(&shared);
        hear_servers(&shared);
        start_eager(&shared);
        Ok(Runtime(shared))
    }

    fn begin(&mut self, name: ToolboxName, description: String) {
        match self.toolboxes.0.entry(name.clone()) {
            Entry::Occupied(_) => self.fail(StartError::TwoToolboxes { toolbox: name }),
            Entry::Vacant(free) => {
                free.insert(Toolbox { description, ..Toolbox::default() });
                self.current = Some(name);
            }
        }
    }

    fn add(&mut self, name: ServerName, server: Server) {
        let toolbox = self.toolbox_at_hand();
        let contents = self.toolboxes.0.entry(toolbox.clone()).or_default();
        if contents.servers.contains_key(&name) {
            self.fail(StartError::TwoServers { toolbox, server: name });
        } else {
            contents.servers.insert(name, server);
        }
    }

    fn toolbox_at_hand(&self) -> ToolboxName {
        let default = || ToolboxName::new(DEFAULT_TOOLBOX).expect("it is neither empty nor long");
        self.current.clone().unwrap_or_else(default)
    }

    /// The first problem is the one that is told.
    fn fail(&mut self, problem: StartError) {
        self.problem.get_or_insert(problem);
    }
}

fn check_queues(toolboxes: &Toolboxes, queues: &Queues) -> Result<(), StartError> {
    for (name, server) in toolboxes.0.values().flat_map(|toolbox| &toolbox.servers) {
        let of_tools = server.settings.tools.values().filter_map(|tool| tool.queue.as_ref());
        let mut wanted = server.settings.queue.iter().chain(of_tools);
        if let Some(queue) = wanted.find(|queue| !queues.contains(queue)) {
            return Err(StartError::UnknownQueue { server: name.clone(), queue: queue.clone() });
        }
    }
    Ok(())
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
    let mut tool = Tool::lone("agent", Arc::new(entry), ToolKind::Agent, "");
    Arc::make_mut(&mut tool).rules.judge = Some(Judge::Server);
    tool
}

/// Passes on what servers say, until the runtime ends.
fn hear_servers(shared: &Arc<Shared>) {
    for (toolbox, contents) in &shared.toolboxes.0 {
        for (server, contents) in &contents.servers {
            let from = ServerId { toolbox: toolbox.clone(), server: server.clone() };
            let (mut said, heard, closing) =
                (contents.provider.updates(), shared.updates.clone(), shared.closing.clone());
            shared.tasks.spawn(async move {
                let passing_on = async {
                    loop {
                        match said.recv().await {
                            // With nobody listening it is simply lost.
                            Ok(update) => drop(heard.send(ServerUpdate { from: from.clone(), update })),
                            Err(RecvError::Lagged(_)) => {}
                            Err(RecvError::Closed) => return,
                        }
                    }
                };
                closing.run_until_cancelled(passing_on).await;
            });
        }
    }
}

/// Starts the servers that start with the runtime. Nobody waits for them.
fn start_eager(shared: &Arc<Shared>) {
    let usual = shared.settings.start;
    let servers = shared.toolboxes.0.values().flat_map(|toolbox| toolbox.servers.values());
    if !servers.map(|server| server.settings.start.unwrap_or(usual)).any(|rule| rule == StartRule::Eager) {
        return;
    }
    let (starting, closing) = (Arc::clone(shared), shared.closing.clone());
    shared.tasks.spawn(async move {
        let starts = starting.toolboxes.start_eager(usual, starting.n_starts_at_once());
        if let Some(mut servers) = closing.run_until_cancelled(starts).await {
            for error in servers.iter_mut().filter_map(|start| start.error.as_mut()) {
                *error = starting.redactor.text(error).into_owned();
            }
            starting.events.emit(|| Event::Started { servers });
        }
    });
}

/// Follows what every server offers and how it is, until the runtime ends.
fn watch_servers(shared: &Arc<Shared>) {
    for (toolbox, contents) in &shared.toolboxes.0 {
        for (name, server) in &contents.servers {
            let (mut offer, mut state) = (server.offer.clone(), server.state.clone());
            let (toolbox, server) = (toolbox.to_string(), name.to_string());
            let (weak, closing) = (Arc::downgrade(shared), shared.closing.clone());
            shared.tasks.spawn(async move {
                loop {
                    let is_offer = tokio::select! {
                        () = closing.cancelled() => return,
                        changed = offer.changed() => changed.map(|()| true),
                        changed = state.changed() => changed.map(|()| false),
                    };
                    let (Ok(is_offer), Some(shared)) = (is_offer, weak.upgrade()) else { return };
                    if is_offer {
                        shared.refresh();
                        drop(shared);
                        // A server that changes its mind all the time costs one catalogue in a while.
                        time::sleep(GATHERING).await;
                    } else {
                        let state = shared.without_secrets(&state.borrow_and_update());
                        let (toolbox, server) = (toolbox.clone(), server.clone());
                        shared.events.emit(|| Event::Server { toolbox, server, state });
                    }
                }
            });
        }
    }
}
