//! Looks up the valid settings at a position of the schema.

use std::sync::LazyLock;

use serde_json::Value;

/// Cached, since it is looked up key by key and never changes.
pub(super) static SCHEMA: LazyLock<Value> = LazyLock::new(super::make_schema);

/// A position in the schema.
#[derive(Clone, Copy)]
pub(crate) struct SchemaPosition(&'static Value);

impl SchemaPosition {
    /// Returns the root of a file.
    pub(crate) fn root() -> Self {
        Self(&SCHEMA)
    }

    /// Returns the position under a key.
    pub(crate) fn child(self, name: &str) -> Option<Self> {
        let found = self.0["properties"].get(name).or_else(|| self.0.get("additionalProperties"))?;
        Some(Self(resolved(found)))
    }

    /// Returns the names of the settings at this position.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let properties = self.0["properties"].as_object();
        properties.map(|properties| properties.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// Returns `true` for objects and lists.
    pub(crate) fn is_container(self) -> bool {
        let is_object = |kind: &Value| kind == "object" || kind == "array";
        match &self.0["type"] {
            Value::Array(kinds) => kinds.iter().any(is_object),
            kind => is_object(kind),
        }
    }

    /// Returns `true` if any key is valid here.
    pub(crate) fn allows_any_key(self) -> bool {
        self.0 == &Value::Bool(true) || self.0.get("additionalProperties").is_some_and(|rest| *rest != false)
    }
}

/// Resolves a reference. Of several alternatives, returns the one for an object.
fn resolved(schema: &'static Value) -> &'static Value {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return resolved(&SCHEMA["$defs"][name]);
    }
    let choices = schema["anyOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_object =
        |choice: &&Value| choice.get("properties").or_else(|| choice.get("additionalProperties")).is_some();
    choices.iter().map(resolved).find(is_object).unwrap_or(schema)
}
