//! A tree as it was at one moment, to be exported or printed.

use std::sync::Arc;
use std::time::Duration;

use indexmap::IndexMap;
use serde::Serialize;

use super::accounting::{AccountingEntry, Totals, Usage, as_millis};
use super::path::{CallPath, OpPath};
use super::record::{Finish, Record, later, millis};
use super::text::Payload;
use super::{About, OpError, OpKind, OpTree};

/// A session. Printed, it is a drawing of the tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionNode {
    /// Its id.
    pub id: Arc<str>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Arc<str>>,
    /// The agent whose session it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Arc<str>>,
    /// Who called whom until it began.
    pub call_path: CallPath,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_title: Option<Arc<str>>,
    /// What it was last said to be doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest_status: Option<Arc<str>>,
    /// When it began, in milliseconds since 1970.
    pub started_at: u64,
    /// When it ended, in milliseconds since 1970; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Whether it went well; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OpError>,
    /// What else is known of it.
    pub attributes: IndexMap<Arc<str>, Arc<str>>,
    /// What it and the sessions under it have used.
    pub totals: Totals,
    /// The turns that have operations that are kept.
    pub turns: Vec<TurnNode>,
    /// The steps of the system outside the turns, as one turn of number 0, if there are any.
    pub steps: Vec<TurnNode>,
    /// How many operations are not kept any more.
    pub dropped_operations: u64,
}

/// A turn of a session.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnNode {
    /// What the paths of its operations begin with.
    pub id: String,
    /// Its number, from 1; 0 for the steps of the system.
    pub index: u32,
    /// Its operations, in the order in which they began.
    pub ops: Vec<OpNode>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpNode {
    /// Its path.
    pub op_id: OpPath,
    /// What it does.
    pub kind: OpKind,
    /// The tool, model or step.
    pub name: Arc<str>,
    /// The server or provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<Arc<str>>,
    /// How it goes.
    pub status: OpStatus,
    /// When it began, in milliseconds since 1970.
    pub started_at: u64,
    /// When it ended, in milliseconds since 1970; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// How long it took, or runs already; milliseconds on the wire.
    #[serde(rename = "latencyMs", serialize_with = "as_millis")]
    pub latency: Duration,
    /// How long it waited for its turn; milliseconds on the wire.
    #[serde(rename = "waitedMs", serialize_with = "as_millis", skip_serializing_if = "Duration::is_zero")]
    pub waited: Duration,
    /// Whether the response came from a cache.
    #[serde(skip_serializing_if = "is_not")]
    pub cached: bool,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<OpError>,
    /// What else is known of it.
    pub attributes: IndexMap<Arc<str>, Arc<str>>,
    /// What it said on the way.
    pub logs: Vec<LogLine>,
    /// Its entry, if it is a tool that has ended.
    pub accounting: Vec<AccountingEntry>,
    /// What it used, if that is anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What it was asked.
    pub request: RequestNode,
    /// What came back; `None` while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseNode>,
    /// The session that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_session: Option<Box<SessionNode>>,
}

/// How an operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OpStatus {
    /// It has not ended.
    Running,
    /// It went well.
    Ok,
    /// It did not.
    Failed,
}

/// What an operation was asked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RequestNode {
    /// Of whom.
    pub kind: OpKind,
    /// The beginning of it, where it was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Arc<str>>,
    /// How many characters it has.
    pub size: u64,
    /// Whether there is more of it than the payload.
    pub truncated: bool,
}

/// What came back from an operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResponseNode {
    /// The beginning of it, where it was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Arc<str>>,
    /// How many characters it has.
    pub size: u64,
    /// Whether there is more of it than the payload.
    pub truncated: bool,
}

/// What an operation said on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// When, in milliseconds since 1970.
    pub timestamp: u64,
    /// What.
    pub message: Arc<str>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_not(value: &bool) -> bool {
    !value
}

