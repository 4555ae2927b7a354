//! `/api/calls`: lists, starts, answers and cancels calls.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, CallContext, CallResult, ToolRef};
use pegboard_core::error::CallError;
use pegboard_core::projection::mcp_result;
use pegboard_json::RawJson;
use pegboard_runtime::catalogue::CatalogueTool;
use pegboard_runtime::trace_id::TraceId;
use pegboard_runtime::{CallBuilder, CallId, CallStarted, CallStatus, Caller};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::extract::{RequestBody, ResponseFormat};
use super::problem::ApiProblem;
use super::state::{ApiState, SharedApiState};
use super::stream::{
    STREAM_BUFFER, StreamItem, duration_millis, json_response, stream_response, unix_millis,
};
use subscriber::CallSubscriber;

mod subscriber;

pub(super) use subscriber::CallSubscribers;

/// Maximum number of calls in a list.
const MAX_LISTED: usize = 1_000;
/// Upper bound of a requested timeout.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);
/// Keys that the body of a call may have.
const BODY_KEYS: [&str; 6] = ["tool", "arguments", "timeoutMs", "noCache", "session", "startWaitMs"];

/// `GET /api/calls`
pub(super) async fn list(State(state): SharedApiState) -> Result<Response, ApiProblem> {
    let now = state.now();
    let calls = state.runtime()?.calls().into_iter().filter(|call| state.scope.includes(&call.owner));
    let calls = calls.take(MAX_LISTED).map(|call| {
        let CallStatus { id, trace, session, operation, tool, running_for, state, .. } = call;
        json!({
            "callId": id.to_string(),
            "traceId": trace,
            "tool": tool,
            "caller": session,
            "operation": operation,
            "state": state,
            "startedAt": unix_millis(now.checked_sub(running_for).unwrap_or(now)),
            "elapsedMs": duration_millis(running_for),
        })
    });
    Ok(json_response(json!({"calls": calls.collect::<Vec<_>>()})))
}

