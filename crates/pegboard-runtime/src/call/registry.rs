//! The calls in flight: admission, status, cancellation and draining.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::Mutex;
use pegboard_core::error::{CallError, Executed};
use pegboard_core::owner::Owner;
use serde::Serialize;
use tokio::time::{self, Instant};
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::active::ActiveCall;
use crate::optree::OpNode;
use crate::trace_id::TraceId;

/// Maximum number of calls in flight.
pub const MAX_CALLS: usize = 10_000;

/// Maximum number of calls in flight per caller.
pub const MAX_CALLS_PER_CALLER: usize = 2_000;

/// The calls in flight.
pub(crate) struct ActiveCalls {
    in_flight: Mutex<HashMap<CallId, ActiveCallEntry>>,
    next: AtomicU64,
    tracker: TaskTracker,
}

struct ActiveCallEntry {
    active_call: Arc<ActiveCall>,
    since: Instant,
}

/// Id of a call in flight.
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

/// Identifiers of a call that was admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallStarted {
    /// Id of the call while in flight.
    pub id: CallId,
    /// Id under which the call is found after it has ended.
    pub trace: TraceId,
}

/// State of a call in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Waiting for its server or for a queue slot.
    Queued,
    /// The tool is running.
    Running,
    /// The tool is waiting for input from the caller.
    Waiting,
}

/// Status of a call in flight.
#[derive(Clone, Debug, Serialize)]
pub struct CallStatus {
    /// Id of the call.
    pub id: CallId,
    /// Id under which the call is found after it has ended; nested calls share the id of the outermost one.
    pub trace: TraceId,
    /// Session in which the call was made.
    pub session: String,
    /// [Owner](crate::Caller::owner) of the caller.
    #[serde(skip)]
    pub owner: Owner,
    /// Path of its operation.
    pub operation: String,
    /// Name of the tool.
    pub tool: String,
    /// Time since the call was admitted.
    pub running_for: Duration,
    /// Current state.
    pub state: CallState,
}

impl ActiveCalls {
    pub(crate) fn new() -> Self {
        Self { in_flight: Mutex::default(), next: AtomicU64::new(1), tracker: TaskTracker::new() }
    }

    /// Admits a call, unless a limit is reached or shutdown has begun.
    pub(crate) fn enter(self: &Arc<Self>, active_call: &Arc<ActiveCall>) -> Result<CallPermit, CallError> {
        // Calls that are already running may finish, including the nested calls they make.
        if self.tracker.is_closed() && !active_call.has_parent() {
            let reason = "Pegboard is shutting down".to_owned();
            return Err(CallError::Canceled { reason, executed: Executed::No });
        }
        let of_caller = active_call.caller().n_in_flight();
        if of_caller.fetch_add(1, Ordering::Relaxed) >= MAX_CALLS_PER_CALLER {
            of_caller.fetch_sub(1, Ordering::Relaxed);
            return Err(CallError::LimitExceeded {
                reason: format!(
                    "{MAX_CALLS_PER_CALLER} calls of this session are in flight; try again when some have finished"
                ),
            });
        }
        let id = CallId(self.next.fetch_add(1, Ordering::Relaxed));
        let mut in_flight = self.in_flight.lock();
        if in_flight.len() >= MAX_CALLS {
            of_caller.fetch_sub(1, Ordering::Relaxed);
            return Err(CallError::LimitExceeded {
                reason: format!("{MAX_CALLS} calls are in flight; try again when some have finished"),
            });
        }
        in_flight.insert(id, ActiveCallEntry { active_call: Arc::clone(active_call), since: Instant::now() });
        drop(in_flight);
        Ok(CallPermit { calls: Arc::clone(self), id, _token: self.tracker.token() })
    }

    /// Cancels one call; returns `false` if it is not in flight.
    pub(crate) fn cancel(&self, id: CallId) -> bool {
        let active_call = self.in_flight.lock().get(&id).map(|entry| Arc::clone(&entry.active_call));
        if let Some(active_call) = &active_call {
            active_call.canceled.cancel();
        }
        active_call.is_some()
    }

    /// Cancels the calls that match; returns their number.
    pub(crate) fn cancel_where(&self, matches: impl Fn(&ActiveCall) -> bool) -> usize {
        let active_calls: Vec<_> =
            self.in_flight.lock().values().map(|entry| Arc::clone(&entry.active_call)).collect();
        let matching = active_calls.iter().filter(|active_call| matches(active_call));
        matching.inspect(|active_call| active_call.canceled.cancel()).count()
    }

    /// Returns the calls in flight, oldest first.
    pub(crate) fn list(&self) -> Vec<CallStatus> {
        let mut entries: Vec<_> = self
            .in_flight
            .lock()
            .iter()
            .map(|(id, entry)| (*id, Arc::clone(&entry.active_call), entry.since))
            .collect();
        entries.sort_by_key(|(id, _, _)| *id);
        let status = |(id, active_call, since): (CallId, Arc<ActiveCall>, Instant)| {
            active_call.recorder.with_operation(|operation| CallStatus {
                id,
                trace: active_call.caller().trace_id(&operation.path()),
                session: active_call.caller().id().to_owned(),
                owner: active_call.caller().owner().clone(),
                state: active_call.state(),
                operation: operation.path().to_string(),
                tool: operation.name().to_owned(),
                running_for: since.elapsed(),
            })
        };
        entries.into_iter().filter_map(status).collect()
    }

    /// Returns the current operation node of a call.
    pub(crate) fn operation(&self, id: CallId) -> Option<OpNode> {
        let active_call = self.in_flight.lock().get(&id).map(|entry| Arc::clone(&entry.active_call))?;
        let (tree, path) =
            active_call.recorder.with_operation(|operation| (operation.tree().clone(), operation.path()))?;
        tree.find(&path)
    }

    /// Stops admission, waits up to `grace` for calls in flight, then cancels the rest; returns the number
    /// cancelled.
    pub(crate) async fn close(&self, grace: Duration) -> usize {
        /// Time that a cancelled call may take to finish.
        const CANCEL_GRACE: Duration = Duration::from_secs(5);
        self.tracker.close();
        if time::timeout(grace, self.tracker.wait()).await.is_ok() {
            return 0;
        }
        let n_canceled = self.cancel_where(|_| true);
        // A call that is no longer polled never finishes, so the wait is bounded.
        let _ = time::timeout(CANCEL_GRACE, self.tracker.wait()).await;
        n_canceled
    }
}

/// Registration of a call in flight; removed on drop.
pub(crate) struct CallPermit {
    calls: Arc<ActiveCalls>,
    id: CallId,
    _token: TaskTrackerToken,
}

impl CallPermit {
    /// Returns the identifiers of the call.
    pub(crate) fn call_started(&self, active_call: &ActiveCall) -> Option<CallStarted> {
        let path = active_call.recorder.with_operation(|operation| operation.path())?;
        Some(CallStarted { id: self.id, trace: active_call.caller().trace_id(&path) })
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let entry = self.calls.in_flight.lock().remove(&self.id);
        if let Some(entry) = &entry {
            entry.active_call.caller().n_in_flight().fetch_sub(1, Ordering::Relaxed);
        }
        // Outside the lock: this may drop the last reference to the caller.
        drop(entry);
    }
}
