//! Tool calls and other requests to a server.

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures_util::future::FutureExt;
use pegboard_core::call::{CallContext, ValidCall};
use pegboard_core::client::{InputRequest, InputRequests};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ProtocolError, ToolError};
use pegboard_core::provider::ProviderRequest;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::client::{Era, RequestOptions, input_requests, next_round_params};
use pegboard_wire::era::{LogLevel, meta};
use pegboard_wire::http::client::AuthorizationError;
use pegboard_wire::transport::TransportError;
use pegboard_wire::{MAX_INPUT_ROUNDS, PendingRequest, RequestError, ResponseEvent, RpcError};
use tokio::time::Instant;

use super::connect::login_hint;
use super::handle::{CloseReason, LiveConnection, ServerHandle};
use super::in_flight::{InFlightGuard, notify_caller};
use super::listen::{send_log_level, supports_logging};
use super::probe::is_responsive;
use super::supervisor::client_capabilities;
use super::tasks::{self, TaskDriver};
use super::url_elicitation::complete_url_elicitations;

/// Method of a tool call.
const CALL_METHOD: &str = "tools/call";
/// Maximum length of a server's error message.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// A call or other request to a server.
pub(super) struct ServerCall<'a> {
    method: &'a str,
    /// Parameters without `_meta`.
    params: RawJson,
    /// Custom fields of `_meta`.
    meta: Option<RawJson>,
    context: &'a CallContext,
    retry_safety: RetrySafety,
    /// The request changes a setting of the session, so no message from the server relates to it.
    is_setting: bool,
    /// The called tool, if this is a tool call, which may become a task.
    tool: Option<&'a ToolEntry>,
}

/// Safety of sending a request twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetrySafety {
    /// Repeating it has no further effect.
    Safe,
    /// Not known to be safe.
    Unknown,
}

impl<'a> ServerCall<'a> {
    /// Creates a tool call, with the server's name of the tool and the arguments as the caller wrote them.
    pub(super) fn call(call: &'a ValidCall) -> Self {
        let name = RawJson::of(call.entry().name());
        let arguments = call.raw_arguments();
        let members = [("name", &name), ("arguments", arguments)];
        let has_arguments = arguments.as_bytes() != b"null";
        let params = RawJson::object(if has_arguments { &members } else { &members[..1] });
        let custom = call.context().client().request_meta().and_then(|meta| meta.custom.as_ref());
        let meta = with_trace_parent(call.context(), custom);
        let annotations = call.entry().annotations();
        let is_safe = annotations.read_only == Some(true) || annotations.idempotent == Some(true);
        let retry_safety = if is_safe { RetrySafety::Safe } else { RetrySafety::Unknown };
        let tool = Some(&**call.entry());
        let context = call.context();
        Self { method: CALL_METHOD, params, meta, context, retry_safety, is_setting: false, tool }
    }

    /// Creates a request that is not a tool call.
    pub(super) fn request(
        request: &'a ProviderRequest,
        context: &'a CallContext,
        retry_safety: RetrySafety,
    ) -> Self {
        let meta = with_trace_parent(context, request.params.get("_meta").as_ref());
        let params = request.params.without("_meta");
        let is_setting = request.method.outlives_response();
        Self { method: request.method.as_str(), params, meta, context, retry_safety, is_setting, tool: None }
    }

    /// Returns the word for it in error messages.
    fn noun(&self) -> &'static str {
        if self.method == CALL_METHOD { "call" } else { "request" }
    }
}

/// Returns the custom fields of `_meta` with the trace parent of the call. The caller's own stays if there is
/// no other.
fn with_trace_parent(context: &CallContext, custom: Option<&RawJson>) -> Option<RawJson> {
    let Some(parent) = &context.trace_parent else { return custom.cloned() };
    let custom = custom.cloned().unwrap_or_else(RawJson::empty_object);
    Some(custom.with("traceparent", &RawJson::of(&parent.to_string())))
}

