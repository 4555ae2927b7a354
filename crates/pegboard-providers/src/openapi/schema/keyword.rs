//! Schema keywords: their shapes, and the translation of OpenAPI-specific ones.

use serde_json::{Map, Value, json};

/// Shape of a keyword's value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeywordShape {
    /// Schemas by name.
    Map,
    /// List of schemas.
    List,
    /// One schema.
    One,
    /// Anything but a schema.
    Scalar,
}

impl KeywordShape {
    pub(super) fn of(keyword: &str) -> Self {
        match keyword {
            "properties" | "patternProperties" | "dependentSchemas" => Self::Map,
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => Self::List,
            "items"
            | "additionalProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties" => Self::One,
            _ => Self::Scalar,
        }
    }
}

/// Returns `true` if a keyword describes structure rather than allowed values.
pub(super) fn is_structural(keyword: &str) -> bool {
    matches!(
        keyword,
        "$ref"
            | "type"
            | "properties"
            | "items"
            | "additionalProperties"
            | "allOf"
            | "anyOf"
            | "description"
            | "title"
    )
}

/// Calls `work` for each direct subschema.
pub(super) fn for_each_subschema(schema: &mut Value, work: &mut dyn FnMut(&mut Value)) {
    let Value::Object(keywords) = schema else { return };
    for (keyword, value) in keywords {
        match (KeywordShape::of(keyword), value) {
            (KeywordShape::Map, Value::Object(schemas)) => schemas.values_mut().for_each(&mut *work),
            (KeywordShape::List, Value::Array(schemas)) => schemas.iter_mut().for_each(&mut *work),
            (KeywordShape::One, value) => work(value),
            _ => {}
        }
    }
}

/// Returns the value of a keyword without schemas; `None` if it is unknown or invalid.
pub(super) fn sanitized(keyword: &str, value: &Value) -> Option<Value> {
    let is_right = match keyword {
        "type" => return types(value),
        "title" | "description" | "format" | "pattern" | "contentEncoding" | "contentMediaType" => {
            value.is_string()
        }
        "default" | "const" => true,
        "enum" | "examples" => value.as_array().is_some_and(|values| !values.is_empty()),
        "required" => return names(value),
        "deprecated" | "readOnly" | "writeOnly" | "uniqueItems" => value.is_boolean(),
        "minimum" | "maximum" => value.is_number(),
        "exclusiveMinimum" | "exclusiveMaximum" => value.is_number() || value.is_boolean(),
        "multipleOf" => value.as_f64().is_some_and(|number| number > 0.0),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties"
        | "minContains" | "maxContains" => return count(value),
        "dependentRequired" => value.as_object().is_some_and(|lists| lists.values().all(is_names)),
        _ => false,
    };
    is_right.then(|| value.clone())
}

fn is_names(value: &Value) -> bool {
    value.as_array().is_some_and(|names| names.iter().all(Value::is_string))
}

/// Returns names without duplicates.
fn names(value: &Value) -> Option<Value> {
    let mut names: Vec<&Value> = Vec::new();
    for name in value.as_array()?.iter().filter(|name| name.is_string()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| json!(names))
}

/// Converts a non-negative integer, however it is written.
fn count(value: &Value) -> Option<Value> {
    let number = value.as_f64().filter(|number| *number >= 0.0 && number.fract() == 0.0 && *number < 9e15)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, positive and small"
    )]
    Some((number as u64).into())
}

/// Maps types, including common misnomers; `None` for unknown ones.
fn types(value: &Value) -> Option<Value> {
    let one = |word: &str| match word {
        "string" | "number" | "integer" | "boolean" | "object" | "array" | "null" => Some(word.to_owned()),
        "file" | "date" | "datetime" | "date-time" | "text" | "uuid" => Some("string".to_owned()),
        "int" | "int32" | "int64" | "long" => Some("integer".to_owned()),
        "float" | "double" | "decimal" => Some("number".to_owned()),
        "bool" => Some("boolean".to_owned()),
        _ => None,
    };
    match value {
        Value::String(word) => one(word).map(Value::from),
        Value::Array(words) => {
            let mut known: Vec<String> = words.iter().filter_map(Value::as_str).filter_map(one).collect();
            known.dedup();
            // An unknown type may mean anything, so the keyword is dropped.
            (!known.is_empty() && known.len() == words.len()).then(|| json!(known))
        }
        _ => None,
    }
}

/// Converts an exclusive bound from a flag (OpenAPI 3.0) to a number.
pub(super) fn convert_exclusive_bound(made: &mut Map<String, Value>, limit: &str, flag: &str) {
    let Some(Value::Bool(is_exclusive)) = made.get(flag).cloned() else { return };
    made.shift_remove(flag);
    if is_exclusive && let Some(value) = made.shift_remove(limit) {
        made.insert(flag.to_owned(), value);
    }
}

/// Converts enum values of a string type to strings, which YAML may have parsed otherwise.
pub(super) fn stringify_enum(made: &mut Map<String, Value>) {
    let is_text = made.get("type").is_some_and(|kind| kind == "string");
    if let (true, Some(Value::Array(choices))) = (is_text, made.get_mut("enum")) {
        for choice in choices.iter_mut().filter(|choice| choice.is_number() || choice.is_boolean()) {
            *choice = choice.to_string().into();
        }
    }
}

/// Allows `null`.
pub(super) fn make_nullable(made: &mut Map<String, Value>) {
    match made.get_mut("type") {
        Some(Value::String(kind)) if kind != "null" => {
            let kind = std::mem::take(kind);
            made.insert("type".to_owned(), json!([kind, "null"]));
        }
        Some(Value::Array(kinds)) if !kinds.iter().any(|kind| kind == "null") => kinds.push("null".into()),
        Some(_) => {}
        None => {
            let is_annotation =
                |name: &str| matches!(name, "description" | "title" | "deprecated" | "examples" | "default");
            if made.keys().all(|name| is_annotation(name)) {
                return;
            }
            let (annotations, rules): (Map<_, _>, Map<_, _>) =
                std::mem::take(made).into_iter().partition(|(name, _)| is_annotation(name));
            *made = annotations;
            made.insert("anyOf".to_owned(), json!([rules, {"type": "null"}]));
            return;
        }
    }
    if let Some(Value::Array(choices)) = made.get_mut("enum")
        && !choices.contains(&Value::Null)
    {
        choices.push(Value::Null);
    }
}

/// Converts a file to a schema for text, or for bytes with name and type.
pub(super) fn convert_file(written: &Map<String, Value>, made: &mut Map<String, Value>) {
    let has_value = |keyword: &str, word: &str| written.get(keyword).is_some_and(|value| value == word);
    let is_bytes = written.contains_key("contentMediaType") && !written.contains_key("contentEncoding");
    let is_file = has_value("type", "file")
        || (has_value("format", "binary") && (has_value("type", "string") || !written.contains_key("type")))
        || (is_bytes && (has_value("type", "string") || !written.contains_key("type")));
    if !is_file {
        return;
    }
    let description = made.shift_remove("description");
    *made = match file_schema() {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    if let Some(description) = description {
        made.insert("description".to_owned(), description);
    }
}

/// Returns the schema of a file.
pub(in crate::openapi) fn file_schema() -> Value {
    json!({
        "anyOf": [
            {"type": "string", "description": "The text of the file"},
            {
                "type": "object",
                "properties": {
                    "base64": {"type": "string", "description": "The bytes of the file, in base64"},
                    "filename": {"type": "string"},
                    "contentType": {"type": "string"},
                },
                "required": ["base64"],
                "additionalProperties": false,
            },
        ],
    })
}
