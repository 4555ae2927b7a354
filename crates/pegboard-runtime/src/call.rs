//! The lifecycle of one call: record, admit, then the layers of the pipeline.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use pegboard_core::call::{Call, CallContext, CallHandle, CallResult};
use pegboard_core::error::CallError;
use pegboard_core::output::Output;
use pegboard_core::text::clipped;
use tokio::time::Instant;
use tracing::Instrument;

use crate::caller::Caller;
use crate::catalogue::CatalogueTool;
use crate::event::{CallInfo, RuntimeEvent};
use crate::optree::OpTree;
use crate::pipeline::Layer;
use crate::runtime::ResolvedTool;
use active::ActiveCall;
use admit::admit;
use record::CallRecord;
use registry::CallStarted;
use session::SessionCall;

pub(crate) mod active;
pub(crate) mod admit;
mod agent_recorder;
mod cancellation;
mod client;
pub(crate) mod clock;
mod execution;
mod nested;
mod record;
mod recorder;
pub(crate) mod registry;
pub mod requests;
mod session;
pub mod suspended;

/// Maximum recorded length of a name that no tool has.
const MAX_NAME_BYTES: usize = 256;

/// A call that is not started yet. Made by [`Caller::prepare`].
#[must_use = "a call runs only once it is started"]
pub struct CallBuilder {
    caller: Caller,
    call: Call,
    tool: Option<ResolvedTool>,
    parent: Option<ParentCall>,
    on_started: Option<OnCallStarted>,
    /// Time for which the caller has waited for the server to start, before the call.
    start_wait: Duration,
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
        Self { caller, call, tool: None, parent: None, on_started: None, start_wait: Duration::ZERO }
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

    /// Sets the time for which the caller has waited for the server to start, before the call. The record begins with it.
    pub fn start_wait(self, start_wait: Duration) -> Self {
        Self { start_wait, ..self }
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
        let Self { caller, call, tool, parent, on_started, start_wait } = self;
        let shared = Arc::clone(caller.shared());
        shared.principals.observe(caller.owner());
        let found = tool.map_or_else(|| shared.resolve(&caller, &call), Ok);
        let record = CallRecord::begin(caller, parent, &call, found.as_ref().ok(), start_wait);
        let active_call = Arc::clone(&record.active_call);
        let permit = match shared.calls.enter(&active_call) {
            Ok(permit) => permit,
            Err(error) => return record.end(Err(error)),
        };
        if let Some(on_started) = on_started
            && let Some(started) = permit.call_started(&active_call)
        {
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
        match active_call.deadline {
            Some(deadline) => {
                let due = |paused| deadline.checked_add(paused).unwrap_or(deadline);
                active_call.clock.wait_until(|reading| due(reading.paused)).await;
                active_call.execution.mark_overdue();
            }
            // Without a deadline the call ends by itself, by its timeout or by cancellation.
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = active_call.canceled.cancelled() => {
            Err(CallError::Canceled { reason: "the call was cancelled".to_owned(), executed: active_call.execution.executed() })
        }
        result = work => result,
        () = deadline_passes => Err(CallError::DeadlinePassed { executed: active_call.execution.executed() }),
    }
}

/// Resolves the tool and, if the arguments name a session, enters it for the duration of the call.
async fn resolve_and_execute(
    active_call: &Arc<ActiveCall>,
    found: Result<ResolvedTool, CallError>,
    mut call: Call,
) -> Result<Output, CallError> {
    let shared = active_call.caller().shared();
    active_call.caller().count_call()?;
    let found = match found {
        Ok(found) => found,
        // The tool may belong to a server that has not listed its tools yet.
        Err(error) => {
            let asked_at = Instant::now();
            let found = Box::pin(shared.resolve_after_start(active_call.caller(), &call)).await;
            active_call.recorder.add_start_wait(asked_at.elapsed());
            let mut found = found.unwrap_or(Err(error))?;
            rename_operation(active_call, &found.tool);
            // The caller could not know whether the tool is listed by its own name.
            found.corrected_from.take_if(|name| *name == *found.tool.id.name.as_str());
            found
        }
    };
    if let Some(requested) = found.corrected_from {
        let requested = clipped(&requested, MAX_NAME_BYTES).into_owned();
        shared.events.emit(|| RuntimeEvent::Corrected {
            asked: requested.clone(),
            tool: Arc::clone(&found.tool.flat_name),
        });
        active_call
            .recorder
            .with_operation(|operation| operation.set_attribute("corrected_from", &requested));
        active_call.recorder.meta().corrected_from = Some(requested);
    }
    // Boxed like all that few calls need, so that the future of every other call stays small.
    let session_call = if call.context.options.reads_context {
        Box::pin(SessionCall::enter(active_call, &found.tool, &mut call)).await?
    } else {
        None
    };
    let result = match admit(active_call, found.tool, found.queues, call).await {
        Ok(admitted) => shared.pipeline.call(&admitted).await,
        Err(error) => Err(error),
    };
    // From here on a replaced server may shut down.
    drop(found.drain_guard);
    if let Some(session_call) = session_call {
        Box::pin(session_call.finish(&result)).await;
    }
    result
}

/// Updates the operation when the tool was resolved only after the call began.
fn rename_operation(active_call: &ActiveCall, tool: &CatalogueTool) {
    active_call.recorder.with_operation(|operation| {
        operation.rename(Arc::clone(&tool.flat_name), Some(tool.id.server.shared()));
    });
    if let Some(info) = active_call.recorder.announced_info() {
        active_call.recorder.set_info(Arc::new(CallInfo {
            tool: Arc::clone(&tool.flat_name),
            server: tool.id.server.shared(),
            kind: tool.kind,
            ..CallInfo::clone(&info)
        }));
    }
}
