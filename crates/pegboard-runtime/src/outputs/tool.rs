//! The `tool_output` tool: reads stored outputs.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::store::StoredOutput;
use pegboard_core::validation::Violation;
use tokio::sync::Semaphore;

use super::extract::{self, ExtractRequest};
use crate::output_query::{self, OutputRequest, WorkBudget};
use crate::runtime::RuntimeShared;

/// Default maximum size of a page, in bytes.
const PAGE_BYTES: usize = 12_288;

/// Time budget per page.
const PAGE_TIME_LIMIT: Duration = Duration::from_secs(1);
/// Maximum number of pages processed concurrently.
const MAX_READERS: usize = 4;

/// Returns the entry of the tool.
pub(crate) fn tool_output(shared: Weak<RuntimeShared>) -> ToolEntry {
    let read_only = ToolAnnotations {
        read_only: Some(true),
        idempotent: Some(true),
        open_world: Some(false),
        ..ToolAnnotations::default()
    };
    ToolEntry::from_handler(
        "tool_output",
        include_str!("tool_output.md").trim_end(),
        Arc::new(ReadOutputTool(shared)),
    )
    .with_title("Read a stored output")
    .with_input_schema(OutputRequest::input_schema())
    .with_annotations(read_only)
    .unmanaged()
}

struct ReadOutputTool(Weak<RuntimeShared>);

impl Handler for ReadOutputTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        self.read(call).boxed()
    }
}

impl ReadOutputTool {
    async fn read(&self, call: &ValidCall) -> Result<Output, CallError> {
        let request = match OutputRequest::parse(call.arguments()) {
            Ok(request) => request,
            // Nothing has run: a client may correct the arguments and try again.
            Err(error) => {
                let violation = Violation::new(error.to_string(), "Invalid tool_output parameters");
                return Err(CallError::InvalidParameters { violations: vec![violation] });
            }
        };
        let operation = call.context().tools.as_ref().and_then(|tools| tools.operation());
        let caller = self
            .0
            .upgrade()
            .zip(operation)
            .and_then(|(shared, operation)| shared.callers.get(&operation.session));
        let Some(caller) = caller else {
            return Ok(Output::failure("Stored outputs belong to a session, and this call has none."));
        };
        let shared = caller.shared();
        let output = match shared.outputs.fetch(&caller, &request.handle).await {
            Ok(output) => output,
            Err(error) => return Ok(Output::failure(format!("{error}."))),
        };
        let settings = shared.settings();
        let max_bytes = settings.tool_response_max_bytes.unwrap_or(PAGE_BYTES);
        let reader = call.context().reader.as_deref().or(shared.reader.as_deref());
        let settings = extract::settings_of(reader, &settings.tool_output);
        let output = Arc::new(output);
        if let Some(extract) = request.view.extract() {
            let extraction = ExtractRequest {
                output: &output,
                handle: &request.handle,
                extract,
                settings: &settings,
                max_bytes,
            };
            let recorder = call.context().tools.as_ref().map(|tools| tools.recorder());
            return extraction.answer(&request.view, reader, recorder).await;
        }
        run_blocking(move |budget| {
            let StoredOutput { body, content_type, .. } = &*output;
            match output_query::read_within(body, content_type, &request.view, max_bytes, budget) {
                Ok(page) => Output::new(page.text.into()),
                Err(error) => Output::failure(format!("{error}.")),
            }
        })
        .await
    }
}

/// Runs CPU-bound work on a blocking thread, a few at a time. Dropping the future cancels the work.
pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce(&WorkBudget) -> T + Send + 'static,
) -> Result<T, CallError> {
    static READERS: Semaphore = Semaphore::const_new(MAX_READERS);
    // The wait is bounded by the deadline of the call.
    let permit = READERS.acquire().await;
    let budget = WorkBudget::within(PAGE_TIME_LIMIT);
    let _waiting = budget.guard();
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(&budget)
    });
    done.await.map_err(|error| CallError::Panicked { message: error.to_string() })
}