/// The reason an attempt has no result.
pub(super) enum AttemptError {
    /// The server never received it; `reason` is the problem with the connection.
    NotDelivered { reason: CloseReason },
    /// The server could not be reached, so it never received it. The connection may still work for others.
    Unreachable { why: String },
    /// The server rejected it or does not know the session any more: some servers use the same status for
    /// both.
    Rejected(RequestError),
    /// The server may have received it.
    Failed(RequestError),
    /// Any other error, which is final.
    Final(CallError),
}

/// A request that passes on the reason if its caller cancels it.
struct CancellableRequest<'c> {
    pending: PendingRequest,
    context: &'c CallContext,
}

impl Drop for CancellableRequest<'_> {
    fn drop(&mut self) {
        if self.pending.is_awaited()
            && let Some(reason) = self.context.client().cancel_reason()
        {
            self.pending.set_cancel_reason(reason);
        }
    }
}

/// Requests a liveness probe if the call is dropped because it is overdue.
struct LivenessProbeGuard<'l> {
    live: &'l LiveConnection,
    context: &'l CallContext,
}

impl Drop for LivenessProbeGuard<'_> {
    fn drop(&mut self) {
        if self.context.tools.as_ref().is_some_and(|tools| tools.is_overdue()) {
            self.live.in_flight().request_probe();
        }
    }
}

impl AttemptError {
    /// Classifies the failure of a request that the server may not have accepted.
    fn of_first_round(failure: RequestError, era: Era) -> Self {
        match failure {
            RequestError::Transport(TransportError::Status { status: 404, .. }) if era == Era::Session => {
                Self::NotDelivered { reason: CloseReason::SessionExpired }
            }
            RequestError::Transport(TransportError::Status { status: 400, .. }) if era == Era::Session => {
                Self::Rejected(failure)
            }
            RequestError::Transport(TransportError::Unreachable { what }) => Self::Unreachable { why: what },
            failure => Self::Failed(failure),
        }
    }

    /// Returns `true` if the server has not executed the call.
    fn is_undelivered(&self) -> bool {
        matches!(self, Self::NotDelivered { .. } | Self::Unreachable { .. } | Self::Rejected(_))
    }

    /// Returns `true` if the connection was lost while the server may have been executing the call.
    fn is_connection_loss(&self) -> bool {
        matches!(
            self,
            Self::Failed(RequestError::Transport(TransportError::Closed | TransportError::Failed { .. }))
        )
    }
}

impl ServerHandle {
    /// Executes a call. It is sent once more if the server never received it, or if the connection was lost
    /// and repeating it is safe. If it cannot be sent once more after a loss, that loss is the error.
    pub(super) async fn execute(&self, call: &ServerCall<'_>) -> Result<RawJson, CallError> {
        let live = match self.connection() {
            Some(live) => live,
            // Boxed like all that few calls need, so that the future of every other call stays small.
            None => Box::pin(self.until_overdue(call.context, self.ready())).await?,
        };
        let mut lost = None;
        let next = match self.attempt(&live, call).await {
            Ok(result) => return Ok(result),
            Err(AttemptError::NotDelivered { reason }) => {
                live.request_close(reason);
                Box::pin(self.until_overdue(call.context, self.next_connection(&live))).await?
            }
            Err(AttemptError::Rejected(_)) => {
                Box::pin(self.until_overdue(call.context, self.renew(&live, CloseReason::SessionExpired)))
                    .await?
            }
            Err(AttemptError::Unreachable { why }) => {
                Box::pin(self.until_overdue(call.context, self.renew(&live, CloseReason::Lost { why })))
                    .await?
            }
            Err(attempt_error)
                if attempt_error.is_connection_loss() && call.retry_safety == RetrySafety::Safe =>
            {
                let Ok(next) = Box::pin(self.reconnect_after_loss(&live)).await else {
                    return Err(self.call_error(&live, call, attempt_error));
                };
                lost = Some(Box::new(attempt_error));
                next
            }
            Err(attempt_error) => return Err(self.call_error(&live, call, attempt_error)),
        };
        let result = Box::pin(self.attempt(&next, call)).await;
        result.map_err(|attempt_error| {
            let is_undelivered = attempt_error.is_undelivered();
            let error = self.call_error(&next, call, attempt_error);
            match lost {
                // The tool may have run at the first attempt, which the error of the second would deny.
                Some(lost) if is_undelivered => self.call_error(&live, call, *lost),
                _ => error,
            }
        })
    }

