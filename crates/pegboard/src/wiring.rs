//! Builds and starts a runtime and a gateway from a configuration.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use parking_lot::Mutex;
#[cfg(feature = "oauth")]
use pegboard_auth::secret_storage::SecretStorage;
#[cfg(feature = "oauth")]
use pegboard_auth::vault::{CredentialVault, SealingKey};
use pegboard_config::{Configuration, ServerEntry, ToolboxConfig};
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::owner::Principals;
use pegboard_core::provider::{LocalProvider, Provider, ToolKind};
use pegboard_core::secret::Secret;
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::cache::{CacheBackend, CacheSettings};
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_core::settings::mcp::ResolvedMcpServer;
use pegboard_core::store::{CacheStore, CatalogueStore, SlotStore};
use pegboard_gateway::api::{Api, DisabledServers, GatewayInfo};
use pegboard_gateway::{Gateway, ProfileError, ProfileViews};
#[cfg(feature = "oauth")]
use pegboard_providers::mcp::ServerLogins;
use pegboard_providers::mcp::{PoolOptions, ServerPool};
use pegboard_runtime::metrics::{Metrics, MetricsLimits};
use pegboard_runtime::requests::ServerId;
use pegboard_runtime::wall_clock::WallClock;
use pegboard_runtime::{PlanChanges, RedactedSecrets, Runtime, RuntimeBuilder, RuntimePlan, StartError};
use pegboard_stores::limits::{CacheLimits, DatabaseLimits};
use pegboard_stores::memory;
use pegboard_stores::sqlite::Database;
use tokio::time;

use crate::telemetry::{EventLogger, LogRedactor, Telemetry};
use agents::ModelResolver;
#[cfg(feature = "oauth")]
use logins::Logins;

pub mod agents;
mod check;
#[cfg(feature = "oauth")]
pub mod logins;
mod openapi;
mod rest;
mod reuse_cache;

pub use check::{CheckReport, check};
use reuse_cache::ReuseCache;

/// Name of the database file in the state directory.
pub const DATABASE: &str = "pegboard.db";
/// Time limit for loading the last known listings.
const LISTING_LOAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of secrets kept for redaction, newest first.
const MAX_SECRETS: usize = 1_000;

/// Options of the host process, as opposed to the configuration.
#[derive(Clone, Debug, Default)]
pub struct AppOptions {
    /// State directory; `None` keeps state in memory.
    pub state: Option<PathBuf>,
    /// Options of the server pool.
    pub servers: PoolOptions,
    /// Secrets of the user, with the key of logins at servers; by default those in the state directory.
    #[cfg(feature = "oauth")]
    pub secrets: Option<Arc<SecretStorage>>,
    /// Logins at servers; by default those in the state directory.
    #[cfg(feature = "oauth")]
    pub logins: Option<Arc<Logins>>,
    /// Toolbox that is offered while there is no configuration.
    pub fallback: Option<EmbeddedToolbox>,
}

/// Built-in tools, offered as a server in a toolbox.
#[derive(Clone, Debug)]
pub struct EmbeddedToolbox {
    /// Name of the toolbox.
    pub toolbox: String,
    /// Description of the toolbox.
    pub description: String,
    /// Name of the server.
    pub server: String,
    /// Tools of the server.
    pub tools: Vec<ToolEntry>,
}

/// A running runtime with its gateway and stores.
pub struct App {
    /// Runtime that executes calls.
    pub runtime: Runtime,
    /// Gateway that serves clients.
    pub gateway: Gateway,
    /// Metrics of all calls.
    pub metrics: Arc<Metrics>,
    factory: ProviderFactory,
    stores: Stores,
    secrets: KnownSecrets,
    disabled: DisabledServers,
    /// Gateway settings that are in effect.
    views: Mutex<GatewaySettings>,
}

/// Changes made by a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadSummary {
    /// Changes of the runtime.
    pub runtime: PlanChanges,
    /// Set if profiles changed.
    pub views: bool,
}

