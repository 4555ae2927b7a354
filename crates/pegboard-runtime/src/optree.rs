//! What happened in a session: its turns, their operations, and the sessions that those began.
//!
//! Every call begins an [`Operation`] and ends it; one that is dropped instead was canceled. What is kept has a cap,
//! and the oldest finished operations go first. The [`Totals`] go on counting what is no longer kept.
//!
//! A tree is cheap to write and is read rarely: reading takes shared handles of the records under the lock, and
//! makes the [`SessionNode`] outside. No two locks are ever held together.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

pub use self::accounting::{AccountingEntry, Scope, Totals, Usage};
pub use self::node::{LogLine, OpNode, OpStatus, RequestNode, ResponseNode, SessionNode, TurnNode};
pub use self::operation::{End, OpError, OpKind, Operation, Start, TooDeep};
pub use self::path::{CallPath, InvalidPath, MAX_DEPTH, OpPath};
pub use self::text::Payload;

use self::accounting::Tally;
use self::path::Segment;
use self::record::{Attributes, Record, note};

mod accounting;
mod node;
mod operation;
mod path;
mod record;
mod render;
mod text;

/// How long the name of an operation, its server or the title of a session may be, in bytes.
const MAX_NAME: usize = 256;
/// Who a session is.
///
/// ```
/// use std::time::SystemTime;
///
/// use pegboard_runtime::optree::{About, CallPath};
///
/// let about = About { call_path: CallPath::new("planner"), ..About::new("s-1", SystemTime::now()) };
/// assert_eq!(&*about.id, "s-1");
/// ```
#[derive(Clone, Debug)]
pub struct About {
    /// Its id, which is also its transaction.
    pub id: Arc<str>,
    /// The trace it belongs to.
    pub trace_id: Option<Arc<str>>,
    /// The agent whose session it is.
    pub agent: Option<Arc<str>>,
    /// Who called whom until it began.
    pub call_path: CallPath,
    /// What it is about, for people.
    pub title: Option<Arc<str>>,
    /// The session above it.
    pub parent: Option<Arc<str>>,
    /// The session that everything began with; `None` if this is it.
    pub origin: Option<Arc<str>>,
    /// When it began.
    pub started: SystemTime,
}

impl About {
    /// A session with an id and nothing else.
    pub fn new(id: &str, started: SystemTime) -> Self {
        Self {
            id: id.into(),
            trace_id: None,
            agent: None,
            call_path: CallPath::default(),
            title: None,
            parent: None,
            origin: None,
            started,
        }
    }

    /// The session that everything began with.
    fn first(&self) -> Arc<str> {
        Arc::clone(self.origin.as_ref().unwrap_or(&self.id))
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Operations of one session.
    pub per_session: usize,
    /// Operations of the first session and all sessions under it. One that finds no place is only counted.
    pub per_tree: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_session: 1_000, per_tree: 10_000 }
    }
}

/// The tree of one session. Clones are the same tree.
///
/// ```
/// use std::time::SystemTime;
///
/// use pegboard_runtime::optree::{About, End, OpKind, OpTree, Start};
///
/// let tree = OpTree::new(About::new("s-1", SystemTime::now()));
/// let operation = tree.begin(Start::of(OpKind::Tool, "search", SystemTime::now()));
/// assert_eq!(operation.path().to_string(), "1-1");
/// operation.end(End::ok());
/// assert_eq!(tree.totals().tools_run, 1);
/// println!("{}", tree.snapshot());
/// ```
#[derive(Clone, Debug)]
pub struct OpTree(Arc<Session>);

#[derive(Debug)]
struct Session {
    about: About,
    began: Instant,
    /// The operations above, outermost first; never an empty list.
    above: Option<Arc<[Segment]>>,
    limits: Limits,
    tally: Arc<Tally>,
    state: Mutex<State>,
}

/// There may be very many sessions, most of which do nothing.
const _: () = assert!(size_of::<Session>() + size_of::<Tally>() <= 400);

