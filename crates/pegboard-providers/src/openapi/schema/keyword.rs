//! The keywords of schemas: what stands in them, and what those that only OpenAPI has come to.

use serde_json::{Map, Value, json};

/// What stands in a keyword.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Schemas, by name.
    Map,
    /// A list of schemas.
    List,
    /// One schema.
    One,
    /// Something that is no schema.
    Word,
}

impl Shape {
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
            _ => Self::Word,
        }
    }
}

/// Whether a keyword says what shape a value has, and not which values of that shape there are.
pub(super) fn is_of_shape(keyword: &str) -> bool {
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

/// The schemas inside a schema, each to be looked at.
pub(super) fn for_each_inside(schema: &mut Value, work: &mut dyn FnMut(&mut Value)) {
    let Value::Object(keywords) = schema else { return };
    for (keyword, value) in keywords {
        match (Shape::of(keyword), value) {
            (Shape::Map, Value::Object(schemas)) => schemas.values_mut().for_each(&mut *work),
            (Shape::List, Value::Array(schemas)) => schemas.iter_mut().for_each(&mut *work),
            (Shape::One, value) => work(value),
            _ => {}
        }
    }
}

/// What a keyword that holds no schema says, as far as it makes sense. `None` leaves it out.
pub(super) fn checked(keyword: &str, value: &Value) -> Option<Value> {
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

/// Names, each once.
fn names(value: &Value) -> Option<Value> {
    let mut names: Vec<&Value> = Vec::new();
    for name in value.as_array()?.iter().filter(|name| name.is_string()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    (!names.is_empty()).then(|| json!(names))
}

/// A number of things, however it is written.
fn count(value: &Value) -> Option<Value> {
    let number = value.as_f64().filter(|number| *number >= 0.0 && number.fract() == 0.0 && *number < 9e15)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, positive and small"
    )]
    Some((number as u64).into())
}

/// Types that there are, with those that people take for types as what they mean.
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
            // A word that is not known may mean anything, so that nothing can be said.
            (!known.is_empty() && known.len() == words.len()).then(|| json!(known))
        }
        _ => None,
    }
}

/// A limit that counts or does not itself: a flag once, a number of its own now.
pub(super) fn exclusive(made: &mut Map<String, Value>, limit: &str, flag: &str) {
    let Some(Value::Bool(is_exclusive)) = made.get(flag).cloned() else { return };
    made.shift_remove(flag);
    if is_exclusive && let Some(value) = made.shift_remove(limit) {
        made.insert(flag.to_owned(), value);
    }
}

/// The choices of a text are texts, whatever YAML takes them for.
pub(super) fn texts_of_enum(made: &mut Map<String, Value>) {
    let is_text = made.get("type").is_some_and(|kind| kind == "string");
    if let (true, Some(Value::Array(choices))) = (is_text, made.get_mut("enum")) {
        for choice in choices.iter_mut().filter(|choice| choice.is_number() || choice.is_boolean()) {
            *choice = choice.to_string().into();
        }
    }
}

/// Lets `null` be right too.
pub(super) fn nullable(made: &mut Map<String, Value>) {
    match made.get_mut("type") {
        Some(Value::String(kind)) if kind != "null" => {
            let kind = std::mem::take(kind);
            made.insert("type".to_owned(), json!([kind, "null"]));
        }
        Some(Value::Array(kinds)) if !kinds.iter().any(|kind| kind == "null") => kinds.push("null".into()),
        Some(_) => {}
        None => {
            let is_word =
                |name: &str| matches!(name, "description" | "title" | "deprecated" | "examples" | "default");
            if made.keys().all(|name| is_word(name)) {
                return;
            }
            let (words, rules): (Map<_, _>, Map<_, _>) =
                std::mem::take(made).into_iter().partition(|(name, _)| is_word(name));
            *made = words;
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

/// A file, which is a text, or bytes with a name and a type.
pub(super) fn file(written: &Map<String, Value>, made: &mut Map<String, Value>) {
    let says = |keyword: &str, word: &str| written.get(keyword).is_some_and(|value| value == word);
    let is_bytes = written.contains_key("contentMediaType") && !written.contains_key("contentEncoding");
    let is_file = says("type", "file")
        || (says("format", "binary") && (says("type", "string") || !written.contains_key("type")))
        || (is_bytes && (says("type", "string") || !written.contains_key("type")));
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

/// What a file is given as.
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
