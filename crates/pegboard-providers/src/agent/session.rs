//! One session of an agent: its model is asked, its tools are called, until there is a final report.

use std::fmt::Write;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use pegboard_core::arguments::Arguments;
use pegboard_core::call::Invoker;
use pegboard_core::client::{Client, Notice, Progress};
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::model::{
    Message, Model, ModelErrorKind, ModelReply, ModelRequest, StopReason, ToolCall, ToolChoice, ToolResult,
    Verdict,
};
use pegboard_core::settings::agent::{AgentSettings, ReportFormat};
use pegboard_core::text::clipped;
use sha2::{Digest, Sha256};

use super::belt::{Belt, Outputs};
use super::guard::{self, Guard, NO_ROOM};
use super::prompt::{self, Nonce};
use crate::builtin::{self, Desk, Handoff, Report};

/// How much of what a model wrote instead of arguments it is shown again.
const MAX_SHOWN_BYTES: usize = 4_096;
/// How many times in a row a reply may have neither a report nor a call before it counts as the report.
const MAX_UNTAGGED: u32 = 2;

/// One session of an agent.
pub(super) struct Session<'s> {
    pub(super) settings: &'s AgentSettings,
    pub(super) tools: &'s Arc<dyn Invoker>,
    /// Who is told how far it is.
    pub(super) client: Option<&'s Arc<dyn Client>>,
    pub(super) belt: Arc<Belt>,
    pub(super) desk: Arc<Desk>,
    pub(super) model: &'s dyn Model,
    pub(super) nonce: Nonce,
    pub(super) guard: Guard,
    pub(super) request: ModelRequest,
    pub(super) state: State,
}

/// How far a session is.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The how manieth turn it is.
    turn: u32,
    outputs: Outputs,
    /// Whether the model can read no more.
    is_full: bool,
    /// How many replies in a row had neither a report nor a call.
    n_untagged: u32,
}

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// With its report.
    Report(Report),
    /// With a hand-off.
    Handoff(Handoff),
}

/// Whether a turn may call tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It may.
    Open,
    /// It must give the final report.
    Last,
}

/// What came of a reply.
enum Step {
    Ended(End),
    NextTurn,
    /// It came to nothing; what the model is told.
    Again(String),
}

