//! A configuration put together into something that runs.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pegboard_config::{Configuration, Server, Toolbox};
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::provider::{Local, Provider, ToolKind};
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::cache::{CacheBackend, CacheSettings};
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_core::settings::mcp::{Secret, Settings};
use pegboard_core::store::{
    CacheStore, CatalogueStore, HistoryStore, OutputStore, SessionStore, SlotStore, StoreError, TraceStore,
};
use pegboard_gateway::api::{About, Api};
use pegboard_gateway::{Gateway, ProfileError, Views};
use pegboard_providers::mcp::{Pool, PoolOptions};
use pegboard_runtime::metrics::{Limits, Metrics};
use pegboard_runtime::requests::ServerId;
use pegboard_runtime::wall::WallClock;
use pegboard_runtime::{Builder, Changes, Plan, Runtime, StartError};
use pegboard_stores::limits::{
    CacheLimits, CatalogueLimits, DatabaseLimits, HistoryLimits, OutputLimits, SessionLimits, SlotLimits,
    TraceLimits,
};
use pegboard_stores::memory;
use pegboard_stores::sqlite::Database;

use crate::telemetry::{Log, Telemetry};
use agents::Thinking;

pub mod agents;
mod check;
mod kept;
mod openapi;
mod rest;

pub use check::{Looked, check};
use kept::Kept;

/// The file in the folder for state that holds it.
pub const DATABASE: &str = "pegboard.db";
/// How many secrets of configurations that do not run any more are remembered, the newest.
const MAX_SECRETS: usize = 1_000;

/// What a configuration does not say, because it is not the same for everybody who runs it.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Where state is kept; `None` for memory.
    pub state: Option<PathBuf>,
    /// What all servers have in common.
    pub servers: PoolOptions,
    /// What there is while there is no configuration at all.
    pub otherwise: Option<Embedded>,
}

/// Tools of this program, as a server in a toolbox.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// The toolbox.
    pub toolbox: String,
    /// What it is for.
    pub description: String,
    /// The server.
    pub server: String,
    /// The tools.
    pub tools: Vec<ToolEntry>,
}

/// Something that runs.
pub struct Board {
    /// What carries out calls.
    pub runtime: Runtime,
    /// What clients see of it.
    pub gateway: Gateway,
    /// What happened, in numbers.
    pub metrics: Arc<Metrics>,
    workshop: Workshop,
    stores: Stores,
    secrets: Secrets,
    /// How clients were to see it last.
    views: Mutex<GatewaySettings>,
}

/// What a configuration that took the place of another has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// What runs.
    pub runtime: Changes,
    /// Whether clients see it in other ways.
    pub views: bool,
}

impl fmt::Display for Reloaded {
    /// In one line: `+ github  - files  ~ search`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Changes { added, removed, replaced, adjusted, settings } = &self.runtime;
        let servers = [("+", added), ("-", removed), ("~", replaced), ("~", adjusted)];
        let servers = servers.iter().flat_map(|(mark, places)| {
            places.iter().map(move |ServerId { toolbox, server }| format!("{mark} {toolbox}/{server}"))
        });
        let others = [(*settings, "~ settings"), (self.views, "~ profiles")];
        let others = others.iter().filter(|(is_other, _)| *is_other).map(|(_, what)| (*what).to_owned());
        let all: Vec<String> = servers.chain(others).collect();
        f.write_str(if all.is_empty() { "nothing is other than before" } else { "" })?;
        f.write_str(&all.join("  "))
    }
}

