//! Calls that have ended.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::FutureExt;
use pegboard_core::store::{
    CallSummary, HistoryQuery, HistoryStore, PastCall, PastSession, StoreError, Stored,
};

use super::lock;
use super::shelf::{Shelf, Thing};
use crate::limits::{HistoryLimits, past_call_len};

/// Past calls in memory.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::SystemTime;
///
/// use pegboard_core::store::{HistoryQuery, HistoryStore};
/// use pegboard_stores::limits::HistoryLimits;
/// use pegboard_stores::memory::History;
///
/// let history = History::new(HistoryLimits::default());
/// let query = HistoryQuery { n_most: 10, ..HistoryQuery::default() };
/// assert_eq!(history.calls(query, SystemTime::UNIX_EPOCH).await.unwrap(), []);
/// # });
/// ```
#[derive(Debug)]
pub struct History {
    limits: HistoryLimits,
    calls: Mutex<Shelf<String, PastCall>>,
}

impl History {
    /// A store without calls.
    pub fn new(limits: HistoryLimits) -> Self {
        Self { limits, calls: Mutex::default() }
    }

    fn keep(&self, new: Vec<PastCall>, now: SystemTime) -> Result<(), StoreError> {
        self.limits.admit(&new)?;
        let mut calls = lock(&self.calls);
        while calls.take_expired(now).is_some() {}
        for mut call in new {
            // A slice would keep alive the whole that it was cut from.
            call.body = Bytes::copy_from_slice(&call.body);
            let (id, n_bytes) = (call.summary.id.clone(), past_call_len(&call));
            let (since, expires) = (call.summary.started, call.expires);
            calls.put(id, Thing { value: call, since, expires, n_bytes });
        }
        while self.limits.are_exceeded_by(calls.usage()) && calls.take_oldest().is_some() {}
        Ok(())
    }

    fn sessions_now(&self, owner: Option<&str>, now: SystemTime) -> Vec<PastSession> {
        let calls = lock(&self.calls);
        let summaries = calls.youngest_first(now).map(|call| &call.summary);
        let mut sessions: Vec<PastSession> = Vec::new();
        let mut places: HashMap<(&str, &str), usize> = HashMap::new();
        for call in summaries.filter(|call| owner.is_none_or(|owner| owner == call.owner)) {
            let at = *places.entry((&call.session, &call.owner)).or_insert_with(|| {
                sessions.push(PastSession {
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

/// Whether a call is among those that are wanted.
fn is_wanted(call: &CallSummary, query: &HistoryQuery) -> bool {
    query.id_prefix.as_ref().is_none_or(|prefix| call.id.starts_with(prefix))
        && query.session.as_ref().is_none_or(|session| *session == call.session)
        && query.owner.as_ref().is_none_or(|owner| *owner == call.owner)
}

impl HistoryStore for History {
    fn add(&self, calls: Vec<PastCall>, now: SystemTime) -> Stored<'_, ()> {
        async move { self.keep(calls, now) }.boxed()
    }

    fn get(&self, id: String, now: SystemTime) -> Stored<'_, Option<PastCall>> {
        async move { Ok(lock(&self.calls).alive(&id, now).cloned()) }.boxed()
    }

    fn calls(&self, query: HistoryQuery, now: SystemTime) -> Stored<'_, Vec<CallSummary>> {
        async move {
            let calls = lock(&self.calls);
            let summaries = calls.youngest_first(now).map(|call| &call.summary);
            Ok(summaries.filter(|call| is_wanted(call, &query)).take(query.n_most).cloned().collect())
        }
        .boxed()
    }

    fn sessions(
        &self,
        owner: Option<String>,
        n_most: usize,
        now: SystemTime,
    ) -> Stored<'_, Vec<PastSession>> {
        async move {
            let mut sessions = self.sessions_now(owner.as_deref(), now);
            sessions.truncate(n_most);
            Ok(sessions)
        }
        .boxed()
    }
}
