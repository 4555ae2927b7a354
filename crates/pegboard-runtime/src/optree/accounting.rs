//! Resource accounting of sessions: totals, and one entry per tool operation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Serialize, Serializer};

use super::node::OpStatus;
use super::path::CallPath;

/// Resources used by one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpUsage {
    /// Input tokens.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Tokens read from the model's cache.
    pub tokens_cache_read: u64,
    /// Tokens written to the model's cache.
    pub tokens_cache_write: u64,
    /// Cost in US dollars; values that are not positive and finite are ignored.
    pub cost_usd: f64,
}

/// Resources used by a session and all nested ones, including evicted operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Input tokens.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Tokens read from models' caches.
    pub tokens_cache_read: u64,
    /// Tokens written to models' caches.
    pub tokens_cache_write: u64,
    /// Cost in US dollars.
    pub cost_usd: f64,
    /// Number of tool operations ended, successful or not.
    pub tools_run: u64,
    /// Number of agent sessions begun.
    pub agents_run: u64,
}

impl Totals {
    fn add(&mut self, more: &Self) {
        for (sum, part) in [
            (&mut self.tokens_in, more.tokens_in),
            (&mut self.tokens_out, more.tokens_out),
            (&mut self.tokens_cache_read, more.tokens_cache_read),
            (&mut self.tokens_cache_write, more.tokens_cache_write),
            (&mut self.tools_run, more.tools_run),
            (&mut self.agents_run, more.agents_run),
        ] {
            *sum = sum.saturating_add(part);
        }
        if more.cost_usd.is_finite() && more.cost_usd > 0.0 {
            self.cost_usd = (self.cost_usd + more.cost_usd).min(f64::MAX);
        }
    }
}

impl From<OpUsage> for Totals {
    fn from(usage: OpUsage) -> Self {
        Self {
            tokens_in: usage.tokens_in,
            tokens_out: usage.tokens_out,
            tokens_cache_read: usage.tokens_cache_read,
            tokens_cache_write: usage.tokens_cache_write,
            cost_usd: usage.cost_usd,
            ..Self::default()
        }
    }
}

/// Sessions covered by a list of accounting entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountingScope {
    /// The session alone.
    Own,
    /// The session and all nested ones.
    Tree,
}

/// One tool operation that has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "tool", rename_all = "camelCase")]
pub struct AccountingEntry {
    /// Start time, in milliseconds since the Unix epoch.
    pub timestamp: u64,
    /// Status of the operation.
    pub status: OpStatus,
    /// Duration; milliseconds on the wire.
    #[serde(serialize_with = "as_millis")]
    pub latency: Duration,
    /// Server or provider of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_server: Option<Arc<str>>,
    /// Name of the tool.
    pub command: Arc<str>,
    /// Size of the request in bytes, despite the name, which the accounting format sets.
    pub characters_in: u64,
    /// Size of the response in bytes.
    pub characters_out: u64,
    /// Error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// Agent that called the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Arc<str>>,
    /// Chain of callers.
    pub call_path: CallPath,
    /// Id of the session.
    pub txn_id: Arc<str>,
    /// Id of the parent session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_txn_id: Option<Arc<str>>,
    /// Id of the outermost session.
    pub origin_txn_id: Arc<str>,
}

pub(super) fn as_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64() * 1_000.0)
}

/// Counters of one session, propagated to its ancestors.
///
/// They are separate from the operations: an update reaches the root even if a session in between was
/// evicted.
#[derive(Debug)]
pub(super) struct OpCounters {
    ancestors: Option<Arc<OpCounters>>,
    totals: Mutex<Totals>,
    /// Number of operations retained by the whole tree; used at the root only.
    n_kept: AtomicUsize,
}

impl OpCounters {
    pub(super) fn new(ancestors: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { ancestors, totals: Mutex::default(), n_kept: AtomicUsize::new(0) })
    }

    /// Adds to this session and all ancestors, locking one at a time.
    pub(super) fn add(&self, more: &Totals) {
        self.self_and_ancestors().for_each(|counters| counters.totals.lock().add(more));
    }

    pub(super) fn totals(&self) -> Totals {
        *self.totals.lock()
    }

    /// Reserves room for one more operation, if the tree retains fewer than the limit.
    pub(super) fn reserve_slot(&self, n_most: usize) -> Option<()> {
        let more = |n_kept| (n_kept < n_most).then_some(n_kept + 1);
        self.root().n_kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| ())
    }

    /// Releases reserved room.
    pub(super) fn release_slots(&self, n_slots: usize) {
        self.root().n_kept.fetch_sub(n_slots, Ordering::Relaxed);
    }

    fn root(&self) -> &Self {
        self.self_and_ancestors().last().expect("the iterator starts with self")
    }

    /// Returns this session and its ancestors.
    fn self_and_ancestors(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |counters| counters.ancestors.as_deref())
    }
}
