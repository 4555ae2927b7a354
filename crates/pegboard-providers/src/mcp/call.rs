//! Calls of a server's tools, and whatever else it is asked to do.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{CallContext, ValidCall};
use pegboard_core::client::{Question, Questions};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ProtocolError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::Request;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_wire::client::{Era, RequestOptions};
use pegboard_wire::era::{LogLevel, meta};
use pegboard_wire::link::TransportError;
use pegboard_wire::{Exchange, Failure, Happening, RpcError};

use super::connect::login;
use super::elsewhere::visited;
use super::keeper::capabilities;
use super::life::{End, Life, Live};
use super::listen::{has_log, tell_level};
use super::probe::answers;
use super::tasks::{self, Drive};
use super::traffic::{Ticket, tell, without_meta};

/// What the protocol calls a call.
const CALL: &str = "tools/call";
/// How often one call may come back with questions.
const MAX_ROUNDS: usize = 20;
/// How much of a server's error is told.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Carries out the calls of all tools of one server, and whatever else it is asked to do.
pub(super) struct Calls(pub(super) Arc<Life>);

impl Handler for Calls {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move { self.carry_out(&Errand::call(call)).await.map(Output::result) }.boxed()
    }
}

/// Something that a server is asked to do.
pub(super) struct Errand<'a> {
    method: &'static str,
    params: RawJson,
    context: &'a CallContext,
    twice: Twice,
    /// Nothing that the server says meanwhile is about it.
    is_aside: bool,
    /// The tool that is called, if one is; its call may become a task.
    tool: Option<&'a ToolEntry>,
}

/// What it means to do something twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twice {
    /// It changes nothing, or nothing more than doing it once.
    Harmless,
    /// Nobody knows.
    Risky,
}

impl<'a> Errand<'a> {
    /// A call: the server's own name of the tool, and the arguments as the caller wrote them.
    fn call(call: &'a ValidCall) -> Self {
        let mut params = RawJson::empty_object().with("name", &RawJson::of(call.entry().name()));
        let arguments = call.raw_arguments();
        let given = call.context().client().remarks().unwrap_or_else(RawJson::empty_object);
        if let Some(own) = meta_for(call.context(), &given) {
            params = params.with("_meta", &own);
        }
        if arguments.as_str() != "null" {
            params = params.with("arguments", arguments);
        }
        let annotations = call.entry().annotations();
        let is_harmless = annotations.read_only == Some(true) || annotations.idempotent == Some(true);
        let twice = if is_harmless { Twice::Harmless } else { Twice::Risky };
        let tool = Some(&**call.entry());
        Self { method: CALL, params, context: call.context(), twice, is_aside: false, tool }
    }

    /// A request that is no call.
    pub(super) fn request(request: &Request, context: &'a CallContext, twice: Twice) -> Self {
        let given = request.params.get("_meta").unwrap_or_else(RawJson::empty_object);
        let params = match meta_for(context, &given) {
            Some(own) => request.params.with("_meta", &own),
            None => request.params.without("_meta"),
        };
        let is_aside = request.method.outlasts_its_answer();
        Self { method: request.method.as_str(), params, context, twice, is_aside, tool: None }
    }

    /// What it is, in words.
    fn noun(&self) -> &'static str {
        if self.method == CALL { "call" } else { "request" }
    }
}

/// The members of a request that are for the protocol: its own, and those that were there before.
fn meta_for(context: &CallContext, given: &RawJson) -> Option<RawJson> {
    // Who cannot hear of progress does not want to. What the request says of its sender is said where it is sent.
    let not_carried = ["progressToken", meta::CLIENT_CAPABILITIES, meta::LOG_LEVEL];
    let mut own = not_carried.iter().fold(given.clone(), |own, key| own.without(key));
    if context.client.is_some() {
        own = own.with("progressToken", &RawJson::of(&0));
    }
    if let Some(parent) = &context.trace_parent {
        own = own.with("traceparent", &RawJson::of(&parent.to_string()));
    }
    (!own.names().is_empty()).then_some(own)
}

