//! The operation tree of a session: its turns, their operations, and nested sessions.
//!
//! Every call begins an [`Operation`] and ends it; dropping it instead records a cancellation. The number of
//! retained operations is limited, and the oldest finished ones are evicted first. [`Totals`] include evicted
//! operations.
//!
//! Writing is cheap and reading is rare: a reader clones shared handles of the records under the lock and
//! builds the [`SessionNode`] outside. Two locks are never held at once.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

pub use self::accounting::{AccountingEntry, AccountingScope, OpUsage, Totals};
pub(crate) use self::compact::CompactOperation;
pub use self::node::{LogLine, OpNode, OpStatus, RequestNode, ResponseNode, SessionNode, TurnNode};
pub(crate) use self::operation::EndedOperation;
pub use self::operation::{OpEnd, OpError, OpKind, OpStart, Operation, TooDeep};
pub use self::path::{CallPath, InvalidOpPath, MAX_DEPTH, OpPath};
pub use self::text::Payload;

use self::accounting::OpCounters;
use self::path::OpSegment;
use self::record::{Attributes, OpNotes, OpRecord, bounded_note};

mod accounting;
mod compact;
mod node;
mod operation;
mod path;
mod record;
mod render;
mod text;

/// Maximum length of the name of an operation or server, or of a session title, in bytes.
const MAX_NAME: usize = 256;

/// Identity of a session.
///
/// ```
/// use std::time::SystemTime;
///
/// use pegboard_runtime::optree::{CallPath, SessionDetails, SessionIdentity};
///
/// let details = SessionDetails { call_path: CallPath::new("planner"), ..SessionDetails::default() };
/// let info = SessionIdentity::new("s-1", SystemTime::now()).with_details(details);
/// assert_eq!((&*info.id, info.details().call_path.as_str()), ("s-1", "planner"));
/// ```
#[derive(Clone, Debug)]
pub struct SessionIdentity {
    /// Session id, which is also its transaction id.
    pub id: Arc<str>,
    /// Start time.
    pub started: SystemTime,
    /// `None` for the sessions of clients, of which there may be very many.
    details: Option<Box<SessionDetails>>,
}

/// Details of the session of an agent, or of a nested one.
#[derive(Clone, Debug, Default)]
pub struct SessionDetails {
    /// Trace to which it belongs.
    pub trace_id: Option<Arc<str>>,
    /// Agent that runs the session.
    pub agent: Option<Arc<str>>,
    /// Chain of callers that led to the session.
    pub call_path: CallPath,
    /// Human-readable title.
    pub title: Option<Arc<str>>,
    /// Id of the parent session.
    pub parent: Option<Arc<str>>,
    /// Id of the outermost session; `None` if this is the outermost one.
    pub origin: Option<Arc<str>>,
}

impl SessionIdentity {
    /// Creates an identity with an id and no other details.
    pub fn new(id: impl Into<Arc<str>>, started: SystemTime) -> Self {
        Self { id: id.into(), started, details: None }
    }

    /// Sets the details.
    #[must_use]
    pub fn with_details(self, details: SessionDetails) -> Self {
        Self { details: Some(Box::new(details)), ..self }
    }

    /// Returns the details, which most sessions do not have.
    pub fn details(&self) -> &SessionDetails {
        static NONE: LazyLock<SessionDetails> = LazyLock::new(SessionDetails::default);
        self.details.as_deref().unwrap_or(&NONE)
    }

    /// Returns the id of the outermost session.
    pub(crate) fn outermost(&self) -> Arc<str> {
        Arc::clone(self.details().origin.as_ref().unwrap_or(&self.id))
    }
}

/// Retention limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpTreeLimits {
    /// Maximum number of operations per session.
    pub per_session: usize,
    /// Maximum number of operations of the outermost session and all nested ones. Beyond it, operations are
    /// only counted.
    pub per_tree: usize,
}

impl Default for OpTreeLimits {
    fn default() -> Self {
        Self { per_session: 1_000, per_tree: 10_000 }
    }
}

/// The operation tree of one session. Clones share the tree.
///
/// ```
/// use std::time::SystemTime;
///
/// use pegboard_runtime::optree::{SessionIdentity, OpEnd, OpKind, OpTree, OpStart};
///
/// let tree = OpTree::new(SessionIdentity::new("s-1", SystemTime::now()));
/// let operation = tree.begin(OpStart::of(OpKind::Tool, "search", SystemTime::now()));
/// assert_eq!(operation.path().to_string(), "1-1");
/// operation.end(OpEnd::ok());
/// assert_eq!(tree.totals().tools_run, 1);
/// println!("{}", tree.snapshot());
/// ```
#[derive(Clone, Debug)]
pub struct OpTree(Arc<OpTreeInner>);

