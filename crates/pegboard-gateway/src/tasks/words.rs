//! Tasks in the words of the form that their client knows.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use pegboard_json::RawJson;
use serde_json::{Value, json};

use super::Form;
use super::end::End;
use super::task::{State, Task};

/// What ties a message to a task in 2025-11-25.
const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// What answers the request that made a task: the task as it began, whatever has become of it since.
pub(crate) fn created(task: &Task) -> RawJson {
    let words = base(task, "working", None, task.created());
    match task.form() {
        Form::Session(_) => RawJson::empty_object().with("task", &words),
        Form::Extension { .. } => words.with("resultType", &RawJson::of("task")),
    }
}

/// What answers a question about a task, and tells of its change.
pub(super) fn detailed(task: &Task) -> RawJson {
    task.look(|state| {
        let message = message(task.form(), state);
        let words = base(task, status_of(task.form(), state), message, state.updated);
        match (task.form(), &state.end) {
            (Form::Session(_), _) | (Form::Extension { .. }, Some(End::Cancelled)) => words,
            (Form::Extension { .. }, Some(End::Completed(result))) => words.with("result", result),
            (Form::Extension { .. }, Some(End::Failed(error))) => words.with("error", &RawJson::of(error)),
            (Form::Extension { .. }, None) if state.open.is_empty() => words,
            (Form::Extension { .. }, None) => {
                words.with("inputRequests", &state.open.as_json(RawJson::clone))
            }
        }
    })
}

/// The status of a task.
pub(super) fn status(task: &Task) -> &'static str {
    task.look(|state| status_of(task.form(), state))
}

/// The open questions, which say what task asks them.
pub(super) fn related_questions(task: &Task) -> RawJson {
    task.look(|state| state.open.as_json(|params| related(task, params)))
}

/// A result that says what task it is of.
pub(super) fn related_result(task: &Task, result: &RawJson) -> RawJson {
    related(task, result)
}

fn related(task: &Task, object: &RawJson) -> RawJson {
    let own = object.get("_meta").filter(RawJson::is_object).unwrap_or_else(RawJson::empty_object);
    let mark = RawJson::from(json!({"taskId": task.id()}));
    object.with("_meta", &own.with(RELATED_TASK, &mark))
}

fn base(task: &Task, status: &str, message: Option<String>, updated: SystemTime) -> RawJson {
    let mut words = json!({
        "taskId": task.id(),
        "status": status,
        "createdAt": moment(task.created()),
        "lastUpdatedAt": moment(updated),
    });
    if let Some(message) = message {
        words["statusMessage"] = Value::String(message);
    }
    let (time_to_live, poll_interval) = match task.form() {
        Form::Session(_) => ("ttl", "pollInterval"),
        Form::Extension { .. } => ("ttlMs", "pollIntervalMs"),
    };
    words[time_to_live] = millis(task.time_to_live);
    words[poll_interval] = millis(task.poll_interval);
    RawJson::from(words)
}

fn millis(time: Duration) -> Value {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).into()
}

/// A moment as the protocol writes it: RFC 3339, with milliseconds.
fn moment(moment: SystemTime) -> String {
    format!("{:.3}", Timestamp::try_from(moment).unwrap_or(Timestamp::UNIX_EPOCH))
}

fn status_of(form: &Form, state: &State) -> &'static str {
    match (&state.end, form) {
        (None, _) if state.open.is_empty() => "working",
        (None, _) => "input_required",
        (Some(End::Cancelled), _) => "cancelled",
        (Some(End::Failed(_)), _) => "failed",
        // A tool that says that it could not do it has failed there, and has answered here.
        (Some(end @ End::Completed(_)), Form::Session(_)) if end.is_error() => "failed",
        (Some(End::Completed(_)), _) => "completed",
    }
}

fn message(form: &Form, state: &State) -> Option<String> {
    match (&state.end, form) {
        (None, _) => state.message.clone(),
        (Some(End::Failed(error)), _) => Some(error.message.clone()),
        (Some(End::Cancelled), _) => Some("The task was cancelled by request.".to_owned()),
        (Some(end @ End::Completed(result)), Form::Session(_)) if end.is_error() => {
            let content = result.get("content")?;
            content.items().next()?.get("text")?.read().ok()
        }
        (Some(End::Completed(_)), _) => None,
    }
}
