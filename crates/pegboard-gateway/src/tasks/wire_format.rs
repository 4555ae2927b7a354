//! JSON form of tasks, by protocol form.

use std::time::{Duration, SystemTime};

use pegboard_core::utc::UtcTime;
use pegboard_json::RawJson;
use serde_json::{Value, json};

use super::TaskOwner;
use super::outcome::TaskOutcome;
use super::task::{GatewayTask, TaskState};

/// `_meta` key that relates a message to a task in 2025-11-25.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Result of the request that created a task: its initial state, whatever has happened since.
pub(crate) fn created(task: &GatewayTask) -> RawJson {
    let json = base(task, "working", None, task.created());
    match task.owner() {
        TaskOwner::Session(_) => RawJson::empty_object().with("task", &json),
        TaskOwner::Extension { .. } => json.with("resultType", &RawJson::of("task")),
    }
}

/// Current state of a task, for `tasks/get` and for notifications.
pub(super) fn detailed(task: &GatewayTask) -> RawJson {
    task.with_state(|state| {
        let message = message(task.owner(), state);
        let json = base(task, status_of(task.owner(), state), message, state.updated);
        match (task.owner(), &state.outcome) {
            (TaskOwner::Session(_), _) | (TaskOwner::Extension { .. }, Some(TaskOutcome::Cancelled)) => json,
            (TaskOwner::Extension { .. }, Some(TaskOutcome::Completed(result))) => {
                json.with("result", result)
            }
            (TaskOwner::Extension { .. }, Some(TaskOutcome::Failed(error))) => {
                json.with("error", &RawJson::of(error))
            }
            (TaskOwner::Extension { .. }, None) if state.inputs.is_empty() => json,
            (TaskOwner::Extension { .. }, None) => {
                json.with("inputRequests", &state.inputs.as_json(RawJson::clone))
            }
        }
    })
}

/// Status of a task.
pub(super) fn status(task: &GatewayTask) -> &'static str {
    task.with_state(|state| status_of(task.owner(), state))
}

/// Pending questions, with the task id in `_meta`.
pub(super) fn related_questions(task: &GatewayTask) -> RawJson {
    task.with_state(|state| state.inputs.as_json(|params| related(task, params)))
}

/// A task result, with the task id in `_meta`.
pub(super) fn related_result(task: &GatewayTask, result: &RawJson) -> RawJson {
    related(task, result)
}

fn related(task: &GatewayTask, object: &RawJson) -> RawJson {
    let own = object.get("_meta").filter(RawJson::is_object).unwrap_or_else(RawJson::empty_object);
    let mark = RawJson::from(json!({"taskId": task.id()}));
    object.with("_meta", &own.with(RELATED_TASK, &mark))
}

fn base(task: &GatewayTask, status: &str, message: Option<String>, updated: SystemTime) -> RawJson {
    let mut json = json!({
        "taskId": task.id(),
        "status": status,
        "createdAt": UtcTime::from(task.created()).to_string(),
        "lastUpdatedAt": UtcTime::from(updated).to_string(),
    });
    if let Some(message) = message {
        json["statusMessage"] = Value::String(message);
    }
    let (time_to_live, poll_interval) = match task.owner() {
        TaskOwner::Session(_) => ("ttl", "pollInterval"),
        TaskOwner::Extension { .. } => ("ttlMs", "pollIntervalMs"),
    };
    json[time_to_live] = millis(task.time_to_live);
    json[poll_interval] = millis(task.poll_interval);
    RawJson::from(json)
}

fn millis(time: Duration) -> Value {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).into()
}

fn status_of(owner: &TaskOwner, state: &TaskState) -> &'static str {
    match (&state.outcome, owner) {
        (None, _) if state.inputs.is_empty() => "working",
        (None, _) => "input_required",
        (Some(TaskOutcome::Cancelled), _) => "cancelled",
        (Some(TaskOutcome::Failed(_)), _) => "failed",
        // A tool error is a failed task in the session form, and a completed one in the extension.
        (Some(outcome @ TaskOutcome::Completed(_)), TaskOwner::Session(_)) if outcome.is_error() => "failed",
        (Some(TaskOutcome::Completed(_)), _) => "completed",
    }
}

fn message(owner: &TaskOwner, state: &TaskState) -> Option<String> {
    match (&state.outcome, owner) {
        (None, _) => state.message.clone(),
        (Some(TaskOutcome::Failed(error)), _) => Some(error.message.clone()),
        (Some(TaskOutcome::Cancelled), _) => Some("The task was cancelled by request.".to_owned()),
        (Some(outcome @ TaskOutcome::Completed(result)), TaskOwner::Session(_)) if outcome.is_error() => {
            let content = result.get("content")?;
            content.items().next()?.get("text")?.read().ok()
        }
        (Some(TaskOutcome::Completed(_)), _) => None,
    }
}
