//! Tool calls that a server runs as tasks, polled until they complete.
//!
//! A server with sessions creates a task on request and returns the result on `tasks/result`. A stateless
//! server decides for itself, says so in its response and returns the result with the status of the task.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::Duration;

use pegboard_core::call::CallContext;
use pegboard_core::client::{Notice, ProgressUpdate};
use pegboard_core::entry::ToolEntry;
use pegboard_core::task::{DEFAULT_LIFETIME, ServerTask, TaskMode, TaskRefresher, TaskRefreshes};
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::client::{Era, McpClient, RequestOptions, input_requests};
use pegboard_wire::transport::TransportError;
use pegboard_wire::{
    MAX_INPUT_REQUESTS, MAX_INPUT_ROUNDS, PendingRequest, RequestError, ResponseEvent, RpcError, code,
};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::time;

use super::call::{AttemptError, collect_answers, read_response, strip_protocol_members, tool_failure};
use super::handle::LiveConnection;
use super::in_flight::{InFlightGuard, RELATED_TASK, without_meta_key};
use super::supervisor::client_capabilities;

/// Extension for tasks.
pub(super) const EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Default, minimum and maximum interval between two polls. The first poll is sent at once, and the interval grows from
/// the minimum to the one that the server gives.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_POLL_INTERVAL: Duration = Duration::from_mins(1);
/// Time limit for a request about a task.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of consecutive failed polls.
const MAX_POLL_FAILURES: usize = 3;
/// Time limit for cancelling a task.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a status message.
const MAX_MESSAGE_BYTES: usize = 2_000;

/// Task support of a tool on a server with sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskSupport {
    /// The tool never runs as a task.
    Never,
    /// The tool runs as a task on request.
    Optional,
    /// The tool always runs as a task.
    Required,
}

impl TaskSupport {
    /// Returns the support that a tool declares.
    fn of(tool: &ToolEntry) -> Self {
        let support = tool.definition().at(&["execution", "taskSupport"]);
        match support.as_ref().and_then(RawJson::text).as_deref() {
            Some("optional") => Self::Optional,
            Some("required") => Self::Required,
            _ => Self::Never,
        }
    }
}

/// Adds the request for a task to the parameters of a call, where the server expects it.
pub(super) fn with_task_request(
    params: &RawJson,
    tool: &ToolEntry,
    client: &McpClient,
    context: &CallContext,
) -> RawJson {
    let task_mode = context.client().task_mode();
    let is_wanted = || match TaskSupport::of(tool) {
        TaskSupport::Never => false,
        TaskSupport::Optional => task_mode.accepts_task(),
        TaskSupport::Required => true,
    };
    let accepts_tasks = || client.server().capabilities.at(&["tasks", "requests", "tools", "call"]).is_some();
    if client.era() == Era::Stateless || !is_wanted() || !accepts_tasks() {
        return params.clone();
    }
    let lifetime = match task_mode {
        TaskMode::Requested(lifetime) => lifetime,
        TaskMode::Hidden | TaskMode::Declined | TaskMode::Accepted => DEFAULT_LIFETIME,
    };
    let millis = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
    params.with("task", &RawJson::from(json!({"ttl": millis})))
}

/// Returns `true` if a call declares the task extension from the start, as only stateless servers expect it. For a caller
/// without task support it does so only if the tool requires a task.
pub(super) fn declares_tasks(tool: &ToolEntry, era: Era, context: &CallContext) -> bool {
    if era == Era::Session {
        return false;
    }
    match context.client().task_mode() {
        TaskMode::Declined => false,
        TaskMode::Hidden => TaskSupport::of(tool) == TaskSupport::Required,
        TaskMode::Accepted | TaskMode::Requested(_) => true,
    }
}

/// Returns `true` if a stateless server refused a call because it runs it as a task only, and the caller does not mind.
pub(super) fn must_declare_tasks(error: &RpcError, context: &CallContext) -> bool {
    let path = ["requiredCapabilities", "extensions", EXTENSION];
    error.code == code::MISSING_CAPABILITY
        && context.client().task_mode() == TaskMode::Hidden
        && error.data.as_ref().is_some_and(|data| data.at(&path).is_some())
}

/// Capabilities declared to a stateless server in requests about a task.
static TASK_CAPABILITIES: LazyLock<RawJson> = LazyLock::new(|| with_extension(&client_capabilities(false)));

