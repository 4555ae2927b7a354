//! What is under way, for whoever asks with a signal.

use pegboard::telemetry::tell;
use pegboard::wiring::Board;

/// Says what is under way on standard error, each time that `SIGUSR1` comes. Never ends.
#[cfg(unix)]
pub(crate) async fn say_when_asked(board: &Board) {
    use tokio::signal::unix::{SignalKind, signal};

    if let Ok(mut asked) = signal(SignalKind::user_defined1()) {
        while asked.recv().await.is_some() {
            let runtime = &board.runtime;
            tell(&format!(
                "Status  {} calls under way, {} wait for their clients, {} callers, {} inner tasks",
                runtime.calls().len(),
                runtime.parking().len(),
                runtime.callers().len(),
                tokio::runtime::Handle::current().metrics().num_alive_tasks(),
            ));
        }
    }
    // Then the signal ends this program, as it would any other.
    std::future::pending::<()>().await;
}

/// There is no such signal there.
#[cfg(not(unix))]
pub(crate) async fn say_when_asked(_board: &Board) {
    std::future::pending::<()>().await;
}
