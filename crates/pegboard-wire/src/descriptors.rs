//! Exhaustion of file descriptors, and how it is reported.

use std::error::Error;
use std::io;
use std::time::Duration;

use tokio::time::{self, Instant};

/// Description of the lack of file descriptors, with its remedy.
pub const TOO_MANY_FILES: &str =
    "too many open files: raise the limit of this process, for example with `ulimit -n 65536`";

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Minimum interval of log lines about failed accepts.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Returns `true` if this process or the system has no file descriptor left.
pub fn are_exhausted(error: &io::Error) -> bool {
    #[cfg(all(unix, feature = "readiness"))]
    {
        use rustix::io::Errno;
        let code = error.raw_os_error();
        [Errno::MFILE, Errno::NFILE].iter().any(|errno| code == Some(errno.raw_os_error()))
    }
    #[cfg(not(all(unix, feature = "readiness")))]
    {
        let _ = error;
        false
    }
}

/// Returns `true` if an error was caused by the lack of file descriptors.
pub(crate) fn is_caused_by_exhaustion(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(are_exhausted) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Errors of an accept loop: a pause after each, and one log line about all of them.
#[derive(Debug, Default)]
pub struct AcceptErrors {
    logged_at: Option<Instant>,
}

impl AcceptErrors {
    /// Logs an error, unless one was logged a short while ago, and waits until accepting is worth another try.
    pub async fn handle(&mut self, error: &io::Error) {
        if is_connection_error(error) {
            return;
        }
        if self.is_due() {
            if are_exhausted(error) {
                tracing::error!("New connections wait: {TOO_MANY_FILES}.");
            } else {
                tracing::error!(%error, "Cannot accept a connection.");
            }
        }
        time::sleep(ACCEPT_PAUSE).await;
    }

    fn is_due(&mut self) -> bool {
        let is_due = self.logged_at.is_none_or(|logged_at| logged_at.elapsed() >= LOG_INTERVAL);
        if is_due {
            self.logged_at = Some(Instant::now());
        }
        is_due
    }
}

/// Returns `true` if only the accepted connection has failed.
fn is_connection_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}

#[cfg(all(test, unix, feature = "readiness"))]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lasting_failure_is_logged_once_a_minute() {
        let mut errors = AcceptErrors::default();
        let mut n_due = 0;
        for _ in 0..3 * 600 {
            n_due += usize::from(errors.is_due());
            time::sleep(ACCEPT_PAUSE).await;
        }
        assert_eq!(n_due, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_neither_pauses_nor_logs() {
        let mut errors = AcceptErrors::default();
        let before = Instant::now();
        errors.handle(&io::ErrorKind::ConnectionAborted.into()).await;
        assert!(before.elapsed().is_zero() && errors.is_due());
        errors.handle(&Errno::MFILE.into()).await;
        assert_eq!(before.elapsed(), ACCEPT_PAUSE);
    }

    #[test]
    fn the_innermost_cause_counts() {
        let check = |errno: Errno, expected| {
            let inner = io::Error::from(errno);
            assert_eq!(are_exhausted(&inner), expected);
            let outer = Wrapped(io::Error::other(Wrapped(inner)));
            assert_eq!(is_caused_by_exhaustion(&outer), expected, "{errno:?}");
        };
        check(Errno::MFILE, true);
        check(Errno::NFILE, true);
        check(Errno::CONNREFUSED, false);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("it failed")]
    struct Wrapped(#[source] io::Error);
}
