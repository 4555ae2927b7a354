//! The tool definition that represents a server.

use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_runtime::catalogue::CatalogueTool;
use pegboard_runtime::names::display_name;
use serde_json::{Map, Value, json};

use super::{ARGUMENTS, MODE, declares};

/// Maximum length of a server description.
const MAX_DESCRIPTION_BYTES: usize = 1024;
/// Maximum length of a mode description.
const MAX_MODE_BYTES: usize = 120;
/// Maximum number of described modes; all are named.
const MAX_DESCRIBED: usize = 100;
/// Maximum number of schema variants per parameter; beyond it any value is accepted.
const MAX_VARIANTS: usize = 8;
/// Keywords that describe a schema without restricting its values.
const ANNOTATION_KEYWORDS: [&str; 5] = ["title", "description", "default", "examples", "$comment"];

/// Returns the tool that represents a server; `None` if it has no tools.
pub(super) fn agent_tool(name: &str, description: &str, tools: &[Arc<CatalogueTool>]) -> Option<RawJson> {
    if tools.is_empty() {
        return None;
    }
    let mut tool = json!({
        "name": name,
        "title": display_name(name),
        "description": describe(description, tools),
        "inputSchema": {
            "type": "object",
            "properties": properties(tools),
            "required": [MODE, "sessionId"],
        },
    });
    if tools.iter().all(|tool| tool.entry.annotations().read_only == Some(true)) {
        tool["annotations"] = json!({"readOnlyHint": true});
    }
    Some(RawJson::from(tool))
}

fn describe(description: &str, tools: &[Arc<CatalogueTool>]) -> String {
    let description = clipped(description, MAX_DESCRIPTION_BYTES);
    let description = match description.split_whitespace().collect::<Vec<_>>().join(" ") {
        words if words.is_empty() => words,
        words => format!("{}. ", words.trim_end_matches('.')),
    };
    let lines: Vec<String> = tools.iter().take(MAX_DESCRIBED).map(|tool| mode_line(tool)).collect();
    format!("{description}{}\n{}", include_str!("../agent.md").trim_end(), lines.join("\n"))
}

/// Describes one mode in a line.
fn mode_line(tool: &CatalogueTool) -> String {
    let required = tool.entry.input_schema().as_json().get("required").and_then(Value::as_array);
    let required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    let words = tool.entry.description().split_whitespace().collect::<Vec<_>>().join(" ");
    let words = clipped(&words, MAX_MODE_BYTES);
    format!("- {}({}) {words}", tool.id.name, required.join(", ")).trim_end().to_owned()
}

/// Merges the parameters of all tools, after those of the agent itself. The server checks which of them a
/// mode requires, because many clients ignore conditional schemas.
fn properties(tools: &[Arc<CatalogueTool>]) -> Map<String, Value> {
    let modes: Vec<&str> = tools.iter().map(|tool| tool.id.name.as_str()).collect();
    let mut parameters: IndexMap<&str, Vec<Value>> = IndexMap::new();
    let session =
        json!({"type": "string", "description": "The session: an id you were given, or a name of your own"});
    let context = json!({
        "type": "object",
        "properties": {"sessionId": {"type": "string"}, "workspaceId": {"type": "string"}},
        "description": "Where the call belongs",
    });
    parameters.insert(MODE, vec![json!({"type": "string", "enum": modes})]);
    parameters.insert("sessionId", vec![session]);
    parameters.insert("context", vec![context]);
    if tools.iter().any(|tool| declares(tool, MODE)) {
        let arguments =
            json!({"type": "object", "description": "The arguments of a tool that has a `mode` of its own"});
        parameters.insert(ARGUMENTS, vec![arguments]);
    }
    for tool in tools {
        let own = tool.entry.input_schema().as_json().get("properties").and_then(Value::as_object);
        for (name, schema) in own.into_iter().flatten().filter(|(name, _)| *name != MODE) {
            let variants = parameters.entry(name).or_default();
            if variants.len() > MAX_VARIANTS {
                continue;
            }
            let schema = standalone_schema(schema);
            if !variants.iter().any(|known| without_annotations(known) == without_annotations(&schema)) {
                variants.push(schema);
            }
        }
    }
    parameters.into_iter().map(|(name, variants)| (name.to_owned(), any_of(variants))).collect()
}

fn any_of(mut variants: Vec<Value>) -> Value {
    match variants.len() {
        1 => variants.remove(0),
        n_variants if n_variants <= MAX_VARIANTS => json!({"anyOf": variants}),
        _ => json!({}),
    }
}

/// Returns the schema of a parameter in a form that is valid outside its tool's schema.
fn standalone_schema(schema: &Value) -> Value {
    if has_member(schema, "$ref") || has_member(schema, "$dynamicRef") {
        // The referenced definition is not part of the merged schema.
        return match schema.get("description") {
            Some(description) => json!({"description": description}),
            None => json!({}),
        };
    }
    let mut schema = schema.clone();
    // A parameter that a single tool takes from a header is not one of the agent's.
    remove_everywhere(&mut schema, "x-mcp-header");
    schema
}

fn has_member(value: &Value, name: &str) -> bool {
    match value {
        Value::Object(members) => {
            members.iter().any(|(member, inner)| member == name || has_member(inner, name))
        }
        Value::Array(items) => items.iter().any(|item| has_member(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn remove_everywhere(value: &mut Value, name: &str) {
    match value {
        Value::Object(members) => {
            members.shift_remove(name);
            members.values_mut().for_each(|inner| remove_everywhere(inner, name));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remove_everywhere(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn without_annotations(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => members
            .iter()
            .filter(|(name, _)| !ANNOTATION_KEYWORDS.contains(&name.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        other => other.clone(),
    }
}
