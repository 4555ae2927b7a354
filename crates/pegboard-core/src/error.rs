//! Errors of tool calls.

use std::fmt;
use std::time::Duration;

use pegboard_json::RawJson;
use serde::{Deserialize, Serialize};

use crate::similar::nearest;
use crate::validation::Violation;

/// Maximum number of suggested names.
const MAX_SUGGESTIONS: usize = 3;

/// Reason why a call has no output. A tool that reports a failure has an output.
///
/// Messages of this type do not quote the caller's arguments, so they may be logged; the violations carry the
/// full message for the caller.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The tool, server or toolbox does not exist.
    #[error("{0}")]
    NotFound(NotFound),
    /// The caller may not use the tool.
    #[error("{reason}")]
    NotPermitted {
        /// Policy that forbids it.
        reason: String,
    },
    /// The arguments violate the tool's input schema; the tool did not run.
    #[error("Invalid arguments: {}", masked(violations))]
    InvalidParameters {
        /// All violations.
        violations: Vec<Violation>,
    },
    /// The caller exceeded a limit.
    #[error("{reason}")]
    LimitExceeded {
        /// The limit, and how to proceed.
        reason: String,
    },
    /// The call was cancelled.
    #[error("{reason}")]
    Canceled {
        /// Source of the cancellation.
        reason: String,
        /// `Yes` if the tool had started.
        executed: Executed,
    },
    /// No queue slot became free in time, or the queue is full.
    #[error("Queue '{queue}' {reason}")]
    QueueTimeout {
        /// Name of the queue.
        queue: String,
        /// Cause.
        reason: String,
    },
    /// The tool exceeded its timeout.
    #[error("Tool execution timed out")]
    TimedOut {
        /// The timeout.
        limit: Duration,
    },
    /// The caller's deadline passed.
    #[error("The caller's deadline passed before the tool answered")]
    DeadlinePassed {
        /// `Yes` if the tool had started.
        executed: Executed,
    },
    /// The circuit breaker of the server is open; no request was sent.
    #[error("{reason}")]
    CircuitOpen {
        /// The server, and the time of the next attempt.
        reason: String,
    },
    /// The server requires a login.
    #[error("{reason}")]
    AuthRequired {
        /// Instructions.
        reason: String,
    },
    /// The server cannot be reached; the tool did not run.
    #[error("{reason}")]
    ServerUnavailable {
        /// The server, and the cause.
        reason: String,
    },
    /// The connection to the server broke while the tool may have run.
    #[error("{reason}")]
    Transport {
        /// Cause.
        reason: String,
    },
    /// The tool ran and failed.
    #[error("{0}")]
    Failed(ToolError),
    /// The output violates the tool's output schema, under strict rules.
    #[error("Output validation failed: {}", masked(violations))]
    OutputInvalid {
        /// All violations.
        violations: Vec<Violation>,
    },
    /// The tool panicked, which is a bug in the tool.
    #[error("panicked: {message}")]
    Panicked {
        /// Message of the panic.
        message: String,
    },
}

impl CallError {
    /// Creates an error for a tool name without suggestions.
    pub fn unknown_tool(name: impl Into<String>) -> Self {
        Self::NotFound(NotFound::Tool { name: name.into(), nearest: Vec::new() })
    }

