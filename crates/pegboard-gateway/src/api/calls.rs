//! Calls: those that are under way, and those that are made here.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, CallContext, Ended, Running, ToolRef};
use pegboard_core::projection::mcp_result;
use pegboard_json::RawJson;
use pegboard_runtime::trace_id::TraceId;
use pegboard_runtime::{Begun, CallId, CallStatus, Caller};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::problem::Problem;
use super::question::{Form, Order};
use super::stream::{Item, MAX_WAITING, document, in_millis, items, millis};
use super::window::{Shown, Window};
use talk::Talk;

mod talk;

pub(super) use talk::Talks;

/// How many calls are listed.
const MAX_LISTED: usize = 1_000;
/// How long a call may be wanted to take at most.
const MAX_TIMEOUT: Duration = Duration::from_hours(24);
/// What the order of a call may say.
const KNOWN: [&str; 5] = ["tool", "arguments", "timeoutMs", "noCache", "session"];

/// `GET /api/calls`
pub(super) async fn list(State(window): Shown) -> Result<Response, Problem> {
    let now = window.now();
    let calls = window.runtime()?.calls().into_iter().filter(|call| window.who.sees(&call.owner));
    let calls = calls.take(MAX_LISTED).map(|call| {
        let CallStatus { id, trace, session, operation, tool, running_for, state, .. } = call;
        json!({
            "callId": id.to_string(),
            "traceId": trace,
            "tool": tool,
            "caller": session,
            "operation": operation,
            "state": state,
            "startedAt": millis(now.checked_sub(running_for).unwrap_or(now)),
            "sinceMs": in_millis(running_for),
        })
    });
    Ok(document(json!({"calls": calls.collect::<Vec<_>>()})))
}

