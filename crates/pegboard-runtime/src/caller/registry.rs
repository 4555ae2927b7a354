//! The registry of callers.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::caller::{Caller, WeakCaller};

/// All live callers, by the address of their state.
#[derive(Default)]
pub(crate) struct CallerRegistry(Mutex<HashMap<usize, WeakCaller, RandomState>>);

impl CallerRegistry {
    pub(crate) fn add(&self, caller: &Caller) {
        self.0.lock().insert(caller.address(), caller.downgrade());
    }

    /// Removes a caller that is dropped.
    pub(crate) fn remove(&self, address: usize) {
        self.0.lock().remove(&address);
    }

    /// Returns a caller with this id, which stateless callers of one owner share.
    pub(crate) fn get(&self, id: &str) -> Option<Caller> {
        self.alive().into_iter().find(|caller| caller.id() == id)
    }

    pub(crate) fn list(&self) -> Vec<Caller> {
        let mut callers = self.alive();
        callers.sort_by_key(Caller::key);
        callers
    }

    /// Returns all callers. The last handle of one must not be dropped under the lock.
    fn alive(&self) -> Vec<Caller> {
        self.0.lock().values().filter_map(WeakCaller::upgrade).collect()
    }
}
