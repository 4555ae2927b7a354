//! Snapshots of an operation tree, for export and display.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde::Serialize;

use super::accounting::{AccountingEntry, OpUsage, Totals, as_millis};
use super::path::{CallPath, OpPath};
use super::record::{OpRecord, add_duration, millis};
use super::text::Payload;
use super::{OpError, OpKind, OpTree, SessionIdentity};

/// A session. `Display` draws the tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionNode {
    /// Session id.
    pub id: Arc<str>,
    /// Trace to which it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Arc<str>>,
    /// Agent that runs the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Arc<str>>,
    /// Chain of callers that led to the session.
    pub call_path: CallPath,
    /// Human-readable title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_title: Option<Arc<str>>,
    /// Last reported status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_status: Option<Arc<str>>,
    /// Start time, in milliseconds since the Unix epoch.
    pub started_at: u64,
    /// End time, in milliseconds since the Unix epoch; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// `true` on success; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// Error of a failed session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OpError>,
    /// Additional attributes.
    pub attributes: IndexMap<Arc<str>, Arc<str>>,
    /// Totals of this session and all nested ones.
    pub totals: Totals,
    /// Turns with retained operations.
    pub turns: Vec<TurnNode>,
    /// System steps outside turns, as one turn with index 0; empty if there are none.
    pub steps: Vec<TurnNode>,
    /// Number of evicted operations.
    pub dropped_operations: u64,
}

/// A turn of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnNode {
    /// Common prefix of the paths of its operations.
    pub id: String,
    /// Turn number, from 1; 0 for system steps.
    pub index: u32,
    /// Operations, in the order in which they began.
    pub ops: Vec<OpNode>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpNode {
    /// Path of the operation.
    pub op_id: OpPath,
    /// Operation kind.
    pub kind: OpKind,
    /// Name of the tool, model or step.
    pub name: Arc<str>,
    /// Name of the server or provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Arc<str>>,
    /// Current status.
    pub status: OpStatus,
    /// Start time, in milliseconds since the Unix epoch.
    pub started_at: u64,
    /// End time, in milliseconds since the Unix epoch; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Duration so far or in total; milliseconds on the wire.
    #[serde(rename = "latencyMs", serialize_with = "as_millis")]
    pub latency: Duration,
    /// Time spent waiting in a queue; milliseconds on the wire.
    #[serde(rename = "waitedMs", serialize_with = "as_millis", skip_serializing_if = "Duration::is_zero")]
    pub waited: Duration,
    /// `true` if the response came from a cache.
    #[serde(skip_serializing_if = "is_false")]
    pub cached: bool,
    /// Error of a failed operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OpError>,
    /// Additional attributes.
    pub attributes: IndexMap<Arc<str>, Arc<str>>,
    /// Log lines.
    pub logs: Vec<LogLine>,
    /// Accounting entry, if it is a tool operation that has ended.
    pub accounting: Vec<AccountingEntry>,
    /// Resources used, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<OpUsage>,
    /// Request.
    pub request: RequestNode,
    /// Response; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseNode>,
    /// Nested session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_session: Option<Box<SessionNode>>,
}

/// Status of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OpStatus {
    /// In progress.
    Running,
    /// Ended successfully.
    Ok,
    /// Ended with an error.
    Failed,
}

/// Request of an operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestNode {
    /// Kind of the operation.
    pub kind: OpKind,
    /// Beginning of the payload, if payloads are recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Arc<str>>,
    /// Size in bytes.
    pub size: u64,
    /// `true` if the payload is truncated.
    pub truncated: bool,
}

/// Response of an operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseNode {
    /// Beginning of the payload, if payloads are recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Arc<str>>,
    /// Size in bytes.
    pub size: u64,
    /// `true` if the payload is truncated.
    pub truncated: bool,
}

/// A log line of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// Time, in milliseconds since the Unix epoch.
    pub timestamp: u64,
    /// Message text.
    pub message: Arc<str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Builds the node of a session and everything below it.
