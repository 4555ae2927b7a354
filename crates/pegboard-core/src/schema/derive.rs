//! Schemas derived from Rust types, trimmed for models.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

pub(super) fn input<T: JsonSchema + ?Sized>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_deserialize();
    let mut schema = trimmed(settings.into_generator().into_root_schema_for::<T>());
    drop_null_of_optional_properties(&mut schema);
    schema
}

pub(super) fn output<T: JsonSchema + ?Sized>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    trimmed(settings.into_generator().into_root_schema_for::<T>())
}

/// Removes the root's title and dialect, and formats that only name a Rust number type.
fn trimmed(schema: schemars::Schema) -> Value {
    let mut schema = match schema.to_value() {
        Value::Bool(true) => Value::Object(Map::new()),
        other => other,
    };
    if let Some(keywords) = schema.as_object_mut() {
        keywords.shift_remove("$schema");
        keywords.shift_remove("title");
    }
    drop_number_formats(&mut schema);
    schema
}

fn drop_number_formats(schema: &mut Value) {
    const NUMBER_FORMATS: [&str; 14] = [
        "double", "float", "int", "int8", "int16", "int32", "int64", "int128", "uint", "uint8", "uint16",
        "uint32", "uint64", "uint128",
    ];
    match schema {
        Value::Object(keywords) => {
            let format = keywords.get("format").and_then(Value::as_str);
            if format.is_some_and(|name| NUMBER_FORMATS.contains(&name)) {
                keywords.shift_remove("format");
            }
            keywords.values_mut().for_each(drop_number_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_number_formats),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// An optional property need not be nullable as well.
fn drop_null_of_optional_properties(schema: &mut Value) {
    let required: Vec<String> = schema["required"]
        .as_array()
        .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default();
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (name, property) in properties {
        if !required.contains(name) {
            drop_null(property);
        }
    }
}

fn drop_null(property: &mut Value) {
    let Some(keywords) = property.as_object_mut() else { return };
    if let Some(types) = keywords.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            keywords["type"] = only.clone();
        }
    }
    if let Some(options) = keywords.get_mut("enum").and_then(Value::as_array_mut) {
        options.retain(|option| !option.is_null());
    }
    if let Some(branches) = keywords.get("anyOf").and_then(Value::as_array)
        && let [inner, null] = branches.as_slice()
        && null["type"] == "null"
        && let Some(inner) = inner.as_object().cloned()
    {
        keywords.shift_remove("anyOf");
        keywords.extend(inner);
    }
}
