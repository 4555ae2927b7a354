//! One call from its start to its end: record around everything, admit, then the rings.

use std::pin::{Pin, pin};
use std::sync::Arc;

use pegboard_core::call::{Call, Checks, Ended, Origin, Running, ValidCall};
use pegboard_core::client::Client;
use pegboard_core::error::{CallError, ErrorKind, Executed};
use pegboard_core::output::Output;
use pegboard_core::provider::ToolKind;
use pegboard_core::settings::Judge;
use pegboard_core::validation::Violation;
use tokio::time::Instant;
use tracing::Instrument;

use crate::caller::Caller;
use crate::calls::Pass;
use crate::catalogue::Tool;
use crate::contract::Contract;
use crate::event::{End, Event, Subject};
use crate::flight::{Flight, Track};
use crate::optree::{self, OpError, OpKind, OpTree, Payload, Start};
use crate::pipeline::Ring;
use crate::runtime::Found;
use crate::spans;

/// Starts a call. Nothing happens before it is awaited, and dropping it cancels it.
pub(crate) fn start(caller: Caller, tree: OpTree, depth: usize, call: Call) -> Running {
    Running::new(carry_out(caller, tree, depth, call))
}

async fn carry_out(caller: Caller, tree: OpTree, depth: usize, call: Call) -> Ended {
    let shared = Arc::clone(caller.shared());
    let found = shared.resolve(&caller, &call);
    let record = Record::begin(caller, &tree, depth, &call, found.as_ref().ok());
    let track = Arc::clone(&record.track);
    let pass = match shared.calls.enter(&track) {
        Ok(pass) => pass,
        Err(error) => return record.end(Err(error)),
    };
    // Pinned here, because the work is large and every move would copy it.
    let work = pin!(answer(&track, found, call));
    let result = limited(&track, work).instrument(record.span.clone()).await;
    drop::<Pass>(pass);
    record.end(result)
}

