//! A tool as `get_tools` describes it.

use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_runtime::catalogue::CatalogueTool;
use pegboard_runtime::names::display_name;
use serde_json::{Value, json};

use crate::meta::summary_line;

/// Maximum length of a description without schema.
const MAX_SUMMARY_BYTES: usize = 160;
/// Maximum length of the line of a search hit.
const MAX_LINE_BYTES: usize = 100;
/// Parameters that are addressed to the runtime and not to the tool.
const CONTEXT_PARAMETERS: [&str; 2] = ["context", "workspaceContext"];

/// Name and one line, for a search hit that may not be the right one.
pub(super) fn brief(tool: &CatalogueTool) -> Value {
    json!({"name": &*tool.agent_mode_name, "description": summary_line(tool.entry.description(), MAX_LINE_BYTES)})
}

/// Name and short description.
pub(super) fn compact(tool: &CatalogueTool) -> Value {
    let description = tool.entry.description().split_whitespace().collect::<Vec<_>>().join(" ");
    json!({
        "name": &*tool.agent_mode_name,
        "description": clipped(&description, MAX_SUMMARY_BYTES),
        "tool": tool.id,
    })
}

/// Full description, with all that a call needs.
pub(super) fn full(tool: &CatalogueTool) -> Value {
    let definition = tool.entry.definition();
    let title = tool.entry.title().map_or_else(|| display_name(tool.id.name.as_str()), str::to_owned);
    let mut entry = json!({
        "name": &*tool.agent_mode_name,
        "title": title,
        "description": tool.entry.description(),
        "inputSchema": without_context_parameters(definition.get("inputSchema").as_ref()),
    });
    if let Some(annotations) = definition.get("annotations") {
        entry["annotations"] = annotations.to_value();
    }
    if let Some(instructions) = tool.instructions() {
        entry["instructions"] = instructions.into();
    }
    entry["tool"] = json!(tool.id);
    entry
}

/// Returns the input schema without parameters for the runtime.
fn without_context_parameters(schema: Option<&RawJson>) -> Value {
    let mut schema = schema.map_or_else(|| json!({"type": "object"}), RawJson::to_value);
    for name in CONTEXT_PARAMETERS {
        let declared = schema.get("properties").and_then(|properties| properties.get(name));
        if !declared.is_some_and(is_call_context) {
            continue;
        }
        if let Some(properties) = schema["properties"].as_object_mut() {
            properties.shift_remove(name);
        }
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|required| required != name);
        }
    }
    if let Some(members) = schema.as_object_mut()
        && members.get("required").and_then(Value::as_array).is_some_and(Vec::is_empty)
    {
        members.shift_remove("required");
    }
    schema
}

/// Returns `true` if a parameter is the call context of the runtime. A tool may have a different one of the
/// same name.
fn is_call_context(declared: &Value) -> bool {
    let is_object = declared.get("type").is_none_or(|kind| kind == "object");
    let members = declared.get("properties").and_then(Value::as_object);
    let has_context_keys = |members: &serde_json::Map<String, Value>| {
        members.is_empty() || members.contains_key("sessionId") || members.contains_key("workspaceId")
    };
    is_object && members.is_none_or(has_context_keys)
}
