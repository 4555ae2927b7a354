//! What happened, in numbers, for Prometheus.
//!
//! Counting is a look-up and a few additions, so it can stay on the path of every call. What names a series is
//! bounded: tools, servers and queues that somebody configured, words of ours, and never a session, an argument or
//! a message.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use indexmap::{Equivalent, IndexMap};
use pegboard_core::error::ErrorKind;
use pegboard_core::provider::{ServerState, ToolKind};

use crate::event::{CacheResult, End, Event, Observer, Subject};
use histogram::Histogram;

mod histogram;
mod text;

/// What a reader of [`Metrics::render`]'s text must be told it is.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Stands for every tool that has no series of its own.
const OTHER: &str = "other";

/// The longest name that gets a series of its own, in bytes.
const MAX_NAME: usize = 256;

/// How many series there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many tools are counted one by one, first come first. All others count together, as `other`.
    pub n_tools: usize,
    /// How many queues are shown.
    pub n_queues: usize,
    /// How many servers are shown.
    pub n_servers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { n_tools: 1_000, n_queues: 1_000, n_servers: 1_000 }
    }
}

/// Counts what happens.
///
/// ```
/// use std::sync::Arc;
///
/// use pegboard_runtime::event::{Event, Events};
/// use pegboard_runtime::metrics::{Limits, Metrics};
///
/// let metrics = Arc::new(Metrics::new(Limits::default()));
/// let events = Events::new([metrics.clone() as _]);
/// events.emit(|| Event::Catalogue { n_tools: 3 });
/// assert!(metrics.render().contains("pegboard_catalogue_tools 3\n"));
/// ```
pub struct Metrics {
    tools: Family<ToolKey, ToolSeries>,
    /// The tools without a series of their own.
    others: Family<ToolKind, ToolSeries>,
    queues: Family<Arc<str>, QueueSeries>,
    servers: Family<ServerKey, AtomicU64>,
    n_catalogued: AtomicU64,
}

impl Metrics {
    /// Numbers that are all zero.
    pub fn new(limits: Limits) -> Self {
        Self {
            tools: Family::new(limits.n_tools),
            // One for each kind, and there are few kinds.
            others: Family::new(usize::MAX),
            queues: Family::new(limits.n_queues),
            servers: Family::new(limits.n_servers),
            n_catalogued: AtomicU64::new(0),
        }
    }

    /// All numbers in Prometheus' text format, in an order that stays the same.
    pub fn render(&self) -> String {
        let others = self.others.sorted().into_iter().map(|(kind, series)| (ToolKey::other(kind), series));
        let tools: Vec<_> = self.tools.sorted().into_iter().chain(others).collect();
        let mut page = text::Page::default();
        text::tools(&mut page, &tools);
        text::queues(&mut page, &self.queues.sorted());
        text::servers(&mut page, &self.servers.sorted());
        text::catalogue(&mut page, &self.n_catalogued);
        page.into_text()
    }

    /// The series that calls of a tool count in.
    fn of(&self, call: &Subject) -> Arc<ToolSeries> {
        let Subject { tool, server, kind, .. } = call;
        let labels = ToolLabels { tool, server, kind: *kind };
        let is_named = tool.len() <= MAX_NAME
            && server.len() <= MAX_NAME
            && (&**tool, server.as_str()) != (OTHER, OTHER);
        let own = is_named.then(|| self.tools.series(&labels, || labels.to_key())).flatten();
        own.unwrap_or_else(|| self.of_others(*kind))
    }

    /// The series that calls of all other tools of a kind count in.
    fn of_others(&self, kind: ToolKind) -> Arc<ToolSeries> {
        self.others.series(&kind, || kind).unwrap_or_default()
    }

    fn finished(&self, call: &Subject, end: &End) {
        // A name that a caller made up must not take the place of a tool's.
        let series = match end.error {
            Some(ErrorKind::UnknownTool | ErrorKind::UnknownToolbox | ErrorKind::UnknownServer) => {
                self.of_others(call.kind)
            }
            _ => self.of(call),
        };
        match end.error {
            None => series.ok.add(end.duration),
            Some(error) => {
                series.failed.add(end.duration);
                series.errors.add(error.as_str());
            }
        }
        series.n_bytes_in.fetch_add(call.n_bytes_in as u64, Ordering::Relaxed);
        series.n_bytes_out.fetch_add(end.n_bytes_out as u64, Ordering::Relaxed);
    }

    fn server(&self, toolbox: &str, server: &str, state: &ServerState) {
        let key = ServerKey { toolbox: toolbox.to_owned(), server: server.to_owned() };
        let is_up = match state {
            ServerState::Ready => 1,
            ServerState::Starting
            | ServerState::Restarting { .. }
            | ServerState::NeedsLogin { .. }
            | ServerState::Failed { .. } => 0,
            // It is not meant to be up, so nobody need worry that it is not.
            ServerState::Idle | ServerState::Stopped => return self.servers.remove(&key),
        };
        if let Some(series) = self.servers.series(&key, || key.clone()) {
            series.store(is_up, Ordering::Relaxed);
        }
    }
}