    /// Waits for a connection, at most as long as the call may take. The start goes on without it.
    pub(super) async fn until_overdue(
        &self,
        context: &CallContext,
        connecting: impl Future<Output = Result<LiveConnection, CallError>>,
    ) -> Result<LiveConnection, CallError> {
        let is_overdue = || context.tools.as_ref().is_some_and(|tools| tools.is_overdue());
        let mut connecting = pin!(connecting);
        let mut pending_since: Option<Instant> = None;
        let connected = poll_fn(|poll_context| match connecting.as_mut().poll(poll_context) {
            Poll::Pending => {
                pending_since.get_or_insert_with(Instant::now);
                // Polled once more when the time of the call is up.
                if is_overdue() { Poll::Ready(Err(self.still_starting())) } else { Poll::Pending }
            }
            ready @ Poll::Ready(_) => ready,
        })
        .await;
        if let (Some(since), Some(tools)) = (pending_since, &context.tools) {
            tools.record_start_wait(since.elapsed());
        }
        connected
    }

    /// Returns the connection to use after the server has not accepted a request: the same one if it works. A
    /// new one would fail the calls of all others, so it is made only if necessary. Either way the server has
    /// not executed anything yet.
    async fn renew(&self, live: &LiveConnection, reason: CloseReason) -> Result<LiveConnection, CallError> {
        if is_responsive(live.client(), self.settings.health_probe).await {
            return Ok(live.clone());
        }
        live.request_close(reason);
        self.next_connection(live).await
    }

    /// Returns the connection to use after a loss: the same one if only this request was lost.
    async fn reconnect_after_loss(&self, live: &LiveConnection) -> Result<LiveConnection, CallError> {
        let is_closed = live.client().connection().is_closed() || live.closed().now_or_never().is_some();
        if !is_closed {
            if is_responsive(live.client(), self.settings.health_probe).await {
                return Ok(live.clone());
            }
            live.request_close(CloseReason::Unresponsive);
        }
        self.next_connection(live).await
    }

    /// Executes a call on one connection, until that is closed.
    async fn attempt(&self, live: &LiveConnection, call: &ServerCall<'_>) -> Result<RawJson, AttemptError> {
        let guard = if call.is_setting {
            live.in_flight().keep_alive()
        } else {
            live.in_flight().track_call(call.context)
        };
        let Some(guard) = guard else { return Err(AttemptError::NotDelivered { reason: CloseReason::Idle }) };
        let _probe_guard = LivenessProbeGuard { live, context: call.context };
        self.lower_log_level(live, call.context).await;
        tokio::select! {
            // A response that has arrived counts, even if the connection has closed since.
            biased;
            result = self.run_rounds(live, call, &guard) => result,
            why = live.closed() => Err(AttemptError::Failed(TransportError::failed(why).into())),
        }
    }

