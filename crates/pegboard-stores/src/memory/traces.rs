//! Trace records, in memory.

use std::collections::BTreeMap;

use futures_util::FutureExt;
use parking_lot::Mutex;
use pegboard_core::store::{StoreError, StoreFuture, StoreUsage, TraceQuery, TraceRecord, TraceStore};

use crate::limits::TraceLimits;
use crate::stored_trace::StoredTrace;

/// An in-memory store of trace records.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_core::store::{TraceQuery, TraceStore};
/// use pegboard_stores::limits::TraceLimits;
/// use pegboard_stores::memory::MemoryTraces;
///
/// let traces = MemoryTraces::new(TraceLimits::default());
/// assert_eq!(traces.find(TraceQuery { limit: 10, ..TraceQuery::default() }).await.unwrap(), []);
/// # });
/// ```
#[derive(Debug)]
pub struct MemoryTraces {
    limits: TraceLimits,
    state: Mutex<TraceStoreState>,
}

#[derive(Debug, Default)]
struct TraceStoreState {
    /// Ordered by timestamp, then by insertion.
    records: BTreeMap<(u64, u64), StoredTrace>,
    n_bytes: u64,
    n_arrived: u64,
}

impl MemoryTraces {
    /// Creates an empty store.
    pub fn new(limits: TraceLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn insert(&self, record: TraceRecord) -> Result<(), StoreError> {
        let trace = StoredTrace::new(record, self.limits)?;
        let mut state = self.state.lock();
        let key = (trace.timestamp, state.n_arrived);
        state.n_arrived += 1;
        state.n_bytes += trace.n_bytes();
        state.records.insert(key, trace);
        while self.limits.are_exceeded_by(state.usage()) {
            let Some((_, oldest)) = state.records.pop_first() else { break };
            state.n_bytes -= oldest.n_bytes();
        }
        Ok(())
    }
}

impl TraceStoreState {
    fn usage(&self) -> StoreUsage {
        StoreUsage { n_entries: u64::try_from(self.records.len()).unwrap_or(u64::MAX), n_bytes: self.n_bytes }
    }
}

/// Returns `true` if a record matches the query.
fn matches_query(trace: &StoredTrace, query: &TraceQuery) -> bool {
    query.workspace.as_ref().is_none_or(|workspace| *workspace == trace.workspace)
        && query.session.as_ref().is_none_or(|session| *session == trace.session)
}

impl TraceStore for MemoryTraces {
    fn append(&self, record: TraceRecord) -> StoreFuture<'_, ()> {
        async move { self.insert(record) }.boxed()
    }

    fn find(&self, query: TraceQuery) -> StoreFuture<'_, Vec<TraceRecord>> {
        async move {
            let found: Vec<StoredTrace> = {
                let state = self.state.lock();
                let wanted = state.records.values().rev().filter(|trace| matches_query(trace, &query));
                wanted.take(query.limit).cloned().collect()
            };
            found.into_iter().map(StoredTrace::into_record).collect()
        }
        .boxed()
    }
}
