//! Calls that continue as tasks, which the caller polls.

use std::time::Duration;

/// Default lifetime of a task.
pub const DEFAULT_LIFETIME: Duration = Duration::from_hours(1);
/// Maximum lifetime of a task.
pub const MAX_LIFETIME: Duration = Duration::from_hours(24);
/// Minimum lifetime of a task, so that its result can be fetched.
pub const MIN_LIFETIME: Duration = Duration::from_secs(1);

/// Client's handling of tasks that servers create for its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskMode {
    /// Transparent: a server may create a task, and its result is the result of the call.
    #[default]
    Hidden,
    /// Declined: a server that insists on a task causes an error.
    Declined,
    /// Accepted where a server creates one.
    Accepted,
    /// Requested, with this lifetime.
    Requested(Duration),
}

impl TaskMode {
    /// Returns `true` if the client accepts a task.
    pub fn accepts_task(self) -> bool {
        match self {
            Self::Hidden | Self::Declined => false,
            Self::Accepted | Self::Requested(_) => true,
        }
    }
}

/// A task that a server created for a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTask {
    /// Lifetime, if the server gave one.
    pub time_to_live: Option<Duration>,
    /// Poll interval, if the server gave one.
    pub poll_interval: Option<Duration>,
    /// Current activity, for display.
    pub message: Option<String>,
}

/// Clamps a requested lifetime to the allowed range.
///
/// ```
/// use std::time::Duration;
/// use pegboard_core::task::{DEFAULT_LIFETIME, MAX_LIFETIME, clamp_lifetime};
///
/// assert_eq!(clamp_lifetime(None), DEFAULT_LIFETIME);
/// assert_eq!(clamp_lifetime(Some(Duration::MAX)), MAX_LIFETIME);
/// assert_eq!(clamp_lifetime(Some(Duration::from_secs(90))), Duration::from_secs(90));
/// ```
pub fn clamp_lifetime(requested: Option<Duration>) -> Duration {
    requested.unwrap_or(DEFAULT_LIFETIME).clamp(MIN_LIFETIME, MAX_LIFETIME)
}
