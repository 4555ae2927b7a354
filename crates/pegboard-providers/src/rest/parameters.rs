//! What a call gives to the places of a template.

use std::borrow::Cow;

use pegboard_core::error::CallError;
use pegboard_core::settings::rest::{Part, Template};
use pegboard_core::validation::Violation;
use pegboard_json::RawJson;
use serde_json::Value;

/// The parameters of one call, in the bytes they came in.
pub(super) struct Parameters<'c> {
    given: &'c RawJson,
    schema: &'c Value,
}

impl<'c> Parameters<'c> {
    pub(super) fn new(given: &'c RawJson, schema: &'c Value) -> Self {
        Self { given, schema }
    }

    /// A parameter, or its default; `None` if it may be left out, and is.
    pub(super) fn get(&self, name: &str) -> Result<Option<RawJson>, CallError> {
        if let Some(given) = self.given.get(name) {
            return Ok(Some(given));
        }
        if let Some(default) = self.schema["properties"][name].get("default") {
            return Ok(Some(RawJson::of(default)));
        }
        let required =
            self.schema["required"].as_array().is_some_and(|names| names.iter().any(|each| each == name));
        if required { Err(wrong(name, "required field missing")) } else { Ok(None) }
    }

    /// A parameter as a text; `None` if it is left out or null.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, CallError> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        match scalar(&value) {
            Some(text) => Ok(Some(text.into_owned())),
            None if value.as_str() == "null" => Ok(None),
            None => Err(wrong(name, "only a text, a number, true or false can be written here")),
        }
    }

    /// A template with its places filled in, each text as `write` writes it; `None` if one of them is left out.
    pub(super) fn fill(
        &self,
        template: &Template,
        write: impl Fn(&str) -> String,
    ) -> Result<Option<String>, CallError> {
        let mut filled = String::new();
        for part in template.parts() {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Parameter(name) => match self.text(name)? {
                    Some(text) => filled.push_str(&write(&text)),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(filled))
    }
}

/// A text, a number, true or false as a text; numbers as they were written.
pub(super) fn scalar(value: &RawJson) -> Option<Cow<'_, str>> {
    match value.as_str().as_bytes().first()? {
        b'"' => value.text(),
        b'[' | b'{' | b'n' => None,
        _ => Some(Cow::Borrowed(value.as_str())),
    }
}

/// A call that cannot be written as a request.
pub(super) fn wrong(name: &str, problem: &str) -> CallError {
    CallError::InvalidParameters { violations: vec![Violation::plain(format!("$.{name}: {problem}"))] }
}