/// Why a configuration does not run.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// The runtime does not start.
    #[error(transparent)]
    Runtime(#[from] StartError),
    /// Clients cannot see it like this.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Puts a configuration together, and starts it. A server that cannot be used is there and says why.
pub async fn start(
    configuration: Configuration,
    surroundings: Surroundings,
    telemetry: &Telemetry,
) -> Result<Board, BoardError> {
    let metrics = Arc::new(Metrics::new(Limits::default()));
    let stores = Stores::open(surroundings.state.as_deref(), &configuration.cache).await;
    let workshop = Workshop {
        otherwise: surroundings.otherwise,
        ..Workshop::new(surroundings.servers, Arc::clone(&stores.catalogue))
    };
    let secrets = Secrets::default();
    let known = secrets.learn(&configuration.secrets, telemetry);
    let (plan, views) = workshop.plan(configuration).await;
    let builder = Runtime::builder()
        .plan(plan.secrets(known))
        .observe(Arc::new(Log))
        .observe(Arc::clone(&metrics) as _)
        .spans(telemetry.spans());
    let runtime = stores.give_to(builder).start().await?;
    let gateway = Gateway::new(&runtime, &views)?;
    Ok(Board { runtime, gateway, metrics, workshop, stores, secrets, views: Mutex::new(views) })
}

impl Board {
    /// What there is to tell of it under `/api/`.
    pub fn api(&self, about: About) -> Api {
        Api::new(about)
            .runtime(&self.runtime)
            .metrics(Arc::clone(&self.metrics))
            .outputs(Arc::clone(&self.stores.outputs))
            .sessions(Arc::clone(&self.stores.sessions))
            .traces(Arc::clone(&self.stores.traces))
            .history(Arc::clone(&self.stores.history))
    }

    /// Why state is not kept where it should be, if it is not.
    pub fn state_problem(&self) -> Option<&str> {
        self.stores.problem.as_deref()
    }

    /// Whether there is what there is without a configuration, and nothing else.
    pub fn is_bare(&self) -> bool {
        let otherwise = self.workshop.otherwise.as_ref().map(|embedded| embedded.toolbox.as_str());
        matches!(self.runtime.toolboxes().as_slice(), [only] if Some(only.name.as_str()) == otherwise)
    }

    /// Puts another configuration in the place of the one that runs. Calls that are under way end well, servers that are
    /// described as before go on, and clients stay and hear what is new.
    ///
    /// One that does not run changes nothing, and neither does one without the profile that is `served` by its name.
    pub async fn reload(
        &self,
        configuration: Configuration,
        served: Option<&str>,
        telemetry: &Telemetry,
    ) -> Result<Reloaded, BoardError> {
        let toolboxes = configuration.toolboxes.keys().cloned().collect();
        let views = Views::of(&configuration.gateway, &toolboxes)?;
        served.map(|profile| views.check(profile)).transpose()?;
        let known = self.secrets.learn(&configuration.secrets, telemetry);
        let (plan, settings) = self.workshop.plan(configuration).await;
        let prepared = self.runtime.prepare(plan.secrets(known)).await?;
        self.gateway.show(views);
        let runtime = prepared.take_effect();
        self.gateway.warm_up_again();
        let mut last = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let views = *last != settings;
        *last = settings;
        Ok(Reloaded { runtime, views })
    }
}

/// What nobody should see, of the configuration that runs and of those before it: calls may still know them.
#[derive(Default)]
struct Secrets(Mutex<VecDeque<String>>);

impl Secrets {
    /// Learns more; gives all that are known, and has them blotted out of the log.
    fn learn(&self, more: &[Secret], telemetry: &Telemetry) -> Vec<String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for secret in more.iter().map(Secret::reveal) {
            known.retain(|other| other != secret);
            known.push_back(secret.to_owned());
        }
        let n_forgotten = known.len().saturating_sub(MAX_SECRETS.max(more.len()));
        known.drain(..n_forgotten);
        telemetry.redact(&*known);
        known.iter().cloned().collect()
    }
}

/// What servers are made with.
struct Workshop {
    pool: Pool,
    catalogue: Arc<dyn CatalogueStore>,
    clock: WallClock,
    /// The places of servers that cannot be used, by why.
    unusable: Kept<String>,
    rest: rest::Workbench,
    agents: agents::Workbench,
    services: openapi::Services,
    otherwise: Option<Embedded>,
    /// The place of the tools of this program, for as long as it is used.
    embedded: Kept<()>,
}

impl Workshop {
    fn new(servers: PoolOptions, catalogue: Arc<dyn CatalogueStore>) -> Self {
        Self {
            pool: Pool::new(servers),
            catalogue,
            clock: WallClock::start(),
            unusable: Kept::default(),
            rest: rest::Workbench::default(),
            agents: agents::Workbench::default(),
            services: openapi::Services::default(),
            otherwise: None,
            embedded: Kept::default(),
        }
    }

    /// What a configuration comes to: what is to run, and how clients are to see it. Its secrets are left out.
    async fn plan(&self, configuration: Configuration) -> (Plan, GatewaySettings) {
        let Configuration { settings, gateway, toolboxes, providers, sources, .. } = configuration;
        let thinking = Thinking::with(providers);
        let mut plan = Plan::new().settings(settings);
        if let Some(embedded) = self.otherwise.clone().filter(|_| sources.is_empty() && toolboxes.is_empty())
        {
            let Embedded { toolbox, description, server, tools } = embedded;
            let provider = self.embedded.get((), |()| Local::new(tools));
            plan = plan.toolbox(&toolbox, description);
            plan = plan.provide_with(&server, provider, ServerSettings::default());
        }
        for (name, toolbox) in toolboxes {
            plan = self.with_toolbox(plan, &name, toolbox, &thinking).await;
        }
        (plan, gateway)
    }

