//! Why a call has no answer.

use std::fmt;
use std::time::Duration;

use pegboard_json::RawJson;
use serde::Serialize;

use crate::validation::Violation;

/// Why a call has no answer. A tool that answers "I could not do it" has answered.
///
/// No text of this type quotes the caller's arguments, so it may be logged; the violations carry the whole
/// message for whoever sent them.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// There is no such tool, server or toolbox.
    #[error("{0}")]
    NotFound(NotFound),
    /// The tool is there, but not for this caller.
    #[error("{reason}")]
    NotPermitted {
        /// What forbids it.
        reason: String,
    },
    /// The arguments break the tool's input schema; the tool did not run.
    #[error("Invalid arguments: {}", masked(violations))]
    InvalidParameters {
        /// Everything that is wrong with them.
        violations: Vec<Violation>,
    },
    /// The caller has used up what it may use.
    #[error("{reason}")]
    LimitExceeded {
        /// Which limit, and what to do.
        reason: String,
    },
    /// Somebody called it off.
    #[error("{reason}")]
    Canceled {
        /// Who or what did.
        reason: String,
        /// Whether the tool had begun.
        executed: Executed,
    },
    /// No slot of the tool's queue became free in time, or too many wait already.
    #[error("Queue '{queue}' {reason}")]
    QueueTimeout {
        /// The queue.
        queue: String,
        /// What happened there.
        reason: String,
    },
    /// The tool ran longer than it may.
    #[error("Tool execution timed out")]
    TimedOut {
        /// How long it was given.
        limit: Duration,
    },
    /// The caller's own deadline passed.
    #[error("The caller's deadline passed before the tool answered")]
    DeadlinePassed {
        /// Whether the tool had begun.
        executed: Executed,
    },
    /// The server is known to be failing, so it was not asked.
    #[error("{reason}")]
    CircuitOpen {
        /// Which server, and when it is tried again.
        reason: String,
    },
    /// The server wants somebody to log in first.
    #[error("{reason}")]
    AuthRequired {
        /// What to do.
        reason: String,
    },
    /// The server cannot be reached at all; the tool did not run.
    #[error("{reason}")]
    ServerUnavailable {
        /// Which server, and why.
        reason: String,
    },
    /// The connection to the server broke while the tool may have run.
    #[error("{reason}")]
    Transport {
        /// What broke.
        reason: String,
    },
    /// The tool ran and failed.
    #[error("{0}")]
    Failed(ToolError),
    /// The tool answered, but not as its output schema says, and the rules are strict.
    #[error("Output validation failed: {}", masked(violations))]
    OutputInvalid {
        /// Everything that is wrong with the answer.
        violations: Vec<Violation>,
    },
    /// The tool's code panicked, which is a bug in the tool.
    #[error("panicked: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
}

impl CallError {
    /// No tool has this name, and none is near it.
    pub fn unknown_tool(name: impl Into<String>) -> Self {
        Self::NotFound(NotFound::Tool { name: name.into(), nearest: Vec::new() })
    }

