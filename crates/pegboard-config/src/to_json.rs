//! Converts a tree to plain JSON without spans.

use serde_json::Value as Json;

use crate::tree::{Node, Value, ValueOrigin};

/// Converts a value as written, in file order.
pub(crate) fn to_json(node: &Node) -> Json {
    let is_there = |node: &Node| node.origin != ValueOrigin::LeftOut;
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(number) => Json::Number(number.clone()),
        Value::Text(text) => Json::String(text.clone()),
        Value::List(items) => items.iter().filter(|item| is_there(item)).map(to_json).collect(),
        Value::Map(entries) => {
            let kept = entries.iter().filter(|entry| is_there(&entry.value));
            Json::Object(kept.map(|entry| (entry.key.clone(), to_json(&entry.value))).collect())
        }
    }
}
