//! Which caller each session of the protocol is.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pegboard_runtime::Caller;
use pegboard_wire::server::SessionId;

/// The callers of the sessions there are. A session has one from its first request to its end.
#[derive(Default)]
pub(crate) struct Callers(Mutex<HashMap<SessionId, Caller>>);

impl Callers {
    /// The caller of a session, made if it has none yet.
    pub(crate) fn of(&self, session: &SessionId, make: impl FnOnce() -> Caller) -> Caller {
        self.callers().entry(session.clone()).or_insert_with(make).clone()
    }

    /// Forgets a session that is over. With its caller goes what was kept for it.
    pub(crate) fn end(&self, session: &SessionId) {
        let caller = self.callers().remove(session);
        drop(caller);
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<SessionId, Caller>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