    /// The stable word for this situation, the same on every surface.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::NotFound(missing) => missing.kind(),
            Self::NotPermitted { .. } => ErrorKind::NotPermitted,
            Self::InvalidParameters { .. } => ErrorKind::InvalidParameters,
            Self::LimitExceeded { .. } => ErrorKind::LimitExceeded,
            Self::Canceled { .. } => ErrorKind::Canceled,
            Self::QueueTimeout { .. } => ErrorKind::QueueTimeout,
            Self::TimedOut { .. } | Self::DeadlinePassed { .. } => ErrorKind::Timeout,
            Self::CircuitOpen { .. } => ErrorKind::CircuitOpen,
            Self::AuthRequired { .. } => ErrorKind::AuthRequired,
            Self::ServerUnavailable { .. } => ErrorKind::ServerUnavailable,
            Self::Transport { .. } => ErrorKind::TransportError,
            Self::Failed(_) => ErrorKind::ExecutionError,
            Self::OutputInvalid { .. } => ErrorKind::OutputInvalid,
            Self::Panicked { .. } => ErrorKind::InternalError,
        }
    }

    /// Whether the tool may have done something before the call ended.
    pub fn executed(&self) -> Executed {
        match self {
            Self::NotFound(_)
            | Self::NotPermitted { .. }
            | Self::InvalidParameters { .. }
            | Self::LimitExceeded { .. }
            | Self::QueueTimeout { .. }
            | Self::CircuitOpen { .. }
            | Self::AuthRequired { .. }
            | Self::ServerUnavailable { .. } => Executed::No,
            Self::Canceled { executed, .. } | Self::DeadlinePassed { executed } => *executed,
            Self::TimedOut { .. }
            | Self::Transport { .. }
            | Self::Failed(_)
            | Self::OutputInvalid { .. }
            | Self::Panicked { .. } => Executed::Yes,
        }
    }

    /// Everything that is wrong, one text for each, for whoever made the call.
    pub fn texts(&self) -> Vec<String> {
        match self {
            Self::InvalidParameters { violations } | Self::OutputInvalid { violations } => {
                violations.iter().map(|violation| violation.text().to_owned()).collect()
            }
            Self::Panicked { message } => vec![message.clone()],
            Self::NotFound(_)
            | Self::NotPermitted { .. }
            | Self::LimitExceeded { .. }
            | Self::Canceled { .. }
            | Self::QueueTimeout { .. }
            | Self::TimedOut { .. }
            | Self::DeadlinePassed { .. }
            | Self::CircuitOpen { .. }
            | Self::AuthRequired { .. }
            | Self::ServerUnavailable { .. }
            | Self::Transport { .. }
            | Self::Failed(_) => vec![self.to_string()],
        }
    }

    /// The error in one text for whoever made the call.
    pub fn text(&self) -> String {
        match self {
            Self::InvalidParameters { .. } => format!("Invalid arguments: {}", self.texts().join("; ")),
            Self::OutputInvalid { .. } => format!("Output validation failed: {}", self.texts().join("; ")),
            _ => self.to_string(),
        }
    }
}

/// Whether a tool may have done something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executed {
    /// It has not begun.
    No,
    /// It has begun, and perhaps finished.
    Yes,
}

/// What there is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No tool has this name.
    #[error("Unknown tool: {name}{}", suggestion(nearest))]
    Tool {
        /// The name that was asked for.
        name: String,
        /// Names that are there and near it.
        nearest: Vec<String>,
    },
    /// No agent has this name.
    #[error("unknown_subagent_tool: '{name}' is not registered in this session's agent registry")]
    Agent {
        /// The name that was asked for.
        name: String,
    },
    /// No toolbox has this name.
    #[error(
        "Toolbox '{toolbox}' is not open: Toolbox '{toolbox}' not found. Available toolboxes: {}",
        listed(available)
    )]
    Toolbox {
        /// The name that was asked for.
        toolbox: String,
        /// The toolboxes there are.
        available: Vec<String>,
    },
    /// The toolbox is there, but nobody has opened it.
    #[error(
        "Toolbox '{toolbox}' is not open. Call open_toolbox with {{\"toolbox\": {}}} first",
        quoted(toolbox)
    )]
    NotOpen {
        /// The toolbox.
        toolbox: String,
    },
    /// The toolbox has no such server.
    #[error("Server '{server}' not found in toolbox '{toolbox}'. Available servers: {}", listed(available))]
    Server {
        /// The name that was asked for.
        server: String,
        /// The toolbox.
        toolbox: String,
        /// The servers there are.
        available: Vec<String>,
    },
    /// The server has no such tool.
    #[error("Tool '{name}' not found in server '{server}' (toolbox '{toolbox}'){}", suggestion(nearest))]
    ToolOfServer {
        /// The name that was asked for.
        name: String,
        /// The server.
        server: String,
        /// The toolbox.
        toolbox: String,
        /// Names that are there and near it.
        nearest: Vec<String>,
    },
}

