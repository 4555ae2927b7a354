//! One call from its start to its end: record around everything, admit, then the rings.

use std::pin::{Pin, pin};
use std::sync::Arc;

use pegboard_core::call::{Call, Checks, Ended, Origin, Running, ValidCall};
use pegboard_core::error::{CallError, ErrorKind, Executed};
use pegboard_core::output::Output;
use pegboard_core::provider::ToolKind;
use pegboard_core::settings::Judge;
use pegboard_core::text::clipped;
use pegboard_core::validation::Violation;
use tokio::time::Instant;
use tracing::Instrument;

use crate::caller::Caller;
use crate::calls::Begun;
use crate::catalogue::Tool;
use crate::contract::Contract;
use crate::event::{End, Event, Subject};
use crate::flight::{Flight, Track};
use crate::optree::{self, OpError, OpKind, OpTree, Payload, Start};
use crate::pipeline::Ring;
use crate::queues::QueueMap;
use crate::runtime::Found;
use crate::spans;

/// How much of a name that no tool has is written down.
const MAX_NAME_BYTES: usize = 256;
/// How much of what went wrong is written down.
const MAX_MESSAGE_BYTES: usize = 2_048;

/// Starts a call. Nothing happens before it is awaited, and dropping it cancels it.
pub(crate) fn start(caller: Caller, tree: OpTree, parent: Option<Arc<Track>>, call: Call) -> Running {
    Running::new(async move {
        let found = caller.shared().resolve(&caller, &call);
        carry_out(caller, Place { tree, parent, begun: None }, call, found).await
    })
}

/// Starts a call, and tells what it is known by as soon as it is under way.
pub(crate) fn start_telling(caller: Caller, call: Call, begun: TellBegun) -> Running {
    Running::new(async move {
        let found = caller.shared().resolve(&caller, &call);
        let place = Place { tree: caller.tree().clone(), parent: None, begun: Some(begun) };
        carry_out(caller, place, call, found).await
    })
}

/// Starts a call of a tool that need not be found.
pub(crate) fn start_at(
    caller: Caller,
    tree: OpTree,
    parent: Option<Arc<Track>>,
    call: Call,
    found: Found,
) -> Running {
    Running::new(carry_out(caller, Place { tree, parent, begun: None }, call, Ok(found)))
}

/// The same for a call of a tool that need not be found.
pub(crate) fn start_at_telling(caller: Caller, call: Call, found: Found, begun: TellBegun) -> Running {
    let place = Place { tree: caller.tree().clone(), parent: None, begun: Some(begun) };
    Running::new(carry_out(caller, place, call, Ok(found)))
}

/// Hears what a call is known by. It must not wait.
pub(crate) type TellBegun = Box<dyn FnOnce(Begun) + Send>;

/// Where a call belongs, and who wants to know what it is known by.
struct Place {
    tree: OpTree,
    parent: Option<Arc<Track>>,
    begun: Option<TellBegun>,
}

async fn carry_out(
    caller: Caller,
    Place { tree, parent, begun }: Place,
    call: Call,
    found: Result<Found, CallError>,
) -> Ended {
    let shared = Arc::clone(caller.shared());
    let record = Record::begin(caller, &tree, parent, &call, found.as_ref().ok());
    let track = Arc::clone(&record.track);
    let pass = match shared.calls.enter(&track) {
        Ok(pass) => pass,
        Err(error) => return record.end(Err(error)),
    };
    if let Some((begun, how)) = begun.zip(pass.begun(&track)) {
        begun(how);
    }
    // Pinned here, because the work is large and every move would copy it.
    let work = pin!(answer(&track, found, call));
    let result = limited(&track, work).instrument(record.span.clone()).await;
    drop(pass);
    record.end(result)
}

