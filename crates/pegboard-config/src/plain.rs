//! A tree as plain JSON, without the places of its values.

use serde_json::Value as Json;

use crate::tree::{Node, Origin, Value};

/// A value as it was written, in the order of the file.
pub(crate) fn plain(node: &Node) -> Json {
    let is_there = |node: &Node| node.origin != Origin::LeftOut;
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(number) => Json::Number(number.clone()),
        Value::Text(text) => Json::String(text.clone()),
        Value::List(items) => items.iter().filter(|item| is_there(item)).map(plain).collect(),
        Value::Map(entries) => {
            let kept = entries.iter().filter(|entry| is_there(&entry.value));
            Json::Object(kept.map(|entry| (entry.key.clone(), plain(&entry.value))).collect())
        }
    }
}
