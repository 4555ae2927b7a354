//! Calls that a server makes tasks of, driven to their end.
//!
//! A server with sessions makes a task where it is asked to, and gives the result when it is asked for that. One
//! without decides for itself, says so in its answer, and gives the result with the state of the task.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use pegboard_core::call::CallContext;
use pegboard_core::client::{Notice, Progress};
use pegboard_core::entry::ToolEntry;
use pegboard_core::task::{DEFAULT_LIFETIME, ServerTask, TaskUse};
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::client::{Client, Era, RequestOptions};
use pegboard_wire::link::TransportError;
use pegboard_wire::{Failure, RpcError};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::time;

use super::call::{Stop, answer, answers_to, failed, without_own_members};
use super::keeper::capabilities;
use super::life::Live;
use super::traffic::{RELATED_TASK, Ticket, without_meta};

/// The extension that knows tasks.
pub(super) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// How often a server is asked how a task is, if it does not say how often it may be; and at most and at least.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_POLL_INTERVAL: Duration = Duration::from_mins(1);
/// How long a server may take to say how a task is.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often in a row that may go wrong.
const MAX_FAILED: usize = 3;
/// How long it may take to call a task off.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of what a server says of a task is told.
const MAX_MESSAGE_BYTES: usize = 2_000;

/// Whether a tool of a server with sessions runs as a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Support {
    /// It does not.
    Never,
    /// It does if it is asked to.
    Optional,
    /// It runs as nothing else.
    Required,
}

impl Support {
    /// What a tool says of itself.
    fn of(tool: &ToolEntry) -> Self {
        let said = tool.definition().at(&["execution", "taskSupport"]);
        match said.as_ref().and_then(RawJson::text).as_deref() {
            Some("optional") => Self::Optional,
            Some("required") => Self::Required,
            _ => Self::Never,
        }
    }
}

/// The parameters of a call, with the wish for a task where the server wants to hear it.
pub(super) fn asking(params: &RawJson, tool: &ToolEntry, client: &Client, context: &CallContext) -> RawJson {
    let can = || client.server().capabilities.at(&["tasks", "requests", "tools", "call"]).is_some();
    if client.era() == Era::Stateless || !can() {
        return params.clone();
    }
    let task_use = context.client().task_use();
    let is_wanted = match Support::of(tool) {
        Support::Never => false,
        Support::Optional => task_use.may_be_task(),
        Support::Required => true,
    };
    if !is_wanted {
        return params.clone();
    }
    let lifetime = match task_use {
        TaskUse::Wanted(lifetime) => lifetime,
        TaskUse::Hidden | TaskUse::Declined | TaskUse::Taken => DEFAULT_LIFETIME,
    };
    let millis = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    params.with("task", &RawJson::from(json!({"ttl": millis})))
}

/// What a server without sessions is told that the caller can do, for a call that may become a task.
pub(super) fn declared(own: RawJson, context: &CallContext) -> RawJson {
    match context.client().task_use() {
        TaskUse::Declined => own,
        TaskUse::Hidden | TaskUse::Taken | TaskUse::Wanted(_) => with_extension(&own),
    }
}

/// What a server without sessions is told with a question about a task.
static DECLARED: LazyLock<RawJson> = LazyLock::new(|| with_extension(&capabilities()));

fn with_extension(capabilities: &RawJson) -> RawJson {
    let extensions = capabilities.get("extensions").filter(RawJson::is_object);
    let extensions = extensions.unwrap_or_else(RawJson::empty_object);
    capabilities.with("extensions", &extensions.with(EXTENSION, &RawJson::empty_object()))
}

/// A tool of a server without sessions as those know it who ask for tasks. Where the server makes tasks, it decides for
/// itself; so whoever asks may have one kept of any call.
pub(super) fn marked(tool: RawJson, client: &Client) -> RawJson {
    let makes_tasks = client.server().capabilities.at(&["extensions", EXTENSION]).is_some();
    if makes_tasks && tool.get("execution").is_none() {
        return tool.with("execution", &RawJson::from(json!({"taskSupport": "optional"})));
    }
    tool
}

/// The task that an answer of a server with sessions announces, if it does.
pub(super) fn created(result: &RawJson) -> Option<RawJson> {
    result.get("task").filter(|task| task.get("taskId").is_some())
}

