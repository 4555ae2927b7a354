//! The calls that are under way, so that they can be seen, called off and waited for.

use std::collections::HashMap;
use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pegboard_core::error::{CallError, Executed};
use serde::Serialize;
use tokio::time::{self, Instant};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::flight::Track;
use crate::optree::OpNode;
use crate::trace_id::TraceId;

/// How many calls may be under way at once.
pub const MAX_CALLS: usize = 10_000;

/// How many of them one caller may have.
pub const MAX_CALLS_EACH: usize = 2_000;

/// The calls that are under way.
pub(crate) struct Calls {
    under_way: Mutex<HashMap<CallId, Entry>>,
    next: AtomicU64,
    tracker: TaskTracker,
}

struct Entry {
    track: Arc<Track>,
    since: Instant,
}

/// A call that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct CallId(u64);

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CallId {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

/// What a call is known by from its beginning on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The call.
    pub id: CallId,
    /// What it is found again by when it has ended.
    pub trace: TraceId,
}

/// What a call that is under way does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// It waits for its server or for a slot.
    Queued,
    /// Its tool runs.
    Running,
    /// Its tool waits for an answer of its caller.
    Waiting,
}

/// What is known of a call that is under way.
#[derive(Clone, Debug, Serialize)]
pub struct CallStatus {
    /// The call.
    pub id: CallId,
    /// What it is found again by when it has ended; a call by a call has that of the call above it.
    pub trace: TraceId,
    /// The session it was made in.
    pub session: String,
    /// Whose call it is: the [owner](crate::Caller::owner) of its caller.
    pub owner: String,
    /// The label of its operation.
    pub operation: String,
    /// The tool.
    pub tool: String,
    /// For how long it has been under way.
    pub running_for: Duration,
    /// What it does.
    pub state: CallState,
}

impl Calls {
    pub(crate) fn new() -> Self {
        Self { under_way: Mutex::default(), next: AtomicU64::new(1), tracker: TaskTracker::new() }
    }

    /// Lets a call in, unless there are too many already or it is too late.
    pub(crate) fn enter(self: &Arc<Self>, track: &Arc<Track>) -> Result<Pass, CallError> {
        // What runs already may go on to its end, with the calls that this takes.
        if self.tracker.is_closed() && !track.has_parent() {
            let reason = "Pegboard is shutting down".to_owned();
            return Err(CallError::Canceled { reason, executed: Executed::No });
        }
        let of_caller = track.caller.n_under_way();
        if of_caller.fetch_add(1, Ordering::Relaxed) >= MAX_CALLS_EACH {
            of_caller.fetch_sub(1, Ordering::Relaxed);
            return Err(CallError::LimitExceeded {
                reason: format!(
                    "{MAX_CALLS_EACH} calls of this session are under way; try again when some have ended"
                ),
            });
        }
        let id = CallId(self.next.fetch_add(1, Ordering::Relaxed));
        let mut under_way = self.under_way();
        if under_way.len() >= MAX_CALLS {
            of_caller.fetch_sub(1, Ordering::Relaxed);
            return Err(CallError::LimitExceeded {
                reason: format!("{MAX_CALLS} calls are under way already; try again when some have ended"),
            });
        }
        under_way.insert(id, Entry { track: Arc::clone(track), since: Instant::now() });
        drop(under_way);
        Ok(Pass { calls: Arc::clone(self), id, _token: self.tracker.token() })
    }

    /// Calls one call off; `false` if it is not under way.
    pub(crate) fn cancel(&self, id: CallId) -> bool {
        let track = self.under_way().get(&id).map(|entry| Arc::clone(&entry.track));
        if let Some(track) = &track {
            track.canceled.cancel();
        }
        track.is_some()
    }

    /// Calls off those calls of which `is_meant` is true; gives their number.
    pub(crate) fn cancel_where(&self, is_meant: impl Fn(&Track) -> bool) -> usize {
        let tracks: Vec<_> = self.under_way().values().map(|entry| Arc::clone(&entry.track)).collect();
        let meant = tracks.iter().filter(|track| is_meant(track));
        meant.inspect(|track| track.canceled.cancel()).count()
    }

    /// The calls that are under way, the oldest first.
    pub(crate) fn list(&self) -> Vec<CallStatus> {
        let mut entries: Vec<_> =
            self.under_way().iter().map(|(id, entry)| (*id, Arc::clone(&entry.track), entry.since)).collect();
        entries.sort_by_key(|(id, _, _)| *id);
        let status = |(id, track, since): (CallId, Arc<Track>, Instant)| {
            track.with_operation(|operation| CallStatus {
                id,
                trace: track.caller.trace_of(&operation.path()),
                session: track.caller.id().to_owned(),
                owner: track.caller.owner().to_owned(),
                state: track.state(),
                operation: operation.path().to_string(),
                tool: operation.name().to_owned(),
                running_for: since.elapsed(),
            })
        };
        entries.into_iter().filter_map(status).collect()
    }

    /// The operation of a call, as it is now.
    pub(crate) fn operation(&self, id: CallId) -> Option<OpNode> {
        let track = self.under_way().get(&id).map(|entry| Arc::clone(&entry.track))?;
        let (tree, path) = track.with_operation(|operation| (operation.tree().clone(), operation.path()))?;
        tree.find(&path)
    }

    /// Lets nobody in any more, waits for those who are, and calls off whoever is left after `grace`.
    pub(crate) async fn close(&self, grace: Duration) -> usize {
        /// How long a call that was called off may take to go.
        const FAREWELL: Duration = Duration::from_secs(5);
        self.tracker.close();
        if time::timeout(grace, self.tracker.wait()).await.is_ok() {
            return 0;
        }
        let n_canceled = self.cancel_where(|_| true);
        // A call that nobody polls cannot go; there is no use in waiting for it longer.
        let _ = time::timeout(FAREWELL, self.tracker.wait()).await;
        n_canceled
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<CallId, Entry>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call's place among those under way.
pub(crate) struct Pass {
    calls: Arc<Calls>,
    id: CallId,
    _token: TaskTrackerToken,
}

impl Pass {
    /// What the call is known by.
    pub(crate) fn begun(&self, track: &Track) -> Option<Begun> {
        let path = track.with_operation(|operation| operation.path())?;
        Some(Begun { id: self.id, trace: track.caller.trace_of(&path) })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let entry = self.calls.under_way().remove(&self.id);
        if let Some(entry) = &entry {
            entry.track.caller.n_under_way().fetch_sub(1, Ordering::Relaxed);
        }
        // Outside the lock: this may be the last one who holds the caller.
        drop(entry);
    }
}
