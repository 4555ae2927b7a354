//! The table of live tasks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use indexmap::IndexMap;
use parking_lot::Mutex;
use pegboard_core::call::{CallHandle, CallResult};
use pegboard_core::task::{ServerTask, clamp_lifetime};
use pegboard_json::RawJson;
use pegboard_runtime::wall_clock::WallClock;
use pegboard_wire::RpcError;
use pegboard_wire::server::{ClientSessionId, ServiceChange};
use tokio::sync::broadcast;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use super::outcome::TaskOutcome;
use super::task::GatewayTask;
use super::{TaskOwner, wire_format};
use crate::client_request::bridge::{ClientBridge, TaskEvent};

/// Renders the result of a call.
pub(crate) type ResultRenderer = Box<dyn FnOnce(&CallResult) -> Result<RawJson, RpcError> + Send>;

/// Maximum number of tasks.
pub(crate) const MAX_TASKS: usize = 1_000;
/// Maximum number of tasks per session.
const MAX_TASKS_PER_SESSION: usize = 100;
/// Maximum total size of stored results; beyond it the oldest are evicted.
const MAX_RESULT_BYTES: usize = 256 * 1024 * 1024;
/// Number of tasks per page.
const PAGE_SIZE: usize = 100;

/// The live tasks. Dropping the table cancels them.
pub(crate) struct TaskTable {
    /// In order of creation.
    tasks: Mutex<IndexMap<String, TaskEntry>>,
    changes: broadcast::Sender<ServiceChange>,
    wall: WallClock,
}

/// A task and its worker. The worker holds the task, so the task must not hold the worker.
struct TaskEntry {
    task: Arc<GatewayTask>,
    _work: AbortOnDropHandle<()>,
}

/// A running call that becomes a task.
pub(crate) struct TaskCall {
    pub(crate) running: CallHandle,
    pub(crate) bridge: Arc<ClientBridge>,
    /// Renders the result of the call.
    pub(crate) render: ResultRenderer,
}

impl TaskTable {
    /// Creates an empty table; task changes are sent to `changes`.
    pub(crate) fn new(changes: broadcast::Sender<ServiceChange>) -> Arc<Self> {
        Arc::new(Self { tasks: Mutex::default(), changes, wall: WallClock::start() })
    }

    /// Creates a task from a call and returns its creation result; returns the call if there are too many
    /// tasks.
    pub(crate) fn insert(
        self: &Arc<Self>,
        owner: TaskOwner,
        server_task: &ServerTask,
        call: TaskCall,
    ) -> Result<RawJson, Box<TaskCall>> {
        let mut tasks = self.tasks.lock();
        let n_own = tasks.values().filter(|entry| *entry.task.owner() == owner).count();
        let is_full = tasks.len() >= MAX_TASKS
            || matches!(owner, TaskOwner::Session(_)) && n_own >= MAX_TASKS_PER_SESSION;
        if is_full {
            return Err(Box::new(call));
        }
        let time_to_live = clamp_lifetime(server_task.time_to_live);
        let task =
            GatewayTask::new(owner, time_to_live, server_task.poll_interval, self.wall, self.changes.clone());
        if let Some(message) = &server_task.message {
            task.set_message(message.clone());
        }
        let task = Arc::new(task);
        let work = tokio::spawn(run_task(Arc::downgrade(self), Arc::clone(&task), call));
        let id = task.id().to_owned();
        let created = wire_format::created(&task);
        tasks.insert(id, TaskEntry { task, _work: AbortOnDropHandle::new(work) });
        Ok(created)
    }

    /// Returns a task of this owner.
    pub(super) fn find(&self, owner: &TaskOwner, id: &str) -> Result<Arc<GatewayTask>, RpcError> {
        let tasks = self.tasks.lock();
        let found = tasks.get(id).filter(|entry| entry.task.owner() == owner);
        found.map(|entry| Arc::clone(&entry.task)).ok_or_else(|| {
            let problem = "unknown task: it may have expired, or the gateway was restarted";
            RpcError::invalid_params(problem)
        })
    }