#[derive(Debug)]
struct State {
    turn: u32,
    /// How many operations this turn had.
    n_in_turn: u32,
    /// How many steps there were outside the turns.
    n_steps: u32,
    /// How many operations there were.
    n_begun: u64,
    n_dropped: u64,
    /// How many operations have ended.
    n_ended: u64,
    /// By the order in which they began.
    live: BTreeMap<u64, Arc<Record>>,
    /// By the order in which they began. Whoever reads shares them.
    finished: BTreeMap<u64, Arc<Record>>,
    /// Most sessions have none.
    remarks: Option<Box<Remarks>>,
}

/// What was said about a session after it began.
#[derive(Clone, Debug, Default)]
struct Remarks {
    status: Option<Arc<str>>,
    attributes: Attributes,
    /// How it ended, and after how long.
    end: Option<(Result<(), OpError>, Duration)>,
}

/// Operations that are no longer kept.
type Gone = Vec<Arc<Record>>;

/// There is no place for an operation: all that are kept still run.
struct NoRoom;

impl OpTree {
    /// The tree of a session in which nothing has happened yet.
    pub fn new(about: About) -> Self {
        Self::with_limits(about, Limits::default())
    }

    /// A tree that keeps as much as one says.
    pub fn with_limits(about: About, limits: Limits) -> Self {
        Self::rooted(about, limits, None, Tally::new(None))
    }

    fn rooted(about: About, limits: Limits, above: Option<Arc<[Segment]>>, tally: Arc<Tally>) -> Self {
        let state = State {
            turn: 1,
            n_in_turn: 0,
            n_steps: 0,
            n_begun: 0,
            n_dropped: 0,
            n_ended: 0,
            live: BTreeMap::new(),
            finished: BTreeMap::new(),
            remarks: None,
        };
        let began = Instant::now();
        Self(Arc::new(Session { about, began, above, limits, tally, state: Mutex::new(state) }))
    }

    /// Who the session is.
    pub fn about(&self) -> &About {
        &self.0.about
    }

    /// Lets the operations to come belong to a new turn. The first turn need not be asked for.
    pub fn next_turn(&self) {
        let mut state = self.0.state();
        state.turn = state.turn.saturating_add(1);
        state.n_in_turn = 0;
    }

    /// Begins an operation of this turn.
    pub fn begin(&self, start: Start) -> Operation {
        let Start { kind, name, server, size, payload, started } = start;
        let name = text::bounded(name, MAX_NAME);
        let server = server.map(|server| text::bounded(server, MAX_NAME));
        let began = Instant::now();
        let mut state = self.0.state();
        let at = state.next_place(kind);
        let number = state.n_begun;
        state.n_begun += 1;
        let room = self.0.make_room(&mut state);
        if room.is_ok() {
            let (name, child, notes, finish) = (Arc::clone(&name), None, None, None);
            let record =
                Record { at, kind, name, server, started, began, size, payload, child, notes, finish };
            state.live.insert(number, Arc::new(record));
        }
        drop(state);
        // Outside the lock: what goes may take whole sessions with it.
        drop(room);
        let (tree, child) = (self.clone(), OnceLock::new());
        Operation { tree, number, at, kind, name, started, began, child, ended: false }
    }

    /// Says what the session is doing, for people; the last word counts.
    pub fn set_status(&self, status: &str) {
        let status = note(status);
        self.0.state().remarks.get_or_insert_default().status = Some(status);
    }

    /// Sets an attribute of the session: at most 64, of at most 512 bytes each.
    pub fn set_attribute(&self, key: &str, value: &str) {
        let attribute = (note(key), note(value));
        self.0.state().remarks.get_or_insert_default().attributes.set(attribute);
    }

    /// Ends the session. It ends once; what is said later does not count.
    pub fn end(&self, result: Result<(), OpError>) {
        let after = self.0.began.elapsed();
        self.0.state().remarks.get_or_insert_default().end.get_or_insert((result, after));
    }

    /// What the session and all sessions under it have used.
    pub fn totals(&self) -> Totals {
        self.0.tally.totals()
    }

    /// All that is kept, as it is now.
    pub fn snapshot(&self) -> SessionNode {
        node::session(self)
    }

