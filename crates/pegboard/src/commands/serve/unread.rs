//! Whether anybody reads standard output.

/// Waits until nobody reads standard output any more; for ever where that cannot be known.
///
/// A client that has said all closes standard input, and may still read its answers. One that has died reads no more,
/// and nothing need be written to find out.
#[cfg(unix)]
pub(crate) async fn unread() {
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;
    use tokio::sync::oneshot;

    let (tell, told) = oneshot::channel();
    // It waits for as long as the program runs, so it is no task that anybody would wait for at the end.
    let watching = std::thread::Builder::new().name("unread".to_owned()).spawn(move || {
        let output = std::io::stdout();
        // Asked for nothing, the system tells only that the other end is gone.
        let mut watched = [PollFd::new(&output, PollFlags::empty())];
        let found = loop {
            match poll(&mut watched, None) {
                Err(Errno::INTR) => {}
                found => break found,
            }
        };
        if found.is_ok() {
            // Whoever listened may have ended before.
            let _ = tell.send(());
        }
    });
    if watching.is_err() || told.await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Nobody can tell here.
#[cfg(not(unix))]
pub(crate) async fn unread() {
    std::future::pending().await
}