impl Session<'_> {
    /// Runs it to its end.
    pub(super) async fn run(mut self) -> Result<End, CallError> {
        let most = self.settings.max_turns.max(1);
        for number in 1..=most {
            self.state.turn = number;
            self.tools.diary().turn(number, most);
            self.tell(f64::from(number) - 1.0, format!("turn {number} of at most {most}"));
            let is_last = number == most || self.desk.is_completed() || self.state.is_full;
            let turn = if is_last { Turn::Last } else { Turn::Open };
            if is_last && number > 1 {
                self.request.messages.push(Message::user(self.last_call()));
            }
            if let Some(end) = self.turn(turn).await? {
                return Ok(end);
            }
        }
        Err(self.no_report())
    }

    /// One turn, tried again while it comes to nothing.
    async fn turn(&mut self, turn: Turn) -> Result<Option<End>, CallError> {
        for _attempt in 0..=self.settings.max_retries {
            let reply = self.ask(turn).await?;
            match self.follow(&reply, turn).await? {
                Step::Ended(end) => return Ok(Some(end)),
                Step::NextTurn => return Ok(None),
                Step::Again(why) => {
                    self.tools.diary().warn(&why);
                    self.request.messages.push(Message::user(why));
                }
            }
        }
        Err(self.no_report())
    }

    fn no_report(&self) -> CallError {
        let Self { settings: AgentSettings { name, max_turns, max_retries, .. }, .. } = self;
        CallError::Failed(ToolError::new(format_args!(
            "the agent '{name}' gave no final report within {max_turns} turns and {max_retries} retries of one. Raise \
             maxTurns, or give it a model that follows its instructions"
        )))
    }

    /// Asks the model to go on. If the conversation turns out too long, it is shortened once.
    async fn ask(&mut self, turn: Turn) -> Result<ModelReply, CallError> {
        self.request.tools = self.belt.offers(self.state.outputs);
        self.request.tool_choice = match turn {
            Turn::Last if !self.request.tools.is_empty() => ToolChoice::None,
            Turn::Last | Turn::Open => ToolChoice::Auto,
        };
        self.guard.fit(&mut self.request);
        let mut may_shorten = true;
        loop {
            let name = &self.model.facts().name;
            let note = self.tools.diary().model(name, self.request.estimated_tokens().saturating_mul(4));
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
                    if is_too_long && std::mem::take(&mut may_shorten) && guard::shrink(&mut self.request) {
                        self.tools
                            .diary()
                            .warn("the conversation was too long; an answer was left out of it");
                        continue;
                    }
                    return Err(CallError::Failed(ToolError::new(error)));
                }
            }
        }
    }

    /// Does what a reply says.
    async fn follow(&mut self, reply: &ModelReply, turn: Turn) -> Result<Step, CallError> {
        if let Some(found) = prompt::tagged(&reply.text, &self.nonce) {
            let is_cut = !found.is_whole && reply.stop == StopReason::MaxTokens;
            let report = self.desk.wanted().read_text(found.format, found.status, found.text);
            let problem = match report {
                Ok(report) if !is_cut => return Ok(Step::Ended(End::Report(report))),
                Ok(_) => "It was cut off before its end; write a shorter one.".to_owned(),
                Err(problem) => problem,
            };
            self.leave(&reply.tool_calls, "not run, because your final report came with it");
            let problem = problem.trim_end_matches('.');
            return Ok(Step::Again(format!("Your final report was not taken: {problem}. Write it again.")));
        }
        if !reply.tool_calls.is_empty() {
            self.state.n_untagged = 0;
            return Ok(self.call_tools(&reply.tool_calls, turn).await);
        }
        self.follow_text(reply)
    }

    /// A reply without a report and without calls.
    fn follow_text(&mut self, reply: &ModelReply) -> Result<Step, CallError> {
        match reply.stop {
            StopReason::Refused => {
                return Err(CallError::Failed(ToolError::new(format_args!(
                    "the model '{}' of the agent '{}' refused to go on",
                    reply.model, self.settings.name
                ))));
            }
            StopReason::MaxTokens => {
                return Ok(Step::Again(format!(
                    "Your reply was cut off. Be shorter. {}",
                    self.how_to_report()
                )));
            }
            StopReason::EndOfTurn | StopReason::ToolCalls | StopReason::StopText => {}
        }
        if reply.text.trim().is_empty() {
            return Ok(Step::Again(format!("Your reply was empty. {}", self.how_to_report())));
        }
        self.state.n_untagged += 1;
        let is_json = self.desk.wanted().format == ReportFormat::Json;
        // JSON that fits says by itself what it is; of other texts a model is asked once whether that was all.
        if (is_json || self.state.n_untagged >= MAX_UNTAGGED)
            && let Ok(report) = self.desk.wanted().read_text(None, None, &reply.text)
        {
            return Ok(Step::Ended(End::Report(report)));
        }
        Ok(Step::Again(format!(
            "Your reply has neither a tool call nor a final report. {}",
            self.how_to_report()
        )))
    }

    /// Calls the tools that a reply wants called, at the same time.
    async fn call_tools(&mut self, calls: &[ToolCall], turn: Turn) -> Step {
        let most = self.settings.max_tool_calls_per_turn;
        let max_bytes = self.settings.tool_response_max_bytes;
        let room = self.guard.room(&self.request, calls.len().min(most), max_bytes);
        self.state.is_full |= room.is_none();
        let mut work = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            let is_report = self.is_report(call);
            let refusal = if turn == Turn::Last && !is_report {
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
        let answers: Vec<Answer> = stream::iter(work).buffered(most.max(1)).collect().await;
        if answers.iter().any(|answer| answer.is_stored) {
            self.state.outputs = Outputs::Stored;
        }
        let results = answers.into_iter().map(|answer| answer.result).collect();
        self.request.messages.push(Message::ToolResults(results));
        self.show_statuses();
        match (self.desk.handoff(), self.desk.report(), turn) {
            (Some(handoff), _, Turn::Open) => Step::Ended(End::Handoff(handoff)),
            (_, Some(report), _) => Step::Ended(End::Report(report)),
            (_, None, Turn::Open) => Step::NextTurn,
            (_, None, Turn::Last) => Step::Again(self.how_to_report()),
        }
    }

    /// Calls a tool, unless there is something against it.
    async fn call_tool(&self, call: &ToolCall, refusal: Option<String>, room: Option<usize>) -> Answer {
        if let Some(reason) = refusal {
            self.tools.diary().warn(&format!("{} was not called: {reason}", clipped(&call.name, 100)));
            return Answer::failed(call, &reason);
        }
        let arguments = match call.json() {
            Ok(json) if json.is_object() => Arguments::from(json),
            Ok(_) | Err(_) => return Answer::failed(call, &misread(&call.arguments)),
        };
        let Some(room) = room else {
            return Answer { is_stored: false, result: result(call, NO_ROOM.to_owned(), Verdict::Failed) };
        };
        let ended = self.belt.start(&**self.tools, &call.name, arguments, room).await;
        match ended.result {
            Ok(output) => {
                let verdict = if output.is_error() { Verdict::Failed } else { Verdict::Done };
                let text = output.text();
                // What was not stored, since it is no tool's own answer, is cut.
                let text = if text.trim().is_empty() { "(no output)".into() } else { clipped(&text, room) };
                Answer {
                    is_stored: ended.journey.stored.is_some(),
                    result: result(call, text.into_owned(), verdict),
                }
            }
            Err(error) => Answer::failed(call, &error.text()),
        }
    }

    fn is_report(&self, call: &ToolCall) -> bool {
        let name = self.belt.name_of(&call.name);
        name.and_then(|name| name.strip_prefix(builtin::SERVER))
            .is_some_and(|rest| rest.strip_prefix("__") == Some(builtin::FINAL_REPORT))
    }

    /// Answers calls that are not made: every call must have an answer before the conversation goes on.
    fn leave(&mut self, calls: &[ToolCall], reason: &str) {
        if !calls.is_empty() {
            let results = calls.iter().map(|call| Answer::failed(call, reason).result).collect();
            self.request.messages.push(Message::ToolResults(results));
        }
    }

    fn how_to_report(&self) -> String {
        format!(
            "When you are done, write your final report between {} and </{}>.",
            self.nonce.opening(self.desk.wanted()),
            self.nonce.tag()
        )
    }

    fn last_call(&self) -> String {
        format!("This is your last turn: no more tools are run. {}", self.how_to_report())
    }

    /// Shows what the agent has said of its work in this turn.
    fn show_statuses(&self) {
        let statuses = self.desk.take_statuses();
        for status in &statuses {
            self.tools.diary().status(status);
        }
        if let Some(last) = statuses.into_iter().next_back() {
            // Within the turn, so that the number grows.
            self.tell(f64::from(self.state.turn) - 0.5, last);
        }
    }

    /// Tells whoever asked how far the agent is.
    fn tell(&self, done: f64, message: String) {
        if let Some(client) = self.client {
            let (total, message) = (Some(f64::from(self.settings.max_turns)), Some(message));
            client.notify(Notice::Progress(Progress { done, total, message }));
        }
    }
}

/// What came of a call that a model wanted.
struct Answer {
    result: ToolResult,
    is_stored: bool,
}

impl Answer {
    fn failed(call: &ToolCall, reason: &str) -> Self {
        Self { result: result(call, format!("(tool failed: {reason})"), Verdict::Failed), is_stored: false }
    }
}

fn result(call: &ToolCall, text: String, verdict: Verdict) -> ToolResult {
    ToolResult { call_id: call.id.clone(), text, verdict }
}

/// What a model is told whose arguments are no object.
fn misread(arguments: &str) -> String {
    let mut text = "invalid tool call payload. parameters must be a JSON object. Original payload".to_owned();
    if arguments.len() > MAX_SHOWN_BYTES {
        let digest = Sha256::digest(arguments.as_bytes());
        let digest: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = write!(text, " ({} bytes, sha256 {})", arguments.len(), digest.concat());
    }
    text.push_str(": ");
    text.push_str(&clipped(arguments, MAX_SHOWN_BYTES));
    text
}
