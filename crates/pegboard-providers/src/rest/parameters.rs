//! Values of a call for the placeholders of a template.

use std::borrow::Cow;

use pegboard_core::error::CallError;
use pegboard_core::settings::rest::{TemplatePart, TextTemplate};
use pegboard_core::validation::Violation;
use pegboard_json::RawJson;
use serde_json::Value;

/// Arguments of one call, in their original bytes.
pub(super) struct CallParameters<'c> {
    given: &'c RawJson,
    schema: &'c Value,
}

impl<'c> CallParameters<'c> {
    pub(super) fn new(given: &'c RawJson, schema: &'c Value) -> Self {
        Self { given, schema }
    }

    /// Returns a parameter or its default; `None` if it is optional and absent.
    pub(super) fn get(&self, name: &str) -> Result<Option<RawJson>, CallError> {
        if let Some(given) = self.given.get(name) {
            return Ok(Some(given));
        }
        if let Some(default) = self.schema["properties"][name].get("default") {
            return Ok(Some(RawJson::of(default)));
        }
        let required =
            self.schema["required"].as_array().is_some_and(|names| names.iter().any(|each| each == name));
        if required { Err(invalid_parameter(name, "required field missing")) } else { Ok(None) }
    }

    /// Returns a parameter as text; `None` if it is absent or null.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, CallError> {
        let Some(value) = self.get(name)? else { return Ok(None) };
        match scalar_text(&value) {
            Some(text) => Ok(Some(text.into_owned())),
            None if value.as_str() == "null" => Ok(None),
            None => Err(invalid_parameter(name, "expected a string, number or boolean")),
        }
    }

    /// Fills a template, with each value encoded by `write`; `None` if a value is absent.
    pub(super) fn fill(
        &self,
        template: &TextTemplate,
        write: impl Fn(&str) -> String,
    ) -> Result<Option<String>, CallError> {
        let mut filled = String::new();
        for part in template.parts() {
            match part {
                TemplatePart::Text(text) => filled.push_str(text),
                TemplatePart::Parameter(name) => match self.text(name)? {
                    Some(text) => filled.push_str(&write(&text)),
                    None => return Ok(None),
                },
            }
        }
        Ok(Some(filled))
    }
}

/// Returns a string, number or boolean as text; numbers as they were written.
pub(super) fn scalar_text(value: &RawJson) -> Option<Cow<'_, str>> {
    match value.as_str().as_bytes().first()? {
        b'"' => value.text(),
        b'[' | b'{' | b'n' => None,
        _ => Some(Cow::Borrowed(value.as_str())),
    }
}

/// Creates the error for an argument that cannot be sent.
pub(super) fn invalid_parameter(name: &str, problem: &str) -> CallError {
    CallError::InvalidParameters { violations: vec![Violation::plain(format!("$.{name}: {problem}"))] }
}
