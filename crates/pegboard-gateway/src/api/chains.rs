//! `/api/chains`: lists, checks and runs chains.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::future::join_all;
use pegboard_core::call::{CallResult, ToolRef};
use pegboard_core::chain::{ChainSpec, ExecuteOptions, PlannedStep, ToolChain};
use pegboard_core::error::CallError;
use pegboard_core::similar::nearest;
use pegboard_json::RawJson;
use pegboard_runtime::{Caller, ChainRun, Runtime};
use serde_json::{Map, Value, json};

use super::calls::{CallResponder, RequestedOptions};
use super::extract::{RequestBody, ResponseFormat};
use super::problem::ApiProblem;
use super::state::SharedApiState;
use super::stream::json_response;

/// Maximum number of steps of a chain in a request body.
const MAX_STEPS: usize = 100;
/// Maximum size of a chain in a request body.
const MAX_SPEC_BYTES: usize = 1 << 20;
/// Keys that the body of a run may have.
const RUN_KEYS: [&str; 7] = ["name", "spec", "input", "keepGoing", "timeoutMs", "noCache", "session"];

/// `GET /api/chains`
pub(super) async fn list(State(state): SharedApiState) -> Result<Response, ApiProblem> {
    let chains = state.runtime()?.chains();
    let chains = chains.iter().map(|(toolbox, chain)| {
        let steps: Vec<&str> = chain.steps.iter().map(|step| step.tool_name.as_str()).collect();
        let mut json = json!({
            "toolbox": toolbox,
            "name": chain.name,
            "description": chain.description.as_deref().unwrap_or_default(),
            "steps": steps,
        });
        if !chain.input_schema.is_empty() {
            json["inputSchema"] = chain.input_schema.as_json().clone();
        }
        json
    });
    Ok(json_response(json!({"chains": chains.collect::<Vec<_>>()})))
}

