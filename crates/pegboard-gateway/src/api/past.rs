//! Calls that have ended, and those that are under way, as one story.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::SystemTime;

use pegboard_core::store::{CallSummary, HistoryQuery, HistoryStore, TraceQuery, TraceRecord};
use pegboard_json::RawJson;
use pegboard_runtime::{CallId, CallStatus, Runtime};
use serde_json::{Value, json};

use super::problem::Problem;
use super::stream::{in_millis, millis};
use super::window::Window;

/// How many records of a session are told.
const MAX_RECORDS: usize = 200;
/// How deep sessions under a call are followed.
const MAX_DEPTH: usize = 32;

/// A call, in few words.
pub(super) struct Told {
    pub(super) id: String,
    pub(super) session: String,
    pub(super) started: SystemTime,
    pub(super) what: What,
    line: Value,
}

/// Where all that is known of a call is.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    UnderWay(CallId),
    Past,
}

impl Told {
    /// The call as a list has it.
    pub(super) fn into_line(self) -> Value {
        self.line
    }

    fn under_way(call: CallStatus, now: SystemTime) -> Self {
        let started = now.checked_sub(call.running_for).unwrap_or(now);
        let line = json!({
            "traceId": call.trace,
            "session": call.session,
            "tool": call.tool,
            "status": "running",
            "startedAt": millis(started),
            "durationMs": in_millis(call.running_for),
        });
        let (id, session) = (call.trace.to_string(), call.session);
        Self { id, session, started, what: What::UnderWay(call.id), line }
    }

    fn past(call: CallSummary) -> Self {
        let status = match call.error.as_deref() {
            None => "ok",
            Some("canceled") => "canceled",
            Some(_) => "failed",
        };
        let mut line = json!({
            "traceId": call.id,
            "session": call.session,
            "tool": call.tool,
            "status": status,
            "startedAt": millis(call.started),
            "durationMs": in_millis(call.duration),
        });
        if let Some(error) = &call.error {
            line["error"] = error.as_str().into();
        }
        Self { id: call.id, session: call.session, started: call.started, what: What::Past, line }
    }
}

impl Window {
    /// Where past calls are kept. What has just ended is there, too.
    pub(super) async fn history(&self) -> Result<&Arc<dyn HistoryStore>, Problem> {
        if let Some(runtime) = &self.api.runtime {
            runtime.write_history().await;
        }
        self.api.history.as_ref().ok_or_else(Problem::not_kept)
    }

    /// Calls that this principal sees, the one that began last first: all, or those of a session, or those whose id
    /// begins like this.
    pub(super) async fn story(&self, query: HistoryQuery) -> Result<Vec<Told>, Problem> {
        let (now, n_most) = (self.now(), query.n_most);
        let is_wanted = |call: &CallStatus| {
            !call.operation.contains('.')
                && self.who.sees(&call.owner)
                && query.session.as_ref().is_none_or(|session| *session == call.session)
                && query.id_prefix.as_ref().is_none_or(|prefix| call.trace.as_str().starts_with(prefix))
        };
        let under_way = self.api.runtime.as_ref().map(Runtime::calls).unwrap_or_default();
        let mut story: Vec<Told> =
            under_way.into_iter().filter(is_wanted).map(|call| Told::under_way(call, now)).collect();
        let query = HistoryQuery { owner: self.who.owner(), ..query };
        let past = self.history().await?.calls(query, now).await?;
        // One that has ended meanwhile is past.
        story.retain(|told| past.iter().all(|call| call.id != told.id));
        story.extend(past.into_iter().map(Told::past));
        story.sort_by_key(|told| Reverse(told.started));
        story.truncate(n_most);
        Ok(story)
    }

    /// All that is known of a call: its operation, with everything under it.
    pub(super) async fn operation(&self, told: &Told) -> Result<Option<RawJson>, Problem> {
        if let (What::UnderWay(call), Some(runtime)) = (told.what, &self.api.runtime)
            && let Some(operation) = runtime.operation(call)
        {
            return Ok(Some(RawJson::of(&operation)));
        }
        let past = self.history().await?.get(told.id.clone(), self.now()).await?;
        Ok(past.and_then(|call| RawJson::parse(call.body).ok()))
    }

    /// What was written down of a session that a caller named, the newest first.
    pub(super) async fn records(&self, session: &str) -> Result<Vec<TraceRecord>, Problem> {
        let Some(traces) = &self.api.traces else { return Ok(Vec::new()) };
        let query = TraceQuery { session: Some(session.to_owned()), n_most: MAX_RECORDS, workspace: None };
        Ok(traces.find(query).await?)
    }
}

/// What the tools of an operation and of all under it used, in the order in which they began.
pub(super) fn accounting(operation: &Value) -> Vec<Value> {
    let mut entries = Vec::new();
    collect(operation, &mut entries, 0);
    entries
}

fn collect(operation: &Value, entries: &mut Vec<Value>, depth: usize) {
    entries.extend(operation["accounting"].as_array().into_iter().flatten().cloned());
    if depth > MAX_DEPTH {
        return;
    }
    let turns = operation["childSession"]["turns"].as_array().into_iter().flatten();
    for under in turns.flat_map(|turn| turn["ops"].as_array().into_iter().flatten()) {
        collect(under, entries, depth + 1);
    }
}
