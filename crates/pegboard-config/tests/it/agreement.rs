//! The reader and the schema accept the same files, as far as a schema can express it.

use std::fmt::Write;

use jsonschema::Validator;
use pegboard_config::{ConfigProblem, Severity, native_schema};
use serde_json::{Map, Value, json};

use super::load_text;

const FULL_CONFIG: &str = include_str!("../files/good/pegboard.whole.yaml");

/// Errors that only the reader can detect: references to other parts, and keys that must exist after merging.
const BEYOND_A_SCHEMA: [&str; 18] = [
    "has fewer than",
    "expected a host name",
    "expected an origin",
    "cannot read",
    "references unknown queue",
    "unknown toolbox",
    "no such agent file",
    "unknown method",
    "is missing",
    "requires a",
    "has no OpenAPI document",
    "has no baseUrl",
    "is not defined in parametersSchema",
    "the arguments of a tool are an object",
    "name the parameters of the query",
    "the chain is named",
    "hasComplexQueryParams",
    "only a GET request",
];

/// Every setting with a valid value.
fn full_config() -> Value {
    serde_saphyr::from_str(FULL_CONFIG).unwrap()
}

/// Returns the errors that the reader reports for a file.
fn reader_errors(file: &Value) -> Vec<ConfigProblem> {
    let problems = match load_text("pegboard.json", &file.to_string()) {
        Ok(configuration) => configuration.problems,
        Err(error) => error.problems().to_vec(),
    };
    problems.into_iter().filter(|problem| problem.severity == Severity::Error).collect()
}

/// Collects the JSON pointers of all values. Nested schemas are skipped, since their contents are passed
/// through.
fn collect_pointers(value: &Value, pointer: &str, found: &mut Vec<String>) {
    if !pointer.is_empty() {
        found.push(pointer.to_owned());
    }
    match value {
        Value::Object(entries) if !pointer.ends_with("chema") && !pointer.ends_with("chemas") => {
            entries
                .iter()
                .for_each(|(key, value)| collect_pointers(value, &format!("{pointer}/{key}"), found));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, item)| collect_pointers(item, &format!("{pointer}/{index}"), found));
        }
        _ => {}
    }
}