/// `POST /api/chains/check`
pub(super) async fn check(
    State(state): SharedApiState,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiProblem> {
    let body = RequestBody::read(&state, &headers, body, &["name", "spec"]).await?;
    let spec = requested_chain(state.runtime()?, &body)?;
    let caller = state.caller(None)?;
    // Starts servers with unknown tools; a tool that is still missing is reported below.
    let unavailable = unavailable_reasons(&spec, &caller).await;
    let unavailable: Vec<Option<ApiProblem>> =
        unavailable.into_iter().map(|error| error.map(ApiProblem::from)).collect();
    let chain = ToolChain::from_spec(spec, &caller);
    chain.compile().await?;
    let plan = chain.plan();
    let steps: Vec<&str> = chain.spec().steps.iter().map(|step| step.tool_name.as_str()).collect();
    Ok(json_response(json!({
        "name": chain.spec().name,
        "steps": steps,
        "problems": plan.problems,
        "warnings": plan.warnings,
        "plan": plan.stages.iter().flatten().zip(&unavailable).map(planned_step).collect::<Vec<_>>(),
    })))
}

/// Returns, for each step, the reason why its tool cannot be called, if it cannot. Starts the servers that the
/// names point to.
async fn unavailable_reasons(spec: &ChainSpec, caller: &Caller) -> Vec<Option<CallError>> {
    let reason = async |tool: ToolRef| caller.find_tool(&tool, None).await.err();
    join_all(spec.steps.iter().map(|step| reason(step.tool_name.as_str().into()))).await
}

/// Renders one step of a plan.
fn planned_step((step, unavailable): (&PlannedStep, &Option<ApiProblem>)) -> Value {
    let inputs: Map<String, Value> = step.inputs.iter().cloned().collect();
    let mut json = json!({"step": step.index, "tool": step.tool, "exists": step.is_there, "inputs": inputs});
    let others = [
        ("output", Some(step.output.clone()).filter(|output| !output.is_empty()).map(Value::from)),
        ("forEach", step.for_each.clone().map(Value::from)),
        ("when", step.when.clone()),
        ("readOnly", step.read_only.map(Value::from)),
        ("error", unavailable.as_ref().map(|problem| json!(problem.error()))),
    ];
    for (name, value) in others {
        if let Some(value) = value {
            json[name] = value;
        }
    }
    json
}

/// `POST /api/chains/run`
pub(super) async fn run(
    State(state): SharedApiState,
    format: ResponseFormat,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiProblem> {
    let body = RequestBody::read(&state, &headers, body, &RUN_KEYS).await?;
    let spec = requested_chain(state.runtime()?, &body)?;
    let input: Map<String, Value> = body.get("input", "an object")?.unwrap_or_default();
    let keep_going: bool = body.get("keepGoing", "true or false")?.unwrap_or_default();
    let session: Option<String> = body.get("session", "a name")?;
    let caller = state.named_caller(session.as_deref(), &headers)?;
    let unavailable = unavailable_reasons(&spec, &caller).await;
    let errors =
        || unavailable.iter().enumerate().filter_map(|(index, error)| Some((index, error.as_ref()?)));
    if let Some((index, error)) = errors().next() {
        let all = errors().map(|(index, error)| format!("Step {index}: {}", error.text()));
        return Err(ApiProblem::from(error.clone())
            .at(format!("$.steps[{index}].tool"))
            .violations(all.collect()));
    }
    let input = Value::Object(input);
    let validation = ToolChain::from_spec(spec.clone(), &caller).check_input(&input).await?;
    if !validation.errors.is_empty() {
        return Err(CallError::InvalidParameters { violations: validation.errors }.into());
    }
    let options = ExecuteOptions { stop_on_failure: !keep_going, ..ExecuteOptions::default() };
    let run = ChainRun { spec, input, options };
    let responder = CallResponder {
        call: caller.prepare_chain(run),
        options: RequestedOptions::from_body(&body)?,
        render: chain_response,
    };
    responder.respond(&state, format).await
}

/// Renders the result of a chain, successful or not.
fn chain_response(call_result: &CallResult) -> Result<RawJson, ApiProblem> {
    let output = call_result.result.as_ref().map_err(|error| ApiProblem::from(error.clone()))?;
    let mut result = output.data().into_owned();
    let steps = result["step_results"].as_array_mut().into_iter().flatten();
    steps.for_each(round_duration);
    round_duration(&mut result);
    Ok(RawJson::from(json!({
        "result": result,
        "text": output.text(),
        "isError": output.is_error(),
        "bytes": output.n_bytes(),
    })))
}

/// Rounds the duration of a result to whole microseconds.
fn round_duration(result: &mut Value) {
    if let Some(duration) = result.get_mut("duration_ms")
        && let Some(millis) = duration.as_f64()
    {
        *duration = ((millis * 1_000.0).round() / 1_000.0).into();
    }
}

/// Returns the chain of a request: a configured one by `name`, or the inline `spec`.
fn requested_chain(runtime: &Runtime, body: &RequestBody) -> Result<ChainSpec, ApiProblem> {
    let name: Option<String> = body.get("name", "the name of a chain")?;
    match (name, body.raw("spec")) {
        (Some(name), None) => find_configured(runtime, &name),
        (None, Some(spec)) if spec.as_bytes().len() > MAX_SPEC_BYTES => {
            let limit = MAX_SPEC_BYTES >> 10;
            let problem = format!("the chain is larger than {limit} KiB: pass large values in 'input'");
            Err(ApiProblem::bad_request(problem).at("$.spec"))
        }
        (None, Some(spec)) => {
            let spec: ChainSpec = spec
                .read()
                .map_err(|error| ApiProblem::bad_request(format!("invalid chain: {error}")).at("$.spec"))?;
            if spec.steps.len() > MAX_STEPS {
                let problem = format!("an inline chain can have at most {MAX_STEPS} steps");
                return Err(ApiProblem::bad_request(problem).at("$.spec.steps"));
            }
            Ok(spec)
        }
        (Some(_), Some(_)) => Err(ApiProblem::bad_request("give either name or spec, not both")),
        (None, None) => Err(ApiProblem::bad_request("give the name of a chain, or its spec")),
    }
}

/// Returns the configured chain with this name, with or without its toolbox; the first of several.
fn find_configured(runtime: &Runtime, requested: &str) -> Result<ChainSpec, ApiProblem> {
    let chains = runtime.chains();
    let is_match = |toolbox: &str, name: &str| {
        [
            name.to_owned(),
            format!("chain__{name}"),
            format!("{toolbox}/{name}"),
            format!("{toolbox}/chain/{name}"),
        ]
        .iter()
        .any(|spelling| spelling == requested)
    };
    let named =
        || chains.iter().filter_map(|(toolbox, chain)| Some((toolbox, chain.name.as_deref()?, chain)));
    if let Some((_, _, chain)) = named().find(|(toolbox, name, _)| is_match(toolbox.as_str(), name)) {
        return Ok(chain.clone());
    }
    let shown: String = requested.chars().take(80).collect();
    let problem = ApiProblem::not_found(format!("unknown chain '{shown}'"));
    Err(match nearest(requested, named().map(|(_, name, _)| name), 1).first() {
        Some(suggestion) => problem.hint(format!("did you mean {suggestion}?")),
        None => problem.hint("GET /api/chains lists all chains"),
    })
}