/// Adds the task extension to the capabilities of a caller.
pub(super) fn with_extension(capabilities: &RawJson) -> RawJson {
    static WITHOUT_OTHERS: LazyLock<RawJson> =
        LazyLock::new(|| RawJson::from(json!({"extensions": {EXTENSION: {}}})));
    if capabilities.is_empty() {
        return WITHOUT_OTHERS.clone();
    }
    let extensions = capabilities.get("extensions").filter(RawJson::is_object);
    let extensions = extensions.unwrap_or_else(RawJson::empty_object);
    capabilities.with("extensions", &extensions.with(EXTENSION, &RawJson::empty_object()))
}

/// Marks a tool of a stateless server as capable of tasks if the server supports them: it decides for itself,
/// so a caller may ask for a task with any call.
pub(super) fn with_task_support(tool: RawJson, client: &McpClient) -> RawJson {
    let makes_tasks = client.server().capabilities.at(&["extensions", EXTENSION]).is_some();
    if makes_tasks && tool.get("execution").is_none() {
        return tool.with("execution", &RawJson::from(json!({"taskSupport": "optional"})));
    }
    tool
}

/// Returns the task that the response of a server with sessions announces, if any.
pub(super) fn created_task(result: &RawJson) -> Option<RawJson> {
    result.get("task").filter(|task| task.get("taskId").is_some())
}

/// Polls a task until it completes.
pub(super) struct TaskDriver<'a> {
    pub(super) live: &'a LiveConnection,
    pub(super) context: &'a CallContext,
    pub(super) guard: &'a InFlightGuard,
}

/// State of the polling of one task.
#[derive(Default)]
struct PollState {
    /// Names of the input requests that were put to the caller.
    handled_inputs: HashSet<String>,
    /// Last status message, and the number of different ones.
    last_message: Option<String>,
    n_messages: u32,
    /// Number of consecutive failed polls.
    n_failed: usize,
    /// Number of failed requests for the result. Polls that succeed in between do not reset it.
    n_failed_results: usize,
    /// Time until the next poll.
    delay: Duration,
    /// Stream of status notifications, once it was opened.
    listener: TaskListener,
}

impl PollState {
    /// Returns the time until the next poll, and lets it grow up to the interval of the server.
    fn next_delay(&mut self, poll_interval: Duration) -> Duration {
        let delay = self.delay.min(poll_interval);
        self.delay = (self.delay * 3 / 2).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL);
        delay
    }
}

/// Status notifications of a stateless server. A server with sessions sends them by itself.
#[derive(Default)]
enum TaskListener {
    /// Not opened yet: many tasks end before the second poll.
    #[default]
    Idle,
    Open(PendingRequest),
    /// The server does not send any.
    Closed,
}

