//! Slots that several processes share.
//!
//! A call first has its slot here, with its turn among the calls of this process, and then a lease from the store that
//! all processes look at. A lease that nobody renews ends by itself, so a process that dies holds nothing up for long.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::store::{LeaseId, SlotStore};
use tokio::runtime::Handle;
use tokio::time;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::warn;

use crate::runtime::Shared;

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
            let now = shared.wall.now();
            match store.lease(queue.to_owned(), capacity, now, now + GOOD_FOR).await {
                // Nothing is awaited from here to the lease: what was had is held, and given back.
                Ok(Some(id)) => return Some(Self::hold(shared, store, id)),
                Ok(None) => time::sleep(pause).await,
                Err(error) => {
                    warn!(%error, queue, "Shared slots cannot be had; this process goes by its own.");
                    return None;
                }
            }
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn hold(shared: &Shared, store: &Arc<dyn SlotStore>, id: LeaseId) -> Self {
        let (renewing, held, wall) = (Arc::clone(store), id.clone(), shared.wall);
        let renewing = shared.tasks.spawn(async move {
            loop {
                time::sleep(GOOD_FOR / 3).await;
                let now = wall.now();
                // One that has ended cannot be had back; the call that holds it is not stopped for that.
                if let Ok(false) = renewing.renew(held.clone(), now, now + GOOD_FOR).await {
                    return;
                }
            }
        });
        let (store, tasks) = (Arc::clone(store), shared.tasks.clone());
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
