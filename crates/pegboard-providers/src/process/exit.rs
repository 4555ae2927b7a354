//! How a program ended.

use std::fmt;
use std::process::ExitStatus;

/// How a program ended: with a code, or by a signal. With neither, nobody knows.
///
/// ```
/// use pegboard_providers::process::Exit;
///
/// assert_eq!(Exit { code: Some(3), signal: None }.to_string(), "exited with code 3");
/// assert_eq!(Exit { code: None, signal: Some(9) }.to_string(), "was ended by signal 9 (SIGKILL)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The code it gave.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

impl Exit {
    /// It is gone, and whoever waited for it is gone too.
    pub(super) const UNKNOWN: Self = Self { code: None, signal: None };
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        #[cfg(unix)]
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        #[cfg(not(unix))]
        let signal = None;
        Self { code: status.code(), signal }
    }
}

/// What follows "the program".
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exited with code {code}"),
            (None, Some(signal)) => match signal_name(signal) {
                Some(name) => write!(f, "was ended by signal {signal} ({name})"),
                None => write!(f, "was ended by signal {signal}"),
            },
            (None, None) => write!(f, "is gone, and nobody saw how it ended"),
        }
    }
}

/// The name of a signal whose number is the same everywhere.
fn signal_name(signal: i32) -> Option<&'static str> {
    Some(match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return None,
    })
}