impl Observer for Metrics {
    fn observe(&self, event: &Event) {
        match event {
            Event::ToolFinished { call, end } => self.finished(call, end),
            Event::Dequeued { queue, waited, .. } => {
                if let Some(series) = self.queues.series(&**queue, || queue.clone()) {
                    series.wait.add(*waited);
                }
            }
            Event::QueueDepth { queue, in_use, waiting, capacity: _ } => {
                if let Some(series) = self.queues.series(&**queue, || queue.clone()) {
                    series.in_use.store(*in_use as u64, Ordering::Relaxed);
                    series.waiting.store(*waiting as u64, Ordering::Relaxed);
                }
            }
            Event::Cache { call, result } => self.of(call).cache.add(match result {
                CacheResult::Hit { .. } => "hit",
                CacheResult::Miss => "miss",
                CacheResult::Joined => "joined",
                CacheResult::Stored => "stored",
            }),
            Event::OutputStored { call, reason, .. } => self.of(call).stored.add(reason.as_str()),
            Event::Server { toolbox, server, state } => self.server(toolbox, server, state),
            Event::Catalogue { n_tools } => self.n_catalogued.store(*n_tools as u64, Ordering::Relaxed),
            Event::ToolStarted { .. }
            | Event::Turn { .. }
            | Event::Status { .. }
            | Event::AgentWarned { .. }
            | Event::ModelStarted { .. }
            | Event::ModelFinished { .. }
            | Event::Progress { .. }
            | Event::Queued { .. }
            | Event::Started { .. }
            | Event::Corrected { .. } => {}
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// What is counted for a tool.
#[derive(Default)]
struct ToolSeries {
    ok: Histogram,
    failed: Histogram,
    n_bytes_in: AtomicU64,
    n_bytes_out: AtomicU64,
    errors: Counts,
    cache: Counts,
    stored: Counts,
}

/// What is counted for a queue.
#[derive(Default)]
struct QueueSeries {
    in_use: AtomicU64,
    waiting: AtomicU64,
    wait: Histogram,
}

/// How often each of a few words of ours came up.
#[derive(Default)]
struct Counts(Mutex<BTreeMap<&'static str, u64>>);

impl Counts {
    fn add(&self, word: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(word).or_default() += 1;
    }

    fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Series by what they are of, up to a limit.
struct Family<K, V> {
    n_most: usize,
    series: RwLock<IndexMap<K, Arc<V>>>,
}

impl<K: Clone + Eq + Hash + Ord, V: Default> Family<K, V> {
    fn new(n_most: usize) -> Self {
        Self { n_most, series: RwLock::default() }
    }

    /// The series of a key, which is new if there is room; `None` if there is not.
    fn series<Q: Equivalent<K> + Hash + ?Sized>(&self, key: &Q, owned: impl FnOnce() -> K) -> Option<Arc<V>> {
        {
            let all = self.series.read().unwrap_or_else(PoisonError::into_inner);
            let found = all.get(key).cloned();
            if found.is_some() || all.len() >= self.n_most {
                return found;
            }
        }
        let mut all = self.series.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have been quicker.
        if let Some(series) = all.get(key) {
            return Some(series.clone());
        }
        (all.len() < self.n_most).then(|| all.entry(owned()).or_default().clone())
    }

    fn remove<Q: Equivalent<K> + Hash + ?Sized>(&self, key: &Q) {
        self.series.write().unwrap_or_else(PoisonError::into_inner).swap_remove(key);
    }

    fn sorted(&self) -> Vec<(K, Arc<V>)> {
        let all = self.series.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = all.iter().map(|(key, series)| (key.clone(), series.clone())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

/// Which tool a series is of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ToolKey {
    tool: Arc<str>,
    server: String,
    kind: ToolKind,
}

impl ToolKey {
    fn other(kind: ToolKind) -> Self {
        Self { tool: OTHER.into(), server: OTHER.to_owned(), kind }
    }
}

/// A [`ToolKey`] that is only looked for. It hashes like one: the same fields in the same order.
#[derive(Hash)]
struct ToolLabels<'a> {
    tool: &'a Arc<str>,
    server: &'a str,
    kind: ToolKind,
}

impl ToolLabels<'_> {
    fn to_key(&self) -> ToolKey {
        ToolKey { tool: self.tool.clone(), server: self.server.to_owned(), kind: self.kind }
    }
}

impl Equivalent<ToolKey> for ToolLabels<'_> {
    fn equivalent(&self, key: &ToolKey) -> bool {
        *self.tool == key.tool && self.server == key.server && self.kind == key.kind
    }
}

/// Which server a series is of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ServerKey {
    toolbox: String,
    server: String,
}
