//! Slots that several queues share.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::SystemTime;

use futures_util::FutureExt;
use pegboard_core::store::{LeaseId, SlotStore, StoreError, Stored};
use uuid::Uuid;

use super::lock;
use super::shelf::{Shelf, Thing};
use crate::limits::SlotLimits;

/// Leases of slots in memory.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::time::{Duration, SystemTime};
///
/// use pegboard_core::store::SlotStore;
/// use pegboard_stores::limits::SlotLimits;
/// use pegboard_stores::memory::Slots;
///
/// let slots = Slots::new(SlotLimits::default());
/// let (now, expires) = (SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH + Duration::from_secs(30));
/// let lease = slots.lease("browser".to_owned(), 1, now, expires).await.unwrap();
/// assert!(lease.is_some());
/// assert_eq!(slots.lease("browser".to_owned(), 1, now, expires).await.unwrap(), None);
/// # });
/// ```
#[derive(Debug)]
pub struct Slots {
    limits: SlotLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The queue of each lease.
    leases: Shelf<String, String>,
    n_leased: HashMap<String, usize>,
}

impl Slots {
    /// A store without leases.
    pub fn new(limits: SlotLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn lease_one(
        &self,
        queue: String,
        capacity: usize,
        now: SystemTime,
        expires: SystemTime,
    ) -> Result<Option<LeaseId>, StoreError> {
        let mut state = lock(&self.state);
        while let Some((_, queue)) = state.leases.take_expired(now) {
            state.forget(&queue);
        }
        if state.n_leased.get(&queue).copied().unwrap_or_default() >= capacity {
            return Ok(None);
        }
        self.limits.admit(state.leases.usage().n_kept)?;
        let id = Uuid::new_v4().to_string();
        *state.n_leased.entry(queue.clone()).or_default() += 1;
        state.leases.put(id.clone(), Thing { value: queue, since: now, expires, n_bytes: 0 });
        Ok(Some(LeaseId(id)))
    }
}

impl State {
    /// Takes a lease that has ended off the count of its queue.
    fn forget(&mut self, queue: &str) {
        let Some(n_leased) = self.n_leased.get_mut(queue) else { return };
        *n_leased -= 1;
        if *n_leased == 0 {
            self.n_leased.remove(queue);
        }
    }

    /// Moves the end of a lease, unless it has ended.
    fn renew(&mut self, lease: String, now: SystemTime, expires: SystemTime) -> bool {
        let Some(queue) = self.leases.alive(&lease, now).cloned() else { return false };
        self.leases.put(lease, Thing { value: queue, since: now, expires, n_bytes: 0 });
        true
    }
}

impl SlotStore for Slots {
    fn lease(
        &self,
        queue: String,
        capacity: usize,
        now: SystemTime,
        expires: SystemTime,
    ) -> Stored<'_, Option<LeaseId>> {
        async move { self.lease_one(queue, capacity, now, expires) }.boxed()
    }

    fn renew(&self, lease: LeaseId, now: SystemTime, expires: SystemTime) -> Stored<'_, bool> {
        async move { Ok(lock(&self.state).renew(lease.0, now, expires)) }.boxed()
    }

    fn release(&self, lease: LeaseId) -> Stored<'_, ()> {
        async move {
            let mut state = lock(&self.state);
            if let Some(queue) = state.leases.take(&lease.0) {
                state.forget(&queue);
            }
            Ok(())
        }
        .boxed()
    }
}
