//! Callers of MCP sessions.

use foldhash::HashMap;
use parking_lot::Mutex;
use pegboard_runtime::Caller;
use pegboard_wire::server::ClientSessionId;

/// The caller of each session, from its first request to its end.
#[derive(Default)]
pub(crate) struct SessionCallers(Mutex<HashMap<ClientSessionId, Caller>>);

impl SessionCallers {
    /// Returns the caller of a session; creates it on first use.
    pub(crate) fn get_or_create(&self, session: &ClientSessionId, create: impl FnOnce() -> Caller) -> Caller {
        let mut callers = self.0.lock();
        if let Some(caller) = callers.get(session) {
            return caller.clone();
        }
        callers.entry(session.clone()).or_insert_with(create).clone()
    }

    /// Removes a session that has ended, and drops its caller.
    pub(crate) fn remove(&self, session: &ClientSessionId) {
        let caller = self.0.lock().remove(session);
        drop(caller);
    }
}
