//! The callers there are, by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::caller::{Caller, WeakCaller};

/// The callers there are. Each is here as long as somebody holds it.
#[derive(Default)]
pub(crate) struct Callers(Mutex<HashMap<Arc<str>, WeakCaller>>);

impl Callers {
    pub(crate) fn add(&self, caller: &Caller) {
        let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        callers.insert(caller.id().into(), caller.downgrade());
    }

    pub(crate) fn remove(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    pub(crate) fn get(&self, id: &str) -> Option<Caller> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(id)?.upgrade()
    }

    pub(crate) fn list(&self) -> Vec<Caller> {
        let callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut callers: Vec<Caller> = callers.values().filter_map(WeakCaller::upgrade).collect();
        callers.sort_by_key(Caller::key);
        callers
    }
}
