//! Error responses of the gateway as command-line errors.

use axum::http::StatusCode;
use pegboard::error::ErrorKind;
use pegboard::gateway::api::{ApiError, ApiErrorResponse};
use pegboard::json::RawJson;
use serde::Deserialize;
use serde::de::value::{self, StrDeserializer};

use crate::cli::{CliError, ExitReason};

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
    if let Ok(response) = serde_json::from_slice::<ApiErrorResponse>(body) {
        return response.error.into();
    }
    let message = format!("the gateway returned {status} without an error message");
    CliError::new(ExitReason::Bug, "internal_error", message)
}

impl From<ApiError> for CliError {
    fn from(error: ApiError) -> Self {
        let ApiError { code, message, hint, path, violations, trace_id } = error;
        // A bad request to the API is a usage error here.
        let shown_code = if code == "bad_request" { "usage" } else { &code };
        let mut failure = Self::new(exit(&code), shown_code, message.clone());
        for violation in violations.into_iter().filter(|violation| !message.contains(violation)) {
            failure = failure.detail(violation);
        }
        if let Some(hint) = hint {
            failure = failure.hint(
                ROUTE_COMMANDS.iter().fold(hint, |hint, (route, command)| hint.replace(route, command)),
            );
        }
        failure.with_path(path).with_trace(trace_id)
    }
}

impl CliError {
    /// Creates the error of another process of this program.
    pub(crate) fn from_code(code: &str, message: &str) -> Self {
        let reason = match code {
            "usage" => ExitReason::Usage,
            "not_trusted" => ExitReason::Configuration,
            "system" => ExitReason::Failed,
            code => exit(code),
        };
        Self::new(reason, code, message)
    }

    /// Converts an error event: `{"error": {…}}`.
    pub(crate) fn from_event(data: &RawJson) -> Self {
        data.read::<ApiErrorResponse>().unwrap_or_default().error.into()
    }
}

fn exit(code: &str) -> ExitReason {
    if let Ok(kind) = ErrorKind::deserialize(StrDeserializer::<value::Error>::new(code)) {
        return kind.into();
    }
    match code {
        "config_invalid" => ExitReason::Configuration,
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
