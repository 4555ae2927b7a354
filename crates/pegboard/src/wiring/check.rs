//! Whether a configuration would run, without running it.

use std::sync::Arc;

use pegboard_config::{AgentEntry, Configuration, RestEntry, Server};
use pegboard_core::provider::ServerState;
use pegboard_gateway::Views;
use pegboard_providers::mcp::PoolOptions;
use pegboard_runtime::requests::ServerId;
use pegboard_stores::limits::CatalogueLimits;
use pegboard_stores::memory;

use super::{BoardError, Workshop};

/// What is worth saying about a configuration that would run.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// The servers that could not be used, and why.
    pub unusable: Vec<(ServerId, String)>,
    /// What is wrong with a part of what a server would offer.
    pub warnings: Vec<(ServerId, String)>,
}

/// Puts a configuration together as [`start`](super::start) does, and starts nothing of it. Documents that are files are
/// read; what the configuration itself says is wrong is not said again.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("pegboard.yaml");
/// std::fs::write(&path, "openapiSpecs: {shop: {spec: gone.yaml}}")?;
/// let configuration = pegboard::config::load(&path, &|_| None)?;
/// let looked = pegboard::wiring::check(configuration).await?;
/// assert_eq!(looked.unusable[0].0.server.as_str(), "shop");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub async fn check(mut configuration: Configuration) -> Result<Looked, BoardError> {
    for toolbox in configuration.toolboxes.values_mut() {
        toolbox.servers.retain(|_, server| !matches!(server, Server::Unusable { .. }));
        toolbox.rest_tools.retain(|_, tool| !matches!(tool, RestEntry::Unusable { .. }));
        toolbox.agents.retain(|_, agent| !matches!(agent, AgentEntry::Unusable { .. }));
    }
    Views::of(&configuration.gateway, &configuration.toolboxes.keys().cloned().collect())?;
    let catalogue = Arc::new(memory::Catalogue::new(CatalogueLimits::default()));
    let (plan, _) = Workshop::new(PoolOptions::default(), catalogue).plan(configuration).await;
    if let Some(problem) = plan.problem() {
        return Err(problem.into());
    }
    let mut looked = Looked::default();
    for (place, provider) in plan.providers() {
        if let ServerState::Failed { why, .. } = &*provider.state().borrow() {
            looked.unusable.push((place.clone(), why.clone()));
        }
        let warnings = provider.offer().borrow().warnings.clone();
        looked.warnings.extend(warnings.into_iter().map(|warning| (place.clone(), warning)));
    }
    Ok(looked)
}
