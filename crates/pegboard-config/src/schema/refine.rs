//! Adds constraints that the settings types cannot express: text patterns and alternative spellings.

use serde_json::{Map, Value, json};

/// Milliseconds, or numbers with units.
const DURATION: &str = r"([0-9.]+|([0-9.]+\s*([yY]|[mM][oO]|[wW]|[dD]|[hH]|[mM]|[sS]|[mM][sS])\s*)+)";
/// Alternative spellings of a server's type.
const KINDS: [(&str, &str); 5] = [
    ("local", "Same as `stdio`."),
    ("ws", "Same as `websocket`."),
    ("streamable-http", "Same as `http`."),
    ("streamableHttp", "Same as `http`."),
    ("streamable_http", "Same as `http`."),
];
/// URL settings with their definitions and prefixes.
const ADDRESSES: [(&str, &str, &str); 5] = [
    ("McpServer", "url", "(https?|wss?)://"),
    ("OpenApiSpec", "baseUrl", "https?://"),
    ("RestTool", "url", "https?://"),
    ("ModelProvider", "baseUrl", "https?://"),
    ("Telemetry", "otlpEndpoint", "https?://"),
];

/// Adds the constraints.
pub(super) fn refine(definitions: &mut Map<String, Value>) {
    definitions["Duration"]["pattern"] = json!(format!(r"^\s*{DURATION}\s*$"));
    definitions["CacheDuration"]["pattern"] = json!(format!(r"^\s*({DURATION}|-[0-9.]+|[oO][fF][fF])\s*$"));
    if let Some(Value::Array(kinds)) = definitions["ServerType"].get_mut("oneOf") {
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
            "properties": {"path": {"type": "string"}, "is": {"description": "JSON Schema that the value must match."}},
            "required": ["path", "is"],
            "additionalProperties": false,
        },
    ]);
}

/// Returns the schema of a chain step's input.
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
