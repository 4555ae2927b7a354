//! What the reader takes the schema takes, and the other way round, as far as a schema can say it.

use std::fmt::Write;

use jsonschema::Validator;
use pegboard_config::{Problem, Severity, native_schema};
use serde_json::{Map, Value, json};

use super::load_text;

const WHOLE: &str = include_str!("../files/good/pegboard.whole.yaml");

/// What only the reader can know: what else there is in the file, and what must be there once all files are read.
const BEYOND_A_SCHEMA: [&str; 15] = [
    "cannot be filled in",
    "references unknown queue",
    "there is no toolbox",
    "there is no agent",
    "there is no such method",
    "is missing",
    "requires a",
    "has no OpenAPI document",
    "has no baseUrl",
    "is not among the properties of parametersSchema",
    "the arguments of a tool are an object",
    "name the parameters of the query",
    "the chain is called",
    "hasComplexQueryParams",
    "only a GET request",
];

/// Every setting there is, each with a value that it may have.
fn whole() -> Value {
    serde_saphyr::from_str(WHOLE).unwrap()
}

/// What the reader holds against a file.
fn complaints(file: &Value) -> Vec<Problem> {
    let problems = match load_text("pegboard.json", &file.to_string()) {
        Ok(configuration) => configuration.problems,
        Err(error) => error.problems().to_vec(),
    };
    problems.into_iter().filter(|problem| problem.severity == Severity::Error).collect()
}

/// The ways to all values of a file. Schemas of others are left out: whatever stands in them is passed on.
fn ways(value: &Value, way: &str, found: &mut Vec<String>) {
    if !way.is_empty() {
        found.push(way.to_owned());
    }
    match value {
        Value::Object(entries) if !way.ends_with("chema") && !way.ends_with("chemas") => {
            entries.iter().for_each(|(key, value)| ways(value, &format!("{way}/{key}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| ways(item, &format!("{way}/{index}"), found));
        }
        _ => {}
    }
}

/// What differs between what the reader and what the schema says of a file.
fn difference(file: &Value, validator: &Validator, has_variable: HasVariable) -> Option<String> {
    let complaints = complaints(file);
    match (complaints.first(), validator.iter_errors(file).next()) {
        (None, None) | (Some(_), Some(_)) => None,
        (None, Some(error)) => Some(format!("the schema refuses it: {}: {error}", error.instance_path())),
        (Some(problem), None) => {
            let is_beyond = |words: &&str| problem.message.contains(*words) || problem.path.contains(*words);
            // Nobody but the reader knows what a variable is.
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
fn every_setting_may_be_what_both_the_reader_and_the_schema_say() {
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let whole = whole();
    assert_eq!(complaints(&whole).iter().map(Problem::render).collect::<Vec<_>>(), Vec::<String>::new());
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
    let mut told = String::new();
    for (name, section) in whole.as_object().unwrap() {
        let mut found = vec![String::new()];
        ways(section, "", &mut found);
        for (way, value) in found.iter().flat_map(|way| values.iter().map(move |value| (way, value))) {
            // The rest of the file is what others refer to.
            let mut file = json!({"queues": whole["queues"], "toolboxes": {"dev": {}}});
            file[name] = section.clone();
            *file.pointer_mut(&format!("/{name}{way}")).unwrap() = value.clone();
            let has_variable = if *value == "${A}" { HasVariable::Yes } else { HasVariable::No };
            if let Some(difference) = difference(&file, &validator, has_variable) {
                let _ = writeln!(told, "{name}{way} = {value}: {difference}");
            }
        }
    }
    assert_eq!(told, "");
}

#[test]
fn every_setting_there_is_is_among_those_that_are_compared() {
    let schema = native_schema();
    let mut missing = Vec::new();
    compare(&schema, &schema, &[&whole()], "", &mut missing);
    assert_eq!(missing, Vec::<String>::new());
}

/// Collects the properties of a schema that none of these values has.
fn compare(root: &Value, schema: &Value, values: &[&Value], way: &str, missing: &mut Vec<String>) {
    let schema = resolved(root, schema);
    let empty = Map::new();
    let is_once_more = |name: &str| {
        way == "/defaults"
            || (way == "/openapiSpecs" && root["$defs"]["McpServer"]["properties"].get(name).is_some())
    };
    let properties = schema["properties"].as_object().unwrap_or(&empty);
    for (name, property) in properties.iter().filter(|(name, _)| !is_once_more(name)) {
        let inner: Vec<&Value> = values.iter().filter_map(|value| value.get(name)).collect();
        let way = format!("{way}/{name}");
        if inner.is_empty() {
            missing.push(way);
        } else if !["input_mapping", "with", "when"].contains(&name.as_str()) {
            compare(root, property, &inner, &way, missing);
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
        if schema[key].is_object() && way.matches("toolboxes").count() == 0 {
            compare(root, &schema[key], &inner, way, missing);
        }
    }
}

/// A schema, or the one that it refers to: of several, the one of an object.
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
fn every_word_that_the_reader_lists_is_in_the_schema() {
    let validator = jsonschema::validator_for(&native_schema()).unwrap();
    let mut whole = whole();
    let mut found = Vec::new();
    ways(&whole, "", &mut found);
    for way in found {
        let before = std::mem::replace(whole.pointer_mut(&way).unwrap(), json!("\u{1}"));
        let words = complaints(&whole).into_iter().find_map(|problem| {
            let (_, words) = problem.message.split_once(" is none of ")?;
            Some(words.split(", ").map(str::to_owned).collect::<Vec<_>>())
        });
        for word in words.into_iter().flatten() {
            *whole.pointer_mut(&way).unwrap() = json!(word);
            // A toolbox lists its tools or does not, and the reader knows more words for the whole.
            let is_other = way == "/toolboxes/dev/expose" && !["meta", "flat"].contains(&word.as_str());
            assert!(validator.is_valid(&whole) || is_other, "{way} = {word}");
        }
        *whole.pointer_mut(&way).unwrap() = before;
    }
}

#[test]
fn every_property_of_the_schema_says_what_it_is() {
    fn check(schema: &Value, way: &str, wordless: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let way = format!("{way}/{name}");
            if !property["description"].is_string() && !way.contains("ChainStep/with") {
                wordless.push(way.clone());
            }
            check(property, &way, wordless);
        }
    }
    let schema = native_schema();
    let mut wordless = Vec::new();
    check(&schema, "", &mut wordless);
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        check(definition, name, &mut wordless);
    }
    assert_eq!(wordless, Vec::<String>::new());
}
