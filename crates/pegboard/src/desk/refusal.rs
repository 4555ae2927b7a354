//! Why a gateway does not answer, as the command line tells it.

use axum::http::StatusCode;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::Value;

use crate::cli::{Exit, Failure};

/// All kinds, by which codes are recognised.
const KINDS: [ErrorKind; 15] = [
    ErrorKind::UnknownTool,
    ErrorKind::UnknownToolbox,
    ErrorKind::UnknownServer,
    ErrorKind::InvalidParameters,
    ErrorKind::NotPermitted,
    ErrorKind::LimitExceeded,
    ErrorKind::QueueTimeout,
    ErrorKind::Timeout,
    ErrorKind::Canceled,
    ErrorKind::CircuitOpen,
    ErrorKind::AuthRequired,
    ErrorKind::ServerUnavailable,
    ErrorKind::TransportError,
    ErrorKind::ExecutionError,
    ErrorKind::OutputInvalid,
];

/// The failure that the body of an answer tells of.
pub(super) fn read(status: StatusCode, body: &[u8]) -> Failure {
    let document: Value = serde_json::from_slice(body).unwrap_or_default();
    if document["error"].is_object() {
        return Failure::told(&document["error"]);
    }
    let message = format!("the gateway answers {status} and does not say why");
    Failure::new(Exit::Bug, "internal_error", message)
}

impl Failure {
    /// The failure that a gateway tells of: `{"code": …, "message": …}`.
    pub(crate) fn told(error: &Value) -> Self {
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        let code = text("code").unwrap_or_else(|| "internal_error".to_owned());
        let message = text("message").unwrap_or_else(|| "the gateway does not say why".to_owned());
        let mut failure = Self::new(exit(&code), code, message.clone());
        let violations = error["violations"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for violation in violations.filter(|violation| !message.contains(violation)) {
            failure = failure.detail(violation);
        }
        if let Some(hint) = text("hint") {
            failure = failure.hint(hint);
        }
        failure.at(text("path")).of_trace(text("traceId"))
    }

    /// The failure of an event: `{"error": {…}}`.
    pub(crate) fn of_event(data: &RawJson) -> Self {
        Self::told(&data.to_value()["error"])
    }
}

fn exit(code: &str) -> Exit {
    if let Some(kind) = KINDS.iter().find(|kind| kind.as_str() == code) {
        return Exit::from(*kind);
    }
    match code {
        "not_running" => Exit::Unavailable,
        "not_found" => Exit::NotFound,
        "bad_request" => Exit::Usage,
        code if code.starts_with("unknown_") => Exit::NotFound,
        _ => Exit::Bug,
    }
}