/// A task of a server, while it is driven to its end.
pub(super) struct Drive<'a> {
    pub(super) live: &'a Live,
    pub(super) context: &'a CallContext,
    pub(super) ticket: &'a Ticket,
}

/// What has been seen of a task so far.
#[derive(Default)]
struct Seen {
    /// The questions that were put to the caller.
    asked: HashSet<String>,
    /// What the server said last, and how often it said something else.
    said: Option<String>,
    n_said: u32,
    /// How often in a row the server could not be asked.
    n_failed: usize,
}

impl Drive<'_> {
    /// Follows a task to its end. Dropping the future calls it off.
    pub(super) async fn follow(&self, created: RawJson) -> Result<RawJson, Stop> {
        let id = text(&created, "taskId").ok_or_else(|| failed("the server made a task without an id"))?;
        self.ticket.is_task(&id);
        let mut cancel = Cancel { client: Some(self.live.client().clone()), id: id.clone() };
        let era = self.live.client().era();
        self.context.client().notify(Notice::Task(note(&created, era)));
        let (mut seen, mut task) = (Seen::default(), created);
        loop {
            self.tell(&task, &mut seen);
            let pause = note(&task, era).poll_interval.unwrap_or(POLL_INTERVAL);
            match (text(&task, "status").unwrap_or_default().as_str(), era) {
                ("working", _) => self.pause(pause).await,
                ("input_required", Era::Stateless) => {
                    if !self.answer(&id, &task, &mut seen).await? {
                        self.pause(pause).await;
                    }
                }
                ("completed" | "failed", Era::Stateless) => {
                    cancel.disarm();
                    return inlined(&task);
                }
                // It asks whoever waits for its result.
                ("completed" | "failed" | "input_required", Era::Session) => match self.result(&id).await {
                    Err(failure) => {
                        if let Failure::Refused(_) = failure {
                            cancel.disarm();
                        }
                        self.bear(failure, &mut seen)?;
                    }
                    Ok(result) => {
                        cancel.disarm();
                        return Ok(without_meta(&result, RELATED_TASK));
                    }
                },
                ("cancelled", _) => {
                    cancel.disarm();
                    return Err(failed("the server cancelled the task"));
                }
                (unknown, _) => {
                    let unknown = clipped(unknown, 80);
                    return Err(failed(format_args!(
                        "the server's task is in the unknown state '{unknown}'"
                    )));
                }
            }
            task = self.look(&id, pause, &mut seen).await?;
        }
    }

    /// How the task is now. A server that cannot be asked at once is asked again.
    async fn look(&self, id: &str, pause: Duration, seen: &mut Seen) -> Result<RawJson, Stop> {
        loop {
            match self.ask("tasks/get", about(id)).await {
                Ok(task) => {
                    seen.n_failed = 0;
                    return Ok(task);
                }
                Err(failure) => self.bear(failure, seen)?,
            }
            self.pause(pause).await;
        }
    }

    /// Waits before the server is asked again, but not if it says that there is news.
    async fn pause(&self, time: Duration) {
        // A server that says so all the time is not asked all the time.
        time::sleep(MIN_POLL_INTERVAL).await;
        let _ = time::timeout(time.saturating_sub(MIN_POLL_INTERVAL), self.ticket.news()).await;
    }

    /// Takes it that a request was lost, unless that has happened too often or the server refused.
    fn bear(&self, failure: Failure, seen: &mut Seen) -> Result<(), Stop> {
        seen.n_failed += 1;
        let is_over = self.live.client().connection().is_closed() || seen.n_failed >= MAX_FAILED;
        match failure {
            Failure::Lost(TransportError::Failed { .. } | TransportError::Closed) | Failure::Overloaded
                if !is_over =>
            {
                Ok(())
            }
            failure => Err(Stop::Failed(failure)),
        }
    }

    /// The result of a task of a server with sessions, which may ask things before it gives it.
    async fn result(&self, id: &str) -> Result<RawJson, Failure> {
        let options = RequestOptions::default();
        let mut exchange = self.live.client().request("tasks/result", Some(about(id)), options).await?;
        self.ticket.is_request(exchange.id());
        answer(&mut exchange, self.live, self.context).await
    }

    /// Puts to the caller what it was not asked yet, and gives the server the answers; `false` if all was asked.
    async fn answer(&self, id: &str, task: &RawJson, seen: &mut Seen) -> Result<bool, Stop> {
        let asked = task.get("inputRequests").unwrap_or_else(RawJson::empty_object);
        let news = asked.names().into_iter().filter(|name| seen.asked.insert(name.clone()));
        let news = news.fold(RawJson::empty_object(), |all, name| match asked.get(&name) {
            Some(question) => all.with(&name, &question),
            None => all,
        });
        if news.names().is_empty() {
            return Ok(false);
        }
        let answers = answers_to(self.context, &news).await?;
        let update = about(id).with("inputResponses", &answers);
        self.ask("tasks/update", update).await.map_err(Stop::Failed)?;
        Ok(true)
    }

    /// Tells the caller what the server says of the task, if that is news.
    fn tell(&self, task: &RawJson, seen: &mut Seen) {
        let said = text(task, "statusMessage");
        if said.is_some() && said != seen.said {
            seen.n_said += 1;
            let message = said.as_deref().map(|said| clipped(said, MAX_MESSAGE_BYTES).into_owned());
            let progress = Progress { done: seen.n_said.into(), total: None, message };
            self.context.client().notify(Notice::Progress(progress));
            seen.said = said;
        }
    }

    async fn ask(&self, method: &str, params: RawJson) -> Result<RawJson, Failure> {
        request(self.live.client(), method, params, REQUEST_TIMEOUT).await
    }
}