    /// Sends the request, and again with the caller's answers while the server requires input.
    async fn run_rounds(
        &self,
        live: &LiveConnection,
        call: &ServerCall<'_>,
        guard: &InFlightGuard,
    ) -> Result<RawJson, AttemptError> {
        let (client, context) = (live.client(), call.context);
        let mut params_to_send = match call.tool {
            Some(tool) => tasks::with_task_request(&call.params, tool, client, context),
            None => call.params.clone(),
        };
        let mut has_tasks = call.tool.is_some_and(|tool| tasks::declares_tasks(tool, client.era(), context));
        for round in 0..MAX_INPUT_ROUNDS {
            let options = Self::options(client.era(), call, has_tasks);
            let sent = client.request(call.method, Some(params_to_send.clone()), options).await;
            let pending = sent.map_err(|failure| match failure {
                RequestError::Transport(error) if round == 0 => {
                    AttemptError::NotDelivered { reason: CloseReason::Lost { why: error.to_string() } }
                }
                failure => AttemptError::Failed(failure),
            })?;
            guard.set_request_id(pending.id());
            let mut request = CancellableRequest { pending, context };
            let answered = read_response(&mut request.pending, live, context).await;
            if let Err(RequestError::Rpc(error)) = &answered
                && client.era() == Era::Session
                // Boxed like all that few calls need, so that the future of every other call stays small.
                && Box::pin(complete_url_elicitations(context, error)).await
            {
                continue;
            }
            if let Err(RequestError::Rpc(error)) = &answered
                && !has_tasks
                && call.tool.is_some()
                && client.era() == Era::Stateless
                && tasks::must_declare_tasks(error, context)
            {
                has_tasks = true;
                continue;
            }
            let result = answered.map_err(|failure| match round {
                0 => AttemptError::of_first_round(failure, client.era()),
                _ => AttemptError::Failed(failure),
            })?;
            if !result.is_object() {
                return Err(AttemptError::Final(self.invalid_result("it is not an object")));
            }
            let driver = TaskDriver { live, context, guard };
            if client.era() == Era::Session {
                return match tasks::created_task(&result).filter(|_| call.tool.is_some()) {
                    Some(task) => Box::pin(driver.follow(task)).await,
                    None => Ok(result),
                };
            }
            match ResultType::of(&result) {
                ResultType::Complete => return Ok(strip_protocol_members(result)),
                ResultType::InputRequired => {
                    params_to_send = Box::pin(params_with_answers(call, &result)).await?;
                }
                ResultType::Task if call.tool.is_some() => return Box::pin(driver.follow(result)).await,
                ResultType::Task => return Err(unknown_result_type("task")),
                ResultType::Unknown(unknown) => return Err(unknown_result_type(&unknown)),
            }
        }
        Err(tool_failure("the server kept requiring input"))
    }

    /// Returns the error for a result that violates the protocol.
    pub(super) fn invalid_result(&self, problem: impl Display) -> CallError {
        let name = &self.settings.name;
        CallError::Failed(ToolError::new(format_args!(
            "MCP server '{name}' sent an invalid result: {problem}"
        )))
    }

    fn options(era: Era, call: &ServerCall<'_>, has_tasks: bool) -> RequestOptions {
        let context = call.context;
        // A session has the capabilities and the log level that it began with.
        let (capabilities, log_level) = match era {
            Era::Session => (None, None),
            Era::Stateless => (Self::capabilities(call, has_tasks), Self::log_level(context)),
        };
        // Progress is requested only for a caller with a client.
        let has_progress = context.client.is_some();
        let meta = call.meta.clone();
        RequestOptions { capabilities, log_level, meta, has_progress, ..RequestOptions::default() }
    }

    /// Returns the capabilities to declare for a call; `None` for those of the connection.
    fn capabilities(call: &ServerCall<'_>, has_tasks: bool) -> Option<RawJson> {
        let declared = match &call.context.client {
            None => Some(RawJson::empty_object()),
            Some(client) => client.request_meta().and_then(|meta| meta.capabilities.clone()),
        };
        if has_tasks {
            return Some(tasks::with_extension(&declared.unwrap_or_else(|| client_capabilities(false))));
        }
        declared
    }