    /// The operation at a path, if it is kept.
    ///
    /// The path is whole, as the operation gives it, also where this is a child session.
    pub fn find(&self, path: &OpPath) -> Option<OpNode> {
        let mut rest = path.segments();
        for above in self.0.above.iter().flat_map(|above| above.iter()) {
            rest.next().filter(|segment| segment == above)?;
        }
        let mut tree = self.clone();
        let mut record = tree.0.state().at(rest.next()?)?;
        for segment in rest {
            tree = record.child.clone()?;
            let found = tree.0.state().at(segment)?;
            record = found;
        }
        Some(node::operation(&tree, &record))
    }

    /// The operations of this session that have ended after so many others, each with how many had then.
    pub(crate) fn ended_after(&self, n_ended: u64) -> Vec<(u64, OpNode)> {
        let mut ended: Vec<(u64, Arc<Record>)> = {
            let state = self.0.state();
            let ended = state.finished.values().filter_map(|record| {
                let place = record.finish.as_ref()?.place;
                (place > n_ended).then(|| (place, Arc::clone(record)))
            });
            ended.collect()
        };
        ended.sort_unstable_by_key(|(place, _)| *place);
        ended.into_iter().map(|(place, record)| (place, node::operation(self, &record))).collect()
    }

    /// One entry for each tool that has ended and is kept, in the order in which they began.
    ///
    /// Those of a child session come after the operation that began it.
    pub fn accounting(&self, scope: Scope) -> Vec<AccountingEntry> {
        let mut entries = Vec::new();
        self.add_accounting(scope, &mut entries);
        entries
    }

    fn add_accounting(&self, scope: Scope, entries: &mut Vec<AccountingEntry>) {
        for record in self.0.records() {
            entries.extend(node::accounting(&self.0.about, &record));
            match (scope, &record.child) {
                (Scope::Tree, Some(child)) => child.add_accounting(scope, entries),
                (Scope::Tree, None) | (Scope::Own, _) => {}
            }
        }
    }
}

impl Session {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing can panic while the lock is held and the records do not match.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a place for one more operation; those that go for it are returned.
    fn make_room(&self, state: &mut State) -> Result<Gone, NoRoom> {
        let n_kept = state.live.len() + state.finished.len();
        let has_place = self.tally.take_place(self.limits.per_tree).is_some();
        if has_place && n_kept < self.limits.per_session {
            return Ok(Gone::new());
        }
        // In a full tree some more go, so that the sessions under this one find places, too.
        let n_going = if has_place { 1 } else { (state.finished.len() / 8).max(1) };
        let oldest = || state.finished.pop_first().map(|(_, record)| record);
        let gone: Gone = std::iter::from_fn(oldest).take(n_going).collect();
        if gone.is_empty() {
            state.n_dropped += 1;
            self.tally.give_back(usize::from(has_place));
            return Err(NoRoom);
        }
        state.n_dropped += gone.len() as u64;
        self.tally.give_back(if has_place { gone.len() } else { gone.len() - 1 });
        Ok(gone)
    }

    /// All operations that are kept, in the order in which they began.
    fn records(&self) -> Vec<Arc<Record>> {
        let mut numbered: Vec<(u64, Arc<Record>)> = {
            let state = self.state();
            let all = state.finished.iter().chain(&state.live);
            all.map(|(number, record)| (*number, Arc::clone(record))).collect()
        };
        numbered.sort_unstable_by_key(|(number, _)| *number);
        numbered.into_iter().map(|(_, record)| record).collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.tally.give_back(state.live.len() + state.finished.len());
    }
}

impl State {
    fn next_place(&mut self, kind: OpKind) -> Segment {
        let (turn, count) = match kind {
            OpKind::Llm | OpKind::Tool | OpKind::Session => (self.turn, &mut self.n_in_turn),
            OpKind::System => (0, &mut self.n_steps),
        };
        *count = count.saturating_add(1);
        Segment { turn, index: *count }
    }

    fn at(&self, place: Segment) -> Option<Arc<Record>> {
        self.finished.values().chain(self.live.values()).find(|record| record.at == place).cloned()
    }

    /// Changes a live operation. Whoever reads it at this moment goes on reading what was.
    fn change(&mut self, number: u64, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.live.get_mut(&number) {
            change(Arc::make_mut(record));
        }
    }
}
