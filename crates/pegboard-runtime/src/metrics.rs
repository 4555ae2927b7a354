//! Prometheus metrics of the runtime.
//!
//! Recording is a lookup and a few additions, cheap enough for the path of every call. Labels are bounded:
//! configured tools, servers and queues, and fixed words; never a session, an argument or a message.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::{Equivalent, IndexMap};
use parking_lot::{Mutex, RwLock};
use pegboard_core::error::ErrorKind;
use pegboard_core::provider::{ServerState, ToolKind};

use crate::event::{
    CacheResult, CallEnd, CallInfo, LogLossReason, NotificationDropReason, Observer, RuntimeEvent,
};
use histogram::Histogram;

mod histogram;
mod text;

/// Content type of the text returned by [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Label of tools without a series of their own.
const OTHER: &str = "other";

/// Maximum length of a name with a series of its own, in bytes.
const MAX_NAME: usize = 256;

/// Maximum numbers of series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsLimits {
    /// Number of tools with their own series, in order of appearance. All others share the series `other`.
    pub n_tools: usize,
    /// Number of queues.
    pub n_queues: usize,
    /// Number of servers.
    pub n_servers: usize,
}

impl Default for MetricsLimits {
    fn default() -> Self {
        Self { n_tools: 1_000, n_queues: 1_000, n_servers: 1_000 }
    }
}

/// Observer that maintains the metrics.
///
/// ```
/// use std::sync::Arc;
///
/// use pegboard_runtime::event::{RuntimeEvent, EventBus};
/// use pegboard_runtime::metrics::{MetricsLimits, Metrics};
///
/// let metrics = Arc::new(Metrics::new(MetricsLimits::default()));
/// let events = EventBus::new([metrics.clone() as _]);
/// events.emit(|| RuntimeEvent::Catalogue { n_tools: 3 });
/// assert!(metrics.render().contains("pegboard_catalogue_tools 3\n"));
/// ```
pub struct Metrics {
    tools: Family<ToolKey, ToolSeries>,
    /// Tools without a series of their own.
    overflow: Family<ToolKind, ToolSeries>,
    queues: Family<Arc<str>, QueueSeries>,
    servers: Family<ServerKey, AtomicU64>,
    n_catalogue_tools: AtomicU64,
    lost_log_entries: LabelCounts,
    dropped_notifications: LabelCounts,
}

impl Metrics {
    /// Creates metrics with all values zero.
    pub fn new(limits: MetricsLimits) -> Self {
        Self {
            tools: Family::new(limits.n_tools),
            // One per tool kind, so it is bounded.
            overflow: Family::new(usize::MAX),
            queues: Family::new(limits.n_queues),
            servers: Family::new(limits.n_servers),
            n_catalogue_tools: AtomicU64::new(0),
            lost_log_entries: LabelCounts::default(),
            dropped_notifications: LabelCounts::default(),
        }
    }

    /// Renders all metrics in the Prometheus text format, in a stable order.
    pub fn render(&self) -> String {
        let overflow =
            self.overflow.sorted().into_iter().map(|(kind, series)| (ToolKey::other(kind), series));
        let tools: Vec<_> = self.tools.sorted().into_iter().chain(overflow).collect();
        let mut encoder = text::TextEncoder::default();
        text::tools(&mut encoder, &tools);
        text::queues(&mut encoder, &self.queues.sorted());
        text::servers(&mut encoder, &self.servers.sorted());
        text::catalogue(&mut encoder, &self.n_catalogue_tools);
        text::lost_log_entries(&mut encoder, &self.lost_log_entries);
        text::dropped_notifications(&mut encoder, &self.dropped_notifications);
        encoder.into_text()
    }

    /// Returns the series of a tool.
    fn series_for(&self, call: &CallInfo) -> Arc<ToolSeries> {
        let CallInfo { tool, server, kind, .. } = call;
        let labels = ToolLabels { tool, server, kind: *kind };
        let is_named =
            tool.len() <= MAX_NAME && server.len() <= MAX_NAME && (&**tool, &**server) != (OTHER, OTHER);
        let own = is_named.then(|| self.tools.series(&labels, || labels.to_key())).flatten();
        own.unwrap_or_else(|| self.overflow_series(*kind))
    }

    /// Returns the shared series of tools of a kind.
    fn overflow_series(&self, kind: ToolKind) -> Arc<ToolSeries> {
        self.overflow.series(&kind, || kind).unwrap_or_default()
    }

    fn finished(&self, call: &CallInfo, end: &CallEnd) {
        // A name invented by a caller must not take the series of a tool.
        let series = match end.error {
            Some(ErrorKind::UnknownTool | ErrorKind::UnknownToolbox | ErrorKind::UnknownServer) => {
                self.overflow_series(call.kind)
            }
            _ => self.series_for(call),
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
            // It is not supposed to be up, so no alert should fire.
            ServerState::Idle | ServerState::Stopped => return self.servers.remove(&key),
        };
        if let Some(series) = self.servers.series(&key, || key.clone()) {
            series.store(is_up, Ordering::Relaxed);
        }
    }
}

