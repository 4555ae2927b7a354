//! Sessions that somebody may come back to.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::SystemTime;

use futures_util::FutureExt;
use pegboard_core::store::{SessionHandle, SessionRecord, SessionStore, StoreError, Stored};

use super::lock;
use super::shelf::{Shelf, Thing};
use crate::limits::SessionLimits;
use crate::no_such_session;

/// Sessions in memory.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::SystemTime;
///
/// use pegboard_core::store::SessionStore;
/// use pegboard_stores::limits::SessionLimits;
/// use pegboard_stores::memory::Sessions;
///
/// let sessions = Sessions::new(SessionLimits::default());
/// assert_eq!(sessions.list(10, SystemTime::UNIX_EPOCH).await.unwrap(), []);
/// # });
/// ```
#[derive(Debug)]
pub struct Sessions {
    limits: SessionLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: Shelf<String, SessionRecord>,
    /// What each handle stands for. A session takes its handles with it, so there is always one.
    ids: HashMap<SessionHandle, String>,
    handles: HashMap<String, Vec<SessionHandle>>,
}

impl Sessions {
    /// A store without sessions.
    pub fn new(limits: SessionLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn bind_handle(&self, handle: SessionHandle, id: String, now: SystemTime) -> Result<String, StoreError> {
        let mut state = lock(&self.state);
        state.drop_expired(now);
        if let Some(bound) = state.ids.get(&handle) {
            return Ok(bound.clone());
        }
        if state.sessions.any(&id).is_none() {
            return Err(no_such_session());
        }
        let handles = state.handles.entry(id.clone()).or_default();
        self.limits.admit_handle(u64::try_from(handles.len()).unwrap_or(u64::MAX))?;
        handles.push(handle.clone());
        state.ids.insert(handle, id.clone());
        Ok(id)
    }
}

impl State {
    /// Keeps a session; its handles stay.
    fn put(&mut self, session: SessionRecord, limits: SessionLimits) {
        let (since, expires) = (session.used, session.expires);
        self.sessions.put(session.id.clone(), Thing { value: session, since, expires, n_bytes: 0 });
        while self.sessions.usage().n_kept > limits.max_sessions {
            let Some((id, _)) = self.sessions.take_oldest() else { break };
            self.drop_handles(&id);
        }
    }

    fn drop_expired(&mut self, now: SystemTime) {
        while let Some((id, _)) = self.sessions.take_expired(now) {
            self.drop_handles(&id);
        }
    }

    fn drop_handles(&mut self, id: &str) {
        for handle in self.handles.remove(id).unwrap_or_default() {
            self.ids.remove(&handle);
        }
    }
}

impl SessionStore for Sessions {
    fn get(&self, id: String, now: SystemTime) -> Stored<'_, Option<SessionRecord>> {
        async move { Ok(lock(&self.state).sessions.alive(&id, now).cloned()) }.boxed()
    }

    fn put(&self, session: SessionRecord, now: SystemTime) -> Stored<'_, ()> {
        async move {
            let mut state = lock(&self.state);
            state.drop_expired(now);
            state.put(session, self.limits);
            Ok(())
        }
        .boxed()
    }

    fn create(&self, session: SessionRecord, now: SystemTime) -> Stored<'_, bool> {
        async move {
            let mut state = lock(&self.state);
            state.drop_expired(now);
            let is_new = state.sessions.any(&session.id).is_none();
            if is_new {
                state.put(session, self.limits);
            }
            Ok(is_new)
        }
        .boxed()
    }

    fn find(&self, handle: SessionHandle, now: SystemTime) -> Stored<'_, Option<SessionRecord>> {
        async move {
            let state = lock(&self.state);
            let id = state.ids.get(&handle);
            Ok(id.and_then(|id| state.sessions.alive(id, now)).cloned())
        }
        .boxed()
    }

    fn bind(&self, handle: SessionHandle, id: String, now: SystemTime) -> Stored<'_, String> {
        async move { self.bind_handle(handle, id, now) }.boxed()
    }

    fn remove(&self, id: String) -> Stored<'_, bool> {
        async move {
            let mut state = lock(&self.state);
            state.drop_handles(&id);
            Ok(state.sessions.take(&id).is_some())
        }
        .boxed()
    }

    fn list(&self, n_most: usize, now: SystemTime) -> Stored<'_, Vec<SessionRecord>> {
        async move { Ok(lock(&self.state).sessions.youngest_first(now).take(n_most).cloned().collect()) }
            .boxed()
    }
}