/// A session and all under it, as it is now.
pub(super) fn session(tree: &OpTree) -> SessionNode {
    let about = tree.about();
    let (remarks, dropped_operations) = {
        let state = tree.0.state();
        (state.remarks.as_deref().cloned().unwrap_or_default(), state.n_dropped)
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
    let (result, after) = remarks.end.unzip();
    SessionNode {
        id: Arc::clone(&about.id),
        trace_id: about.trace_id.clone(),
        agent_id: about.agent.clone(),
        call_path: about.call_path.clone(),
        session_title: about.title.clone(),
        latest_status: remarks.status,
        started_at: millis(about.started),
        ended_at: after.map(|after| millis(later(about.started, after))),
        success: result.as_ref().map(Result::is_ok),
        error: result.and_then(Result::err),
        attributes: remarks.attributes.0,
        totals: tree.totals(),
        turns,
        steps,
        dropped_operations,
    }
}

/// The path of an operation without its place in the turn.
fn turn_id(path: &OpPath) -> String {
    let mut id = path.to_string();
    id.truncate(id.rfind('-').unwrap_or(id.len()));
    id
}

/// An operation and all under it, as it is now.
pub(super) fn operation(tree: &OpTree, record: &Record) -> OpNode {
    let (end, latency) = match &record.finish {
        Some(Finish { end, latency, .. }) => (Some(end), *latency),
        None => (None, record.began.elapsed()),
    };
    let notes = record.notes.as_deref().cloned().unwrap_or_default();
    let (payload, truncated) = kept(record.payload.as_ref());
    OpNode {
        op_id: OpPath { above: tree.0.above.clone(), last: record.at },
        kind: record.kind,
        name: Arc::clone(&record.name),
        server: record.server.clone(),
        status: status(record),
        started_at: millis(record.started),
        ended_at: end.map(|_| millis(later(record.started, latency))),
        latency,
        waited: end.map(|end| end.waited).unwrap_or_default(),
        cached: end.is_some_and(|end| end.cached),
        error: end.and_then(|end| end.result.clone().err()),
        attributes: notes.attributes.0,
        logs: notes.lines.into(),
        accounting: accounting(tree.about(), record).into_iter().collect(),
        usage: end.map(|end| end.usage).filter(|usage| *usage != Usage::default()),
        request: RequestNode { kind: record.kind, payload, size: record.size, truncated },
        response: end.map(|end| {
            let (payload, truncated) = kept(end.payload.as_ref());
            ResponseNode { payload, size: end.size, truncated }
        }),
        child_session: record.child.as_ref().map(|child| Box::new(session(child))),
    }
}

/// The entry of a tool that has ended.
pub(super) fn accounting(about: &About, record: &Record) -> Option<AccountingEntry> {
    match record.kind {
        OpKind::Tool => {}
        OpKind::Llm | OpKind::Session | OpKind::System => return None,
    }
    let Finish { end, latency, .. } = record.finish.as_ref()?;
    Some(AccountingEntry {
        timestamp: millis(record.started),
        status: status(record),
        latency: *latency,
        mcp_server: record.server.clone(),
        command: Arc::clone(&record.name),
        characters_in: record.size,
        characters_out: end.size,
        error: end.result.as_ref().err().map(|error| Arc::clone(&error.message)),
        agent_id: about.agent.clone(),
        call_path: about.call_path.clone(),
        txn_id: Arc::clone(&about.id),
        parent_txn_id: about.parent.clone(),
        origin_txn_id: about.first(),
    })
}

fn status(record: &Record) -> OpStatus {
    match record.finish.as_ref().map(|finish| &finish.end.result) {
        None => OpStatus::Running,
        Some(Ok(())) => OpStatus::Ok,
        Some(Err(_)) => OpStatus::Failed,
    }
}

/// What there is of a payload, and whether it was cut.
fn kept(payload: Option<&Payload>) -> (Option<Arc<str>>, bool) {
    (payload.map(Payload::shared), payload.is_some_and(Payload::is_cut))
}
