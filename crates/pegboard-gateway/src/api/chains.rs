//! Chains: those that are configured, what one would do, and its run.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::future::join_all;
use pegboard_core::call::{CallContext, Ended, Invoker};
use pegboard_core::chain::{ChainSpec, ExecuteOptions, PlannedStep, ToolChain};
use pegboard_core::error::CallError;
use pegboard_json::RawJson;
use pegboard_runtime::names::nearest;
use pegboard_runtime::{Caller, ChainRun, Runtime};
use serde_json::{Map, Value, json};

use super::calls::{Making, TellBegun, Wishes};
use super::problem::Problem;
use super::question::{Form, Order};
use super::stream::document;
use super::window::{Shown, Window};

/// How many steps a chain may have that comes with a request.
const MAX_STEPS: usize = 100;
/// What an order to run a chain may say.
const KNOWN: [&str; 7] = ["name", "spec", "input", "keepGoing", "timeoutMs", "noCache", "session"];

/// `GET /api/chains`
pub(super) async fn list(State(window): Shown) -> Result<Response, Problem> {
    let chains = window.runtime()?.chains();
    let chains = chains.iter().map(|(toolbox, chain)| {
        let steps: Vec<&str> = chain.steps.iter().map(|step| step.tool_name.as_str()).collect();
        let mut told = json!({
            "toolbox": toolbox,
            "name": chain.name,
            "description": chain.description.as_deref().unwrap_or_default(),
            "steps": steps,
        });
        if !chain.input_schema.is_empty() {
            told["inputSchema"] = chain.input_schema.as_json().clone();
        }
        told
    });
    Ok(document(json!({"chains": chains.collect::<Vec<_>>()})))
}

/// `POST /api/chains/check`
pub(super) async fn check(State(window): Shown, headers: HeaderMap, body: Body) -> Result<Response, Problem> {
    let order = Order::read(&window, &headers, body, &["name", "spec"]).await?;
    let spec = wanted(window.runtime()?, &order)?;
    let caller = window.caller(None)?;
    // Servers that have not been asked yet what they have are asked now; what they do not have is a problem below.
    let missing: Vec<Option<Problem>> =
        join_all(spec.steps.iter().map(|step| missing(&window, &caller, &step.tool_name))).await;
    let chain = ToolChain::from_spec(spec, &caller);
    let plan = chain.plan();
    let steps: Vec<&str> = chain.spec().steps.iter().map(|step| step.tool_name.as_str()).collect();
    Ok(document(json!({
        "name": chain.spec().name,
        "steps": steps,
        "problems": plan.problems,
        "plan": plan.stages.iter().flatten().zip(&missing).map(planned).collect::<Vec<_>>(),
    })))
}

/// Why a tool cannot be called, if it cannot.
async fn missing(window: &Window, caller: &Caller, tool: &str) -> Option<Problem> {
    // What it cannot select may still be a tool, as chains find them.
    let _ = Invoker::select(caller, tool).await;
    if Invoker::find(caller, tool).is_some() {
        return None;
    }
    let runtime = window.runtime().ok()?;
    caller.find_tool(&Window::tool_ref(runtime, tool)).await.err().map(Problem::from)
}

/// One step of a plan as it is told.
fn planned((step, missing): (&PlannedStep, &Option<Problem>)) -> Value {
    let inputs: Map<String, Value> = step.inputs.iter().cloned().collect();
    let mut told = json!({"step": step.index, "tool": step.tool, "isThere": step.is_there, "inputs": inputs});
    let others = [
        ("output", Some(step.output.clone()).filter(|output| !output.is_empty()).map(Value::from)),
        ("forEach", step.for_each.clone().map(Value::from)),
        ("when", step.when.clone()),
        ("readOnly", step.read_only.map(Value::from)),
        ("error", missing.as_ref().map(|problem| problem.document()["error"].clone())),
    ];
    for (name, value) in others {
        if let Some(value) = value {
            told[name] = value;
        }
    }
    told
}

