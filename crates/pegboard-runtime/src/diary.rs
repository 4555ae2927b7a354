//! A call as the session of an agent: its turns, its status, and the models that it asks.

use std::sync::Arc;

use pegboard_core::diary::{Diary, ModelNote};
use pegboard_core::model::{ModelError, ModelName, ModelReply};
use pegboard_core::redact::Redactor;
use pegboard_core::text::clipped;
use tokio::time::Instant;
use tracing::Span;

use crate::event::{Event, Events, ModelEnd, Subject};
use crate::flight::Track;
use crate::optree::{self, OpError, OpKind, OpTree, Operation, Start, Usage};
use crate::spans;

/// How much of what an agent says of itself is told.
const MAX_SAID_BYTES: usize = 512;

impl Diary for Track {
    fn begin(&self, title: &str) {
        // One that is nested too deep says so at its first call.
        let _ = self.with_operation(|operation| operation.become_session(title));
    }

    fn turn(&self, turn: u32, most: u32) {
        if turn > 1
            && let Ok(tree) = self.tree()
        {
            tree.next_turn();
        }
        self.events().emit(|| Event::Turn { call: self.subject(), turn, most });
    }

    fn status(&self, status: &str) {
        let status = self.said(status);
        if let Ok(tree) = self.tree() {
            tree.set_status(&status);
        }
        self.events().emit(|| Event::Status { call: self.subject(), status });
    }

    fn warn(&self, what: &str) {
        let what = self.said(what);
        self.with_operation(|operation| operation.log(&what));
        self.events().emit(|| Event::AgentWarned { call: self.subject(), what });
    }

    fn model(&self, model: &ModelName, n_bytes: u64) -> Box<dyn ModelNote> {
        let shared = self.caller.shared();
        let begin = |tree: OpTree| {
            let started = shared.wall.now();
            let server = Some(model.provider().as_str().into());
            tree.begin(Start { server, size: n_bytes, ..Start::of(OpKind::Llm, model.model(), started) })
        };
        let operation = self.tree().ok().map(begin);
        let path = operation.as_ref().map(|operation| operation.path().to_string()).unwrap_or_default();
        let is_heard = self.events().is_heard();
        let mut note = Note {
            model: model.clone(),
            operation,
            path,
            begun: Instant::now(),
            span: Span::none(),
            events: self.events().clone(),
            redactor: shared.redactor.load_full(),
            call: is_heard.then(|| self.subject()),
        };
        if let Some(spans) = &shared.spans {
            note.span = spans::model_span(self.caller.id(), model);
            spans.begin(&note.span, self.trace_parent());
        }
        if let Some(call) = &note.call {
            let (call, operation) = (Arc::clone(call), note.path.clone());
            note.events.emit(|| Event::ModelStarted { call, operation, model: model.clone() });
        }
        Box::new(note)
    }
}

impl Track {
    fn events(&self) -> &Events {
        &self.caller.shared().events
    }

    /// A text of an agent as it may be told.
    fn said(&self, text: &str) -> String {
        clipped(&self.caller.shared().redactor.load().text(text), MAX_SAID_BYTES).into_owned()
    }
}

/// A model that is asked.
struct Note {
    model: ModelName,
    operation: Option<Operation>,
    path: String,
    begun: Instant,
    span: Span,
    events: Events,
    redactor: Arc<Redactor>,
    /// What events say of the session, if anybody listens.
    call: Option<Arc<Subject>>,
}

impl ModelNote for Note {
    fn end(mut self: Box<Self>, reply: Result<&ModelReply, &ModelError>) {
        let usage = reply.ok().and_then(|reply| reply.usage).unwrap_or_default();
        let cost_usd = reply.ok().and_then(|reply| reply.cost_usd);
        let end = ModelEnd {
            model: reply.map_or_else(|error| error.model.clone(), |reply| reply.model.clone()),
            error: reply.err().map(|error| error.kind.as_str()),
            message: reply.err().map(|error| self.redactor.text(&error.to_string()).into_owned()),
            duration: self.begun.elapsed(),
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
            operation.end(optree::End {
                result,
                size: reply.map_or(0, n_bytes),
                usage: Usage {
                    tokens_in: usage.input,
                    tokens_out: usage.output,
                    tokens_cache_read: usage.cache_read,
                    tokens_cache_write: usage.cache_write,
                    cost_usd: cost_usd.unwrap_or_default(),
                },
                ..optree::End::ok()
            });
        }
        self.finish(end);
    }
}

impl Note {
    /// Tells whoever wants to know.
    fn finish(&mut self, end: ModelEnd) {
        spans::end_model_span(&self.span, &end);
        if let Some(call) = self.call.take() {
            let operation = std::mem::take(&mut self.path);
            self.events.emit(|| Event::ModelFinished { call, operation, end });
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        // Its operation, if it is still there, ends as one that was given up.
        if self.operation.is_some() || self.call.is_some() {
            let end = ModelEnd {
                model: self.model.clone(),
                error: Some("canceled"),
                message: None,
                duration: self.begun.elapsed(),
                usage: pegboard_core::model::Usage::default(),
                cost_usd: None,
            };
            self.finish(end);
        }
    }
}

/// How long what a model wrote is.
fn n_bytes(reply: &ModelReply) -> u64 {
    let calls = reply.tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
    (reply.text.len() + calls.sum::<usize>()) as u64
}
