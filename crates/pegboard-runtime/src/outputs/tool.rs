//! The tool that reads stored outputs back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::entry::{Annotations, ToolEntry};
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::settings::OutputSettings;
use pegboard_core::store::StoredOutput;
use tokio::sync::Semaphore;

use crate::reading::{self, Effort, ReadError, Request, Stats, View, chunks};
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
        aside(move |effort| {
            let StoredOutput { body, content_type, .. } = &output;
            match reading::read_within(body, content_type, &request.view, max_bytes, effort) {
                Ok(reading) => Output::new(reading.text.into()),
                Err(ReadError::NeedsModel { .. }) => {
                    without_model(body, &request.view, &settings.tool_output, max_bytes)
                }
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

/// What can be said without a model: the beginning and the end, and how to find the rest.
fn without_model(body: &[u8], view: &View, settings: &OutputSettings, max_bytes: usize) -> Output {
    let Ok(text) = std::str::from_utf8(body) else {
        let stats = Stats::of(body);
        return Output::failure(format!("The output is no text: {stats}. Only its stats can be read."));
    };
    let mode = match view {
        View::FullChunked { .. } => "full-chunked",
        View::ReadGrep { .. } => "read-grep",
        // A text of few chunks or of long lines is read whole; in others one searches.
        _ if Stats::of(body).average_line_bytes() >= settings.avg_line_bytes_threshold
            || chunks(text, max_bytes.max(1), settings.overlap_percent).count() <= settings.max_chunks =>
        {
            "full-chunked"
        }
        _ => "read-grep",
    };
    let note = format!(
        "No model is there to carry out mode {mode}, so this is the beginning and the end of the output. To find \
         something in between use mode grep, search, jsonpath or lines.\n\n"
    );
    let rest = max_bytes.saturating_sub(note.len()).max(reading::MIN_PAGE_BYTES);
    Output::new((note + &reading::truncated(text, rest)).into())
}
