//! Index, status, toolboxes, queues and metrics.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use pegboard_core::owner::OwnerScope;
use pegboard_core::provider::ServerState;
use pegboard_runtime::event::RuntimeEvent;
use pegboard_runtime::metrics::CONTENT_TYPE;
use serde_json::{Value, json};

use super::pending::PendingChange;
use super::problem::ApiProblem;
use super::state::{ApiState, SharedApiState};
use super::stream::{duration_millis, json_response, unix_millis};

/// All routes of the API.
const PATHS: [&str; 29] = [
    "GET /api/status",
    "GET /api/toolboxes",
    "POST /api/toolboxes/open",
    "GET /api/queues",
    "GET /api/metrics",
    "GET /api/servers",
    "POST /api/servers/open",
    "POST /api/servers/{toolbox}/{server}/open",
    "POST /api/servers/{toolbox}/{server}/restart",
    "GET /api/servers/{toolbox}/{server}/logs",
    "GET /api/tools",
    "GET /api/tool",
    "POST /api/tool",
    "GET /api/calls",
    "POST /api/calls",
    "DELETE /api/calls/{call}",
    "POST /api/calls/{call}/answers",
    "GET /api/chains",
    "POST /api/chains/check",
    "POST /api/chains/run",
    "POST /api/batch",
    "GET /api/traces",
    "GET /api/traces/{trace}",
    "GET /api/sessions",
    "GET /api/sessions/{session}",
    "GET /api/outputs",
    "GET /api/outputs/{handle}",
    "DELETE /api/outputs/{handle}",
    "GET /api/events",
];

/// `GET /api/`
pub(super) async fn paths(State(state): SharedApiState) -> Response {
    json_response(json!({"version": state.api.info.version, "paths": PATHS}))
}

/// `GET /api/status`
pub(super) async fn status(State(state): SharedApiState) -> Result<Response, ApiProblem> {
    let runtime = state.runtime()?;
    let api = &state.api;
    let uptime = state.now().duration_since(api.started).unwrap_or_default();
    let calls = runtime.calls().into_iter().filter(|call| state.scope.includes(&call.owner)).count();
    let callers = runtime.callers().into_iter().filter(|caller| state.scope.includes(caller.owner())).count();
    let mut status = json!({
        "version": api.info.version,
        "pid": std::process::id(),
        "startedAt": unix_millis(api.started),
        "uptimeMs": duration_millis(uptime),
        "configuration": api.info.configuration,
        "addresses": api.info.addresses,
        "credential": (state.scope == OwnerScope::All).then_some(&api.info.credential),
        "calls": {"inFlight": calls, "suspended": n_suspended(&state)},
        "callers": callers,
        "servers": server_counts(runtime.servers(&state.scope).into_iter().map(|server| server.state)),
        "tools": runtime.catalogue().tools().len(),
        "startedBy": (state.scope == OwnerScope::All).then_some(&api.info.mode),
        "log": api.info.log.as_ref().filter(|_| state.scope == OwnerScope::All),
        "clients": (state.scope == OwnerScope::All).then(|| api.info.clients.list()),
        "pending": pending(&state),
    });
    if !api.info.settings_only.is_empty() {
        status["settingsOnly"] = json!(api.info.settings_only);
    }
    Ok(json_response(status))
}

/// Changes that wait for approval. They name programs, so only an unrestricted scope sees them.
fn pending(state: &ApiState) -> Option<Vec<PendingChange>> {
    (state.scope == OwnerScope::All).then(|| state.api.info.pending.list())
}

/// Number of suspended calls. Their owners are unknown, so only an unrestricted scope sees it.
fn n_suspended(state: &ApiState) -> Option<usize> {
    let runtime = state.api.runtime.as_ref()?;
    (state.scope == OwnerScope::All).then(|| runtime.suspended_calls().len())
}

fn server_counts(states: impl Iterator<Item = ServerState>) -> Value {
    let (mut n_all, mut n_ready, mut n_starting, mut n_idle, mut n_failed) = (0, 0, 0, 0, 0);
    for state in states {
        n_all += 1;
        match state {
            ServerState::Ready => n_ready += 1,
            ServerState::Starting | ServerState::Restarting { .. } => n_starting += 1,
            ServerState::Idle | ServerState::Stopped => n_idle += 1,
            ServerState::Failed { .. } | ServerState::NeedsLogin { .. } => n_failed += 1,
        }
    }
    json!({"total": n_all, "ready": n_ready, "starting": n_starting, "idle": n_idle, "failed": n_failed})
}

/// `GET /api/toolboxes`
pub(super) async fn toolboxes(State(state): SharedApiState) -> Result<Response, ApiProblem> {
    let runtime = state.runtime()?;
    let (snapshot, chains) = (runtime.catalogue(), runtime.chains());
    let toolboxes = runtime.toolboxes().into_iter().map(|toolbox| {
        let chain_names = chains.iter().filter(|(owner, _)| *owner == toolbox.name);
        let chain_names: Vec<&str> = chain_names.filter_map(|(_, chain)| chain.name.as_deref()).collect();
        json!({
            "name": toolbox.name,
            "description": toolbox.description,
            "servers": toolbox.servers,
            "tools": snapshot.tools_of(&toolbox.name).count(),
            "chains": chain_names,
        })
    });
    Ok(json_response(json!({"toolboxes": toolboxes.collect::<Vec<_>>()})))
}

/// `GET /api/queues`
pub(super) async fn queues(State(state): SharedApiState) -> Result<Response, ApiProblem> {
    let queues = state.runtime()?.queues().into_iter().filter_map(|event| match event {
        RuntimeEvent::QueueDepth { queue, capacity, in_use, waiting } => {
            let mut json = json!({"name": queue, "running": in_use, "waiting": waiting});
            if let Some(capacity) = capacity {
                json["maxConcurrency"] = capacity.into();
            }
            Some(json)
        }
        _ => None,
    });
    Ok(json_response(json!({"queues": queues.collect::<Vec<_>>()})))
}

/// `GET /api/metrics`
pub(super) async fn metrics(State(state): SharedApiState) -> Result<Response, ApiProblem> {
    let metrics = state.api.metrics.as_ref().ok_or_else(ApiProblem::not_running)?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.render()).into_response())
}
