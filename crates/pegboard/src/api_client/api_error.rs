//! Error responses of the gateway as command-line errors.

use axum::http::StatusCode;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::Value;

use crate::cli::{CliError, ExitReason};

/// All kinds, for lookup by code.
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

/// Commands in place of the API routes that hints mention.
const ROUTE_COMMANDS: [(&str, &str); 6] = [
    ("GET /api/outputs", "pegboard output ls"),
    ("GET /api/traces", "pegboard trace ls"),
    ("GET /api/sessions", "pegboard sessions ls"),
    ("GET /api/chains", "pegboard chain ls"),
    ("GET /api/servers", "pegboard ls"),
    ("GET /api/tools", "pegboard tools"),
];

/// Converts an error response.
pub(super) fn read(status: StatusCode, body: &[u8]) -> CliError {
    let document: Value = serde_json::from_slice(body).unwrap_or_default();
    if document["error"].is_object() {
        return CliError::from_api(&document["error"]);
    }
    let message = format!("the gateway returned {status} without an error message");
    CliError::new(ExitReason::Bug, "internal_error", message)
}

impl CliError {
    /// Converts an API error object: `{"code": …, "message": …}`.
    pub(crate) fn from_api(error: &Value) -> Self {
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        let code = text("code").unwrap_or_else(|| "internal_error".to_owned());
        let message = text("message").unwrap_or_else(|| "no error message".to_owned());
        let exit = exit(&code);
        // A bad request to the API is a usage error here.
        let code = if code == "bad_request" { "usage".to_owned() } else { code };
        let mut failure = Self::new(exit, code, message.clone());
        let violations = error["violations"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for violation in violations.filter(|violation| !message.contains(violation)) {
            failure = failure.detail(violation);
        }
        if let Some(hint) = text("hint") {
            failure = failure.hint(
                ROUTE_COMMANDS.iter().fold(hint, |hint, (route, command)| hint.replace(route, command)),
            );
        }
        failure.with_path(text("path")).with_trace(text("traceId"))
    }

    /// Converts an error event: `{"error": {…}}`.
    pub(crate) fn from_event(data: &RawJson) -> Self {
        Self::from_api(&data.to_value()["error"])
    }
}

fn exit(code: &str) -> ExitReason {
    if let Some(kind) = KINDS.iter().find(|kind| kind.as_str() == code) {
        return ExitReason::from(*kind);
    }
    match code {
        "not_running" => ExitReason::Unavailable,
        "not_found" => ExitReason::NotFound,
        "bad_request" => ExitReason::Usage,
        code if code.starts_with("unknown_") => ExitReason::NotFound,
        _ => ExitReason::Bug,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_errors_become_command_line_errors() {
        let cases = [
            (
                404,
                r#"{"error": {"code": "not_found", "message": "unknown trace 'zz'", "hint": "GET /api/traces lists recent traces"}}"#,
            ),
            (
                422,
                r#"{"error": {"code": "invalid_parameters", "message": "Invalid arguments: $.a: wrong", "violations": ["$.a: wrong", "$.b: too"], "path": "$.a", "traceId": "4bf9"}}"#,
            ),
            (503, r#"{"error": {"code": "server_unavailable", "message": "jira exited with 127"}}"#),
            (500, "<html>"),
        ];
        let rendered = cases.map(|(status, body)| {
            let failure = read(StatusCode::from_u16(status).unwrap(), body.as_bytes());
            format!("{} {:?}\n{}", failure.text(), failure.exit(), failure.document())
        });
        insta::assert_snapshot!(rendered.join("\n"), @r#"
        error[not_found]: unknown trace 'zz'
          help: pegboard trace ls lists recent traces NotFound
        {"error":{"code":"not_found","message":"unknown trace 'zz'","hint":"pegboard trace ls lists recent traces"}}
        error[invalid_parameters]: Invalid arguments: $.a: wrong
          $.b: too Refused
        {"error":{"code":"invalid_parameters","message":"Invalid arguments: $.a: wrong","path":"$.a","trace_id":"4bf9","details":["$.b: too"]}}
        error[server_unavailable]: jira exited with 127 Unavailable
        {"error":{"code":"server_unavailable","message":"jira exited with 127"}}
        error[internal_error]: the gateway returned 500 Internal Server Error without an error message Bug
        {"error":{"code":"internal_error","message":"the gateway returned 500 Internal Server Error without an error message"}}
        "#);
    }

    #[test]
    fn every_code_has_an_exit_reason() {
        for (code, expected) in [
            ("unknown_agent", ExitReason::NotFound),
            ("not_found", ExitReason::NotFound),
            ("bad_request", ExitReason::Usage),
            ("not_running", ExitReason::Unavailable),
            ("timeout", ExitReason::TimedOut),
            ("queue_timeout", ExitReason::OverLimit),
            ("execution_error", ExitReason::Failed),
            ("internal_error", ExitReason::Bug),
            ("something_new", ExitReason::Bug),
        ] {
            assert_eq!(exit(code), expected, "{code}");
        }
    }
}
