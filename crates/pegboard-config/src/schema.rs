//! The JSON Schema of the native file, for editors.

use indexmap::IndexMap;
use pegboard_core::chain::ChainSpec;
use pegboard_core::settings::cache::CacheSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_core::settings::mcp::McpServerSettings;
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_core::settings::rest::RestToolSettings;
use pegboard_core::settings::telemetry::TelemetrySettings;
use pegboard_core::settings::{RuntimeSettings, ServerSettings, ToolSettings};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::dialect::{root_names, toolbox_names};
use crate::inputs::InputSettings;

mod place;
mod refine;
mod widen;

pub(crate) use place::Place;
pub(crate) use widen::AS_WRITTEN;

/// Settings that have a second name.
const ALIASES: [(&str, &str); 9] = [
    ("type", "transport"),
    ("env", "environment"),
    ("maxConcurrency", "concurrent"),
    ("waitTimeoutMs", "waitTimeout"),
    ("defaultTimeoutMs", "defaultTimeout"),
    ("chain", "name"),
    ("tool_name", "tool"),
    ("input_mapping", "with"),
    ("output_key", "as"),
];
/// What is a text, or is taken as the text that it is written as.
const WRITTEN: [&str; 3] = ["string", "number", "boolean"];

/// The JSON Schema of a native file: every setting there is, under all of its names, with what it does.
///
/// ```
/// let schema = pegboard_config::native_schema();
/// assert_eq!(schema["properties"]["toolTimeout"]["default"], "5m");
/// ```
pub fn native_schema() -> Value {
    place::SCHEMA.clone()
}

fn make_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut properties = Map::new();
    properties.insert("$schema".into(), json!({"description": "Where this schema is."}));
    properties.insert("pegboard".into(), json!({"description": "The version of the file.", "const": 1}));
    properties.extend(sections(&mut generator));
    properties.insert(
        "toolboxes".into(),
        by_name("Servers, tools, chains and agents that belong together, by name.", "Toolbox"),
    );
    properties.insert("providers".into(), by_name("Providers of models, by name.", "ModelProvider"));
    let inputs = "How a person is asked for what `${input:ID}` stands for, by its id.";
    properties.insert("inputs".into(), by_name(inputs, "Input"));
    let cache = "Where answers are kept that may be given again, and how many.";
    properties.insert("cache".into(), part(cache, "Cache"));
    let telemetry = "What is logged, and what is sent to a collector of traces.";
    properties.insert("telemetry".into(), part(telemetry, "Telemetry"));
    let defaults = "What holds for all, for those who write it under a name of its own; what stands at the root counts before it.";
    properties.insert("defaults".into(), part(defaults, "Defaults"));
    let settings = properties_of::<RuntimeSettings>(&mut generator);
    properties.extend(settings.clone());
    properties.extend(properties_of::<GatewaySettings>(&mut generator));
    properties.retain(|name, _| root_names().contains(&name.as_str()));

    let mut definitions = own_definitions(&mut generator);
    definitions.insert("Defaults".into(), object(&settings));
    let mut generated = generator.take_definitions(true);
    add_aliases_to_definitions(&mut generated);
    definitions.extend(generated);
    refine::refine(&mut definitions);
    let mut schema = object(&properties);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Pegboard configuration");
    schema["$defs"] = Value::Object(definitions);
    widen::widen(&mut schema);
    straighten(&mut schema);
    schema
}

/// What may stand at the root and in every toolbox.
fn sections(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut chains = generator.subschema_for::<IndexMap<String, ChainSpec>>().to_value();
    chains["description"] = json!("Chains of tools, by name.");
    chains["type"] = json!(["object", "null"]);
    let agents = json!({
        "description": "Files of agents: paths from the folder of this file, and globs.",
        "type": ["array", "string", "null"],
        "items": {"type": "string"},
    });
    Map::from_iter([
        ("mcpServers".to_owned(), by_name("MCP servers, by name.", "McpServer")),
        (
            "openapiSpecs".to_owned(),
            by_name("Web services with an OpenAPI document, by name.", "OpenApiSpec"),
        ),
        ("restTools".to_owned(), by_name("Tools that are requests to web services, by name.", "RestTool")),
        ("chains".to_owned(), chains),
        ("agents".to_owned(), agents),
    ])
}

