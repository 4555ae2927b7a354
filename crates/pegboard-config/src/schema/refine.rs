//! What the types of settings cannot say of themselves: forms of texts, and words that mean the same.

use serde_json::{Map, Value, json};

/// A number of milliseconds, or numbers with their units.
const DURATION: &str = r"([0-9.]+|([0-9.]+\s*([yY]|[mM][oO]|[wW]|[dD]|[hH]|[mM]|[sS]|[mM][sS])\s*)+)";
/// Words of a server's type that mean the same as others.
const KINDS: [(&str, &str); 5] = [
    ("local", "The same as stdio."),
    ("ws", "The same as websocket."),
    ("streamable-http", "The same as http."),
    ("streamableHttp", "The same as http."),
    ("streamable_http", "The same as http."),
];
/// Addresses, by the definitions and names that they stand under, and how they begin.
const ADDRESSES: [(&str, &str, &str); 5] = [
    ("McpServer", "url", "(https?|wss?)://"),
    ("OpenApiSpec", "baseUrl", "https?://"),
    ("RestTool", "url", "https?://"),
    ("ModelProvider", "baseUrl", "https?://"),
    ("Telemetry", "otlpEndpoint", "https?://"),
];

/// Says it.
pub(super) fn refine(definitions: &mut Map<String, Value>) {
    definitions["Duration"]["pattern"] = json!(format!(r"^\s*{DURATION}\s*$"));
    definitions["CacheDuration"]["pattern"] = json!(format!(r"^\s*({DURATION}|-[0-9.]+|[oO][fF][fF])\s*$"));
    if let Some(Value::Array(kinds)) = definitions["Kind"].get_mut("oneOf") {
        kinds.extend(KINDS.map(|(kind, description)| json!({"const": kind, "description": description})));
    }
    for (definition, name, beginning) in ADDRESSES {
        let address = &mut definitions[definition]["properties"][name];
        let kind = if address["type"].is_array() { address["type"].take() } else { json!("string") };
        *address = json!({
            "description": address["description"].take(),
            "type": kind,
            "pattern": format!(r"^\s*{beginning}|\$\{{"),
        });
    }
    let step = &mut definitions["ChainStep"];
    step["anyOf"] = json!([{"required": ["tool_name"]}, {"required": ["tool"]}]);
    for name in ["input_mapping", "with"] {
        step["properties"][name]["additionalProperties"] = source();
    }
    step["properties"]["when"]["anyOf"] = json!([
        {"type": ["string", "null"]},
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "is": {"description": "The schema of what must be there."}},
            "required": ["path", "is"],
            "additionalProperties": false,
        },
    ]);
}

/// Where an input of a step comes from.
fn source() -> Value {
    let one = |name: &str, schema: Value| json!({"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": false});
    let mut path = one("$path", json!({"type": "string"}));
    path["properties"]["default"] = json!(true);
    json!({
        "anyOf": [
            {"type": ["string", "number", "boolean"]},
            one("$const", json!(true)),
            one("$template", json!({"type": "string"})),
            path,
        ],
    })
}
