//! The JSON Schema of the native file, for editors.

use std::sync::LazyLock;

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

/// The JSON Schema of a native file: every setting there is, under all of its names, with what it does.
///
/// ```
/// let schema = pegboard_config::native_schema();
/// assert_eq!(schema["properties"]["toolTimeout"]["default"], "5m");
/// ```
pub fn native_schema() -> Value {
    SCHEMA.clone()
}

/// It is asked for name by name, and never changes.
static SCHEMA: LazyLock<Value> = LazyLock::new(make_schema);

/// A place in the schema, to look up what may stand there.
#[derive(Clone, Copy)]
pub(crate) struct Place(&'static Value);

impl Place {
    /// The root of a file.
    pub(crate) fn root() -> Self {
        Self(&SCHEMA)
    }

    /// What may stand under a name.
    pub(crate) fn child(self, name: &str) -> Option<Self> {
        let found = self.0["properties"].get(name).or_else(|| self.0.get("additionalProperties"))?;
        Some(Self(resolved(found)))
    }

    /// The settings that may stand here.
    pub(crate) fn names(self) -> Vec<&'static str> {
        let properties = self.0["properties"].as_object();
        properties.map(|properties| properties.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// Whether any name may stand here.
    pub(crate) fn is_open(self) -> bool {
        self.0 == &Value::Bool(true) || self.0.get("additionalProperties").is_some_and(|rest| *rest != false)
    }
}

/// A schema, or the one that it refers to: of several that may be meant, the one of an object.
fn resolved(schema: &'static Value) -> &'static Value {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        return resolved(&SCHEMA["$defs"][name]);
    }
    let choices = schema["anyOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_object = |choice: &&Value| choice.get("properties").is_some();
    choices.iter().map(resolved).find(is_object).unwrap_or(schema)
}

fn make_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut properties = Map::new();
    properties.insert("$schema".into(), json!({"description": "Where this schema is.", "type": "string"}));
    properties.insert("pegboard".into(), json!({"description": "The version of the file.", "const": 1}));
    let sections = sections(&mut generator);
    properties.extend(sections.clone());
    let description = json!({"description": "What it is for. Models choose by it.", "type": "string"});
    let expose = json!({
        "description": "Whether its tools are listed by themselves or behind the few.",
        "enum": ["meta", "flat"],
    });
    let mut toolbox =
        Map::from_iter([("description".to_owned(), description), ("expose".to_owned(), expose)]);
    toolbox.extend(sections);
    toolbox.retain(|name, _| toolbox_names().contains(&name.as_str()));
    properties.insert(
        "toolboxes".into(),
        json!({
            "description": "Servers, tools and chains that belong together, by name.",
            "type": "object",
            "additionalProperties": object(&toolbox),
        }),
    );
    properties.insert("providers".into(), providers(&mut generator));
    properties.insert(
        "inputs".into(),
        json!({
            "description": "How a person is asked for what `${input:ID}` stands for, by its id.",
            "type": "object",
            "additionalProperties": object(&properties_of::<InputSettings>(&mut generator)),
        }),
    );
    for (name, mut part) in [
        ("cache", object(&properties_of::<CacheSettings>(&mut generator))),
        ("telemetry", object(&properties_of::<TelemetrySettings>(&mut generator))),
    ] {
        part["description"] = json!(match name {
            "cache" => "Where answers are kept that may be given again, and how many.",
            _ => "What is logged, and what is sent to a collector of traces.",
        });
        properties.insert(name.into(), part);
    }
    let settings = properties_of::<RuntimeSettings>(&mut generator);
    let mut defaults = object(&settings);
    defaults["description"] = json!("What holds for all, for those who write it under a name of its own.");
    properties.insert("defaults".into(), defaults);
    for (name, schema) in settings.into_iter().chain(properties_of::<GatewaySettings>(&mut generator)) {
        properties.insert(name, schema);
    }
    properties.retain(|name, _| root_names().contains(&name.as_str()));
    let mut definitions = generator.take_definitions(true);
    add_aliases_to_definitions(&mut definitions);
    let mut schema = object(&properties);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Pegboard configuration");
    schema["$defs"] = Value::Object(definitions);
    schema
}

/// What may stand at the root and in every toolbox.
fn sections(generator: &mut SchemaGenerator) -> Map<String, Value> {
    let mut server = properties_of::<McpServerSettings>(generator);
    server.extend(properties_of::<ServerSettings>(generator));
    for name in ["env", "environment", "headers"] {
        // Numbers and words are the texts that they are written as.
        server[name]["additionalProperties"] = json!({"type": ["string", "number", "boolean"]});
    }
    let mut service = properties_of::<OpenApiSettings>(generator);
    service.extend(properties_of::<ServerSettings>(generator));
    for name in ["headers", "serverVariables"] {
        service[name]["additionalProperties"] = json!({"type": ["string", "number", "boolean"]});
    }
    server["args"]["items"] = json!({"type": ["string", "number", "boolean"]});
    let mut rest = properties_of::<RestToolSettings>(generator);
    rest.extend(properties_of::<ToolSettings>(generator));
    rest["headers"]["additionalProperties"] = json!({"type": ["string", "number", "boolean"]});
    let mut rest = object(&rest);
    rest["required"] = json!(["description", "url"]);
    let chains = generator.subschema_for::<IndexMap<String, ChainSpec>>();
    let mut chains = chains.to_value();
    chains["description"] = json!("Chains of tools, by name.");
    Map::from_iter([
        (
            "mcpServers".to_owned(),
            json!({
                "description": "MCP servers, by name.",
                "type": "object",
                "additionalProperties": object(&server),
            }),
        ),
        (
            "openapiSpecs".to_owned(),
            json!({
                "description": "Web services with an OpenAPI document, by name.",
                "type": "object",
                "additionalProperties": object(&service),
            }),
        ),
        (
            "restTools".to_owned(),
            json!({
                "description": "Tools that are requests to web services, by name.",
                "type": "object",
                "additionalProperties": rest,
            }),
        ),
        ("chains".to_owned(), chains),
        (
            "agents".to_owned(),
            json!({
                "description": "Files of agents: paths from the folder of this file, and globs.",
                "type": ["array", "string"],
                "items": {"type": "string"},
            }),
        ),
    ])
}

/// The providers of models.
fn providers(generator: &mut SchemaGenerator) -> Value {
    let mut provider = properties_of::<ModelProviderSettings>(generator);
    // A name that only servers have for it.
    provider.remove("transport");
    provider["headers"]["additionalProperties"] = json!({"type": ["string", "number", "boolean"]});
    let mut provider = object(&provider);
    provider["required"] = json!(["type"]);
    json!({
        "description": "Providers of models, by name.",
        "type": "object",
        "additionalProperties": provider,
    })
}

/// An object with these properties, and remarks.
fn object(properties: &Map<String, Value>) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "patternProperties": {"^_": true},
        "additionalProperties": false,
    })
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
