//! Running a chain as one call that returns the complete chain result.

use std::mem;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, ValidCall};
use pegboard_core::chain::{ChainResult, ChainSpec, ExecuteOptions, ToolChain};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolName};
use pegboard_core::output::Output;
use pegboard_core::provider::ToolKind;
use pegboard_json::RawJson;
use serde_json::{Value, json};

use crate::call::CallBuilder;
use crate::caller::Caller;
use crate::catalogue::CatalogueTool;
use crate::runtime::ResolvedTool;

/// Name of the server that publishes chains.
const SERVER: &str = "chain";
/// Name of a chain without a valid tool name.
const DEFAULT_NAME: &str = "chain";

/// A chain to run.
#[derive(Clone, Debug)]
pub struct ChainRun {
    /// The chain.
    pub spec: ChainSpec,
    /// Initial input: an object, or null for none.
    pub input: Value,
    /// Execution options.
    pub options: ExecuteOptions,
}

impl Caller {
    /// Prepares to run a chain as one call with its steps as nested calls. The structured content of the
    /// answer is a [`ChainResult`](pegboard_core::chain::ChainResult), on success and on failure.
    pub fn prepare_chain(&self, run: ChainRun) -> CallBuilder {
        let ChainRun { spec, input, options } = run;
        let name = spec.name.clone().filter(|name| ToolName::new(name).is_ok());
        let name = name.unwrap_or_else(|| DEFAULT_NAME.to_owned());
        let entry = ToolEntry::from_handler(name, "", Arc::new(ChainHandler { spec, options }));
        let entry = Arc::new(entry.unmanaged().validating_own_arguments());
        let tool = CatalogueTool::standalone(&server(), entry, ToolKind::Agent, "");
        let call = Call::new(&*tool.flat_name, CallArguments::from(input));
        self.prepare(call).tool(ResolvedTool::standalone(tool, self.shared().queues.load()))
    }
}

fn server() -> ServerName {
    ServerName::new(SERVER).expect("the constant is a valid name")
}

/// Handler that runs a chain and returns its complete result.
struct ChainHandler {
    spec: ChainSpec,
    options: ExecuteOptions,
}

impl Handler for ChainHandler {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let Some(tools) = call.context().tools.as_deref() else {
                return Ok(Output::failure("a chain requires a session"));
            };
            let chain = ToolChain::from_spec(self.spec.clone(), tools);
            let result = chain.execute_with(call.arguments().clone(), self.options).await;
            let is_error = !result.success;
            let text = if is_error {
                RawJson::of(&result.errors.join("\n"))
            } else {
                RawJson::of(RawJson::of(&result.context).as_str())
            };
            let content = RawJson::object(&[("type", &RawJson::of("text")), ("text", &text)]);
            Ok(Output::result(RawJson::object(&[
                ("content", &RawJson::of(&[content])),
                ("structuredContent", &RawJson::of(&result_json(&self.spec, result))),
                ("isError", &RawJson::of(&is_error)),
            ])))
        }
        .boxed()
    }
}

/// Serializes a chain result, adding the tool name to each step.
fn result_json(spec: &ChainSpec, mut result: ChainResult) -> Value {
    // What may be large is moved, not copied.
    let context = mem::take(&mut result.context);
    let data: Vec<Value> = result.step_results.iter_mut().map(|step| mem::take(&mut step.data)).collect();
    let mut document = json!(result);
    document["context"] = context.into();
    // Step results are in order, up to the step at which the chain ended.
    let steps = document["step_results"].as_array_mut().into_iter().flatten();
    for ((step, step_result), data) in spec.steps.iter().zip(steps).zip(data) {
        step_result["data"] = data;
        step_result["tool"] = step.tool_name.as_str().into();
    }
    document
}
