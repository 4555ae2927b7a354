//! Calls of a server's tools.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{CallContext, ValidCall};
use pegboard_core::client::{Question, Questions};
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::client::{Era, RequestOptions};
use pegboard_wire::era::{LogLevel, meta};
use pegboard_wire::link::TransportError;
use pegboard_wire::{Exchange, Failure, Happening};

use super::connect::login;
use super::life::{End, Life, Live};
use super::traffic::{Ticket, tell};

/// How often one call may come back with questions.
const MAX_ROUNDS: usize = 20;
/// How much of a server's error is told.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Carries out the calls of all tools of one server.
pub(super) struct Calls(pub(super) Arc<Life>);

impl Handler for Calls {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let live = self.0.ready().await?;
            match self.carry_out(&live, call).await {
                Err(Stop::NotTaken { end }) => {
                    // The server never had it, so it may have it now.
                    live.give_up(end);
                    let next = self.0.successor(&live).await?;
                    self.carry_out(&next, call).await.map_err(|stop| self.error(&next, stop))
                }
                result => result.map_err(|stop| self.error(&live, stop)),
            }
        }
        .boxed()
    }
}

/// Why a call has no answer.
enum Stop {
    /// The server never had it: what is wrong with the connection.
    NotTaken { end: End },
    /// The server may have had it.
    Failed(Failure),
    /// It ended some other way.
    Error(CallError),
}

/// Puts a server in doubt if its call is given up because it took too long.
struct Doubt<'l> {
    live: &'l Live,
    context: &'l CallContext,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if self.context.tools.as_ref().is_some_and(|tools| tools.is_overdue()) {
            self.live.traffic().note_doubt();
        }
    }
}

impl Calls {
    /// Makes a call on one connection, which ends with the connection at the latest.
    async fn carry_out(&self, live: &Live, call: &ValidCall) -> Result<Output, Stop> {
        let Some(ticket) = live.traffic().enter(call.context().client.clone()) else {
            return Err(Stop::NotTaken { end: End::Unused });
        };
        let _doubt = Doubt { live, context: call.context() };
        tokio::select! {
            // An answer that has come counts, whatever else happened.
            biased;
            result = self.rounds(live, call, &ticket) => result,
            why = live.over() => Err(Stop::Failed(TransportError::failed(why).into())),
        }
    }

    /// Makes the call, and again with answers for as long as it comes back with questions.
    async fn rounds(&self, live: &Live, call: &ValidCall, ticket: &Ticket) -> Result<Output, Stop> {
        let (client, context) = (live.client(), call.context());
        let params = params(call);
        let mut asked_with = params.clone();
        for round in 0..MAX_ROUNDS {
            let sent = client.request("tools/call", Some(asked_with), options(context)).await;
            let mut exchange = sent.map_err(|failure| match failure {
                Failure::Lost(error) if round == 0 => {
                    Stop::NotTaken { end: End::Lost { why: error.to_string() } }
                }
                failure => Stop::Failed(failure),
            })?;
            ticket.is_request(exchange.id());
            let result = match answer(&mut exchange, context).await {
                Err(Failure::Lost(TransportError::Status { status: 400 | 404, .. }))
                    if round == 0 && client.era() == Era::Session =>
                {
                    return Err(Stop::NotTaken { end: End::Expired });
                }
                result => result.map_err(Stop::Failed)?,
            };
            if !result.is_object() {
                return Err(failed("the server's answer is no tool result"));
            }
            if client.era() == Era::Session {
                return Ok(Output::result(result));
            }
            let kind = result.get("resultType");
            match kind.as_ref().and_then(RawJson::text).as_deref() {
                None | Some("complete") => return Ok(Output::result(without_own_members(&result))),
                Some("input_required") => asked_with = with_answers(context, &params, &result).await?,
                Some(unknown) => {
                    let unknown = clipped(unknown, 80);
                    return Err(failed(format_args!(
                        "the server's answer is of the unknown kind '{unknown}'"
                    )));
                }
            }
        }
        Err(failed("the server kept asking without an end"))
    }

