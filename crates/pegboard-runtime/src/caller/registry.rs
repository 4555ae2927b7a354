//! The registry of callers, by id.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::caller::{Caller, WeakCaller};

/// All live callers, by id. An entry holds weak references; stateless callers of one owner share an id.
#[derive(Default)]
pub(crate) struct CallerRegistry(Mutex<HashMap<Arc<str>, Vec<WeakCaller>>>);

impl CallerRegistry {
    pub(crate) fn add(&self, caller: &Caller) {
        self.0.lock().entry(caller.id().into()).or_default().push(caller.downgrade());
    }

    /// Removes the entries of dropped callers.
    pub(crate) fn remove(&self, id: &str) {
        let mut callers = self.0.lock();
        if let Some(alike) = callers.get_mut(id) {
            alike.retain(WeakCaller::is_alive);
            if alike.is_empty() {
                callers.remove(id);
            }
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<Caller> {
        self.0.lock().get(id)?.iter().find_map(WeakCaller::upgrade)
    }

    pub(crate) fn list(&self) -> Vec<Caller> {
        let mut callers: Vec<Caller> =
            self.0.lock().values().flatten().filter_map(WeakCaller::upgrade).collect();
        callers.sort_by_key(Caller::key);
        callers
    }
}
