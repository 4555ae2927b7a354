//! Ways in which the user approves changes of the configuration: a command, or an answer on the terminal.

use std::io::{self, BufRead};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::time;

use super::reload::ReloadOutcome;
use crate::cli::CliError;
use pegboard::telemetry::line_was_typed;

use crate::cli::prompt::terminal::Terminal;

/// Maximum number of commands that wait for a reload.
const MAX_REQUESTS: usize = 16;
/// Interval between checks of the terminal.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Text that tells how to approve changes without a terminal.
pub(super) const APPROVE_BY_COMMAND: &str = "Approve with pegboard reload";

/// Request of a command to reload.
pub(super) struct ReloadRequest {
    /// Digest of the changes that the user agrees to.
    pub(super) approve: Option<String>,
    /// Receives the outcome.
    pub(super) reply: oneshot::Sender<Result<ReloadOutcome, CliError>>,
}

/// Body of `POST /api/reload`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReloadBody {
    #[serde(default)]
    approve: Option<String>,
}

/// Requests of commands to reload.
pub(crate) struct ReloadRequests(mpsc::Receiver<ReloadRequest>);

impl ReloadRequests {
    /// Creates the route that accepts requests, and their receiver. The route is for the local socket only,
    /// since a request to it can approve programs.
    pub(crate) fn new() -> (Router, Self) {
        let (sender, receiver) = mpsc::channel(MAX_REQUESTS);
        (Router::new().route("/api/reload", post(reload)).with_state(sender), Self(receiver))
    }

    /// Waits for a request.
    pub(super) async fn next(&mut self) -> ReloadRequest {
        match self.0.recv().await {
            Some(request) => request,
            // There is no local socket.
            None => std::future::pending().await,
        }
    }
}

/// `POST /api/reload`
async fn reload(
    State(requests): State<mpsc::Sender<ReloadRequest>>,
    Json(body): Json<ReloadBody>,
) -> Response {
    let (reply, outcome) = oneshot::channel();
    let is_sent = requests.send(ReloadRequest { approve: body.approve, reply }).await.is_ok();
    match outcome.await {
        Ok(Ok(ReloadOutcome { changes, approved, pending, as_written, digest })) if is_sent => {
            let mut document =
                json!({"changes": changes, "approved": approved, "pending": pending, "digest": digest});
            if !as_written.is_empty() {
                document["asWritten"] = json!(as_written);
            }
            Json(document).into_response()
        }
        Ok(Err(failure)) => {
            let hint = "fix it, then run pegboard reload again; pegboard validate shows all problems";
            let message = format!("kept the previous configuration: {}", failure.summary());
            let error = json!({"error": {"code": "config_invalid", "message": message, "hint": hint}});
            (StatusCode::CONFLICT, Json(error)).into_response()
        }
        Ok(Ok(_)) | Err(_) => {
            let error = json!({"error": {"code": "not_running", "message": "the gateway is shutting down"}});
            (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response()
        }
    }
}

/// Answers that the user types on the terminal of this process.
pub(crate) struct TerminalAnswers {
    /// Set if there is a terminal that may be used.
    terminal: Option<Terminal>,
}

impl TerminalAnswers {
    /// Uses the terminal, if there is one.
    pub(crate) fn detect() -> Self {
        Self { terminal: Terminal::detect() }
    }

    /// Never uses the terminal.
    pub(crate) fn none() -> Self {
        Self { terminal: None }
    }

    /// Returns `true` if the user can answer.
    pub(super) fn is_there(&self) -> bool {
        self.terminal.is_some()
    }

    /// Returns the text that tells how to approve changes. Forgets what was typed before it.
    pub(super) fn invite(&mut self) -> &'static str {
        match &self.terminal {
            Some(_) => {
                discard_input();
                "Approve with pegboard reload, or enter y"
            }
            None => APPROVE_BY_COMMAND,
        }
    }

    /// Waits until the user agrees. Never completes without a terminal.
    pub(super) async fn agreed(&self) {
        if self.terminal.is_none() {
            std::future::pending::<()>().await;
        }
        loop {
            time::sleep(POLL_INTERVAL).await;
            let line = if is_line_ready() { read_line() } else { None };
            if line.is_some_and(|line| matches!(line.trim().to_lowercase().as_str(), "y" | "yes")) {
                return;
            }
        }
    }
}

fn read_line() -> Option<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).ok()?;
    line_was_typed();
    Some(line)
}

/// Returns `true` if a line was typed. A process in the background must not read: the system would stop it.
#[cfg(unix)]
fn is_line_ready() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let stdin = io::stdin();
    // An error means that this is not the terminal that controls the process.
    let is_foreground =
        rustix::termios::tcgetpgrp(&stdin).map_or(true, |group| group == rustix::process::getpgrp());
    let mut descriptors = [PollFd::new(&stdin, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    is_foreground && poll(&mut descriptors, Some(&now)).is_ok_and(|n_ready| n_ready > 0)
}

/// Lines cannot be awaited on this platform.
#[cfg(not(unix))]
fn is_line_ready() -> bool {
    false
}

#[cfg(unix)]
fn discard_input() {
    use rustix::termios::{QueueSelector, tcflush};

    let _ = tcflush(io::stdin(), QueueSelector::IFlush);
}

#[cfg(not(unix))]
fn discard_input() {}
