//! What every setting may be beside what it is: `null`, which is as if it were not there, and a variable.

use serde_json::{Map, Value, json};

/// What the definition of a variable is called.
const VARIABLE: &str = "Variable";
/// Definitions in which everything is left as it is written.
const WITHOUT: [&str; 4] = ["ChainSpec", "ChainStep", "Semantics", "OnPartial"];
/// Settings in which variables are not filled in.
const NOT_FILLED: [&str; 3] = ["pegboard", "chains", "inputs"];
/// Settings whose values are passed on as they are written.
pub(crate) const AS_WRITTEN: [&str; 3] = ["toolSchemas", "parametersSchema", "bodyTemplate"];

/// Lets `null` stand for every setting, and variables wherever they are filled in.
pub(super) fn widen(schema: &mut Value) {
    let Value::Object(mut definitions) = schema["$defs"].take() else { return };
    let narrow: Vec<String> = definitions
        .iter()
        .filter(|(_, definition)| is_narrow(definition))
        .map(|(name, _)| format!("#/$defs/{name}"))
        .collect();
    let widening = Widening { narrow };
    for (name, definition) in definitions.iter_mut().filter(|(name, _)| !WITHOUT.contains(&name.as_str())) {
        let filled = if name == "Input" { Filled::No } else { Filled::Yes };
        widening.inside(definition, filled);
    }
    widening.inside(schema, Filled::Yes);
    definitions.insert(
        VARIABLE.to_owned(),
        json!({
            "description": "A variable, which is filled in before the value is read: `${NAME}`, `${NAME:-default}`.",
            "type": "string",
            "pattern": r"\$\{",
        }),
    );
    schema["$defs"] = Value::Object(definitions);
}

/// Whether variables are filled in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    Yes,
    No,
}

struct Widening {
    /// References to what refuses most texts.
    narrow: Vec<String>,
}

impl Widening {
    fn inside(&self, schema: &mut Value, filled: Filled) {
        let Value::Object(entries) = schema else { return };
        if let Some(Value::Object(properties)) = entries.get_mut("properties") {
            for (name, property) in properties {
                let filled = if NOT_FILLED.contains(&name.as_str()) { Filled::No } else { filled };
                if AS_WRITTEN.contains(&name.as_str()) {
                    allow(property, null());
                } else {
                    self.setting(property, filled);
                }
            }
        }
        if let Some(named) = entries.get_mut("additionalProperties").filter(|named| named.is_object()) {
            self.setting(named, filled);
        }
        if let Some(item) = entries.get_mut("items") {
            self.inside(item, filled);
            self.variable(item, filled);
        }
    }

    fn setting(&self, schema: &mut Value, filled: Filled) {
        self.inside(schema, filled);
        self.variable(schema, filled);
        allow(schema, null());
    }

    fn variable(&self, schema: &mut Value, filled: Filled) {
        let alternatives = schema["anyOf"].as_array().map_or(std::slice::from_ref(&*schema), Vec::as_slice);
        if filled == Filled::Yes && alternatives.iter().any(|each| self.refuses_variables(each)) {
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

/// Lets something else stand here, too.
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
    // What is said about the setting is said of all.
    let is_said = |name: &str| matches!(name, "description" | "default");
    let (said, rest): (Map<_, _>, Map<_, _>) = entries.into_iter().partition(|(name, _)| is_said(name));
    *schema = Value::Object(said);
    schema["anyOf"] = json!([rest, other]);
}

/// Whether that may stand here already.
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

/// Whether a definition is that of a word out of a few, or of a text of a certain form.
fn is_narrow(definition: &Value) -> bool {
    let is_choice = definition["oneOf"]
        .as_array()
        .is_some_and(|choices| choices.iter().all(|choice| choice.get("const").is_some()));
    is_choice || definition.get("enum").is_some() || definition.get("pattern").is_some()
}
