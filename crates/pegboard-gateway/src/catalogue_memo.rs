//! Values computed from the catalogue.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use pegboard_core::extensions::ExtensionKey;
use pegboard_runtime::catalogue::Snapshot;

/// A value computed from the catalogue: once per snapshot, with which it is dropped.
pub(crate) struct CatalogueMemo<T>(ExtensionKey, PhantomData<fn() -> T>);

impl<T> Default for CatalogueMemo<T> {
    fn default() -> Self {
        Self(ExtensionKey::new(), PhantomData)
    }
}

impl<T: Send + Sync + 'static> CatalogueMemo<T> {
    /// Returns the value for a snapshot; computes it on first use.
    pub(crate) fn get(&self, snapshot: &Snapshot, compute: impl FnOnce(&Snapshot) -> T) -> Arc<T> {
        let memo = snapshot.extensions().get_or_insert_with(&self.0, OnceLock::<Arc<T>>::new);
        Arc::clone(memo.get_or_init(|| Arc::new(compute(snapshot))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_computed_once_and_dropped_with_its_snapshot() {
        let (memo, snapshot) = (CatalogueMemo::default(), Snapshot::default());
        let value = Arc::downgrade(&memo.get(&snapshot, |_| 1));
        assert_eq!(*memo.get(&snapshot, |_| panic!("it was computed before")), 1);
        assert_eq!(*memo.get(&Snapshot::default(), |_| 2), 2);
        drop(snapshot);
        assert!(value.upgrade().is_none());
    }
}
