//! Everything that happens, as it happens.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use pegboard_runtime::event::{Event, Subject};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::Principal;
use super::problem::Problem;
use super::question::{Asked, Form};
use super::stream::{Item, MAX_WAITING, in_millis, items};
use super::window::Shown;

/// Which events are wanted; all if nothing is said.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    kinds: Option<String>,
}

/// `GET /api/events`
pub(super) async fn listen(
    State(window): Shown,
    form: Form,
    Asked(wanted): Asked<Wanted>,
) -> Result<Response, Problem> {
    let kinds = wanted.kinds.map(|kinds| kinds.split(',').map(|kind| kind.trim().to_owned()).collect());
    check(kinds.as_ref())?;
    let events = window.runtime()?.events().subscribe();
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let telling = tell(events, kinds, window.who.clone(), sender);
    let form = if form == Form::Lines { Form::Lines } else { Form::Events };
    let work = AbortOnDropHandle::new(tokio::spawn(telling));
    Ok(items(form, receiver, work, window.options.keep_alive))
}

/// Refuses words for which there is no event: who waits for one would wait for ever.
fn check(kinds: Option<&HashSet<String>>) -> Result<(), Problem> {
    let unknown = kinds.and_then(|kinds| kinds.iter().find(|kind| !KINDS.contains(&kind.as_str())));
    match unknown {
        None => Ok(()),
        Some(unknown) => {
            let shown: String = unknown.chars().take(40).collect();
            Err(Problem::bad_request(format!("There is no event '{shown}'; there are {}", KINDS.join(", "))))
        }
    }
}

async fn tell(
    mut events: broadcast::Receiver<Event>,
    kinds: Option<HashSet<String>>,
    who: Principal,
    sender: mpsc::Sender<Item>,
) {
    loop {
        let item = match events.recv().await {
            Ok(event) => {
                let kind = kind(&event);
                let is_shown = match (subject(&event), &event) {
                    (Some(call), _) => who.sees(&call.owner),
                    // Whoever asked for it is not known.
                    (None, Event::Corrected { .. }) => who == Principal::Everybody,
                    (None, _) => true,
                };
                if !is_shown || kinds.as_ref().is_some_and(|kinds| !kinds.contains(kind)) {
                    continue;
                }
                Item::new(kind, told(&event))
            }
            Err(broadcast::error::RecvError::Lagged(n_missed)) => Item::new("missed", json!({"n": n_missed})),
            Err(broadcast::error::RecvError::Closed) => return,
        };
        // Waiting here is what makes a slow reader miss some.
        if sender.send(item).await.is_err() {
            return;
        }
    }
}

/// An event as it is told: names as everywhere here, and durations in milliseconds.
fn told(event: &Event) -> Value {
    let mut told = spelled(serde_json::to_value(event).unwrap_or_default());
    if let Some(members) = told.as_object_mut() {
        // It is the name of what is sent already.
        members.shift_remove("event");
    }
    told
}

fn spelled(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(spelled).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| match duration(&value) {
                Some(duration) => (format!("{}Ms", in_camel_case(&name)), in_millis(duration).into()),
                None => (in_camel_case(&name), spelled(value)),
            })
            .collect(),
        other => other,
    }
}

/// The duration that a value is, if it is one.
fn duration(value: &Value) -> Option<Duration> {
    let members = value.as_object().filter(|members| members.len() == 2)?;
    let nanos = u32::try_from(members.get("nanos")?.as_u64()?).ok()?;
    Some(Duration::new(members.get("secs")?.as_u64()?, nanos))
}

fn in_camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut all, word| {
        let mut letters = word.chars();
        all.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        all.push_str(letters.as_str());
        all
    })
}

/// The words for all events.
const KINDS: [&str; 17] = [
    "tool_started",
    "tool_finished",
    "progress",
    "turn",
    "status",
    "agent_warned",
    "model_started",
    "model_finished",
    "queued",
    "dequeued",
    "queue_depth",
    "cache",
    "output_stored",
    "corrected",
    "server",
    "started",
    "catalogue",
];

/// The word for an event.
fn kind(event: &Event) -> &'static str {
    match event {
        Event::ToolStarted { .. } => "tool_started",
        Event::ToolFinished { .. } => "tool_finished",
        Event::Progress { .. } => "progress",
        Event::Turn { .. } => "turn",
        Event::Status { .. } => "status",
        Event::AgentWarned { .. } => "agent_warned",
        Event::ModelStarted { .. } => "model_started",
        Event::ModelFinished { .. } => "model_finished",
        Event::Queued { .. } => "queued",
        Event::Dequeued { .. } => "dequeued",
        Event::QueueDepth { .. } => "queue_depth",
        Event::Cache { .. } => "cache",
        Event::OutputStored { .. } => "output_stored",
        Event::Corrected { .. } => "corrected",
        Event::Server { .. } => "server",
        Event::Started { .. } => "started",
        Event::Catalogue { .. } => "catalogue",
    }
}

/// The call that an event is about, if it is about one.
fn subject(event: &Event) -> Option<&Arc<Subject>> {
    match event {
        Event::ToolStarted { call }
        | Event::ToolFinished { call, .. }
        | Event::Progress { call, .. }
        | Event::Turn { call, .. }
        | Event::Status { call, .. }
        | Event::AgentWarned { call, .. }
        | Event::ModelStarted { call, .. }
        | Event::ModelFinished { call, .. }
        | Event::Queued { call, .. }
        | Event::Dequeued { call, .. }
        | Event::Cache { call, .. }
        | Event::OutputStored { call, .. } => Some(call),
        Event::QueueDepth { .. }
        | Event::Corrected { .. }
        | Event::Server { .. }
        | Event::Started { .. }
        | Event::Catalogue { .. } => None,
    }
}