    /// Returns the minimum log level to request for a call: that of its caller, whatever others have asked for.
    fn log_level(context: &CallContext) -> Option<LogLevel> {
        let client = context.client.as_ref()?;
        match requested_log_level(&**client) {
            // Stateless callers set the level with every request.
            None if client.needs_input_rounds() => None,
            None => Some(LogLevel::Info),
            Some(level) => Some(level),
        }
    }

    /// Lowers the log level of a server with sessions to the caller's. Messages are filtered per caller, so
    /// the level is never raised.
    async fn lower_log_level(&self, live: &LiveConnection, context: &CallContext) {
        let Some(level) = context.client.as_ref().and_then(|client| requested_log_level(&**client)) else {
            return;
        };
        if live.client().era() == Era::Session
            && supports_logging(live.client())
            && self.subscriptions.lower_log_level(level)
        {
            Box::pin(send_log_level(live.client(), level)).await;
        }
    }

    /// Returns the error of a request that the server did not accept without another login, or with the present one.
    fn authorization_error(
        &self,
        live: &LiveConnection,
        noun: &str,
        error: &TransportError,
    ) -> Option<CallError> {
        let name = &self.settings.name;
        if let TransportError::Unauthorized(AuthorizationError::Unavailable { reason }) = error {
            let reason = format!("MCP server '{name}' did not get the {noun}: {reason}");
            return Some(CallError::ServerUnavailable { reason });
        }
        let fix = login_hint(error)?;
        let reason = format!("MCP server '{name}' requires a login. {fix}");
        // Other calls may need fewer permissions.
        if !matches!(error, TransportError::Unauthorized(AuthorizationError::InsufficientScope { .. })) {
            live.request_close(CloseReason::NeedsLogin { fix });
        }
        Some(CallError::AuthRequired { reason })
    }

    /// Returns the error for the caller, and reports problems with the connection to the supervisor.
    fn call_error(
        &self,
        live: &LiveConnection,
        call: &ServerCall<'_>,
        attempt_error: AttemptError,
    ) -> CallError {
        let (name, noun) = (&self.settings.name, call.noun());
        let failure = match attempt_error {
            AttemptError::Final(error) => return error,
            AttemptError::Rejected(failure) | AttemptError::Failed(failure) => failure,
            AttemptError::NotDelivered { reason } => {
                live.request_close(reason);
                let reason = format!("MCP server '{name}' did not accept the {noun}");
                return CallError::ServerUnavailable { reason };
            }
            AttemptError::Unreachable { why } => {
                live.in_flight().request_probe();
                let reason = format!("MCP server '{name}' did not receive the {noun}: {why}");
                return CallError::ServerUnavailable { reason };
            }
        };
        match failure {
            RequestError::Rpc(error) => {
                let message = clipped(&error.message, MAX_ERROR_BYTES).into_owned();
                let tool_error = ToolError::new(format_args!("MCP error {}: {message}", error.code));
                let RpcError { code, data, .. } = error;
                CallError::Failed(tool_error.with_protocol_error(ProtocolError { code, message, data }))
            }
            RequestError::Overloaded => CallError::ServerUnavailable {
                reason: format!("MCP server '{name}' has too many calls in flight"),
            },
            RequestError::Transport(error) => {
                if let Some(error) = self.authorization_error(live, noun, &error) {
                    return error;
                }
                if let TransportError::Status { status: 400..=499, .. } | TransportError::Untrusted { .. } =
                    error
                {
                    let reason = format!("MCP server '{name}' did not accept the {noun}: {error}");
                    return CallError::ServerUnavailable { reason };
                }
                live.in_flight().request_probe();
                // Nothing has run after a refused connection.
                let is_refused = matches!(error, TransportError::Unreachable { .. });
                let note =
                    if call.method == CALL_METHOD && !is_refused { ". The tool may have run" } else { "" };
                let problem = match &error {
                    // It has answered, so it has not gone away.
                    TransportError::Protocol { what } => format!("sent an invalid response: {what}"),
                    TransportError::Closed
                    | TransportError::Failed { .. }
                    | TransportError::Unreachable { .. }
                    | TransportError::Untrusted { .. }
                    | TransportError::Unauthorized(_)
                    | TransportError::Status { .. } => format!("failed before it responded: {error}"),
                };
                CallError::Transport { reason: format!("MCP server '{name}' {problem}{note}") }
            }
        }
    }
}

