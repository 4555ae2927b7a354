//! A gateway in this process, for the duration of one command.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use pegboard::config::{ConfigProblem, Configuration, Severity};
use pegboard::gateway::api::{self, ApiScope, GatewayInfo};
use pegboard::providers::mcp::PoolOptions;
use pegboard::telemetry::Telemetry;
use pegboard::wire::http::server::HttpServerOptions;
use pegboard::wiring::logins::Logins;
use pegboard::wiring::{App, AppOptions, DATABASE};

use crate::cli::{CliError, Globals};
use crate::commands::serve::supervisor;
use crate::logins;
use crate::paths::{self, ConfigSelection};
use crate::trust::TrustedConfiguration;

/// Grace period for servers at the end of the command.
const GRACE: Duration = Duration::from_secs(2);

/// A gateway in this process.
pub(super) struct InProcessGateway {
    app: App,
    routes: Router,
}

impl InProcessGateway {
    /// Starts a gateway with all configured tools. Servers start on demand. Prints the problems of the configuration
    /// that are at least this severe.
    pub(super) async fn with_tools(
        globals: &Globals,
        telemetry: &Telemetry,
        printed: Severity,
    ) -> Result<Self, CliError> {
        let selection = ConfigSelection::from_globals(globals)?;
        let configuration = selection.require_trusted().await?;
        let problems = &configuration.get().problems;
        let is_printed =
            |problem: &&ConfigProblem| printed == Severity::Warning || problem.severity == printed;
        paths::print_problems(problems.iter().filter(is_printed));
        let state = paths::state_dir(globals.state.as_deref());
        Self::start((state, None), telemetry, configuration, selection.files().all).await
    }

    /// Starts a gateway without tools, for access to stored records. Creates no files.
    pub(super) async fn with_records(globals: &Globals, telemetry: &Telemetry) -> Result<Self, CliError> {
        let state = state_with_records(globals.state.as_deref())?;
        let gateway = Self::start(
            (state, None),
            telemetry,
            TrustedConfiguration::built_in(Configuration::default()),
            Vec::new(),
        )
        .await?;
        match gateway.app.state_problem().await {
            None => Ok(gateway),
            Some(why) => Err(CliError::system(format!("cannot read stored records: {why}"))
                .hint("set another directory with --state, or run as the owner of this one")),
        }
    }

    pub(super) async fn start(
        (state, logins): (Option<PathBuf>, Option<Arc<Logins>>),
        telemetry: &Telemetry,
        configuration: TrustedConfiguration,
        files: Vec<PathBuf>,
    ) -> Result<Self, CliError> {
        let servers = PoolOptions { supervisor: supervisor(), ..PoolOptions::default() };
        let secrets = logins::key_storage(state.as_deref())?;
        let options = AppOptions { state, servers, secrets, logins, ..AppOptions::default() };
        let app = configuration.start(options, telemetry).await?;
        let about = GatewayInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            configuration: files,
            ..GatewayInfo::default()
        };
        let routes = api::router(&app.api(about), ApiScope::All, &HttpServerOptions::default());
        Ok(Self { app, routes })
    }

    pub(super) fn app(&self) -> &App {
        &self.app
    }

    pub(super) fn routes(&self) -> Router {
        self.routes.clone()
    }

    pub(super) async fn close(self) {
        let _ = self.app.runtime.shut_down(GRACE).await;
    }
}

/// State directory, if it holds a database.
fn state_with_records(named: Option<&Path>) -> Result<Option<PathBuf>, CliError> {
    let Some(folder) = paths::state_dir(named) else {
        return Err(CliError::usage("no state directory").hint("set one with --state"));
    };
    if folder.join(DATABASE).exists() {
        return Ok(Some(folder));
    }
    if named.is_some() {
        let message = format!("no stored records in {}", folder.display());
        return Err(CliError::not_found("not_found", message).hint("check --state"));
    }
    Ok(None)
}
