//! A gateway in this process, for as long as one command needs it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use pegboard::config::Configuration;
use pegboard::gateway::api::{self, About, Principal};
use pegboard::providers::mcp::PoolOptions;
use pegboard::telemetry::Telemetry;
use pegboard::wire::http::server::HttpServerOptions;
use pegboard::wiring::{self, Board, DATABASE, Surroundings};

use crate::cli::{Failure, Globals};
use crate::commands::serve::supervisor;
use crate::place::{self, Wanted};

/// How long servers may take to end when the command does.
const GRACE: Duration = Duration::from_secs(2);

/// A gateway in this process.
pub(super) struct Here {
    board: Board,
    routes: Router,
}

impl Here {
    /// One with every tool of the configuration. Servers are started when they are needed.
    pub(super) async fn with_tools(globals: &Globals, telemetry: &Telemetry) -> Result<Self, Failure> {
        let wanted = Wanted::of(globals)?;
        let configuration = wanted.read_some()?;
        place::tell_problems(&configuration);
        let state = place::state(globals.state.as_deref());
        Self::start(state, telemetry, configuration, wanted.paths()).await
    }

    /// One without tools, which knows what was written down. Where nothing was, nothing is made.
    pub(super) async fn with_records(globals: &Globals, telemetry: &Telemetry) -> Result<Self, Failure> {
        let state = recorded(globals.state.as_deref())?;
        let here = Self::start(state, telemetry, Configuration::default(), Vec::new()).await?;
        match here.board.state_problem() {
            None => Ok(here),
            Some(why) => Err(Failure::system(format!("what was written down cannot be read: {why}"))
                .hint("name another folder with --state, or ask as the user whose it is")),
        }
    }

    async fn start(
        state: Option<PathBuf>,
        telemetry: &Telemetry,
        configuration: Configuration,
        files: Vec<PathBuf>,
    ) -> Result<Self, Failure> {
        let servers = PoolOptions { supervisor: supervisor() };
        let surroundings = Surroundings { state, servers, ..Surroundings::default() };
        let board = Box::pin(wiring::start(configuration, surroundings, telemetry))
            .await
            .map_err(|error| Failure::configuration(error.to_string()))?;
        let about =
            About { version: env!("CARGO_PKG_VERSION").to_owned(), configuration: files, ..About::default() };
        let routes = api::router(&board.api(about), Principal::Everybody, &HttpServerOptions::default());
        Ok(Self { board, routes })
    }

    pub(super) fn routes(&self) -> Router {
        self.routes.clone()
    }

    pub(super) async fn close(self) {
        let _ = self.board.runtime.shut_down(GRACE).await;
    }
}

/// The folder with what was written down, if anything was.
fn recorded(named: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let Some(folder) = place::state(named) else {
        return Err(Failure::usage("nobody says where state is kept").hint("name the folder with --state"));
    };
    if folder.join(DATABASE).exists() {
        return Ok(Some(folder));
    }
    if named.is_some() {
        let message = format!("nothing was written down in {}", folder.display());
        return Err(Failure::not_found("not_found", message).hint("check what --state names"));
    }
    Ok(None)
}
