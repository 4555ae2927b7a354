//! Requests of commands to stop or restart the gateway.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde_json::json;
use tokio::sync::mpsc;

use crate::cli::CliError;
use crate::paths::ConfigSelection;

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
}

impl ControlRequests {
    /// Creates the routes that accept requests, and their receiver. They are for the local socket only.
    pub(crate) fn new(selection: &ConfigSelection) -> (Router, Self) {
        let (requests, receiver) = mpsc::channel(MAX_REQUESTS);
        let state = ControlState { requests, selection: selection.clone() };
        let routes = Router::new().route("/api/stop", post(stop)).route("/api/restart", post(restart));
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
    if let Err(failure) = check_start(&state.selection) {
        let message = format!("the gateway was not restarted: {}", failure.summary());
        let hint = "fix it, then run pegboard restart again; pegboard validate shows all problems";
        let error = json!({"error": {"code": "config_invalid", "message": message, "hint": hint}});
        return (StatusCode::CONFLICT, Json(error)).into_response();
    }
    state.request(ServeEnd::Restart)
}

/// Checks that the configuration can be started without asking. Looks up no secrets, so it does not block.
pub(super) fn check_start(selection: &ConfigSelection) -> Result<(), CliError> {
    let configuration = selection.inspect()?;
    match selection.gate().untrusted(&configuration.actions)?.first() {
        None => Ok(()),
        Some(action) => {
            let message = format!("{} is not trusted: see pegboard trust", action.file.display());
            Err(CliError::configuration(message))
        }
    }
}

impl ControlState {
    fn request(&self, end: ServeEnd) -> Response {
        // Requests that do not fit are about the same.
        let _ = self.requests.try_send(end);
        (StatusCode::ACCEPTED, Json(json!({"pid": std::process::id()}))).into_response()
    }
}