/// Why a call has no answer.
pub(super) enum Stop {
    /// The server never had it: what is wrong with the connection.
    NotTaken { end: End },
    /// The server did not like it, or has forgotten the session: some say both with the same words.
    Unwelcome(Failure),
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

impl Stop {
    /// Whether the connection was lost while the server may have been at work.
    fn is_loss(&self) -> bool {
        matches!(self, Self::Failed(Failure::Lost(TransportError::Closed | TransportError::Failed { .. })))
    }
}

impl Calls {
    /// Has the server do something. It is asked once more if it never had it, or if its connection was lost and to do
    /// it twice is harmless.
    pub(super) async fn carry_out(&self, errand: &Errand<'_>) -> Result<RawJson, CallError> {
        let live = self.0.ready().await?;
        let next = match self.attempt(&live, errand).await {
            Ok(result) => return Ok(result),
            Err(Stop::NotTaken { end }) => {
                live.give_up(end);
                self.0.successor(&live).await?
            }
            Err(Stop::Unwelcome(_)) => {
                // To begin again would end the calls of all others, so it is done only if it must be. Either way the
                // server has not done anything yet.
                if answers(live.client(), self.0.settings.health_probe).await {
                    live
                } else {
                    live.give_up(End::Expired);
                    self.0.successor(&live).await?
                }
            }
            Err(stop) if stop.is_loss() && errand.twice == Twice::Harmless => {
                // If there is no next time, what is to be told is that the first one came to nothing.
                self.after_loss(&live).await.map_err(|_| self.error(&live, errand, stop))?
            }
            Err(stop) => return Err(self.error(&live, errand, stop)),
        };
        self.attempt(&next, errand).await.map_err(|stop| self.error(&next, errand, stop))
    }

    /// The connection to use after a loss: the same if only one request of many was lost.
    async fn after_loss(&self, live: &Live) -> Result<Live, CallError> {
        let is_over = live.client().connection().is_closed() || live.over().now_or_never().is_some();
        if !is_over {
            if answers(live.client(), self.0.settings.health_probe).await {
                return Ok(live.clone());
            }
            live.give_up(End::Silent);
        }
        self.0.successor(live).await
    }

    /// Does it on one connection, at the latest until that ends.
    async fn attempt(&self, live: &Live, errand: &Errand<'_>) -> Result<RawJson, Stop> {
        let ticket =
            if errand.is_aside { live.traffic().stay() } else { live.traffic().enter(errand.context) };
        let Some(ticket) = ticket else { return Err(Stop::NotTaken { end: End::Unused }) };
        let _doubt = Doubt { live, context: errand.context };
        self.lower_level(live, errand.context).await;
        tokio::select! {
            // An answer that has come counts, whatever else happened.
            biased;
            result = self.rounds(live, errand, &ticket) => result,
            why = live.over() => Err(Stop::Failed(TransportError::failed(why).into())),
        }
    }

