//! The run of a chain as a call of its own, which is answered with everything that became of it.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, CallContext, Running, ValidCall};
use pegboard_core::chain::{ChainResult, ChainSpec, ExecuteOptions, ToolChain};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::id::{ServerName, ToolName};
use pegboard_core::output::Output;
use pegboard_core::provider::ToolKind;
use pegboard_json::RawJson;
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::calls::Begun;
use crate::carry;
use crate::catalogue::Tool;
use crate::runtime::Found;

/// The server of chains.
const SERVER: &str = "chain";
/// What a chain is called that has no name, or none that a tool could have.
const NAMELESS: &str = "chain";

/// A chain that is to run.
#[derive(Clone, Debug)]
pub struct ChainRun {
    /// The chain.
    pub spec: ChainSpec,
    /// What it begins with: an object, or null for nothing.
    pub input: Value,
    /// How it runs.
    pub options: ExecuteOptions,
}

impl Caller {
    /// Runs a chain as a call of its own, under which its steps are. The structured content of its answer is a
    /// [`ChainResult`](pegboard_core::chain::ChainResult), whether it went well or not. What the run is known by is
    /// told once it is under way.
    pub fn run_chain(
        &self,
        run: ChainRun,
        context: CallContext,
        begun: impl FnOnce(Begun) + Send + 'static,
    ) -> Running {
        let ChainRun { spec, input, options } = run;
        let name = spec.name.clone().filter(|name| ToolName::new(name).is_ok());
        let name = name.unwrap_or_else(|| NAMELESS.to_owned());
        let entry = ToolEntry::from_handler(name, "", Arc::new(Whole { spec, options }));
        let entry = Arc::new(entry.unmanaged().judging_itself());
        let tool = Tool::lone(&server(), entry, ToolKind::Agent, "");
        let call = Call { context, ..Call::new(&*tool.flat_name, Arguments::from(input)) };
        let found = Found::lone(tool, self.shared().queues.load());
        carry::start_at_telling(self.clone(), call, found, Box::new(begun))
    }
}

fn server() -> ServerName {
    ServerName::new(SERVER).expect("it is neither empty nor long")
}

/// Runs a chain, and tells all of it.
struct Whole {
    spec: ChainSpec,
    options: ExecuteOptions,
}

impl Handler for Whole {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let Some(tools) = call.context().tools.as_deref() else {
                return Ok(Output::failure("a chain needs a session to make its calls in"));
            };
            let chain = ToolChain::from_spec(self.spec.clone(), tools);
            let result = chain.execute_with(call.arguments().clone(), self.options).await;
            let text = if result.success {
                Value::Object(result.context.clone()).to_string()
            } else {
                result.errors.join("\n")
            };
            let content = json!([{"type": "text", "text": text}]);
            Ok(Output::result(RawJson::from(json!({
                "content": content,
                "structuredContent": told(&self.spec, &result),
                "isError": !result.success,
            }))))
        }
        .boxed()
    }
}

/// All that became of a chain, with what each step is of.
fn told(spec: &ChainSpec, result: &ChainResult) -> Value {
    let mut told = json!(result);
    // Steps are told in order, up to the one that the chain ended with.
    let steps = told["step_results"].as_array_mut().into_iter().flatten();
    for (step, told) in spec.steps.iter().zip(steps) {
        told["tool"] = step.tool_name.as_str().into();
    }
    told
}
