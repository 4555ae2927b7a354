//! Calls that continue as tasks, which the caller polls.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// Maximum number of pending requests for the status of one task.
const MAX_REFRESHES: usize = 8;

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
    /// Asks the server for the current status.
    pub refresher: Option<TaskRefresher>,
}

/// Asks the server of a task for its current status, between two polls.
#[derive(Clone, Debug)]
pub struct TaskRefresher(mpsc::Sender<oneshot::Sender<()>>);

/// Receives the requests of a [`TaskRefresher`].
#[derive(Debug)]
pub struct TaskRefreshes {
    requests: mpsc::Receiver<oneshot::Sender<()>>,
    pending: Vec<oneshot::Sender<()>>,
}

impl TaskRefresher {
    /// Creates a refresher and its receiver.
    pub fn new() -> (Self, TaskRefreshes) {
        let (sender, requests) = mpsc::channel(MAX_REFRESHES);
        (Self(sender), TaskRefreshes { requests, pending: Vec::new() })
    }

    /// Waits for the current status; returns `false` if the task is no longer running, so that its outcome or its
    /// input requests are about to follow.
    pub async fn refresh(&self) -> bool {
        let (sender, answer) = oneshot::channel();
        match self.0.try_send(sender) {
            // Others are waiting for the same status.
            Err(mpsc::error::TrySendError::Full(_)) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Ok(()) => answer.await.is_ok(),
        }
    }
}

impl PartialEq for TaskRefresher {
    fn eq(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl Eq for TaskRefresher {}

impl TaskRefreshes {
    /// Waits for a request; forever if none can come any more.
    pub async fn requested(&mut self) {
        match self.requests.recv().await {
            Some(request) => self.pending.push(request),
            None => std::future::pending().await,
        }
    }

    /// Answers the requests so far: the task is running.
    pub fn report_running(&mut self) {
        for request in self.pending.drain(..) {
            // The requester may have given up.
            let _ = request.send(());
        }
    }

    /// Answers the requests so far: the task is not running.
    pub fn report_not_running(&mut self) {
        self.pending.clear();
    }
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
