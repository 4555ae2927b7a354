//! Calls that go on as tasks, after which their caller asks later.

use std::time::Duration;

/// How long a task is kept if nobody says otherwise.
pub const DEFAULT_LIFETIME: Duration = Duration::from_hours(1);
/// How long a task is kept at most.
pub const MAX_LIFETIME: Duration = Duration::from_hours(24);
/// How long a task is kept at least, so that there is time to ask for its end.
pub const MIN_LIFETIME: Duration = Duration::from_secs(1);

/// What a caller has to do with the tasks that servers make of its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskUse {
    /// Nothing. A server may make one, and its end is the end of the call.
    #[default]
    Hidden,
    /// It says that it takes none, and wants to hear it if a server insists.
    Declined,
    /// It takes one where a server makes one.
    Taken,
    /// It wants one, for so long.
    Wanted(Duration),
}

impl TaskUse {
    /// Whether the caller may be given a task.
    pub fn may_be_task(self) -> bool {
        match self {
            Self::Hidden | Self::Declined => false,
            Self::Taken | Self::Wanted(_) => true,
        }
    }
}

/// A task that a server has made of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTask {
    /// How long the server keeps it, if it says so.
    pub time_to_live: Option<Duration>,
    /// How often one may ask how it is, if the server says so.
    pub poll_interval: Option<Duration>,
    /// What it does now, for a person.
    pub message: Option<String>,
}

/// How long a task is kept that somebody wants kept for so long.
///
/// ```
/// use std::time::Duration;
/// use pegboard_core::task::{DEFAULT_LIFETIME, MAX_LIFETIME, lifetime};
///
/// assert_eq!(lifetime(None), DEFAULT_LIFETIME);
/// assert_eq!(lifetime(Some(Duration::MAX)), MAX_LIFETIME);
/// assert_eq!(lifetime(Some(Duration::from_secs(90))), Duration::from_secs(90));
/// ```
pub fn lifetime(wanted: Option<Duration>) -> Duration {
    wanted.unwrap_or(DEFAULT_LIFETIME).clamp(MIN_LIFETIME, MAX_LIFETIME)
}
