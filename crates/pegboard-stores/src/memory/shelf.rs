//! Things under keys that expire, and of which the oldest can be found.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::time::SystemTime;

use pegboard_core::store::Usage;

#[derive(Debug)]
pub(super) struct Shelf<K, V> {
    things: HashMap<K, Thing<V>>,
    by_age: BTreeSet<(SystemTime, K)>,
    by_expiry: BTreeSet<(SystemTime, K)>,
    n_bytes: u64,
}

/// A thing and what a shelf needs to know of it.
#[derive(Debug)]
pub(super) struct Thing<V> {
    pub(super) value: V,
    /// By what its age counts.
    pub(super) since: SystemTime,
    pub(super) expires: SystemTime,
    pub(super) n_bytes: u64,
}

impl<K, V> Default for Shelf<K, V> {
    fn default() -> Self {
        Self { things: HashMap::new(), by_age: BTreeSet::new(), by_expiry: BTreeSet::new(), n_bytes: 0 }
    }
}

impl<K: Clone + Eq + Hash + Ord, V> Shelf<K, V> {
    /// The thing under a key, even if it has expired.
    pub(super) fn any(&self, key: &K) -> Option<&Thing<V>> {
        self.things.get(key)
    }

    /// The thing under a key, unless it has expired.
    pub(super) fn alive(&self, key: &K, now: SystemTime) -> Option<&V> {
        self.any(key).filter(|thing| thing.expires > now).map(|thing| &thing.value)
    }

    /// Keeps a thing, in place of the one under the same key.
    pub(super) fn put(&mut self, key: K, thing: Thing<V>) {
        self.take(&key);
        self.by_age.insert((thing.since, key.clone()));
        self.by_expiry.insert((thing.expires, key.clone()));
        self.n_bytes += thing.n_bytes;
        self.things.insert(key, thing);
    }

    pub(super) fn take(&mut self, key: &K) -> Option<V> {
        let (key, thing) = self.things.remove_entry(key)?;
        self.n_bytes -= thing.n_bytes;
        self.by_expiry.remove(&(thing.expires, key.clone()));
        self.by_age.remove(&(thing.since, key));
        Some(thing.value)
    }

    /// Takes one thing that has expired, if there is one.
    pub(super) fn take_expired(&mut self, now: SystemTime) -> Option<(K, V)> {
        let (expires, key) = self.by_expiry.first()?;
        if *expires > now {
            return None;
        }
        let key = key.clone();
        self.take(&key).map(|value| (key, value))
    }

    /// Takes the oldest thing; of several, the one with the smallest key.
    pub(super) fn take_oldest(&mut self) -> Option<(K, V)> {
        let (_, key) = self.by_age.first()?;
        let key = key.clone();
        self.take(&key).map(|value| (key, value))
    }

    /// What is there and has not expired, the youngest first.
    pub(super) fn youngest_first(&self, now: SystemTime) -> impl Iterator<Item = &V> {
        self.youngest_first_by_key(now).map(|(_, value)| value)
    }

    /// The same, each with its key.
    pub(super) fn youngest_first_by_key(&self, now: SystemTime) -> impl Iterator<Item = (&K, &V)> {
        self.by_age.iter().rev().filter_map(move |(_, key)| Some((key, self.alive(key, now)?)))
    }

    /// How much is there, expired or not.
    pub(super) fn usage(&self) -> Usage {
        Usage { n_kept: u64::try_from(self.things.len()).unwrap_or(u64::MAX), n_bytes: self.n_bytes }
    }
}