    /// Returns the tasks after `cursor`, and the cursor of the next page if there is one.
    pub(super) fn page(
        &self,
        owner: &TaskOwner,
        cursor: Option<&str>,
    ) -> Result<(Vec<Arc<GatewayTask>>, Option<String>), RpcError> {
        let tasks = self.tasks.lock();
        let mut tasks = tasks.values().map(|entry| &entry.task).filter(|task| task.owner() == owner);
        if let Some(cursor) = cursor {
            let last = tasks.find(|task| task.id() == cursor);
            last.ok_or_else(|| RpcError::invalid_params("unknown or expired cursor"))?;
        }
        let page: Vec<Arc<GatewayTask>> = tasks.by_ref().take(PAGE_SIZE).cloned().collect();
        let is_last = tasks.next().is_none();
        let next = page.last().filter(|_| !is_last).map(|task| task.id().to_owned());
        Ok((page, next))
    }

    /// Removes and cancels the tasks of a session that has ended.
    pub(crate) fn end_session(&self, session: &ClientSessionId) {
        let belongs_to_session =
            |entry: &TaskEntry| matches!(entry.task.owner(), TaskOwner::Session(of) if of == session);
        let ended: Vec<TaskEntry> = {
            let mut tasks = self.tasks.lock();
            let ids: Vec<String> = tasks
                .iter()
                .filter(|(_, entry)| belongs_to_session(entry))
                .map(|(id, _)| id.clone())
                .collect();
            ids.iter().filter_map(|id| tasks.shift_remove(id)).collect()
        };
        // Dropping cancels the calls; done outside the lock.
        drop(ended);
    }

    /// Evicts the oldest results if the total size exceeds the limit.
    fn evict_results(&self) {
        let mut tasks = self.tasks.lock();
        let n_bytes = |entry: &TaskEntry| {
            entry.task.with_state(|state| state.outcome.as_ref().map_or(0, TaskOutcome::n_bytes))
        };
        let sizes: Vec<(&str, usize)> =
            tasks.iter().map(|(id, entry)| (id.as_str(), n_bytes(entry))).collect();
        let evicted: Vec<String> =
            results_to_evict(&sizes, MAX_RESULT_BYTES).into_iter().map(str::to_owned).collect();
        for id in evicted {
            tasks.shift_remove(&id);
        }
    }
}

/// Runs a task from its start until it expires.
async fn run_task(table: Weak<TaskTable>, task: Arc<GatewayTask>, call: TaskCall) {
    let TaskCall { running, bridge, render } = call;
    let on_event = |event| match event {
        TaskEvent::Message(message) => task.set_message(message),
        TaskEvent::InputRequired(batch) => task.ask(batch),
        TaskEvent::ServerTask(refresher) => task.refresh_with(refresher),
    };
    let outcome = tokio::select! {
        biased;
        () = task.cancelled.cancelled() => TaskOutcome::Cancelled,
        call_result = bridge.drive_task(running, on_event) => TaskOutcome::from_result(&call_result, render),
        () = time::sleep_until(task.expires) => TaskOutcome::expired(),
    };
    task.end(outcome);
    drop(bridge);
    if let Some(table) = table.upgrade() {
        table.evict_results();
    }
    // The client may fetch the result until then.
    time::sleep_until(task.expires).await;
    if let Some(table) = table.upgrade() {
        let removed = table.tasks.lock().shift_remove(task.id());
        drop(removed);
    }
}

/// Returns the parameters of a task that a session client requests before any server knows of it.
pub(crate) fn new_server_task(time_to_live: Duration) -> ServerTask {
    ServerTask { time_to_live: Some(time_to_live), ..ServerTask::default() }
}

/// Returns the oldest results to evict so that the rest fits into `max` bytes.
fn results_to_evict<'s>(sizes: &[(&'s str, usize)], max: usize) -> Vec<&'s str> {
    let mut n_bytes: usize = sizes.iter().map(|(_, n_bytes)| n_bytes).sum();
    let mut evicted = Vec::new();
    // Unfinished tasks have no bytes.
    for (id, n_own) in sizes.iter().filter(|(_, n_own)| *n_own > 0) {
        if n_bytes <= max {
            break;
        }
        n_bytes -= n_own;
        evicted.push(*id);
    }
    evicted
}

#[cfg(test)]
mod tests {
    use super::results_to_evict;

    #[test]
    fn the_oldest_results_are_evicted_first() {
        let sizes = [("a", 5), ("still running", 0), ("b", 3), ("c", 4)];
        let cases: [(usize, &[&str]); 5] =
            [(12, &[]), (11, &["a"]), (7, &["a"]), (4, &["a", "b"]), (3, &["a", "b", "c"])];
        for (max, expected) in cases {
            assert_eq!(results_to_evict(&sizes, max), expected, "{max}");
        }
    }
}
