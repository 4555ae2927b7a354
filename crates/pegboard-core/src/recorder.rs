//! Recording of agent sessions.

use crate::model::{ModelError, ModelName, ModelReply};

/// Records the session of an agent. Any call can become one.
pub trait AgentRecorder: Send + Sync {
    /// Marks the call as an agent session. The title is for display.
    fn begin(&self, title: &str);

    /// Records the start of a turn: its number, from 1, and the limit.
    fn turn(&self, turn: u32, limit: u32);

    /// Records the current activity of the agent, for display.
    fn status(&self, status: &str);

    /// Records a problem that did not end the session.
    fn warn(&self, what: &str);

    /// Records a model request of about `n_bytes` bytes. Dropping the returned span means that it was
    /// cancelled.
    fn model_request(&self, model: &ModelName, n_bytes: u64) -> Box<dyn ModelSpan>;
}

/// A model request in progress.
pub trait ModelSpan: Send {
    /// Records the reply, or the error.
    fn end(self: Box<Self>, reply: Result<&ModelReply, &ModelError>);
}

/// Recorder that discards everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopRecorder;

impl AgentRecorder for NoopRecorder {
    fn begin(&self, _title: &str) {}

    fn turn(&self, _turn: u32, _limit: u32) {}

    fn status(&self, _status: &str) {}

    fn warn(&self, _what: &str) {}

    fn model_request(&self, _model: &ModelName, _n_bytes: u64) -> Box<dyn ModelSpan> {
        Box::new(Self)
    }
}

impl ModelSpan for NoopRecorder {
    fn end(self: Box<Self>, _reply: Result<&ModelReply, &ModelError>) {}
}