impl Observer for Metrics {
    fn observe(&self, event: &RuntimeEvent) {
        match event {
            RuntimeEvent::ToolFinished { call, end } => self.finished(call, end),
            RuntimeEvent::Dequeued { queue, waited, .. } => {
                if let Some(series) = self.queues.series(&**queue, || queue.clone()) {
                    series.wait.add(*waited);
                }
            }
            RuntimeEvent::QueueDepth { queue, in_use, waiting, capacity: _ } => {
                if let Some(series) = self.queues.series(&**queue, || queue.clone()) {
                    series.in_use.store(*in_use as u64, Ordering::Relaxed);
                    series.waiting.store(*waiting as u64, Ordering::Relaxed);
                }
            }
            RuntimeEvent::Cache { call, result } => self.series_for(call).cache.add(match result {
                CacheResult::Hit { .. } => "hit",
                CacheResult::Miss => "miss",
                CacheResult::Joined => "joined",
                CacheResult::Stored => "stored",
            }),
            RuntimeEvent::OutputStored { call, reason, .. } => {
                self.series_for(call).stored.add(reason.as_str());
            }
            RuntimeEvent::Server { toolbox, server, state } => self.server(toolbox, server, state),
            RuntimeEvent::Catalogue { n_tools } => {
                self.n_catalogue_tools.store(*n_tools as u64, Ordering::Relaxed);
            }
            RuntimeEvent::LogLost { n_entries, reason } => self.lost_log_entries.add_many(
                match reason {
                    LogLossReason::QueueFull => "queue_full",
                    LogLossReason::StoreFailed => "store_failed",
                },
                *n_entries,
            ),
            RuntimeEvent::NotificationsDropped { n_notifications, reason } => {
                self.dropped_notifications.add_many(
                    match reason {
                        NotificationDropReason::NoReader => "no_reader",
                        NotificationDropReason::SlowReader => "slow_reader",
                    },
                    *n_notifications,
                );
            }
            RuntimeEvent::ToolStarted { .. }
            | RuntimeEvent::Turn { .. }
            | RuntimeEvent::Status { .. }
            | RuntimeEvent::AgentWarned { .. }
            | RuntimeEvent::ModelStarted { .. }
            | RuntimeEvent::ModelFinished { .. }
            | RuntimeEvent::Progress { .. }
            | RuntimeEvent::Queued { .. }
            | RuntimeEvent::Started { .. }
            | RuntimeEvent::Corrected { .. } => {}
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Metrics of a tool.
#[derive(Default)]
struct ToolSeries {
    ok: Histogram,
    failed: Histogram,
    n_bytes_in: AtomicU64,
    n_bytes_out: AtomicU64,
    errors: LabelCounts,
    cache: LabelCounts,
    stored: LabelCounts,
}

/// Metrics of a queue.
#[derive(Default)]
struct QueueSeries {
    in_use: AtomicU64,
    waiting: AtomicU64,
    wait: Histogram,
}

/// Counters by label value.
#[derive(Default)]
struct LabelCounts(Mutex<BTreeMap<&'static str, u64>>);

impl LabelCounts {
    fn add(&self, word: &'static str) {
        self.add_many(word, 1);
    }

    fn add_many(&self, word: &'static str, number: u64) {
        *self.0.lock().entry(word).or_default() += number;
    }

    fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().clone()
    }
}

/// Series by key, up to a limit.
struct Family<K, V> {
    max_series: usize,
    series: RwLock<IndexMap<K, Arc<V>>>,
}

impl<K: Clone + Eq + Hash + Ord, V: Default> Family<K, V> {
    fn new(max_series: usize) -> Self {
        Self { max_series, series: RwLock::default() }
    }

    /// Returns the series of a key, creating it if there is room; `None` otherwise.
    fn series<Q: Equivalent<K> + Hash + ?Sized>(&self, key: &Q, owned: impl FnOnce() -> K) -> Option<Arc<V>> {
        {
            let all = self.series.read();
            let found = all.get(key).cloned();
            if found.is_some() || all.len() >= self.max_series {
                return found;
            }
        }
        let mut all = self.series.write();
        // Another thread may have created it in the meantime.
        if let Some(series) = all.get(key) {
            return Some(series.clone());
        }
        (all.len() < self.max_series).then(|| all.entry(owned()).or_default().clone())
    }

    fn remove<Q: Equivalent<K> + Hash + ?Sized>(&self, key: &Q) {
        self.series.write().swap_remove(key);
    }

    fn sorted(&self) -> Vec<(K, Arc<V>)> {
        let all = self.series.read();
        let mut all: Vec<_> = all.iter().map(|(key, series)| (key.clone(), series.clone())).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

/// Labels of a tool's series.
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

/// Borrowed form of [`ToolKey`] for lookups. Hashes identically: the same fields in the same order.
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

/// Labels of a server's series.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct ServerKey {
    toolbox: String,
    server: String,
}
