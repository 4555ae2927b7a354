//! The record of a call: its operation in the op tree, its events and its span.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pegboard_core::call::{Call, CallMeta, CallResult};
use pegboard_core::error::{CallError, ErrorKind, Executed};
use pegboard_core::output::Output;
use pegboard_core::text::clipped;
use tokio::time::Instant;

use super::active::ActiveCall;
use super::{MAX_NAME_BYTES, ParentCall};
use crate::call_log::UnwrittenEntry;
use crate::caller::Caller;
use crate::catalogue::CatalogueTool;
use crate::event::{CallEnd, CallInfo, RuntimeEvent};
use crate::optree::{self, OpError, OpKind, OpStart, Payload};
use crate::runtime::ResolvedTool;
use crate::spans;

/// Maximum recorded length of an error message.
const MAX_MESSAGE_BYTES: usize = 2_048;
/// Attribute of the time for which a call waited for its server to start, in milliseconds.
const START_WAIT_KEY: &str = "startWaitMs";
/// Attribute of the time for which a call waited for input from its caller, in milliseconds.
const QUESTION_WAIT_KEY: &str = "questionWaitMs";
/// Attribute of the time that passed before the tool ran and was no wait, in milliseconds.
const OVERHEAD_KEY: &str = "overheadMs";

/// Record of a call; written exactly once, even if the call is dropped.
pub(super) struct CallRecord {
    pub(super) active_call: Arc<ActiveCall>,
    pub(super) span: tracing::Span,
    started: Instant,
    with_payload: bool,
    is_open: bool,
}

impl CallRecord {
    pub(super) fn begin(
        caller: Caller,
        parent: Option<ParentCall>,
        call: &Call,
        found: Option<&ResolvedTool>,
        start_wait: Duration,
    ) -> Self {
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
            started: earlier(shared.wall.now(), start_wait),
            begun_for: start_wait,
        });
        let active_call = ActiveCall::new(caller, call, parent.map(|parent| parent.call), operation);
        let mut record = Self {
            active_call,
            span: tracing::Span::none(),
            started: since(start_wait),
            with_payload,
            is_open: true,
        };
        if !start_wait.is_zero() {
            record.active_call.recorder.add_start_wait(start_wait);
        }
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
        active_call.recorder.set_info(Arc::new(CallInfo {
            session: active_call.caller().shared_id(),
            owner: active_call.caller().owner().clone(),
            operation: active_call.recorder.with_operation(|operation| operation.path()).unwrap_or_default(),
            tool: name,
            server: tool.map(|tool| tool.id.server.shared()).unwrap_or_default(),
            kind: tool.map(|tool| tool.kind).unwrap_or_default(),
            n_bytes_in,
        }));
        active_call
            .caller()
            .shared()
            .events
            .emit(|| RuntimeEvent::ToolStarted { call: active_call.recorder.info() });
    }

    /// Creates the span of the call.
    fn trace(&mut self, call: &Call) {
        self.span = spans::call_span(&self.active_call.recorder.info());
        if let Some(spans) = &self.active_call.caller().shared().spans
            && let Some(parent) = spans.attach(&self.span, call.context.trace_parent)
        {
            self.active_call.recorder.set_span(parent);
        }
    }

    pub(super) fn end(mut self, result: Result<Output, CallError>) -> CallResult {
        self.is_open = false;
        let shared = self.active_call.caller().shared();
        let result = result.map_err(|error| shared.redacted_error(error));
        self.finish(&result);
        let has_run = !matches!(&result, Err(error) if error.executed() == Executed::No);
        let duration =
            self.active_call.execution.running_since().filter(|_| has_run).map(|begun| begun.elapsed());
        let meta = std::mem::take(&mut *self.active_call.recorder.meta());
        let warnings = std::mem::take(&mut *self.active_call.recorder.warnings());
        CallResult { result, duration, warnings, meta }
    }

    /// Returns the delays of at least a millisecond other than the wait in a queue, by attribute.
    fn delays(&self, meta: &CallMeta) -> impl Iterator<Item = (&'static str, Duration)> {
        let start = meta.start_wait.unwrap_or_default();
        let known = start + meta.waited.unwrap_or_default();
        let running_since = self.active_call.execution.running_since();
        let before = running_since.map(|since| since.duration_since(self.started)).unwrap_or_default();
        let delays = [
            (START_WAIT_KEY, start),
            (QUESTION_WAIT_KEY, meta.question_wait.unwrap_or_default()),
            (OVERHEAD_KEY, before.saturating_sub(known)),
        ];
        delays.into_iter().filter(|(_, time)| *time >= Duration::from_millis(1))
    }

    /// Ends the operation and emits the end event.
    fn finish(&self, result: &Result<Output, CallError>) {
        let active_call = &self.active_call;
        let Some(operation) = active_call.recorder.take_operation() else { return };
        active_call.end_children();
        let shared = active_call.caller().shared();
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
        for warning in &*active_call.recorder.warnings() {
            operation.log(&shared.redactor.load().text(warning));
        }
        let (is_cached, waited) = {
            let meta = active_call.recorder.meta();
            if meta.is_joined {
                operation.set_attribute("joined", "true");
            }
            for (key, time) in self.delays(&meta) {
                operation.set_attribute(key, &time.as_millis().to_string());
            }
            (meta.is_cached, meta.waited.unwrap_or_default())
        };
        let ended = operation.end_retained(optree::OpEnd {
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
        if let (Some(log), Some(ended), false) = (&shared.call_log, ended, active_call.has_parent()) {
            log.push(UnwrittenEntry::Call(active_call.caller().ended_call(ended)));
        }
        if let Some(call) = active_call.recorder.announced_info() {
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

fn earlier(time: SystemTime, by: Duration) -> SystemTime {
    time.checked_sub(by).unwrap_or(time)
}

/// Returns the instant that was this long ago.
fn since(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(time).unwrap_or(now)
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        if self.is_open {
            let executed = self.active_call.execution.executed();
            let reason = "the caller dropped the call".to_owned();
            self.finish(&Err(CallError::Canceled { reason, executed }));
        }
    }
}
