//! The life of one call: record, admit, then the layers of the pipeline.

use std::pin::{Pin, pin};
use std::sync::Arc;

use pegboard_core::call::{Call, CallContext, CallHandle, CallOrigin, CallResult, SchemaChecks, ValidCall};
use pegboard_core::error::{CallError, ErrorKind, Executed};
use pegboard_core::output::Output;
use pegboard_core::provider::ToolKind;
use pegboard_core::settings::ValidatedBy;
use pegboard_core::text::clipped;
use pegboard_core::validation::Violation;
use tokio::time::Instant;
use tracing::Instrument;

use crate::active_call::{ActiveCall, AdmittedCall};
use crate::caller::Caller;
use crate::calls::CallStarted;
use crate::catalogue::CatalogueTool;
use crate::event::{CallEnd, CallInfo, RuntimeEvent};
use crate::optree::{self, OpError, OpKind, OpStart, OpTree, Payload};
use crate::pipeline::Layer;
use crate::queues::QueueMap;
use crate::runtime::ResolvedTool;
use crate::session_call::SessionCall;
use crate::spans;

/// Maximum recorded length of a name that no tool has.
const MAX_NAME_BYTES: usize = 256;
/// Maximum recorded length of an error message.
const MAX_MESSAGE_BYTES: usize = 2_048;

/// A call that is not started yet. Made by [`Caller::prepare`].
pub struct CallBuilder {
    caller: Caller,
    call: Call,
    tool: Option<ResolvedTool>,
    parent: Option<ParentCall>,
    on_started: Option<OnCallStarted>,
}

/// Callback on admission.
type OnCallStarted = Box<dyn FnOnce(CallStarted) + Send>;

/// The call that makes a nested call.
pub(crate) struct ParentCall {
    pub(crate) call: Arc<ActiveCall>,
    /// Subtree of the operation tree for the nested call.
    pub(crate) tree: OpTree,
}

impl CallBuilder {
    pub(crate) fn new(caller: Caller, call: Call) -> Self {
        Self { caller, call, tool: None, parent: None, on_started: None }
    }

    /// Sets the tool; otherwise it is resolved when the call starts.
    pub(crate) fn tool(self, tool: ResolvedTool) -> Self {
        Self { tool: Some(tool), ..self }
    }

    /// Makes this a nested call.
    pub(crate) fn parent(self, parent: ParentCall) -> Self {
        Self { parent: Some(parent), ..self }
    }

    /// Sets the context of the call.
    pub fn context(mut self, context: CallContext) -> Self {
        self.call.context = context;
        self
    }

    /// Sets a callback that receives the ids of the call once it is admitted, before the tool can emit
    /// anything. It must not block, and is not invoked for a call that is refused admission.
    pub fn on_started(self, on_started: impl FnOnce(CallStarted) + Send + 'static) -> Self {
        Self { on_started: Some(Box::new(on_started)), ..self }
    }

    /// Returns the caller.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Starts the call. Nothing happens until the handle is polled; dropping it cancels the call.
    pub fn start(self) -> CallHandle {
        CallHandle::new(self.run())
    }

    async fn run(self) -> CallResult {
        let Self { caller, call, tool, parent, on_started } = self;
        let shared = Arc::clone(caller.shared());
        let found = tool.map_or_else(|| shared.resolve(&caller, &call), Ok);
        let record = CallRecord::begin(caller, parent, &call, found.as_ref().ok());
        let active_call = Arc::clone(&record.active_call);
        let permit = match shared.calls.enter(&active_call) {
            Ok(permit) => permit,
            Err(error) => return record.end(Err(error)),
        };
        if let Some((on_started, started)) = on_started.zip(permit.call_started(&active_call)) {
            on_started(started);
        }
        // Pinned in place: the future is large, and every move would copy it.
        let work = pin!(resolve_and_execute(&active_call, found, call));
        let result = run_with_deadline(&active_call, work).instrument(record.span.clone()).await;
        drop(permit);
        record.end(result)
    }
}

