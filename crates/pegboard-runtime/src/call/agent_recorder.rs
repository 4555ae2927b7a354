//! Records a call as the session of an agent: its turns, its status, and its model requests.

use std::sync::Arc;

use pegboard_core::model::{ModelError, ModelName, ModelReply};
use pegboard_core::recorder::{AgentRecorder, ModelSpan};
use pegboard_core::redact::Redactor;
use pegboard_core::text::clipped;
use tokio::time::Instant;
use tracing::Span;

use super::recorder::CallRecorder;
use crate::event::{CallInfo, EventBus, ModelCallEnd, RuntimeEvent};
use crate::optree::{self, OpError, OpKind, OpStart, OpTree, OpUsage, Operation};
use crate::spans;

/// Maximum length of a status or warning of an agent.
const MAX_STATUS_BYTES: usize = 512;

impl AgentRecorder for CallRecorder {
    fn begin(&self, title: &str) {
        // A nesting error is reported by the first nested call.
        let _ = self.with_operation(|operation| operation.promote_to_session(title));
    }

    fn turn(&self, turn: u32, most: u32) {
        if turn > 1
            && let Ok(tree) = self.child_tree()
        {
            tree.next_turn();
        }
        self.events().emit(|| RuntimeEvent::Turn { call: self.info(), turn, most });
    }

    fn status(&self, status: &str) {
        let status = self.redact(status);
        if let Ok(tree) = self.child_tree() {
            tree.set_status(&status);
        }
        self.events().emit(|| RuntimeEvent::Status { call: self.info(), status });
    }

    fn warn(&self, what: &str) {
        let what = self.redact(what);
        self.with_operation(|operation| operation.log(&what));
        self.events().emit(|| RuntimeEvent::AgentWarned { call: self.info(), what });
    }

    fn model_request(&self, model: &ModelName, n_bytes: u64) -> Box<dyn ModelSpan> {
        let shared = self.caller.shared();
        let begin = |tree: OpTree| {
            let started = shared.wall.now();
            let server = Some(model.provider().as_str().into());
            tree.begin(OpStart { server, size: n_bytes, ..OpStart::of(OpKind::Llm, model.model(), started) })
        };
        let operation = self.child_tree().ok().map(begin);
        let path = operation.as_ref().map(|operation| operation.path().to_string()).unwrap_or_default();
        let has_listeners = self.events().has_listeners();
        let mut record = ModelCallRecord {
            model: model.clone(),
            operation,
            path,
            started_at: Instant::now(),
            span: Span::none(),
            events: self.events().clone(),
            redactor: shared.redactor.load_full(),
            call: has_listeners.then(|| self.info()),
        };
        if let Some(spans) = &shared.spans {
            record.span = spans::model_span(self.caller.id(), model);
            spans.attach(&record.span, self.trace_parent());
        }
        if let Some(call) = &record.call {
            let (call, operation) = (Arc::clone(call), record.path.clone());
            record.events.emit(|| RuntimeEvent::ModelStarted { call, operation, model: model.clone() });
        }
        Box::new(record)
    }
}

impl CallRecorder {
    fn events(&self) -> &EventBus {
        &self.caller.shared().events
    }

    /// Returns the text of an agent, redacted and truncated.
    fn redact(&self, text: &str) -> String {
        clipped(&self.caller.shared().redactor.load().text(text), MAX_STATUS_BYTES).into_owned()
    }
}

/// A model request in progress.
struct ModelCallRecord {
    model: ModelName,
    operation: Option<Operation>,
    path: String,
    started_at: Instant,
    span: Span,
    events: EventBus,
    redactor: Arc<Redactor>,
    /// Subject of the events, if there is a listener.
    call: Option<Arc<CallInfo>>,
}

impl ModelSpan for ModelCallRecord {
    fn end(mut self: Box<Self>, reply: Result<&ModelReply, &ModelError>) {
        let usage = reply.ok().and_then(|reply| reply.usage).unwrap_or_default();
        let cost_usd = reply.ok().and_then(|reply| reply.cost_usd);
        let end = ModelCallEnd {
            model: reply.map_or_else(|error| error.model.clone(), |reply| reply.model.clone()),
            error: reply.err().map(|error| error.kind.as_str()),
            message: reply.err().map(|error| self.redactor.text(&error.to_string()).into_owned()),
            duration: self.started_at.elapsed(),
            usage,
            cost_usd,
        };
        if let Some(mut operation) = self.operation.take() {
            if end.model != self.model {
                let provider = end.model.provider().as_str();
                operation.rename(end.model.model().into(), Some(provider.into()));
            }
            let result = end
                .error
                .map_or(Ok(()), |kind| Err(OpError::new(kind, end.message.as_deref().unwrap_or(kind))));
            operation.end(optree::OpEnd {
                result,
                size: reply.map_or(0, n_bytes),
                usage: OpUsage {
                    tokens_in: usage.input,
                    tokens_out: usage.output,
                    tokens_cache_read: usage.cache_read,
                    tokens_cache_write: usage.cache_write,
                    cost_usd: cost_usd.unwrap_or_default(),
                },
                ..optree::OpEnd::ok()
            });
        }
        self.emit_end(end);
    }
}

impl ModelCallRecord {
    /// Records the end in the span and emits the end event.
    fn emit_end(&mut self, end: ModelCallEnd) {
        spans::end_model_span(&self.span, &end);
        if let Some(call) = self.call.take() {
            let operation = std::mem::take(&mut self.path);
            self.events.emit(|| RuntimeEvent::ModelFinished { call, operation, end });
        }
    }
}

impl Drop for ModelCallRecord {
    fn drop(&mut self) {
        // An operation that is still open ends as cancelled.
        if self.operation.is_some() || self.call.is_some() {
            let end = ModelCallEnd {
                model: self.model.clone(),
                error: Some("canceled"),
                message: None,
                duration: self.started_at.elapsed(),
                usage: pegboard_core::model::TokenUsage::default(),
                cost_usd: None,
            };
            self.emit_end(end);
        }
    }
}

/// Returns the size of a model's reply in bytes.
fn n_bytes(reply: &ModelReply) -> u64 {
    let calls = reply.tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
    (reply.text.len() + calls.sum::<usize>()) as u64
}