#[derive(Debug)]
struct OpTreeInner {
    info: SessionIdentity,
    began: Instant,
    /// Path of the parent operation, outermost segment first; never empty.
    ancestors: Option<Arc<[OpSegment]>>,
    limits: OpTreeLimits,
    counters: Arc<OpCounters>,
    state: Mutex<OpTreeState>,
}

/// There may be very many sessions, most of them idle.
const _: () = assert!(size_of::<OpTreeInner>() + size_of::<OpCounters>() <= 296);

#[derive(Debug)]
struct OpTreeState {
    turn: u32,
    /// Number of operations in this turn.
    n_in_turn: u32,
    /// Number of system steps outside turns.
    n_steps: u32,
    /// Number of operations begun.
    n_begun: u64,
    n_dropped: u64,
    /// All retained operations with their numbers, in the order in which they began. Shared with readers.
    records: VecDeque<(u64, Arc<OpRecord>)>,
    /// `None` for most sessions.
    notes: Option<Box<SessionNotes>>,
}

/// Status, attributes and result of a session.
#[derive(Clone, Debug, Default)]
struct SessionNotes {
    status: Option<Arc<str>>,
    attributes: Attributes,
    /// Result, and duration until the end.
    end: Option<(Result<(), OpError>, Duration)>,
}

/// Operations that are no longer retained.
type Evicted = Vec<Arc<OpRecord>>;

/// There is no room for an operation: all retained ones are still running.
struct TreeFull;

impl OpTree {
    /// Creates an empty tree.
    pub fn new(info: SessionIdentity) -> Self {
        Self::with_limits(info, OpTreeLimits::default())
    }

    /// Creates an empty tree with explicit limits.
    pub fn with_limits(info: SessionIdentity, limits: OpTreeLimits) -> Self {
        Self::with_parent(info, limits, None, OpCounters::new(None))
    }

    fn with_parent(
        info: SessionIdentity,
        limits: OpTreeLimits,
        ancestors: Option<Arc<[OpSegment]>>,
        counters: Arc<OpCounters>,
    ) -> Self {
        let state = OpTreeState {
            turn: 1,
            n_in_turn: 0,
            n_steps: 0,
            n_begun: 0,
            n_dropped: 0,
            records: VecDeque::new(),
            notes: None,
        };
        let began = Instant::now();
        Self(Arc::new(OpTreeInner { info, began, ancestors, limits, counters, state: Mutex::new(state) }))
    }

    /// Returns the identity of the session.
    pub fn info(&self) -> &SessionIdentity {
        &self.0.info
    }

    /// Starts a new turn for subsequent operations. The first turn is implicit.
    pub fn next_turn(&self) {
        let mut state = self.0.state();
        state.turn = state.turn.saturating_add(1);
        state.n_in_turn = 0;
    }

    /// Begins an operation of the current turn.
    pub fn begin(&self, start: OpStart) -> Operation {
        let OpStart { kind, name, server, size, payload, started, begun_for } = start;
        let name = text::truncate(name, MAX_NAME);
        let server = server.map(|server| text::truncate(server, MAX_NAME));
        let now = Instant::now();
        let began = now.checked_sub(begun_for).unwrap_or(now);
        let mut state = self.0.state();
        let at = state.next_segment(kind);
        let number = state.n_begun;
        state.n_begun += 1;
        let room = self.0.make_room(&mut state);
        if room.is_ok() {
            let (name, child, finish) = (Arc::clone(&name), None, None);
            let notes =
                payload.map(|payload| Box::new(OpNotes { request: Some(payload), ..OpNotes::default() }));
            let record = OpRecord { at, kind, name, server, started, began, size, child, notes, finish };
            if state.records.capacity() == 0 {
                // Otherwise it begins with space for four, and most sessions make few calls.
                state.records.reserve_exact(1);
            }
            state.records.push_back((number, Arc::new(record)));
        }
        drop(state);
        // Outside the lock: evicted operations may drop whole nested sessions.
        drop(room);
        let (tree, child) = (self.clone(), OnceLock::new());
        Operation { tree, number, at, kind, name, started, began, child, ended: false }
    }

    /// Sets the status shown to people; replaces the previous one.
    pub fn set_status(&self, status: &str) {
        let status = bounded_note(status);
        self.0.state().notes.get_or_insert_default().status = Some(status);
    }

    /// Sets an attribute of the session: at most 64, of at most 512 bytes each.
    pub fn set_attribute(&self, key: &str, value: &str) {
        let attribute = (bounded_note(key), bounded_note(value));
        self.0.state().notes.get_or_insert_default().attributes.set(attribute);
    }

