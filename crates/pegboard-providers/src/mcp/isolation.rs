//! Isolation of the users of a server that sends requests without naming a call.

use std::sync::atomic::{AtomicBool, Ordering};

use pegboard_core::id::ServerName;
use tokio::sync::Notify;

/// Warning about separate instances for the users of a server.
pub(super) const SPLIT_WARNING: &str = "the server sends requests that do not name the call they belong to, so clients that use it at the \
                                        same time have separate instances with separate state; `shared: false` gives every session its own \
                                        from the start";

/// Isolation of the users of a server, for all its instances.
#[derive(Debug, Default)]
pub(super) struct UserIsolation {
    is_needed: AtomicBool,
    is_split: AtomicBool,
    split: Notify,
}

impl UserIsolation {
    /// Records a request that names no call. From now on, new users do not share an instance.
    pub(super) fn require(&self) {
        self.is_needed.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if new users must not share an instance.
    pub(super) fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed)
    }

    /// Reports, once, that users have separate instances or would need them.
    pub(super) fn report_split(&self, server: &ServerName) {
        if !self.is_split.swap(true, Ordering::Relaxed) {
            tracing::warn!(%server, "{SPLIT_WARNING}");
            self.split.notify_one();
        }
    }

    /// Returns `true` if users have separate instances.
    pub(super) fn is_split(&self) -> bool {
        self.is_split.load(Ordering::Relaxed)
    }

    /// Waits until users have separate instances.
    pub(super) async fn split(&self) {
        self.split.notified().await;
    }
}
