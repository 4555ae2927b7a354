//! Outcome of a call, in the six fields that callers and chains use.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::call::CallResult;
use crate::error::{CallError, ErrorKind, Executed};
use crate::validation::Violation;

/// Outcome of a call.
///
/// Its serialized form has exactly six keys: `status`, `data`, `message`, `errors`, `metadata`,
/// `duration_ms`.
///
/// ```
/// use pegboard_core::outcome::{Outcome, OutcomeStatus};
///
/// let outcome: Outcome = serde_json::from_str(r#"{"status": "success", "data": 7}"#).unwrap();
/// assert!(outcome.is_ok());
/// assert_eq!(
///     serde_json::to_string(&outcome).unwrap(),
///     r#"{"status":"success","data":7,"message":"","errors":[],"metadata":{},"duration_ms":null}"#
/// );
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Status of the call.
    #[serde(default)]
    pub status: OutcomeStatus,
    /// Output of the tool.
    #[serde(default)]
    pub data: Value,
    /// One-sentence summary.
    #[serde(default)]
    pub message: String,
    /// All errors.
    #[serde(default)]
    pub errors: Vec<String>,
    /// Additional data.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// Run time of the tool; `None` if it did not run.
    #[serde(default, rename = "duration_ms", serialize_with = "as_millis", deserialize_with = "from_millis")]
    pub duration: Option<Duration>,
    /// Error kind; not serialized.
    #[serde(skip)]
    pub error_kind: Option<ErrorKind>,
}

/// Status of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OutcomeStatus {
    /// The tool succeeded.
    Success,
    /// The call failed.
    #[default]
    Failure,
    /// The output violates the tool's output schema.
    Partial,
    /// The tool was deliberately not called.
    Skipped,
    /// The tool did not finish in time.
    Timeout,
}

impl Outcome {
    /// Returns `true` if the call succeeded.
    pub fn is_ok(&self) -> bool {
        self.status == OutcomeStatus::Success
    }

    /// Creates the outcome of a finished call of the tool `name`.
    pub fn of(name: &str, call_result: CallResult) -> Self {
        let mut outcome = match call_result.result {
            Ok(output) if output.is_error() => {
                let text = output.text().into_owned();
                Self {
                    message: format!("Tool '{name}' reported an error: {text}"),
                    errors: vec![text],
                    data: output.into_data(),
                    error_kind: Some(ErrorKind::ExecutionError),
                    ..Self::default()
                }
            }
            Ok(output) if output.mismatches.is_empty() => Self {
                status: OutcomeStatus::Success,
                data: output.into_data(),
                message: format!("Tool '{name}' executed successfully."),
                ..Self::default()
            },
            Ok(output) => Self {
                status: OutcomeStatus::Partial,
                message: format!("Output validation failed for tool '{name}'."),
                errors: texts(&output.mismatches),
                data: output.into_data(),
                ..Self::default()
            },
            Err(error) => Self::of_error(name, &error),
        };
        outcome.duration = call_result.duration;
        if !call_result.warnings.is_empty() {
            outcome.metadata.insert("warnings".to_owned(), call_result.warnings.into());
        }
        outcome
    }

    fn of_error(name: &str, error: &CallError) -> Self {
        let message = match error {
            CallError::NotFound(_) => format!("Tool '{name}' not found in registry."),
            CallError::InvalidParameters { .. } => format!("Input validation failed for tool '{name}'."),
            CallError::OutputInvalid { .. } => format!("Output validation failed for tool '{name}'."),
            CallError::TimedOut { limit } => format!("Tool '{name}' did not finish within {limit:?}."),
            CallError::Failed(cause) => format!("Tool '{name}' raised an exception: {cause}"),
            CallError::Panicked { message } => format!("Tool '{name}' panicked: {message}"),
            CallError::NotPermitted { .. }
            | CallError::LimitExceeded { .. }
            | CallError::Canceled { .. }
            | CallError::QueueTimeout { .. }
            | CallError::DeadlinePassed { .. }
            | CallError::CircuitOpen { .. }
            | CallError::AuthRequired { .. }
            | CallError::ServerUnavailable { .. }
            | CallError::Transport { .. } => format!("Tool '{name}' returned no result: {error}"),
        };
        let errors = error.texts();
        let status = match (error.kind(), error.executed()) {
            (ErrorKind::Timeout, _) => OutcomeStatus::Timeout,
            (ErrorKind::Canceled, Executed::No) => OutcomeStatus::Skipped,
            _ => OutcomeStatus::Failure,
        };
        Self { status, message, errors, error_kind: Some(error.kind()), ..Self::default() }
    }
}

fn texts(violations: &[Violation]) -> Vec<String> {
    violations.iter().map(|violation| violation.text().to_owned()).collect()
}

#[expect(clippy::ref_option, reason = "signature required by serde")]
fn as_millis<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64() * 1_000.0).serialize(serializer)
}

fn from_millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let Some(millis) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    Duration::try_from_secs_f64(millis / 1_000.0)
        .map(Some)
        .map_err(|_| serde::de::Error::custom("duration_ms must be a number of milliseconds, zero or more"))
}
