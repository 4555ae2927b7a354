//! A server as the one tool that a list has of it.

use std::sync::Arc;

use indexmap::IndexMap;
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_runtime::catalogue::Tool;
use pegboard_runtime::names::display_name;
use serde_json::{Map, Value, json};

use super::{ARGUMENTS, MODE, declares};

/// How much is said of a server.
const MAX_DESCRIPTION_BYTES: usize = 1024;
/// How much is said of each mode.
const MAX_MODE_BYTES: usize = 120;
/// How many modes are described; all are named.
const MAX_DESCRIBED: usize = 100;
/// How many tools may mean different things by one parameter for all to be told.
const MAX_MEANINGS: usize = 8;
/// What says something of a schema, and nothing of the values that it takes.
const REMARKS: [&str; 5] = ["title", "description", "default", "examples", "$comment"];

/// The tool that stands for a server with these tools; `None` if it has none.
pub(super) fn listed(name: &str, description: &str, tools: &[Arc<Tool>]) -> Option<RawJson> {
    if tools.is_empty() {
        return None;
    }
    let mut listed = json!({
        "name": name,
        "title": display_name(name),
        "description": described(description, tools),
        "inputSchema": {
            "type": "object",
            "properties": properties(tools),
            "required": [MODE, "sessionId"],
        },
    });
    if tools.iter().all(|tool| tool.entry.annotations().read_only == Some(true)) {
        listed["annotations"] = json!({"readOnlyHint": true});
    }
    Some(RawJson::from(listed))
}

fn described(description: &str, tools: &[Arc<Tool>]) -> String {
    let description = clipped(description, MAX_DESCRIPTION_BYTES);
    let description = match description.split_whitespace().collect::<Vec<_>>().join(" ") {
        words if words.is_empty() => words,
        words => format!("{}. ", words.trim_end_matches('.')),
    };
    let lines: Vec<String> = tools.iter().take(MAX_DESCRIBED).map(|tool| line(tool)).collect();
    format!("{description}{}\n{}", include_str!("../agent.md").trim_end(), lines.join("\n"))
}

/// One mode in a line.
fn line(tool: &Tool) -> String {
    let required = tool.entry.input_schema().as_json().get("required").and_then(Value::as_array);
    let required: Vec<&str> = required.into_iter().flatten().filter_map(Value::as_str).collect();
    let words = tool.entry.description().split_whitespace().collect::<Vec<_>>().join(" ");
    let words = clipped(&words, MAX_MODE_BYTES);
    format!("- {}({}) {words}", tool.id.name, required.join(", ")).trim_end().to_owned()
}

/// The parameters of all tools, after those of the agent itself. Which of them a mode needs is for its server to say,
/// since many clients do not read conditions in a schema.
fn properties(tools: &[Arc<Tool>]) -> Map<String, Value> {
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
            let meanings = parameters.entry(name).or_default();
            if meanings.len() > MAX_MEANINGS {
                continue;
            }
            let schema = lifted(schema);
            if !meanings.iter().any(|known| without_remarks(known) == without_remarks(&schema)) {
                meanings.push(schema);
            }
        }
    }
    parameters.into_iter().map(|(name, meanings)| (name.to_owned(), any_of(meanings))).collect()
}

fn any_of(mut meanings: Vec<Value>) -> Value {
    match meanings.len() {
        1 => meanings.remove(0),
        n_meanings if n_meanings <= MAX_MEANINGS => json!({"anyOf": meanings}),
        _ => json!({}),
    }
}

/// The schema of a parameter outside the schema that it stands in.
fn lifted(schema: &Value) -> Value {
    if has_member(schema, "$ref") || has_member(schema, "$dynamicRef") {
        // What it refers to stays behind.
        return match schema.get("description") {
            Some(description) => json!({"description": description}),
            None => json!({}),
        };
    }
    let mut schema = schema.clone();
    // A parameter that one tool takes from a header is not one of the agent's.
    take_out(&mut schema, "x-mcp-header");
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

fn take_out(value: &mut Value, name: &str) {
    match value {
        Value::Object(members) => {
            members.shift_remove(name);
            members.values_mut().for_each(|inner| take_out(inner, name));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| take_out(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn without_remarks(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => members
            .iter()
            .filter(|(name, _)| !REMARKS.contains(&name.as_str()))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        other => other.clone(),
    }
}
