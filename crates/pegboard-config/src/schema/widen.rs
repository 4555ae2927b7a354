//! Accepts null and variable references for every setting.

use serde_json::{Map, Value, json};

/// Name of the definition of a variable reference.
const VARIABLE: &str = "Variable";
/// Definitions that are left unchanged.
const UNWIDENED_DEFINITIONS: [&str; 4] = ["ChainSpec", "ChainStep", "Semantics", "OnPartial"];
/// Settings without variable expansion.
const UNEXPANDED_SETTINGS: [&str; 3] = ["pegboard", "chains", "inputs"];
/// Settings with values that are passed through unchanged.
pub(crate) const PASSTHROUGH_SETTINGS: [&str; 3] = ["toolSchemas", "parametersSchema", "bodyTemplate"];

/// Accepts null for every setting, and variable references wherever variables are expanded.
pub(super) fn widen(schema: &mut Value) {
    let Value::Object(mut definitions) = schema["$defs"].take() else { return };
    let narrow: Vec<String> = definitions
        .iter()
        .filter(|(_, definition)| is_narrow(definition))
        .map(|(name, _)| format!("#/$defs/{name}"))
        .collect();
    let widener = Widener { narrow };
    for (name, definition) in
        definitions.iter_mut().filter(|(name, _)| !UNWIDENED_DEFINITIONS.contains(&name.as_str()))
    {
        let expansion = if name == "Input" { Expansion::Disabled } else { Expansion::Enabled };
        widener.inside(definition, expansion);
    }
    widener.inside(schema, Expansion::Enabled);
    definitions.insert(
        VARIABLE.to_owned(),
        json!({
            "description": "A variable reference, expanded before the value is read: `${NAME}`, `${NAME:-default}`.",
            "type": "string",
            "pattern": r"\$\{",
        }),
    );
    schema["$defs"] = Value::Object(definitions);
}

/// Variable expansion of a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expansion {
    Enabled,
    Disabled,
}

struct Widener {
    /// References to definitions that reject most texts.
    narrow: Vec<String>,
}

impl Widener {
    fn inside(&self, schema: &mut Value, expansion: Expansion) {
        let Value::Object(entries) = schema else { return };
        if let Some(Value::Object(properties)) = entries.get_mut("properties") {
            for (name, property) in properties {
                let expansion = if UNEXPANDED_SETTINGS.contains(&name.as_str()) {
                    Expansion::Disabled
                } else {
                    expansion
                };
                if PASSTHROUGH_SETTINGS.contains(&name.as_str()) {
                    allow(property, null());
                } else {
                    self.setting(property, expansion);
                }
            }
        }
        if let Some(named) = entries.get_mut("additionalProperties").filter(|named| named.is_object()) {
            self.setting(named, expansion);
        }
        if let Some(item) = entries.get_mut("items") {
            self.inside(item, expansion);
            self.variable(item, expansion);
        }
    }

    fn setting(&self, schema: &mut Value, expansion: Expansion) {
        self.inside(schema, expansion);
        self.variable(schema, expansion);
        allow(schema, null());
    }

    fn variable(&self, schema: &mut Value, expansion: Expansion) {
        let alternatives = schema["anyOf"].as_array().map_or(std::slice::from_ref(&*schema), Vec::as_slice);
        if expansion == Expansion::Enabled && alternatives.iter().any(|each| self.refuses_variables(each)) {
            allow(schema, json!({"$ref": format!("#/$defs/{VARIABLE}")}));
        }
    }

    fn refuses_variables(&self, schema: &Value) -> bool {
        if let Some(reference) = schema["$ref"].as_str() {
            return self.narrow.iter().any(|narrow| narrow == reference);
        }
        if schema.get("enum").is_some() || schema.get("const").is_some() {
            return true;
        }
        let is_scalar = |name: &Value| ["integer", "number", "boolean"].iter().any(|scalar| name == scalar);
        match &schema["type"] {
            Value::Array(names) => names.iter().any(is_scalar) && !names.iter().any(|name| name == "string"),
            name => is_scalar(name),
        }
    }
}

fn null() -> Value {
    json!({"type": "null"})
}

/// Accepts an additional schema.
fn allow(schema: &mut Value, other: Value) {
    if accepts(schema, &other) {
        return;
    }
    if let Some(Value::Array(alternatives)) = schema.get_mut("anyOf") {
        alternatives.push(other);
        return;
    }
    if other == null()
        && let Some(kind) = schema.get_mut("type")
    {
        *kind = match kind.take() {
            Value::Array(names) => names.into_iter().chain([json!("null")]).collect(),
            name => json!([name, "null"]),
        };
        return;
    }
    let Value::Object(entries) = schema.take() else { return };
    // Description and default apply to all alternatives.
    let is_shared = |name: &str| matches!(name, "description" | "default");
    let (shared, rest): (Map<_, _>, Map<_, _>) = entries.into_iter().partition(|(name, _)| is_shared(name));
    *schema = Value::Object(shared);
    schema["anyOf"] = json!([rest, other]);
}

/// Returns `true` if the schema accepts the other one already.
fn accepts(schema: &Value, other: &Value) -> bool {
    if let Some(alternatives) = schema["anyOf"].as_array() {
        return alternatives.iter().any(|each| each == other || accepts(each, other));
    }
    let says_nothing = ["type", "$ref", "enum", "const", "oneOf"].iter().all(|key| schema.get(key).is_none());
    let is_null = |name: &Value| *other == null() && name == "null";
    says_nothing
        || match &schema["type"] {
            Value::Array(names) => names.iter().any(is_null),
            name => is_null(name),
        }
}

/// Returns `true` if a definition accepts only certain words or a certain pattern.
fn is_narrow(definition: &Value) -> bool {
    let is_choice = definition["oneOf"]
        .as_array()
        .is_some_and(|choices| choices.iter().all(|choice| choice.get("const").is_some()));
    is_choice || definition.get("enum").is_some() || definition.get("pattern").is_some()
}
