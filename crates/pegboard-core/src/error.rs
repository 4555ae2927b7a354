//! Why a call has no answer.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::validation::Violation;

/// Why a call has no answer. A tool that answers "I could not do it" has answered.
///
/// No text of this type quotes the caller's arguments, so it may be logged; the violations carry the whole
/// message for whoever sent them.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// No tool has this name.
    #[error("Unknown tool: {name}")]
    UnknownTool {
        /// The name that was asked for.
        name: String,
    },
    /// The arguments break the tool's input schema; the tool did not run.
    #[error("Invalid arguments: {}", masked(violations))]
    InvalidParameters {
        /// Everything that is wrong with them.
        violations: Vec<Violation>,
    },
    /// The tool ran longer than it may.
    #[error("Tool execution timed out")]
    TimedOut {
        /// How long it was given.
        limit: Duration,
    },
    /// The tool ran and failed.
    #[error("{0}")]
    Failed(ToolError),
    /// The tool's code panicked, which is a bug in the tool.
    #[error("panicked: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
}

impl CallError {
    /// The stable word for this situation, the same on every surface.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownTool { .. } => ErrorKind::UnknownTool,
            Self::InvalidParameters { .. } => ErrorKind::InvalidParameters,
            Self::TimedOut { .. } => ErrorKind::Timeout,
            Self::Failed(_) => ErrorKind::ExecutionError,
            Self::Panicked { .. } => ErrorKind::InternalError,
        }
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
    /// The arguments break the tool's input schema.
    InvalidParameters,
    /// The tool ran longer than it may.
    Timeout,
    /// The tool ran and failed.
    ExecutionError,
    /// A bug, in the tool or here.
    InternalError,
}

impl ErrorKind {
    /// Whether the tool may have done something before the call ended.
    pub fn has_executed(self) -> bool {
        match self {
            Self::UnknownTool | Self::InvalidParameters => false,
            Self::Timeout | Self::ExecutionError | Self::InternalError => true,
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
#[derive(Clone, PartialEq, Eq)]
pub struct ToolError(String);

impl ToolError {
    /// A failure in the tool's own words.
    pub fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string())
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
        Self(text)
    }
}

/// What the code of a tool returns.
pub type Result<T, E = ToolError> = std::result::Result<T, E>;
