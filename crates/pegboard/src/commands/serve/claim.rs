//! The claim of a gateway to its configuration: clients over stdio share the gateway that has it.

use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use pegboard::config::Configuration;
use pegboard::gateway::Gateway;
use pegboard::gateway::api::{AttachedClients, GatewayMode};
use pegboard::runtime::Runtime;
use pegboard::settings::DaemonMode;
use pegboard::telemetry::write_stderr;
use serde_json::{Value, json};
use tokio::time::{self, Instant};

use super::ServeArgs;
use super::activity::Activity;
use super::attached::PassedClients;
use super::claim_error::{ClaimError, RunningGateway};
use super::gateway_lock::{GatewayLock, LockAttempt, remove_stale_locks};
use super::last_logs::LastLogs;
use super::log_file::LogFile;
use crate::api_client::{ApiClient, ApiPath};
use crate::cli::{CliError, ExitReason, Globals};
use crate::paths::{self, ConfigSelection, PrivateDir};

/// Time limit for another gateway to give up the configuration.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(20);
/// Interval between attempts to take the lock.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// Interval between checks of the size of the log, and between saves of those of the servers.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Claim of a gateway to its configuration. Dropping it gives the configuration up.
pub(super) struct GatewayClaim {
    identity: String,
    /// `None` for a gateway that is not shared.
    lock: Option<GatewayLock>,
    mode: GatewayMode,
    log: Option<LogFile>,
    /// Logs of its servers; `None` without a configuration or a state directory.
    server_logs: Option<LastLogs>,
    activity: Activity,
    list: AttachedClients,
    clients: Option<PassedClients>,
}

impl GatewayClaim {
    /// Claims the configuration, unless the gateway is for one client only. A gateway in the background gives it up; it
    /// is an error if another one has it.
    pub(super) async fn take(
        serve: &ServeArgs,
        globals: &Globals,
        selection: &ConfigSelection,
        configuration: &Configuration,
    ) -> Result<Self, ClaimError> {
        let state = paths::state_dir(globals.state.as_deref());
        let is_empty = configuration.sources.is_empty() && configuration.toolboxes.is_empty();
        let is_shared = !serve.stdio && !globals.no_daemon && !is_empty;
        let is_shared = is_shared && configuration.settings.daemon == DaemonMode::Auto;
        let mode = if serve.stdio { GatewayMode::Stdio } else { GatewayMode::Foreground };
        let mut claim = Self {
            identity: selection.identity(),
            lock: None,
            mode,
            log: None,
            server_logs: None,
            activity: Activity::default(),
            list: AttachedClients::default(),
            clients: None,
        };
        claim.server_logs =
            state.as_deref().filter(|_| !is_empty).map(|state| LastLogs::new(state, &claim.identity));
        let Some(state) = state.filter(|_| is_shared) else { return Ok(claim) };
        let folder = paths::socket_dir(&state);
        let system =
            |error: std::io::Error| CliError::system(format!("cannot lock the configuration: {error}"));
        if let Some(client) = &serve.background {
            let inherited = GatewayLock::inherit(&folder, &claim.identity).map_err(system)?;
            claim.lock = Some(match inherited {
                Some(lock) => lock,
                None => wait_for_lock(&folder, &claim.identity, selection).await?,
            });
            let timeout = Duration::from(configuration.settings.daemon_idle_timeout);
            let idle_timeout_ms = u64::try_from(timeout.as_millis()).ok().filter(|millis| *millis > 0);
            claim.mode = GatewayMode::Background { client: client.clone(), idle_timeout_ms };
            claim.log = Some(LogFile::new(&state, &claim.identity));
        } else {
            claim.lock = Some(wait_for_lock(&folder, &claim.identity, selection).await?);
            LogFile::new(&state, &claim.identity).end();
        }
        remove_stale_locks(folder.path());
        Ok(claim)
    }

    /// The way in which the gateway was started.
    pub(super) fn mode(&self) -> GatewayMode {
        self.mode.clone()
    }

    /// Clients over stdio.
    pub(super) fn list(&self) -> AttachedClients {
        self.list.clone()
    }

    /// File with the gateway's own log.
    pub(super) fn log(&self) -> Option<PathBuf> {
        self.log.as_ref().map(|log| log.path().to_owned())
    }