    /// Returns the error with a changed reason, if that may quote what a server or the system has said.
    #[must_use]
    pub fn map_reason(self, change: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::CircuitOpen { reason } => Self::CircuitOpen { reason: change(&reason) },
            Self::AuthRequired { reason } => Self::AuthRequired { reason: change(&reason) },
            Self::ServerUnavailable { reason } => Self::ServerUnavailable { reason: change(&reason) },
            Self::Transport { reason } => Self::Transport { reason: change(&reason) },
            Self::NotFound(_)
            | Self::NotPermitted { .. }
            | Self::InvalidParameters { .. }
            | Self::LimitExceeded { .. }
            | Self::Canceled { .. }
            | Self::QueueTimeout { .. }
            | Self::TimedOut { .. }
            | Self::DeadlinePassed { .. }
            | Self::Failed(_)
            | Self::OutputInvalid { .. }
            | Self::Panicked { .. } => self,
        }
    }

    /// Returns the error kind, the same on every surface.
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

    /// Returns `Yes` if the tool may have had effects.
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

    /// Returns all messages for the caller, one per problem.
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

    /// Returns the message for the caller.
    pub fn text(&self) -> String {
        match self {
            Self::InvalidParameters { .. } => format!("Invalid arguments: {}", self.texts().join("; ")),
            Self::OutputInvalid { .. } => format!("Output validation failed: {}", self.texts().join("; ")),
            _ => self.to_string(),
        }
    }
}

/// Execution state of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executed {
    /// The tool did not start.
    No,
    /// The tool started, and may have finished.
    Yes,
}

/// Lookup failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// Unknown tool.
    Tool {
        /// Requested name.
        name: String,
        /// Similar names that exist.
        nearest: Vec<String>,
    },
    /// A name that does not say which server's tool is meant.
    Ambiguous {
        /// Requested name.
        name: String,
        /// Names with a server: of servers that have the tool, and of those that have not listed their tools.
        candidates: Vec<String>,
    },
    /// Unknown agent.
    Agent {
        /// Requested name.
        name: String,
    },
    /// Unknown toolbox.
    Toolbox {
        /// Requested name.
        toolbox: String,
        /// Available toolboxes.
        available: Vec<String>,
    },
    /// The toolbox exists, but is not open.
    NotOpen {
        /// Name of the toolbox.
        toolbox: String,
    },
    /// A tool of a server that the configuration disables.
    Disabled {
        /// Name of the server.
        server: String,
        /// Name of the toolbox.
        toolbox: String,
    },
    /// Unknown server in a toolbox.
    Server {
        /// Requested name.
        server: String,
        /// Name of the toolbox.
        toolbox: String,
        /// Available servers.
        available: Vec<String>,
    },
    /// Unknown tool of a server.
    ToolOfServer {
        /// Requested name.
        name: String,
        /// Name of the server.
        server: String,
        /// Name of the toolbox.
        toolbox: String,
        /// Similar names that exist.
        nearest: Vec<String>,
    },
}

/// Shows the message and the suggestions.
impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())?;
        match (self, &self.nearest()[..]) {
            (_, []) => Ok(()),
            (Self::Ambiguous { .. }, [one]) => write!(f, "; if so, it is '{one}'"),
            (Self::Ambiguous { .. }, several) => write!(f, "; call one of: {}", several.join(", ")),
            (_, [one]) => write!(f, ". Did you mean '{one}'?"),
            (_, several) => write!(f, ". Did you mean one of: {}?", several.join(", ")),
        }
    }
}

impl std::error::Error for NotFound {}

impl NotFound {
    /// Returns the message without suggestions.
    pub fn message(&self) -> String {
        match self {
            Self::Tool { name, .. } => format!("Unknown tool: {name}"),
            Self::Ambiguous { name, candidates } => match candidates.as_slice() {
                [_] => format!("Unknown tool: {name}. A server that has not listed its tools may have it"),
                _ => format!("Ambiguous tool: {name}. Several servers have it or may have it"),
            },
            Self::Agent { name } => {
                format!("unknown_subagent_tool: '{name}' is not registered in this session's agent registry")
            }
            Self::Toolbox { toolbox, available } => {
                let available = listed(available);
                format!(
                    "Toolbox '{toolbox}' is not open: Toolbox '{toolbox}' not found. Available toolboxes: {available}"
                )
            }
            Self::NotOpen { toolbox } => {
                let quoted = serde_json::Value::from(toolbox.as_str());
                format!(
                    "Toolbox '{toolbox}' is not open. Call open_toolbox with {{\"toolbox\": {quoted}}} first"
                )
            }
            Self::Disabled { server, toolbox } => {
                format!("Server '{server}' (toolbox '{toolbox}') is disabled")
            }
            Self::Server { server, toolbox, available } => {
                let available = listed(available);
                format!("Server '{server}' not found in toolbox '{toolbox}'. Available servers: {available}")
            }
            Self::ToolOfServer { name, server, toolbox, .. } => {
                format!("Tool '{name}' not found in server '{server}' (toolbox '{toolbox}')")
            }
        }
    }

