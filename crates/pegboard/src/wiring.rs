//! A configuration put together into something that runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegboard_config::{Configuration, Server, Toolbox};
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::provider::{Local, Provider, ToolKind};
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::mcp::{Secret, Settings};
use pegboard_core::store::{CatalogueStore, StoreError};
use pegboard_gateway::{Gateway, ProfileError};
use pegboard_providers::mcp::{Pool, PoolOptions};
use pegboard_runtime::metrics::{Limits, Metrics};
use pegboard_runtime::wall::WallClock;
use pegboard_runtime::{Builder, Runtime, StartError};
use pegboard_stores::limits::{
    CacheLimits, CatalogueLimits, OutputLimits, SessionLimits, SlotLimits, TraceLimits,
};
use pegboard_stores::memory;
use pegboard_stores::sqlite::Database;

use crate::telemetry::{Log, Telemetry};

mod rest;

/// What a configuration does not say, because it is not the same for everybody who runs it.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Where state is kept; `None` for memory.
    pub state: Option<PathBuf>,
    /// What all servers have in common.
    pub servers: PoolOptions,
}

/// Something that runs.
pub struct Board {
    /// What carries out calls.
    pub runtime: Runtime,
    /// What clients see of it.
    pub gateway: Gateway,
    /// What happened, in numbers.
    pub metrics: Arc<Metrics>,
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
    // Nobody thinks here: the models are for whoever runs agents.
    let Configuration { settings, gateway, toolboxes, secrets, providers: _, sources: _, problems: _ } =
        configuration;
    let secrets: Vec<String> = secrets.iter().map(|secret| Secret::reveal(secret).to_owned()).collect();
    telemetry.redact(&secrets);
    let metrics = Arc::new(Metrics::new(Limits::default()));
    let stores = Stores::open(surroundings.state.as_deref()).await;
    let workshop = Workshop {
        pool: Pool::new(surroundings.servers),
        catalogue: stores.catalogue(),
        clock: WallClock::start(),
    };
    let mut builder = Runtime::builder()
        .settings(settings)
        .secrets(secrets)
        .observe(Arc::new(Log))
        .observe(Arc::clone(&metrics) as _)
        .spans(telemetry.spans());
    builder = stores.give_to(builder);
    for (name, toolbox) in toolboxes {
        builder = workshop.with_toolbox(builder, &name, toolbox).await;
    }
    let runtime = builder.start().await?;
    let gateway = Gateway::new(&runtime, &gateway)?;
    Ok(Board { runtime, gateway, metrics })
}

/// What servers are made with.
struct Workshop {
    pool: Pool,
    catalogue: Arc<dyn CatalogueStore>,
    clock: WallClock,
}

impl Workshop {
    async fn with_toolbox(&self, mut builder: Builder, name: &ToolboxName, toolbox: Toolbox) -> Builder {
        builder = builder.toolbox(name.as_str(), toolbox.description);
        for (server, described) in toolbox.servers {
            let (provider, tools) = match described {
                Server::Mcp { connection, .. } if !connection.is_enabled => continue,
                Server::Mcp { connection, tools } => (self.server(&server, *connection).await, *tools),
                described @ Server::Unusable { .. } => {
                    (unusable(&server, &described.obstacle().unwrap_or_default()), ServerSettings::default())
                }
            };
            builder = builder.provide_with(server.as_str(), provider, tools);
        }
        builder = rest::provide(builder, toolbox.rest_tools);
        toolbox.chains.into_values().fold(builder, Builder::chain)
    }

    /// A server that offers what it offered last until it answers.
    async fn server(&self, name: &ServerName, connection: Settings) -> Arc<dyn Provider> {
        match self.pool.server(connection) {
            Ok(lease) => {
                lease.recall(Arc::clone(&self.catalogue), self.clock.now()).await;
                Arc::new(lease)
            }
            Err(error) => unusable(name, &error.to_string()),
        }
    }
}

fn unusable(server: &ServerName, why: &str) -> Arc<dyn Provider> {
    let why = format!("MCP server '{server}' cannot be used: {why}");
    let provider = Local::unusable(why, "Correct its configuration, and start again.");
    Arc::new(provider.of_kind(ToolKind::Mcp))
}

/// Places for state: on disk if there is one, and in memory otherwise.
enum Stores {
    Disk(Arc<Database>),
    Memory,
}

impl Stores {
    async fn open(folder: Option<&Path>) -> Self {
        let Some(folder) = folder else { return Self::Memory };
        match open(folder).await {
            Ok(database) => Self::Disk(Arc::new(database)),
            Err(error) => {
                tracing::warn!("State is kept in memory and lost at the end: {error}");
                Self::Memory
            }
        }
    }

    fn catalogue(&self) -> Arc<dyn CatalogueStore> {
        match self {
            Self::Disk(database) => Arc::clone(database) as _,
            Self::Memory => Arc::new(memory::Catalogue::new(CatalogueLimits::default())),
        }
    }

    fn give_to(self, builder: Builder) -> Builder {
        match self {
            Self::Disk(database) => builder
                .cache(Arc::clone(&database) as _)
                .outputs(Arc::clone(&database) as _)
                .sessions(Arc::clone(&database) as _)
                .traces(Arc::clone(&database) as _)
                .slots(database),
            Self::Memory => builder
                .cache(Arc::new(memory::Cache::new(CacheLimits::default())))
                .outputs(Arc::new(memory::Outputs::new(OutputLimits::default())))
                .sessions(Arc::new(memory::Sessions::new(SessionLimits::default())))
                .traces(Arc::new(memory::Traces::new(TraceLimits::default())))
                .slots(Arc::new(memory::Slots::new(SlotLimits::default()))),
        }
    }
}

/// The database of a folder, which is made if it is not there.
async fn open(folder: &Path) -> Result<Database, StoreError> {
    let path = folder.join("pegboard.db");
    let place = path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || Database::open(&path)).await;
    opened.unwrap_or_else(|error| Err(StoreError::Unusable { place, reason: error.to_string() }))
}
