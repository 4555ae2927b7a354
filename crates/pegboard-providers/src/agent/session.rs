//! Agent session: a loop of model replies and tool calls until there is a final report.

use std::fmt::Write;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::Invoker;
use pegboard_core::client::{Client, Notice, ProgressUpdate};
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::fingerprint::sha256_hex;
use pegboard_core::model::{
    ChatMessage, Model, ModelErrorKind, ModelReply, ModelRequest, StopReason, ToolCall, ToolChoice,
    ToolResult, ToolResultStatus,
};
use pegboard_core::settings::agent::{AgentSettings, ReportFormat};
use pegboard_core::text::clipped;

use super::context_window::{self, CONTEXT_EXCEEDED, ContextBudget};
use super::prompt::{self, Nonce};
use super::toolset::{StoredOutputs, Toolset};
use crate::builtin::{self, AgentProgress, AgentReport, Handoff};

/// Maximum size of an invalid payload that is quoted back to the model.
const MAX_PAYLOAD_BYTES: usize = 4_096;
/// Number of consecutive replies without a report or call after which the text counts as the report.
const MAX_UNTAGGED_REPLIES: u32 = 2;

/// One session of an agent.
pub(super) struct AgentSession<'s> {
    pub(super) settings: &'s AgentSettings,
    pub(super) tools: &'s Arc<dyn Invoker>,
    /// Receiver of progress notifications.
    pub(super) client: Option<&'s Arc<dyn Client>>,
    pub(super) toolset: Arc<Toolset>,
    pub(super) progress: Arc<AgentProgress>,
    pub(super) model: &'s dyn Model,
    pub(super) nonce: Nonce,
    pub(super) context_window: ContextBudget,
    pub(super) request: ModelRequest,
    pub(super) state: AgentSessionState,
}

/// Mutable state of a session.
#[derive(Debug, Default)]
pub(super) struct AgentSessionState {
    /// Current turn, starting at 1.
    turn: u32,
    outputs: StoredOutputs,
    /// The context window is exhausted.
    is_context_full: bool,
    /// Number of consecutive replies without a report or call.
    n_untagged: u32,
}

/// Result of a session.
#[derive(Debug)]
pub(super) enum AgentOutcome {
    /// A final report.
    Report(AgentReport),
    /// A hand-off to another agent.
    Handoff(Handoff),
}

/// Kind of turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnKind {
    /// The model may call tools.
    Open,
    /// The model must give its final report.
    Last,
}

/// Result of one reply.
enum TurnOutcome {
    Ended(AgentOutcome),
    NextTurn,
    /// The reply was unusable; holds the message for the model.
    Retry(String),
}