impl TaskDriver<'_> {
    /// Polls a task until it completes. Dropping the future cancels the task.
    pub(super) async fn follow(&self, created: RawJson) -> Result<RawJson, AttemptError> {
        let id = text(&created, "taskId")
            .ok_or_else(|| tool_failure("the server created a task without an id"))?;
        self.guard.set_task_id(&id);
        let mut cancel = CancelOnDrop { client: Some(self.live.client().clone()), id: id.clone() };
        let era = self.live.client().era();
        let (refresher, mut status_requests) = TaskRefresher::new();
        let announced = ServerTask { refresher: Some(refresher), ..server_task(&created, era) };
        self.context.client().notify(Notice::Task(announced));
        let (mut state, mut task) = (PollState::default(), created);
        loop {
            self.report_progress(&task, &mut state);
            let poll_interval = server_task(&task, era).poll_interval.unwrap_or(POLL_INTERVAL);
            let status = text(&task, "status").unwrap_or_default();
            if status == "working" {
                status_requests.report_running();
            } else {
                status_requests.report_not_running();
            }
            match (status.as_str(), era) {
                ("working", _) => {
                    self.listen(&id, &mut state).await;
                    self.wait_to_poll(poll_interval, &mut state, &mut status_requests).await;
                }
                ("input_required", Era::Stateless) => {
                    if !self.answer_inputs(&id, &task, &mut state).await? {
                        self.wait_to_poll(poll_interval, &mut state, &mut status_requests).await;
                    }
                }
                ("completed" | "failed", Era::Stateless) => {
                    cancel.disarm();
                    return inline_result(&task);
                }
                // The server sends its input requests while the result is pending.
                ("completed" | "failed" | "input_required", Era::Session) => match self.result(&id).await {
                    Err(failure) => {
                        if let RequestError::Rpc(_) = failure {
                            cancel.disarm();
                        }
                        self.tolerate(failure, &mut state.n_failed_results)?;
                        self.wait_to_poll(poll_interval, &mut state, &mut status_requests).await;
                    }
                    Ok(result) => {
                        cancel.disarm();
                        return Ok(without_meta_key(&result, RELATED_TASK));
                    }
                },
                ("cancelled", _) => {
                    cancel.disarm();
                    return Err(tool_failure("the server cancelled the task"));
                }
                (unknown, _) => {
                    let unknown = clipped(unknown, 80);
                    return Err(tool_failure(format_args!(
                        "the server's task has the unknown status '{unknown}'"
                    )));
                }
            }
            task = self.poll(&id, poll_interval, &mut state, &mut status_requests).await?;
        }
    }

    /// Subscribes to status notifications of a stateless server, unless the task was just created.
    async fn listen(&self, id: &str, state: &mut PollState) {
        let client = self.live.client();
        if !matches!(state.listener, TaskListener::Idle)
            || state.delay.is_zero()
            || client.era() == Era::Session
        {
            return;
        }
        let params = RawJson::from(json!({"notifications": {"taskIds": [id]}}));
        let opened = client.request("subscriptions/listen", Some(params), task_options());
        state.listener = match time::timeout(REQUEST_TIMEOUT, opened).await {
            Ok(Ok(stream)) => TaskListener::Open(stream),
            Ok(Err(_)) | Err(_) => TaskListener::Closed,
        };
    }

    /// Returns the current status of the task. Failed polls are retried.
    async fn poll(
        &self,
        id: &str,
        poll_interval: Duration,
        state: &mut PollState,
        status_requests: &mut TaskRefreshes,
    ) -> Result<RawJson, AttemptError> {
        loop {
            match self.request("tasks/get", task_params(id)).await {
                Ok(task) => {
                    state.n_failed = 0;
                    return Ok(task);
                }
                Err(failure) => self.tolerate(failure, &mut state.n_failed)?,
            }
            self.wait_to_poll(poll_interval, state, status_requests).await;
        }
    }

    /// Waits for the next poll, or less if the server reports a change or the caller asks for the status.
    async fn wait_to_poll(
        &self,
        poll_interval: Duration,
        state: &mut PollState,
        status_requests: &mut TaskRefreshes,
    ) {
        let delay = state.next_delay(poll_interval);
        // The minimum interval applies even to a server that reports changes all the time.
        let minimum = delay.min(MIN_POLL_INTERVAL);
        time::sleep(minimum).await;
        tokio::select! {
            () = time::sleep(delay.saturating_sub(minimum)) => {}
            () = self.guard.task_changed() => {}
            () = status_requests.requested() => {}
            () = state.listener.forward(self.live) => {}
        }
    }

    /// Accepts and counts a failed request, unless there were too many or the server returned an error.
    fn tolerate(&self, failure: RequestError, n_failed: &mut usize) -> Result<(), AttemptError> {
        *n_failed += 1;
        let must_give_up = self.live.client().connection().is_closed() || *n_failed >= MAX_POLL_FAILURES;
        match failure {
            RequestError::Transport(
                TransportError::Failed { .. } | TransportError::Unreachable { .. } | TransportError::Closed,
            )
            | RequestError::Overloaded
                if !must_give_up =>
            {
                Ok(())
            }
            failure => Err(AttemptError::Failed(failure)),
        }
    }

    /// Returns the result of a task of a server with sessions, which may request input first.
    async fn result(&self, id: &str) -> Result<RawJson, RequestError> {
        let options = RequestOptions::default();
        let mut pending = self.live.client().request("tasks/result", Some(task_params(id)), options).await?;
        self.guard.set_request_id(pending.id());
        read_response(&mut pending, self.live, self.context).await
    }

    /// Asks the caller the new questions and sends the answers; returns `false` if there were none.
    async fn answer_inputs(
        &self,
        id: &str,
        task: &RawJson,
        state: &mut PollState,
    ) -> Result<bool, AttemptError> {
        let mut new_inputs = input_requests(task).map_err(tool_failure)?;
        new_inputs.retain(|(name, _)| state.handled_inputs.insert(name.clone()));
        if new_inputs.is_empty() {
            return Ok(false);
        }
        if state.handled_inputs.len() > MAX_INPUT_ROUNDS * MAX_INPUT_REQUESTS {
            return Err(tool_failure("the server kept requiring input"));
        }
        let answers = collect_answers(self.context, new_inputs).await?;
        let update = task_params(id).with("inputResponses", &answers);
        self.request("tasks/update", update).await.map_err(AttemptError::Failed)?;
        Ok(true)
    }

    /// Reports a new status message to the caller as progress.
    fn report_progress(&self, task: &RawJson, state: &mut PollState) {
        let status_message = text(task, "statusMessage");
        if status_message.is_some() && status_message != state.last_message {
            state.n_messages += 1;
            let message = status_message
                .as_deref()
                .map(|status_message| clipped(status_message, MAX_MESSAGE_BYTES).into_owned());
            let progress =
                ProgressUpdate { done: state.n_messages.into(), total: None, message, params: None };
            self.context.client().notify(Notice::Progress(progress));
            state.last_message = status_message;
        }
    }

    async fn request(&self, method: &str, params: RawJson) -> Result<RawJson, RequestError> {
        request(self.live.client(), method, params, REQUEST_TIMEOUT).await
    }
}

