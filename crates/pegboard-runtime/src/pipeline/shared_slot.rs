//! Queue slots shared between processes.
//!
//! A call first takes a slot of this process, in scheduling order, and then leases one from the store that
//! all processes share. A lease that is not renewed expires, so a crashed process blocks the others only
//! briefly.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::store::{LeaseId, SlotStore, StoreError};
use tokio::runtime::Handle;
use tokio::time;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::warn;

use crate::runtime::RuntimeShared;
use crate::wall_clock::WallClock;

/// Duration of a lease without renewal.
const LEASE_DURATION: Duration = Duration::from_secs(30);
/// Initial and maximum backoff between two attempts.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A leased slot. Dropping it releases the lease.
pub(crate) struct SharedSlot {
    store: Arc<dyn SlotStore>,
    id: LeaseId,
    tasks: TaskTracker,
    _renewing: AbortOnDropHandle<()>,
}

impl SharedSlot {
    /// Waits until fewer than `capacity` slots are leased, then leases one. The caller bounds the wait.
    /// Returns `None` if the store fails: then only the limit of this process applies.
    pub(crate) async fn acquire(shared: &RuntimeShared, queue: &str, capacity: usize) -> Option<Self> {
        let store = shared.slots.as_ref()?;
        let mut backoff = BACKOFF.0;
        loop {
            let (lease_store, queue_name, tasks, wall) =
                (Arc::clone(store), queue.to_owned(), shared.tasks.clone(), shared.wall);
            // On its own task: a lease granted after the caller is gone must still be released.
            let leasing = shared.tasks.spawn(async move {
                let now = wall.now();
                let id = lease_store.lease(queue_name, capacity, now, now + LEASE_DURATION).await?;
                Ok::<_, StoreError>(id.map(|id| Self::keep_renewed(lease_store, id, tasks, wall)))
            });
            // The task neither panics nor is aborted.
            match leasing.await.unwrap_or(Ok(None)) {
                Ok(Some(lease)) => return Some(lease),
                Ok(None) => time::sleep(backoff).await,
                Err(error) => {
                    warn!(%error, queue, "Cannot lease shared slots; using the limit of this process only.");
                    return None;
                }
            }
            backoff = (backoff * 2).min(BACKOFF.1);
        }
    }

    fn keep_renewed(store: Arc<dyn SlotStore>, id: LeaseId, tasks: TaskTracker, wall: WallClock) -> Self {
        let (renewing, held) = (Arc::clone(&store), id.clone());
        let renewing = tasks.spawn(async move {
            loop {
                time::sleep(LEASE_DURATION / 3).await;
                let now = wall.now();
                // An expired lease cannot be recovered; the call that holds it continues.
                if let Ok(false) = renewing.renew(held.clone(), now, now + LEASE_DURATION).await {
                    return;
                }
            }
        });
        Self { store, id, tasks, _renewing: AbortOnDropHandle::new(renewing) }
    }
}

impl Drop for SharedSlot {
    fn drop(&mut self) {
        let (store, id) = (Arc::clone(&self.store), self.id.clone());
        if let Ok(handle) = Handle::try_current() {
            self.tasks.spawn_on(
                async move {
                    // A lease that cannot be released expires.
                    let _ = store.release(id).await;
                },
                &handle,
            );
        }
    }
}