impl AgentSession<'_> {
    /// Runs the session to its end.
    pub(super) async fn run(mut self) -> Result<AgentOutcome, CallError> {
        let most = self.settings.max_turns.max(1);
        for number in 1..=most {
            self.state.turn = number;
            self.tools.recorder().turn(number, most);
            self.notify_progress(f64::from(number) - 1.0, format!("turn {number} of {most}"));
            let is_last = number == most || self.progress.is_completed() || self.state.is_context_full;
            let turn = if is_last { TurnKind::Last } else { TurnKind::Open };
            if is_last && number > 1 {
                self.request.messages.push(ChatMessage::user(self.last_turn_notice()));
            }
            if let Some(end) = self.run_turn(turn).await? {
                return Ok(end);
            }
        }
        Err(self.no_report())
    }

    /// Runs one turn. Unusable replies are retried.
    async fn run_turn(&mut self, turn: TurnKind) -> Result<Option<AgentOutcome>, CallError> {
        for _attempt in 0..=self.settings.max_retries {
            let reply = self.query_model(turn).await?;
            match self.handle_reply(&reply, turn).await? {
                TurnOutcome::Ended(end) => return Ok(Some(end)),
                TurnOutcome::NextTurn => return Ok(None),
                TurnOutcome::Retry(why) => {
                    self.tools.recorder().warn(&why);
                    self.request.messages.push(ChatMessage::user(why));
                }
            }
        }
        Err(self.no_report())
    }

    fn no_report(&self) -> CallError {
        let Self { settings: AgentSettings { name, max_turns, max_retries, .. }, .. } = self;
        CallError::Failed(ToolError::new(format_args!(
            "agent '{name}' gave no final report within {max_turns} turns with {max_retries} retries each. Raise \
             maxTurns, or use a model that follows instructions"
        )))
    }

    /// Queries the model. A request that is too long is shortened once.
    async fn query_model(&mut self, turn: TurnKind) -> Result<ModelReply, CallError> {
        self.request.tools = self.toolset.tool_specs(self.state.outputs);
        self.request.tool_choice = match turn {
            TurnKind::Last if !self.request.tools.is_empty() => ToolChoice::None,
            TurnKind::Last | TurnKind::Open => ToolChoice::Auto,
        };
        self.context_window.fit(&mut self.request);
        let mut may_shorten = true;
        loop {
            let name = &self.model.info().name;
            let note =
                self.tools.recorder().model_request(name, self.request.estimated_tokens().saturating_mul(4));
            let reply = self.model.answer(&self.request, &|_piece| {}).await;
            note.end(reply.as_ref());
            match reply {
                Ok(reply) => {
                    if !reply.text.is_empty() || !reply.tool_calls.is_empty() {
                        self.request.messages.push(reply.to_message());
                    }
                    return Ok(reply);
                }
                Err(error) => {
                    let is_too_long = error.kind == ModelErrorKind::ContextTooLong;
                    if is_too_long
                        && std::mem::take(&mut may_shorten)
                        && context_window::drop_largest_result(&mut self.request)
                    {
                        self.tools
                            .recorder()
                            .warn("context window exceeded; dropped the largest tool result");
                        continue;
                    }
                    return Err(match error.kind {
                        ModelErrorKind::Unreachable | ModelErrorKind::NotListening => {
                            CallError::ServerUnavailable { reason: error.to_string() }
                        }
                        ModelErrorKind::RateLimited { .. }
                        | ModelErrorKind::Overloaded { .. }
                        | ModelErrorKind::ContextTooLong
                        | ModelErrorKind::Unauthorized
                        | ModelErrorKind::Refused
                        | ModelErrorKind::TimedOut { .. }
                        | ModelErrorKind::MalformedReply => CallError::Failed(ToolError::new(error)),
                    });
                }
            }
        }
    }

    /// Acts on a reply.
    async fn handle_reply(&mut self, reply: &ModelReply, turn: TurnKind) -> Result<TurnOutcome, CallError> {
        if let Some(found) = prompt::find_report(&reply.text, &self.nonce) {
            let is_cut = !found.is_complete && reply.stop == StopReason::MaxTokens;
            let report = self.progress.report_spec().read_text(found.format, found.status, found.text);
            let problem = match report {
                Ok(report) if !is_cut => return Ok(TurnOutcome::Ended(AgentOutcome::Report(report))),
                Ok(_) => "It was cut off before its end; write a shorter one.".to_owned(),
                Err(problem) => problem,
            };
            self.answer_skipped_calls(&reply.tool_calls, "not run, because your final report came with it");
            let problem = problem.trim_end_matches('.');
            return Ok(TurnOutcome::Retry(format!(
                "Your final report was not accepted: {problem}. Write it again."
            )));
        }
        if !reply.tool_calls.is_empty() {
            self.state.n_untagged = 0;
            return Ok(self.call_tools(&reply.tool_calls, turn).await);
        }
        self.handle_text_reply(reply)
    }

    /// Handles a reply without report and calls.
    fn handle_text_reply(&mut self, reply: &ModelReply) -> Result<TurnOutcome, CallError> {
        match reply.stop {
            StopReason::Refused => {
                return Err(CallError::Failed(ToolError::new(format_args!(
                    "model '{}' of agent '{}' refused to continue",
                    reply.model, self.settings.name
                ))));
            }
            StopReason::MaxTokens => {
                return Ok(TurnOutcome::Retry(format!(
                    "Your reply was cut off. Be shorter. {}",
                    self.report_instructions()
                )));
            }
            StopReason::EndOfTurn | StopReason::ToolCalls | StopReason::StopText => {}
        }
        if reply.text.trim().is_empty() {
            return Ok(TurnOutcome::Retry(format!("Your reply was empty. {}", self.report_instructions())));
        }
        self.state.n_untagged += 1;
        let is_json = self.progress.report_spec().format == ReportFormat::Json;
        // JSON that matches the schema is the report; any other text is confirmed with the model once.
        if (is_json || self.state.n_untagged >= MAX_UNTAGGED_REPLIES)
            && let Ok(report) = self.progress.report_spec().read_text(None, None, &reply.text)
        {
            return Ok(TurnOutcome::Ended(AgentOutcome::Report(report)));
        }
        Ok(TurnOutcome::Retry(format!(
            "Your reply has neither a tool call nor a final report. {}",
            self.report_instructions()
        )))
    }

    /// Runs the requested tool calls concurrently.
    async fn call_tools(&mut self, calls: &[ToolCall], turn: TurnKind) -> TurnOutcome {
        let most = self.settings.max_tool_calls_per_turn;
        let max_bytes = self.settings.tool_response_max_bytes;
        let room = self.context_window.bytes_per_result(&self.request, calls.len().min(most), max_bytes);
        self.state.is_context_full |= room.is_none();
        let mut work = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            let is_report = self.is_report(call);
            let refusal = if turn == TurnKind::Last && !is_report {
                Some("this is your last turn, in which no tools are run; give your final report".to_owned())
            } else if index >= most {
                Some(format!(
                    "tool_calls_per_turn_limit_exceeded: at most {most} tool calls are made in one turn; call it in \
                     the next one"
                ))
            } else {
                None
            };
            work.push(self.call_tool(call, refusal, if is_report { Some(max_bytes) } else { room }));
        }
        let answers: Vec<ExecutedCall> = stream::iter(work).buffered(most.max(1)).collect().await;
        if answers.iter().any(|answer| answer.is_stored) {
            self.state.outputs = StoredOutputs::Present;
        }
        let results = answers.into_iter().map(|answer| answer.result).collect();
        self.request.messages.push(ChatMessage::ToolResults(results));
        self.publish_statuses();
        match (self.progress.handoff(), self.progress.report(), turn) {
            (Some(handoff), _, TurnKind::Open) => TurnOutcome::Ended(AgentOutcome::Handoff(handoff)),
            (_, Some(report), _) => TurnOutcome::Ended(AgentOutcome::Report(report)),
            (_, None, TurnKind::Open) => TurnOutcome::NextTurn,
            (_, None, TurnKind::Last) => TurnOutcome::Retry(self.report_instructions()),
        }
    }

    /// Runs one tool call, unless it is refused.
    async fn call_tool(&self, call: &ToolCall, refusal: Option<String>, room: Option<usize>) -> ExecutedCall {
        if let Some(reason) = refusal {
            self.tools.recorder().warn(&format!("{} was not called: {reason}", clipped(&call.name, 100)));
            return ExecutedCall::failed(call, &reason);
        }
        let arguments = match call.json() {
            Ok(json) if json.is_object() => CallArguments::from(json),
            Ok(_) | Err(_) => return ExecutedCall::failed(call, &invalid_payload_message(&call.arguments)),
        };
        let Some(room) = room else {
            return ExecutedCall {
                is_stored: false,
                result: tool_result(call, CONTEXT_EXCEEDED.to_owned(), ToolResultStatus::Failed),
            };
        };
        let ended = self.toolset.start(&**self.tools, &call.name, arguments, room).await;
        match ended.result {
            Ok(output) => {
                let verdict =
                    if output.is_error() { ToolResultStatus::Failed } else { ToolResultStatus::Done };
                let text = output.text();
                // Outputs that are never stored, such as those of private tools, are truncated.
                let text = if text.trim().is_empty() { "(no output)".into() } else { clipped(&text, room) };
                ExecutedCall {
                    is_stored: ended.meta.stored.is_some(),
                    result: tool_result(call, text.into_owned(), verdict),
                }
            }
            Err(error) => ExecutedCall::failed(call, &error.text()),
        }
    }

    fn is_report(&self, call: &ToolCall) -> bool {
        let name = self.toolset.resolve_name(&**self.tools, &call.name);
        name.and_then(|name| name.strip_prefix(builtin::SERVER))
            .is_some_and(|rest| rest.strip_prefix("__") == Some(builtin::FINAL_REPORT))
    }

    /// Answers calls that are not run: every call needs a result before the conversation continues.
    fn answer_skipped_calls(&mut self, calls: &[ToolCall], reason: &str) {
        if !calls.is_empty() {
            let results = calls.iter().map(|call| ExecutedCall::failed(call, reason).result).collect();
            self.request.messages.push(ChatMessage::ToolResults(results));
        }
    }

    fn report_instructions(&self) -> String {
        format!(
            "When you are done, write your final report between {} and </{}>.",
            self.nonce.opening_tag(self.progress.report_spec()),
            self.nonce.tag_name()
        )
    }

    fn last_turn_notice(&self) -> String {
        format!("This is your last turn: no more tools are run. {}", self.report_instructions())
    }

    /// Publishes the status lines of this turn.
    fn publish_statuses(&self) {
        let statuses = self.progress.take_statuses();
        for status in &statuses {
            self.tools.recorder().status(status);
        }
        if let Some(last) = statuses.into_iter().next_back() {
            // Half a step, so that progress increases within the turn.
            self.notify_progress(f64::from(self.state.turn) - 0.5, last);
        }
    }

    /// Sends a progress notification to the caller.
    fn notify_progress(&self, done: f64, message: String) {
        if let Some(client) = self.client {
            let (total, message) = (Some(f64::from(self.settings.max_turns)), Some(message));
            client.notify(Notice::Progress(ProgressUpdate { done, total, message, params: None }));
        }
    }
}

/// Outcome of a requested tool call.
struct ExecutedCall {
    result: ToolResult,
    is_stored: bool,
}

impl ExecutedCall {
    fn failed(call: &ToolCall, reason: &str) -> Self {
        Self {
            result: tool_result(call, format!("(tool failed: {reason})"), ToolResultStatus::Failed),
            is_stored: false,
        }
    }
}

fn tool_result(call: &ToolCall, text: String, verdict: ToolResultStatus) -> ToolResult {
    ToolResult { call_id: call.id.clone(), text, status: verdict }
}

/// Returns the error message for arguments that are not a JSON object.
fn invalid_payload_message(arguments: &str) -> String {
    let mut text = "invalid tool call payload. parameters must be a JSON object. Original payload".to_owned();
    if arguments.len() > MAX_PAYLOAD_BYTES {
        let _ = write!(text, " ({} bytes, sha256 {})", arguments.len(), sha256_hex(arguments));
    }
    text.push_str(": ");
    text.push_str(&clipped(arguments, MAX_PAYLOAD_BYTES));
    text
}
