//! An operation in progress: begin, nested session, end.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::time::Instant;

use super::accounting::{OpCounters, OpUsage, Totals};
use super::node::{self, LogLine, OpNode};
use super::path::{MAX_DEPTH, OpPath, OpSegment};
use super::record::{OpFinish, OpNotes, OpRecord, add_duration, bounded_note, millis};
use super::text::{self, Payload};
use super::{MAX_NAME, OpTree, SessionDetails, SessionIdentity};
use crate::random;

/// Maximum length of an error message, in bytes.
const MAX_ERROR: usize = 2_048;

/// An operation in progress. Dropping it without ending it records a cancellation.
#[derive(Debug)]
pub struct Operation {
    pub(super) tree: OpTree,
    pub(super) number: u64,
    pub(super) at: OpSegment,
    pub(super) kind: OpKind,
    pub(super) name: Arc<str>,
    pub(super) started: SystemTime,
    pub(super) began: Instant,
    pub(super) child: OnceLock<OpTree>,
    pub(super) ended: bool,
}

impl Operation {
    /// Returns the name of the tool, model or step.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Renames the operation when its target was determined only after it began.
    pub fn rename(&mut self, name: Arc<str>, server: Option<Arc<str>>) {
        self.name = Arc::clone(&name);
        self.tree.0.state().update(self.number, |record| {
            record.name = name;
            record.server = server;
        });
    }

    /// Returns the tree that contains it.
    pub fn tree(&self) -> &OpTree {
        &self.tree
    }

    /// Returns its path in the tree.
    pub fn path(&self) -> OpPath {
        OpPath { ancestors: self.tree.0.ancestors.clone(), last: self.at }
    }

    /// Returns the nested session; created by the first call.
    ///
    /// It ends with the operation at the latest.
    ///
    /// ```
    /// # use std::time::SystemTime;
    /// # use pegboard_runtime::optree::{SessionIdentity, OpKind, OpTree, OpStart};
    /// # let tree = OpTree::new(SessionIdentity::new("s-1", SystemTime::now()));
    /// let agent = tree.begin(OpStart::of(OpKind::Session, "researcher", SystemTime::now()));
    /// let child = agent.child("Find the cause").unwrap();
    /// let search = child.begin(OpStart::of(OpKind::Tool, "search", SystemTime::now()));
    /// assert_eq!(search.path().to_string(), "1-1.1-1");
    /// ```
    pub fn child(&self, title: &str) -> Result<OpTree, TooDeep> {
        if self.tree.0.ancestors.as_ref().is_some_and(|ancestors| ancestors.len() >= MAX_DEPTH) {
            return Err(TooDeep);
        }
        Ok(self.child.get_or_init(|| self.begin_child(title)).clone())
    }

    /// Turns the operation into an agent session when that was determined only after it began.
    pub fn promote_to_session(&mut self, title: &str) -> Result<OpTree, TooDeep> {
        self.kind = OpKind::Session;
        self.tree.0.state().update(self.number, |record| record.kind = OpKind::Session);
        self.child(title)
    }

    fn begin_child(&self, title: &str) -> OpTree {
        let session = &self.tree.0;
        let outer = session.info.details();
        let details = SessionDetails {
            trace_id: outer.trace_id.clone(),
            agent: Some(Arc::clone(&self.name)),
            call_path: outer.call_path.join(&self.name),
            title: (!title.is_empty()).then(|| text::truncate(title, MAX_NAME)),
            parent: Some(Arc::clone(&session.info.id)),
            origin: Some(session.info.outermost()),
        };
        let started = add_duration(self.started, self.began.elapsed());
        let info = SessionIdentity::new(random::uuid().to_string(), started).with_details(details);
        let counters = OpCounters::new(Some(Arc::clone(&session.counters)));
        let child =
            OpTree::with_parent(info, session.limits, Some(self.path().segments().collect()), counters);
        session.state().update(self.number, |record| record.child = Some(child.clone()));
        match self.kind {
            OpKind::Session => session.counters.add(&Totals { agents_run: 1, ..Totals::default() }),
            // A batch or a chain contains nested calls but is not an agent.
            OpKind::Llm | OpKind::Tool | OpKind::System => {}
        }
        child
    }

    /// Sets an attribute: at most 64, of at most 512 bytes each.
    pub fn set_attribute(&self, key: &str, value: &str) {
        let attribute = (bounded_note(key), bounded_note(value));
        self.update_notes(|notes| notes.attributes.set(attribute));
    }

    /// Adds a log line. The last 200 lines are retained, each of at most 512 bytes.
    pub fn log(&self, message: &str) {
        let timestamp = millis(add_duration(self.started, self.began.elapsed()));
        let line = LogLine { timestamp, message: bounded_note(message) };
        self.update_notes(|notes| notes.log(line));
    }

    fn update_notes(&self, change: impl FnOnce(&mut OpNotes)) {
        self.tree.0.state().update(self.number, |record| change(record.notes.get_or_insert_default()));
    }

    /// Ends the operation.
    pub fn end(mut self, end: OpEnd) {
        self.finish(end);
    }