    /// What the caller is told. Who looks after the server is told, too.
    fn error(&self, live: &Live, stop: Stop) -> CallError {
        let name = &self.0.settings.name;
        let failure = match stop {
            Stop::Error(error) => return error,
            Stop::Failed(failure) => failure,
            Stop::NotTaken { end } => {
                live.give_up(end);
                let reason = format!("MCP server '{name}' did not take the call");
                return CallError::ServerUnavailable { reason };
            }
        };
        match failure {
            Failure::Refused(error) => {
                let message = clipped(&error.message, MAX_ERROR_BYTES);
                CallError::Failed(ToolError::new(format_args!("MCP error {}: {message}", error.code)))
            }
            Failure::Overloaded => CallError::ServerUnavailable {
                reason: format!("MCP server '{name}' has too many calls under way"),
            },
            Failure::Lost(error) => {
                if let Some(fix) = login(&error) {
                    let reason = format!("MCP server '{name}' wants a login. {fix}");
                    live.give_up(End::NeedsLogin { fix });
                    return CallError::AuthRequired { reason };
                }
                if let TransportError::Status { status: 400..=499, .. } = error {
                    let reason = format!("MCP server '{name}' did not take the call: {error}");
                    return CallError::ServerUnavailable { reason };
                }
                live.traffic().note_doubt();
                let reason = format!(
                    "MCP server '{name}' went away before it answered: {error}. The tool may have run"
                );
                CallError::Transport { reason }
            }
        }
    }
}

fn failed(problem: impl std::fmt::Display) -> Stop {
    Stop::Error(CallError::Failed(ToolError::new(problem)))
}

/// The parameters: the server's own name of the tool, and the arguments as the caller wrote them.
fn params(call: &ValidCall) -> RawJson {
    let context = call.context();
    let mut own = RawJson::empty_object();
    if context.client.is_some() {
        own = own.with("progressToken", &RawJson::of(&0));
    }
    if let Some(parent) = &context.trace_parent {
        own = own.with("traceparent", &RawJson::of(&parent.to_string()));
    }
    let mut params = RawJson::empty_object().with("name", &RawJson::of(call.entry().name()));
    if own != RawJson::empty_object() {
        params = params.with("_meta", &own);
    }
    let arguments = call.raw_arguments();
    if arguments.as_str() == "null" { params } else { params.with("arguments", arguments) }
}

fn options(context: &CallContext) -> RequestOptions {
    let can_answer = context.client.is_some();
    RequestOptions {
        capabilities: (!can_answer).then(RawJson::empty_object),
        log_level: can_answer.then_some(LogLevel::Info),
        ..RequestOptions::default()
    }
}

/// The end of a request. What is said before it is told to the caller, in order.
async fn answer(exchange: &mut Exchange, context: &CallContext) -> Result<RawJson, Failure> {
    loop {
        match exchange.next().await {
            Happening::Notice(notice) => tell(context.client(), notice),
            Happening::End(end) => return end,
        }
    }
}

/// The call with the caller's answers to the server's questions, and the server's state exactly as it came.
async fn with_answers(context: &CallContext, params: &RawJson, result: &RawJson) -> Result<RawJson, Stop> {
    let asked = result.get("inputRequests").unwrap_or_else(RawJson::empty_object);
    let question = |name: &str| {
        let question = asked.get(name)?;
        let method = question.get("method")?.text()?.into_owned();
        Some(Question { method, params: question.get("params").unwrap_or_else(RawJson::empty_object) })
    };
    let questions: Questions =
        asked.names().into_iter().filter_map(|name| Some((name.clone(), question(&name)?))).collect();
    let mut answers = RawJson::empty_object();
    if !questions.is_empty() {
        let answered = context.client().ask(questions).await;
        let answered =
            answered.map_err(|error| failed(format_args!("the tool asked a question, and {error}")))?;
        answers = answered.iter().fold(answers, |all, (name, answer)| all.with(name, answer));
    }
    let params = params.with("inputResponses", &answers);
    Ok(match result.get("requestState") {
        Some(state) => params.with("requestState", &state),
        None => params,
    })
}

/// A result without what the protocol adds to every result of the stateless era.
fn without_own_members(result: &RawJson) -> RawJson {
    let result = result.without("resultType");
    let Some(own) = result.get("_meta") else { return result };
    let rest = own.without(meta::SERVER_INFO);
    if rest.names().is_empty() { result.without("_meta") } else { result.with("_meta", &rest) }
}
