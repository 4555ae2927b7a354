//! Memory of compiled validators: those that were not used for longest are dropped, and compiled again when needed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use jsonschema::Validator;
use parking_lot::Mutex;

/// Maximum memory of the compiled validators of the process.
const MAX_BYTES: usize = 64 << 20;

/// The compiled validators of the process.
pub(super) fn shared() -> &'static Arc<ValidatorMemory> {
    static SHARED: LazyLock<Arc<ValidatorMemory>> =
        LazyLock::new(|| Arc::new(ValidatorMemory::new(MAX_BYTES)));
    &SHARED
}

/// Compiled validators within a limit of bytes.
#[derive(Debug)]
pub(super) struct ValidatorMemory {
    max_bytes: usize,
    /// Number of validators stored so far; the time of the last use of each.
    clock: AtomicU64,
    stored: Mutex<StoredValidators>,
}

#[derive(Debug, Default)]
struct StoredValidators {
    n_bytes: usize,
    slots: HashMap<usize, Weak<ValidatorSlot>>,
}

/// Place of one compiled validator.
#[derive(Debug)]
pub(super) struct ValidatorSlot {
    memory: Arc<ValidatorMemory>,
    validator: Mutex<Option<Arc<Validator>>>,
    last_used: AtomicU64,
    n_bytes: usize,
}

impl ValidatorMemory {
    fn new(max_bytes: usize) -> Self {
        Self { max_bytes, clock: AtomicU64::new(0), stored: Mutex::default() }
    }

    /// Returns an empty place for a validator of this size.
    pub(super) fn slot(self: &Arc<Self>, n_bytes: usize) -> Arc<ValidatorSlot> {
        Arc::new(ValidatorSlot {
            memory: Arc::clone(self),
            validator: Mutex::new(None),
            last_used: AtomicU64::new(0),
            n_bytes,
        })
    }

    fn add(&self, slot: &Arc<ValidatorSlot>) {
        // Dropped after the lock is released: slots take it when they are dropped.
        let mut others: Vec<(u64, Arc<ValidatorSlot>)> = Vec::new();
        let mut dropped: Vec<Option<Arc<Validator>>> = Vec::new();
        let mut stored = self.stored.lock();
        if stored.slots.insert(slot.key(), Arc::downgrade(slot)).is_none() {
            stored.n_bytes += slot.n_bytes;
        }
        if stored.n_bytes <= self.max_bytes {
            return;
        }
        others.extend(
            stored
                .slots
                .values()
                .filter_map(Weak::upgrade)
                .filter(|other| !Arc::ptr_eq(other, slot))
                .map(|other| (other.last_used.load(Ordering::Relaxed), other)),
        );
        others.sort_by_key(|(last_used, _)| *last_used);
        for (_, other) in &others {
            // Some room, so that not every further validator sorts them.
            if stored.n_bytes <= self.max_bytes / 8 * 7 {
                break;
            }
            dropped.push(other.validator.lock().take());
            stored.remove(other);
        }
        drop(stored);
    }
}

impl StoredValidators {
    fn remove(&mut self, slot: &ValidatorSlot) {
        if self.slots.remove(&slot.key()).is_some() {
            self.n_bytes -= slot.n_bytes;
        }
    }
}

impl ValidatorSlot {
    /// Returns the validator, if it is stored.
    pub(super) fn get(&self) -> Option<Arc<Validator>> {
        let validator = self.validator.lock().clone()?;
        let now = self.memory.clock.load(Ordering::Relaxed);
        if self.last_used.load(Ordering::Relaxed) != now {
            self.last_used.store(now, Ordering::Relaxed);
        }
        Some(validator)
    }

    /// Returns `true` if the validator is stored.
    pub(super) fn is_stored(&self) -> bool {
        self.validator.lock().is_some()
    }

    /// Stores the validator; others are dropped if there is no room.
    pub(super) fn store(self: &Arc<Self>, validator: &Arc<Validator>) {
        let now = self.memory.clock.fetch_add(1, Ordering::Relaxed) + 1;
        self.last_used.store(now, Ordering::Relaxed);
        *self.validator.lock() = Some(Arc::clone(validator));
        self.memory.add(self);
    }

    /// Identity of the slot among those that exist.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for ValidatorSlot {
    fn drop(&mut self) {
        self.memory.stored.lock().remove(self);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    const SIZE: usize = 100;

    fn stored(memory: &Arc<ValidatorMemory>) -> Arc<ValidatorSlot> {
        let slot = memory.slot(SIZE);
        slot.store(&Arc::new(jsonschema::options().build(&json!(true)).unwrap()));
        slot
    }

    fn n_bytes(memory: &ValidatorMemory) -> usize {
        memory.stored.lock().n_bytes
    }

    #[test]
    fn validators_beyond_the_limit_are_dropped_least_recently_used_first() {
        let memory = Arc::new(ValidatorMemory::new(8 * SIZE));
        let slots: Vec<_> = (0..8).map(|_| stored(&memory)).collect();
        assert!(slots.iter().all(|slot| slot.is_stored()));
        slots[0].get().unwrap();
        let last = stored(&memory);
        let kept: Vec<bool> = slots.iter().map(|slot| slot.is_stored()).collect();
        assert_eq!(kept, [true, false, false, true, true, true, true, true]);
        assert!(last.is_stored());
        assert_eq!(n_bytes(&memory), 7 * SIZE);
    }

    #[test]
    fn the_memory_of_dropped_and_of_replaced_validators_is_free() {
        let memory = Arc::new(ValidatorMemory::new(8 * SIZE));
        for _ in 0..100 {
            let slot = stored(&memory);
            slot.store(&slot.get().unwrap());
            assert_eq!(n_bytes(&memory), SIZE);
        }
        assert_eq!((n_bytes(&memory), memory.stored.lock().slots.len()), (0, 0));
    }

    #[test]
    fn a_schema_validates_after_its_validator_was_dropped() {
        // Each pattern may use some memory of its own for matches.
        let patterns = |n: usize| -> Vec<_> {
            (0..8).map(|m| json!({"pattern": format!("^[ab]{{{n}}}c+{m}$")})).collect()
        };
        let schemas: Vec<Schema> = (0..100).map(|n| Schema::new(json!({"anyOf": patterns(n)}))).collect();
        for _ in 0..2 {
            for (n, schema) in schemas.iter().enumerate() {
                assert!(schema.accepts(&json!(format!("{}cc7", "a".repeat(n)))));
                assert!(!schema.accepts(&json!("b")));
                assert!(n_bytes(shared()) <= MAX_BYTES);
            }
        }
        assert!(shared().stored.lock().slots.len() < schemas.len());
    }

    #[test]
    fn a_validator_larger_than_the_limit_is_the_only_one() {
        let memory = Arc::new(ValidatorMemory::new(8 * SIZE));
        let small = stored(&memory);
        let large = memory.slot(9 * SIZE);
        large.store(&small.get().unwrap());
        assert_eq!((small.is_stored(), large.is_stored()), (false, true));
        assert_eq!(n_bytes(&memory), 9 * SIZE);
    }
}