    /// Ends the operation; returns its record, unless the tree had no room for it.
    pub(crate) fn end_retained(mut self, end: OpEnd) -> Option<EndedOperation> {
        let record = self.finish(end)?;
        Some(EndedOperation { tree: self.tree.clone(), record })
    }

    fn finish(&mut self, end: OpEnd) -> Option<Arc<OpRecord>> {
        self.ended = true;
        let session = &self.tree.0;
        let latency = self.began.elapsed();
        if let Some(child) = self.child.get() {
            child.end(end.result.clone());
        }
        let mut used = Totals::from(end.usage);
        match self.kind {
            OpKind::Tool => used.tools_run = 1,
            OpKind::Llm | OpKind::Session | OpKind::System => {}
        }
        let OpEnd { result, size, payload, usage, cached, waited } = end;
        let mut state = session.state();
        let record = state.update(self.number, |record| {
            if payload.is_some() || usage != OpUsage::default() {
                let notes = record.notes.get_or_insert_default();
                (notes.response, notes.usage) = (payload, usage);
            }
            record.finish = Some(OpFinish { result, size, cached, waited, latency });
        });
        let record = record.cloned();
        drop(state);
        session.counters.add(&used);
        record
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(OpEnd::failed(OpError::canceled()));
        }
    }
}

/// An operation that has ended. Outlives its retention by the tree.
#[derive(Clone, Debug)]
pub(crate) struct EndedOperation {
    pub(super) tree: OpTree,
    pub(super) record: Arc<OpRecord>,
}

impl EndedOperation {
    /// Returns the id of its session.
    pub(crate) fn session(&self) -> &Arc<str> {
        &self.tree.0.info.id
    }

    /// Returns its path in the tree.
    pub(crate) fn path(&self) -> OpPath {
        OpPath { ancestors: self.tree.0.ancestors.clone(), last: self.record.at }
    }

    /// Returns the name of the tool, model or step.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.record.name
    }

    /// Returns the start time.
    pub(crate) fn started(&self) -> SystemTime {
        self.record.started
    }

    /// Returns the duration and the error.
    pub(crate) fn outcome(&self) -> (Duration, Option<&OpError>) {
        let finish = self.record.finish.as_ref().expect("the operation has ended");
        (finish.latency, finish.result.as_ref().err())
    }

    /// Returns the operation with everything below it.
    pub(crate) fn to_node(&self) -> OpNode {
        node::operation(&self.tree, &self.record)
    }
}

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OpKind {
    /// A model request.
    Llm,
    /// A tool call.
    Tool,
    /// A nested agent session.
    Session,
    /// A system step, outside turns.
    System,
}

/// Description of an operation that begins.
#[derive(Clone, Debug)]
pub struct OpStart {
    /// Operation kind.
    pub kind: OpKind,
    /// Name of the tool, model or step.
    pub name: Arc<str>,
    /// Server or provider of the tool or model.
    pub server: Option<Arc<str>>,
    /// Size of the request in bytes.
    pub size: u64,
    /// Request payload, if payloads are recorded.
    pub payload: Option<Payload>,
    /// Start time.
    pub started: SystemTime,
    /// Time that has passed since then.
    pub begun_for: Duration,
}

impl OpStart {
    /// Creates a description with an empty request.
    pub fn of(kind: OpKind, name: impl Into<Arc<str>>, started: SystemTime) -> Self {
        Self {
            kind,
            name: name.into(),
            server: None,
            size: 0,
            payload: None,
            started,
            begun_for: Duration::ZERO,
        }
    }
}

/// Outcome of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OpEnd {
    /// Success, or the error.
    pub result: Result<(), OpError>,
    /// Size of the response in bytes.
    pub size: u64,
    /// Response payload, if payloads are recorded.
    pub payload: Option<Payload>,
    /// Resources used.
    pub usage: OpUsage,
    /// `true` if the response came from a cache.
    pub cached: bool,
    /// Time spent waiting in a queue.
    pub waited: Duration,
}

impl OpEnd {
    /// A success with an empty response.
    pub fn ok() -> Self {
        Self::with(Ok(()))
    }

    /// A failure.
    pub fn failed(error: OpError) -> Self {
        Self::with(Err(error))
    }

    fn with(result: Result<(), OpError>) -> Self {
        Self {
            result,
            size: 0,
            payload: None,
            usage: OpUsage::default(),
            cached: false,
            waited: Duration::ZERO,
        }
    }
}

/// Error of an operation or a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpError {
    kind: &'static str,
    pub(super) message: Arc<str>,
}

impl OpError {
    /// Creates an error with a kind from a fixed set and a message, truncated to 2,048 bytes.
    pub fn new(kind: &'static str, message: &str) -> Self {
        Self { kind, message: text::truncate(message, MAX_ERROR) }
    }

    /// The error of a cancelled operation.
    pub fn canceled() -> Self {
        Self::new("canceled", "canceled")
    }

    /// Returns the error kind.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// Nesting another session would exceed the maximum depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sessions are nested at most {MAX_DEPTH} deep; run this work in an outer session")]
pub struct TooDeep;
