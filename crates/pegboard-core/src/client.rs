//! The client that made a call: notifications and input requests while a tool runs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use indexmap::IndexMap;
use pegboard_json::RawJson;
use tokio::sync::watch;

use crate::error::ProtocolError;
use crate::task::{ServerTask, TaskMode};

/// The `_meta` of a client's request, with values as the protocol defines them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientMeta {
    /// Capabilities that the client declares.
    pub capabilities: Option<RawJson>,
    /// Minimum level of log messages.
    pub log_level: Option<RawJson>,
    /// Custom fields.
    pub custom: Option<RawJson>,
}

/// The client that made a call. It receives notifications, and may support input requests.
pub trait Client: Send + Sync + 'static {
    /// Sends a notification. Never blocks; unsupported notifications are dropped.
    fn notify(&self, notice: Notice);

    /// Sends several input requests and waits for all responses. Implementations apply their own timeout.
    fn ask(&self, requests: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>>;

    /// Returns the `_meta` of the client's request, if it has made one.
    fn request_meta(&self) -> Option<&ClientMeta> {
        None
    }

    /// Returns `true` if an input request ends the current response and the client has to repeat its call
    /// with the answers. Avoid requests that are unrelated to the call then.
    fn needs_input_rounds(&self) -> bool {
        false
    }

    /// Returns `true` if the client has a session with the gateway: it speaks the session era.
    fn has_session(&self) -> bool {
        false
    }

    /// Returns the reason that the client gave when it cancelled its call: a string, as JSON.
    fn cancel_reason(&self) -> Option<RawJson> {
        None
    }

    /// Returns the session of the client, which can be asked outside of the call.
    fn session(&self) -> Option<Arc<dyn ClientSession>> {
        None
    }

    /// Returns the client's support for tasks that servers create for its calls.
    fn task_mode(&self) -> TaskMode {
        TaskMode::Hidden
    }

    /// Returns the client's support for sampling requests.
    fn sampling_support(&self) -> SamplingSupport {
        SamplingSupport::None
    }
}

/// A client with a session, which can be asked outside of its calls.
pub trait ClientSession: Send + Sync + 'static {
    /// Returns the capabilities that the client declares to servers.
    fn capabilities(&self) -> RawJson;

    /// Sends an input request and waits for the response, within a time limit of the implementation.
    fn ask(&self, request: InputRequest) -> BoxFuture<'_, Result<RawJson, AskError>>;

    /// Sends a notification that belongs to no call. Never blocks; a client that does not read loses some.
    fn notify(&self, notice: Notice);

    /// Returns a receiver of the number of changes to the client's roots.
    fn roots_changes(&self) -> watch::Receiver<u64>;
}

/// Support of a client for sampling requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SamplingSupport {
    /// No sampling.
    None,
    /// Text only, without tools.
    Text,
    /// Text and tools.
    Tools,
}

/// Notification that a tool sends while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Progress of the tool.
    Progress(ProgressUpdate),
    /// Log message of the tool.
    Log(RawJson),
    /// The server created a task for the call.
    Task(ServerTask),
    /// A notification that the protocol does not define.
    Custom {
        /// Its method.
        method: Arc<str>,
        /// Its parameters.
        params: Option<RawJson>,
    },
}

/// Progress of a tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgressUpdate {
    /// Amount done; increases monotonically.
    pub done: f64,
    /// Total amount, if known.
    pub total: Option<f64>,
    /// Current activity, for display.
    pub message: Option<String>,
    /// Parameters of the notification as a server sent them; `None` for progress of other tools.
    pub params: Option<RawJson>,
}

/// Input request to a client: a protocol method and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct InputRequest {
    /// Method, for elicitation, sampling or roots.
    pub method: String,
    /// Parameters of the method.
    pub params: RawJson,
}

/// Input requests by key.
pub type InputRequests = IndexMap<String, InputRequest>;

/// Responses by the keys of their requests.
pub type InputResponses = IndexMap<String, RawJson>;

/// Reason why an input request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The client does not support input requests.
    #[error("the caller does not support input requests")]
    Unsupported,
    /// The response did not arrive in time.
    #[error("the caller did not respond within {0:?}")]
    TimedOut(Duration),
    /// The client disconnected.
    #[error("the caller has disconnected")]
    Gone,
    /// The client declined, with this error.
    #[error("the caller declined: {}", .0.message)]
    Refused(Box<ProtocolError>),
}

impl AskError {
    /// Creates the error of a client that gave this reason.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused(Box::new(ProtocolError { code: INTERNAL_ERROR, message: message.into(), data: None }))
    }
}

/// Code of an internal error in JSON-RPC.
const INTERNAL_ERROR: i64 = -32_603;

/// Client that ignores notifications and supports no input requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoClient;

impl Client for NoClient {
    fn notify(&self, _notice: Notice) {}

    fn ask(&self, _requests: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        ready(Err(AskError::Unsupported)).boxed()
    }
}

impl fmt::Debug for dyn Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}
