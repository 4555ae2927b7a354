//! Slots that several processes share.
//!
//! A call first has its slot here, with its turn among the calls of this process, and then a lease from the store that
//! all processes look at. A lease that nobody renews ends by itself, so a process that dies holds nothing up for long.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::store::{LeaseId, SlotStore, StoreError};
use tokio::runtime::Handle;
use tokio::time;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::warn;

use crate::runtime::Shared;
use crate::wall::WallClock;

/// How long a lease is good for if it is not renewed.
const GOOD_FOR: Duration = Duration::from_secs(30);
/// How long to wait before the store is asked again, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// A slot of all processes. Dropping it gives it back.
pub(crate) struct Lease {
    store: Arc<dyn SlotStore>,
    id: LeaseId,
    tasks: TaskTracker,
    _renewing: AbortOnDropHandle<()>,
}

impl Lease {
    /// A slot, as soon as fewer than `capacity` are leased. The caller bounds the wait. A store that does not answer is
    /// no reason to stop all work: then there is no lease, and only the limit of this process counts.
    pub(crate) async fn of(shared: &Shared, queue: &str, capacity: usize) -> Option<Self> {
        let store = shared.slots.as_ref()?;
        let mut pause = PAUSES.0;
        loop {
            let (asked, queue_name, tasks, wall) =
                (Arc::clone(store), queue.to_owned(), shared.tasks.clone(), shared.wall);
            // On a task of its own: what the store gives out is given back even if nobody waits for it any more.
            let leasing = shared.tasks.spawn(async move {
                let now = wall.now();
                let id = asked.lease(queue_name, capacity, now, now + GOOD_FOR).await?;
                Ok::<_, StoreError>(id.map(|id| Self::hold(asked, id, tasks, wall)))
            });
            // The task neither panics nor is it ever aborted.
            match leasing.await.unwrap_or(Ok(None)) {
                Ok(Some(lease)) => return Some(lease),
                Ok(None) => time::sleep(pause).await,
                Err(error) => {
                    warn!(%error, queue, "Shared slots cannot be had; this process goes by its own.");
                    return None;
                }
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn hold(store: Arc<dyn SlotStore>, id: LeaseId, tasks: TaskTracker, wall: WallClock) -> Self {
        let (renewing, held) = (Arc::clone(&store), id.clone());
        let renewing = tasks.spawn(async move {
            loop {
                time::sleep(GOOD_FOR / 3).await;
                let now = wall.now();
                // One that has ended cannot be had back; the call that holds it is not stopped for that.
                if let Ok(false) = renewing.renew(held.clone(), now, now + GOOD_FOR).await {
                    return;
                }
            }
        });
        Self { store, id, tasks, _renewing: AbortOnDropHandle::new(renewing) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let (store, id) = (Arc::clone(&self.store), self.id.clone());
        if let Ok(handle) = Handle::try_current() {
            self.tasks.spawn_on(
                async move {
                    // What is not given back ends by itself.
                    let _ = store.release(id).await;
                },
                &handle,
            );
        }
    }
}
