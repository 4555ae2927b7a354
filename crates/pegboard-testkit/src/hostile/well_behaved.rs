//! Answers of a well-behaved server.

use serde_json::{Value, json};

use super::journal::Journal;

/// Returns the response to a message; `None` for a notification.
pub(super) fn answer(message: &Value, journal: &Journal) -> Option<Value> {
    let method = message["method"].as_str()?;
    journal.note(method);
    let id = message.get("id")?;
    let params = &message["params"];
    Some(match method {
        "initialize" => result(
            id,
            &json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": "hostile", "version": "1"},
            }),
        ),
        "ping" => result(id, &json!({})),
        "tools/list" => result(id, &json!({"tools": tools()})),
        "tools/call" if params["name"] == "echo" => {
            text(id, params["arguments"]["text"].as_str().unwrap_or(""))
        }
        "tools/call" if is_count(message) => {
            journal.note("count");
            text(id, "counted")
        }
        "tools/call" => error(id, -32602, "there is no such tool"),
        _ => error(id, -32601, "Method not found"),
    })
}

/// Returns `true` if a message calls the tool with the faults.
pub(super) fn is_count(message: &Value) -> bool {
    message["method"] == "tools/call" && message["params"]["name"] == "count"
}

pub(super) fn tools() -> Vec<Value> {
    vec![
        json!({
            "name": "echo",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
            "annotations": {"readOnlyHint": true},
        }),
        tool("count"),
    ]
}

pub(super) fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object"}})
}

pub(super) fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

pub(super) fn text(id: &Value, text: &str) -> Value {
    result(id, &json!({"content": [{"type": "text", "text": text}]}))
}

pub(super) fn error(id: &Value, code: i64, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

pub(super) fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}