impl NotFound {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Tool { .. } | Self::Agent { .. } | Self::ToolOfServer { .. } => ErrorKind::UnknownTool,
            Self::Toolbox { .. } | Self::NotOpen { .. } => ErrorKind::UnknownToolbox,
            Self::Server { .. } => ErrorKind::UnknownServer,
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

fn suggestion(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        [one] => format!(". Did you mean '{one}'?"),
        several => format!(". Did you mean one of: {}?", several.join(", ")),
    }
}

fn masked(violations: &[Violation]) -> String {
    violations.iter().map(Violation::masked).collect::<Vec<_>>().join("; ")
}

/// The stable word for a situation in which a call has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// No tool has this name.
    UnknownTool,
    /// No open toolbox has this name.
    UnknownToolbox,
    /// The toolbox has no such server.
    UnknownServer,
    /// The tool is not for this caller.
    NotPermitted,
    /// The arguments break the tool's input schema.
    InvalidParameters,
    /// The caller has used up what it may use.
    LimitExceeded,
    /// Somebody called it off.
    Canceled,
    /// No slot became free in time.
    QueueTimeout,
    /// The tool ran longer than it may, or than the caller waits.
    Timeout,
    /// The server is known to be failing.
    CircuitOpen,
    /// Somebody must log in first.
    AuthRequired,
    /// The server cannot be reached.
    ServerUnavailable,
    /// The connection broke.
    TransportError,
    /// The tool ran and failed.
    ExecutionError,
    /// The answer breaks the output schema.
    OutputInvalid,
    /// A bug, in the tool or here.
    InternalError,
}

impl ErrorKind {
    /// The word itself.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTool => "unknown_tool",
            Self::UnknownToolbox => "unknown_toolbox",
            Self::UnknownServer => "unknown_server",
            Self::NotPermitted => "not_permitted",
            Self::InvalidParameters => "invalid_parameters",
            Self::LimitExceeded => "limit_exceeded",
            Self::Canceled => "canceled",
            Self::QueueTimeout => "queue_timeout",
            Self::Timeout => "timeout",
            Self::CircuitOpen => "circuit_open",
            Self::AuthRequired => "auth_required",
            Self::ServerUnavailable => "server_unavailable",
            Self::TransportError => "transport_error",
            Self::ExecutionError => "execution_error",
            Self::OutputInvalid => "output_invalid",
            Self::InternalError => "internal_error",
        }
    }
}

/// What a tool's code returns when it could not do its work. `?` turns every error into one.
///
/// ```
/// use pegboard_core::error::ToolError;
///
/// fn port(text: &str) -> Result<u16, ToolError> {
///     if text.is_empty() {
///         return Err(ToolError::new("no port given"));
///     }
///     Ok(text.parse()?)
/// }
/// assert_eq!(port("").unwrap_err().to_string(), "no port given");
/// assert_eq!(port("x").unwrap_err().to_string(), "invalid digit found in string");
/// ```
#[derive(Clone, PartialEq)]
pub struct ToolError {
    message: String,
    protocol: Option<Box<ProtocolError>>,
}

/// How a server refused, in the words of the protocol that it speaks.
#[derive(Clone, Debug, PartialEq)]
pub struct ProtocolError {
    /// Which kind of error.
    pub code: i64,
    /// What went wrong.
    pub message: String,
    /// What else there is to know.
    pub data: Option<RawJson>,
}

impl ToolError {
    /// A failure in the tool's own words.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), protocol: None }
    }

    /// The same with how a server refused, for those who can pass that on as it is.
    #[must_use]
    pub fn refused(mut self, protocol: ProtocolError) -> Self {
        self.protocol = Some(Box::new(protocol));
        self
    }

    /// How a server refused, if that is what went wrong.
    pub fn protocol(&self) -> Option<&ProtocolError> {
        self.protocol.as_deref()
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error> From<E> for ToolError {
    /// The error and its causes, outermost first.
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            // Many errors already end with the words of their cause.
            let words = inner.to_string();
            if !text.ends_with(&words) {
                text = format!("{text}: {words}");
            }
            cause = inner.source();
        }
        Self::new(text)
    }
}

/// What the code of a tool returns.
pub type Result<T, E = ToolError> = std::result::Result<T, E>;
