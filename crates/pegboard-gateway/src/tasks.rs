//! Tool calls that run as tasks, in both protocol forms.
//!
//! A task is a running call that continues without its client. Session clients (2025-11-25) request a task
//! and fetch its result later. Stateless clients (the extension) get a task if the server creates one, and
//! read its result with its state.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::owner::Owner;
use pegboard_core::task::clamp_lifetime;
use pegboard_json::RawJson;
use pegboard_wire::era::Era;
use pegboard_wire::era::Revision;
use pegboard_wire::server::{ClientDescription, ClientSessionId, ServerRequest, ServiceReply};
use pegboard_wire::{RpcError, code};
use serde_json::{Value, json};

use outcome::TaskOutcome;
pub(crate) use table::{ResultRenderer, TaskCall, TaskTable, new_server_task};
use task::GatewayTask;

mod outcome;
mod pending;
mod table;
mod task;
mod wire_format;

/// Name of the extension.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Owner of a task, in the form that its client uses. Tasks are visible to their owner only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TaskOwner {
    /// The 2025-11-25 experiment: the client of one session.
    Session(ClientSessionId),
    /// The extension: all clients of a principal.
    Extension {
        /// Owner of the tasks.
        owner: Owner,
    },
}

impl TaskOwner {
    /// Returns the owner for the client of a request.
    fn from_request(request: &ServerRequest, owner: Owner) -> Result<Self, RpcError> {
        match (request.revision, &request.session) {
            (Revision::V2025_11_25, Some(session)) => Ok(Self::Session(session.clone())),
            (Revision::V2026_07_28, _) if supports_tasks(&request.client) => Ok(Self::Extension { owner }),
            (Revision::V2026_07_28, _) => Err(missing_extension()),
            _ => Err(RpcError::method_not_found(&request.method)),
        }
    }
}

/// Returns `true` if a stateless client supports tasks.
pub(crate) fn supports_tasks(client: &ClientDescription) -> bool {
    client.capabilities.at(&["extensions", EXTENSION]).is_some()
}

/// Adds the task capability of a revision.
pub(crate) fn add_capability(revision: Revision, capabilities: &mut Value) {
    match revision {
        Revision::V2024_11_05 | Revision::V2025_03_26 | Revision::V2025_06_18 => {}
        Revision::V2025_11_25 => {
            capabilities["tasks"] = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        }
        Revision::V2026_07_28 => capabilities["extensions"][EXTENSION] = json!({}),
    }
}

/// Returns the requested time to live of a task; `None` if the request wants none. `definition` returns the
/// tool as listed.
pub(crate) fn requested_ttl(
    request: &ServerRequest,
    definition: impl FnOnce() -> Option<RawJson>,
) -> Result<Option<Duration>, RpcError> {
    let Some(task) = request.params.get("task").filter(|_| request.revision == Revision::V2025_11_25) else {
        return Ok(None);
    };
    if !task.is_object() {
        return Err(RpcError::invalid_params("task must be an object"));
    }
    let millis = match task.get("ttl").filter(|ttl| ttl.as_str() != "null") {
        None => None,
        Some(ttl) => {
            let millis = ttl.read::<u64>();
            Some(millis.map_err(|_| {
                RpcError::invalid_params("task.ttl must be an integer number of milliseconds")
            })?)
        }
    };
    let support = definition().and_then(|tool| tool.at(&["execution", "taskSupport"]));
    match support.as_ref().and_then(RawJson::text).as_deref() {
        Some("optional" | "required") => Ok(Some(clamp_lifetime(millis.map(Duration::from_millis)))),
        _ => Err(RpcError::new(
            code::METHOD_NOT_FOUND,
            "this tool does not support tasks; call it without `task`",
        )),
    }
}

/// Answers the `tasks/…` methods.
pub(crate) async fn answer(
    table: Arc<TaskTable>,
    request: ServerRequest,
    owner: Owner,
) -> Result<ServiceReply, RpcError> {
    let is_known = match &*request.method {
        "tasks/get" | "tasks/cancel" => true,
        "tasks/list" | "tasks/result" => request.revision.era() == Era::Session,
        "tasks/update" => request.revision.era() == Era::Stateless,
        _ => false,
    };
    if !is_known {
        return Err(RpcError::method_not_found(&request.method));
    }
    let owner = TaskOwner::from_request(&request, owner)?;
    if &*request.method == "tasks/list" {
        return list(&table, &owner, &request.params);
    }
    let id = request.params.get("taskId").and_then(|id| id.read::<String>().ok());
    let id = id.ok_or_else(|| RpcError::invalid_params("taskId must be the id of a task"))?;
    let task = table.find(&owner, &id)?;
    match &*request.method {
        "tasks/get" => {
            task.refresh().await;
            Ok(ServiceReply::Result(wire_format::detailed(&task)))
        }
        "tasks/cancel" => cancel(&task),
        "tasks/result" => result(&task, request.input_responses.as_ref()).await,
        _ => {
            let answers = request.params.get("inputResponses").filter(RawJson::is_object);
            let answers =
                answers.ok_or_else(|| RpcError::invalid_params("inputResponses must be an object"))?;
            task.take_answers(&answers);
            Ok(ServiceReply::Result(RawJson::empty_object()))
        }
    }
}

fn list(table: &TaskTable, owner: &TaskOwner, params: &RawJson) -> Result<ServiceReply, RpcError> {
    let cursor = match params.get("cursor") {
        None => None,
        Some(cursor) => {
            let cursor = cursor.read::<String>();
            Some(cursor.map_err(|_| RpcError::invalid_params("cursor must be a string"))?)
        }
    };
    let (tasks, next) = table.page(owner, cursor.as_deref())?;
    let tasks = crate::surface::json_array(tasks.iter().map(|task| wire_format::detailed(task)));
    let page = RawJson::empty_object().with("tasks", &tasks);
    Ok(ServiceReply::Result(match next {
        Some(next) => page.with("nextCursor", &RawJson::of(&next)),
        None => page,
    }))
}

fn cancel(task: &GatewayTask) -> Result<ServiceReply, RpcError> {
    let is_cancelled = task.cancel();
    match task.owner() {
        TaskOwner::Session(_) if is_cancelled => Ok(ServiceReply::Result(wire_format::detailed(task))),
        TaskOwner::Session(_) => {
            let problem = format!("the task has already ended with status '{}'", wire_format::status(task));
            Err(RpcError::invalid_params(problem))
        }
        TaskOwner::Extension { .. } => Ok(ServiceReply::Result(RawJson::empty_object())),
    }
}

/// Waits for the outcome of a task, and asks for pending input on the way.
async fn result(task: &GatewayTask, answers: Option<&RawJson>) -> Result<ServiceReply, RpcError> {
    if let Some(answers) = answers {
        task.take_answers(answers);
    }
    match task.wait_for_outcome().await {
        None => Ok(ServiceReply::InputRequired {
            input_requests: wire_format::related_questions(task),
            state: None,
        }),
        Some(TaskOutcome::Completed(result)) => {
            Ok(ServiceReply::Result(wire_format::related_result(task, &result)))
        }
        Some(TaskOutcome::Failed(error)) => Err(error),
        Some(TaskOutcome::Cancelled) => Err(RpcError::new(code::INTERNAL_ERROR, "the task was cancelled")),
    }
}

fn missing_extension() -> RpcError {
    let message = format!("The client lacks the extension '{EXTENSION}' that this request needs");
    let data = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    RpcError::new(code::MISSING_CAPABILITY, message).with_data(data)
}