/// Runs the call until it completes, is cancelled, or passes the caller's deadline. The deadline clock is
/// paused while the caller is asked for input.
async fn run_with_deadline(
    active_call: &ActiveCall,
    work: Pin<&mut impl Future<Output = Result<Output, CallError>>>,
) -> Result<Output, CallError> {
    let deadline_passes = async {
        match active_call.deadline() {
            Some(deadline) => {
                let due = |paused| deadline.checked_add(paused).unwrap_or(deadline);
                active_call.clock.wait_until(|reading| due(reading.paused)).await;
                active_call.mark_overdue();
            }
            // Without a deadline the call ends by itself, by its timeout or by cancellation.
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = active_call.canceled.cancelled() => {
            Err(CallError::Canceled { reason: "the call was cancelled".to_owned(), executed: active_call.executed() })
        }
        result = work => result,
        () = deadline_passes => Err(CallError::DeadlinePassed { executed: active_call.executed() }),
    }
}

/// Resolves the tool and, if the arguments name a session, enters it for the duration of the call.
async fn resolve_and_execute(
    active_call: &Arc<ActiveCall>,
    found: Result<ResolvedTool, CallError>,
    mut call: Call,
) -> Result<Output, CallError> {
    let shared = active_call.caller.shared();
    active_call.caller.count_call()?;
    let found = match found {
        Ok(found) => found,
        // The tool may belong to a server that has not listed its tools yet.
        Err(error) => {
            let found =
                shared.resolve_after_opening(&active_call.caller, &call).await.unwrap_or(Err(error))?;
            rename_operation(active_call, &found.tool);
            found
        }
    };
    if let Some(requested) = found.corrected_from {
        let requested = clipped(&requested, MAX_NAME_BYTES).into_owned();
        shared.events.emit(|| RuntimeEvent::Corrected {
            asked: requested.clone(),
            tool: Arc::clone(&found.tool.flat_name),
        });
        active_call.with_operation(|operation| operation.set_attribute("corrected_from", &requested));
        active_call.meta().corrected_from = Some(requested);
    }
    let session_call = SessionCall::enter(active_call, &found.tool, &mut call).await?;
    let result = match admit(active_call, found.tool, found.queues, call).await {
        Ok(admitted) => shared.pipeline.call(&admitted).await,
        Err(error) => Err(error),
    };
    // From here on a replaced server may shut down.
    drop(found.drain_guard);
    if let Some(session_call) = session_call {
        session_call.finish(&result).await;
    }
    result
}

/// Updates the operation when the tool was resolved only after the call began.
fn rename_operation(active_call: &ActiveCall, tool: &CatalogueTool) {
    active_call.with_operation(|operation| {
        operation.rename(Arc::clone(&tool.flat_name), Some(tool.id.server.shared()));
    });
    if let Some(info) = active_call.announced_info() {
        active_call.set_info(Arc::new(CallInfo {
            tool: Arc::clone(&tool.flat_name),
            server: tool.id.server.to_string(),
            kind: tool.kind,
            ..CallInfo::clone(&info)
        }));
    }
}

/// Validates the arguments and admits the call.
async fn admit(
    active_call: &Arc<ActiveCall>,
    tool: Arc<CatalogueTool>,
    queues: Arc<QueueMap>,
    call: Call,
) -> Result<AdmittedCall, CallError> {
    let Call { arguments, mut context, checks, .. } = call;
    let arguments =
        active_call.caller.shared().outputs.resolve_references(&active_call.caller, arguments).await?;
    let for_all = active_call.caller.shared().settings().validate_arguments;
    let judged_by = tool.policy.judge.unwrap_or(match (tool.kind, context.origin, for_all) {
        _ if tool.entry.validates_own_arguments() => ValidatedBy::Server,
        (ToolKind::Mcp | ToolKind::Rest, _, Some(judge)) => judge,
        (ToolKind::Mcp, CallOrigin::Client, None) => ValidatedBy::Server,
        _ => ValidatedBy::Pegboard,
    });
    let input_checks = match judged_by {
        ValidatedBy::Server => {
            if !arguments.is_object() {
                let text = "$: the arguments of a tool must be a JSON object";
                let violations = vec![Violation::new(text.to_owned(), text)];
                return Err(CallError::InvalidParameters { violations });
            }
            SchemaChecks::None
        }
        ValidatedBy::Pegboard => checks,
    };
    context.client = active_call.as_client();
    context.trace_parent = active_call.trace_parent();
    context.tools = Some(Arc::clone(active_call) as _);
    let call = ValidCall::admit(Arc::clone(&tool.entry), arguments, context, input_checks)?;
    active_call.warn(call.warnings().iter().cloned());
    Ok(AdmittedCall { active_call: Arc::clone(active_call), tool, call, checks, queues })
}

/// Record of a call; written exactly once, even if the call is dropped.
struct CallRecord {
    active_call: Arc<ActiveCall>,
    span: tracing::Span,
    started: Instant,
    with_payload: bool,
    is_open: bool,
}

impl CallRecord {
    fn begin(caller: Caller, parent: Option<ParentCall>, call: &Call, found: Option<&ResolvedTool>) -> Self {
        let shared = Arc::clone(caller.shared());
        let with_payload = call.context.options.trace || shared.settings().trace_payloads;
        let n_bytes_in = call.arguments.n_bytes();
        let tool = found.map(|found| &found.tool);
        let name = tool.map_or_else(
            || clipped(&call.tool.to_string(), MAX_NAME_BYTES).into(),
            |tool| Arc::clone(&tool.flat_name),
        );
        let tree = parent.as_ref().map_or(caller.tree(), |parent| &parent.tree);
        let operation = tree.begin(OpStart {
            kind: OpKind::Tool,
            name: Arc::clone(&name),
            server: tool.map(|tool| tool.id.server.shared()),
            size: n_bytes_in as u64,
            payload: with_payload.then(|| Payload::of(&shared.redacted(call.arguments.value()))),
            started: shared.wall.now(),
        });
        let active_call = ActiveCall::new(caller, call, parent.map(|parent| parent.call), operation);
        let mut record = Self {
            active_call,
            span: tracing::Span::none(),
            started: Instant::now(),
            with_payload,
            is_open: true,
        };
        let is_traced =
            shared.spans.is_some() || tracing::span_enabled!(target: spans::TARGET, tracing::Level::INFO);
        if is_traced || shared.events.has_listeners() {
            record.announce(name, tool, n_bytes_in);
        }
        if is_traced {
            record.trace(call);
        }
        record
    }

    /// Emits the start event.
    fn announce(&self, name: Arc<str>, tool: Option<&Arc<CatalogueTool>>, n_bytes_in: usize) {
        let active_call = &self.active_call;
        active_call.set_info(Arc::new(CallInfo {
            session: active_call.caller.id().into(),
            owner: active_call.caller.shared_owner(),
            operation: active_call
                .with_operation(|operation| operation.path().to_string())
                .unwrap_or_default(),
            tool: name,
            server: tool.map(|tool| tool.id.server.to_string()).unwrap_or_default(),
            kind: tool.map(|tool| tool.kind).unwrap_or_default(),
            n_bytes_in,
        }));
        active_call.caller.shared().events.emit(|| RuntimeEvent::ToolStarted { call: active_call.info() });
    }

    /// Creates the span of the call.
    fn trace(&mut self, call: &Call) {
        self.span = spans::call_span(&self.active_call.info());
        if let Some(spans) = &self.active_call.caller.shared().spans
            && let Some(parent) = spans.attach(&self.span, call.context.trace_parent)
        {
            self.active_call.set_span(parent);
        }
    }

    fn end(mut self, result: Result<Output, CallError>) -> CallResult {
        self.is_open = false;
        self.finish(&result);
        let has_run = !matches!(&result, Err(error) if error.executed() == Executed::No);
        let duration = self.active_call.running_since().filter(|_| has_run).map(|begun| begun.elapsed());
        let meta = std::mem::take(&mut *self.active_call.meta());
        let warnings = std::mem::take(&mut *self.active_call.warnings());
        CallResult { result, duration, warnings, meta }
    }

    /// Ends the operation and emits the end event.
    fn finish(&self, result: &Result<Output, CallError>) {
        let active_call = &self.active_call;
        let Some(operation) = active_call.take_operation() else { return };
        active_call.end_children();
        let shared = active_call.caller.shared();
        let error = match result {
            Ok(output) if output.is_error() => {
                Some((ErrorKind::ExecutionError, "the tool reported an error".to_owned()))
            }
            Ok(_) => None,
            Err(error) => {
                let text = error.to_string();
                let text = shared.redactor.load().text(&text);
                Some((error.kind(), clipped(&text, MAX_MESSAGE_BYTES).into_owned()))
            }
        };
        let n_bytes_out = result.as_ref().map_or(0, Output::n_bytes);
        for warning in &*active_call.warnings() {
            operation.log(&shared.redactor.load().text(warning));
        }
        let (is_cached, waited) = {
            let mut meta = active_call.meta();
            meta.path = Some(operation.path().to_string());
            if meta.is_joined {
                operation.set_attribute("joined", "true");
            }
            (meta.is_cached, meta.waited.unwrap_or_default())
        };
        operation.end(optree::OpEnd {
            result: error.as_ref().map_or(Ok(()), |(kind, text)| Err(OpError::new(kind.as_str(), text))),
            size: n_bytes_out as u64,
            payload: result
                .as_ref()
                .ok()
                .filter(|_| self.with_payload)
                .map(|output| Payload::of(&shared.redacted(&output.data()))),
            cached: is_cached,
            waited,
            ..optree::OpEnd::ok()
        });
        if let (Some(history), false) = (&shared.history, active_call.has_parent()) {
            history.mark_dirty(&active_call.caller);
        }
        if let Some(call) = active_call.announced_info() {
            let end = CallEnd {
                error: error.as_ref().map(|(kind, _)| *kind),
                message: error.map(|(_, text)| text),
                duration: self.started.elapsed(),
                n_bytes_out,
                is_cached,
            };
            spans::end_span(&self.span, &end);
            shared.events.emit(|| RuntimeEvent::ToolFinished { call, end });
        }
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if self.is_open {
            let executed = self.active_call.executed();
            let reason = "the caller dropped the call".to_owned();
            self.finish(&Err(CallError::Canceled { reason, executed }));
        }
    }
}
