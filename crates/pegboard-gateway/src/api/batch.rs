//! `POST /api/batch`: several calls in one request; each is answered as it finishes.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream;
use pegboard_core::call::{Call, Invoker};
use pegboard_core::error::CallError;
use pegboard_core::memory::MemoryPoolFull;
use pegboard_json::RawJson;
use pegboard_runtime::{BatchItem, Caller};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::calls::{CallResponse, record_start, tool_response};
use super::extract::{RequestBody, ResponseFormat};
use super::problem::ApiProblem;
use super::state::SharedApiState;
use super::stream::{STREAM_BUFFER, StreamItem, json_response, stream_response};

/// Maximum number of calls per request.
const MAX_CALLS: usize = 1_000;
/// Default number of concurrent calls.
const DEFAULT_PARALLEL: usize = 8;
/// Maximum number of concurrent calls.
const MAX_PARALLEL: usize = 32;

/// One call of a batch.
struct BatchCall {
    index: usize,
    /// The caller's id, if given.
    id: Option<RawJson>,
    item: BatchItem,
}

/// `POST /api/batch`
pub(super) async fn run(
    State(state): SharedApiState,
    format: ResponseFormat,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiProblem> {
    let body = RequestBody::read(&state, &headers, body, &["calls", "parallel", "session"]).await?;
    let batch = parse_calls(&body)?;
    let parallel: usize = body.get("parallel", "a number of calls")?.unwrap_or(DEFAULT_PARALLEL);
    if !(1..=MAX_PARALLEL).contains(&parallel) {
        return Err(
            ApiProblem::bad_request(format!("parallel must be from 1 to {MAX_PARALLEL}")).at("$.parallel")
        );
    }
    let session: Option<String> = body.get("session", "a name")?;
    let caller = state.named_caller(session.as_deref(), &headers)?;
    let held = caller.memory().unwrap_or_default().reservation();
    let mut answers =
        stream::iter(batch).map(move |call| run_one(caller.clone(), call)).buffer_unordered(parallel);
    if format == ResponseFormat::Document {
        let mut all = Vec::new();
        while let Some((index, answer)) = answers.next().await {
            let answer = match held.try_grow(answer.as_bytes().len()) {
                Ok(()) => answer,
                Err(full) => discarded(&answer, full),
            };
            all.push((index, answer));
        }
        all.sort_by_key(|(index, _)| *index);
        let all: Vec<RawJson> = all.into_iter().map(|(_, answer)| answer).collect();
        return Ok(json_response(RawJson::empty_object().with("answers", &RawJson::of(&all))));
    }
    let (sender, receiver) = mpsc::channel(STREAM_BUFFER);
    let work = async move {
        while let Some((_, data)) = answers.next().await {
            // If the reader is gone, the response drops this task.
            let _ = sender.send(StreamItem { event: "answer", data }).await;
        }
    };
    let work = AbortOnDropHandle::new(tokio::spawn(work));
    Ok(stream_response(format, receiver, work, state.options.keep_alive))
}

/// Parses the calls of a request body.
fn parse_calls(body: &RequestBody) -> Result<Vec<BatchCall>, ApiProblem> {
    let calls = body.raw("calls").filter(|calls| calls.as_str().starts_with('['));
    let calls =
        calls.ok_or_else(|| ApiProblem::bad_request("calls must be an array of calls").at("$.calls"))?;
    let mut batch = Vec::new();
    for (index, call) in calls.items().take(MAX_CALLS + 1).enumerate() {
        let invalid = |what: &str| ApiProblem::bad_request(what).at(format!("$.calls[{index}]"));
        if !call.is_object() {
            return Err(invalid("a call must be an object"));
        }
        if let Some(name) = call.names().iter().find(|name| !BatchItem::KEYS.contains(&name.as_str())) {
            let expected = BatchItem::KEYS.join(", ");
            return Err(invalid(&format!("unknown key '{name}': expected one of {expected}")));
        }
        let item = BatchItem::read(index, &call).map_err(|problem| invalid(&problem))?;
        if !item.arguments.is_object() {
            return Err(invalid("arguments must be an object"));
        }
        let id = call.get("id").map(|_| item.id.clone());
        batch.push(BatchCall { index, id, item });
    }
    if batch.len() > MAX_CALLS {
        return Err(
            ApiProblem::bad_request(format!("a batch can have at most {MAX_CALLS} calls")).at("$.calls")
        );
    }
    Ok(batch)
}

/// Returns an answer without its result, which does not fit into the memory.
fn discarded(answer: &RawJson, full: MemoryPoolFull) -> RawJson {
    let reason =
        format!("the result was discarded: {full}; the tool has run; request a stream, or fewer calls");
    let problem = ApiProblem::from(CallError::LimitExceeded { reason }).document();
    let known = ["index", "tool", "id", "durationMs"].into_iter();
    let base = known.filter_map(|name| Some((name, answer.get(name)?)));
    let base = base.fold(RawJson::empty_object(), |all, (name, value)| all.with(name, &value));
    problem.members().fold(base, |all, (name, value)| all.with(&name, &value))
}

/// Runs one call; returns its index and its answer.
async fn run_one(caller: Caller, call: BatchCall) -> (usize, RawJson) {
    let BatchCall { index, id, item: BatchItem { tool, arguments, .. } } = call;
    let start_info = Arc::new(OnceLock::new());
    let started = Instant::now();
    let name = tool.to_string();
    let call = Call::new(tool, arguments);
    let call_result = caller.prepare(call).on_started(record_start(&start_info)).start().await;
    let response =
        CallResponse { start_info: start_info.get(), duration: started.elapsed(), render: tool_response };
    let base = RawJson::from(json!({"index": index, "tool": name}));
    let base = match id {
        Some(id) => base.with("id", &id),
        None => base,
    };
    let json = match response.to_json(&call_result) {
        Ok(answer) => answer.members().fold(base, |all, (name, value)| all.with(&name, &value)),
        Err(problem) => {
            let all = problem.document().members().fold(base, |all, (name, value)| all.with(&name, &value));
            all.with("durationMs", &RawJson::of(&super::stream::duration_millis(response.duration)))
        }
    };
    (index, json)
}
