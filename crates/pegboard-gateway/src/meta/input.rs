//! Strict input: every member that is wrong, missing or unknown is named.

use std::fmt;

use pegboard_core::text::clipped;
use pegboard_json::{RawJson, twin_member};

/// How much of a caller's word is said again.
const MAX_SAID_BYTES: usize = 256;
/// How many problems are told.
const MAX_PROBLEMS: usize = 20;

/// A caller's own word, as it may be said again: not at any length, and with nothing in it that cannot be seen.
pub(super) fn said(text: &str) -> String {
    let mut said = String::new();
    for letter in clipped(text, MAX_SAID_BYTES).chars() {
        if letter.is_control() { said.extend(letter.escape_debug()) } else { said.push(letter) }
    }
    said
}

/// What is wrong with some input, gathered.
#[derive(Default)]
pub(super) struct Problems(Vec<String>);

impl Problems {
    /// Notes a problem; the place is empty for the input as a whole.
    pub(super) fn note(&mut self, place: &str, problem: impl fmt::Display) {
        if self.0.len() < MAX_PROBLEMS {
            let colon = if place.is_empty() { "" } else { ": " };
            self.0.push(format!("{place}{colon}{problem}"));
        }
    }

    /// The input as an object.
    pub(super) fn object(&mut self, place: &str, value: Option<RawJson>) -> Option<RawJson> {
        match value {
            Some(value) if value.is_object() => {
                if let Some(name) = twin_member(&value) {
                    self.note(place, format_args!("'{}' is there twice", said(&name)));
                }
                Some(value)
            }
            Some(value) => {
                self.note(place, format_args!("Expected object, received {}", kind(&value)));
                None
            }
            None => {
                self.note(place, "Required");
                None
            }
        }
    }

    /// A text that is not empty; `what` says what it names.
    pub(super) fn name(&mut self, place: &str, value: Option<RawJson>, what: &str) -> Option<String> {
        let Some(value) = value else {
            self.note(place, "Required");
            return None;
        };
        match value.text() {
            None => self.note(place, format_args!("Expected string, received {}", kind(&value))),
            Some(text) if text.is_empty() => self.note(place, format_args!("{what} cannot be empty")),
            Some(text) => return Some(text.into_owned()),
        }
        None
    }

    /// Refuses members of an object that have no meaning, with the one that may be meant.
    pub(super) fn only(&mut self, place: &str, object: &RawJson, known: &[&str], meant: &[(&str, &str)]) {
        for name in object.names() {
            if known.contains(&name.as_str()) {
                continue;
            }
            let hint = meant.iter().find(|(wrong, _)| *wrong == name);
            let hint = hint.map(|(_, right)| format!(" (did you mean '{right}'?)")).unwrap_or_default();
            self.note(place, format_args!("Unrecognized key(s) in object: '{}'{hint}", said(&name)));
        }
    }

    /// All problems as one text; `None` if there are none.
    pub(super) fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("; "))
    }

    /// All problems.
    pub(super) fn texts(&self) -> &[String] {
        &self.0
    }
}

/// The word for what sort of value it is.
fn kind(value: &RawJson) -> &'static str {
    match value.as_bytes().first() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}
