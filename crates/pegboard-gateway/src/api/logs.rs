//! What servers say beside their answers.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use pegboard_core::server_log::ServerLine;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::Principal;
use super::problem::Problem;
use super::question::{Asked, Form};
use super::stream::{Item, MAX_WAITING, document, items, millis};
use super::window::{Shown, Window};

/// How many lines are told if nobody says otherwise.
const N_LINES: usize = 200;

/// Which lines are wanted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    lines: Option<usize>,
    follow: Option<bool>,
}

/// `GET /api/servers/{toolbox}/{server}/logs`
pub(super) async fn read(
    State(window): Shown,
    Path((toolbox, server)): Path<(String, String)>,
    form: Form,
    Asked(wanted): Asked<Wanted>,
) -> Result<Response, Problem> {
    if window.who != Principal::Everybody {
        let problem = Problem::not_permitted("What servers say may be about the calls of others");
        return Err(problem.hint("ask as the user who runs the gateway: pegboard logs"));
    }
    let log = window.runtime()?.server_log(&toolbox, &server)?;
    let n_lines = wanted.lines.unwrap_or(N_LINES);
    if !wanted.follow.unwrap_or_default() {
        let lines: Vec<Value> = log.last(n_lines).iter().filter_map(|line| told(&window, line)).collect();
        return Ok(document(json!({"lines": lines})));
    }
    let (before, after) = log.follow(n_lines);
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let work = AbortOnDropHandle::new(tokio::spawn(tell(Arc::clone(&window), before, after, sender)));
    let form = if form == Form::Lines { Form::Lines } else { Form::Events };
    Ok(items(form, receiver, work, window.options.keep_alive))
}

async fn tell(
    window: Arc<Window>,
    before: Vec<Arc<ServerLine>>,
    mut after: broadcast::Receiver<Arc<ServerLine>>,
    sender: mpsc::Sender<Item>,
) {
    for line in before {
        let Some(line) = told(&window, &line) else { continue };
        if sender.send(Item::new("line", line)).await.is_err() {
            return;
        }
    }
    loop {
        let item = match after.recv().await {
            Ok(line) => told(&window, &line).map(|line| Item::new("line", line)),
            Err(broadcast::error::RecvError::Lagged(n_missed)) => {
                Some(Item::new("missed", json!({"n": n_missed})))
            }
            Err(broadcast::error::RecvError::Closed) => return,
        };
        // Waiting here is what makes a slow reader miss some.
        if let Some(item) = item
            && sender.send(item).await.is_err()
        {
            return;
        }
    }
}

/// A line as it is told.
fn told(window: &Window, line: &ServerLine) -> Option<Value> {
    let runtime = window.api.runtime.as_ref()?;
    let ServerLine { number, at, stream, level, text } = line;
    let mut told = json!({
        "number": number,
        "at": millis(window.api.clock.at(*at)),
        "stream": stream.as_str(),
        "text": runtime.without_secrets(text),
    });
    if let Some(level) = level {
        told["level"] = level.as_str().into();
    }
    Some(told)
}
