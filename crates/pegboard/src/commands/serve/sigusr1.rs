//! Status line on SIGUSR1.

use pegboard::telemetry::write_stderr;
use pegboard::wire::http::server::ServerThreads;
use pegboard::wiring::App;

/// Prints the number of calls in flight to standard error on each `SIGUSR1`. Never completes.
#[cfg(unix)]
pub(crate) async fn report_on_signal(app: &App, threads: &ServerThreads) {
    use tokio::signal::unix::{SignalKind, signal};

    if let Ok(mut signals) = signal(SignalKind::user_defined1()) {
        while signals.recv().await.is_some() {
            let runtime = &app.runtime;
            write_stderr(&format!(
                "Status  {} calls in flight, {} suspended, {} callers, {} tasks",
                runtime.calls().len(),
                runtime.suspended_calls().len(),
                runtime.callers().len(),
                threads.n_tasks(),
            ));
        }
    }
    // Without a handler the signal terminates the process by default.
    std::future::pending::<()>().await;
}

/// There is no such signal on this platform.
#[cfg(not(unix))]
pub(crate) async fn report_on_signal(_app: &App, _threads: &ServerThreads) {
    std::future::pending::<()>().await;
}
