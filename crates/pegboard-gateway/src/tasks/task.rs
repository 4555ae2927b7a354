//! One task: a running call and its client-visible state.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use pegboard_core::task::TaskRefresher;
use pegboard_json::RawJson;
use pegboard_runtime::random;
use pegboard_runtime::wall_clock::WallClock;
use pegboard_wire::server::ServiceChange;
use tokio::sync::{broadcast, watch};
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use super::outcome::TaskOutcome;
use super::pending::PendingInputs;
use super::{TaskOwner, wire_format};
use crate::client_request::bridge::InputBatch;

/// Default poll interval, if the server suggests none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum wait for the current status from the server; then the last known one is returned.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);

/// One task.
pub(crate) struct GatewayTask {
    id: String,
    owner: TaskOwner,
    created: SystemTime,
    pub(super) time_to_live: Duration,
    pub(super) poll_interval: Duration,
    pub(super) expires: Instant,
    /// Cancelled by its client.
    pub(super) cancelled: CancellationToken,
    state: watch::Sender<TaskState>,
    /// Asks the server for its status, if the server runs the call as a task, too.
    refresher: OnceLock<TaskRefresher>,
    wall: WallClock,
    changes: broadcast::Sender<ServiceChange>,
}

/// Client-visible state of a task.
pub(super) struct TaskState {
    pub(super) inputs: PendingInputs,
    pub(super) outcome: Option<TaskOutcome>,
    /// Status message for people.
    pub(super) message: Option<String>,
    /// Time of the last change.
    pub(super) updated: SystemTime,
}

impl GatewayTask {
    pub(super) fn new(
        owner: TaskOwner,
        time_to_live: Duration,
        poll_interval: Option<Duration>,
        wall: WallClock,
        changes: broadcast::Sender<ServiceChange>,
    ) -> Self {
        let created = wall.now();
        Self {
            id: random::uuid().simple().to_string(),
            owner,
            created,
            time_to_live,
            poll_interval: poll_interval.unwrap_or(POLL_INTERVAL),
            expires: Instant::now() + time_to_live,
            cancelled: CancellationToken::new(),
            state: watch::Sender::new(TaskState {
                inputs: PendingInputs::default(),
                outcome: None,
                message: None,
                updated: created,
            }),
            refresher: OnceLock::new(),
            wall,
            changes,
        }
    }

    /// Asks this server for the status from now on.
    pub(super) fn refresh_with(&self, refresher: TaskRefresher) {
        self.refresher.get_or_init(|| refresher);
    }

    /// Updates the state from the server, if it runs the call as a task, too.
    pub(super) async fn refresh(&self) {
        let is_working = self.with_state(|state| state.outcome.is_none() && state.inputs.is_empty());
        let Some(refresher) = self.refresher.get().filter(|_| is_working) else { return };
        let refreshing = async {
            if !refresher.refresh().await {
                self.wait_for_outcome().await;
            }
        };
        // A server that does not answer must not delay its client further.
        let _ = time::timeout(REFRESH_TIMEOUT, refreshing).await;
    }

    /// Task id; not guessable.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Owner of the task.
    pub(super) fn owner(&self) -> &TaskOwner {
        &self.owner
    }

    pub(super) fn created(&self) -> SystemTime {
        self.created
    }

    /// Calls `f` with the current state. It must not block.
    pub(super) fn with_state<T>(&self, f: impl FnOnce(&TaskState) -> T) -> T {
        f(&self.state.borrow())
    }

    /// Waits for the outcome; returns `None` if input is required first.
    pub(super) async fn wait_for_outcome(&self) -> Option<TaskOutcome> {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| state.outcome.is_some() || !state.inputs.is_empty());
        match time::timeout_at(self.expires, settled).await {
            Ok(Ok(state)) => state.outcome.clone(),
            Ok(Err(_)) | Err(_) => Some(TaskOutcome::expired()),
        }
    }

    /// Sets the status message. Pollers see it; no waiter is woken for it.
    pub(super) fn set_message(&self, message: String) {
        self.state.send_if_modified(|state| {
            if state.outcome.is_none() {
                state.message = Some(message);
                state.updated = self.wall.now();
            }
            false
        });
    }

    /// Adds questions for the client.
    pub(super) fn ask(&self, batch: InputBatch) {
        self.change(|state| {
            state.inputs.ask(batch);
            true
        });
    }

    /// Accepts the client's answers to pending questions.
    pub(super) fn take_answers(&self, answers: &RawJson) {
        self.change(|state| state.inputs.answer(answers));
    }

    /// Cancels the task; returns `false` if it had already ended.
    pub(super) fn cancel(&self) -> bool {
        let is_cancelled = self.end(TaskOutcome::Cancelled);
        self.cancelled.cancel();
        is_cancelled
    }

    /// Ends the task; returns `false` if it had already ended.
    pub(super) fn end(&self, outcome: TaskOutcome) -> bool {
        self.change(|state| {
            state.inputs = PendingInputs::default();
            state.message = None;
            state.outcome = Some(outcome);
            true
        })
    }

    /// Changes the state and notifies the client, unless the task has ended; returns `true` on a change.
    fn change(&self, change: impl FnOnce(&mut TaskState) -> bool) -> bool {
        let is_changed = self.state.send_if_modified(|state| {
            let is_changed = state.outcome.is_none() && change(state);
            if is_changed {
                state.updated = self.wall.now();
            }
            is_changed
        });
        if is_changed {
            // Without receivers the notification is dropped.
            let _ = self
                .changes
                .send(ServiceChange::Task { id: self.id.clone(), state: wire_format::detailed(self) });
        }
        is_changed
    }
}
