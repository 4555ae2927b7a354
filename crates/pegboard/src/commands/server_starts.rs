//! Starts servers for a command, and waits for them with a spinner that names them.

use std::process::ExitCode;
use std::time::Duration;

use pegboard::duration::HumanDuration;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::json;
use tokio::time;

use crate::api_client::{ApiClient, ApiPath, ServerView, view};
use crate::cli::format::plural;
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, Globals};

/// Interval between two looks at the servers that are starting.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Outcome of starting servers.
#[must_use]
pub(super) struct StartedServers {
    /// Servers that were still starting when `--timeout` expired, and its value.
    late: Option<(Vec<String>, HumanDuration)>,
}

impl StartedServers {
    /// Returns the exit code of a command that has printed what it found.
    pub(super) fn finish(self) -> Result<ExitCode, CliError> {
        let Some((late, timeout)) = self.late else { return Ok(ExitCode::SUCCESS) };
        let message = format!("after {timeout} still starting: {}", late.join(", "));
        Err(CliError::from_kind(ErrorKind::Timeout, message)
            .hint("increase --timeout, or omit it to wait as long as each server's startTimeout"))
    }
}

/// Starts the servers that a command needs, and waits until each is ready or has failed: as long as its own timeouts
/// allow, or until `--timeout`. A running gateway starts only those with unknown tools.
pub(super) async fn start_servers(
    globals: &Globals,
    api: &ApiClient,
    is_wanted: impl Fn(&ServerView) -> bool,
) -> Result<StartedServers, CliError> {
    let is_unlisted = |server: &ServerView| api.is_in_process() || server.tools == 0;
    let is_needed = |server: &ServerView| is_pending(server) && is_unlisted(server) && is_wanted(server);
    let mut waiting: Vec<String> =
        servers(api).await?.iter().filter(|server| is_needed(server)).map(ServerView::address).collect();
    if waiting.is_empty() {
        return Ok(StartedServers { late: None });
    }
    let spinner = Spinner::new(globals, message(&waiting));
    let request = RawJson::from(json!({"servers": waiting}));
    let path = ApiPath::new(&["servers", "open"]);
    let opening = api.post(&path, &request);
    let watching = async {
        loop {
            time::sleep(POLL_INTERVAL).await;
            let Ok(servers) = servers(api).await else { continue };
            let is_waiting =
                |name: &String| servers.iter().any(|server| is_pending(server) && server.address() == *name);
            waiting.retain(is_waiting);
            if !waiting.is_empty() {
                spinner.set_message(message(&waiting));
            }
        }
    };
    let timeout = globals.timeout;
    let settled = spinner.during(async {
        tokio::select! {
            opened = opening => Some(opened),
            () = watching => None,
            () = sleep_or_pend(timeout) => None,
        }
    });
    match (settled.await, timeout) {
        (Some(opened), _) => opened.map(|_| StartedServers { late: None }),
        (None, timeout) => Ok(StartedServers { late: timeout.map(|timeout| (waiting, timeout)) }),
    }
}

/// Sleeps for a time; forever if there is none.
async fn sleep_or_pend(time: Option<HumanDuration>) {
    match time {
        Some(time) => time::sleep(time.into()).await,
        None => std::future::pending().await,
    }
}

/// Returns `true` until a server is ready or has failed.
pub(super) fn is_pending(server: &ServerView) -> bool {
    matches!(server.state.as_str(), "idle" | "starting")
}

async fn servers(api: &ApiClient) -> Result<Vec<ServerView>, CliError> {
    view(&api.get(&ApiPath::new(&["servers"])).await?, "servers")
}

fn message(waiting: &[String]) -> String {
    let n_waiting = u64::try_from(waiting.len()).unwrap_or(u64::MAX);
    format!("Starting {}: {}", plural(n_waiting, "server"), waiting.join(", "))
}