/// `DELETE /api/calls/{call}`
pub(super) async fn cancel(State(window): Shown, Path(call): Path<String>) -> Result<StatusCode, Problem> {
    let runtime = window.runtime()?;
    let id: CallId = call.parse().map_err(|_| not_under_way(&call))?;
    let is_theirs = |status: &CallStatus| status.id == id && window.who.sees(&status.owner);
    if runtime.calls().iter().any(is_theirs) && runtime.cancel(id) {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(not_under_way(&call))
}

fn not_under_way(call: &str) -> Problem {
    let call: String = call.chars().take(40).collect();
    Problem::not_found(format!("No call '{call}' is under way")).hint("GET /api/calls lists those that are")
}

/// `POST /api/calls/{call}/answers`
pub(super) async fn answer(
    State(window): Shown,
    Path(call): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let order = Order::read(&window, &headers, body, &["id", "answers"]).await?;
    let id: String = order.need("id", "the id of a question, as it was asked")?;
    let answers = order.raw("answers").filter(RawJson::is_object).ok_or_else(|| {
        Problem::bad_request("answers must be an object with an answer for each name").at("$.answers")
    })?;
    let talk = call.parse().ok().and_then(|call| window.api.talks.get(call));
    let talk = talk.filter(|talk| window.who.sees(talk.owner())).ok_or_else(|| not_under_way(&call))?;
    talk.answer(&id, &answers)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /api/calls`
pub(super) async fn make(
    State(window): Shown,
    form: Form,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let order = Order::read(&window, &headers, body, &KNOWN).await?;
    let tool: String = order.need("tool", "the name of a tool")?;
    let arguments = order.raw("arguments").unwrap_or_else(RawJson::empty_object);
    if !arguments.is_object() {
        return Err(Problem::bad_request("arguments must be an object").at("$.arguments"));
    }
    let wishes = Wishes::of(&order)?;
    let session: Option<String> = order.get("session", "a name")?;
    let caller = window.caller(session.as_deref())?;
    // A name that means one tool means it whatever the arguments are: what is wrong with them is told of that tool.
    let tool = caller.find_tool(&Window::tool_ref(window.runtime()?, &tool)).await?;
    let call = Call::new(ToolRef::Id(tool.id.clone()), Arguments::from(arguments));
    let start = move |caller: &Caller, context: CallContext, begun: TellBegun| {
        caller.start_telling(Call { context, ..call }, begun)
    };
    let making = Making { caller, wishes, start: Box::new(start), words: answered };
    making.respond(&window, form).await
}

/// Hears what a call is known by.
pub(super) type TellBegun = Box<dyn FnOnce(Begun) + Send>;

/// Something that starts a call.
type Start = Box<dyn FnOnce(&Caller, CallContext, TellBegun) -> Running + Send>;

/// What is wanted of a call beside what it is of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wishes {
    timeout: Option<Duration>,
    is_fresh: bool,
}

impl Wishes {
    /// What an order says of it.
    pub(super) fn of(order: &Order) -> Result<Self, Problem> {
        let millis: Option<u64> = order.get("timeoutMs", "a number of milliseconds")?;
        if millis == Some(0) {
            return Err(Problem::bad_request("timeoutMs must be more than 0").at("$.timeoutMs"));
        }
        let timeout = millis.map(|millis| Duration::from_millis(millis).min(MAX_TIMEOUT));
        let is_fresh = order.get("noCache", "true or false")?.unwrap_or_default();
        Ok(Self { timeout, is_fresh })
    }

    fn context(self) -> CallContext {
        let mut context = CallContext::default();
        context.options.fresh = self.is_fresh;
        if let Some(timeout) = self.timeout {
            // It counts from now, and in place of what is configured for the tool.
            context.options.disable_global_timeout = true;
            context.deadline = Some(Instant::now() + timeout);
        }
        context
    }
}

/// A call that is about to be made.
pub(super) struct Making {
    pub(super) caller: Caller,
    pub(super) wishes: Wishes,
    pub(super) start: Start,
    /// What is told of its end.
    pub(super) words: fn(&Ended) -> Result<RawJson, Problem>,
}

impl Making {
    /// Makes the call, and answers in the form that is wanted. When whoever wanted it goes away, it is called off.
    pub(super) async fn respond(self, window: &Window, form: Form) -> Result<Response, Problem> {
        match form {
            Form::Document => {
                let began = Instant::now();
                let known = Arc::new(OnceLock::new());
                let running = (self.start)(&self.caller, self.wishes.context(), note(&known));
                let ended = running.await;
                let end = End { known: known.get(), took: began.elapsed(), words: self.words };
                end.told(&ended).map(document)
            }
            Form::Events | Form::Lines => Ok(self.stream(window, form)),
        }
    }

    fn stream(self, window: &Window, form: Form) -> Response {
        let Self { caller, wishes, start, words } = self;
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        let talk = Talk::new(caller.owner(), sender.clone());
        let mut context = wishes.context();
        context.client = Some(Arc::clone(&talk) as _);
        let known = Arc::new(OnceLock::new());
        let (began, talks) = (Instant::now(), Arc::clone(&window.api.talks));
        let entry = talks.entry(talk, Arc::clone(&known));
        let running = start(&caller, context, entry.opening());
        let work = async move {
            let ended = running.await;
            let end = End { known: known.get(), took: began.elapsed(), words };
            let last = match end.told(&ended) {
                Ok(result) => Item { event: "result", data: result },
                Err(problem) => Item::new("error", problem.document()),
            };
            drop(entry);
            // Who listened may be gone.
            let _ = sender.send(last).await;
        };
        let work = AbortOnDropHandle::new(tokio::spawn(work));
        items(form, receiver, work, window.options.keep_alive)
    }
}

/// Notes what a call is known by.
pub(super) fn note(known: &Arc<OnceLock<Begun>>) -> TellBegun {
    let known = Arc::clone(known);
    Box::new(move |begun| {
        known.get_or_init(|| begun);
    })
}

/// The end of a call, and what there is to say of it.
pub(super) struct End<'e> {
    pub(super) known: Option<&'e Begun>,
    pub(super) took: Duration,
    pub(super) words: fn(&Ended) -> Result<RawJson, Problem>,
}

impl End<'_> {
    fn trace(&self) -> Option<TraceId> {
        self.known.map(|begun| begun.trace.clone())
    }

    pub(super) fn told(&self, ended: &Ended) -> Result<RawJson, Problem> {
        let answer = (self.words)(ended).map_err(|problem| problem.of_call(self.trace()))?;
        let known = self.known.map_or_else(RawJson::empty_object, |Begun { id, trace }| {
            RawJson::from(json!({"callId": id.to_string(), "traceId": trace}))
        });
        let mut about = json!({"durationMs": in_millis(self.took), "cached": ended.journey.is_cached});
        if let Some(handle) = &ended.journey.stored {
            about["storedAs"] = handle.0.clone().into();
        }
        if let Some(asked) = &ended.journey.corrected_from {
            about["correctedFrom"] = asked.clone().into();
        }
        about["warnings"] = ended.warnings.clone().into();
        let about = RawJson::from(about);
        let members = answer.members().chain(about.members());
        Ok(members.fold(known, |all, (name, value)| all.with(&name, &value)))
    }
}

/// What a tool answered, or why it did not.
pub(super) fn answered(ended: &Ended) -> Result<RawJson, Problem> {
    let output = ended.result.as_ref().map_err(|error| Problem::from(error.clone()))?;
    Ok(RawJson::empty_object()
        .with("result", &mcp_result(ended))
        .with("text", &RawJson::of(&*output.text()))
        .with("isError", &RawJson::of(&output.is_error()))
        .with("bytes", &RawJson::of(&output.n_bytes())))
}
