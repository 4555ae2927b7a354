//! `/api/servers`: server status, and starting a server.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use parking_lot::Mutex;
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::owner::OwnerScope;
use pegboard_core::provider::{ProcessInfo, ServerState, ToolKind};
use pegboard_runtime::requests::ServerId;
use pegboard_runtime::toolbox::ServerStatus;
use serde_json::{Value, json};

use super::extract::RequestBody;
use super::problem::ApiProblem;
use super::state::SharedApiState;
use super::stream::{duration_millis, json_response};

/// Servers that the configuration disables. Clones share the list.
///
/// ```
/// use pegboard_gateway::api::DisabledServers;
///
/// DisabledServers::default().replace(Vec::new());
/// ```
#[derive(Clone, Debug, Default)]
pub struct DisabledServers(Arc<Mutex<Vec<ServerId>>>);

impl DisabledServers {
    /// Replaces the servers.
    pub fn replace(&self, servers: Vec<ServerId>) {
        *self.0.lock() = servers;
    }
}

/// `GET /api/servers`
pub(super) async fn list(State(state): SharedApiState) -> Result<Response, ApiProblem> {
    let servers = state.runtime()?.servers(&state.scope);
    let disabled = state.api.disabled.0.lock().clone();
    let disabled = disabled.iter().map(|ServerId { toolbox, server }| {
        json!({"toolbox": toolbox, "server": server, "kind": "mcp", "state": "disabled", "tools": 0})
    });
    let servers: Vec<Value> = servers.iter().map(server_json).chain(disabled).collect();
    Ok(json_response(json!({"servers": servers})))
}

/// `POST /api/servers/open`: starts the named servers, or all, and waits until each is ready or has failed.
pub(super) async fn open_all(
    State(state): SharedApiState,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiProblem> {
    let body = RequestBody::read(&state, &headers, body, &["servers"]).await?;
    let named: Option<Vec<String>> = body.get("servers", "a list of servers, each as toolbox/server")?;
    let runtime = state.runtime()?;
    let address = |status: &ServerStatus| format!("{}/{}", status.toolbox, status.server);
    let known: Vec<String> = runtime.servers(&state.scope).iter().map(address).collect();
    let mut unknown = named.iter().flatten().filter(|name| !known.contains(name));
    if let Some(unknown) = unknown.next() {
        return Err(ApiProblem::not_found(format!("no server '{unknown}'")));
    }
    let is_named = |toolbox: &ToolboxName, server: &ServerName| match &named {
        Some(named) => named.contains(&format!("{toolbox}/{server}")),
        None => true,
    };
    runtime.open_servers(is_named).await;
    list(State(state)).await
}

/// `POST /api/servers/{toolbox}/{server}/open`
pub(super) async fn open(
    State(state): SharedApiState,
    Path((toolbox, server)): Path<(String, String)>,
) -> Result<Response, ApiProblem> {
    let status = state.runtime()?.open_server(&state.scope, &toolbox, &server).await?;
    Ok(json_response(server_json(&status)))
}

/// `POST /api/servers/{toolbox}/{server}/restart`
pub(super) async fn restart(
    State(state): SharedApiState,
    Path((toolbox, server)): Path<(String, String)>,
) -> Result<Response, ApiProblem> {
    if state.scope != OwnerScope::All {
        let problem = ApiProblem::not_permitted("a restart ends the calls of other principals");
        return Err(problem.hint("run `pegboard restart` as the user who runs the gateway"));
    }
    match state.runtime()?.restart_server(&state.scope, &toolbox, &server).await? {
        Some(status) => Ok(json_response(server_json(&status))),
        None => Err(ApiProblem::bad_request(format!(
            "{toolbox}/{server} has no process or connection to restart"
        ))),
    }
}

/// Renders the status of a server.
fn server_json(status: &ServerStatus) -> Value {
    let mut json = json!({
        "toolbox": status.toolbox,
        "server": status.server,
        "kind": kind_name(status),
        "state": state_name(&status.state),
        "tools": status.n_tools,
    });
    let ProcessInfo { transport, pid, n_restarts, started_in, n_further_instances } = status.process_info;
    let details = [
        ("transport", transport.map(|transport| transport.as_str().into())),
        ("pid", pid.map(Value::from)),
        ("restarts", n_restarts.map(Value::from)),
        ("startedInMs", started_in.map(|time| duration_millis(time).into())),
        ("furtherInstances", n_further_instances.map(Value::from)),
    ];
    for (name, value) in details {
        if let Some(value) = value {
            json[name] = value;
        }
    }
    let (error, hint) = match &status.state {
        ServerState::Failed { why, fix, stderr: _ } => (Some(why), Some(fix)),
        ServerState::NeedsLogin { fix } => (None, Some(fix)),
        ServerState::Idle
        | ServerState::Starting
        | ServerState::Ready
        | ServerState::Restarting { .. }
        | ServerState::Stopped => (None, None),
    };
    for (name, text) in [("error", error), ("hint", hint)] {
        if let Some(text) = text {
            json[name] = text.as_str().into();
        }
    }
    if !status.warnings.is_empty() {
        json["warnings"] = status.warnings.clone().into();
    }
    json
}

/// Returns the kind of a server. REST tools, agents and chains have reserved server names.
fn kind_name(status: &ServerStatus) -> &'static str {
    match (status.kind, status.server.as_str()) {
        (ToolKind::Mcp, _) => "mcp",
        (ToolKind::Rest, "rest") => "rest",
        (ToolKind::Rest, _) => "openapi",
        (ToolKind::Agent, "agent") => "agent",
        (ToolKind::Agent, "chain") => "chain",
        (ToolKind::Agent, _) => "builtin",
    }
}

/// Returns the name of a server state.
fn state_name(state: &ServerState) -> &'static str {
    match state {
        ServerState::Idle => "idle",
        ServerState::Starting => "starting",
        ServerState::Ready => "ready",
        ServerState::Restarting { .. } => "restarting",
        ServerState::NeedsLogin { .. } => "needs_login",
        ServerState::Failed { .. } => "failed",
        ServerState::Stopped => "stopped",
    }
}
