//! Resumable sessions, in memory.

use std::collections::HashMap;
use std::time::SystemTime;

use futures_util::FutureExt;
use parking_lot::Mutex;
use pegboard_core::store::{SessionHandle, SessionRecord, SessionStore, StoreError, StoreFuture};

use super::ttl_map::{TtlEntry, TtlMap};
use crate::limits::SessionLimits;
use crate::no_such_session;

/// An in-memory store of sessions.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::SystemTime;
///
/// use pegboard_core::store::SessionStore;
/// use pegboard_stores::limits::SessionLimits;
/// use pegboard_stores::memory::MemorySessions;
///
/// let sessions = MemorySessions::new(SessionLimits::default());
/// assert_eq!(sessions.list(10, SystemTime::UNIX_EPOCH).await.unwrap(), []);
/// # });
/// ```
#[derive(Debug)]
pub struct MemorySessions {
    limits: SessionLimits,
    state: Mutex<SessionStoreState>,
}

#[derive(Debug, Default)]
struct SessionStoreState {
    sessions: TtlMap<String, SessionRecord>,
    /// The session of each handle. A session is removed with its handles, so it always exists.
    ids: HashMap<SessionHandle, String>,
    handles: HashMap<String, Vec<SessionHandle>>,
}

impl MemorySessions {
    /// Creates an empty store.
    pub fn new(limits: SessionLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn bind_handle(&self, handle: SessionHandle, id: String, now: SystemTime) -> Result<String, StoreError> {
        let mut state = self.state.lock();
        state.drop_expired(now);
        if let Some(bound) = state.ids.get(&handle) {
            return Ok(bound.clone());
        }
        if state.sessions.get_any(&id).is_none() {
            return Err(no_such_session());
        }
        let handles = state.handles.entry(id.clone()).or_default();
        self.limits.admit_handle(u64::try_from(handles.len()).unwrap_or(u64::MAX))?;
        handles.push(handle.clone());
        state.ids.insert(handle, id.clone());
        Ok(id)
    }
}

impl SessionStoreState {
    /// Inserts or replaces a session; its handles stay.
    fn put(&mut self, session: SessionRecord, limits: SessionLimits) {
        let (created, expires) = (session.used, session.expires);
        self.sessions.put(session.id.clone(), TtlEntry { value: session, created, expires, n_bytes: 0 });
        while self.sessions.usage().n_entries > limits.max_sessions {
            let Some((id, _)) = self.sessions.pop_oldest() else { break };
            self.drop_handles(&id);
        }
    }

    fn drop_expired(&mut self, now: SystemTime) {
        while let Some((id, _)) = self.sessions.pop_expired(now) {
            self.drop_handles(&id);
        }
    }

    fn drop_handles(&mut self, id: &str) {
        for handle in self.handles.remove(id).unwrap_or_default() {
            self.ids.remove(&handle);
        }
    }
}

impl SessionStore for MemorySessions {
    fn get(&self, id: String, now: SystemTime) -> StoreFuture<'_, Option<SessionRecord>> {
        async move { Ok(self.state.lock().sessions.get_live(&id, now).cloned()) }.boxed()
    }

    fn put(&self, session: SessionRecord, now: SystemTime) -> StoreFuture<'_, ()> {
        async move {
            let mut state = self.state.lock();
            state.drop_expired(now);
            state.put(session, self.limits);
            Ok(())
        }
        .boxed()
    }

    fn create(&self, session: SessionRecord, now: SystemTime) -> StoreFuture<'_, bool> {
        async move {
            let mut state = self.state.lock();
            state.drop_expired(now);
            let is_new = state.sessions.get_any(&session.id).is_none();
            if is_new {
                state.put(session, self.limits);
            }
            Ok(is_new)
        }
        .boxed()
    }

    fn find(&self, handle: SessionHandle, now: SystemTime) -> StoreFuture<'_, Option<SessionRecord>> {
        async move {
            let state = self.state.lock();
            let id = state.ids.get(&handle);
            Ok(id.and_then(|id| state.sessions.get_live(id, now)).cloned())
        }
        .boxed()
    }

    fn bind(&self, handle: SessionHandle, id: String, now: SystemTime) -> StoreFuture<'_, String> {
        async move { self.bind_handle(handle, id, now) }.boxed()
    }

    fn remove(&self, id: String) -> StoreFuture<'_, bool> {
        async move {
            let mut state = self.state.lock();
            state.drop_handles(&id);
            Ok(state.sessions.remove(&id).is_some())
        }
        .boxed()
    }

    fn list(&self, limit: usize, now: SystemTime) -> StoreFuture<'_, Vec<SessionRecord>> {
        async move { Ok(self.state.lock().sessions.newest_first(now).take(limit).cloned().collect()) }.boxed()
    }
}