    /// Saves the logs of the servers, to be read when no gateway runs.
    pub(super) fn save_logs(&self, runtime: &Runtime) {
        if let Some(logs) = &self.server_logs {
            logs.save(runtime);
        }
    }

    /// Use of the gateway by clients and commands.
    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Returns the route that accepts clients over stdio, if the gateway is shared.
    pub(super) fn route(&mut self, gateway: &Gateway) -> Router {
        if self.lock.is_none() {
            return Router::new();
        }
        let (identity, list) = (self.identity.clone(), self.list.clone());
        let clients = PassedClients::new(gateway, identity, list, self.activity.clone());
        self.clients.insert(clients).route()
    }

    /// Tells clients that the gateway accepts them.
    pub(super) fn publish(&mut self) {
        if let Some(lock) = &mut self.lock
            && let Err(error) = lock.publish()
        {
            write_stderr(&format!("warning: clients over stdio do not find this gateway: {error}"));
        }
    }

    /// Completes when a gateway in the background has been idle for long enough. Keeps its log small, and saves those of
    /// its servers.
    pub(super) async fn idle(&self, runtime: &Runtime) {
        let timeout = match self.mode {
            GatewayMode::Background { idle_timeout_ms, .. } => idle_timeout_ms.map(Duration::from_millis),
            GatewayMode::Foreground | GatewayMode::Stdio => None,
        };
        let idle = async {
            match timeout {
                Some(timeout) => self.activity.idle_for(timeout, runtime).await,
                None => std::future::pending().await,
            }
        };
        let rotating = async {
            loop {
                if let Some(log) = &self.log {
                    log.rotate();
                }
                time::sleep(LOG_INTERVAL).await;
                if let Some(logs) = &self.server_logs {
                    logs.save_in_background(runtime).await;
                }
            }
        };
        tokio::select! {
            () = idle => write_stderr("Stopping: no client is left"),
            () = rotating => {}
        }
    }

    /// Gives the configuration up, so that the next client starts another gateway.
    pub(super) fn release(&mut self) {
        self.lock = None;
    }

    /// Ends the input of all clients over stdio, and waits until their responses are written.
    pub(super) async fn close_clients(&mut self) {
        if let Some(clients) = self.clients.take() {
            clients.close().await;
        }
    }
}

/// Takes the lock. A gateway in the background is stopped; any other one is an error.
async fn wait_for_lock(
    folder: &PrivateDir,
    identity: &str,
    selection: &ConfigSelection,
) -> Result<GatewayLock, ClaimError> {
    let end = Instant::now() + HANDOVER_TIMEOUT;
    let mut stopped = None;
    loop {
        let attempt = GatewayLock::try_acquire(folder, identity);
        match attempt.map_err(|error| CliError::system(format!("cannot lock the configuration: {error}")))? {
            LockAttempt::Acquired(lock) => return Ok(lock),
            LockAttempt::Held(Some(pid)) if stopped != Some(pid) => {
                let gateway = ApiClient::of_process(folder, pid);
                // It may be starting, or shutting down.
                if let Ok(status) = gateway.get(&ApiPath::new(&["status"])).await {
                    stop_in_background(&gateway, &status, selection).await?;
                    stopped = Some(pid);
                }
            }
            LockAttempt::Held(_) => {}
        }
        if Instant::now() >= end {
            let message = format!("another gateway of {} does not answer", selection.files());
            return Err(CliError::new(ExitReason::Unavailable, "not_running", message)
                .hint("end its process, or use --no-daemon")
                .into());
        }
        time::sleep(RETRY_INTERVAL).await;
    }
}

async fn stop_in_background(
    gateway: &ApiClient,
    status: &Value,
    selection: &ConfigSelection,
) -> Result<(), ClaimError> {
    let pid = &status["pid"];
    if status["startedBy"]["mode"] == "background" {
        write_stderr(&format!("Replacing  the gateway in the background (pid {pid}); its clients reconnect"));
        // It may have stopped by itself; otherwise it keeps the lock.
        let _ = gateway.post(&ApiPath::new(&["stop"]), &json!({}).into()).await;
        return Ok(());
    }
    let addresses = status["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Err(ClaimError::InUse(RunningGateway {
        pid: pid.as_u64().unwrap_or_default(),
        files: selection.files().to_string(),
        addresses: addresses.map(str::to_owned).collect(),
    }))
}
