//! Past calls, in memory.

use std::collections::HashMap;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt;
use parking_lot::Mutex;
use pegboard_core::store::{
    CallSummary, FinishedCall, HistoryQuery, HistoryStore, SessionSummary, StoreError, StoreFuture,
};

use super::ttl_map::{TtlEntry, TtlMap};
use crate::limits::{HistoryLimits, past_call_len};

/// An in-memory store of past calls.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::SystemTime;
///
/// use pegboard_core::store::{HistoryQuery, HistoryStore};
/// use pegboard_stores::limits::HistoryLimits;
/// use pegboard_stores::memory::MemoryHistory;
///
/// let history = MemoryHistory::new(HistoryLimits::default());
/// let query = HistoryQuery { limit: 10, ..HistoryQuery::default() };
/// assert_eq!(history.calls(query, SystemTime::UNIX_EPOCH).await.unwrap(), []);
/// # });
/// ```
#[derive(Debug)]
pub struct MemoryHistory {
    limits: HistoryLimits,
    calls: Mutex<TtlMap<String, FinishedCall>>,
}

impl MemoryHistory {
    /// Creates an empty store.
    pub fn new(limits: HistoryLimits) -> Self {
        Self { limits, calls: Mutex::default() }
    }

    fn insert(&self, new: Vec<FinishedCall>, now: SystemTime) -> Result<(), StoreError> {
        self.limits.admit(&new)?;
        let mut calls = self.calls.lock();
        while calls.pop_expired(now).is_some() {}
        for mut call in new {
            // A slice would keep its whole source buffer alive.
            call.body = Bytes::copy_from_slice(&call.body);
            let (id, n_bytes) = (call.summary.id.clone(), past_call_len(&call));
            let (created, expires) = (call.summary.started, call.expires);
            calls.put(id, TtlEntry { value: call, created, expires, n_bytes });
        }
        while self.limits.are_exceeded_by(calls.usage()) && calls.pop_oldest().is_some() {}
        Ok(())
    }

    fn sessions_at(&self, owner: Option<&str>, now: SystemTime) -> Vec<SessionSummary> {
        let calls = self.calls.lock();
        let summaries = calls.newest_first(now).map(|call| &call.summary);
        let mut sessions: Vec<SessionSummary> = Vec::new();
        let mut positions: HashMap<(&str, &str), usize> = HashMap::new();
        for call in summaries.filter(|call| owner.is_none_or(|owner| owner == call.owner)) {
            let at = *positions.entry((&call.session, &call.owner)).or_insert_with(|| {
                sessions.push(SessionSummary {
                    id: call.session.clone(),
                    owner: call.owner.clone(),
                    started: call.started,
                    used: call.started,
                    n_calls: 0,
                    n_failed: 0,
                });
                sessions.len() - 1
            });
            let session = &mut sessions[at];
            session.started = call.started;
            session.n_calls += 1;
            session.n_failed += u64::from(call.error.is_some());
        }
        sessions
    }
}

/// Returns `true` if a call matches the query.
fn matches_query(call: &CallSummary, query: &HistoryQuery) -> bool {
    query.id_prefix.as_ref().is_none_or(|prefix| call.id.starts_with(prefix))
        && query.session.as_ref().is_none_or(|session| *session == call.session)
        && query.owner.as_ref().is_none_or(|owner| *owner == call.owner)
}

impl HistoryStore for MemoryHistory {
    fn add(&self, calls: Vec<FinishedCall>, now: SystemTime) -> StoreFuture<'_, ()> {
        async move { self.insert(calls, now) }.boxed()
    }

    fn get(&self, id: String, now: SystemTime) -> StoreFuture<'_, Option<FinishedCall>> {
        async move { Ok(self.calls.lock().get_live(&id, now).cloned()) }.boxed()
    }

    fn calls(&self, query: HistoryQuery, now: SystemTime) -> StoreFuture<'_, Vec<CallSummary>> {
        async move {
            let calls = self.calls.lock();
            let summaries = calls.newest_first(now).map(|call| &call.summary);
            Ok(summaries.filter(|call| matches_query(call, &query)).take(query.limit).cloned().collect())
        }
        .boxed()
    }

    fn sessions(
        &self,
        owner: Option<String>,
        limit: usize,
        now: SystemTime,
    ) -> StoreFuture<'_, Vec<SessionSummary>> {
        async move {
            let mut sessions = self.sessions_at(owner.as_deref(), now);
            sessions.truncate(limit);
            Ok(sessions)
        }
        .boxed()
    }
}
