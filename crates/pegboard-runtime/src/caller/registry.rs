//! The registry of callers.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::caller::{Caller, WeakCaller};

/// All live callers, by the address of their state.
#[derive(Default)]
pub(crate) struct CallerRegistry(Mutex<HashMap<usize, RegisteredCaller, RandomState>>);

struct RegisteredCaller {
    id: Arc<str>,
    caller: WeakCaller,
}

impl CallerRegistry {
    pub(crate) fn add(&self, caller: &Caller) {
        let registered = RegisteredCaller { id: caller.shared_id(), caller: caller.downgrade() };
        self.0.lock().insert(caller.address(), registered);
    }

    /// Removes a caller that is dropped.
    pub(crate) fn remove(&self, address: usize) {
        self.0.lock().remove(&address);
    }

    /// Returns a caller with this id, which stateless callers of one owner share.
    pub(crate) fn get(&self, id: &str) -> Option<Caller> {
        let callers = self.0.lock();
        callers.values().filter(|registered| *registered.id == *id).find_map(|found| found.caller.upgrade())
    }

    pub(crate) fn list(&self) -> Vec<Caller> {
        let mut callers = self.alive();
        callers.sort_by_key(Caller::key);
        callers
    }

    /// Returns all callers. The last handle of one must not be dropped under the lock.
    fn alive(&self) -> Vec<Caller> {
        self.0.lock().values().filter_map(|registered| registered.caller.upgrade()).collect()
    }
}