/// The work, unless it is called off or the caller's deadline passes. While the caller is asked, its deadline waits.
async fn limited(
    track: &Track,
    work: Pin<&mut impl Future<Output = Result<Output, CallError>>>,
) -> Result<Output, CallError> {
    let deadline_passes = async {
        match track.deadline() {
            Some(deadline) => {
                let due = |stopped| deadline.checked_add(stopped).unwrap_or(deadline);
                track.clock.passes(|elapsed| due(elapsed.stopped)).await;
                track.note_overdue();
            }
            // The work ends by itself, by its time-out or by being called off.
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = track.canceled.cancelled() => {
            Err(CallError::Canceled { reason: "the call was called off".to_owned(), executed: track.executed() })
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
        // Servers may not have been asked yet what they have.
        Err(error) => {
            let found = shared.resolve_after_opening(&track.caller, &call).await.unwrap_or(Err(error))?;
            rename(track, &found.tool);
            found
        }
    };
    if let Some(asked) = found.corrected_from {
        let asked = clipped(&asked, MAX_NAME_BYTES).into_owned();
        shared
            .events
            .emit(|| Event::Corrected { asked: asked.clone(), tool: Arc::clone(&found.tool.flat_name) });
        track.with_operation(|operation| operation.set_attribute("corrected_from", &asked));
        track.journey().corrected_from = Some(asked);
    }
    let contract = Contract::enter(track, &found.tool, &mut call).await?;
    let result = match admit(track, found.tool, found.queues, call).await {
        Ok(flight) => shared.pipeline.call(&flight).await,
        Err(error) => Err(error),
    };
    // From here on its server may end, if something else has taken its place.
    drop(found.in_use);
    if let Some(contract) = contract {
        contract.leave(&result).await;
    }
    result
}

/// Says what the call is of, when that has come out only after it began.
fn rename(track: &Track, tool: &Tool) {
    track.with_operation(|operation| {
        operation.rename(Arc::clone(&tool.flat_name), Some(tool.id.server.shared()));
    });
    if let Some(subject) = track.announced() {
        track.describe(Arc::new(Subject {
            tool: Arc::clone(&tool.flat_name),
            server: tool.id.server.to_string(),
            kind: tool.kind,
            ..Subject::clone(&subject)
        }));
    }
}

/// Lets the call in if the tool takes what it is given.
async fn admit(
    track: &Arc<Track>,
    tool: Arc<Tool>,
    queues: Arc<QueueMap>,
    call: Call,
) -> Result<Flight, CallError> {
    let Call { arguments, mut context, checks, .. } = call;
    let arguments = track.caller.shared().outputs.filled(&track.caller, arguments).await?;
    let for_all = track.caller.shared().settings().validate_arguments;
    let judged_by = tool.rules.judge.unwrap_or(match (tool.kind, context.origin, for_all) {
        _ if tool.entry.judges_itself() => Judge::Server,
        (ToolKind::Mcp | ToolKind::Rest, _, Some(judge)) => judge,
        (ToolKind::Mcp, Origin::Client, None) => Judge::Server,
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
    context.client = track.as_client();
    context.trace_parent = track.trace_parent();
    context.tools = Some(Arc::clone(track) as _);
    let call = ValidCall::admit(Arc::clone(&tool.entry), arguments, context, input_checks)?;
    track.warn(call.warnings().iter().cloned());
    Ok(Flight { track: Arc::clone(track), tool, call, checks, queues })
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
    fn begin(
        caller: Caller,
        tree: &OpTree,
        parent: Option<Arc<Track>>,
        call: &Call,
        found: Option<&Found>,
    ) -> Self {
        let shared = Arc::clone(caller.shared());
        let with_payload = call.context.options.trace || shared.settings().trace_payloads;
        let n_bytes_in = call.arguments.n_bytes();
        let tool = found.map(|found| &found.tool);
        let name = tool.map_or_else(
            || clipped(&call.tool.to_string(), MAX_NAME_BYTES).into(),
            |tool| Arc::clone(&tool.flat_name),
        );
        let operation = tree.begin(Start {
            kind: OpKind::Tool,
            name: Arc::clone(&name),
            server: tool.map(|tool| tool.id.server.shared()),
            size: n_bytes_in as u64,
            payload: with_payload.then(|| Payload::of(&shared.redacted(call.arguments.value()))),
            started: shared.wall.now(),
        });
        let track = Track::new(caller, call, parent, operation);
        let mut record =
            Self { track, span: tracing::Span::none(), started: Instant::now(), with_payload, is_open: true };
        let is_traced =
            shared.spans.is_some() || tracing::span_enabled!(target: spans::TARGET, tracing::Level::INFO);
        if is_traced || shared.events.is_heard() {
            record.announce(name, tool, n_bytes_in);
        }
        if is_traced {
            record.trace(call);
        }
        record
    }

    /// Tells whoever wants to know that the call begins.
    fn announce(&self, name: Arc<str>, tool: Option<&Arc<Tool>>, n_bytes_in: usize) {
        let track = &self.track;
        track.describe(Arc::new(Subject {
            session: track.caller.id().into(),
            owner: track.caller.shared_owner(),
            operation: track.with_operation(|operation| operation.path().to_string()).unwrap_or_default(),
            tool: name,
            server: tool.map(|tool| tool.id.server.to_string()).unwrap_or_default(),
            kind: tool.map(|tool| tool.kind).unwrap_or_default(),
            n_bytes_in,
        }));
        track.caller.shared().events.emit(|| Event::ToolStarted { call: track.subject() });
    }

    /// Gives the call a span.
    fn trace(&mut self, call: &Call) {
        self.span = spans::call_span(&self.track.subject());
        if let Some(spans) = &self.track.caller.shared().spans
            && let Some(parent) = spans.begin(&self.span, call.context.trace_parent)
        {
            self.track.set_span(parent);
        }
    }

    fn end(mut self, result: Result<Output, CallError>) -> Ended {
        self.is_open = false;
        self.write_down(&result);
        let has_run = !matches!(&result, Err(error) if error.executed() == Executed::No);
        let duration = self.track.begun().filter(|_| has_run).map(|begun| begun.elapsed());
        let journey = std::mem::take(&mut *self.track.journey());
        let warnings = std::mem::take(&mut *self.track.warnings());
        Ended { result, duration, warnings, journey }
    }

    /// Ends the operation, and tells whoever wants to know.
    fn write_down(&self, result: &Result<Output, CallError>) {
        let track = &self.track;
        let Some(operation) = track.take_operation() else { return };
        track.end_children();
        let shared = track.caller.shared();
        let error = match result {
            Ok(output) if output.is_error() => {
                Some((ErrorKind::ExecutionError, "the tool answered that it failed".to_owned()))
            }
            Ok(_) => None,
            Err(error) => {
                let text = error.to_string();
                let text = shared.redactor.load().text(&text);
                Some((error.kind(), clipped(&text, MAX_MESSAGE_BYTES).into_owned()))
            }
        };
        let n_bytes_out = result.as_ref().map_or(0, Output::n_bytes);
        for warning in &*track.warnings() {
            operation.log(&shared.redactor.load().text(warning));
        }
        let (is_cached, waited) = {
            let mut journey = track.journey();
            journey.path = Some(operation.path().to_string());
            if journey.is_joined {
                operation.set_attribute("joined", "true");
            }
            (journey.is_cached, journey.waited.unwrap_or_default())
        };
        operation.end(optree::End {
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
        });
        if let (Some(history), false) = (&shared.history, track.has_parent()) {
            history.note(&track.caller);
        }
        if let Some(call) = track.announced() {
            let end = End {
                error: error.as_ref().map(|(kind, _)| *kind),
                message: error.map(|(_, text)| text),
                duration: self.started.elapsed(),
                n_bytes_out,
                is_cached,
            };
            spans::end_span(&self.span, &end);
            shared.events.emit(|| Event::ToolFinished { call, end });
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