    /// Ends the session. Only the first call has an effect.
    pub fn end(&self, result: Result<(), OpError>) {
        let after = self.0.began.elapsed();
        self.0.state().notes.get_or_insert_default().end.get_or_insert((result, after));
    }

    /// Returns the totals of this session and all nested ones.
    pub fn totals(&self) -> Totals {
        self.0.counters.totals()
    }

    /// Returns everything retained, as of now.
    pub fn snapshot(&self) -> SessionNode {
        node::session(self)
    }

    /// Returns the operation at a path, if it is retained.
    ///
    /// Paths are absolute, as returned by the operation, also in the tree of a nested session.
    pub fn find(&self, path: &OpPath) -> Option<OpNode> {
        let mut rest = path.segments();
        for ancestor in self.0.ancestors.iter().flat_map(|ancestors| ancestors.iter()) {
            rest.next().filter(|segment| segment == ancestor)?;
        }
        let mut tree = self.clone();
        let mut record = tree.0.state().find(rest.next()?)?;
        for segment in rest {
            tree = record.child.clone()?;
            let found = tree.0.state().find(segment)?;
            record = found;
        }
        Some(node::operation(&tree, &record))
    }

    /// Returns one entry for each retained tool operation that has ended, in the order in which they began.
    ///
    /// The entries of a nested session follow the operation that runs it.
    pub fn accounting(&self, scope: AccountingScope) -> Vec<AccountingEntry> {
        let mut entries = Vec::new();
        self.add_accounting(scope, &mut entries);
        entries
    }

    fn add_accounting(&self, scope: AccountingScope, entries: &mut Vec<AccountingEntry>) {
        for record in self.0.records() {
            entries.extend(node::accounting(&self.0.info, &record));
            match (scope, &record.child) {
                (AccountingScope::Tree, Some(child)) => child.add_accounting(scope, entries),
                (AccountingScope::Tree, None) | (AccountingScope::Own, _) => {}
            }
        }
    }
}

impl OpTreeInner {
    fn state(&self) -> MutexGuard<'_, OpTreeState> {
        // No code panics while the lock is held and the records are inconsistent.
        self.state.lock()
    }

    /// Reserves room for one more operation; returns the evicted ones.
    fn make_room(&self, state: &mut OpTreeState) -> Result<Evicted, TreeFull> {
        let has_room = self.counters.reserve_slot(self.limits.per_tree).is_some();
        if has_room && state.records.len() < self.limits.per_session {
            return Ok(Evicted::new());
        }
        // In a full tree more are evicted, so that nested sessions find room, too.
        let n_going = if has_room { 1 } else { (state.n_finished() / 8).max(1) };
        let evicted: Evicted = std::iter::from_fn(|| state.remove_oldest()).take(n_going).collect();
        if evicted.is_empty() {
            state.n_dropped += 1;
            self.counters.release_slots(usize::from(has_room));
            return Err(TreeFull);
        }
        state.n_dropped += evicted.len() as u64;
        self.counters.release_slots(if has_room { evicted.len() } else { evicted.len() - 1 });
        Ok(evicted)
    }

    /// Returns all retained operations, in the order in which they began.
    fn records(&self) -> Vec<Arc<OpRecord>> {
        self.state().records.iter().map(|(_, record)| Arc::clone(record)).collect()
    }
}

impl Drop for OpTreeInner {
    fn drop(&mut self) {
        self.counters.release_slots(self.state.get_mut().records.len());
    }
}

impl OpTreeState {
    fn next_segment(&mut self, kind: OpKind) -> OpSegment {
        let (turn, count) = match kind {
            OpKind::Llm | OpKind::Tool | OpKind::Session => (self.turn, &mut self.n_in_turn),
            OpKind::System => (0, &mut self.n_steps),
        };
        *count = count.saturating_add(1);
        OpSegment { turn, index: *count }
    }

    fn find(&self, segment: OpSegment) -> Option<Arc<OpRecord>> {
        self.records.iter().map(|(_, record)| record).find(|record| record.at == segment).cloned()
    }

    /// Updates an operation and returns its record, if it is retained. Concurrent readers keep the previous version.
    fn update(&mut self, number: u64, change: impl FnOnce(&mut OpRecord)) -> Option<&Arc<OpRecord>> {
        let at = self.records.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        let (_, record) = &mut self.records[at];
        change(Arc::make_mut(record));
        Some(record)
    }

    fn n_finished(&self) -> usize {
        self.records.iter().filter(|(_, record)| record.finish.is_some()).count()
    }

    /// Removes the finished operation that began first.
    fn remove_oldest(&mut self) -> Option<Arc<OpRecord>> {
        let oldest = self.records.iter().position(|(_, record)| record.finish.is_some())?;
        self.records.remove(oldest).map(|(_, record)| record)
    }
}
