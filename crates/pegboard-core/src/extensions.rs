//! Values that others attach to an object and that are dropped with it.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Type map of values that others attach to an object: to a session, such as a dedicated server instance, or
/// to a catalogue snapshot, such as an encoded list. Values are dropped with the object; entries of a dropped
/// key are removed at the next insertion.
///
/// ```
/// use pegboard_core::extensions::{Extensions, ExtensionKey};
///
/// let (session, counter) = (Extensions::default(), ExtensionKey::new());
/// assert!(session.get::<i32>(&counter).is_none());
/// let first = session.get_or_insert_with(&counter, || 7);
/// let again = session.get_or_insert_with(&counter, || 8);
/// assert_eq!((*first, *again), (7, 7));
/// ```
#[derive(Clone, Default)]
pub struct Extensions(Arc<Mutex<HashMap<u64, ExtensionEntry>>>);

/// A stored value and a weak reference to the owner of its key.
struct ExtensionEntry {
    owner: Weak<()>,
    value: Arc<dyn Any + Send + Sync>,
}

/// Unique key of an extension. Its entries are removed after the key is dropped.
#[derive(Debug)]
pub struct ExtensionKey {
    number: u64,
    owner: Arc<()>,
}

impl ExtensionKey {
    /// Creates a key that is different from every other.
    #[expect(clippy::new_without_default, reason = "every key is unique, so there is no default")]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed), owner: Arc::default() }
    }
}

impl Extensions {
    /// Returns `true` if both belong to the same object.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the value under `key`, if there is one of this type.
    pub fn get<T: Any + Send + Sync>(&self, key: &ExtensionKey) -> Option<Arc<T>> {
        let found = self.0.lock().get(&key.number).map(|entry| Arc::clone(&entry.value));
        found.and_then(|found| found.downcast().ok())
    }

    /// Returns the value under `key`, creating it if there is none of this type. `make` runs under a lock and
    /// must be quick.
    pub fn get_or_insert_with<T: Any + Send + Sync>(
        &self,
        key: &ExtensionKey,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut entries = self.0.lock();
        let found = entries.get(&key.number).map(|entry| Arc::clone(&entry.value));
        if let Some(found) = found.and_then(|found| found.downcast().ok()) {
            return found;
        }
        let gone: Vec<ExtensionEntry> =
            entries.extract_if(|_, entry| entry.owner.strong_count() == 0).map(|(_, entry)| entry).collect();
        let new = Arc::new(make());
        entries.insert(
            key.number,
            ExtensionEntry { owner: Arc::downgrade(&key.owner), value: Arc::clone(&new) as _ },
        );
        drop(entries);
        // Outside the lock: destructors of removed values may do anything.
        drop(gone);
        new
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Extensions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_a_dropped_key_are_removed_at_the_next_insertion() {
        let (session, gone, here) = (Extensions::default(), ExtensionKey::new(), ExtensionKey::new());
        let left = Arc::downgrade(&session.get_or_insert_with(&gone, || 1));
        drop(gone);
        assert!(left.upgrade().is_some());
        session.get_or_insert_with(&here, || 2);
        assert!(left.upgrade().is_none());
        assert_eq!(*session.get_or_insert_with(&here, || 3), 2);
    }
}