/// The type of a result in the stateless era.
enum ResultType {
    Complete,
    InputRequired,
    Task,
    Unknown(String),
}

impl ResultType {
    fn of(result: &RawJson) -> Self {
        let kind = result.get("resultType");
        match kind.as_ref().and_then(RawJson::text).as_deref() {
            None | Some("complete") => Self::Complete,
            Some("input_required") => Self::InputRequired,
            Some("task") => Self::Task,
            Some(unknown) => Self::Unknown(clipped(unknown, 80).into_owned()),
        }
    }
}

fn unknown_result_type(name: &str) -> AttemptError {
    tool_failure(format_args!("the server's result has the unknown type '{name}'"))
}

/// Returns the log level that a caller requests.
fn requested_log_level(client: &dyn pegboard_core::client::Client) -> Option<LogLevel> {
    client.request_meta()?.log_level.as_ref()?.read().ok()
}

pub(super) fn tool_failure(problem: impl std::fmt::Display) -> AttemptError {
    AttemptError::Final(CallError::Failed(ToolError::new(problem)))
}

/// Waits for the response. Notifications that arrive before it are passed to the caller in order.
pub(super) async fn read_response(
    pending: &mut PendingRequest,
    live: &LiveConnection,
    context: &CallContext,
) -> Result<RawJson, RequestError> {
    loop {
        match pending.next_event().await {
            ResponseEvent::Notification(notice) => {
                if let Some(notice) = live.in_flight().handle_notification(notice) {
                    notify_caller(context.client(), notice);
                }
            }
            ResponseEvent::End(final_result) => return final_result,
        }
    }
}

/// Returns the parameters with the caller's answers and the unchanged state of the server.
async fn params_with_answers(call: &ServerCall<'_>, result: &RawJson) -> Result<RawJson, AttemptError> {
    let requests = input_requests(result).map_err(tool_failure)?;
    let answers = collect_answers(call.context, requests).await?;
    Ok(next_round_params(&call.params, result, &answers))
}

/// Asks the caller the server's questions and returns the answers by name.
pub(super) async fn collect_answers(
    context: &CallContext,
    input_requests: Vec<(String, RawJson)>,
) -> Result<RawJson, AttemptError> {
    let question = |question: &RawJson| {
        let method = question.get("method")?.text()?.into_owned();
        Some(InputRequest { method, params: question.get("params").unwrap_or_else(RawJson::empty_object) })
    };
    let questions: InputRequests =
        input_requests.into_iter().filter_map(|(name, request)| Some((name, question(&request)?))).collect();
    let mut answers = RawJson::empty_object();
    if !questions.is_empty() {
        let answered = context.client().ask(questions).await;
        let answered = answered
            .map_err(|error| tool_failure(format_args!("the server requested input, but {error}")))?;
        answers = answered.iter().fold(answers, |all, (name, answer)| all.with(name, answer));
    }
    Ok(answers)
}

/// Returns a result without the members that the stateless protocol adds to every result.
pub(super) fn strip_protocol_members(result: RawJson) -> RawJson {
    let own = result.get("_meta");
    let ([info], has_others) = own.as_ref().map_or(([None], false), |own| own.get_known([meta::SERVER_INFO]));
    let has_info = info.is_some();
    if let Some(own) = own.as_ref().filter(|_| has_info && has_others) {
        return result.with_all(&[("resultType", None), ("_meta", Some(&own.without(meta::SERVER_INFO)))]);
    }
    // Members are removed in place if nothing shares the bytes.
    drop((own, info));
    result.remove(if has_info { &["resultType", "_meta"] } else { &["resultType"] })
}