impl TaskListener {
    /// Passes notifications on to the calls that they belong to. Never completes.
    async fn forward(&mut self, live: &LiveConnection) {
        while let Self::Open(stream) = self {
            match stream.next_event().await {
                ResponseEvent::Notification(notice) => drop(live.in_flight().handle_notification(notice)),
                ResponseEvent::End(_) => *self = Self::Closed,
            }
        }
        std::future::pending::<()>().await;
    }
}

/// Sends a request about a task, with a time limit.
async fn request(
    client: &McpClient,
    method: &str,
    params: RawJson,
    limit: Duration,
) -> Result<RawJson, RequestError> {
    let response = async { client.request(method, Some(params), task_options()).await?.response().await };
    let timeout_error =
        |_| Err(TransportError::failed(format!("{method} was not answered within {limit:?}")).into());
    time::timeout(limit, response).await.unwrap_or_else(timeout_error)
}

fn task_options() -> RequestOptions {
    RequestOptions { capabilities: Some(TASK_CAPABILITIES.clone()), ..RequestOptions::default() }
}

/// Cancels a task when dropped, unless disarmed.
struct CancelOnDrop {
    client: Option<McpClient>,
    id: String,
}

impl CancelOnDrop {
    fn disarm(&mut self) {
        self.client = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && let Ok(handle) = Handle::try_current()
        {
            let params = task_params(&self.id);
            handle.spawn(async move {
                if let Err(error) = request(&client, "tasks/cancel", params, CANCEL_TIMEOUT).await {
                    tracing::debug!(%error, "Could not cancel a task.");
                }
            });
        }
    }
}

fn task_params(id: &str) -> RawJson {
    RawJson::empty_object().with("taskId", &RawJson::of(id))
}

fn text(object: &RawJson, name: &str) -> Option<String> {
    object.get(name)?.read().ok()
}

/// Reads the time to live and the poll interval of a task.
fn server_task(task: &RawJson, era: Era) -> ServerTask {
    let (time_to_live, poll_interval) = match era {
        Era::Session => ("ttl", "pollInterval"),
        Era::Stateless => ("ttlMs", "pollIntervalMs"),
    };
    let millis = |name: &str| Some(Duration::from_millis(task.get(name)?.read::<u64>().ok()?));
    ServerTask {
        time_to_live: millis(time_to_live),
        poll_interval: millis(poll_interval).map(|time| time.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)),
        message: text(task, "statusMessage")
            .map(|status_message| clipped(&status_message, MAX_MESSAGE_BYTES).into_owned()),
        refresher: None,
    }
}

/// Returns the result or the error that is part of the status of a task.
fn inline_result(task: &RawJson) -> Result<RawJson, AttemptError> {
    if let Some(error) = task.get("error").filter(|_| task.get("result").is_none()) {
        let error = error
            .read::<RpcError>()
            .map_err(|_| tool_failure("the server's task ended with an invalid error"))?;
        return Err(AttemptError::Failed(RequestError::Rpc(error)));
    }
    match task.get("result") {
        Some(result) if result.is_object() => Ok(strip_protocol_members(result)),
        _ => Err(tool_failure("the server's task ended without a result")),
    }
}