    /// Asks, and asks again with answers for as long as the server comes back with questions.
    async fn rounds(&self, live: &Live, errand: &Errand<'_>, ticket: &Ticket) -> Result<RawJson, Stop> {
        let (client, context) = (live.client(), errand.context);
        let mut asked_with = match errand.tool {
            Some(tool) => tasks::asking(&errand.params, tool, client, context),
            None => errand.params.clone(),
        };
        for round in 0..MAX_ROUNDS {
            let sent = client.request(errand.method, Some(asked_with.clone()), self.options(errand)).await;
            let mut exchange = sent.map_err(|failure| match failure {
                Failure::Lost(error) if round == 0 => {
                    Stop::NotTaken { end: End::Lost { why: error.to_string() } }
                }
                failure => Stop::Failed(failure),
            })?;
            ticket.is_request(exchange.id());
            let answered = answer(&mut exchange, live, context).await;
            if let Err(Failure::Refused(refusal)) = &answered
                && client.era() == Era::Session
                && visited(context, refusal).await
            {
                continue;
            }
            let result = match answered {
                Err(Failure::Lost(TransportError::Status { status: 404, .. }))
                    if round == 0 && client.era() == Era::Session =>
                {
                    return Err(Stop::NotTaken { end: End::Expired });
                }
                Err(failure @ Failure::Lost(TransportError::Status { status: 400, .. }))
                    if round == 0 && client.era() == Era::Session =>
                {
                    return Err(Stop::Unwelcome(failure));
                }
                result => result.map_err(Stop::Failed)?,
            };
            if !result.is_object() {
                return Err(failed("the server's answer is no object"));
            }
            let drive = Drive { live, context, ticket };
            if client.era() == Era::Session {
                return match tasks::created(&result).filter(|_| errand.tool.is_some()) {
                    Some(task) => drive.follow(task).await,
                    None => Ok(result),
                };
            }
            let kind = result.get("resultType");
            match kind.as_ref().and_then(RawJson::text).as_deref() {
                None | Some("complete") => return Ok(without_own_members(&result)),
                Some("input_required") => asked_with = with_answers(errand, &result).await?,
                Some("task") if errand.tool.is_some() => return drive.follow(result).await,
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

    fn options(&self, errand: &Errand<'_>) -> RequestOptions {
        let context = errand.context;
        let own = match &context.client {
            None => Some(RawJson::empty_object()),
            Some(client) => client.remarks().and_then(|remarks| remarks.get(meta::CLIENT_CAPABILITIES)),
        };
        let capabilities = match errand.tool {
            Some(_) => Some(tasks::declared(own.unwrap_or_else(capabilities), context)),
            None => own,
        };
        RequestOptions { capabilities, log_level: self.log_level(context), ..RequestOptions::default() }
    }

    /// The mildest line of the log that is wanted with a request.
    fn log_level(&self, context: &CallContext) -> Option<LogLevel> {
        let client = context.client.as_ref()?;
        match asked_level(&**client) {
            // Who comes with every request anew says so each time.
            None if client.is_asked_in_rounds() => None,
            None => Some(self.0.wishes.log_level().unwrap_or(LogLevel::Info)),
            Some(level) => Some(level),
        }
    }

    /// Has a server with a session tell its log from the level on that the caller wants. Each caller is told what it
    /// wants of that alone, so the level only ever becomes milder.
    async fn lower_level(&self, live: &Live, context: &CallContext) {
        let Some(level) = context.client.as_ref().and_then(|client| asked_level(&**client)) else { return };
        if live.client().era() == Era::Session
            && has_log(live.client())
            && self.0.wishes.lower_log_level(level)
        {
            tell_level(live.client(), level).await;
        }
    }

    /// What the caller is told. Who looks after the server is told, too.
    fn error(&self, live: &Live, errand: &Errand<'_>, stop: Stop) -> CallError {
        let (name, noun) = (&self.0.settings.name, errand.noun());
        let failure = match stop {
            Stop::Error(error) => return error,
            Stop::Unwelcome(failure) | Stop::Failed(failure) => failure,
            Stop::NotTaken { end } => {
                live.give_up(end);
                let reason = format!("MCP server '{name}' did not take the {noun}");
                return CallError::ServerUnavailable { reason };
            }
        };
        match failure {
            Failure::Refused(error) => {
                let message = clipped(&error.message, MAX_ERROR_BYTES).into_owned();
                let words = ToolError::new(format_args!("MCP error {}: {message}", error.code));
                let RpcError { code, data, .. } = error;
                CallError::Failed(words.refused(ProtocolError { code, message, data }))
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
                    let reason = format!("MCP server '{name}' did not take the {noun}: {error}");
                    return CallError::ServerUnavailable { reason };
                }
                live.traffic().note_doubt();
                let note = if errand.method == CALL { ". The tool may have run" } else { "" };
                let reason = format!("MCP server '{name}' went away before it answered: {error}{note}");
                CallError::Transport { reason }
            }
        }
    }
}

/// The level that a caller asks for.
fn asked_level(client: &dyn pegboard_core::client::Client) -> Option<LogLevel> {
    client.remarks()?.get(meta::LOG_LEVEL)?.read().ok()
}

pub(super) fn failed(problem: impl std::fmt::Display) -> Stop {
    Stop::Error(CallError::Failed(ToolError::new(problem)))
}

/// The end of a request. What is said before it is told to the caller, in order.
pub(super) async fn answer(
    exchange: &mut Exchange,
    live: &Live,
    context: &CallContext,
) -> Result<RawJson, Failure> {
    loop {
        match exchange.next().await {
            Happening::Notice(notice) => {
                if let Some(notice) = live.traffic().hear(notice) {
                    tell(context.client(), notice);
                }
            }
            Happening::End(end) => return end,
        }
    }
}

/// The parameters with the caller's answers to the server's questions, and the server's state exactly as it came.
async fn with_answers(errand: &Errand<'_>, result: &RawJson) -> Result<RawJson, Stop> {
    let asked = result.get("inputRequests").unwrap_or_else(RawJson::empty_object);
    let answers = answers_to(errand.context, &asked).await?;
    let params = errand.params.with("inputResponses", &answers);
    Ok(match result.get("requestState") {
        Some(state) => params.with("requestState", &state),
        None => params,
    })
}

/// What the caller answers to a server's questions, by their names.
pub(super) async fn answers_to(context: &CallContext, asked: &RawJson) -> Result<RawJson, Stop> {
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
            answered.map_err(|error| failed(format_args!("the server asked a question, and {error}")))?;
        answers = answered.iter().fold(answers, |all, (name, answer)| all.with(name, answer));
    }
    Ok(answers)
}

/// A result without what the protocol adds to every result of the stateless era.
pub(super) fn without_own_members(result: &RawJson) -> RawJson {
    without_meta(&result.without("resultType"), meta::SERVER_INFO)
}
