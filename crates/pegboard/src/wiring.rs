//! A configuration put together into something that runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pegboard_config::{Configuration, Server, Toolbox};
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::provider::{Provider, ToolKind, Unusable};
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::mcp::Secret;
use pegboard_core::store::StoreError;
use pegboard_gateway::{Gateway, ProfileError};
use pegboard_providers::mcp::{Pool, PoolOptions};
use pegboard_runtime::metrics::{Limits, Metrics};
use pegboard_runtime::{Builder, Runtime, StartError};
use pegboard_stores::limits::{CacheLimits, OutputLimits, SessionLimits, SlotLimits, TraceLimits};
use pegboard_stores::memory;
use pegboard_stores::sqlite::Database;

use crate::telemetry::{Log, Telemetry};

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
    let Configuration { settings, gateway, toolboxes, secrets, sources: _, problems: _ } = configuration;
    let secrets: Vec<String> = secrets.iter().map(|secret| Secret::reveal(secret).to_owned()).collect();
    telemetry.redact(&secrets);
    let metrics = Arc::new(Metrics::new(Limits::default()));
    let pool = Pool::new(surroundings.servers);
    let mut builder = Runtime::builder()
        .settings(settings)
        .secrets(secrets)
        .observe(Arc::new(Log))
        .observe(Arc::clone(&metrics) as _)
        .spans(telemetry.spans());
    builder = with_stores(builder, surroundings.state.as_deref()).await;
    for (name, toolbox) in toolboxes {
        builder = with_toolbox(builder, &name, toolbox, &pool);
    }
    let runtime = builder.start().await?;
    let gateway = Gateway::new(&runtime, &gateway)?;
    Ok(Board { runtime, gateway, metrics })
}

fn with_toolbox(mut builder: Builder, name: &ToolboxName, toolbox: Toolbox, pool: &Pool) -> Builder {
    builder = builder.toolbox(name.as_str(), toolbox.description);
    for (server, described) in toolbox.servers {
        let (provider, tools) = match described {
            Server::Mcp { connection, .. } if !connection.is_enabled => continue,
            Server::Mcp { connection, tools } => match pool.server(*connection) {
                Ok(lease) => (Arc::new(lease) as Arc<dyn Provider>, *tools),
                Err(error) => unusable(&server, &error.to_string()),
            },
            described @ Server::Unusable { .. } => {
                unusable(&server, &described.obstacle().unwrap_or_default())
            }
        };
        builder = builder.provide_with(server.as_str(), provider, tools);
    }
    toolbox.chains.into_values().fold(builder, Builder::chain)
}

fn unusable(server: &ServerName, why: &str) -> (Arc<dyn Provider>, ServerSettings) {
    let why = format!("MCP server '{server}' cannot be used: {why}");
    let fix = "Correct its configuration, and start again.";
    (Arc::new(Unusable::new(ToolKind::Mcp, why, fix)), ServerSettings::default())
}

/// With places for state: on disk if there is one, and in memory otherwise.
async fn with_stores(builder: Builder, state: Option<&Path>) -> Builder {
    let database = match state {
        Some(folder) => match open(folder).await {
            Ok(database) => Some(Arc::new(database)),
            Err(error) => {
                tracing::warn!("State is kept in memory and lost at the end: {error}");
                None
            }
        },
        None => None,
    };
    match database {
        Some(database) => builder
            .cache(Arc::clone(&database) as _)
            .outputs(Arc::clone(&database) as _)
            .sessions(Arc::clone(&database) as _)
            .traces(Arc::clone(&database) as _)
            .slots(database),
        None => builder
            .cache(Arc::new(memory::Cache::new(CacheLimits::default())))
            .outputs(Arc::new(memory::Outputs::new(OutputLimits::default())))
            .sessions(Arc::new(memory::Sessions::new(SessionLimits::default())))
            .traces(Arc::new(memory::Traces::new(TraceLimits::default())))
            .slots(Arc::new(memory::Slots::new(SlotLimits::default()))),
    }
}

/// The database of a folder, which is made if it is not there.
async fn open(folder: &Path) -> Result<Database, StoreError> {
    let path = folder.join("pegboard.db");
    let place = path.display().to_string();
    let opened = tokio::task::spawn_blocking(move || Database::open(&path)).await;
    opened.unwrap_or_else(|error| Err(StoreError::Unusable { place, reason: error.to_string() }))
}