/// The work, unless it is called off or the caller's deadline passes. While the caller is asked, its deadline waits.
async fn limited(
    track: &Track,
    work: Pin<&mut impl Future<Output = Result<Output, CallError>>>,
) -> Result<Output, CallError> {
    let deadline_passes = async {
        match track.deadline() {
            Some(deadline) => track.clock.passes(|elapsed| deadline + elapsed.stopped).await,
            // The work ends by itself, by its time-out or by being called off.
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = track.canceled.cancelled() => {
            Err(CallError::Canceled { reason: "canceled".to_owned(), executed: track.executed() })
        }
        result = work => result,
        () = deadline_passes => Err(CallError::DeadlinePassed { executed: track.executed() }),
    }
}

/// Finds the tool and, if the arguments name a session, enters it for the time of the call.
async fn answer(
    track: &Arc<Track>,
    found: Result<Found, CallError>,
    mut call: Call,
) -> Result<Output, CallError> {
    let shared = track.caller.shared();
    track.caller.count()?;
    let found = match found {
        Ok(found) => found,
        // The server may not have been asked yet what it has.
        Err(error) => shared.resolve_after_opening(&track.caller, &call).await.unwrap_or(Err(error))?,
    };
    if let Some(asked) = found.corrected_from {
        shared
            .events
            .emit(|| Event::Corrected { asked: asked.clone(), tool: Arc::clone(&found.tool.flat_name) });
        track.journey().corrected_from = Some(asked);
    }
    let contract = Contract::enter(track, &found.tool, &mut call).await?;
    let tool = Arc::clone(&found.tool);
    let result = match admit(track, found.tool, call).await {
        Ok(flight) => shared.pipeline.call(&flight).await,
        Err(error) => Err(error),
    };
    if let Some(contract) = contract {
        contract.leave(track, &tool, &result).await;
    }
    result
}

/// Lets the call in if the tool takes what it is given.
async fn admit(track: &Arc<Track>, tool: Arc<Tool>, call: Call) -> Result<Flight, CallError> {
    let Call { arguments, mut context, checks, .. } = call;
    let arguments = track.caller.shared().outputs.filled(&track.caller, arguments).await?;
    let judged_by = tool.rules.judge.unwrap_or(match (tool.kind, context.origin) {
        (ToolKind::Mcp, Origin::Client) => Judge::Server,
        _ => Judge::Pegboard,
    });
    let input_checks = match judged_by {
        Judge::Server => {
            if !arguments.is_object() {
                let text = "$: the arguments of a tool must be a JSON object";
                let violations = vec![Violation::new(text.to_owned(), text)];
                return Err(CallError::InvalidParameters { violations });
            }
            Checks::None
        }
        Judge::Pegboard => checks,
    };
    if track.has_client() {
        context.client = Some(Arc::clone(track) as Arc<dyn Client>);
    }
    context.trace_parent = track.trace_parent();
    context.tools = Some(Arc::clone(track) as _);
    let call = ValidCall::admit(Arc::clone(&tool.entry), arguments, context, input_checks)?;
    track.warn(call.warnings().iter().cloned());
    Ok(Flight { track: Arc::clone(track), tool, call, checks })
}

/// What is written down about a call, whatever becomes of it.
struct Record {
    track: Arc<Track>,
    span: tracing::Span,
    started: Instant,
    with_payload: bool,
    is_open: bool,
}

impl Record {
    fn begin(caller: Caller, tree: &OpTree, depth: usize, call: &Call, found: Option<&Found>) -> Self {
        let shared = Arc::clone(caller.shared());
        let with_payload = call.context.options.trace || shared.settings.trace_payloads;
        let n_bytes_in = call.arguments.n_bytes();
        let tool = found.map(|found| &found.tool);
        let operation = tree.begin(Start {
            kind: OpKind::Tool,
            name: tool.map_or_else(|| call.tool.to_string().into(), |tool| Arc::clone(&tool.flat_name)),
            server: tool.map(|tool| tool.id.server.shared()),
            size: n_bytes_in as u64,
            payload: with_payload.then(|| Payload::of(&shared.redacted(call.arguments.value()))),
            started: shared.wall.now(),
        });
        let track = Arc::new(Track::new(caller, call, depth, operation));
        let mut record =
            Self { track, span: tracing::Span::none(), started: Instant::now(), with_payload, is_open: true };
        record.announce(call, tool, n_bytes_in);
        record
    }

    /// Tells whoever wants to know that the call begins.
    fn announce(&mut self, call: &Call, tool: Option<&Arc<Tool>>, n_bytes_in: usize) {
        let track = &self.track;
        let shared = track.caller.shared();
        let is_traced =
            tracing::span_enabled!(target: spans::TARGET, tracing::Level::INFO) || shared.spans.is_some();
        if !shared.events.is_heard() && !is_traced {
            return;
        }
        track.describe(|| Subject {
            session: track.caller.id().into(),
            operation: track.with_operation(|operation| operation.path().to_string()).unwrap_or_default(),
            tool: tool.map_or_else(|| call.tool.to_string().into(), |tool| Arc::clone(&tool.flat_name)),
            server: tool.map(|tool| tool.id.server.to_string()).unwrap_or_default(),
            kind: tool.map(|tool| tool.kind).unwrap_or_default(),
            n_bytes_in,
        });
        if is_traced {
            self.span = spans::call_span(&track.subject());
            if let Some(spans) = &shared.spans
                && let Some(parent) = spans.begin(&self.span, call.context.trace_parent)
            {
                track.set_span(parent);
            }
        }
        shared.events.emit(|| Event::ToolStarted { call: track.subject() });
    }

    fn end(mut self, result: Result<Output, CallError>) -> Ended {
        self.is_open = false;
        self.write_down(&result);
        let duration = match self.track.executed() {
            // The arguments did not fit the function's parameters: it never ran.
            Executed::Yes if !matches!(&result, Err(error) if error.executed() == Executed::No) => {
                Some(self.started.elapsed())
            }
            Executed::Yes | Executed::No => None,
        };
        let journey = std::mem::take(&mut *self.track.journey());
        Ended { result, duration, warnings: self.track.take_warnings(), journey }
    }

    /// Ends the operation, and tells whoever wants to know.
    fn write_down(&self, result: &Result<Output, CallError>) {
        let track = &self.track;
        let Some(operation) = track.take_operation() else { return };
        let shared = track.caller.shared();
        let error = match result {
            Ok(output) if output.is_error() => {
                Some((ErrorKind::ExecutionError, "the tool answered that it failed".to_owned()))
            }
            Ok(_) => None,
            Err(error) => Some((error.kind(), error.to_string())),
        };
        let n_bytes_out = result.as_ref().map_or(0, Output::n_bytes);
        let (is_cached, waited) = {
            let mut journey = track.journey();
            journey.path = Some(operation.path().to_string());
            (journey.is_cached, journey.waited.unwrap_or_default())
        };
        let end = optree::End {
            result: error.as_ref().map_or(Ok(()), |(kind, text)| Err(OpError::new(kind.as_str(), text))),
            size: n_bytes_out as u64,
            payload: result
                .as_ref()
                .ok()
                .filter(|_| self.with_payload)
                .map(|output| Payload::of(&shared.redacted(&output.data()))),
            cached: is_cached,
            waited,
            ..optree::End::ok()
        };
        operation.end(end);
        if let Some(subject) = track.announced() {
            let end = End {
                error: error.as_ref().map(|(kind, _)| *kind),
                message: error.map(|(_, text)| text),
                duration: self.started.elapsed(),
                n_bytes_out,
                is_cached,
            };
            spans::end_span(&self.span, &end);
            shared.events.emit(|| Event::ToolFinished { call: subject, end });
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.is_open {
            let executed = self.track.executed();
            let reason = "the caller gave up".to_owned();
            self.write_down(&Err(CallError::Canceled { reason, executed }));
        }
    }
}