pub(super) fn session(tree: &OpTree) -> SessionNode {
    let (info, details) = (tree.info(), tree.info().details());
    let (notes, dropped_operations) = {
        let state = tree.0.state();
        (state.notes.as_deref().cloned().unwrap_or_default(), state.n_dropped)
    };
    let (mut turns, mut steps): (Vec<TurnNode>, Vec<TurnNode>) = (Vec::new(), Vec::new());
    for record in tree.0.records() {
        let op = operation(tree, &record);
        let list = if record.at.turn == 0 { &mut steps } else { &mut turns };
        match list.last_mut().filter(|turn| turn.index == record.at.turn) {
            Some(turn) => turn.ops.push(op),
            None => list.push(TurnNode { id: turn_id(&op.op_id), index: record.at.turn, ops: vec![op] }),
        }
    }
    let (result, after) = notes.end.unzip();
    SessionNode {
        id: Arc::clone(&info.id),
        trace_id: details.trace_id.clone(),
        agent_id: details.agent.clone(),
        call_path: details.call_path.clone(),
        session_title: details.title.clone(),
        latest_status: notes.status,
        started_at: millis(info.started),
        ended_at: after.map(|after| millis(add_duration(info.started, after))),
        success: result.as_ref().map(Result::is_ok),
        error: result.and_then(Result::err),
        attributes: notes.attributes.0,
        totals: tree.totals(),
        turns,
        steps,
        dropped_operations,
    }
}

/// Returns the path of an operation without its index within the turn.
fn turn_id(path: &OpPath) -> String {
    let mut id = path.to_string();
    id.truncate(id.rfind('-').unwrap_or(id.len()));
    id
}

/// Builds the node of an operation and everything below it.
pub(super) fn operation(tree: &OpTree, record: &OpRecord) -> OpNode {
    let finish = record.finish.as_ref();
    let latency = finish.map_or_else(|| record.began.elapsed(), |finish| finish.latency);
    let notes = record.notes.as_deref().cloned().unwrap_or_default();
    let (payload, truncated) = payload_parts(notes.request.as_ref());
    OpNode {
        op_id: OpPath { ancestors: tree.0.ancestors.clone(), last: record.at },
        kind: record.kind,
        name: Arc::clone(&record.name),
        server: record.server.clone(),
        status: status(record),
        started_at: millis(record.started),
        ended_at: finish.map(|_| millis(add_duration(record.started, latency))),
        latency,
        waited: finish.map(|finish| finish.waited).unwrap_or_default(),
        cached: finish.is_some_and(|finish| finish.cached),
        error: finish.and_then(|finish| finish.result.clone().err()),
        attributes: notes.attributes.0,
        logs: notes.lines.into(),
        accounting: accounting(tree.info(), record).into_iter().collect(),
        usage: Some(notes.usage).filter(|usage| *usage != OpUsage::default()),
        request: RequestNode { kind: record.kind, payload, size: record.size, truncated },
        response: finish.map(|finish| {
            let (payload, truncated) = payload_parts(notes.response.as_ref());
            ResponseNode { payload, size: finish.size, truncated }
        }),
        child_session: record.child.as_ref().map(|child| Box::new(session(child))),
    }
}

/// Returns the accounting entry of a tool operation that has ended.
pub(super) fn accounting(info: &SessionIdentity, record: &OpRecord) -> Option<AccountingEntry> {
    match record.kind {
        OpKind::Tool => {}
        OpKind::Llm | OpKind::Session | OpKind::System => return None,
    }
    let finish = record.finish.as_ref()?;
    let details = info.details();
    Some(AccountingEntry {
        timestamp: millis(record.started),
        status: status(record),
        latency: finish.latency,
        mcp_server: record.server.clone(),
        command: Arc::clone(&record.name),
        characters_in: record.size,
        characters_out: finish.size,
        error: finish.result.as_ref().err().map(|error| Arc::clone(&error.message)),
        agent_id: details.agent.clone(),
        call_path: details.call_path.clone(),
        txn_id: Arc::clone(&info.id),
        parent_txn_id: details.parent.clone(),
        origin_txn_id: info.outermost(),
    })
}

fn status(record: &OpRecord) -> OpStatus {
    match record.finish.as_ref().map(|finish| &finish.result) {
        None => OpStatus::Running,
        Some(Ok(())) => OpStatus::Ok,
        Some(Err(_)) => OpStatus::Failed,
    }
}

/// Returns the recorded text of a payload, and whether it is truncated.
fn payload_parts(payload: Option<&Payload>) -> (Option<Arc<str>>, bool) {
    (payload.map(Payload::shared), payload.is_some_and(Payload::is_truncated))
}
