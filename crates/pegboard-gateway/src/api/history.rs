//! Running and finished calls as one list.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use pegboard_core::owner::{Owner, OwnerScope};
use pegboard_core::store::{CallLog, CallQuery, CallSummary, FinishedCall, TraceQuery, TraceRecord};
use pegboard_json::RawJson;
use pegboard_runtime::{CallId, CallStatus, Runtime, logged_operation};
use serde_json::{Value, json};

use super::problem::ApiProblem;
use super::state::ApiState;
use super::stream::{duration_millis, unix_millis};

/// Maximum number of trace records per session.
const MAX_RECORDS: usize = 200;
/// Maximum depth when following child sessions.
const MAX_DEPTH: usize = 32;

/// A call in a list.
pub(super) struct CallListItem {
    pub(super) id: String,
    pub(super) session: String,
    pub(super) owner: Owner,
    pub(super) started: SystemTime,
    pub(super) source: CallSource,
    json: Value,
}

/// Location of the full record of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallSource {
    Running(CallId),
    History,
}

impl CallListItem {
    /// Returns the call as a list entry.
    pub(super) fn into_json(self) -> Value {
        self.json
    }

    fn running(call: CallStatus, now: SystemTime) -> Self {
        let started = now.checked_sub(call.running_for).unwrap_or(now);
        let json = json!({
            "traceId": call.trace,
            "session": call.session,
            "tool": call.tool,
            "status": "running",
            "startedAt": unix_millis(started),
            "durationMs": duration_millis(call.running_for),
        });
        let (id, session, owner) = (call.trace.to_string(), call.session, call.owner);
        Self { id, session, owner, started, source: CallSource::Running(call.id), json }
    }

    fn finished(call: CallSummary) -> Self {
        let status = match call.error.as_deref() {
            None => "ok",
            Some("canceled") => "canceled",
            Some(_) => "failed",
        };
        let mut json = json!({
            "traceId": call.id,
            "session": call.session,
            "tool": call.tool,
            "status": status,
            "startedAt": unix_millis(call.started),
            "durationMs": duration_millis(call.duration),
        });
        if let Some(error) = &call.error {
            json["error"] = error.as_str().into();
        }
        let (id, session, owner) = (call.id, call.session.to_string(), call.owner);
        Self { id, session, owner, started: call.started, source: CallSource::History, json }
    }
}

impl ApiState {
    /// Returns the call log, after flushing pending writes.
    pub(super) async fn call_log(&self) -> Result<&Arc<dyn CallLog>, ApiProblem> {
        if let Some(runtime) = &self.api.runtime {
            runtime.flush_call_log().await;
        }
        self.api.call_log.as_ref().ok_or_else(ApiProblem::not_stored)
    }

    /// Returns the visible calls that match a query, newest first: all, or those of a session, or those with
    /// an id prefix.
    pub(super) async fn call_history(&self, query: CallQuery) -> Result<Vec<CallListItem>, ApiProblem> {
        let (now, n_most) = (self.now(), query.limit);
        let is_match = |call: &CallStatus| {
            !call.operation.contains('.')
                && self.scope.includes(&call.owner)
                && query.session.as_ref().is_none_or(|session| *session == call.session)
                && query.id_prefix.as_ref().is_none_or(|prefix| call.trace.as_str().starts_with(prefix))
        };
        let running = self.api.runtime.as_ref().map(Runtime::calls).unwrap_or_default();
        let mut calls: Vec<CallListItem> =
            running.into_iter().filter(is_match).map(|call| CallListItem::running(call, now)).collect();
        let finished = self.call_log().await?.calls(query, now).await?;
        // A call that has finished meanwhile is in the store.
        calls.retain(|item| finished.iter().all(|call| call.id != item.id));
        calls.extend(finished.into_iter().map(CallListItem::finished));
        calls.sort_by_key(|item| Reverse(item.started));
        calls.truncate(n_most);
        Ok(calls)
    }

    /// Returns the full records of calls in the same order, as far as they exist: their operations with all
    /// children.
    pub(super) async fn operations(&self, items: &[CallListItem]) -> Result<Vec<RawJson>, ApiProblem> {
        // Before the log is read: a call that ends meanwhile is in the log.
        let running = items.iter().map(|item| match (item.source, &self.api.runtime) {
            (CallSource::Running(call), Some(runtime)) => runtime.operation(call),
            _ => None,
        });
        let running: Vec<Option<RawJson>> =
            running.map(|found| found.map(|operation| RawJson::of(&operation))).collect();
        let finished = items.iter().zip(&running).filter(|(_, running)| running.is_none());
        let ids = finished.map(|(item, _)| item.id.clone()).collect();
        let finished = self.call_log().await?.calls_by_id(self.scope.clone(), ids, self.now()).await?;
        let mut finished: HashMap<String, FinishedCall> =
            finished.into_iter().map(|call| (call.summary.id.clone(), call)).collect();
        let operations = items
            .iter()
            .zip(running)
            .filter_map(|(item, running)| running.or_else(|| logged_operation(finished.remove(&item.id)?)));
        Ok(operations.collect())
    }

    /// Returns the trace records of a named session within a scope, newest first.
    pub(super) async fn records(
        &self,
        scope: OwnerScope,
        session: &str,
    ) -> Result<Vec<TraceRecord>, ApiProblem> {
        if self.api.call_log.is_none() {
            return Ok(Vec::new());
        }
        let session = Some(session.to_owned());
        let query = TraceQuery { scope, workspace: None, session, limit: MAX_RECORDS };
        Ok(self.call_log().await?.traces(query).await?)
    }
}

/// Collects the accounting entries of an operation and its children, in order of start.
pub(super) fn accounting(operation: &Value) -> Vec<Value> {
    let mut entries = Vec::new();
    collect_accounting(operation, &mut entries, 0);
    entries
}

fn collect_accounting(operation: &Value, entries: &mut Vec<Value>, depth: usize) {
    entries.extend(operation["accounting"].as_array().into_iter().flatten().cloned());
    if depth > MAX_DEPTH {
        return;
    }
    let turns = operation["childSession"]["turns"].as_array().into_iter().flatten();
    for child in turns.flat_map(|turn| turn["ops"].as_array().into_iter().flatten()) {
        collect_accounting(child, entries, depth + 1);
    }
}
