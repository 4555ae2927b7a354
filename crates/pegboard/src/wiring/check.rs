//! Dry run: checks that a configuration would start.

use std::sync::Arc;

use pegboard_config::{AgentEntry, Configuration};
use pegboard_core::owner::Principals;
use pegboard_gateway::ProfileViews;
use pegboard_providers::mcp::PoolOptions;
use pegboard_runtime::requests::ServerId;
use pegboard_stores::sqlite::Database;

use super::{AppError, ProviderFactory};

/// Findings about a configuration that would start.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Unusable servers, each with the reason.
    pub unusable: Vec<(ServerId, String)>,
    /// Problems with a part of a server's tools.
    pub warnings: Vec<(ServerId, String)>,
}

/// Builds everything that [`start`](super::start) would, and starts nothing. OpenAPI documents in files are
/// read; problems that the configuration reports itself are not repeated.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("pegboard.yaml");
/// std::fs::write(&path, "openapiSpecs: {shop: {spec: gone.yaml}}")?;
/// let configuration = pegboard::config::load(&path, &|_| None)?;
/// let report = pegboard::wiring::check(configuration).await?;
/// assert_eq!(report.unusable[0].0.server.as_str(), "shop");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub async fn check(mut configuration: Configuration) -> Result<CheckReport, AppError> {
    for toolbox in configuration.toolboxes.values_mut() {
        toolbox.servers.retain(|_, server| server.unusable().is_none());
        toolbox.rest_tools.retain(|_, tool| tool.unusable().is_none());
        toolbox.agents.retain(|_, agent| !matches!(agent, AgentEntry::Unusable { .. }));
    }
    ProfileViews::from_settings(&configuration.gateway, &configuration.toolboxes.keys().cloned().collect())?;
    let catalogue = Arc::new(Database::in_memory());
    let (plan, _) = ProviderFactory::new(PoolOptions::default(), Principals::default(), catalogue)
        .plan(configuration)
        .await;
    if let Some(problem) = plan.problem() {
        return Err(problem.into());
    }
    let mut report = CheckReport::default();
    for (id, provider) in plan.providers() {
        if let Some(reason) = provider.state().borrow().reason() {
            report.unusable.push((id.clone(), reason.into_owned()));
        }
        let warnings = provider.offering().borrow().warnings.clone();
        report.warnings.extend(warnings.into_iter().map(|warning| (id.clone(), warning)));
    }
    Ok(report)
}
