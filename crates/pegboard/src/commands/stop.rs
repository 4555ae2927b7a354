//! `pegboard stop` and `pegboard restart`: end the running gateway, or start it or one of its servers again.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use super::logs::find_server;
use crate::api_client::{ApiClient, ApiPath, ServerView, view};
use crate::cli::format::plural;
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, ExitReason, Globals, print};

/// Time limit for a gateway to end; calls in flight have five seconds of it.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for a gateway to be back.
const RESTART_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Arguments of `pegboard stop`.
#[derive(Args)]
pub(crate) struct StopArgs {}

/// Arguments of `pegboard restart`.
#[derive(Args)]
pub(crate) struct RestartArgs {
    /// Server to restart instead of the whole gateway: its name, or toolbox/server
    server: Option<String>,
}

impl StopArgs {
    /// Stops the gateway and waits until its process has ended.
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        let status = api.get(&ApiPath::new(&["status"])).await?;
        let ended = api.watch_end().await?;
        api.post(&ApiPath::new(&["stop"]), &RawJson::empty_object()).await?;
        let spinner = Spinner::new(globals, "Waiting for calls in flight");
        if spinner.during(time::timeout(STOP_TIMEOUT, ended)).await.is_err() {
            return Err(too_slow("the gateway has not ended", STOP_TIMEOUT));
        }
        let document = json!({"pid": status["pid"], "clients": status["clients"]});
        print::document(globals.data_format(), &document, || {
            let n_clients = status["clients"].as_array().map_or(0, Vec::len);
            let clients = match n_clients {
                0 => String::new(),
                1 => "; its client starts another when it needs one".to_owned(),
                n_clients => format!("; its {n_clients} clients start another when they need one"),
            };
            format!("Stopped  pid {}{clients}", status["pid"])
        });
        Ok(ExitCode::SUCCESS)
    }
}

impl RestartArgs {
    /// Restarts the gateway and waits until it is back.
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        if let Some(server) = &self.server {
            return restart_server(globals, api, server).await;
        }
        let before = api.get(&ApiPath::new(&["status"])).await?;
        api.post(&ApiPath::new(&["restart"]), &RawJson::empty_object()).await?;
        let spinner = Spinner::new(globals, "Restarting the gateway");
        let after = spinner.during(restarted(api, &before)).await?;
        print::document(globals.data_format(), &after, || format!("Restarted  pid {}", after["pid"]));
        Ok(ExitCode::SUCCESS)
    }
}

/// Restarts a server of the gateway, and waits until it is ready or has failed.
async fn restart_server(globals: &Globals, api: &ApiClient, name: &str) -> Result<ExitCode, CliError> {
    let servers: Vec<ServerView> = view(&api.get(&ApiPath::new(&["servers"])).await?, "servers")?;
    let server = find_server(&servers, name)?;
    let address = server.address();
    if server.is_disabled() {
        let message = format!("{address} is disabled");
        let hint = format!("enable it with pegboard enable {}", server.server);
        return Err(CliError::from_kind(ErrorKind::ServerUnavailable, message).hint(hint));
    }
    let spinner = Spinner::new(globals, format!("Restarting {address}"));
    let path = ApiPath::new(&["servers", &server.toolbox, &server.server, "restart"]);
    let body = RawJson::empty_object();
    let after = spinner.during(api.post(&path, &body)).await?;
    let server: ServerView = view(&json!({"server": after}), "server")?;
    if let Some(error) = &server.error {
        let failure = CliError::from_kind(ErrorKind::ServerUnavailable, error.clone());
        return Err(
            failure.hint(server.hint.unwrap_or_else(|| format!("see pegboard logs {}", server.server)))
        );
    }
    print::document(globals.data_format(), &after, || {
        let pid = server.pid.map(|pid| format!("  pid {pid}")).unwrap_or_default();
        format!("Restarted {address}  {}{pid}", plural(server.tools, "tool"))
    });
    Ok(ExitCode::SUCCESS)
}

/// Waits until a gateway has started again; returns its status.
async fn restarted(api: &ApiClient, before: &Value) -> Result<Value, CliError> {
    let end = Instant::now() + RESTART_TIMEOUT;
    loop {
        let status = api.get(&ApiPath::new(&["status"])).await;
        if let Ok(status) = status
            && status["startedAt"] != before["startedAt"]
        {
            return Ok(status);
        }
        if Instant::now() >= end {
            return Err(too_slow("the gateway is not back", RESTART_TIMEOUT).hint("see pegboard logs"));
        }
        time::sleep(POLL_INTERVAL).await;
    }
}

fn too_slow(what: &str, timeout: Duration) -> CliError {
    let message = format!("{what} after {} s", timeout.as_secs());
    CliError::new(ExitReason::TimedOut, "timeout", message)
}
