//! The tool that reads stored outputs back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::entry::{Annotations, ToolEntry};
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::store::StoredOutput;
use tokio::sync::Semaphore;

use super::model::{self, Asked};
use crate::reading::{self, Effort, Request};
use crate::runtime::Shared;

/// How many bytes of a stored output are handed over at once if nobody says otherwise.
const PAGE_BYTES: usize = 12_288;

/// How long one page may be worked on.
const PAGE_EFFORT: Duration = Duration::from_secs(1);
/// How many pages are worked on at the same time.
const MAX_READERS: usize = 4;

/// The tool that reads stored outputs back.
pub(crate) fn tool_output(shared: Weak<Shared>) -> ToolEntry {
    let read_only = Annotations {
        read_only: Some(true),
        idempotent: Some(true),
        open_world: Some(false),
        ..Annotations::default()
    };
    ToolEntry::from_handler(
        "tool_output",
        include_str!("tool_output.md").trim_end(),
        Arc::new(Reader(shared)),
    )
    .with_title("Read a stored output")
    .with_input_schema(Request::input_schema())
    .with_annotations(read_only)
    .unmanaged()
}

struct Reader(Weak<Shared>);

impl Handler for Reader {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        self.read(call).boxed()
    }
}

impl Reader {
    async fn read(&self, call: &ValidCall) -> Result<Output, CallError> {
        let request = match Request::parse(call.arguments()) {
            Ok(request) => request,
            Err(error) => return Ok(Output::failure(error.to_string())),
        };
        let place = call.context().tools.as_ref().and_then(|tools| tools.place());
        let caller =
            self.0.upgrade().zip(place).and_then(|(shared, place)| shared.callers.get(&place.session));
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
        let settings = model::settings_of(reader, &settings.tool_output);
        let output = Arc::new(output);
        if let Some(extract) = request.view.extract() {
            let asked =
                Asked { output: &output, handle: &request.handle, extract, settings: &settings, max_bytes };
            let diary = call.context().tools.as_ref().map(|tools| tools.diary());
            return asked.answer(&request.view, reader, diary).await;
        }
        aside(move |effort| {
            let StoredOutput { body, content_type, .. } = &*output;
            match reading::read_within(body, content_type, &request.view, max_bytes, effort) {
                Ok(reading) => Output::new(reading.text.into()),
                Err(error) => Output::failure(format!("{error}.")),
            }
        })
        .await
    }
}

/// Does work that takes a while on a thread of its own, a few at a time. Whoever stops waiting stops the work.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce(&Effort) -> T + Send + 'static,
) -> Result<T, CallError> {
    static READERS: Semaphore = Semaphore::const_new(MAX_READERS);
    // The deadline of the call ends the wait.
    let permit = READERS.acquire().await;
    let effort = Effort::within(PAGE_EFFORT);
    let _waiting = effort.guard();
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(&effort)
    });
    done.await.map_err(|error| CallError::Panicked { message: error.to_string() })
}
