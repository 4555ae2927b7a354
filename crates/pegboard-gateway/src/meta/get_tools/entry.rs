//! One tool as `get_tools` tells it.

use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use pegboard_runtime::catalogue::Tool;
use pegboard_runtime::names::display_name;
use serde_json::{Value, json};

/// How much is said of a tool without its schema.
const MAX_SHORT_BYTES: usize = 160;
/// What callers say to the runtime, and not to the tool.
const FOR_THE_RUNTIME: [&str; 2] = ["context", "workspaceContext"];

/// What a tool is called and what it is for.
pub(super) fn compact(tool: &Tool) -> Value {
    let description = tool.entry.description().split_whitespace().collect::<Vec<_>>().join(" ");
    json!({
        "name": &*tool.agent_mode_name,
        "description": clipped(&description, MAX_SHORT_BYTES),
        "tool": tool.id,
    })
}

/// All that is needed to call it.
pub(super) fn full(tool: &Tool) -> Value {
    let definition = tool.entry.definition();
    let title = tool.entry.title().map_or_else(|| display_name(tool.id.name.as_str()), str::to_owned);
    let mut entry = json!({
        "name": &*tool.agent_mode_name,
        "title": title,
        "description": tool.entry.description(),
        "inputSchema": shown(definition.get("inputSchema").as_ref()),
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

/// An input schema without what is said to the runtime.
fn shown(schema: Option<&RawJson>) -> Value {
    let mut schema = schema.map_or_else(|| json!({"type": "object"}), RawJson::to_value);
    for name in FOR_THE_RUNTIME {
        let declared = schema.get("properties").and_then(|properties| properties.get(name));
        if !declared.is_some_and(is_for_the_runtime) {
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

/// Whether a `context` is the one that says where a call belongs. A tool may have another of its own by that name.
fn is_for_the_runtime(declared: &Value) -> bool {
    let is_object = declared.get("type").is_none_or(|kind| kind == "object");
    let members = declared.get("properties").and_then(Value::as_object);
    let says_where = |members: &serde_json::Map<String, Value>| {
        members.is_empty() || members.contains_key("sessionId") || members.contains_key("workspaceId")
    };
    is_object && members.is_none_or(says_where)
}
