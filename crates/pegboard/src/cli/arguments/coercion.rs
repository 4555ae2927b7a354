//! Conversion of text to the type that a JSON Schema asks for.

use pegboard::config::suggest;
use serde_json::{Map, Number, Value};

/// Maximum number of references and subschemas followed.
const MAX_REFERENCES: usize = 32;

/// A schema within the document that its references point into.
#[derive(Clone, Debug)]
pub(crate) struct ArgumentSchema<'s> {
    document: &'s Value,
    /// All subschemas that may apply to the value.
    alternatives: Vec<&'s Map<String, Value>>,
}

impl<'s> ArgumentSchema<'s> {
    /// Returns the schema of all arguments.
    pub(crate) fn root(document: &'s Value) -> Self {
        Self::of(document, document)
    }

    /// Returns a schema that accepts any value.
    pub(crate) fn anything() -> Self {
        Self { document: &Value::Null, alternatives: Vec::new() }
    }

    fn of(document: &'s Value, schema: &'s Value) -> Self {
        let mut alternatives = Vec::new();
        let mut waiting = vec![schema];
        let mut n_left = MAX_REFERENCES;
        while let Some(schema) = waiting.pop() {
            let Value::Object(schema) = schema else { continue };
            alternatives.push(schema);
            if n_left == 0 {
                continue;
            }
            n_left -= 1;
            let referred = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
            waiting.extend(referred.and_then(|pointer| document.pointer(pointer)));
            for key in ["oneOf", "anyOf", "allOf"] {
                let parts = schema.get(key).and_then(Value::as_array);
                waiting.extend(parts.into_iter().flatten().rev());
            }
        }
        Self { document, alternatives }
    }

    /// Returns the schema of a member, if there is one.
    pub(crate) fn member(&self, name: &str) -> Option<Self> {
        let mut members = self.alternatives.iter().filter_map(|schema| schema.get("properties")?.get(name));
        members.next().map(|schema| Self::of(self.document, schema))
    }

    /// Names of the members that the schema lists.
    pub(crate) fn names(&self) -> Vec<&'s str> {
        let members = self.alternatives.iter().filter_map(|schema| schema.get("properties")?.as_object());
        members.flat_map(Map::keys).map(String::as_str).collect()
    }

    /// Returns `true` if the schema allows members that it does not list.
    pub(crate) fn allows_other_members(&self) -> bool {
        self.alternatives.iter().any(|schema| {
            schema.contains_key("patternProperties")
                || schema.get("additionalProperties").is_some_and(|others| *others != Value::Bool(false))
        })
    }

    /// Converts a text to a value of this schema.
    pub(crate) fn read(&self, text: &str) -> Result<Value, String> {
        if let Some(choice) = self.choices().find(|choice| literal_text(choice) == text) {
            return Ok(choice.clone());
        }
        if text == "null" && self.may_be("null") {
            return Ok(Value::Null);
        }
        if self.may_be("boolean")
            && let Some(value) = boolean(text)
        {
            return Ok(value.into());
        }
        let number = number(text);
        if let Some(number) = number.as_ref().filter(|_| self.may_be("integer")).and_then(as_integer) {
            return Ok(number.into());
        }
        if let Some(number) = number.filter(|_| self.may_be("number")) {
            return Ok(number.into());
        }
        if self.may_be("array") {
            return self.list(text);
        }
        if self.may_be("object") && text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map_err(|error| format!("invalid JSON object: {error}"));
        }
        if self.may_be("string") || !self.has_type() {
            return self.string_or_choice(text);
        }
        Err(self.type_error(text))
    }

    /// Accepts the text, unless the schema lists choices and this is none of them.
    fn string_or_choice(&self, text: &str) -> Result<Value, String> {
        let choices: Vec<String> = self.choices().map(literal_text).collect();
        if choices.is_empty() {
            return Ok(text.into());
        }
        Err(match suggest(text, choices.iter().map(String::as_str)) {
            Some(meant) => format!("'{text}' is not one of {}; did you mean {meant}?", choices.join(", ")),
            None => format!("'{text}' is not one of {}", choices.join(", ")),
        })
    }

    /// Parses a list: a JSON array, or comma-separated elements.
    fn list(&self, text: &str) -> Result<Value, String> {
        if text.trim_start().starts_with('[') {
            return serde_json::from_str(text).map_err(|error| format!("invalid JSON array: {error}"));
        }
        let element = self.element();
        let elements = match text {
            "" => Vec::new(),
            // A string may contain commas.
            text if element.may_contain_commas() => vec![element.read(text)?],
            text => text.split(',').map(|part| element.read(part.trim())).collect::<Result<_, _>>()?,
        };
        Ok(elements.into())
    }

    fn element(&self) -> Self {
        let mut elements = self.alternatives.iter().filter_map(|schema| schema.get("items"));
        elements.next().map_or_else(Self::anything, |schema| Self::of(self.document, schema))
    }

    fn may_contain_commas(&self) -> bool {
        let mut choices = self.choices().map(literal_text).peekable();
        if choices.peek().is_some() {
            return choices.any(|choice| choice.contains(','));
        }
        !self.has_type() || ["string", "object", "array"].iter().any(|kind| self.may_be(kind))
    }

    fn choices(&self) -> impl Iterator<Item = &'s Value> {
        let several = self.alternatives.iter().filter_map(|schema| schema.get("enum")?.as_array()).flatten();
        several.chain(self.alternatives.iter().filter_map(|schema| schema.get("const")))
    }

    fn may_be(&self, kind: &str) -> bool {
        self.types().any(|each| each == kind)
    }

    fn has_type(&self) -> bool {
        self.types().next().is_some()
    }

    fn types(&self) -> impl Iterator<Item = &'s str> {
        self.alternatives.iter().flat_map(|schema| match schema.get("type") {
            Some(Value::String(kind)) => vec![kind.as_str()],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            // A schema with `properties` describes an object even without a `type`.
            None if schema.contains_key("properties") => vec!["object"],
            None if schema.contains_key("items") => vec!["array"],
            _ => Vec::new(),
        })
    }

    fn type_error(&self, text: &str) -> String {
        let name = |kind| match kind {
            "integer" => "an integer",
            "number" => "a number",
            "boolean" => "a boolean",
            "null" => "null",
            "object" => "an object",
            "array" => "an array",
            _ => "a string",
        };
        let mut names: Vec<&str> = Vec::new();
        for kind in self.types().map(name) {
            if !names.contains(&kind) {
                names.push(kind);
            }
        }
        format!("'{text}' is not {}", names.join(" or "))
    }
}

fn literal_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" => Some(true),
        "false" | "no" => Some(false),
        _ => None,
    }
}

fn number(text: &str) -> Option<Number> {
    serde_json::from_str(text.trim()).ok()
}

/// Returns an integer for a number without a fractional part.
fn as_integer(number: &Number) -> Option<Number> {
    if number.is_i64() || number.is_u64() {
        return Some(number.clone());
    }
    let value = number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < 9e15)?;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and an f64 holds it exactly")]
    let value = value as i64;
    Some(value.into())
}
