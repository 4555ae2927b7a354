//! The exit of a program.

use std::fmt;
use std::process::ExitStatus;

/// Exit of a program, with a code or by a signal. Both are `None` if it is unknown.
///
/// ```
/// use pegboard_providers::process::ProcessExit;
///
/// assert_eq!(ProcessExit { code: Some(3), signal: None }.to_string(), "exited with code 3");
/// assert_eq!(ProcessExit { code: None, signal: Some(9) }.to_string(), "was killed by signal 9 (SIGKILL)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal that killed it.
    pub signal: Option<i32>,
}

impl ProcessExit {
    /// Exit of a program that was not observed.
    pub(super) const UNKNOWN: Self = Self { code: None, signal: None };
}

impl From<ExitStatus> for ProcessExit {
    fn from(status: ExitStatus) -> Self {
        #[cfg(unix)]
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        #[cfg(not(unix))]
        let signal = None;
        Self { code: status.code(), signal }
    }
}

/// Formats the exit as the predicate of "the program".
impl fmt::Display for ProcessExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exited with code {code}"),
            (None, Some(signal)) => match signal_name(signal) {
                Some(name) => write!(f, "was killed by signal {signal} ({name})"),
                None => write!(f, "was killed by signal {signal}"),
            },
            (None, None) => write!(f, "exited with an unknown status"),
        }
    }
}

/// Returns the name of a signal with the same number on all systems.
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
