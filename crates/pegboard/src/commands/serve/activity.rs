//! Activity of a gateway, so that one in the background can exit when it is idle.

use std::time::Duration;

use pegboard::runtime::Runtime;
use tokio::sync::watch;
use tokio::time;

/// Number of clients and commands that use a gateway. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Activity(watch::Sender<usize>);

/// Use of a gateway; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ActivityGuard(watch::Sender<usize>);

impl Default for Activity {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl Activity {
    /// Counts a client or command until the guard is dropped.
    pub(crate) fn begin(&self) -> ActivityGuard {
        self.0.send_modify(|n_active| *n_active += 1);
        ActivityGuard(self.0.clone())
    }

    /// Waits until nothing has used the gateway for this long.
    pub(crate) async fn idle_for(&self, timeout: Duration, runtime: &Runtime) {
        let mut active = self.0.subscribe();
        loop {
            let is_used = *active.borrow_and_update() > 0;
            let waited = time::timeout(timeout, active.changed()).await;
            let is_calling = !runtime.calls().is_empty() || !runtime.suspended_calls().is_empty();
            if waited.is_err() && !is_used && !is_calling {
                return;
            }
        }
    }
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.0.send_modify(|n_active| *n_active -= 1);
    }
}
