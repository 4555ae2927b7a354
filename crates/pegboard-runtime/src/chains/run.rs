//! The `run_chain` tool: runs a configured chain, or one passed inline.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, SchemaChecks, ValidCall};
use pegboard_core::chain::ChainSpec;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::validation::Violation;
use pegboard_json::{RawJson, duplicate_member};
use serde_json::json;

/// Name of the tool.
pub(crate) const NAME: &str = "run_chain";
/// Maximum number of steps of an inline chain.
const MAX_STEPS: usize = 100;
/// Maximum size of the steps of an inline chain. Parsed, a short placeholder or mapping takes a hundred times its length.
const MAX_STEPS_BYTES: usize = 256 << 10;
/// Accepted argument names.
const KNOWN_KEYS: [&str; 4] = ["chain", "steps", "input", "output"];

/// Returns the entry of the tool.
pub(crate) fn entry() -> ToolEntry {
    ToolEntry::from_handler(NAME, include_str!("run.md").trim_end(), Arc::new(RunChainTool))
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
                "output": {"type": "string", "description": "Path in the context to return; all of it by default"}
            },
            "additionalProperties": false
        }))
        .unmanaged()
}

struct RunChainTool;

/// The chain to run.
enum ChainSource {
    Configured(String),
    Inline(ChainSpec),
}

impl Handler for RunChainTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let arguments = call.raw_arguments();
            let source = match parse_chain(arguments) {
                Ok(source) => source,
                Err(problem) => return Err(invalid(&problem)),
            };
            let input = CallArguments::from(arguments.get("input").unwrap_or_else(RawJson::empty_object));
            match (source, call.context().tools.as_deref()) {
                (ChainSource::Configured(name), Some(tools)) => {
                    tools.start(Call::new(name, input)).await.result
                }
                (ChainSource::Inline(spec), Some(_)) => {
                    let entry = Arc::new(spec.into_entry(&|_| None));
                    ValidCall::admit(entry, input, call.context().clone(), SchemaChecks::None)?.run().await
                }
                (_, None) => Ok(Output::failure("a chain requires a session")),
            }
        }
        .boxed()
    }
}

/// Parses the arguments of the tool.
fn parse_chain(arguments: &RawJson) -> Result<ChainSource, String> {
    if !arguments.is_object() {
        return Err("expected an object with 'chain' or 'steps'".to_owned());
    }
    if let Some(name) = duplicate_member(arguments) {
        return Err(format!("duplicate key '{}'", truncate_name(&name)));
    }
    if let Some(name) = arguments.names().into_iter().find(|name| !KNOWN_KEYS.contains(&name.as_str())) {
        return Err(format!(
            "unknown key '{}': expected one of {}",
            truncate_name(&name),
            KNOWN_KEYS.join(", ")
        ));
    }
    if arguments.get("input").is_some_and(|input| !input.is_object()) {
        return Err("input must be an object".to_owned());
    }
    match (arguments.get("chain"), arguments.get("steps")) {
        (Some(chain), None) => match chain.text() {
            Some(name) if name.contains("__") => Ok(ChainSource::Configured(name.into_owned())),
            Some(name) if !name.is_empty() => Ok(ChainSource::Configured(format!("chain__{name}"))),
            Some(_) | None => Err("chain must be the name of a chain".to_owned()),
        },
        (None, Some(steps)) => {
            if steps.items().count() > MAX_STEPS {
                return Err(format!("a chain has at most {MAX_STEPS} steps"));
            }
            if steps.as_bytes().len() > MAX_STEPS_BYTES {
                let limit = MAX_STEPS_BYTES >> 10;
                return Err(format!("the steps are larger than {limit} KiB: pass large values in 'input'"));
            }
            let spec = arguments.without("input").read();
            spec.map(ChainSource::Inline).map_err(|error| error.to_string())
        }
        (Some(_), Some(_)) => Err("'chain' and 'steps' are mutually exclusive".to_owned()),
        (None, None) => Err("missing 'chain' or 'steps'".to_owned()),
    }
}

/// Nothing has run: a client may correct the arguments and try again.
fn invalid(problem: &str) -> CallError {
    // The text may quote the arguments.
    let violation = Violation::new(format!("invalid_chain_input: {problem}"), "invalid_chain_input");
    CallError::InvalidParameters { violations: vec![violation] }
}

fn truncate_name(name: &str) -> String {
    name.chars().take(40).collect()
}
