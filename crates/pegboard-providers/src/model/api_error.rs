//! Maps status, headers and body of a provider's error response to a [`ModelError`].

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use pegboard_core::duration::HumanDuration;
use pegboard_core::model::{ModelError, ModelErrorKind, ModelName};
use pegboard_core::redact::Redactor;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;

/// Maximum length of a quoted error message.
const MAX_MESSAGE_BYTES: usize = 500;

/// Markers of a context overflow in error messages.
const CONTEXT_TOO_LONG_MARKERS: [&str; 11] = [
    "context_length_exceeded",
    "exceed_context_size",
    "request_too_large",
    "context length",
    "context window",
    "context size",
    "maximum context",
    "prompt is too long",
    "input is too long",
    "input length",
    "too many tokens",
];

/// Markers of an exhausted quota, which no backoff helps.
const QUOTA_EXHAUSTED_MARKERS: [&str; 4] =
    ["insufficient_quota", "billing_error", "credit balance", "insufficient credits"];

/// Header pairs of remaining quota and its reset time.
const RATE_LIMIT_HEADERS: [(&str, &str); 5] = [
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
];

/// Maps an error response.
pub(super) fn from_status(
    model: &ModelName,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    redactor: &Redactor,
) -> ModelError {
    let body = ApiErrorBody::read(body);
    let kind = kind(status.as_u16(), &body, retry_after(headers));
    let reason = match body.message.as_str() {
        "" => format!("status {status}"),
        message => format!("{} (status {})", sanitize(message, redactor), status.as_u16()),
    };
    ModelError::new(model.clone(), kind, reason)
}

/// Maps an error object within a stream or a successful response.
pub(super) fn from_error_object(model: &ModelName, error: &RawJson, redactor: &Redactor) -> ModelError {
    let body = ApiErrorBody::of(error);
    let status = body.code.parse().ok().filter(|code| (400..600).contains(code));
    let status = status.unwrap_or(match body.kind.as_str() {
        "rate_limit_error" | "rate_limit_exceeded" => 429,
        "authentication_error" => 401,
        "permission_error" => 403,
        "invalid_request_error" | "not_found_error" => 400,
        _ => 500,
    });
    let message = if body.message.is_empty() { "error without a message" } else { &body.message };
    ModelError::new(model.clone(), kind(status, &body, None), sanitize(message, redactor))
}

fn kind(status: u16, body: &ApiErrorBody, retry_after: Option<Duration>) -> ModelErrorKind {
    let words = format!("{} {} {}", body.kind, body.code, body.message).to_ascii_lowercase();
    let is_any = |marks: &[&str]| marks.iter().any(|mark| words.contains(mark));
    match status {
        400 | 413 | 422 | 500 if is_any(&CONTEXT_TOO_LONG_MARKERS) => ModelErrorKind::ContextTooLong,
        413 => ModelErrorKind::ContextTooLong,
        401 | 403 => ModelErrorKind::Unauthorized,
        402 | 429 if is_any(&QUOTA_EXHAUSTED_MARKERS) => ModelErrorKind::Refused,
        429 => ModelErrorKind::RateLimited { retry_after },
        _ if body.kind == "overloaded_error" => ModelErrorKind::Overloaded { retry_after },
        408 | 409 | 425 | 500.. => ModelErrorKind::Overloaded { retry_after },
        _ => ModelErrorKind::Refused,
    }
}

/// Error object of a provider.
#[derive(Debug, Default)]
struct ApiErrorBody {
    kind: String,
    code: String,
    message: String,
}

impl ApiErrorBody {
    fn read(body: &[u8]) -> Self {
        let Ok(body) = RawJson::parse(Bytes::copy_from_slice(body)) else { return Self::default() };
        // Some providers wrap it in a list.
        let first = body.items().next();
        let body = first.unwrap_or(body);
        let error = body.get("error");
        Self::of(&error.unwrap_or(body))
    }

    /// Reads an object or a plain string.
    fn of(error: &RawJson) -> Self {
        let text = |name: &str| error.get(name).as_ref().map(scalar_text).unwrap_or_default();
        let message = match error.text() {
            Some(message) => message.into_owned(),
            None => ["message", "detail", "error"]
                .iter()
                .map(|name| text(name))
                .find(|text| !text.is_empty())
                .unwrap_or_default(),
        };
        Self { kind: text("type"), code: text("code"), message }
    }
}

/// Returns a string, or a number as text.
fn scalar_text(value: &RawJson) -> String {
    match value.text() {
        Some(text) => text.into_owned(),
        None if value.as_str() == "null" => String::new(),
        None => value.as_str().to_owned(),
    }
}

/// Joins the message into one line, redacts secrets and clips it.
fn sanitize(message: &str, redactor: &Redactor) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    clipped(redactor.text(&line).trim_end_matches('.'), MAX_MESSAGE_BYTES).into_owned()
}

