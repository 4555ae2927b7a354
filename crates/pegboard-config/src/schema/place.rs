//! Looks up in the schema what may stand at a place.

use std::sync::LazyLock;

use serde_json::Value;

/// It is asked for name by name, and never changes.
pub(super) static SCHEMA: LazyLock<Value> = LazyLock::new(super::make_schema);

/// A place in the schema, to look up what may stand there.
#[derive(Clone, Copy)]
pub(crate) struct Place(&'static Value);

impl Place {
    /// The root of a file.
    pub(crate) fn root() -> Self {
        Self(&SCHEMA)
    }

    /// What may stand under a name.
    pub(crate) fn child(self, name: &str) -> Option<Self> {
        let found = self.0["properties"].get(name).or_else(|| self.0.get("additionalProperties"))?;
        Some(Self(resolved(found)))
    }

    /// The settings that may stand here.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let properties = self.0["properties"].as_object();
        properties.map(|properties| properties.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// Whether an object stands here, or a list of agents.
    pub(crate) fn holds_others(self) -> bool {
        let is_object = |kind: &Value| kind == "object" || kind == "array";
        match &self.0["type"] {
            Value::Array(kinds) => kinds.iter().any(is_object),
            kind => is_object(kind),
        }
    }

    /// Whether any name may stand here.
    pub(crate) fn is_open(self) -> bool {
        self.0 == &Value::Bool(true) || self.0.get("additionalProperties").is_some_and(|rest| *rest != false)
    }
}

/// A schema, or the one that it refers to: of several that may be meant, the one of an object.
fn resolved(schema: &'static Value) -> &'static Value {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return resolved(&SCHEMA["$defs"][name]);
    }
    let choices = schema["anyOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_object =
        |choice: &&Value| choice.get("properties").or_else(|| choice.get("additionalProperties")).is_some();
    choices.iter().map(resolved).find(is_object).unwrap_or(schema)
}
