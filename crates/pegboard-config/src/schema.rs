//! The JSON Schema of the native format, for editors.

use indexmap::IndexMap;
use pegboard_core::chain::ChainSpec;
use pegboard_core::settings::cache::CacheSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_core::settings::telemetry::TelemetrySettings;
use pegboard_core::settings::{RuntimeSettings, ServerSettings, ToolSettings};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::dialect::{root_names, toolbox_names};
use crate::inputs::InputDefinition;
use crate::settings::{McpServerSettings, RestToolSettings};

mod position;
mod refine;
mod widen;

pub(crate) use position::SchemaPosition;
pub(crate) use widen::PASSTHROUGH_SETTINGS;

/// Settings with an alias.
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
/// Types that are accepted as text.
const SCALAR_TYPES: [&str; 3] = ["string", "number", "boolean"];

/// Returns the JSON Schema of the native format: all settings under all of their names, with descriptions.
///
/// ```
/// let schema = pegboard_config::native_schema();
/// assert_eq!(schema["properties"]["toolTimeout"]["default"], "5m");
/// ```
pub fn native_schema() -> Value {
    position::SCHEMA.clone()
}

fn make_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut properties = Map::new();
    properties.insert("$schema".into(), json!({"description": "URL of this schema."}));
    properties.insert("pegboard".into(), json!({"description": "Version of the file format.", "const": 1}));
    properties.extend(sections(&mut generator));
    properties.insert(
        "toolboxes".into(),
        map_of("Toolboxes by name: groups of servers, tools, chains and agents.", "Toolbox"),
    );
    properties.insert("providers".into(), map_of("Model providers by name.", "ModelProvider"));
    let inputs = "Definitions of `${input:ID}` inputs by ID.";
    properties.insert("inputs".into(), map_of(inputs, "Input"));
    let cache = "Response cache: backend and limits.";
    properties.insert("cache".into(), optional_section(cache, "Cache"));
    let telemetry = "Logging and trace export.";
    properties.insert("telemetry".into(), optional_section(telemetry, "Telemetry"));
    let defaults = "Global settings under a key of their own; settings at the root take precedence.";
    properties.insert("defaults".into(), optional_section(defaults, "Defaults"));
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
    normalize(&mut schema);
    schema
}

/// Returns the sections at the root and in every toolbox.
fn sections(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut chains = generator.subschema_for::<IndexMap<String, ChainSpec>>().to_value();
    chains["description"] = json!("Chains of tool calls by name.");
    chains["type"] = json!(["object", "null"]);
    let agents = json!({
        "description": "Agent files: paths and glob patterns relative to this file.",
        "type": ["array", "string", "null"],
        "items": {"type": "string"},
    });
    Map::from_iter([
        ("mcpServers".to_owned(), map_of("MCP servers by name.", "McpServer")),
        ("openapiSpecs".to_owned(), map_of("Web services with an OpenAPI document by name.", "OpenApiSpec")),
        ("restTools".to_owned(), map_of("REST tools by name.", "RestTool")),
        ("chains".to_owned(), chains),
        ("agents".to_owned(), agents),
    ])
}

/// Returns the definitions of named entries. No property is required: a file may override a part of another
/// file's entry.
fn own_definitions(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut server = properties_of::<McpServerSettings>(generator);
    server.extend(properties_of::<ServerSettings>(generator));
    accept_scalars(&mut server, &["env", "environment", "headers"]);
    for name in ["args", "command"] {
        server[name]["items"] = json!({"type": SCALAR_TYPES});
    }
    let mut service = properties_of::<OpenApiSettings>(generator);
    service.extend(properties_of::<ServerSettings>(generator));
    accept_scalars(&mut service, &["headers", "serverVariables"]);
    let mut rest = properties_of::<RestToolSettings>(generator);
    rest.extend(properties_of::<ToolSettings>(generator));
    accept_scalars(&mut rest, &["headers"]);
    let mut provider = properties_of::<ModelProviderSettings>(generator);
    // Alias of servers only.
    provider.remove("transport");
    accept_scalars(&mut provider, &["headers"]);

    let mut toolbox = Map::from_iter([
        (
            "description".to_owned(),
            json!({"description": "Purpose of the toolbox. Models choose toolboxes by it.", "type": "string"}),
        ),
        (
            "expose".to_owned(),
            json!({
                "description": "Exposure of its tools: listed directly (`flat`) or through the meta-tools (`meta`).",
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
        ("Input".to_owned(), object(&properties_of::<InputDefinition>(generator))),
        ("Cache".to_owned(), object(&properties_of::<CacheSettings>(generator))),
        ("Telemetry".to_owned(), object(&properties_of::<TelemetrySettings>(generator))),
    ])
}

/// Creates a map of named entries. It may be null.
fn map_of(description: &str, definition: &str) -> Value {
    json!({
        "description": description,
        "type": ["object", "null"],
        "additionalProperties": {"$ref": format!("#/$defs/{definition}")},
    })
}

/// Creates a section. It may be null.
fn optional_section(description: &str, definition: &str) -> Value {
    json!({
        "description": description,
        "anyOf": [{"$ref": format!("#/$defs/{definition}")}, {"type": "null"}],
    })
}

/// Creates an object with these properties and comment keys.
fn object(properties: &Map<String, Value>) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "patternProperties": {"^(_|\\$schema$)": true},
        "additionalProperties": false,
    })
}

/// Accepts numbers and booleans in place of text.
fn accept_scalars(properties: &mut Map<String, Value>, names: &[&str]) {
    for name in names {
        properties[*name]["additionalProperties"] = json!({"type": SCALAR_TYPES});
    }
}

/// Returns the properties of a type, including aliases.
fn properties_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut schema = T::json_schema(generator).to_value();
    let mut properties = match schema["properties"].take() {
        Value::Object(properties) => properties,
        _ => Map::new(),
    };
    add_aliases(&mut properties);
    properties
}

/// Adds the aliases of properties, which generated schemas lack.
fn add_aliases(properties: &mut Map<String, Value>) {
    for (name, alias) in ALIASES {
        if let Some(schema) = properties.get(name).cloned() {
            properties.insert(alias.to_owned(), schema);
        }
    }
}

/// Adds aliases to definitions. Aliased properties are no longer required, since either name is sufficient.
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

/// Returns a description without its code blocks, which are examples for programmers.
fn without_examples(description: &str) -> String {
    let parts = description.split("```").step_by(2).map(str::trim_end);
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
}

/// Joins wrapped descriptions into single lines, without code, and allows comment keys in every object.
fn normalize(schema: &mut Value) {
    match schema {
        Value::Object(entries) => {
            if let Some(Value::String(description)) = entries.get_mut("description") {
                *description = without_examples(description).replace('\n', " ");
            }
            if entries.get("additionalProperties") == Some(&json!(false)) {
                entries.insert("patternProperties".to_owned(), json!({"^(_|\\$schema$)": true}));
            }
            entries.values_mut().for_each(normalize);
        }
        Value::Array(items) => items.iter_mut().for_each(normalize),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
