//! What a session has used, and one entry for each tool that ran.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::node::OpStatus;
use super::path::CallPath;

/// What one operation used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Tokens that a model read.
    pub tokens_in: u64,
    /// Tokens that a model wrote.
    pub tokens_out: u64,
    /// Tokens that a model read from its cache.
    pub tokens_cache_read: u64,
    /// Tokens that a model wrote to its cache.
    pub tokens_cache_write: u64,
    /// What it cost in US dollars; what is no amount of money counts as nothing.
    pub cost_usd: f64,
}

/// What a session and all sessions under it have used, whether or not the operations are still kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Totals {
    /// Tokens that models read.
    pub tokens_in: u64,
    /// Tokens that models wrote.
    pub tokens_out: u64,
    /// Tokens that models read from their caches.
    pub tokens_cache_read: u64,
    /// Tokens that models wrote to their caches.
    pub tokens_cache_write: u64,
    /// What it all cost in US dollars.
    pub cost_usd: f64,
    /// How many tools ran to an end, good or bad.
    pub tools_run: u64,
    /// How many child sessions began.
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

impl From<Usage> for Totals {
    fn from(usage: Usage) -> Self {
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

/// Whose entries are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of the session alone.
    Own,
    /// Those of all sessions under it, too.
    Tree,
}

/// One tool that ran to an end.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "tool", rename_all = "camelCase")]
pub struct AccountingEntry {
    /// When it began, in milliseconds since 1970.
    pub timestamp: u64,
    /// How it went.
    pub status: OpStatus,
    /// How long it took; milliseconds on the wire.
    #[serde(serialize_with = "as_millis")]
    pub latency: Duration,
    /// The server or provider it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_server: Option<Arc<str>>,
    /// Its name.
    pub command: Arc<str>,
    /// How many characters it was given.
    pub characters_in: u64,
    /// How many characters it gave back.
    pub characters_out: u64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Arc<str>>,
    /// The agent that called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<Arc<str>>,
    /// Who called whom.
    pub call_path: CallPath,
    /// The session.
    pub txn_id: Arc<str>,
    /// The session above it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_txn_id: Option<Arc<str>>,
    /// The session that everything began with.
    pub origin_txn_id: Arc<str>,
}

pub(super) fn as_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64() * 1_000.0)
}

/// The sums of one session, which pass on to the session above.
///
/// They live apart from the operations: a sum reaches the top even when a session between is no longer kept.
#[derive(Debug)]
pub(super) struct Tally {
    above: Option<Arc<Tally>>,
    totals: Mutex<Totals>,
    /// How many operations the whole tree keeps; counted at the top alone.
    n_kept: AtomicUsize,
}

impl Tally {
    pub(super) fn new(above: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self { above, totals: Mutex::default(), n_kept: AtomicUsize::new(0) })
    }

    /// Adds to this session and all above, one lock after the other.
    pub(super) fn add(&self, more: &Totals) {
        self.line().for_each(|tally| tally.lock().add(more));
    }

    pub(super) fn totals(&self) -> Totals {
        *self.lock()
    }

    /// Takes a place for one more operation, if the tree has fewer than so many.
    pub(super) fn take_place(&self, n_most: usize) -> Option<()> {
        let more = |n_kept| (n_kept < n_most).then_some(n_kept + 1);
        self.top().n_kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| ())
    }

    /// Gives places back.
    pub(super) fn give_back(&self, n_places: usize) {
        self.top().n_kept.fetch_sub(n_places, Ordering::Relaxed);
    }

    fn top(&self) -> &Self {
        self.line().last().expect("the line begins with this one")
    }

    /// This one and all above.
    fn line(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |tally| tally.above.as_deref())
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
