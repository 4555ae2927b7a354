//! Generated files: the schema, and the tables of the configuration page.
//!
//! `RENEW=1 cargo test -p pegboard-config --test it pages` regenerates both.

use std::fmt::Write;
use std::path::Path;

use pegboard_config::native_schema;
use serde_json::{Map, Value};

const SCHEMA: &str = "../../docs/pegboard.schema.json";
const PAGE: &str = "../../docs/configuration.md";
const BEGIN: &str = "<!-- from the schema: begin -->\n";
const END: &str = "<!-- from the schema: end -->";

/// The tables: title, definitions, and introduction.
const TABLES: [(&str, &str, &str); 20] = [
    ("At the root", "", "Global settings and sections."),
    ("toolboxes.NAME", "Toolbox", ""),
    (
        "mcpServers.NAME",
        "McpServer",
        "Names may contain letters, digits, `-` and `_`. `agent`, `chain`, `gateway`, `rest`, `router` and `tool_output` are reserved.",
    ),
    (
        "mcpServers.NAME.tools.TOOL",
        "ToolSettings",
        "These settings also apply to the tools of a service and to REST tools.",
    ),
    (
        "openapiSpecs.NAME",
        "OpenApiSpec",
        "The tool settings of a server, from `toolsAllowed` on, also apply to a service. See [OpenAPI services](openapi.md).",
    ),
    ("openapiSpecs.NAME.credentials.SCHEME", "Credential", ""),
    ("restTools.NAME", "RestTool", "See [REST tools](rest.md)."),
    (
        "providers.NAME",
        "ModelProvider",
        "A model is referenced as `NAME/model`: the name of its provider here, and the provider's name of the model, slashes included. Names may contain letters, digits, `.`, `-` and `_`.\n\n`openai-compatible` is the chat completions API (OpenAI, Ollama, vLLM, llama.cpp, OpenRouter …), `anthropic` the messages API, and `sampling` uses the model of the calling client, which needs no key.",
    ),
    ("providers.NAME.models.MODEL", "ModelSettings", ""),
    ("providers.NAME.models.MODEL.pricing", "Pricing", ""),
    ("queues.NAME", "QueueSettings", "The queue `default` always exists."),
    ("progress", "ProgressRule", ""),
    ("toolOutput", "OutputSettings", ""),
    ("profiles.NAME", "Profile", ""),
    (
        "messageLimits",
        "MessageLimits",
        "A server has limits of its own, `mcpServers.NAME.messageLimits`. What exceeds a limit is refused, and the error says so.",
    ),
    ("cache", "Cache", "Read at startup."),
    ("telemetry", "Telemetry", "Read at startup. See [telemetry](telemetry.md)."),
    ("telemetry.traces", "TracesSettings", ""),
    ("telemetry.logging", "LoggingSettings", ""),
    ("inputs.ID", "Input", ""),
];

#[test]
fn the_checked_in_schema_is_current() {
    check(Path::new(SCHEMA), &format!("{:#}\n", native_schema()));
}

#[test]
fn the_tables_on_the_page_are_current() {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    check(Path::new(PAGE), &format!("{before}{BEGIN}\n{}{END}{after}", tables(&native_schema())));
}

#[test]
fn every_definition_has_a_table() {
    let schema = native_schema();
    let shown: Vec<&str> = TABLES.iter().flat_map(|(_, names, _)| names.split(' ')).collect();
    let has_settings = |(_, definition): &(&String, &Value)| definition["properties"].is_object();
    let definitions = schema["$defs"].as_object().unwrap().iter().filter(has_settings);
    // Chains and REST details have pages of their own; `defaults` repeats the root.
    let elsewhere =
        ["ChainSpec", "ChainStep", "Defaults", "StreamingSettings", "RetrySettings", "PaginationSettings"];
    let others: Vec<_> = definitions
        .map(|(name, _)| name)
        .filter(|name| !shown.contains(&name.as_str()) && !elsewhere.contains(&name.as_str()))
        .collect();
    assert_eq!(others, Vec::<&String>::new());
}