/// Returns the difference between the reader's and the schema's verdict.
fn difference(file: &Value, validator: &Validator, has_variable: HasVariable) -> Option<String> {
    let reader_errors = reader_errors(file);
    match (reader_errors.first(), validator.iter_errors(file).next()) {
        (None, None) | (Some(_), Some(_)) => None,
        (None, Some(error)) => Some(format!("the schema refuses it: {}: {error}", error.instance_path())),
        (Some(problem), None) => {
            let is_beyond = |words: &&str| problem.message.contains(*words) || problem.path.contains(*words);
            // Only the reader expands variables.
            let is_known = has_variable == HasVariable::Yes || BEYOND_A_SCHEMA.iter().any(is_beyond);
            (!is_known).then(|| format!("the reader refuses it: {}: {}", problem.path, problem.message))
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum HasVariable {
    Yes,
    No,
}

#[test]
fn the_reader_and_the_schema_accept_the_same_values() {
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let full_config = full_config();
    assert_eq!(
        reader_errors(&full_config).iter().map(ConfigProblem::render).collect::<Vec<_>>(),
        Vec::<String>::new()
    );
    let values = [
        json!(null),
        json!(true),
        json!(3),
        json!(-3),
        json!("x"),
        json!("${A}"),
        json!("5m"),
        json!([]),
        json!({}),
        json!({"x": "y"}),
    ];
    let mut differences = String::new();
    for (name, section) in full_config.as_object().unwrap() {
        let mut found = vec![String::new()];
        collect_pointers(section, "", &mut found);
        for (pointer, value) in
            found.iter().flat_map(|pointer| values.iter().map(move |value| (pointer, value)))
        {
            // The rest of the file is referenced by the section.
            let mut file = json!({"queues": full_config["queues"], "toolboxes": {"dev": {}}});
            file[name] = section.clone();
            *file.pointer_mut(&format!("/{name}{pointer}")).unwrap() = value.clone();
            let has_variable = if *value == "${A}" { HasVariable::Yes } else { HasVariable::No };
            if let Some(difference) = difference(&file, &validator, has_variable) {
                let _ = writeln!(differences, "{name}{pointer} = {value}: {difference}");
            }
        }
    }
    assert_eq!(differences, "");
}

#[test]
fn every_setting_is_compared() {
    let schema = native_schema();
    let mut missing = Vec::new();
    compare(&schema, &schema, &[&full_config()], "", &mut missing);
    assert_eq!(missing, Vec::<String>::new());
}

/// Collects the properties of a schema that none of these values has.
fn compare(root: &Value, schema: &Value, values: &[&Value], pointer: &str, missing: &mut Vec<String>) {
    let schema = resolved(root, schema);
    let empty = Map::new();
    let is_repeated = |name: &str| {
        pointer == "/defaults"
            || (pointer == "/openapiSpecs" && root["$defs"]["McpServer"]["properties"].get(name).is_some())
    };
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    for (name, property) in properties.iter().filter(|(name, _)| !is_repeated(name)) {
        let inner: Vec<&Value> = values.iter().filter_map(|value| value.get(name)).collect();
        let pointer = format!("{pointer}/{name}");
        if inner.is_empty() {
            missing.push(pointer);
        } else if !["input_mapping", "with", "when"].contains(&name.as_str()) {
            compare(root, property, &inner, &pointer, missing);
        }
    }
    for key in ["additionalProperties", "items"] {
        let inner: Vec<&Value> = values
            .iter()
            .flat_map(|value| match value {
                Value::Object(entries) if key == "additionalProperties" => entries.values().collect(),
                Value::Array(items) if key == "items" => items.iter().collect(),
                _ => Vec::new(),
            })
            .collect();
        if schema[key].is_object() && pointer.matches("toolboxes").count() == 0 {
            compare(root, &schema[key], &inner, pointer, missing);
        }
    }
}

/// Resolves a reference. Of several alternatives, returns the one for an object.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    if let Some(name) = schema["$ref"].as_str() {
        return resolved(root, &root["$defs"][name.trim_start_matches("#/$defs/")]);
    }
    let choices = schema["anyOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_object = |choice: &&Value| choice.get("properties").is_some();
    let found = choices.iter().map(|choice| resolved(root, choice)).find(is_object);
    found.filter(|_| schema.get("properties").is_none()).unwrap_or(schema)
}

#[test]
fn every_value_that_the_reader_lists_is_in_the_schema() {
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let mut full_config = full_config();
    let mut found = Vec::new();
    collect_pointers(&full_config, "", &mut found);
    for pointer in found {
        let before = std::mem::replace(full_config.pointer_mut(&pointer).unwrap(), json!("\u{1}"));
        let words = reader_errors(&full_config).into_iter().find_map(|problem| {
            let (_, words) = problem.message.split_once(", expected one of ")?;
            Some(words.split(", ").map(str::to_owned).collect::<Vec<_>>())
        });
        for word in words.into_iter().flatten() {
            *full_config.pointer_mut(&pointer).unwrap() = json!(word);
            // A toolbox accepts only some of the values that the reader lists.
            let is_other = pointer == "/toolboxes/dev/expose" && !["meta", "flat"].contains(&word.as_str());
            assert!(validator.is_valid(&full_config) || is_other, "{pointer} = {word}");
        }
        *full_config.pointer_mut(&pointer).unwrap() = before;
    }
}

#[test]
fn descriptions_contain_no_code_blocks() {
    fn check(schema: &Value) {
        match schema {
            Value::Object(members) => {
                let text = members.get("description").and_then(Value::as_str).unwrap_or_default();
                assert!(!text.contains("```") && !text.contains("use pegboard"), "{text}");
                members.values().for_each(check);
            }
            Value::Array(items) => items.iter().for_each(check),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    check(&native_schema());
}

#[test]
fn every_property_of_the_schema_has_a_description() {
    fn check(schema: &Value, pointer: &str, undescribed: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let pointer = format!("{pointer}/{name}");
            if !property["description"].is_string() && !pointer.contains("ChainStep/with") {
                undescribed.push(pointer.clone());
            }
            check(property, &pointer, undescribed);
        }
    }
    let schema = native_schema();
    let mut undescribed = Vec::new();
    check(&schema, "", &mut undescribed);
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        check(definition, name, &mut undescribed);
    }
    assert_eq!(undescribed, Vec::<String>::new());
}