/// Returns the backoff requested by the provider.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |name: &str| text(name).and_then(|text| text.parse::<f64>().ok());
    let seconds = |number: f64| Duration::try_from_secs_f64(number).ok();
    // The provider's own clock, so that local clock skew does not matter.
    let now = text("date").and_then(parse_timestamp);
    let until = |time: Timestamp| {
        let wait = time.duration_since(now?);
        Some(Duration::try_from(wait).unwrap_or_default())
    };
    if let Some(wait) = number("retry-after-ms").and_then(|millis| seconds(millis / 1_000.0)) {
        return Some(wait);
    }
    if let Some(wait) = number("retry-after").and_then(seconds) {
        return Some(wait);
    }
    if let Some(wait) = text("retry-after").and_then(parse_timestamp).and_then(until) {
        return Some(wait);
    }
    let used_up = RATE_LIMIT_HEADERS.iter().filter(|(left, _)| number(left) == Some(0.0));
    let resets = used_up.filter_map(|(_, reset)| text(reset));
    let waits = resets.filter_map(|reset| match parse_timestamp(reset) {
        Some(time) => until(time),
        None if reset.ends_with(|last: char| last.is_ascii_digit()) => reset.parse().ok().and_then(seconds),
        None => reset.parse::<HumanDuration>().ok().map(Duration::from),
    });
    waits.max()
}

/// Parses an HTTP date or an ISO 8601 timestamp.
fn parse_timestamp(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| DateTimeParser::new().parse_timestamp(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> String {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let error = from_status(
            &"p/m".parse().unwrap(),
            StatusCode::from_u16(status).unwrap(),
            &headers.collect(),
            body.as_bytes(),
            &Redactor::new(["sk-very-secret"]),
        );
        format!("{:?}: {}", error.kind, error.reason)
    }

    #[test]
    fn error_responses_map_to_error_kinds() {
        let cases = [
            (401, r#"{"error":{"message":"Incorrect API key provided: sk-very-secret."}}"#),
            (403, r#"{"type":"error","error":{"type":"permission_error","message":"not yours"}}"#),
            (400, r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#),
            (
                400,
                r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8"}}"#,
            ),
            (
                400,
                r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#,
            ),
            (413, "<html>"),
            (400, r#"{"error":{"message":"no such field"}}"#),
            (404, r#"{"error":"model 'x' not found"}"#),
            (422, r#"{"detail":"what is\n this"}"#),
            (429, r#"{"error":{"message":"slow down"}}"#),
            (429, r#"{"error":{"message":"pay first","code":"insufficient_quota"}}"#),
            (500, ""),
            (502, "<html>Bad gateway</html>"),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
        ];
        let lines: Vec<String> = cases.iter().map(|(status, body)| describe(*status, &[], body)).collect();
        insta::assert_snapshot!(lines.join("\n"), @"
        Unauthorized: Incorrect API key provided: [redacted] (status 401)
        Unauthorized: not yours (status 403)
        ContextTooLong: too long (status 400)
        ContextTooLong: prompt is too long: 9 tokens > 8 (status 400)
        ContextTooLong: the request exceeds the available context size (status 400)
        ContextTooLong: status 413 Payload Too Large
        Refused: no such field (status 400)
        Refused: model 'x' not found (status 404)
        Refused: what is this (status 422)
        RateLimited { retry_after: None }: slow down (status 429)
        Refused: pay first (status 429)
        Overloaded { retry_after: None }: status 500 Internal Server Error
        Overloaded { retry_after: None }: status 502 Bad Gateway
        Overloaded { retry_after: None }: Overloaded (status 529)
        ");
    }

    #[test]
    fn retry_after_is_read_from_any_known_header() {
        let date = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
        let cases: [&[(&'static str, &'static str)]; 9] = [
            &[],
            &[("retry-after", "7")],
            &[("retry-after", "1.5")],
            &[("retry-after-ms", "250"), ("retry-after", "1")],
            &[("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT"), date],
            &[("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT")],
            &[
                ("x-ratelimit-remaining-requests", "3"),
                ("x-ratelimit-reset-requests", "1h"),
                ("x-ratelimit-remaining-tokens", "0"),
                ("x-ratelimit-reset-tokens", "6m0s"),
            ],
            &[
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-ratelimit-requests-reset", "2026-10-21T07:28:05Z"),
                date,
            ],
            &[("retry-after", "-1")],
        ];
        let waits: Vec<String> = cases.iter().map(|headers| describe(429, headers, "")).collect();
        insta::assert_snapshot!(waits.join("\n"), @"
        RateLimited { retry_after: None }: status 429 Too Many Requests
        RateLimited { retry_after: Some(7s) }: status 429 Too Many Requests
        RateLimited { retry_after: Some(1.5s) }: status 429 Too Many Requests
        RateLimited { retry_after: Some(250ms) }: status 429 Too Many Requests
        RateLimited { retry_after: Some(30s) }: status 429 Too Many Requests
        RateLimited { retry_after: None }: status 429 Too Many Requests
        RateLimited { retry_after: Some(360s) }: status 429 Too Many Requests
        RateLimited { retry_after: Some(5s) }: status 429 Too Many Requests
        RateLimited { retry_after: None }: status 429 Too Many Requests
        ");
    }

    #[test]
    fn an_unrepresentable_retry_after_is_ignored() {
        assert!(
            describe(429, &[("retry-after", "1e300")], "").starts_with("RateLimited { retry_after: None }")
        );
    }
}