impl fmt::Display for ReloadSummary {
    /// Writes the changes on one line: `+ github  - files  ~ search`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlanChanges { added, removed, replaced, adjusted, settings } = &self.runtime;
        let servers = [("+", added), ("-", removed), ("~", replaced), ("~", adjusted)];
        let servers = servers.iter().flat_map(|(mark, places)| {
            places.iter().map(move |ServerId { toolbox, server }| format!("{mark} {toolbox}/{server}"))
        });
        let others = [(*settings, "~ settings"), (self.views, "~ profiles")];
        let others = others.iter().filter(|(is_other, _)| *is_other).map(|(_, what)| (*what).to_owned());
        let all: Vec<String> = servers.chain(others).collect();
        f.write_str(if all.is_empty() { "no changes" } else { "" })?;
        f.write_str(&all.join("  "))
    }
}

/// A configuration cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The runtime does not start.
    #[error(transparent)]
    Runtime(#[from] StartError),
    /// A profile is invalid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

/// Builds and starts everything in a configuration. A server that cannot be used is listed with the reason.
pub async fn start(
    configuration: Configuration,
    options: AppOptions,
    telemetry: &Telemetry,
) -> Result<App, AppError> {
    let metrics = Arc::new(Metrics::new(MetricsLimits::default()));
    let stores = Stores::open(options.state.as_deref(), &configuration.cache);
    let principals = Principals::default();
    let secrets = KnownSecrets::new(telemetry);
    let known = secrets.add(&configuration.secrets);
    #[cfg(feature = "oauth")]
    let servers = PoolOptions { logins: stores.logins(&options, &secrets), ..options.servers };
    #[cfg(not(feature = "oauth"))]
    let servers = options.servers;
    let factory = ProviderFactory {
        fallback: options.fallback,
        has_no_listings: AtomicBool::new(stores.is_new),
        ..ProviderFactory::new(servers, principals.clone(), Arc::clone(&stores.database) as _)
    };
    let disabled = DisabledServers::default();
    let off = disabled_servers(&configuration);
    disabled.replace(off.clone());
    let (plan, views) = factory.plan(configuration).await;
    // Last, since it may check the whole file, and listings are loaded from it.
    let database = Arc::clone(&stores.database);
    tokio::spawn(async move {
        if let Some(error) = database.problem().await {
            tracing::warn!("State is kept in memory and will be lost at exit: {error}");
        }
    });
    let builder = Runtime::builder()
        .plan(plan.secrets(known).disabled(off))
        .principals(principals)
        .observe(Arc::new(EventLogger::default()))
        .observe(Arc::clone(&metrics) as _)
        .spans(telemetry.spans());
    let runtime = stores.configure(builder).start().await?;
    secrets.redact_in(&runtime);
    let gateway = Gateway::new(&runtime, &views)?;
    Ok(App { runtime, gateway, metrics, factory, stores, secrets, disabled, views: Mutex::new(views) })
}

impl App {
    /// Returns the state behind `/api/`.
    pub fn api(&self, info: GatewayInfo) -> Api {
        Api::new(info)
            .runtime(&self.runtime)
            .disabled(self.disabled.clone())
            .metrics(Arc::clone(&self.metrics))
            .outputs(Arc::clone(&self.stores.database) as _)
            .sessions(Arc::clone(&self.stores.database) as _)
            .call_log(Arc::clone(&self.stores.database) as _)
    }

    /// Reason why state is kept in memory instead of on disk, if so.
    pub async fn state_problem(&self) -> Option<String> {
        self.stores.database.problem().await.map(|error| error.to_string())
    }

    /// Returns `true` if the fallback toolbox is the only one.
    pub fn is_fallback_only(&self) -> bool {
        let fallback = self.factory.fallback.as_ref().map(|embedded| embedded.toolbox.as_str());
        matches!(self.runtime.toolboxes().as_slice(), [only] if Some(only.name.as_str()) == fallback)
    }

    /// Replaces the running configuration. Calls in flight finish, unchanged servers keep running, and
    /// clients stay connected and are notified of changes.
    ///
    /// On an error nothing changes. It is an error if the profile `served` no longer exists.
    pub async fn reload(
        &self,
        configuration: Configuration,
        served: Option<&str>,
    ) -> Result<ReloadSummary, AppError> {
        let toolboxes = configuration.toolboxes.keys().cloned().collect();
        let views = ProfileViews::from_settings(&configuration.gateway, &toolboxes)?;
        served.map(|profile| views.check(profile)).transpose()?;
        let known = self.secrets.add(&configuration.secrets);
        let disabled = disabled_servers(&configuration);
        let (plan, settings) = self.factory.plan(configuration).await;
        let prepared = self.runtime.prepare(plan.secrets(known).disabled(disabled.clone())).await?;
        self.gateway.set_views(views);
        let runtime = prepared.apply();
        self.disabled.replace(disabled);
        self.gateway.warm_up_new_servers();
        let mut last = self.views.lock();
        let views = *last != settings;
        *last = settings;
        Ok(ReloadSummary { runtime, views })
    }
}

/// Returns the servers that a configuration disables.
fn disabled_servers(configuration: &Configuration) -> Vec<ServerId> {
    let mut disabled = Vec::new();
    for (toolbox, contents) in &configuration.toolboxes {
        let is_disabled = |entry: &ServerEntry| match entry {
            ServerEntry::Mcp { connection, .. } => !connection.is_enabled,
            ServerEntry::OpenApi { service, .. } => service.enabled == Some(false),
            ServerEntry::Unusable(_) => false,
        };
        let servers = contents.servers.iter().filter(|(_, entry)| is_disabled(entry));
        let id = |server: &ServerName| ServerId { toolbox: toolbox.clone(), server: server.clone() };
        disabled.extend(servers.map(|(server, _)| id(server)));
    }
    disabled
}

/// Secrets of the current and of earlier configurations, and of logins: calls in flight may still use old ones. Clones
/// share them.
#[derive(Clone)]
struct KnownSecrets(Arc<KnownSecretsInner>);

struct KnownSecretsInner {
    /// Oldest first.
    known: Mutex<VecDeque<String>>,
    log: LogRedactor,
    /// Those that the runtime redacts, once it runs.
    runtime: OnceLock<RedactedSecrets>,
}

impl KnownSecrets {
    fn new(telemetry: &Telemetry) -> Self {
        let log = telemetry.log_redactor();
        Self(Arc::new(KnownSecretsInner { known: Mutex::default(), log, runtime: OnceLock::new() }))
    }

    /// Adds secrets, redacts all known ones from the log, and returns them.
    fn add(&self, more: &[Secret]) -> Vec<String> {
        let mut known = self.0.known.lock();
        for secret in more.iter().map(Secret::reveal) {
            known.retain(|other| other != secret);
            known.push_back(secret.to_owned());
        }
        let n_forgotten = known.len().saturating_sub(MAX_SECRETS.max(more.len()));
        known.drain(..n_forgotten);
        self.0.log.redact(&*known);
        known.iter().cloned().collect()
    }

    /// Adds a secret of a login, and redacts it everywhere from now on.
    #[cfg(feature = "oauth")]
    fn add_now(&self, secret: &Secret) {
        if self.0.known.lock().iter().any(|known| known == secret.reveal()) {
            return;
        }
        let known = self.add(std::slice::from_ref(secret));
        if let Some(runtime) = self.0.runtime.get() {
            runtime.replace(&known);
        }
    }

    /// Redacts all known secrets from what a runtime records, also those that are added later.
    fn redact_in(&self, runtime: &Runtime) {
        let redacted = self.0.runtime.get_or_init(|| runtime.redacted_secrets());
        redacted.replace(self.add(&[]));
    }
}

/// Completes when the last known listing of a server is published.
type ListingLoad = BoxFuture<'static, ()>;

/// Creates the providers of a configuration, and reuses unchanged ones.
struct ProviderFactory {
    pool: ServerPool,
    catalogue: Arc<dyn CatalogueStore>,
    /// Set until the first plan if the store is new, so that there is nothing to wait for.
    has_no_listings: AtomicBool,
    clock: WallClock,
    /// Placeholders for unusable servers, by reason.
    unusable: ReuseCache<String>,
    rest: rest::RestProviders,
    agents: agents::AgentProviders,
    services: openapi::OpenApiServices,
    fallback: Option<EmbeddedToolbox>,
    /// Provider of the fallback toolbox, while it is in use.
    embedded: ReuseCache<()>,
}

impl ProviderFactory {
    fn new(servers: PoolOptions, principals: Principals, catalogue: Arc<dyn CatalogueStore>) -> Self {
        Self {
            pool: ServerPool::new(servers).shared_by(principals),
            catalogue,
            has_no_listings: AtomicBool::new(false),
            clock: WallClock::start(),
            unusable: ReuseCache::default(),
            rest: rest::RestProviders::default(),
            agents: agents::AgentProviders::default(),
            services: openapi::OpenApiServices::default(),
            fallback: None,
            embedded: ReuseCache::default(),
        }
    }

    /// Converts a configuration to a runtime plan and gateway settings. Secrets are left out.
    async fn plan(&self, configuration: Configuration) -> (RuntimePlan, GatewaySettings) {
        let Configuration { settings, gateway, toolboxes, providers, sources, .. } = configuration;
        let resolver = ModelResolver::with(providers);
        let mut plan = RuntimePlan::new().settings(settings);
        if let Some(embedded) = self.fallback.clone().filter(|_| sources.is_empty() && toolboxes.is_empty()) {
            let EmbeddedToolbox { toolbox, description, server, tools } = embedded;
            let provider = self.embedded.get((), |()| LocalProvider::new(tools));
            plan = plan.toolbox(&toolbox, description);
            plan = plan.provide(&server, provider);
        }
        let mut listings = Vec::new();
        for toolbox in toolboxes {
            plan = self.with_toolbox(plan, toolbox, &resolver, &mut listings).await;
        }
        if !self.has_no_listings.swap(false, Ordering::Relaxed) {
            // Those of a locked database come later, or not at all.
            let _ = time::timeout(LISTING_LOAD_TIMEOUT, join_all(listings)).await;
        }
        (plan, gateway)
    }

    async fn with_toolbox(
        &self,
        mut plan: RuntimePlan,
        (name, toolbox): (ToolboxName, ToolboxConfig),
        resolver: &ModelResolver,
        listings: &mut Vec<ListingLoad>,
    ) -> RuntimePlan {
        plan = plan.toolbox(name.as_str(), toolbox.description);
        for (server, described) in toolbox.servers {
            let (provider, tools) = match described {
                ServerEntry::Mcp { connection, .. } if !connection.is_enabled => continue,
                ServerEntry::Mcp { connection, tools } => {
                    (self.server(&server, *connection, listings), *tools)
                }
                ServerEntry::OpenApi { service, .. } if service.enabled == Some(false) => continue,
                ServerEntry::OpenApi { service, tools } => {
                    (self.services.service(&name, &server, *service).await, *tools)
                }
                ServerEntry::Unusable(entry) => {
                    (self.unusable(&server, &entry.reason(), entry.fix()), ServerSettings::default())
                }
            };
            plan = plan.provide(server.as_str(), provider).server_settings(tools);
        }
        plan = self.rest.provide(plan, &name, toolbox.rest_tools);
        plan = self.agents.provide(plan, &name, toolbox.agents, resolver);
        toolbox.chains.into_values().fold(plan, RuntimePlan::chain)
    }

    /// Returns a server that lists its tools from the last run until it is connected.
    fn server(
        &self,
        name: &ServerName,
        connection: ResolvedMcpServer,
        listings: &mut Vec<ListingLoad>,
    ) -> Arc<dyn Provider> {
        match self.pool.server(connection) {
            Ok(server) => {
                let loaded = server.cache_listing(Arc::clone(&self.catalogue), self.clock.now());
                listings.push(loaded.boxed());
                Arc::new(server)
            }
            Err(error) => self.unusable(name, &error.to_string(), "Correct its configuration.".to_owned()),
        }
    }

    /// Returns a placeholder for an unusable server; the same one while the reason stays the same.
    fn unusable(&self, server: &ServerName, why: &str, fix: String) -> Arc<dyn Provider> {
        let why = format!("MCP server '{server}' cannot be used: {why}");
        self.unusable.get(why, |why| LocalProvider::unavailable(why.clone(), fix).of_kind(ToolKind::Mcp))
    }
}

/// Stores of state: on disk if there is a directory, or else in memory.
struct Stores {
    database: Arc<Database>,
    cache: Arc<dyn CacheStore>,
    slots: Arc<dyn SlotStore>,
    /// The database did not exist before.
    is_new: bool,
}

impl Stores {
    /// Opens the database in the background: nothing waits for the disk until it is needed.
    fn open(folder: Option<&Path>, cache: &CacheSettings) -> Self {
        let limits = DatabaseLimits { cache: cache_limits(cache), ..DatabaseLimits::default() };
        let Some(folder) = folder else {
            return Self {
                database: Arc::new(Database::in_memory_with(limits)),
                cache: Arc::new(memory::MemoryCache::new(limits.cache)),
                slots: Arc::new(memory::MemorySlots::new(limits.slots)),
                is_new: true,
            };
        };
        let path = folder.join(DATABASE);
        let is_new = !path.exists();
        let database = Arc::new(Database::open_in_background(&path, limits));
        Self {
            cache: match cache.backend {
                CacheBackend::Sqlite => Arc::clone(&database) as _,
                CacheBackend::Memory => Arc::new(memory::MemoryCache::new(limits.cache)),
            },
            slots: Arc::clone(&database) as _,
            database,
            is_new,
        }
    }

    /// Returns the logins at servers; `None` if the system provides no random bytes for their key.
    #[cfg(feature = "oauth")]
    fn logins(&self, options: &AppOptions, secrets: &KnownSecrets) -> Option<Arc<dyn ServerLogins>> {
        let logins = options.logins.clone().or_else(|| self.own_logins(options))?;
        let secrets = secrets.clone();
        logins.observe(Arc::new(move |secret: &Secret| secrets.add_now(secret)));
        Some(logins)
    }

    #[cfg(feature = "oauth")]
    fn own_logins(&self, options: &AppOptions) -> Option<Arc<Logins>> {
        let credentials = Arc::clone(&self.database) as _;
        let in_folder = || options.state.as_deref().map(|folder| Arc::new(SecretStorage::open(folder)));
        let vault = match options.secrets.clone().or_else(in_folder) {
            Some(storage) if options.state.is_some() => CredentialVault::with_storage(credentials, storage),
            _ => CredentialVault::new(credentials, SealingKey::random()?),
        };
        Some(Arc::new(Logins::new(vault, Arc::clone(&self.slots))))
    }

    fn configure(&self, builder: RuntimeBuilder) -> RuntimeBuilder {
        builder
            .cache(Arc::clone(&self.cache))
            .outputs(Arc::clone(&self.database) as _)
            .sessions(Arc::clone(&self.database) as _)
            .call_log(Arc::clone(&self.database) as _)
            .slots(Arc::clone(&self.slots))
    }
}

/// Limits of the cache.
fn cache_limits(cache: &CacheSettings) -> CacheLimits {
    let CacheSettings { backend: _, max_entries, max_bytes, max_entry_bytes } = *cache;
    CacheLimits { max_entries, max_bytes, max_entry_bytes }
}
