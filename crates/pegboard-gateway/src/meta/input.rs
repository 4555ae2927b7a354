//! Strict input parsing: reports every wrong, missing or unknown member.

use std::fmt;

use pegboard_core::text::clipped;
use pegboard_json::{RawJson, duplicate_member};

/// Maximum length of echoed caller input.
const MAX_ECHO_BYTES: usize = 256;
/// Maximum number of reported problems.
const MAX_PROBLEMS: usize = 20;

/// Caller input in an echoable form: truncated, with control characters escaped.
pub(super) fn echo(text: &str) -> String {
    let mut echoed = String::new();
    for letter in clipped(text, MAX_ECHO_BYTES).chars() {
        if letter.is_control() { echoed.extend(letter.escape_debug()) } else { echoed.push(letter) }
    }
    echoed
}

/// Level of detail per tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DetailLevel {
    /// Names and description.
    Compact,
    /// Also the input schema.
    Full,
}

/// Collected input problems.
#[derive(Default)]
pub(super) struct InputProblems(Vec<String>);

impl InputProblems {
    /// Adds a problem; `path` is empty for the input as a whole.
    pub(super) fn add(&mut self, path: &str, problem: impl fmt::Display) {
        if self.0.len() < MAX_PROBLEMS {
            let colon = if path.is_empty() { "" } else { ": " };
            self.0.push(format!("{path}{colon}{problem}"));
        }
    }

    /// Requires an object.
    pub(super) fn object(&mut self, path: &str, value: Option<RawJson>) -> Option<RawJson> {
        match value {
            Some(value) if value.is_object() => {
                if let Some(name) = duplicate_member(&value) {
                    self.add(path, format_args!("Duplicate key '{}'", echo(&name)));
                }
                Some(value)
            }
            Some(value) => {
                self.add(path, format_args!("Expected object, received {}", type_name(&value)));
                None
            }
            None => {
                self.add(path, "Required");
                None
            }
        }
    }

    /// Requires a non-empty string; `what` names it in the message.
    pub(super) fn required_name(&mut self, path: &str, value: Option<RawJson>, what: &str) -> Option<String> {
        let Some(value) = value else {
            self.add(path, "Required");
            return None;
        };
        match value.text() {
            None => self.add(path, format_args!("Expected string, received {}", type_name(&value))),
            Some(text) if text.is_empty() => self.add(path, format_args!("{what} cannot be empty")),
            Some(text) => return Some(text.into_owned()),
        }
        None
    }

    /// Reads an optional level of detail.
    pub(super) fn detail(&mut self, value: Option<RawJson>) -> Option<DetailLevel> {
        match value?.text().as_deref() {
            Some("compact") => Some(DetailLevel::Compact),
            Some("full") => Some(DetailLevel::Full),
            Some(_) | None => {
                self.add("detail", "Expected compact or full");
                None
            }
        }
    }

    /// Rejects unknown members, with a suggestion for known aliases.
    pub(super) fn reject_unknown(
        &mut self,
        path: &str,
        object: &RawJson,
        known: &[&str],
        aliases: &[(&str, &str)],
    ) {
        for name in object.names() {
            if known.contains(&name.as_str()) {
                continue;
            }
            let suggestion = aliases.iter().find(|(wrong, _)| *wrong == name);
            let suggestion =
                suggestion.map(|(_, right)| format!(" (did you mean '{right}'?)")).unwrap_or_default();
            self.add(path, format_args!("Unrecognized key(s) in object: '{}'{suggestion}", echo(&name)));
        }
    }

    /// All problems as one text; `None` if there are none.
    pub(super) fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("; "))
    }

    /// All problems.
    pub(super) fn all(&self) -> &[String] {
        &self.0
    }
}

/// JSON type name of a value.
fn type_name(value: &RawJson) -> &'static str {
    match value.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}
