//! Validation of requests against the public APIs, field by field.

use serde_json::Value;

use super::{ModelApi, RecordedModelRequest};

mod chat;
mod messages;

/// Returns all violations in a request.
pub(super) fn violations(request: &RecordedModelRequest) -> Vec<String> {
    let mut violations = ViolationLog::default();
    let content_type = request.headers.get("content-type").map(String::as_str);
    if content_type != Some("application/json") {
        violations.add("headers", "content-type is not application/json");
    }
    match request.interface {
        ModelApi::Chat => chat::check(&request.body, &mut violations),
        ModelApi::Messages => {
            if request.headers.get("x-api-key").is_none_or(String::is_empty) {
                violations.add("headers", "x-api-key is missing");
            }
            if request.headers.get("anthropic-version").map(String::as_str) != Some("2023-06-01") {
                violations.add("headers", "anthropic-version is not 2023-06-01");
            }
            messages::check(&request.body, &mut violations);
        }
    }
    violations.0
}

/// Collected violations.
#[derive(Default)]
struct ViolationLog(Vec<String>);

/// Presence of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Required,
    Optional,
}

/// A field: name, presence, predicate, and a description of valid values.
type ApiField<'f> = (&'f str, Presence, fn(&Value) -> bool, &'f str);

impl ViolationLog {
    fn add(&mut self, location: &str, what: &str) {
        self.0.push(format!("{location}: {what}"));
    }

    /// Records a violation unless the condition holds.
    fn expect(&mut self, location: &str, holds: bool, what: &str) {
        if !holds {
            self.add(location, what);
        }
    }

    /// Checks an object against its known fields.
    fn object(&mut self, location: &str, value: &Value, fields: &[ApiField<'_>]) {
        let Some(members) = value.as_object() else { return self.add(location, "expected object") };
        for name in members.keys() {
            let is_known = fields.iter().any(|(known, ..)| known == name);
            self.expect(location, is_known, &format!("has the unknown field '{name}'"));
        }
        for (name, presence, is_right, what) in fields {
            match members.get(*name) {
                None => self.expect(location, *presence == Presence::Optional, &format!("lacks '{name}'")),
                Some(value) => {
                    self.expect(&format!("{location}.{name}"), is_right(value), &format!("expected {what}"));
                }
            }
        }
    }
}

fn is_any(_: &Value) -> bool {
    true
}

fn is_text(value: &Value) -> bool {
    value.is_string()
}

fn is_nonempty_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn is_boolean(value: &Value) -> bool {
    value.is_boolean()
}

fn is_number(value: &Value) -> bool {
    value.is_number()
}

fn is_count(value: &Value) -> bool {
    value.as_u64().is_some_and(|count| count > 0)
}

fn is_object(value: &Value) -> bool {
    value.is_object()
}

fn is_nonempty_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| !list.is_empty())
}

fn is_texts(value: &Value) -> bool {
    value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_nonempty_text))
}

/// Returns `true` for a tool name that both APIs accept.
fn is_tool_name(value: &Value) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    value.as_str().is_some_and(|name| (1..=64).contains(&name.len()) && name.bytes().all(is_plain))
}

/// Returns `true` for a schema of tool arguments, which must be of type object.
fn is_schema(value: &Value) -> bool {
    value.is_object() && value["type"] == "object"
}

/// Returns the names that occur more than once.
fn duplicates<'v>(names: impl Iterator<Item = &'v str>) -> Vec<&'v str> {
    let mut seen = Vec::new();
    let mut duplicates = Vec::new();
    for name in names {
        if seen.contains(&name) {
            duplicates.push(name);
        }
        seen.push(name);
    }
    duplicates
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
