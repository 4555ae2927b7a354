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

/// What hints for programs say on the command line.
const WORDS: [(&str, &str); 6] = [
    ("GET /api/outputs", "pegboard output ls"),
    ("GET /api/traces", "pegboard trace ls"),
    ("GET /api/sessions", "pegboard sessions ls"),
    ("GET /api/chains", "pegboard chain ls"),
    ("GET /api/servers", "pegboard ls"),
    ("GET /api/tools", "pegboard tools"),
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
        let exit = exit(&code);
        // What is a bad request there is something that was said wrongly here.
        let code = if code == "bad_request" { "usage".to_owned() } else { code };
        let mut failure = Self::new(exit, code, message.clone());
        let violations = error["violations"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for violation in violations.filter(|violation| !message.contains(violation)) {
            failure = failure.detail(violation);
        }
        if let Some(hint) = text("hint") {
            failure = failure
                .hint(WORDS.iter().fold(hint, |hint, (for_programs, here)| hint.replace(for_programs, here)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_gateway_tells_is_told_in_words_of_the_command_line() {
        let told = [
            (
                404,
                r#"{"error": {"code": "not_found", "message": "There is no trace 'zz'", "hint": "GET /api/traces lists those there are"}}"#,
            ),
            (
                422,
                r#"{"error": {"code": "invalid_parameters", "message": "Invalid arguments: $.a: wrong", "violations": ["$.a: wrong", "$.b: too"], "path": "$.a", "traceId": "4bf9"}}"#,
            ),
            (503, r#"{"error": {"code": "server_unavailable", "message": "jira exited with 127"}}"#),
            (500, "<html>"),
        ];
        let told = told.map(|(status, body)| {
            let failure = read(StatusCode::from_u16(status).unwrap(), body.as_bytes());
            format!("{} {:?}\n{}", failure.text(), failure.exit(), failure.document())
        });
        insta::assert_snapshot!(told.join("\n"), @r#"
        error[not_found]: There is no trace 'zz'
          help: pegboard trace ls lists those there are NotFound
        {"error":{"code":"not_found","message":"There is no trace 'zz'","hint":"pegboard trace ls lists those there are"}}
        error[invalid_parameters]: Invalid arguments: $.a: wrong
          $.b: too Refused
        {"error":{"code":"invalid_parameters","message":"Invalid arguments: $.a: wrong","path":"$.a","trace_id":"4bf9","details":["$.b: too"]}}
        error[server_unavailable]: jira exited with 127 Unavailable
        {"error":{"code":"server_unavailable","message":"jira exited with 127"}}
        error[internal_error]: the gateway answers 500 Internal Server Error and does not say why Bug
        {"error":{"code":"internal_error","message":"the gateway answers 500 Internal Server Error and does not say why"}}
        "#);
    }

    #[test]
    fn every_code_has_an_exit() {
        for (code, expected) in [
            ("unknown_agent", Exit::NotFound),
            ("not_found", Exit::NotFound),
            ("bad_request", Exit::Usage),
            ("not_running", Exit::Unavailable),
            ("timeout", Exit::TimedOut),
            ("queue_timeout", Exit::OverLimit),
            ("execution_error", Exit::Failed),
            ("internal_error", Exit::Bug),
            ("something_new", Exit::Bug),
        ] {
            assert_eq!(exit(code), expected, "{code}");
        }
    }
}