/// A request about a task, within a limit.
async fn request(
    client: &Client,
    method: &str,
    params: RawJson,
    limit: Duration,
) -> Result<RawJson, Failure> {
    let capabilities = Some(DECLARED.clone());
    let options = RequestOptions { capabilities, ..RequestOptions::default() };
    let asked = async { client.request(method, Some(params), options).await?.answer().await };
    let late = |_| Err(TransportError::failed(format!("{method} was not answered within {limit:?}")).into());
    time::timeout(limit, asked).await.unwrap_or_else(late)
}

/// Calls a task off when it is dropped before its end.
struct Cancel {
    client: Option<Client>,
    id: String,
}

impl Cancel {
    fn disarm(&mut self) {
        self.client = None;
    }
}

impl Drop for Cancel {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && let Ok(handle) = Handle::try_current()
        {
            let params = about(&self.id);
            handle.spawn(async move {
                if let Err(error) = request(&client, "tasks/cancel", params, CANCEL_TIMEOUT).await {
                    tracing::debug!(%error, "A task could not be called off.");
                }
            });
        }
    }
}

fn about(id: &str) -> RawJson {
    RawJson::empty_object().with("taskId", &RawJson::of(id))
}

fn text(object: &RawJson, name: &str) -> Option<String> {
    object.get(name)?.read().ok()
}

/// What a server says of how long it keeps a task, and how often it may be asked.
fn note(task: &RawJson, era: Era) -> ServerTask {
    let (time_to_live, poll_interval) = match era {
        Era::Session => ("ttl", "pollInterval"),
        Era::Stateless => ("ttlMs", "pollIntervalMs"),
    };
    let millis = |name: &str| Some(Duration::from_millis(task.get(name)?.read::<u64>().ok()?));
    ServerTask {
        time_to_live: millis(time_to_live),
        poll_interval: millis(poll_interval).map(|time| time.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)),
        message: text(task, "statusMessage").map(|said| clipped(&said, MAX_MESSAGE_BYTES).into_owned()),
    }
}

/// The result that stands in the state of a task, or the error.
fn inlined(task: &RawJson) -> Result<RawJson, Stop> {
    if let Some(error) = task.get("error").filter(|_| task.get("result").is_none()) {
        let error = error
            .read::<RpcError>()
            .map_err(|_| failed("the server's task ended with an error that is none"))?;
        return Err(Stop::Failed(Failure::Refused(error)));
    }
    match task.get("result") {
        Some(result) if result.is_object() => Ok(without_own_members(&result)),
        _ => Err(failed("the server's task ended without a result")),
    }
}
