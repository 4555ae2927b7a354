//! Execution state of a call: the start of its tool, and the resources for which other calls may wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use pegboard_core::error::Executed;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// Execution state of a call.
#[derive(Default)]
pub(crate) struct Execution {
    /// Time at which the tool started to run.
    running_since: OnceLock<Instant>,
    running: Notify,
    held_slot: OnceLock<HeldSlot>,
    is_leader: AtomicBool,
    is_overdue: AtomicBool,
}

/// A queue slot held by a call, which it may lend to its nested calls.
struct HeldSlot {
    queue: Arc<str>,
    lendable: Arc<Semaphore>,
}

impl Execution {
    /// Marks the tool as running, for this call or for one that it has joined.
    pub(crate) fn mark_running(&self) {
        self.running_since.get_or_init(Instant::now);
        self.running.notify_waiters();
    }

    /// Waits until the tool runs. The wait ends with the call at the latest: callers select on its end as
    /// well.
    pub(crate) async fn wait_until_running(&self) {
        let running = self.running.notified();
        if self.running_since.get().is_none() {
            running.await;
        }
    }

    /// Returns the time at which the tool started to run.
    pub(crate) fn running_since(&self) -> Option<Instant> {
        self.running_since.get().copied()
    }

    /// Returns whether the tool may have had effects.
    pub(crate) fn executed(&self) -> Executed {
        if self.running_since.get().is_some() { Executed::Yes } else { Executed::No }
    }

    /// Records that the call holds a slot, its own or one lent by an ancestor.
    pub(crate) fn hold_slot(&self, queue: &Arc<str>) {
        self.held_slot
            .get_or_init(|| HeldSlot { queue: Arc::clone(queue), lendable: Arc::new(Semaphore::new(1)) });
    }

    /// Returns the semaphore by which the call lends its slot of this queue, if it holds one.
    pub(super) fn lendable_slot(&self, queue: &str) -> Option<&Arc<Semaphore>> {
        self.held_slot.get().filter(|slot| *slot.queue == *queue).map(|slot| &slot.lendable)
    }

    /// Marks the call as a single-flight leader: followers wait for its end.
    pub(crate) fn mark_leader(&self) {
        self.is_leader.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the call holds a slot or leads a single flight.
    pub(super) fn blocks_others(&self) -> bool {
        self.held_slot.get().is_some() || self.is_leader.load(Ordering::Relaxed)
    }

    /// Marks the call as overdue before it is abandoned.
    pub(crate) fn mark_overdue(&self) {
        self.is_overdue.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.is_overdue.load(Ordering::Relaxed)
    }
}