/// `POST /api/chains/run`
pub(super) async fn run(
    State(window): Shown,
    form: Form,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let order = Order::read(&window, &headers, body, &KNOWN).await?;
    let spec = wanted(window.runtime()?, &order)?;
    let input: Map<String, Value> = order.get("input", "an object")?.unwrap_or_default();
    let keeps_going: bool = order.get("keepGoing", "true or false")?.unwrap_or_default();
    let session: Option<String> = order.get("session", "a name")?;
    let caller = window.caller(session.as_deref())?;
    let missing = join_all(spec.steps.iter().map(|step| missing(&window, &caller, &step.tool_name))).await;
    if let Some((index, problem)) =
        missing.into_iter().enumerate().find_map(|(index, problem)| Some((index, problem?)))
    {
        return Err(problem.at(format!("$.steps[{index}].tool")));
    }
    let verdict = spec.input_schema.check(&Value::Object(input.clone()));
    if !verdict.errors.is_empty() {
        return Err(CallError::InvalidParameters { violations: verdict.errors }.into());
    }
    let options = ExecuteOptions { stop_on_failure: !keeps_going, ..ExecuteOptions::default() };
    let run = ChainRun { spec, input: input.into(), options };
    let start =
        move |caller: &Caller, context: CallContext, begun: TellBegun| caller.run_chain(run, context, begun);
    let making = Making { caller, wishes: Wishes::of(&order)?, start: Box::new(start), words: answered };
    making.respond(&window, form).await
}

/// What became of a chain, well or not, or why it did not run.
fn answered(ended: &Ended) -> Result<RawJson, Problem> {
    let output = ended.result.as_ref().map_err(|error| Problem::from(error.clone()))?;
    let whole = output.data();
    let renamed = |value: &Value| {
        let mut value = value.clone();
        if let Some(took) = value.as_object_mut().and_then(|members| members.shift_remove("duration_ms")) {
            value["durationMs"] = rounded(&took);
        }
        value
    };
    let steps: Vec<Value> = whole["step_results"].as_array().into_iter().flatten().map(renamed).collect();
    let result = json!({
        "success": whole["success"],
        "context": whole["context"],
        "steps": steps,
        "errors": whole["errors"],
        "durationMs": rounded(&whole["duration_ms"]),
    });
    Ok(RawJson::from(json!({
        "result": result,
        "text": output.text(),
        "isError": output.is_error(),
        "bytes": output.n_bytes(),
    })))
}

/// Milliseconds with microseconds as their fraction.
fn rounded(millis: &Value) -> Value {
    millis.as_f64().map_or(Value::Null, |millis| ((millis * 1_000.0).round() / 1_000.0).into())
}

/// The chain that an order means: one that is configured, or the one that it brings.
fn wanted(runtime: &Runtime, order: &Order) -> Result<ChainSpec, Problem> {
    let name: Option<String> = order.get("name", "the name of a chain")?;
    match (name, order.raw("spec")) {
        (Some(name), None) => configured(runtime, &name),
        (None, Some(spec)) => {
            let spec: ChainSpec = spec
                .read()
                .map_err(|error| Problem::bad_request(format!("spec is no chain: {error}")).at("$.spec"))?;
            if spec.steps.len() > MAX_STEPS {
                let problem = format!("a chain that comes with a request has at most {MAX_STEPS} steps");
                return Err(Problem::bad_request(problem).at("$.spec.steps"));
            }
            Ok(spec)
        }
        (Some(_), Some(_)) => Err(Problem::bad_request("give either name or spec, not both")),
        (None, None) => Err(Problem::bad_request("give the name of a chain, or its spec")),
    }
}

/// The chain of this name, with its toolbox before it or not; of several, the first.
fn configured(runtime: &Runtime, asked: &str) -> Result<ChainSpec, Problem> {
    let chains = runtime.chains();
    let is_meant = |toolbox: &str, name: &str| {
        [
            name.to_owned(),
            format!("chain__{name}"),
            format!("{toolbox}/{name}"),
            format!("{toolbox}/chain/{name}"),
        ]
        .iter()
        .any(|spelling| spelling == asked)
    };
    let named =
        || chains.iter().filter_map(|(toolbox, chain)| Some((toolbox, chain.name.as_deref()?, chain)));
    if let Some((_, _, chain)) = named().find(|(toolbox, name, _)| is_meant(toolbox.as_str(), name)) {
        return Ok(chain.clone());
    }
    let shown: String = asked.chars().take(80).collect();
    let problem = Problem::not_found(format!("There is no chain '{shown}'"));
    Err(match nearest(asked, named().map(|(_, name, _)| name), 1).first() {
        Some(near) => problem.hint(format!("did you mean {near}?")),
        None => problem.hint("GET /api/chains lists those there are"),
    })
}