    async fn with_toolbox(
        &self,
        mut plan: Plan,
        name: &ToolboxName,
        toolbox: Toolbox,
        thinking: &Thinking,
    ) -> Plan {
        plan = plan.toolbox(name.as_str(), toolbox.description);
        for (server, described) in toolbox.servers {
            let (provider, tools) = match described {
                Server::Mcp { connection, .. } if !connection.is_enabled => continue,
                Server::Mcp { connection, tools } => (self.server(&server, *connection).await, *tools),
                Server::OpenApi { service, .. } if service.enabled == Some(false) => continue,
                Server::OpenApi { service, tools } => {
                    (self.services.service(name, &server, *service).await, *tools)
                }
                described @ Server::Unusable { .. } => (
                    self.unusable(&server, &described.obstacle().unwrap_or_default()),
                    ServerSettings::default(),
                ),
            };
            plan = plan.provide_with(server.as_str(), provider, tools);
        }
        plan = self.rest.provide(plan, name, toolbox.rest_tools);
        plan = self.agents.provide(plan, name, toolbox.agents, thinking);
        toolbox.chains.into_values().fold(plan, Plan::chain)
    }

    /// A server that offers what it offered last until it answers.
    async fn server(&self, name: &ServerName, connection: Settings) -> Arc<dyn Provider> {
        match self.pool.server(connection) {
            Ok(lease) => {
                lease.recall(Arc::clone(&self.catalogue), self.clock.now()).await;
                Arc::new(lease)
            }
            Err(error) => self.unusable(name, &error.to_string()),
        }
    }

    /// The place of a server that cannot be used; the same one for as long as it cannot be used for the same reason.
    fn unusable(&self, server: &ServerName, why: &str) -> Arc<dyn Provider> {
        let why = format!("MCP server '{server}' cannot be used: {why}");
        self.unusable
            .get(why, |why| Local::unusable(why.clone(), "Correct its configuration.").of_kind(ToolKind::Mcp))
    }
}

/// Where state is kept: on disk if there is a place, and in memory otherwise.
struct Stores {
    /// Why it is not on disk, though there is a place.
    problem: Option<String>,
    cache: Arc<dyn CacheStore>,
    catalogue: Arc<dyn CatalogueStore>,
    outputs: Arc<dyn OutputStore>,
    sessions: Arc<dyn SessionStore>,
    traces: Arc<dyn TraceStore>,
    history: Arc<dyn HistoryStore>,
    slots: Arc<dyn SlotStore>,
}

impl Stores {
    async fn open(folder: Option<&Path>, cache: &CacheSettings) -> Self {
        let Some(folder) = folder else { return Self::in_memory(cache) };
        match open(folder, limits(cache)).await {
            Ok(database) => Self::on_disk(&Arc::new(database), cache),
            Err(error) => {
                tracing::warn!("State is kept in memory and lost at the end: {error}");
                Self { problem: Some(error.to_string()), ..Self::in_memory(cache) }
            }
        }
    }

    fn on_disk(database: &Arc<Database>, cache: &CacheSettings) -> Self {
        Self {
            problem: None,
            cache: match cache.backend {
                CacheBackend::Sqlite => Arc::clone(database) as _,
                CacheBackend::Memory => Arc::new(memory::Cache::new(limits(cache))),
            },
            catalogue: Arc::clone(database) as _,
            outputs: Arc::clone(database) as _,
            sessions: Arc::clone(database) as _,
            traces: Arc::clone(database) as _,
            history: Arc::clone(database) as _,
            slots: Arc::clone(database) as _,
        }
    }

    fn in_memory(cache: &CacheSettings) -> Self {
        Self {
            problem: None,
            cache: Arc::new(memory::Cache::new(limits(cache))),
            catalogue: Arc::new(memory::Catalogue::new(CatalogueLimits::default())),
            outputs: Arc::new(memory::Outputs::new(OutputLimits::default())),
            sessions: Arc::new(memory::Sessions::new(SessionLimits::default())),
            traces: Arc::new(memory::Traces::new(TraceLimits::default())),
            history: Arc::new(memory::History::new(HistoryLimits::default())),
            slots: Arc::new(memory::Slots::new(SlotLimits::default())),
        }
    }

    fn give_to(&self, builder: Builder) -> Builder {
        builder
            .cache(Arc::clone(&self.cache))
            .outputs(Arc::clone(&self.outputs))
            .sessions(Arc::clone(&self.sessions))
            .traces(Arc::clone(&self.traces))
            .history(Arc::clone(&self.history))
            .slots(Arc::clone(&self.slots))
    }
}

/// How much the cache keeps.
fn limits(cache: &CacheSettings) -> CacheLimits {
    let CacheSettings { backend: _, max_entries, max_bytes, max_entry_bytes } = *cache;
    CacheLimits { max_entries, max_bytes, max_entry_bytes }
}

/// The database of a folder, which is made if it is not there.
async fn open(folder: &Path, cache: CacheLimits) -> Result<Database, StoreError> {
    let path = folder.join(DATABASE);
    let place = path.display().to_string();
    let limits = DatabaseLimits { cache, ..DatabaseLimits::default() };
    let opened = tokio::task::spawn_blocking(move || Database::open_with(&path, limits)).await;
    opened.unwrap_or_else(|error| Err(StoreError::Unusable { place, reason: error.to_string() }))
}
