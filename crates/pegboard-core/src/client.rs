//! Whoever made a call, as far as the tool can speak to it while it runs.

use std::fmt;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use indexmap::IndexMap;
use pegboard_json::RawJson;

use crate::task::{ServerTask, TaskUse};

/// Whoever made a call. It can be told things, and some can be asked.
pub trait Client: Send + Sync + 'static {
    /// Tells it something. Never waits; what it does not want to hear is lost.
    fn notify(&self, notice: Notice);

    /// Asks it several things at once, and waits for all answers. Every asker has a limit of its own.
    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>>;

    /// What came along with its request for whoever carries it out, as the protocol writes it in `_meta`: what the
    /// client can do, which lines of a log it wants, and what it put there itself.
    fn remarks(&self) -> Option<RawJson> {
        None
    }

    /// Whether asking it takes a reply to its call, after which it comes again: too much for what its call has nothing
    /// to do with.
    fn is_asked_in_rounds(&self) -> bool {
        false
    }

    /// What it has to do with tasks that servers make of its call.
    fn task_use(&self) -> TaskUse {
        TaskUse::Hidden
    }

    /// What it lends of its own model to whoever asks it to think.
    fn lends(&self) -> Lending {
        Lending::Nothing
    }
}

/// What a client lends of its own model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lending {
    /// It has none to lend.
    Nothing,
    /// Its model replies with text, and takes no tools.
    Text,
    /// Its model takes tools, too.
    Tools,
}

/// Something that a tool says while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// How far it is.
    Progress(Progress),
    /// A line of its log.
    Log(RawJson),
    /// Its server has made a task of the call.
    Task(ServerTask),
}

/// How far a tool is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// How much is done; it grows.
    pub done: f64,
    /// How much there is to do, if the tool knows.
    pub total: Option<f64>,
    /// What it does now, for a person.
    pub message: Option<String>,
}

/// One thing to ask a client: a method of the protocol and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// What is asked: to fill in a form, to think, or where its folders are.
    pub method: String,
    /// The particulars.
    pub params: RawJson,
}

/// What is asked, each under a name of its own.
pub type Questions = IndexMap<String, Question>;

/// What was answered, under the same names.
pub type Answers = IndexMap<String, RawJson>;

/// Why there are no answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Nobody is there who could answer.
    #[error("the caller cannot be asked")]
    Nobody,
    /// The answer did not come in time.
    #[error("the caller did not answer within {0:?}")]
    TimedOut(Duration),
    /// The caller went away.
    #[error("the caller is gone")]
    Gone,
    /// The caller answered that it will not.
    #[error("the caller refused: {0}")]
    Refused(String),
}

/// A client that hears nothing and cannot be asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoClient;

impl Client for NoClient {
    fn notify(&self, _notice: Notice) {}

    fn ask(&self, _questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        ready(Err(AskError::Nobody)).boxed()
    }
}

impl fmt::Debug for dyn Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}
