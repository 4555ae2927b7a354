//! `GET /api/servers/{toolbox}/{server}/logs`: server logs.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use pegboard_core::owner::OwnerScope;
use pegboard_core::server_log::ServerLogLine;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::extract::{QueryParams, ResponseFormat};
use super::problem::ApiProblem;
use super::state::{ApiState, SharedApiState};
use super::stream::{STREAM_BUFFER, StreamItem, json_response, stream_response, unix_millis};

/// Default number of lines.
const DEFAULT_LINES: usize = 200;

/// Query parameters.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogsQuery {
    lines: Option<usize>,
    follow: Option<bool>,
}

/// `GET /api/servers/{toolbox}/{server}/logs`
pub(super) async fn read(
    State(state): SharedApiState,
    Path((toolbox, server)): Path<(String, String)>,
    format: ResponseFormat,
    QueryParams(query): QueryParams<LogsQuery>,
) -> Result<Response, ApiProblem> {
    if state.scope != OwnerScope::All {
        let problem = ApiProblem::not_permitted("server logs may contain data of other principals");
        return Err(problem.hint("run `pegboard logs` as the user who runs the gateway"));
    }
    let log = state.runtime()?.server_log(&toolbox, &server)?;
    let n_lines = query.lines.unwrap_or(DEFAULT_LINES);
    if !query.follow.unwrap_or_default() {
        let lines: Vec<Value> = log.last(n_lines).iter().filter_map(|line| line_json(&state, line)).collect();
        return Ok(json_response(json!({"lines": lines})));
    }
    let (before, after) = log.follow(n_lines);
    let (sender, receiver) = mpsc::channel(STREAM_BUFFER);
    let work = AbortOnDropHandle::new(tokio::spawn(follow(Arc::clone(&state), before, after, sender)));
    let format = if format == ResponseFormat::Lines { ResponseFormat::Lines } else { ResponseFormat::Events };
    Ok(stream_response(format, receiver, work, state.options.keep_alive))
}

async fn follow(
    state: Arc<ApiState>,
    before: Vec<Arc<ServerLogLine>>,
    mut after: broadcast::Receiver<Arc<ServerLogLine>>,
    sender: mpsc::Sender<StreamItem>,
) {
    for line in before {
        let Some(line) = line_json(&state, &line) else { continue };
        if sender.send(StreamItem::new("line", line)).await.is_err() {
            return;
        }
    }
    loop {
        let item = match after.recv().await {
            Ok(line) => line_json(&state, &line).map(|line| StreamItem::new("line", line)),
            Err(broadcast::error::RecvError::Lagged(n_missed)) => {
                Some(StreamItem::new("missed", json!({"n": n_missed})))
            }
            Err(broadcast::error::RecvError::Closed) => return,
        };
        // Backpressure here is what makes a slow reader lag.
        if let Some(item) = item
            && sender.send(item).await.is_err()
        {
            return;
        }
    }
}

/// Renders a log line, redacted.
fn line_json(state: &ApiState, line: &ServerLogLine) -> Option<Value> {
    let runtime = state.api.runtime.as_ref()?;
    let ServerLogLine { number, at, stream, level, text } = line;
    let mut json = json!({
        "number": number,
        "at": unix_millis(state.api.clock.at(*at)),
        "stream": stream.as_str(),
        "text": runtime.redact(text),
    });
    if let Some(level) = level {
        json["level"] = level.as_str().into();
    }
    Some(json)
}
