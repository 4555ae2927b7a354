//! Whether a request is one that the public interfaces take, field by field.

use serde_json::Value;

use super::{Interface, Recorded};

mod chat;
mod messages;

/// Everything that is wrong with a request.
pub(super) fn violations(request: &Recorded) -> Vec<String> {
    let mut findings = Findings::default();
    let content_type = request.headers.get("content-type").map(String::as_str);
    if content_type != Some("application/json") {
        findings.tell("headers", "content-type is not application/json");
    }
    match request.interface {
        Interface::Chat => chat::check(&request.body, &mut findings),
        Interface::Messages => {
            if request.headers.get("x-api-key").is_none_or(String::is_empty) {
                findings.tell("headers", "x-api-key is missing");
            }
            if request.headers.get("anthropic-version").map(String::as_str) != Some("2023-06-01") {
                findings.tell("headers", "anthropic-version is not 2023-06-01");
            }
            messages::check(&request.body, &mut findings);
        }
    }
    findings.0
}

/// What was found wrong.
#[derive(Default)]
struct Findings(Vec<String>);

/// Whether a field must be there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Must,
    May,
}

/// A field: its name, whether it must be there, what it may be, and what that is called.
type Field<'f> = (&'f str, Need, fn(&Value) -> bool, &'f str);

impl Findings {
    fn tell(&mut self, place: &str, what: &str) {
        self.0.push(format!("{place}: {what}"));
    }

    /// Checks that something holds.
    fn expect(&mut self, place: &str, holds: bool, what: &str) {
        if !holds {
            self.tell(place, what);
        }
    }

    /// Checks an object against all fields that it may have.
    fn object(&mut self, place: &str, value: &Value, fields: &[Field<'_>]) {
        let Some(members) = value.as_object() else { return self.tell(place, "is no object") };
        for name in members.keys() {
            let is_known = fields.iter().any(|(known, ..)| known == name);
            self.expect(place, is_known, &format!("has the unknown field '{name}'"));
        }
        for (name, need, is_right, what) in fields {
            match members.get(*name) {
                None => self.expect(place, *need == Need::May, &format!("lacks '{name}'")),
                Some(value) => {
                    self.expect(&format!("{place}.{name}"), is_right(value), &format!("is no {what}"));
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

fn is_some_text(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn is_yes_or_no(value: &Value) -> bool {
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

fn is_some_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| !list.is_empty())
}

fn is_texts(value: &Value) -> bool {
    value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_some_text))
}

/// A name of a tool that both interfaces take.
fn is_tool_name(value: &Value) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    value.as_str().is_some_and(|name| (1..=64).contains(&name.len()) && name.bytes().all(is_plain))
}

/// The schema of a tool's arguments, which must be one of an object.
fn is_schema(value: &Value) -> bool {
    value.is_object() && value["type"] == "object"
}

/// Names that are there more than once.
fn twins<'v>(names: impl Iterator<Item = &'v str>) -> Vec<&'v str> {
    let mut seen = Vec::new();
    let mut twins = Vec::new();
    for name in names {
        if seen.contains(&name) {
            twins.push(name);
        }
        seen.push(name);
    }
    twins
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
