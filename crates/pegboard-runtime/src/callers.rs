//! The callers there are, by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::caller::{Caller, WeakCaller};

/// The callers there are. Each is here as long as somebody holds it; those that are not remembered share an id with
/// others of the same owner.
#[derive(Default)]
pub(crate) struct Callers(Mutex<HashMap<Arc<str>, Vec<WeakCaller>>>);

impl Callers {
    pub(crate) fn add(&self, caller: &Caller) {
        self.callers().entry(caller.id().into()).or_default().push(caller.downgrade());
    }

    /// Forgets a caller that is gone.
    pub(crate) fn remove(&self, id: &str) {
        let mut callers = self.callers();
        if let Some(alike) = callers.get_mut(id) {
            alike.retain(WeakCaller::is_there);
            if alike.is_empty() {
                callers.remove(id);
            }
        }
    }

    pub(crate) fn get(&self, id: &str) -> Option<Caller> {
        self.callers().get(id)?.iter().find_map(WeakCaller::upgrade)
    }

    pub(crate) fn list(&self) -> Vec<Caller> {
        let mut callers: Vec<Caller> =
            self.callers().values().flatten().filter_map(WeakCaller::upgrade).collect();
        callers.sort_by_key(Caller::key);
        callers
    }

    fn callers(&self) -> MutexGuard<'_, HashMap<Arc<str>, Vec<WeakCaller>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
