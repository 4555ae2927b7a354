//! Detection of a closed standard output.

/// Waits until the reader of standard output is gone; forever where that cannot be detected.
///
/// A client that has sent its last request closes standard input and may still read responses. A client that
/// has died closes both, which is noticed here without writing.
#[cfg(unix)]
pub(crate) async fn stdout_closed() {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;
    use tokio::sync::oneshot;

    let (sender, receiver) = oneshot::channel();
    // The thread blocks until the process exits, so it is not a task that shutdown would wait for.
    let watching = std::thread::Builder::new().name("stdout-closed".to_owned()).spawn(move || {
        let output = std::io::stdout();
        // With no events requested, `poll` reports only hang-ups and errors.
        let mut watched = [PollFd::new(&output, PollFlags::empty())];
        let found = loop {
            match poll(&mut watched, None) {
                Err(Errno::INTR) => {}
                found => break found,
            }
        };
        if found.is_ok() {
            // The receiver may be gone already.
            let _ = sender.send(());
        }
    });
    if watching.is_err() || receiver.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Not detectable on this platform.
#[cfg(not(unix))]
pub(crate) async fn stdout_closed() {
    std::future::pending().await
}