/// `DELETE /api/calls/{call}`
pub(super) async fn cancel(
    State(state): SharedApiState,
    Path(call): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    let runtime = state.runtime()?;
    let id: CallId = call.parse().map_err(|_| no_such_call(&call))?;
    let is_visible = |status: &CallStatus| status.id == id && state.scope.includes(&status.owner);
    if runtime.calls().iter().any(is_visible) && runtime.cancel(id) {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(no_such_call(&call))
}

fn no_such_call(call: &str) -> ApiProblem {
    let call: String = call.chars().take(40).collect();
    ApiProblem::not_found(format!("no running call '{call}'")).hint("GET /api/calls lists running calls")
}

/// `POST /api/calls/{call}/answers`
pub(super) async fn answer(
    State(state): SharedApiState,
    Path(call): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiProblem> {
    let body = RequestBody::read(&state, &headers, body, &["id", "answers"]).await?;
    let id: String = body.require("id", "the id of a pending question")?;
    let answers = body.raw("answers").filter(RawJson::is_object).ok_or_else(|| {
        ApiProblem::bad_request("answers must be an object with one answer per question").at("$.answers")
    })?;
    let subscriber = call.parse().ok().and_then(|call| state.api.subscribers.get(call));
    let subscriber = subscriber
        .filter(|subscriber| state.scope.includes(subscriber.owner()))
        .ok_or_else(|| no_such_call(&call))?;
    subscriber.answer(&id, &answers)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /api/calls`
pub(super) async fn start(
    State(state): SharedApiState,
    format: ResponseFormat,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiProblem> {
    let body = RequestBody::read(&state, &headers, body, &BODY_KEYS).await?;
    let tool: String = body.require("tool", "the name of a tool")?;
    let arguments = body.raw("arguments").unwrap_or_else(RawJson::empty_object);
    if !arguments.is_object() {
        return Err(ApiProblem::bad_request("arguments must be an object").at("$.arguments"));
    }
    let options = RequestedOptions::from_body(&body)?;
    let session: Option<String> = body.get("session", "a name")?;
    let caller = state.named_caller(session.as_deref(), &headers)?;
    // An unknown tool is an error of the request, not of a call.
    let waited_before: Option<u64> = body.get("startWaitMs", "a number of milliseconds")?;
    let (tool, start_wait) = find_and_start(&caller, &tool.into(), options.timeout).await?;
    let call = Call::new(ToolRef::Id(tool.id.clone()), CallArguments::from(arguments));
    let waited_before = Duration::from_millis(waited_before.unwrap_or_default()).min(MAX_TIMEOUT);
    let call = caller.prepare(call).start_wait(waited_before + start_wait);
    let responder = CallResponder { call, options, render: tool_response };
    responder.respond(&state, format).await
}

/// Finds a tool. If its server must start first, also returns the time for that.
pub(super) async fn find_and_start(
    caller: &Caller,
    name: &ToolRef,
    timeout: Option<Duration>,
) -> Result<(Arc<CatalogueTool>, Duration), CallError> {
    let is_known = caller.find_known_tool(name).is_ok();
    let asked_at = Instant::now();
    let tool = caller.find_tool(name, timeout).await?;
    Ok((tool, if is_known { Duration::ZERO } else { asked_at.elapsed() }))
}

/// Per-call options from a request body.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestedOptions {
    timeout: Option<Duration>,
    no_cache: bool,
}

impl RequestedOptions {
    /// Parses the options of a request body.
    pub(super) fn from_body(body: &RequestBody) -> Result<Self, ApiProblem> {
        let millis: Option<u64> = body.get("timeoutMs", "a number of milliseconds")?;
        if millis == Some(0) {
            return Err(ApiProblem::bad_request("timeoutMs must be more than 0").at("$.timeoutMs"));
        }
        let timeout = millis.map(|millis| Duration::from_millis(millis).min(MAX_TIMEOUT));
        let no_cache = body.get("noCache", "true or false")?.unwrap_or_default();
        Ok(Self { timeout, no_cache })
    }

    fn context(self) -> CallContext {
        let mut context = CallContext::default();
        context.options.fresh = self.no_cache;
        if let Some(timeout) = self.timeout {
            // The timeout starts now and replaces the one configured for the tool.
            context.options.disable_global_timeout = true;
            context.deadline = Some(Instant::now() + timeout);
        }
        context
    }
}

/// Starts a call and turns its result into a response.
pub(super) struct CallResponder {
    pub(super) call: CallBuilder,
    pub(super) options: RequestedOptions,
    /// Renders the result of the call.
    pub(super) render: fn(&CallResult) -> Result<RawJson, ApiProblem>,
}

impl CallResponder {
    /// Runs the call and responds in the requested format. If the client disconnects, the call is cancelled.
    pub(super) async fn respond(
        self,
        state: &ApiState,
        format: ResponseFormat,
    ) -> Result<Response, ApiProblem> {
        match format {
            ResponseFormat::Document => {
                let started = Instant::now();
                let start_info = Arc::new(OnceLock::new());
                let call = self.call.context(self.options.context()).on_started(record_start(&start_info));
                let call_result = call.start().await;
                let response = CallResponse {
                    start_info: start_info.get(),
                    duration: started.elapsed(),
                    render: self.render,
                };
                response.to_json(&call_result).map(json_response)
            }
            ResponseFormat::Events | ResponseFormat::Lines => Ok(self.stream(state, format)),
        }
    }

    fn stream(self, state: &ApiState, format: ResponseFormat) -> Response {
        let Self { call, options, render } = self;
        let (sender, receiver) = mpsc::channel(STREAM_BUFFER);
        let subscriber = CallSubscriber::new(call.caller().owner(), sender.clone());
        let mut context = options.context();
        context.client = Some(Arc::clone(&subscriber) as _);
        let start_info = Arc::new(OnceLock::new());
        let (started, subscribers) = (Instant::now(), Arc::clone(&state.api.subscribers));
        let guard = subscribers.register(subscriber, Arc::clone(&start_info));
        let running = call.context(context).on_started(guard.on_started()).start();
        let work = async move {
            let call_result = running.await;
            let response = CallResponse { start_info: start_info.get(), duration: started.elapsed(), render };
            let last = match response.to_json(&call_result) {
                Ok(result) => StreamItem { event: "result", data: result },
                Err(problem) => StreamItem::new("error", problem.document()),
            };
            drop(guard);
            // The reader may be gone.
            let _ = sender.send(last).await;
        };
        let work = AbortOnDropHandle::new(tokio::spawn(work));
        stream_response(format, receiver, work, state.options.keep_alive)
    }
}

/// Returns a callback that stores the ids of the call.
pub(super) fn record_start(start_info: &Arc<OnceLock<CallStarted>>) -> impl FnOnce(CallStarted) + use<> {
    let start_info = Arc::clone(start_info);
    move |start| {
        start_info.get_or_init(|| start);
    }
}

/// Response to a finished call.
pub(super) struct CallResponse<'e> {
    pub(super) start_info: Option<&'e CallStarted>,
    pub(super) duration: Duration,
    pub(super) render: fn(&CallResult) -> Result<RawJson, ApiProblem>,
}

impl CallResponse<'_> {
    fn trace(&self) -> Option<TraceId> {
        self.start_info.map(|start| start.trace.clone())
    }

    pub(super) fn to_json(&self, call_result: &CallResult) -> Result<RawJson, ApiProblem> {
        let answer = (self.render)(call_result).map_err(|problem| problem.with_trace(self.trace()))?;
        let start_info = self.start_info.map_or_else(RawJson::empty_object, |CallStarted { id, trace }| {
            RawJson::from(json!({"callId": id.to_string(), "traceId": trace}))
        });
        let mut details =
            json!({"durationMs": duration_millis(self.duration), "cached": call_result.meta.is_cached});
        if let Some(handle) = &call_result.meta.stored {
            details["storedAs"] = handle.0.clone().into();
        }
        if let Some(requested) = &call_result.meta.corrected_from {
            details["correctedFrom"] = requested.clone().into();
        }
        details["warnings"] = call_result.warnings.clone().into();
        let details = RawJson::from(details);
        let members = answer.members().chain(details.members());
        Ok(members.fold(start_info, |all, (name, value)| all.with(&name, &value)))
    }
}

/// Renders the output of a tool call.
pub(super) fn tool_response(call_result: &CallResult) -> Result<RawJson, ApiProblem> {
    let output = call_result.result.as_ref().map_err(|error| ApiProblem::from(error.clone()))?;
    Ok(RawJson::empty_object()
        .with("result", &mcp_result(call_result))
        .with("text", &RawJson::of(&*output.text()))
        .with("isError", &RawJson::of(&output.is_error()))
        .with("bytes", &RawJson::of(&output.n_bytes())))
}
