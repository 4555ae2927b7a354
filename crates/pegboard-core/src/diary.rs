//! Where the session of an agent is written down while it goes on.

use crate::model::{ModelError, ModelName, ModelReply};

/// Where the session of an agent is written down. Every call can become one.
pub trait Diary: Send + Sync {
    /// The call is the session of an agent from now on. The title is for people.
    fn begin(&self, title: &str);

    /// Another turn begins: the how manieth, of how many at most. The first is told, too.
    fn turn(&self, turn: u32, most: u32);

    /// What the agent is doing, for people.
    fn status(&self, status: &str);

    /// Something that went wrong without ending the session.
    fn warn(&self, what: &str);

    /// A model is asked, with a request of about so many bytes. Dropping what is returned means that it was given up.
    fn model(&self, model: &ModelName, n_bytes: u64) -> Box<dyn ModelNote>;
}

/// A note that a model was asked, until it has replied.
pub trait ModelNote: Send {
    /// It has replied, or will not.
    fn end(self: Box<Self>, reply: Result<&ModelReply, &ModelError>);
}

/// Nobody writes anything down.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDiary;

impl Diary for NoDiary {
    fn begin(&self, _title: &str) {}

    fn turn(&self, _turn: u32, _most: u32) {}

    fn status(&self, _status: &str) {}

    fn warn(&self, _what: &str) {}

    fn model(&self, _model: &ModelName, _n_bytes: u64) -> Box<dyn ModelNote> {
        Box::new(Self)
    }
}

impl ModelNote for NoDiary {
    fn end(self: Box<Self>, _reply: Result<&ModelReply, &ModelError>) {}
}
