//! Who uses a server, so that one that was replaced is ended after its last call and not before.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Set when the server may not be used any more; all other bits count who uses it.
const OVER: usize = 1 << (usize::BITS - 1);

/// Who uses a server. Clones are of the same server.
#[derive(Clone, Debug, Default)]
pub struct Usage(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    users: AtomicUsize,
    unused: Notify,
}

/// One who uses a server, until it is dropped.
#[derive(Debug)]
pub(crate) struct InUse(Usage);

impl Usage {
    /// Begins to use the server, unless it is too late: then something else has taken its place.
    pub(crate) fn begin(&self) -> Option<InUse> {
        let one_more = |users: usize| (users & OVER == 0).then_some(users + 1);
        let begun = self.0.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        begun.ok().map(|_| InUse(self.clone()))
    }

    /// Waits until nobody uses the server; from then on nobody can.
    pub(crate) async fn over(&self) {
        loop {
            let mut unused = std::pin::pin!(self.0.unused.notified());
            // Before looking, so that whoever leaves in between is noticed.
            unused.as_mut().enable();
            match self.0.users.compare_exchange(0, OVER, Ordering::AcqRel, Ordering::Acquire) {
                Err(users) if users & OVER == 0 => unused.await,
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Lets nobody else use the server.
    pub(crate) fn close(&self) {
        self.0.users.fetch_or(OVER, Ordering::AcqRel);
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let Count { users, unused } = &*self.0.0;
        if users.fetch_sub(1, Ordering::AcqRel) == 1 {
            unused.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_server_is_over_when_its_last_user_has_left_and_then_nobody_comes() {
        let usage = Usage::default();
        let (first, second) = (usage.begin().unwrap(), usage.clone().begin().unwrap());
        let mut over = Box::pin(usage.over());
        assert!(over.as_mut().now_or_never().is_none());
        drop(first);
        assert!(over.as_mut().now_or_never().is_none());
        // Whoever comes before the end is waited for, too.
        let third = usage.begin().unwrap();
        drop(second);
        assert!(over.as_mut().now_or_never().is_none());
        drop(third);
        assert!(over.now_or_never().is_some());
        assert!(usage.begin().is_none());
    }

    #[test]
    fn closing_waits_for_nobody() {
        let usage = Usage::default();
        let inside = usage.begin().unwrap();
        usage.close();
        assert!(usage.begin().is_none());
        drop(inside);
        assert!(usage.over().now_or_never().is_some());
    }
}
