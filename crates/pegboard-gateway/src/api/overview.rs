//! What there is, in few words: the gateway itself, its toolboxes, its queues, its numbers.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use pegboard_core::provider::ServerState;
use pegboard_runtime::event::Event;
use pegboard_runtime::metrics::CONTENT_TYPE;
use serde_json::{Value, json};

use super::Principal;
use super::problem::Problem;
use super::stream::{document, in_millis, millis};
use super::window::{Shown, Window};

/// Everything that can be asked here.
const PATHS: [&str; 25] = [
    "GET /api/status",
    "GET /api/toolboxes",
    "GET /api/queues",
    "GET /api/metrics",
    "GET /api/servers",
    "POST /api/servers/{toolbox}/{server}/open",
    "GET /api/servers/{toolbox}/{server}/logs",
    "GET /api/tools",
    "GET /api/tool",
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
pub(super) async fn paths(State(window): Shown) -> Response {
    document(json!({"version": window.api.about.version, "paths": PATHS}))
}

/// `GET /api/status`
pub(super) async fn status(State(window): Shown) -> Result<Response, Problem> {
    let runtime = window.runtime()?;
    let api = &window.api;
    let uptime = window.now().duration_since(api.started).unwrap_or_default();
    let calls = runtime.calls().into_iter().filter(|call| window.who.sees(&call.owner)).count();
    let callers = runtime.callers().into_iter().filter(|caller| window.who.sees(caller.owner())).count();
    Ok(document(json!({
        "version": api.about.version,
        "pid": std::process::id(),
        "startedAt": millis(api.started),
        "uptimeMs": in_millis(uptime),
        "configuration": api.about.configuration,
        "addresses": api.about.addresses,
        "calls": {"underWay": calls, "parked": parked(&window)},
        "callers": callers,
        "servers": counts(runtime.servers().into_iter().map(|server| server.state)),
        "tools": runtime.catalogue().tools().len(),
    })))
}

/// How many calls wait for their clients; whose they are is not known, so that is told to those who see everything.
fn parked(window: &Window) -> Option<usize> {
    let runtime = window.api.runtime.as_ref()?;
    (window.who == Principal::Everybody).then(|| runtime.parking().len())
}

fn counts(states: impl Iterator<Item = ServerState>) -> Value {
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
pub(super) async fn toolboxes(State(window): Shown) -> Result<Response, Problem> {
    let runtime = window.runtime()?;
    let (snapshot, chains) = (runtime.catalogue(), runtime.chains());
    let toolboxes = runtime.toolboxes().into_iter().map(|toolbox| {
        let own = chains.iter().filter(|(place, _)| *place == toolbox.name);
        let own: Vec<&str> = own.filter_map(|(_, chain)| chain.name.as_deref()).collect();
        json!({
            "name": toolbox.name,
            "description": toolbox.description,
            "servers": toolbox.servers,
            "tools": snapshot.tools_of(&toolbox.name).count(),
            "chains": own,
        })
    });
    Ok(document(json!({"toolboxes": toolboxes.collect::<Vec<_>>()})))
}

/// `GET /api/queues`
pub(super) async fn queues(State(window): Shown) -> Result<Response, Problem> {
    let queues = window.runtime()?.queues().into_iter().filter_map(|event| match event {
        Event::QueueDepth { queue, capacity, in_use, waiting } => {
            let mut told = json!({"name": queue, "running": in_use, "waiting": waiting});
            if let Some(capacity) = capacity {
                told["maxConcurrency"] = capacity.into();
            }
            Some(told)
        }
        _ => None,
    });
    Ok(document(json!({"queues": queues.collect::<Vec<_>>()})))
}

/// `GET /api/metrics`
pub(super) async fn metrics(State(window): Shown) -> Result<Response, Problem> {
    let metrics = window.api.metrics.as_ref().ok_or_else(Problem::not_running)?;
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], metrics.render()).into_response())
}
