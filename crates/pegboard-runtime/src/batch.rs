//! The `batch` tool: several tool calls in one call.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream;
use pegboard_core::call::{Call, Invoker, ValidCall};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::memory::PoolReservation;
use pegboard_core::output::Output;
use pegboard_core::validation::Violation;
use serde_json::json;
use tokio::time::Instant;

mod parse;
mod result;

pub use parse::BatchItem;
use result::BatchItemResult;

/// Names under which the batch tool can be called.
pub(crate) const NAMES: [&str; 2] = ["agent__batch", "batch"];
/// Tools that end or steer a session and therefore cannot be called from a batch.
const FORBIDDEN_TOOLS: [&str; 4] = ["agent__batch", "batch", "agent__final_report", "final_report"];
/// Maximum number of calls of a batch that run concurrently.
const MAX_CONCURRENT_CALLS: usize = 32;

/// Returns the entry of the batch tool.
pub(crate) fn entry() -> ToolEntry {
    ToolEntry::from_handler("batch", include_str!("batch/batch.md").trim_end(), Arc::new(BatchTool))
        .with_title("Several calls in one")
        .with_input_schema(json!({
            "type": "object",
            "properties": {
                "calls": {
                    "type": ["array", "string"],
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": ["string", "number"], "description": "Your id, returned with the result"},
                            "tool": {"description": "The tool's name, or {toolbox, server, name}"},
                            "parameters": {}
                        }
                    }
                },
                "mode": {
                    "enum": ["parallel", "sequential"],
                    "description": "Concurrently (the default) or in order"
                },
                "stopOnError": {"type": "boolean", "description": "Run in order; stop at the first failure"}
            },
            "required": ["calls"]
        }))
        .unmanaged()
}

struct BatchTool;

impl Handler for BatchTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let request = match parse::parse_batch(call.raw_arguments()) {
                Ok(request) => request,
                // Nothing has run: a client may correct the arguments and try again.
                Err(problem) => {
                    let violations = vec![Violation::plain(problem)];
                    return Err(CallError::InvalidParameters { violations });
                }
            };
            let Some(tools) = call.context().tools.as_deref() else {
                return Ok(Output::failure("a batch requires a session"));
            };
            let batch = BatchExecution { tools, held: tools.memory().unwrap_or_default().reservation() };
            let results = match request.order {
                BatchOrder::Parallel => batch.run_parallel(request.items).await,
                BatchOrder::Sequential { stop_on_error } => {
                    batch.run_sequential(request.items, stop_on_error).await
                }
            };
            Ok(result::envelope(results))
        }
        .boxed()
    }
}

/// Order in which the calls of a batch run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BatchOrder {
    Parallel,
    Sequential { stop_on_error: bool },
}

/// A batch in flight, with the memory of its results.
struct BatchExecution<'b> {
    tools: &'b dyn Invoker,
    held: PoolReservation,
}

impl BatchExecution<'_> {
    async fn run_parallel(&self, items: Vec<BatchItem>) -> Vec<BatchItemResult> {
        // `buffered` keeps the order of the calls, regardless of the order in which they finish.
        stream::iter(items).map(|item| self.run_item(item)).buffered(MAX_CONCURRENT_CALLS).collect().await
    }

    async fn run_sequential(&self, items: Vec<BatchItem>, stop_on_error: bool) -> Vec<BatchItemResult> {
        let mut results: Vec<BatchItemResult> = Vec::with_capacity(items.len());
        for item in items {
            let is_over = stop_on_error && results.last().is_some_and(|last| !last.ok);
            results.push(if is_over { BatchItemResult::skipped(item) } else { self.run_item(item).await });
        }
        results
    }

    async fn run_item(&self, item: BatchItem) -> BatchItemResult {
        let started = Instant::now();
        let name = item.tool.to_string();
        if FORBIDDEN_TOOLS.contains(&name.as_str()) {
            return BatchItemResult::not_allowed(item.id, name);
        }
        let ended = self.tools.start(Call::new(item.tool, item.arguments)).await;
        let n_bytes = ended.result.as_ref().map_or(0, Output::n_bytes);
        let mut result = BatchItemResult::of(item.id, name, ended);
        // A part of a server's answer keeps all of it in memory.
        if let Err(full) = self.held.try_grow(n_bytes.max(result.n_bytes())) {
            result = result.discarded(full);
        }
        result.elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        result
    }
}
