//! `GET /api/events`: runtime events as they happen.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use pegboard_core::owner::OwnerScope;
use pegboard_runtime::Runtime;
use pegboard_runtime::event::{CallInfo, RuntimeEvent, ServerStart};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};
use tokio_util::task::AbortOnDropHandle;

use super::extract::{QueryParams, ResponseFormat};
use super::problem::ApiProblem;
use super::state::SharedApiState;
use super::stream::{STREAM_BUFFER, StreamItem, duration_millis, stream_response};

/// Query parameters: event kinds to include; all if absent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventsQuery {
    kinds: Option<String>,
}

/// `GET /api/events`
pub(super) async fn listen(
    State(state): SharedApiState,
    format: ResponseFormat,
    QueryParams(query): QueryParams<EventsQuery>,
) -> Result<Response, ApiProblem> {
    let kinds = query.kinds.map(|kinds| kinds.split(',').map(|kind| kind.trim().to_owned()).collect());
    check_kinds(kinds.as_ref())?;
    let runtime = state.runtime()?.clone();
    let events = runtime.events().subscribe();
    let (sender, receiver) = mpsc::channel(STREAM_BUFFER);
    let visibility = EventVisibility { runtime, scope: state.scope.clone() };
    let forwarding = forward(events, kinds, visibility, sender);
    let format = if format == ResponseFormat::Lines { ResponseFormat::Lines } else { ResponseFormat::Events };
    let work = AbortOnDropHandle::new(tokio::spawn(forwarding));
    Ok(stream_response(format, receiver, work, state.options.keep_alive))
}

/// Rejects unknown event kinds: the stream would stay silent for ever.
fn check_kinds(kinds: Option<&HashSet<String>>) -> Result<(), ApiProblem> {
    let unknown = kinds.and_then(|kinds| kinds.iter().find(|kind| !KINDS.contains(&kind.as_str())));
    match unknown {
        None => Ok(()),
        Some(unknown) => {
            let shown: String = unknown.chars().take(40).collect();
            Err(ApiProblem::bad_request(format!(
                "unknown event kind '{shown}': expected one of {}",
                KINDS.join(", ")
            )))
        }
    }
}

async fn forward(
    mut events: broadcast::Receiver<RuntimeEvent>,
    kinds: Option<HashSet<String>>,
    visibility: EventVisibility,
    sender: mpsc::Sender<StreamItem>,
) {
    loop {
        let item = match events.recv().await {
            Ok(event) => {
                let kind = kind(&event);
                if kinds.as_ref().is_some_and(|kinds| !kinds.contains(kind)) {
                    continue;
                }
                let Some(event) = visibility.visible(event) else { continue };
                StreamItem::new(kind, event_json(&event))
            }
            Err(broadcast::error::RecvError::Lagged(n_missed)) => {
                StreamItem::new("missed", json!({"n": n_missed}))
            }
            Err(broadcast::error::RecvError::Closed) => return,
        };
        // Backpressure here is what makes a slow reader lag.
        if sender.send(item).await.is_err() {
            return;
        }
    }
}

/// Visibility of events within a scope.
struct EventVisibility {
    runtime: Runtime,
    scope: OwnerScope,
}

impl EventVisibility {
    /// Returns the part of an event that is visible, if any.
    fn visible(&self, event: RuntimeEvent) -> Option<RuntimeEvent> {
        if let Some(call) = subject(&event) {
            return self.scope.includes(&call.owner).then_some(event);
        }
        let shows_unowned = self.runtime.shows_unowned(&self.scope);
        Some(match event {
            // The event does not record its caller.
            RuntimeEvent::Corrected { .. } if self.scope != OwnerScope::All => return None,
            RuntimeEvent::Server { toolbox, server, state } => {
                let state = if shows_unowned { state.with_stderr() } else { state.without_stderr() };
                RuntimeEvent::Server { toolbox, server, state }
            }
            // The errors may tell what a server wrote.
            RuntimeEvent::Started { servers } if !shows_unowned => {
                let without_reason = |start: ServerStart| {
                    let error = start.error.map(|_| "the server did not start".to_owned());
                    ServerStart { error, ..start }
                };
                RuntimeEvent::Started { servers: servers.into_iter().map(without_reason).collect() }
            }
            other => other,
        })
    }
}