/// What stands under names that people give. Nothing must be there: a file may change something about what another one
/// describes.
fn own_definitions(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut server = properties_of::<McpServerSettings>(generator);
    server.extend(properties_of::<ServerSettings>(generator));
    take_as_written(&mut server, &["env", "environment", "headers"]);
    for name in ["args", "command"] {
        server[name]["items"] = json!({"type": WRITTEN});
    }
    let mut service = properties_of::<OpenApiSettings>(generator);
    service.extend(properties_of::<ServerSettings>(generator));
    take_as_written(&mut service, &["headers", "serverVariables"]);
    let mut rest = properties_of::<RestToolSettings>(generator);
    rest.extend(properties_of::<ToolSettings>(generator));
    take_as_written(&mut rest, &["headers"]);
    let mut provider = properties_of::<ModelProviderSettings>(generator);
    // A name that only servers have for it.
    provider.remove("transport");
    take_as_written(&mut provider, &["headers"]);

    let mut toolbox = Map::from_iter([
        (
            "description".to_owned(),
            json!({"description": "What it is for. Models choose by it.", "type": "string"}),
        ),
        (
            "expose".to_owned(),
            json!({
                "description": "Whether its tools are listed by themselves or behind the few.",
                "enum": ["meta", "flat"],
            }),
        ),
    ]);
    toolbox.extend(sections(generator));
    toolbox.retain(|name, _| toolbox_names().contains(&name.as_str()));
    let mut toolbox = object(&toolbox);
    toolbox["type"] = json!(["object", "null"]);
    Map::from_iter([
        ("Toolbox".to_owned(), toolbox),
        ("McpServer".to_owned(), object(&server)),
        ("OpenApiSpec".to_owned(), object(&service)),
        ("RestTool".to_owned(), object(&rest)),
        ("ModelProvider".to_owned(), object(&provider)),
        ("Input".to_owned(), object(&properties_of::<InputSettings>(generator))),
        ("Cache".to_owned(), object(&properties_of::<CacheSettings>(generator))),
        ("Telemetry".to_owned(), object(&properties_of::<TelemetrySettings>(generator))),
    ])
}

/// Many of a kind. There may be nothing left of them.
fn by_name(description: &str, definition: &str) -> Value {
    json!({
        "description": description,
        "type": ["object", "null"],
        "additionalProperties": {"$ref": format!("#/$defs/{definition}")},
    })
}

/// One of a kind. There may be nothing left of it.
fn part(description: &str, definition: &str) -> Value {
    json!({
        "description": description,
        "anyOf": [{"$ref": format!("#/$defs/{definition}")}, {"type": "null"}],
    })
}

/// An object with these properties, and remarks.
fn object(properties: &Map<String, Value>) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "patternProperties": {"^(_|\\$schema$)": true},
        "additionalProperties": false,
    })
}

/// Numbers and words are the texts that they are written as.
fn take_as_written(properties: &mut Map<String, Value>, names: &[&str]) {
    for name in names {
        properties[*name]["additionalProperties"] = json!({"type": WRITTEN});
    }
}

/// The properties of a type, under all of their names.
fn properties_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut schema = T::json_schema(generator).to_value();
    let mut properties = match schema["properties"].take() {
        Value::Object(properties) => properties,
        _ => Map::new(),
    };
    add_aliases(&mut properties);
    properties
}

/// Adds the second names of properties, which a schema is made without.
fn add_aliases(properties: &mut Map<String, Value>) {
    for (name, alias) in ALIASES {
        if let Some(schema) = properties.get(name).cloned() {
            properties.insert(alias.to_owned(), schema);
        }
    }
}

/// The same for definitions. One of two names will do, which a list of what must be there cannot say.
fn add_aliases_to_definitions(definitions: &mut Map<String, Value>) {
    for schema in definitions.values_mut() {
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            add_aliases(properties);
        }
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|name| !ALIASES.iter().any(|(main, _)| name == main));
        }
    }
}

/// Sentences are broken where the source is, which nobody wants to see. Remarks may stand in every object.
fn straighten(schema: &mut Value) {
    match schema {
        Value::Object(entries) => {
            if let Some(Value::String(description)) = entries.get_mut("description") {
                *description = description.replace('\n', " ");
            }
            if entries.get("additionalProperties") == Some(&json!(false)) {
                entries.insert("patternProperties".to_owned(), json!({"^(_|\\$schema$)": true}));
            }
            entries.values_mut().for_each(straighten);
        }
        Value::Array(items) => items.iter_mut().for_each(straighten),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
