//! Tracks calls that use a server, so that a replaced server is shut down only after its last call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Set when the server may no longer be used; the other bits count its users.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Counts the calls that use a server. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct DrainCounter(Arc<DrainState>);

#[derive(Debug, Default)]
struct DrainState {
    users: AtomicUsize,
    idle: Notify,
}

/// One use of a server, ended on drop.
#[derive(Debug)]
pub(crate) struct DrainGuard(DrainCounter);

impl DrainCounter {
    /// Starts a use of the server; `None` if it is closed because it was replaced.
    pub(crate) fn acquire(&self) -> Option<DrainGuard> {
        let one_more = |users: usize| (users & CLOSED == 0).then_some(users + 1);
        let acquired = self.0.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        acquired.ok().map(|_| DrainGuard(self.clone()))
    }

    /// Waits until the server is unused, and closes it.
    pub(crate) async fn drained(&self) {
        loop {
            let mut idle = std::pin::pin!(self.0.idle.notified());
            // Registered before the check, so that no release in between is missed.
            idle.as_mut().enable();
            match self.0.users.compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire) {
                Err(users) if users & CLOSED == 0 => idle.await,
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Closes the server to further use.
    pub(crate) fn close(&self) {
        self.0.users.fetch_or(CLOSED, Ordering::AcqRel);
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for DrainGuard {
    fn drop(&mut self) {
        let DrainState { users, idle } = &*self.0.0;
        if users.fetch_sub(1, Ordering::AcqRel) == 1 {
            idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_server_is_drained_after_its_last_use_and_then_closed() {
        let counter = DrainCounter::default();
        let (first, second) = (counter.acquire().unwrap(), counter.clone().acquire().unwrap());
        let mut over = Box::pin(counter.drained());
        assert!(over.as_mut().now_or_never().is_none());
        drop(first);
        assert!(over.as_mut().now_or_never().is_none());
        // A use that starts before the end is waited for as well.
        let third = counter.acquire().unwrap();
        drop(second);
        assert!(over.as_mut().now_or_never().is_none());
        drop(third);
        assert!(over.now_or_never().is_some());
        assert!(counter.acquire().is_none());
    }

    #[test]
    fn closing_does_not_wait() {
        let counter = DrainCounter::default();
        let inside = counter.acquire().unwrap();
        counter.close();
        assert!(counter.acquire().is_none());
        drop(inside);
        assert!(counter.drained().now_or_never().is_some());
    }
}
