//! Requests of commands to stop or restart the gateway.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::json;
use tokio::sync::mpsc;

use crate::cli::CliError;
use crate::paths::ConfigSelection;
use crate::trust::ProjectFilesInUse;

/// Maximum number of requests that wait.
const MAX_REQUESTS: usize = 4;

/// End of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServeEnd {
    /// It exits.
    Stop,
    /// It starts again, with the configuration as it is now.
    Restart,
}

/// Requests of commands to stop or restart.
pub(crate) struct ControlRequests(mpsc::Receiver<ServeEnd>);

#[derive(Clone)]
struct ControlState {
    requests: mpsc::Sender<ServeEnd>,
    selection: ConfigSelection,
    project_files: ProjectFilesInUse,
}

impl ControlRequests {
    /// Creates the routes that accept requests, and their receiver. They are for the local socket only.
    pub(crate) fn new(selection: &ConfigSelection, project_files: &ProjectFilesInUse) -> (Router, Self) {
        let (requests, receiver) = mpsc::channel(MAX_REQUESTS);
        let state =
            ControlState { requests, selection: selection.clone(), project_files: project_files.clone() };
        let routes = Router::new().route("/api/stop", post(stop)).route("/api/restart", post(restart));
        let routes = routes.route("/api/untrusted", get(untrusted));
        (routes.with_state(state), Self(receiver))
    }

    /// Waits for a request.
    pub(crate) async fn next(&mut self) -> ServeEnd {
        match self.0.recv().await {
            Some(end) => end,
            // There is no local socket.
            None => std::future::pending().await,
        }
    }
}

/// `POST /api/stop`
async fn stop(State(state): State<ControlState>) -> Response {
    state.request(ServeEnd::Stop)
}

/// `POST /api/restart`
async fn restart(State(state): State<ControlState>) -> Response {
    // A gateway that cannot start again is not stopped.
    if let Err(error) = state.selection.inspect() {
        let message = format!("the gateway was not restarted: {}", CliError::from(error).summary());
        let hint = "fix it, then run pegboard restart again; pegboard validate shows all problems";
        let error = json!({"error": {"code": "config_invalid", "message": message, "hint": hint}});
        return (StatusCode::CONFLICT, Json(error)).into_response();
    }
    state.request(ServeEnd::Restart)
}

/// `GET /api/untrusted`
async fn untrusted(State(state): State<ControlState>) -> Response {
    Json(json!({"files": state.project_files.untrusted()})).into_response()
}

impl ControlState {
    fn request(&self, end: ServeEnd) -> Response {
        // Requests that do not fit are about the same.
        let _ = self.requests.try_send(end);
        (StatusCode::ACCEPTED, Json(json!({"pid": std::process::id()}))).into_response()
    }
}
