//! A map with expiring entries, ordered by age.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::SystemTime;

use pegboard_core::store::StoreUsage;

#[derive(Debug)]
pub(super) struct TtlMap<K, V> {
    entries: HashMap<K, TtlEntry<V>>,
    by_age: BTreeSet<(SystemTime, K)>,
    by_expiry: BTreeSet<(SystemTime, K)>,
    n_bytes: u64,
}

/// A value with its metadata.
#[derive(Debug)]
pub(super) struct TtlEntry<V> {
    pub(super) value: V,
    /// The time from which its age counts.
    pub(super) created: SystemTime,
    pub(super) expires: SystemTime,
    pub(super) n_bytes: u64,
}

impl<K, V> Default for TtlMap<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), by_age: BTreeSet::new(), by_expiry: BTreeSet::new(), n_bytes: 0 }
    }
}

impl<K: Clone + Eq + Hash + Ord, V> TtlMap<K, V> {
    /// Returns the value of a key, unless it has expired.
    pub(super) fn get_live(&self, key: &K, now: SystemTime) -> Option<&V> {
        self.entries.get(key).filter(|entry| entry.expires > now).map(|entry| &entry.value)
    }

    /// Inserts or replaces an entry.
    pub(super) fn put(&mut self, key: K, entry: TtlEntry<V>) {
        self.remove(&key);
        self.by_age.insert((entry.created, key.clone()));
        self.by_expiry.insert((entry.expires, key.clone()));
        self.n_bytes += entry.n_bytes;
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (key, entry) = self.entries.remove_entry(key)?;
        self.n_bytes -= entry.n_bytes;
        self.by_expiry.remove(&(entry.expires, key.clone()));
        self.by_age.remove(&(entry.created, key));
        Some(entry.value)
    }

    /// Removes one expired entry, if there is one.
    pub(super) fn pop_expired(&mut self, now: SystemTime) -> Option<(K, V)> {
        let (expires, key) = self.by_expiry.first()?;
        if *expires > now {
            return None;
        }
        let key = key.clone();
        self.remove(&key).map(|value| (key, value))
    }

    /// Removes the oldest entry; of several, the one with the smallest key.
    pub(super) fn pop_oldest(&mut self) -> Option<(K, V)> {
        let (_, key) = self.by_age.first()?;
        let key = key.clone();
        self.remove(&key).map(|value| (key, value))
    }

    /// Returns the number and size of all entries, expired or not.
    pub(super) fn usage(&self) -> StoreUsage {
        StoreUsage { n_entries: u64::try_from(self.entries.len()).unwrap_or(u64::MAX), n_bytes: self.n_bytes }
    }
}