/// Renders an event: keys in camel case, durations in milliseconds.
fn event_json(event: &RuntimeEvent) -> Value {
    let mut json = camel_case_keys(serde_json::to_value(event).unwrap_or_default());
    if let Some(members) = json.as_object_mut() {
        // Already sent as the event name.
        members.shift_remove("event");
    }
    json
}

fn camel_case_keys(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(camel_case_keys).collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(name, value)| match duration(&value) {
                Some(duration) => (format!("{}Ms", camel_case(&name)), duration_millis(duration).into()),
                None => (camel_case(&name), camel_case_keys(value)),
            })
            .collect(),
        other => other,
    }
}

/// Parses a serialized `Duration`.
fn duration(value: &Value) -> Option<Duration> {
    let members = value.as_object().filter(|members| members.len() == 2)?;
    let nanos = u32::try_from(members.get("nanos")?.as_u64()?).ok()?;
    Some(Duration::new(members.get("secs")?.as_u64()?, nanos))
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut all, word| {
        let mut letters = word.chars();
        all.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        all.push_str(letters.as_str());
        all
    })
}

/// All event kinds.
const KINDS: [&str; 19] = [
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
    "log_lost",
    "notifications_dropped",
    "catalogue",
];

/// Returns the kind of an event.
fn kind(event: &RuntimeEvent) -> &'static str {
    match event {
        RuntimeEvent::ToolStarted { .. } => "tool_started",
        RuntimeEvent::ToolFinished { .. } => "tool_finished",
        RuntimeEvent::Progress { .. } => "progress",
        RuntimeEvent::Turn { .. } => "turn",
        RuntimeEvent::Status { .. } => "status",
        RuntimeEvent::AgentWarned { .. } => "agent_warned",
        RuntimeEvent::ModelStarted { .. } => "model_started",
        RuntimeEvent::ModelFinished { .. } => "model_finished",
        RuntimeEvent::Queued { .. } => "queued",
        RuntimeEvent::Dequeued { .. } => "dequeued",
        RuntimeEvent::QueueDepth { .. } => "queue_depth",
        RuntimeEvent::Cache { .. } => "cache",
        RuntimeEvent::OutputStored { .. } => "output_stored",
        RuntimeEvent::Corrected { .. } => "corrected",
        RuntimeEvent::Server { .. } => "server",
        RuntimeEvent::Started { .. } => "started",
        RuntimeEvent::LogLost { .. } => "log_lost",
        RuntimeEvent::NotificationsDropped { .. } => "notifications_dropped",
        RuntimeEvent::Catalogue { .. } => "catalogue",
    }
}

/// Returns the call that an event belongs to, if any.
fn subject(event: &RuntimeEvent) -> Option<&Arc<CallInfo>> {
    match event {
        RuntimeEvent::ToolStarted { call }
        | RuntimeEvent::ToolFinished { call, .. }
        | RuntimeEvent::Progress { call, .. }
        | RuntimeEvent::Turn { call, .. }
        | RuntimeEvent::Status { call, .. }
        | RuntimeEvent::AgentWarned { call, .. }
        | RuntimeEvent::ModelStarted { call, .. }
        | RuntimeEvent::ModelFinished { call, .. }
        | RuntimeEvent::Queued { call, .. }
        | RuntimeEvent::Dequeued { call, .. }
        | RuntimeEvent::Cache { call, .. }
        | RuntimeEvent::OutputStored { call, .. } => Some(call),
        RuntimeEvent::QueueDepth { .. }
        | RuntimeEvent::Corrected { .. }
        | RuntimeEvent::Server { .. }
        | RuntimeEvent::Started { .. }
        | RuntimeEvent::LogLost { .. }
        | RuntimeEvent::NotificationsDropped { .. }
        | RuntimeEvent::Catalogue { .. } => None,
    }
}
