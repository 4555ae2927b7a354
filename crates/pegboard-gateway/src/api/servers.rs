//! Servers: how each is, and how one is made ready.

use axum::extract::{Path, State};
use axum::response::Response;
use pegboard_core::provider::{Particulars, ServerState, ToolKind};
use pegboard_runtime::toolbox::ServerStatus;
use serde_json::{Value, json};

use super::problem::Problem;
use super::stream::{document, in_millis};
use super::window::Shown;

/// `GET /api/servers`
pub(super) async fn list(State(window): Shown) -> Result<Response, Problem> {
    let servers: Vec<Value> = window.runtime()?.servers().iter().map(told).collect();
    Ok(document(json!({"servers": servers})))
}

/// `POST /api/servers/{toolbox}/{server}/open`
pub(super) async fn open(
    State(window): Shown,
    Path((toolbox, server)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let status = window.runtime()?.open_server(&toolbox, &server).await?;
    Ok(document(told(&status)))
}

/// A server as it is told.
fn told(status: &ServerStatus) -> Value {
    let mut told = json!({
        "toolbox": status.toolbox,
        "server": status.server,
        "kind": kind(status),
        "state": word(&status.state),
        "tools": status.n_tools,
    });
    let Particulars { transport, pid, n_restarts, started_in } = status.particulars;
    let known = [
        ("transport", transport.map(|transport| transport.as_str().into())),
        ("pid", pid.map(Value::from)),
        ("restarts", n_restarts.map(Value::from)),
        ("startedInMs", started_in.map(|time| in_millis(time).into())),
    ];
    for (name, value) in known {
        if let Some(value) = value {
            told[name] = value;
        }
    }
    let (error, hint) = match &status.state {
        ServerState::Failed { why, fix } => (Some(why), Some(fix)),
        ServerState::NeedsLogin { fix } => (None, Some(fix)),
        ServerState::Idle
        | ServerState::Starting
        | ServerState::Ready
        | ServerState::Restarting { .. }
        | ServerState::Stopped => (None, None),
    };
    for (name, text) in [("error", error), ("hint", hint)] {
        if let Some(text) = text {
            told[name] = text.as_str().into();
        }
    }
    if !status.warnings.is_empty() {
        told["warnings"] = status.warnings.clone().into();
    }
    told
}

/// What sort of server it is. Requests to web services and agents have servers of their own names.
fn kind(status: &ServerStatus) -> &'static str {
    match (status.kind, status.server.as_str()) {
        (ToolKind::Mcp, _) => "mcp",
        (ToolKind::Rest, "rest") => "rest",
        (ToolKind::Rest, _) => "openapi",
        (ToolKind::Agent, "agent") => "agent",
        (ToolKind::Agent, "chain") => "chain",
        (ToolKind::Agent, _) => "builtin",
    }
}

/// The word for how a server is.
fn word(state: &ServerState) -> &'static str {
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
