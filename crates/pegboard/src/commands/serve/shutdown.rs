//! Signals of the system that end a process in order.

/// Shutdown signals of the process. With the first one in the process they lose their default action, so what must not
/// miss one keeps these: signals that arrive while nothing waits are kept as well.
#[cfg(unix)]
pub(crate) struct ShutdownSignals {
    /// `None` if the system refuses: the signal then terminates the process.
    signals: [Option<tokio::signal::unix::Signal>; 3],
}

#[cfg(unix)]
impl ShutdownSignals {
    /// Listens for signals from now on.
    pub(crate) fn listen() -> Self {
        use std::io::{IsTerminal as _, stdin};
        use tokio::signal::unix::{SignalKind, signal};

        // Without a terminal, SIGHUP means reload.
        let hangup = stdin().is_terminal().then(SignalKind::hangup);
        let kinds = [Some(SignalKind::interrupt()), Some(SignalKind::terminate()), hangup];
        Self { signals: kinds.map(|kind| kind.and_then(|kind| signal(kind).ok())) }
    }

    /// Waits for the next signal. None is lost if the future is dropped.
    pub(crate) async fn next(&mut self) {
        std::future::poll_fn(|context| {
            let mut signals = self.signals.iter_mut().flatten();
            if signals.any(|signal| signal.poll_recv(context).is_ready()) {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        })
        .await;
    }
}

/// Shutdown signals of the process.
#[cfg(not(unix))]
pub(crate) struct ShutdownSignals;

#[cfg(not(unix))]
impl ShutdownSignals {
    /// Listens for signals from now on.
    pub(crate) fn listen() -> Self {
        Self
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Waits for a shutdown signal.
pub(crate) async fn shutdown_signal() {
    ShutdownSignals::listen().next().await;
}
