//! Values that others attach to an object and that are dropped with it.

use std::any::Any;
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
pub struct Extensions(Arc<Mutex<Vec<ExtensionEntry>>>);

/// A stored value and a weak reference to the owner of its key. Entries are ordered by the number of their key: most
/// objects have one or two, and there may be many thousand objects.
struct ExtensionEntry {
    key: u64,
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
        value_of(&self.0.lock(), key)
    }

    /// Returns the value under `key`, creating it if there is none of this type. `make` runs under a lock and
    /// must be quick.
    pub fn get_or_insert_with<T: Any + Send + Sync>(
        &self,
        key: &ExtensionKey,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut entries = self.0.lock();
        if let Some(found) = value_of(&entries, key) {
            return found;
        }
        let is_gone = |entry: &mut ExtensionEntry| entry.owner.strong_count() == 0 || entry.key == key.number;
        let gone: Vec<ExtensionEntry> = entries.extract_if(.., is_gone).collect();
        let new = Arc::new(make());
        let (owner, value) = (Arc::downgrade(&key.owner), Arc::clone(&new) as Arc<dyn Any + Send + Sync>);
        let at = position(&entries, key).unwrap_or_else(|at| at);
        if entries.len() == entries.capacity() {
            // A vector begins with space for four.
            let n_more = entries.len().max(1);
            entries.reserve_exact(n_more);
        }
        entries.insert(at, ExtensionEntry { key: key.number, owner, value });
        drop(entries);
        // Outside the lock: destructors of removed values may do anything.
        drop(gone);
        new
    }
}

/// Returns the position of a key, or else that at which it belongs.
fn position(entries: &[ExtensionEntry], key: &ExtensionKey) -> Result<usize, usize> {
    entries.binary_search_by_key(&key.number, |entry| entry.key)
}

fn value_of<T: Any + Send + Sync>(entries: &[ExtensionEntry], key: &ExtensionKey) -> Option<Arc<T>> {
    let entry = &entries[position(entries, key).ok()?];
    Arc::clone(&entry.value).downcast().ok()
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

    #[test]
    fn entries_are_found_in_any_order_of_their_keys() {
        let session = Extensions::default();
        let keys: Vec<ExtensionKey> = (0..5).map(|_| ExtensionKey::new()).collect();
        for number in [3, 0, 4, 1, 2] {
            session.get_or_insert_with(&keys[number], || number);
        }
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(*session.get_or_insert_with(key, || 9), number);
        }
    }

    #[test]
    fn a_value_of_another_type_is_replaced() {
        let (session, key) = (Extensions::default(), ExtensionKey::new());
        session.get_or_insert_with(&key, || 1);
        assert_eq!(*session.get_or_insert_with(&key, || "text"), "text");
        assert_eq!(*session.get_or_insert_with(&key, || "other"), "text");
    }
}
