//! What a schema wants a value to be, as far as a text can be read by it.

use pegboard::config::near;
use serde_json::{Map, Number, Value};

/// How far references are followed.
const MAX_REFERENCES: usize = 32;

/// A schema within the whole that it may refer to.
#[derive(Clone, Debug)]
pub(crate) struct Shape<'s> {
    whole: &'s Value,
    /// All that the value may be.
    ways: Vec<&'s Map<String, Value>>,
}

impl<'s> Shape<'s> {
    /// The shape of all arguments.
    pub(crate) fn root(whole: &'s Value) -> Self {
        Self::of(whole, whole)
    }

    /// A shape that says nothing.
    pub(crate) fn anything() -> Self {
        Self { whole: &Value::Null, ways: Vec::new() }
    }

    fn of(whole: &'s Value, schema: &'s Value) -> Self {
        let mut ways = Vec::new();
        let mut waiting = vec![schema];
        let mut n_left = MAX_REFERENCES;
        while let Some(schema) = waiting.pop() {
            let Value::Object(schema) = schema else { continue };
            ways.push(schema);
            if n_left == 0 {
                continue;
            }
            n_left -= 1;
            let referred = schema.get("$ref").and_then(Value::as_str).and_then(|to| to.strip_prefix('#'));
            waiting.extend(referred.and_then(|pointer| whole.pointer(pointer)));
            for key in ["oneOf", "anyOf", "allOf"] {
                let parts = schema.get(key).and_then(Value::as_array);
                waiting.extend(parts.into_iter().flatten().rev());
            }
        }
        Self { whole, ways }
    }

    /// What the member of this name should be, if the schema speaks of it.
    pub(crate) fn member(&self, name: &str) -> Option<Self> {
        let mut members = self.ways.iter().filter_map(|way| way.get("properties")?.get(name));
        members.next().map(|schema| Self::of(self.whole, schema))
    }

    /// The names that the schema speaks of.
    pub(crate) fn names(&self) -> Vec<&'s str> {
        let members = self.ways.iter().filter_map(|way| way.get("properties")?.as_object());
        members.flat_map(Map::keys).map(String::as_str).collect()
    }

    /// Whether it says that there may be members of other names.
    pub(crate) fn may_have_others(&self) -> bool {
        self.ways.iter().any(|way| {
            way.contains_key("patternProperties")
                || way.get("additionalProperties").is_some_and(|others| *others != Value::Bool(false))
        })
    }

    /// The value that a text stands for, or why there is none.
    pub(crate) fn read(&self, text: &str) -> Result<Value, String> {
        if let Some(choice) = self.choices().find(|choice| written(choice) == text) {
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
        if let Some(number) = number.as_ref().filter(|_| self.may_be("integer")).and_then(whole) {
            return Ok(number.into());
        }
        if let Some(number) = number.filter(|_| self.may_be("number")) {
            return Ok(number.into());
        }
        if self.may_be("array") {
            return self.list(text);
        }
        if self.may_be("object") && text.trim_start().starts_with('{') {
            return serde_json::from_str(text).map_err(|error| format!("it is no JSON object: {error}"));
        }
        if self.may_be("string") || !self.has_type() {
            return self.chosen(text);
        }
        Err(self.lack(text))
    }

    /// A text where there is nothing to choose from, or none of the choices.
    fn chosen(&self, text: &str) -> Result<Value, String> {
        let choices: Vec<String> = self.choices().map(written).collect();
        if choices.is_empty() {
            return Ok(text.into());
        }
        Err(match near(text, choices.iter().map(String::as_str)) {
            Some(meant) => format!("'{text}' is none of {}; did you mean {meant}?", choices.join(", ")),
            None => format!("'{text}' is none of {}", choices.join(", ")),
        })
    }

    /// A list: a whole one as JSON, or elements of one.
    fn list(&self, text: &str) -> Result<Value, String> {
        if text.trim_start().starts_with('[') {
            return serde_json::from_str(text).map_err(|error| format!("it is no JSON list: {error}"));
        }
        let element = self.element();
        let elements = match text {
            "" => Vec::new(),
            // A text may hold commas of its own.
            text if element.holds_commas() => vec![element.read(text)?],
            text => text.split(',').map(|part| element.read(part.trim())).collect::<Result<_, _>>()?,
        };
        Ok(elements.into())
    }

    fn element(&self) -> Self {
        let mut elements = self.ways.iter().filter_map(|way| way.get("items"));
        elements.next().map_or_else(Self::anything, |schema| Self::of(self.whole, schema))
    }

    fn holds_commas(&self) -> bool {
        let mut choices = self.choices().map(written).peekable();
        if choices.peek().is_some() {
            return choices.any(|choice| choice.contains(','));
        }
        !self.has_type() || ["string", "object", "array"].iter().any(|kind| self.may_be(kind))
    }

    fn choices(&self) -> impl Iterator<Item = &'s Value> {
        let several = self.ways.iter().filter_map(|way| way.get("enum")?.as_array()).flatten();
        several.chain(self.ways.iter().filter_map(|way| way.get("const")))
    }

    fn may_be(&self, kind: &str) -> bool {
        self.types().any(|each| each == kind)
    }

    fn has_type(&self) -> bool {
        self.types().next().is_some()
    }

    fn types(&self) -> impl Iterator<Item = &'s str> {
        self.ways.iter().flat_map(|way| match way.get("type") {
            Some(Value::String(kind)) => vec![kind.as_str()],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            // What has members is an object, whether it says so or not.
            None if way.contains_key("properties") => vec!["object"],
            None if way.contains_key("items") => vec!["array"],
            _ => Vec::new(),
        })
    }

    fn lack(&self, text: &str) -> String {
        let name = |kind| match kind {
            "integer" => "a whole number",
            "number" => "a number",
            "boolean" => "true or false",
            "null" => "null",
            "object" => "an object",
            "array" => "a list",
            _ => "a text",
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

fn written(value: &Value) -> String {
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

/// A number without a fraction, as one that is written without it.
fn whole(number: &Number) -> Option<Number> {
    if number.is_i64() || number.is_u64() {
        return Some(number.clone());
    }
    let value = number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < 9e15)?;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and an f64 holds it exactly")]
    let value = value as i64;
    Some(value.into())
}