/// Compares a file with its expected contents, or rewrites it if `RENEW` is set.
fn check(path: &Path, expected: &str) {
    if std::env::var_os("RENEW").is_some() {
        return std::fs::write(path, expected).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let same = found.lines().zip(expected.lines()).take_while(|(one, other)| one == other).count();
    assert!(
        found == expected,
        "{} differs from line {} on; renew it: RENEW=1 cargo test -p pegboard-config --test it pages",
        path.display(),
        same + 1
    );
}

fn tables(schema: &Value) -> String {
    let mut text = String::new();
    for (title, names, words) in TABLES {
        let title =
            if names.is_empty() { title.to_owned() } else { format!("`{}`", title.replace(", ", "`, `")) };
        let _ = write!(text, "### {title}\n\n");
        if !words.is_empty() {
            let _ = write!(text, "{words}\n\n");
        }
        text += "| setting | type | default | description |\n|---|---|---|---|\n";
        for name in names.split(' ') {
            let table = if name.is_empty() { schema } else { &schema["$defs"][name] };
            let mut properties = table["properties"].as_object().unwrap().clone();
            if name == "OpenApiSpec" {
                // These are in the preceding table.
                let server = schema["$defs"]["McpServer"]["properties"].as_object().unwrap();
                properties.retain(|name, property| server.get(name) != Some(property) || name == "enabled");
            }
            for row in rows(schema, &properties) {
                text += &row;
            }
        }
        text += "\n";
    }
    text
}

/// Returns one row per setting, with all of its names.
fn rows(root: &Value, properties: &Map<String, Value>) -> Vec<String> {
    let mut rows: Vec<(Vec<&str>, &Value)> = Vec::new();
    for (name, property) in properties.iter().filter(|(name, _)| *name != "$schema") {
        // Aliases have the same description.
        match rows.iter_mut().find(|(_, other)| *other == property) {
            Some((names, _)) => names.push(name),
            None => rows.push((vec![name], property)),
        }
    }
    let row = |(names, property): (Vec<&str>, &Value)| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let kind = kind(root, property);
        let default_value = default_value(property);
        let words = property["description"].as_str().unwrap_or_default().replace('|', "\\|");
        format!("| {} | {kind} | {default_value} | {words} |\n", names.join(", "))
    };
    rows.into_iter().map(row).collect()
}

/// Describes the type of a setting.
fn kind(root: &Value, schema: &Value) -> String {
    let mut kinds: Vec<String> = Vec::new();
    let alternatives = schema["anyOf"].as_array().map_or(std::slice::from_ref(schema), Vec::as_slice);
    for alternative in alternatives {
        kinds.extend(types_of(root, alternative));
    }
    kinds.dedup();
    kinds.join(" or ")
}

fn types_of(root: &Value, schema: &Value) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str().map(|path| path.trim_start_matches("#/$defs/")) {
        let definition = &root["$defs"][name];
        return match name {
            "Variable" => Vec::new(),
            "Duration" => vec!["duration".to_owned()],
            "CacheDuration" => vec!["duration or `off`".to_owned()],
            "Secret" | "ToolboxName" => vec!["string".to_owned()],
            _ if definition["oneOf"].is_array() => vec![words(&definition["oneOf"])],
            _ => vec!["object".to_owned()],
        };
    }
    if let Some(words) = schema["enum"].as_array() {
        return vec![
            words
                .iter()
                .map(|word| format!("`{}`", word.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(", "),
        ];
    }
    if let Some(only) = schema.get("const") {
        return vec![format!("`{only}`")];
    }
    let named = schema["additionalProperties"].is_object();
    let range = match (&schema["minimum"], &schema["maximum"]) {
        (Value::Number(least), Value::Number(most)) => format!(" from {least} to {most}"),
        _ => String::new(),
    };
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.clone(),
        Value::Null => return vec!["any".to_owned()],
        kind => vec![kind.clone()],
    };
    kinds
        .iter()
        .filter_map(|kind| match kind.as_str()? {
            "null" => None,
            "boolean" => Some("boolean".to_owned()),
            "integer" | "number" => Some(format!("number{range}")),
            "array" => Some("list".to_owned()),
            "object" if named => Some("object by name".to_owned()),
            "string" => Some("string".to_owned()),
            other => Some(other.to_owned()),
        })
        .collect()
}

fn words(choices: &Value) -> String {
    let words = choices.as_array().into_iter().flatten().filter_map(|choice| choice["const"].as_str());
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Formats the default value.
fn default_value(schema: &Value) -> String {
    match &schema["default"] {
        Value::Null | Value::Object(_) => String::new(),
        Value::Array(items) if items.is_empty() => String::new(),
        Value::String(text) if text.is_empty() => String::new(),
        Value::String(text) => format!("`{text}`"),
        other => other.to_string(),
    }
}
