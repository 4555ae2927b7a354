//! One operation: how it begins, what it runs, how it ends.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::time::Instant;
use uuid::Uuid;

use super::accounting::{Tally, Totals, Usage};
use super::node::LogLine;
use super::path::{MAX_DEPTH, OpPath, Segment};
use super::record::{Finish, Notes, later, millis, note};
use super::text::{self, Payload};
use super::{About, MAX_NAME, OpTree};

/// How long the text of an error may be, in bytes.
const MAX_ERROR: usize = 2_048;

/// An operation that runs. Dropping it without an end means that it was canceled.
#[derive(Debug)]
pub struct Operation {
    pub(super) tree: OpTree,
    pub(super) number: u64,
    pub(super) at: Segment,
    pub(super) kind: OpKind,
    pub(super) name: Arc<str>,
    pub(super) started: SystemTime,
    pub(super) began: Instant,
    pub(super) child: OnceLock<OpTree>,
    pub(super) ended: bool,
}

impl Operation {
    /// What it runs.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Says what it runs, when that has come out only after it began.
    pub fn rename(&mut self, name: Arc<str>, server: Option<Arc<str>>) {
        self.name = Arc::clone(&name);
        self.tree.0.state().change(self.number, |record| {
            record.name = name;
            record.server = server;
        });
    }

    /// The tree that it is in.
    pub fn tree(&self) -> &OpTree {
        &self.tree
    }

    /// Where it stands in the tree.
    pub fn path(&self) -> OpPath {
        OpPath { above: self.tree.0.above.clone(), last: self.at }
    }

    /// The session that it runs; the first call begins it, and later ones return the same.
    ///
    /// It ends with the operation, if it has not before.
    ///
    /// ```
    /// # use std::time::SystemTime;
    /// # use pegboard_runtime::optree::{About, OpKind, OpTree, Start};
    /// # let tree = OpTree::new(About::new("s-1", SystemTime::now()));
    /// let agent = tree.begin(Start::of(OpKind::Session, "researcher", SystemTime::now()));
    /// let child = agent.child("Find the cause").unwrap();
    /// let search = child.begin(Start::of(OpKind::Tool, "search", SystemTime::now()));
    /// assert_eq!(search.path().to_string(), "1-1.1-1");
    /// ```
    pub fn child(&self, title: &str) -> Result<OpTree, TooDeep> {
        if self.tree.0.above.as_ref().is_some_and(|above| above.len() >= MAX_DEPTH) {
            return Err(TooDeep);
        }
        Ok(self.child.get_or_init(|| self.begin_child(title)).clone())
    }

    /// Says that it runs a session of an agent, when that has come out only after it began.
    pub fn become_session(&mut self, title: &str) -> Result<OpTree, TooDeep> {
        self.kind = OpKind::Session;
        self.tree.0.state().change(self.number, |record| record.kind = OpKind::Session);
        self.child(title)
    }

    fn begin_child(&self, title: &str) -> OpTree {
        let session = &self.tree.0;
        let about = About {
            id: Uuid::new_v4().to_string().into(),
            trace_id: session.about.trace_id.clone(),
            agent: Some(Arc::clone(&self.name)),
            call_path: session.about.call_path.join(&self.name),
            title: (!title.is_empty()).then(|| text::bounded(title, MAX_NAME)),
            parent: Some(Arc::clone(&session.about.id)),
            origin: Some(session.about.first()),
            started: later(self.started, self.began.elapsed()),
        };
        let tally = Tally::new(Some(Arc::clone(&session.tally)));
        let child = OpTree::rooted(about, session.limits, Some(self.path().segments().collect()), tally);
        session.state().change(self.number, |record| record.child = Some(child.clone()));
        match self.kind {
            OpKind::Session => session.tally.add(&Totals { agents_run: 1, ..Totals::default() }),
            // A batch or a chain holds other calls, and is no agent for that.
            OpKind::Llm | OpKind::Tool | OpKind::System => {}
        }
        child
    }

    /// Sets an attribute: at most 64, of at most 512 bytes each.
    pub fn set_attribute(&self, key: &str, value: &str) {
        let attribute = (note(key), note(value));
        self.change_notes(|notes| notes.attributes.set(attribute));
    }

    /// Adds a line to its log, of which the last 200 are kept, each of at most 512 bytes.
    pub fn log(&self, message: &str) {
        let timestamp = millis(later(self.started, self.began.elapsed()));
        let line = LogLine { timestamp, message: note(message) };
        self.change_notes(|notes| notes.log(line));
    }

    fn change_notes(&self, change: impl FnOnce(&mut Notes)) {
        self.tree.0.state().change(self.number, |record| change(record.notes.get_or_insert_default()));
    }

    /// Ends it.
    pub fn end(mut self, end: End) {
        self.finish(end);
    }

    fn finish(&mut self, end: End) {
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
        {
            let mut state = session.state();
            if let Some(mut record) = state.live.remove(&self.number) {
                state.n_ended += 1;
                Arc::make_mut(&mut record).finish = Some(Finish { end, latency, place: state.n_ended });
                state.finished.insert(self.number, record);
            }
        }
        session.tally.add(&used);
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(End::failed(OpError::canceled()));
        }
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OpKind {
    /// Asks a model.
    Llm,
    /// Runs a tool.
    Tool,
    /// Runs a session of its own.
    Session,
    /// A step of the system, outside all turns.
    System,
}

/// An operation that begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// What it does.
    pub kind: OpKind,
    /// The tool, model or step.
    pub name: Arc<str>,
    /// The server or provider that the tool or model belongs to.
    pub server: Option<Arc<str>>,
    /// How many characters the request has.
    pub size: u64,
    /// The request itself, where it is wanted.
    pub payload: Option<Payload>,
    /// When it begins.
    pub started: SystemTime,
}

impl Start {
    /// An operation with a name and an empty request.
    pub fn of(kind: OpKind, name: impl Into<Arc<str>>, started: SystemTime) -> Self {
        Self { kind, name: name.into(), server: None, size: 0, payload: None, started }
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// Whether it went well.
    pub result: Result<(), OpError>,
    /// How many characters the response has.
    pub size: u64,
    /// The response itself, where it is wanted.
    pub payload: Option<Payload>,
    /// What it used.
    pub usage: Usage,
    /// Whether the response came from a cache.
    pub cached: bool,
    /// How long it waited for its turn.
    pub waited: Duration,
}

impl End {
    /// It went well, with an empty response.
    pub fn ok() -> Self {
        Self::with(Ok(()))
    }

    /// It failed.
    pub fn failed(error: OpError) -> Self {
        Self::with(Err(error))
    }

    fn with(result: Result<(), OpError>) -> Self {
        Self {
            result,
            size: 0,
            payload: None,
            usage: Usage::default(),
            cached: false,
            waited: Duration::ZERO,
        }
    }
}

/// Why an operation or a session failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpError {
    kind: &'static str,
    pub(super) message: Arc<str>,
}

impl OpError {
    /// An error of a kind, which is one of few words, with a text of at most 2,048 bytes.
    pub fn new(kind: &'static str, message: &str) -> Self {
        Self { kind, message: text::bounded(message, MAX_ERROR) }
    }

    /// The error of what was given up before its end.
    pub fn canceled() -> Self {
        Self::new("canceled", "canceled")
    }

    /// Its kind.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Its text.
    pub fn message(&self) -> &str {
        &self.message
    }
}

/// A child session that would be nested too deep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sessions are nested at most {MAX_DEPTH} deep; let an outer session do this work")]
pub struct TooDeep;
