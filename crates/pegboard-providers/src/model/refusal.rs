//! What a provider means when it does not reply: its status, its headers and its words as one error.

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

/// How much of what a provider says is told.
const MAX_SAID_BYTES: usize = 500;

/// What providers call a conversation that is too long.
const TOO_LONG: [&str; 11] = [
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

/// What they call an account that has nothing left, which no waiting helps.
const SPENT: [&str; 4] = ["insufficient_quota", "billing_error", "credit balance", "insufficient credits"];

/// Headers that say how much is left, and when there is more: of requests and of tokens.
const LIMITS: [(&str, &str); 5] = [
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
];

/// The error that an answer with a status is.
pub(super) fn of_status(
    model: &ModelName,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    redactor: &Redactor,
) -> ModelError {
    let said = Said::read(body);
    let kind = kind(status.as_u16(), &said, retry_after(headers));
    let reason = match said.message.as_str() {
        "" => format!("status {status}"),
        message => format!("{} (status {})", clean(message, redactor), status.as_u16()),
    };
    ModelError::new(model.clone(), kind, reason)
}

/// The error that stands in the middle of a stream, or in an answer that claims success.
pub(super) fn in_answer(model: &ModelName, error: &RawJson, redactor: &Redactor) -> ModelError {
    let said = Said::of(error);
    let status = said.code.parse().ok().filter(|code| (400..600).contains(code));
    let status = status.unwrap_or(match said.kind.as_str() {
        "rate_limit_error" | "rate_limit_exceeded" => 429,
        "authentication_error" => 401,
        "permission_error" => 403,
        "invalid_request_error" | "not_found_error" => 400,
        _ => 500,
    });
    let message = if said.message.is_empty() { "an error without words" } else { &said.message };
    ModelError::new(model.clone(), kind(status, &said, None), clean(message, redactor))
}

fn kind(status: u16, said: &Said, retry_after: Option<Duration>) -> ModelErrorKind {
    let words = format!("{} {} {}", said.kind, said.code, said.message).to_ascii_lowercase();
    let is_any = |marks: &[&str]| marks.iter().any(|mark| words.contains(mark));
    match status {
        400 | 413 | 422 | 500 if is_any(&TOO_LONG) => ModelErrorKind::ContextTooLong,
        413 => ModelErrorKind::ContextTooLong,
        401 | 403 => ModelErrorKind::Unauthorized,
        402 | 429 if is_any(&SPENT) => ModelErrorKind::Refused,
        429 => ModelErrorKind::RateLimited { retry_after },
        _ if said.kind == "overloaded_error" => ModelErrorKind::Overloaded { retry_after },
        408 | 409 | 425 | 500.. => ModelErrorKind::Overloaded { retry_after },
        _ => ModelErrorKind::Refused,
    }
}

/// What a provider says went wrong.
#[derive(Debug, Default)]
struct Said {
    kind: String,
    code: String,
    message: String,
}

impl Said {
    fn read(body: &[u8]) -> Self {
        let Ok(body) = RawJson::parse(Bytes::copy_from_slice(body)) else { return Self::default() };
        // Some put a list around it.
        let first = body.items().next();
        let body = first.unwrap_or(body);
        let error = body.get("error");
        Self::of(&error.unwrap_or(body))
    }

    /// What an object, or a mere text, says.
    fn of(error: &RawJson) -> Self {
        let text = |name: &str| error.get(name).as_ref().map(plain).unwrap_or_default();
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

/// A text, or a number as one.
fn plain(value: &RawJson) -> String {
    match value.text() {
        Some(text) => text.into_owned(),
        None if value.as_str() == "null" => String::new(),
        None => value.as_str().to_owned(),
    }
}

/// What a provider said, in one line, without secrets and not too long.
fn clean(message: &str, redactor: &Redactor) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    clipped(redactor.text(&line).trim_end_matches('.'), MAX_SAID_BYTES).into_owned()
}

/// How long a provider wants to be left alone.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let number = |name: &str| text(name).and_then(|text| text.parse::<f64>().ok());
    let seconds = |number: f64| Duration::try_from_secs_f64(number).ok();
    // The provider's own time of day, so that nobody's clock has to be right.
    let now = text("date").and_then(moment);
    let until = |moment: Timestamp| {
        let wait = moment.duration_since(now?);
        Some(Duration::try_from(wait).unwrap_or_default())
    };
    if let Some(wait) = number("retry-after-ms").and_then(|millis| seconds(millis / 1_000.0)) {
        return Some(wait);
    }
    if let Some(wait) = number("retry-after").and_then(seconds) {
        return Some(wait);
    }
    if let Some(wait) = text("retry-after").and_then(moment).and_then(until) {
        return Some(wait);
    }
    let used_up = LIMITS.iter().filter(|(left, _)| number(left) == Some(0.0));
    let resets = used_up.filter_map(|(_, reset)| text(reset));
    let waits = resets.filter_map(|reset| match moment(reset) {
        Some(moment) => until(moment),
        None if reset.ends_with(|last: char| last.is_ascii_digit()) => reset.parse().ok().and_then(seconds),
        None => reset.parse::<HumanDuration>().ok().map(Duration::from),
    });
    waits.max()
}

/// A time of day, as HTTP or as ISO 8601 writes it.
fn moment(text: &str) -> Option<Timestamp> {
    text.parse().ok().or_else(|| DateTimeParser::new().parse_timestamp(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> String {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let error = of_status(
            &"p/m".parse().unwrap(),
            StatusCode::from_u16(status).unwrap(),
            &headers.collect(),
            body.as_bytes(),
            &Redactor::new(["sk-very-secret"]),
        );
        format!("{:?}: {}", error.kind, error.reason)
    }

    #[test]
    fn what_a_provider_says_becomes_one_of_few_kinds() {
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
        let told: Vec<String> = cases.iter().map(|(status, body)| told(*status, &[], body)).collect();
        insta::assert_snapshot!(told.join("\n"), @"
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
    fn how_long_to_wait_is_read_from_whatever_header_says_so() {
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
        let waits: Vec<String> = cases.iter().map(|headers| told(429, headers, "")).collect();
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
    fn a_wait_that_no_clock_can_count_is_none() {
        assert!(told(429, &[("retry-after", "1e300")], "").starts_with("RateLimited { retry_after: None }"));
    }
}
