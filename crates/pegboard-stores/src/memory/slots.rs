//! Leases of queue slots, in memory.

use std::collections::HashMap;
use std::time::SystemTime;

use futures_util::FutureExt;
use parking_lot::Mutex;
use pegboard_core::store::{LeaseId, SlotStore, StoreError, StoreFuture};
use uuid::Uuid;

use super::ttl_map::{TtlEntry, TtlMap};
use crate::limits::SlotLimits;

/// An in-memory store of slot leases.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::{Duration, SystemTime};
///
/// use pegboard_core::store::SlotStore;
/// use pegboard_stores::limits::SlotLimits;
/// use pegboard_stores::memory::MemorySlots;
///
/// let slots = MemorySlots::new(SlotLimits::default());
/// let (now, expires) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(30));
/// let lease = slots.lease("browser".to_owned(), 1, now, expires).await.unwrap();
/// assert!(lease.is_some());
/// assert_eq!(slots.lease("browser".to_owned(), 1, now, expires).await.unwrap(), None);
/// # });
/// ```
#[derive(Debug)]
pub struct MemorySlots {
    limits: SlotLimits,
    state: Mutex<SlotStoreState>,
}

#[derive(Debug, Default)]
struct SlotStoreState {
    /// The queue of each lease.
    leases: TtlMap<String, String>,
    n_leased: HashMap<String, usize>,
}

impl MemorySlots {
    /// Creates an empty store.
    pub fn new(limits: SlotLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn try_lease(
        &self,
        queue: String,
        capacity: usize,
        now: SystemTime,
        expires: SystemTime,
    ) -> Result<Option<LeaseId>, StoreError> {
        let mut state = self.state.lock();
        while let Some((_, queue)) = state.leases.pop_expired(now) {
            state.uncount(&queue);
        }
        if state.n_leased.get(&queue).copied().unwrap_or_default() >= capacity {
            return Ok(None);
        }
        self.limits.admit(state.leases.usage().n_entries)?;
        let id = Uuid::new_v4().to_string();
        *state.n_leased.entry(queue.clone()).or_default() += 1;
        state.leases.put(id.clone(), TtlEntry { value: queue, created: now, expires, n_bytes: 0 });
        Ok(Some(LeaseId(id)))
    }
}

impl SlotStoreState {
    /// Subtracts an ended lease from the count of its queue.
    fn uncount(&mut self, queue: &str) {
        let Some(n_leased) = self.n_leased.get_mut(queue) else { return };
        *n_leased -= 1;
        if *n_leased == 0 {
            self.n_leased.remove(queue);
        }
    }

    /// Extends a lease, unless it has ended.
    fn renew(&mut self, lease: String, now: SystemTime, expires: SystemTime) -> bool {
        let Some(queue) = self.leases.get_live(&lease, now).cloned() else { return false };
        self.leases.put(lease, TtlEntry { value: queue, created: now, expires, n_bytes: 0 });
        true
    }
}

impl SlotStore for MemorySlots {
    fn lease(
        &self,
        queue: String,
        capacity: usize,
        now: SystemTime,
        expires: SystemTime,
    ) -> StoreFuture<'_, Option<LeaseId>> {
        async move { self.try_lease(queue, capacity, now, expires) }.boxed()
    }

    fn renew(&self, lease: LeaseId, now: SystemTime, expires: SystemTime) -> StoreFuture<'_, bool> {
        async move { Ok(self.state.lock().renew(lease.0, now, expires)) }.boxed()
    }

    fn release(&self, lease: LeaseId) -> StoreFuture<'_, ()> {
        async move {
            let mut state = self.state.lock();
            if let Some(queue) = state.leases.remove(&lease.0) {
                state.uncount(&queue);
            }
            Ok(())
        }
        .boxed()
    }
}
