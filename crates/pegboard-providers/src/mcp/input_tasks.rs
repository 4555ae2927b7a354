//! Requests to the caller that a server with sessions runs as tasks (2025-11-25): the server gets a task at once, and
//! fetches the answer of the caller later.

use std::sync::{Arc, Weak};
use std::time::Duration;

use foldhash::HashMap;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use pegboard_core::task::clamp_lifetime;
use pegboard_json::RawJson;
use pegboard_wire::{Request, RpcError, code};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::time;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::in_flight::RELATED_TASK;

/// Maximum number of tasks of one connection.
const MAX_TASKS: usize = 100;
/// Suggested interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Answer of a caller.
type CallerAnswer = Result<RawJson, RpcError>;

/// The tasks of one connection. Clones share them.
#[derive(Clone, Default)]
pub(super) struct InputTasks(Arc<Mutex<InputTaskTable>>);

#[derive(Default)]
struct InputTaskTable {
    n_created: u64,
    tasks: HashMap<String, InputTaskEntry>,
}

/// A task and its worker, which ends with the connection.
struct InputTaskEntry {
    task: Arc<InputTask>,
    _work: AbortOnDropHandle<()>,
}

/// A request that waits for its caller.
struct InputTask {
    id: String,
    created: Timestamp,
    lifetime: Duration,
    cancelled: CancellationToken,
    /// The answer of the caller and its time, once it has come.
    answer: watch::Sender<Option<(CallerAnswer, Timestamp)>>,
}

/// Returns `true` for the methods about tasks that a server may call.
pub(super) fn is_task_method(method: &str) -> bool {
    matches!(method, "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/list")
}

/// Returns the lifetime of the task that a request of a server asks for, if it does.
pub(super) fn requested_task(request: &Request) -> Option<Duration> {
    let has_tasks = matches!(&*request.method, "elicitation/create" | "sampling/createMessage");
    let task = request.params.as_ref().filter(|_| has_tasks)?.get("task").filter(RawJson::is_object)?;
    let millis = task.get("ttl").and_then(|ttl| ttl.read::<u64>().ok());
    Some(clamp_lifetime(millis.map(Duration::from_millis)))
}

/// Adds the requests that a server may run as tasks to the capabilities of its client: those that the client can answer,
/// whether it knows of tasks or not.
pub(super) fn with_input_tasks(capabilities: &RawJson) -> RawJson {
    let methods = [("elicitation", "create"), ("sampling", "createMessage")];
    let can_answer = methods.into_iter().filter(|(name, _)| capabilities.get(name).is_some());
    let requests: Map<String, Value> =
        can_answer.map(|(name, method)| (name.to_owned(), json!({method: {}}))).collect();
    if requests.is_empty() {
        return capabilities.clone();
    }
    let tasks = json!({"list": {}, "cancel": {}, "requests": requests});
    capabilities.with("tasks", &RawJson::from(tasks))
}

impl InputTasks {
    /// Creates a task for a request, which `asking` puts to the caller; returns the result of the request.
    pub(super) fn create(
        &self,
        lifetime: Duration,
        asking: BoxFuture<'static, CallerAnswer>,
    ) -> Result<RawJson, RpcError> {
        let mut table = self.0.lock();
        if table.tasks.len() >= MAX_TASKS {
            let problem = "too many tasks; send the request without `task`";
            return Err(RpcError::new(code::INTERNAL_ERROR, problem));
        }
        table.n_created += 1;
        let task = Arc::new(InputTask {
            id: format!("input-{}", table.n_created),
            created: Timestamp::now(),
            lifetime,
            cancelled: CancellationToken::new(),
            answer: watch::Sender::new(None),
        });
        let created = RawJson::from(json!({"task": task.as_json()}));
        let work = tokio::spawn(run_task(Arc::downgrade(&self.0), Arc::clone(&task), asking));
        table.tasks.insert(task.id.clone(), InputTaskEntry { task, _work: AbortOnDropHandle::new(work) });
        Ok(created)
    }

    /// Answers a request of the server about its tasks.
    pub(super) async fn answer(&self, request: Request) -> CallerAnswer {
        if &*request.method == "tasks/list" {
            let tasks: Vec<Value> = self.0.lock().tasks.values().map(|entry| entry.task.as_json()).collect();
            return Ok(RawJson::from(json!({"tasks": tasks})));
        }
        let id = request.params.as_ref().and_then(|params| params.get("taskId"));
        let id = id.as_ref().and_then(RawJson::text).unwrap_or_default();
        let task = self.0.lock().tasks.get(&*id).map(|entry| Arc::clone(&entry.task));
        let task = task.ok_or_else(|| RpcError::invalid_params("unknown or expired task"))?;
        match &*request.method {
            "tasks/cancel" => {
                if task.status() != "working" {
                    return Err(RpcError::invalid_params("the task has already ended"));
                }
                task.cancelled.cancel();
                Ok(RawJson::from(task.as_json()))
            }
            "tasks/result" => task.wait().await,
            _ => Ok(RawJson::from(task.as_json())),
        }
    }
}

/// Waits for the answer of the caller, and keeps it until the task expires.
async fn run_task(
    table: Weak<Mutex<InputTaskTable>>,
    task: Arc<InputTask>,
    asking: BoxFuture<'static, CallerAnswer>,
) {
    let expires = time::Instant::now() + task.lifetime;
    tokio::select! {
        answer = asking => drop(task.answer.send_replace(Some((answer, Timestamp::now())))),
        () = task.cancelled.cancelled() => {}
        () = time::sleep_until(expires) => task.cancelled.cancel(),
    }
    time::sleep_until(expires).await;
    if let Some(table) = table.upgrade() {
        let removed = table.lock().tasks.remove(&task.id);
        drop(removed);
    }
}

impl InputTask {
    fn status(&self) -> &'static str {
        match &*self.answer.borrow() {
            Some((Ok(_), _)) => "completed",
            Some((Err(_), _)) => "failed",
            None if self.cancelled.is_cancelled() => "cancelled",
            None => "working",
        }
    }

    fn as_json(&self) -> Value {
        let updated = self.answer.borrow().as_ref().map_or(self.created, |(_, at)| *at);
        json!({
            "taskId": self.id,
            "status": self.status(),
            "createdAt": format!("{:.3}", self.created),
            "lastUpdatedAt": format!("{updated:.3}"),
            "ttl": u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX),
            "pollInterval": u64::try_from(POLL_INTERVAL.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Waits for the answer of the caller, which names the task.
    async fn wait(&self) -> CallerAnswer {
        let mut answers = self.answer.subscribe();
        let answered = self.cancelled.run_until_cancelled(answers.wait_for(Option::is_some)).await;
        let answer = match answered {
            Some(Ok(answer)) => answer.as_ref().map(|(answer, _)| answer.clone()),
            Some(Err(_)) | None => None,
        };
        let answer =
            answer.ok_or_else(|| RpcError::new(code::INTERNAL_ERROR, "the task was cancelled"))??;
        let own = answer.get("_meta").filter(RawJson::is_object).unwrap_or_else(RawJson::empty_object);
        let related = RawJson::from(json!({"taskId": self.id}));
        Ok(answer.with("_meta", &own.with(RELATED_TASK, &related)))
    }
}