    /// Returns the suggested names, best first: those that exist and are similar to the requested one, or those
    /// that an ambiguous name may mean.
    pub fn nearest(&self) -> Vec<String> {
        let among = |name: &str, available: &[String]| -> Vec<String> {
            let available = available.iter().map(String::as_str);
            nearest(name, available, MAX_SUGGESTIONS).into_iter().map(str::to_owned).collect()
        };
        match self {
            Self::Tool { nearest, .. } | Self::ToolOfServer { nearest, .. } => nearest.clone(),
            Self::Ambiguous { candidates, .. } => candidates.clone(),
            Self::Toolbox { toolbox, available } => among(toolbox, available),
            Self::Server { server, available, .. } => among(server, available),
            Self::Agent { .. } | Self::NotOpen { .. } | Self::Disabled { .. } => Vec::new(),
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::Tool { .. } | Self::Ambiguous { .. } | Self::Agent { .. } | Self::ToolOfServer { .. } => {
                ErrorKind::UnknownTool
            }
            Self::Toolbox { .. } | Self::NotOpen { .. } => ErrorKind::UnknownToolbox,
            Self::Server { .. } => ErrorKind::UnknownServer,
            Self::Disabled { .. } => ErrorKind::ServerUnavailable,
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn masked(violations: &[Violation]) -> String {
    violations.iter().map(Violation::masked).collect::<Vec<_>>().join("; ")
}

/// Stable identifier of an error situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Unknown tool.
    UnknownTool,
    /// Unknown toolbox, or one that is not open.
    UnknownToolbox,
    /// Unknown server.
    UnknownServer,
    /// The caller may not use the tool.
    NotPermitted,
    /// The arguments violate the tool's input schema.
    InvalidParameters,
    /// The caller exceeded a limit.
    LimitExceeded,
    /// The call was cancelled.
    Canceled,
    /// No queue slot became free in time.
    QueueTimeout,
    /// The tool exceeded its timeout or the caller's deadline.
    Timeout,
    /// The circuit breaker of the server is open.
    CircuitOpen,
    /// The server requires a login.
    AuthRequired,
    /// The server cannot be reached.
    ServerUnavailable,
    /// The connection broke.
    TransportError,
    /// The tool ran and failed.
    ExecutionError,
    /// The output violates the output schema.
    OutputInvalid,
    /// A bug, in the tool or in Pegboard.
    InternalError,
}

impl ErrorKind {
    /// Returns the identifier as text.
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

/// Error returned by the code of a tool. Every error type converts into it with `?`.
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

/// JSON-RPC error that a server or a client returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// Error code.
    pub code: i64,
    /// Error message.
    pub message: String,
    /// Additional data.
    pub data: Option<RawJson>,
}

impl ToolError {
    /// Creates an error with this message.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), protocol: None }
    }

    /// Attaches the server's JSON-RPC error, for callers that can forward it.
    #[must_use]
    pub fn with_protocol_error(mut self, protocol: ProtocolError) -> Self {
        self.protocol = Some(Box::new(protocol));
        self
    }

    /// Returns the server's JSON-RPC error, if that was the cause.
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
    /// Joins the messages of the error and its causes, outermost first.
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(inner) = cause {
            // Many errors already end with the message of their cause.
            let message = inner.to_string();
            if !text.ends_with(&message) {
                text = format!("{text}: {message}");
            }
            cause = inner.source();
        }
        Self::new(text)
    }
}

/// Return type of tool code.
pub type Result<T, E = ToolError> = std::result::Result<T, E>;
