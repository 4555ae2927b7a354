//! The tool that runs a chain: one that is configured, or one that its caller wrote.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, Checks, ValidCall};
use pegboard_core::chain::ChainSpec;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_json::{RawJson, twin_member};
use serde_json::json;

/// The name that it is called by.
pub(crate) const NAME: &str = "run_chain";
/// How many steps a chain may have that a caller wrote.
const MAX_STEPS: usize = 100;
/// What the arguments may have.
const KNOWN: [&str; 4] = ["chain", "steps", "input", "output"];

/// The tool that runs a chain.
pub(crate) fn entry() -> ToolEntry {
    ToolEntry::from_handler(NAME, include_str!("run.md").trim_end(), Arc::new(RunChain))
        .with_title("Run a chain of tools")
        .with_input_schema(json!({
            "type": "object",
            "properties": {
                "chain": {"type": "string"},
                "steps": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"tool": {"type": "string"}, "with": {"type": "object"}, "as": {"type": "string"}},
                        "required": ["tool"]
                    }
                },
                "input": {"type": "object"},
                "output": {"type": "string", "description": "What of the context to give back; all of it by default"}
            },
            "additionalProperties": false
        }))
        .unmanaged()
}

struct RunChain;

/// Which chain is meant.
enum Wanted {
    Configured(String),
    Written(ChainSpec),
}

impl Handler for RunChain {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let arguments = call.raw_arguments();
            let wanted = match read(arguments) {
                Ok(wanted) => wanted,
                Err(problem) => return Ok(Output::failure(format!("invalid_chain_input: {problem}"))),
            };
            let input = Arguments::from(arguments.get("input").unwrap_or_else(RawJson::empty_object));
            match (wanted, call.context().tools.as_deref()) {
                (Wanted::Configured(name), Some(tools)) => tools.start(Call::new(name, input)).await.result,
                (Wanted::Written(spec), Some(_)) => {
                    let entry = Arc::new(spec.into_entry(&|_| None));
                    ValidCall::admit(entry, input, call.context().clone(), Checks::None)?.run().await
                }
                (_, None) => Ok(Output::failure("a chain needs a session to make its calls in")),
            }
        }
        .boxed()
    }
}

/// The chain that the arguments of a call mean.
fn read(arguments: &RawJson) -> Result<Wanted, String> {
    if !arguments.is_object() {
        return Err("give an object with a chain, or with steps".to_owned());
    }
    if let Some(name) = twin_member(arguments) {
        return Err(format!("'{}' is there twice; give it once", short(&name)));
    }
    if let Some(name) = arguments.names().into_iter().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(format!("'{}' means nothing here; there are {}", short(&name), KNOWN.join(", ")));
    }
    if arguments.get("input").is_some_and(|input| !input.is_object()) {
        return Err("input must be an object".to_owned());
    }
    match (arguments.get("chain"), arguments.get("steps")) {
        (Some(chain), None) => match chain.text() {
            Some(name) if name.contains("__") => Ok(Wanted::Configured(name.into_owned())),
            Some(name) if !name.is_empty() => Ok(Wanted::Configured(format!("chain__{name}"))),
            Some(_) | None => Err("chain must be the name of a chain".to_owned()),
        },
        (None, Some(steps)) => {
            if steps.items().count() > MAX_STEPS {
                return Err(format!("a chain has at most {MAX_STEPS} steps"));
            }
            let spec = arguments.without("input").read();
            spec.map(Wanted::Written).map_err(|error| error.to_string())
        }
        (Some(_), Some(_)) => Err("give either a chain or steps, not both".to_owned()),
        (None, None) => Err("give the name of a chain, or steps".to_owned()),
    }
}

fn short(name: &str) -> String {
    name.chars().take(40).collect()
}
