//! Several calls in one request, each answered as it ends.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::StreamExt;
use futures_util::stream;
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, CallContext};
use pegboard_json::RawJson;
use pegboard_runtime::{Caller, Runtime};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::calls::{End, answered, note};
use super::problem::Problem;
use super::question::{Form, Order};
use super::stream::{Item, MAX_WAITING, document, items};
use super::window::{Shown, Window};

/// How many calls one request may make.
const MAX_CALLS: usize = 1_000;
/// How many of them run at the same time if nobody says otherwise.
const N_AT_ONCE: usize = 8;
/// How many may at most.
const MAX_AT_ONCE: usize = 32;

/// One call of a batch.
struct Wanted {
    index: usize,
    tool: String,
    arguments: RawJson,
}

/// `POST /api/batch`
pub(super) async fn make(
    State(window): Shown,
    form: Form,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let order = Order::read(&window, &headers, body, &["calls", "parallel", "session"]).await?;
    let wanted = read(&order)?;
    let n_at_once: usize = order.get("parallel", "a number of calls")?.unwrap_or(N_AT_ONCE);
    if !(1..=MAX_AT_ONCE).contains(&n_at_once) {
        return Err(
            Problem::bad_request(format!("parallel must be from 1 to {MAX_AT_ONCE}")).at("$.parallel")
        );
    }
    let session: Option<String> = order.get("session", "a name")?;
    let (runtime, caller) = (window.runtime()?.clone(), window.caller(session.as_deref())?);
    let mut answers = stream::iter(wanted)
        .map(move |wanted| one(runtime.clone(), caller.clone(), wanted))
        .buffer_unordered(n_at_once);
    if form == Form::Document {
        let mut all: Vec<(usize, RawJson)> = answers.collect().await;
        all.sort_by_key(|(index, _)| *index);
        let all: Vec<RawJson> = all.into_iter().map(|(_, answer)| answer).collect();
        return Ok(document(RawJson::empty_object().with("answers", &RawJson::of(&all))));
    }
    let (sender, receiver) = mpsc::channel(MAX_WAITING);
    let work = async move {
        while let Some((_, data)) = answers.next().await {
            // A reader that is gone takes the work with it.
            let _ = sender.send(Item { event: "answer", data }).await;
        }
    };
    let work = AbortOnDropHandle::new(tokio::spawn(work));
    Ok(items(form, receiver, work, window.options.keep_alive))
}

/// The calls of an order.
fn read(order: &Order) -> Result<Vec<Wanted>, Problem> {
    let calls = order.raw("calls").filter(|calls| calls.as_str().starts_with('['));
    let calls = calls.ok_or_else(|| Problem::bad_request("calls must be a list of calls").at("$.calls"))?;
    let mut wanted = Vec::new();
    for (index, call) in calls.items().take(MAX_CALLS + 1).enumerate() {
        let wrong = |what: &str| Problem::bad_request(what).at(format!("$.calls[{index}]"));
        if !call.is_object() {
            return Err(wrong("a call must be an object"));
        }
        if let Some(name) = call.names().iter().find(|name| !["tool", "arguments"].contains(&name.as_str())) {
            return Err(wrong(&format!("'{name}' means nothing here; there are tool, arguments")));
        }
        let tool = call.get("tool").and_then(|tool| Some(tool.text()?.into_owned()));
        let tool = tool.ok_or_else(|| wrong("tool must be the name of a tool"))?;
        let arguments = call.get("arguments").unwrap_or_else(RawJson::empty_object);
        if !arguments.is_object() {
            return Err(wrong("arguments must be an object"));
        }
        wanted.push(Wanted { index, tool, arguments });
    }
    if wanted.len() > MAX_CALLS {
        return Err(Problem::bad_request(format!("at most {MAX_CALLS} calls are made at once")).at("$.calls"));
    }
    Ok(wanted)
}

/// Makes one call, and says how it went.
async fn one(runtime: Runtime, caller: Caller, wanted: Wanted) -> (usize, RawJson) {
    let Wanted { index, tool, arguments } = wanted;
    let known = Arc::new(OnceLock::new());
    let began = Instant::now();
    let call = Call {
        context: CallContext::default(),
        ..Call::new(Window::tool_ref(&runtime, &tool), Arguments::from(arguments))
    };
    let ended = caller.start_telling(call, note(&known)).await;
    let end = End { known: known.get(), took: began.elapsed(), words: answered };
    let about = RawJson::from(json!({"index": index, "tool": tool}));
    let told = match end.told(&ended) {
        Ok(answer) => answer.members().fold(about, |all, (name, value)| all.with(&name, &value)),
        Err(problem) => {
            let problem = RawJson::from(problem.document());
            let all = problem.members().fold(about, |all, (name, value)| all.with(&name, &value));
            all.with("durationMs", &RawJson::of(&super::stream::in_millis(end.took)))
        }
    };
    (index, told)
}
