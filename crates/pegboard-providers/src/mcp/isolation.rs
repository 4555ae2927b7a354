//! Isolation of the users of a server that sends requests without naming a call.

use std::sync::atomic::{AtomicBool, Ordering};

use pegboard_core::id::ServerName;
use pegboard_core::server_log::{LogStream, ServerLog};
use tokio::sync::Notify;

/// Warning about separate instances for the users of a server.
pub(super) const SPLIT_WARNING: &str = "the server sends requests that do not name the call they belong to, so clients that use it at the \
                                        same time have separate instances with separate state; `shared: false` gives every session its own \
                                        from the start";

/// Event in the log of a server.
const NO_ROOTS: &str = "the server asked for roots, named no call and got none; it gets those of its clients with `roots: union`, \
                        and those of one client with `shared: false`";

/// Isolation of the users of a server, for all its instances.
#[derive(Debug, Default)]
pub(super) struct UserIsolation {
    is_needed: AtomicBool,
    is_split: AtomicBool,
    split: Notify,
    has_refused_roots: AtomicBool,
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

    /// Reports, once, that the server has asked for roots without naming a call, and got none.
    pub(super) fn report_refused_roots(&self, server: &ServerName, log: &ServerLog) {
        if !self.has_refused_roots.swap(true, Ordering::Relaxed) {
            tracing::info!(%server, "{NO_ROOTS}");
            log.write(LogStream::Supervisor, None, NO_ROOTS);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_asks_for_roots_in_vain_is_reported_once() {
        let (isolation, log) = (UserIsolation::default(), ServerLog::default());
        for _ in 0..2 {
            isolation.report_refused_roots(&ServerName::new("files").unwrap(), &log);
        }
        let lines: Vec<String> = log.last(10).iter().map(|line| line.text.clone()).collect();
        insta::assert_snapshot!(lines.join("\n"), @"the server asked for roots, named no call and got none; it gets those of its clients with `roots: union`, and those of one client with `shared: false`");
    }
}
