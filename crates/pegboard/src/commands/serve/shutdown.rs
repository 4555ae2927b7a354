//! Signals of the system that end a process in order.

use std::future;

/// Shutdown signals of the process.
///
/// With the first listener in the process they lose their default action, so what must not miss one keeps its listener:
/// a signal that arrives while nothing waits is kept, too.
pub(crate) struct ShutdownSignals {
    /// `None` for those that the system refuses: they terminate the process.
    #[cfg(unix)]
    signals: [Option<tokio::signal::unix::Signal>; 3],
}

impl ShutdownSignals {
    /// Listens for signals from now on.
    #[cfg(unix)]
    pub(crate) fn listen() -> Self {
        use std::io::{IsTerminal as _, stdin};
        use tokio::signal::unix::{SignalKind, signal};

        // Without a terminal, SIGHUP means reload.
        let hangup = stdin().is_terminal().then(SignalKind::hangup);
        let kinds = [Some(SignalKind::interrupt()), Some(SignalKind::terminate()), hangup];
        Self { signals: kinds.map(|kind| kind.and_then(|kind| signal(kind).ok())) }
    }

    /// Waits for the next signal. None is lost if the future is dropped.
    #[cfg(unix)]
    pub(crate) async fn next(&mut self) {
        use std::task::Poll;

        future::poll_fn(|context| {
            let mut signals = self.signals.iter_mut().flatten();
            let is_ready = signals.any(|signal| signal.poll_recv(context).is_ready());
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Listens for signals while it waits for one.
    #[cfg(not(unix))]
    pub(crate) fn listen() -> Self {
        Self {}
    }

    /// Waits for the next signal.
    #[cfg(not(unix))]
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            future::pending::<()>().await;
        }
    }
}

/// Waits for a shutdown signal.
pub(crate) async fn shutdown_signal() {
    ShutdownSignals::listen().next().await;
}
