//! Calls that clients have kept as tasks, in both forms that the protocol has had for them.
//!
//! A task is a running call that goes on without its client. Clients with a session ask for one, and for its result
//! when it is there. Clients without one are given a task where a server makes one, and its result with its state.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::task::lifetime;
use pegboard_json::RawJson;
use pegboard_wire::era::Revision;
use pegboard_wire::server::{ClientDescription, Reply, ServerRequest, SessionId};
use pegboard_wire::{RpcError, code};
use serde_json::{Value, json};

use end::End;
pub(crate) use table::{Job, Table, Words, wanted};
use task::Task;

mod end;
mod open;
mod table;
mod task;
mod words;

/// The name of the extension.
pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Whose task it is, in the form that its client knows. Nobody else finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The experiment of 2025-11-25, for the client of one session.
    Session(SessionId),
    /// The extension, for whoever this is.
    Extension {
        /// The principal within its tenant.
        owner: String,
    },
}

impl Form {
    /// The form that the client of a request knows.
    fn of(request: &ServerRequest, owner: &str) -> Result<Self, RpcError> {
        match (request.revision, &request.session) {
            (Revision::V2025_11_25, Some(session)) => Ok(Self::Session(session.clone())),
            (Revision::V2026_07_28, _) if takes_tasks(&request.client) => {
                Ok(Self::Extension { owner: owner.to_owned() })
            }
            (Revision::V2026_07_28, _) => Err(lacking_extension()),
            _ => Err(RpcError::method_not_found(&request.method)),
        }
    }
}

/// Whether a client without a session says that it takes tasks.
pub(crate) fn takes_tasks(client: &ClientDescription) -> bool {
    client.capabilities.at(&["extensions", EXTENSION]).is_some()
}

/// What a revision wants to hear of tasks among the capabilities.
pub(crate) fn describe(revision: Revision, capabilities: &mut Value) {
    match revision {
        Revision::V2024_11_05 | Revision::V2025_03_26 | Revision::V2025_06_18 => {}
        Revision::V2025_11_25 => {
            capabilities["tasks"] = json!({"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}});
        }
        Revision::V2026_07_28 => capabilities["extensions"][EXTENSION] = json!({}),
    }
}

/// How long a client wants a call kept as a task; `None` if it wants none. `definition` is the tool as it is listed.
pub(crate) fn wish(
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
            Some(millis.map_err(|_| RpcError::invalid_params("task.ttl must be whole milliseconds"))?)
        }
    };
    let support = definition().and_then(|tool| tool.at(&["execution", "taskSupport"]));
    match support.as_ref().and_then(RawJson::text).as_deref() {
        Some("optional" | "required") => Ok(Some(lifetime(millis.map(Duration::from_millis)))),
        _ => Err(RpcError::new(
            code::METHOD_NOT_FOUND,
            "This tool does not run as a task; call it without `task`",
        )),
    }
}

/// Answers the methods about tasks.
pub(crate) async fn answer(
    table: Arc<Table>,
    request: ServerRequest,
    owner: String,
) -> Result<Reply, RpcError> {
    let is_known = match (&*request.method, request.revision.is_stateless()) {
        ("tasks/get" | "tasks/cancel", _) => true,
        ("tasks/list" | "tasks/result", is_stateless) => !is_stateless,
        ("tasks/update", is_stateless) => is_stateless,
        _ => false,
    };
    if !is_known {
        return Err(RpcError::method_not_found(&request.method));
    }
    let form = Form::of(&request, &owner)?;
    if &*request.method == "tasks/list" {
        return list(&table, &form, &request.params);
    }
    let id = request.params.get("taskId").and_then(|id| id.read::<String>().ok());
    let id = id.ok_or_else(|| RpcError::invalid_params("taskId must be the id of a task"))?;
    let task = table.find(&form, &id)?;
    match &*request.method {
        "tasks/get" => Ok(Reply::Result(words::detailed(&task))),
        "tasks/cancel" => cancel(&task),
        "tasks/result" => result(&task, request.answers.as_ref()).await,
        _ => {
            let answers = request.params.get("inputResponses").filter(RawJson::is_object);
            let answers =
                answers.ok_or_else(|| RpcError::invalid_params("inputResponses must be an object"))?;
            task.take_answers(&answers);
            Ok(Reply::Result(RawJson::empty_object()))
        }
    }
}

fn list(table: &Table, form: &Form, params: &RawJson) -> Result<Reply, RpcError> {
    let cursor = match params.get("cursor") {
        None => None,
        Some(cursor) => {
            let cursor = cursor.read::<String>();
            Some(cursor.map_err(|_| RpcError::invalid_params("cursor must be a text"))?)
        }
    };
    let (tasks, next) = table.page(form, cursor.as_deref())?;
    let tasks = crate::surface::array(tasks.iter().map(|task| words::detailed(task)));
    let page = RawJson::empty_object().with("tasks", &tasks);
    Ok(Reply::Result(match next {
        Some(next) => page.with("nextCursor", &RawJson::of(&next)),
        None => page,
    }))
}

fn cancel(task: &Task) -> Result<Reply, RpcError> {
    let is_cancelled = task.cancel();
    match task.form() {
        Form::Session(_) if is_cancelled => Ok(Reply::Result(words::detailed(task))),
        Form::Session(_) => {
            let problem = format!("the task is over already, with status '{}'", words::status(task));
            Err(RpcError::invalid_params(problem))
        }
        Form::Extension { .. } => Ok(Reply::Result(RawJson::empty_object())),
    }
}

/// Waits for the end of a task, and asks what it wants to know on the way.
async fn result(task: &Task, answers: Option<&RawJson>) -> Result<Reply, RpcError> {
    if let Some(answers) = answers {
        task.take_answers(answers);
    }
    match task.settled().await {
        None => Ok(Reply::InputRequired { questions: words::related_questions(task), state: None }),
        Some(End::Completed(result)) => Ok(Reply::Result(words::related_result(task, &result))),
        Some(End::Failed(error)) => Err(error),
        Some(End::Cancelled) => Err(RpcError::new(code::INTERNAL_ERROR, "The task was cancelled")),
    }
}

fn lacking_extension() -> RpcError {
    let message = format!("The client lacks the extension '{EXTENSION}' that this request needs");
    let data = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    RpcError::new(code::MISSING_CAPABILITY, message).with_data(data)
}
