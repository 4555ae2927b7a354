//! Several calls in one.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream;
use pegboard_core::call::{Call, Invoker, ValidCall};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use serde_json::json;
use tokio::time::Instant;

mod parse;
mod result;

use parse::Item;
use result::ItemResult;

/// The names that a batch is called by.
pub(crate) const NAMES: [&str; 2] = ["agent__batch", "batch"];
/// Tools that end or steer a session, and so have no place in a batch.
const NOT_ALLOWED: [&str; 4] = ["agent__batch", "batch", "agent__final_report", "final_report"];
/// How many calls run at the same time.
const MAX_AT_ONCE: usize = 32;

/// The tool that makes several calls.
pub(crate) fn entry() -> ToolEntry {
    ToolEntry::from_handler("batch", include_str!("batch/batch.md").trim_end(), Arc::new(Batch))
        .with_title("Several calls in one")
        .with_input_schema(json!({
            "type": "object",
            "properties": {
                "calls": {
                    "type": ["array", "string"],
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": ["string", "number"], "description": "Yours to choose; it is given back"},
                            "tool": {"description": "The tool's name, or {toolbox, server, name}"},
                            "parameters": {}
                        }
                    }
                },
                "mode": {
                    "enum": ["parallel", "sequential"],
                    "description": "At the same time (the default), or one after another"
                },
                "stopOnError": {"type": "boolean", "description": "One after another, until one fails"}
            },
            "required": ["calls"]
        }))
        .unmanaged()
}

struct Batch;

impl Handler for Batch {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let request = match parse::read(call.raw_arguments()) {
                Ok(request) => request,
                Err(problem) => return Ok(Output::failure(problem)),
            };
            let Some(tools) = call.context().tools.as_deref() else {
                return Ok(Output::failure("a batch needs a session to make its calls in"));
            };
            let results = match request.order {
                Order::Parallel => parallel(tools, request.items).await,
                Order::Sequential { stop_on_error } => sequential(tools, request.items, stop_on_error).await,
            };
            Ok(result::envelope(&results))
        }
        .boxed()
    }
}

/// In which order calls are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Parallel,
    Sequential { stop_on_error: bool },
}

async fn parallel(tools: &dyn Invoker, items: Vec<Item>) -> Vec<ItemResult> {
    // In the order of the calls, whatever the order they end in.
    stream::iter(items).map(|item| one(tools, item)).buffered(MAX_AT_ONCE).collect().await
}

async fn sequential(tools: &dyn Invoker, items: Vec<Item>, stop_on_error: bool) -> Vec<ItemResult> {
    let mut results: Vec<ItemResult> = Vec::with_capacity(items.len());
    for item in items {
        let is_over = stop_on_error && results.last().is_some_and(|last| !last.ok);
        results.push(if is_over { ItemResult::skipped(item) } else { one(tools, item).await });
    }
    results
}

async fn one(tools: &dyn Invoker, item: Item) -> ItemResult {
    let started = Instant::now();
    let name = item.tool.to_string();
    if NOT_ALLOWED.contains(&name.as_str()) {
        return ItemResult::not_allowed(item.id, name);
    }
    let ended = tools.start(Call::new(item.tool, item.arguments)).await;
    let mut result = ItemResult::of(item.id, name, ended);
    result.elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    result
}
