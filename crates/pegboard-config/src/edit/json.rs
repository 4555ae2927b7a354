//! How values are written in JSON.

use serde_json::Value;

use super::print::{Layout, MAX_WIDTH};

/// A text in quotes.
pub(super) fn text(text: &str) -> String {
    Value::from(text).to_string()
}

pub(super) fn value(value: &Value, layout: &Layout) -> String {
    let one_line = Layout { lines: None, ..layout.clone() };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        Value::Object(entries) if entries.is_empty() => "{}".to_owned(),
        Value::Array(items) => {
            let is_flat = !items.iter().any(|item| item.is_array() || item.is_object());
            let flat = || items.iter().map(|item| self::value(item, &one_line));
            let short = format!("[{}]", flat().collect::<Vec<_>>().join(&format!(",{}", layout.space)));
            if layout.lines.is_none() || (is_flat && short.len() <= MAX_WIDTH) {
                return short;
            }
            let inner = layout.deeper();
            enclose('[', items.iter().map(|item| self::value(item, &inner)), ']', layout)
        }
        Value::Object(entries) => {
            let inner = layout.deeper();
            let members = entries
                .iter()
                .map(|(key, value)| format!("{}:{}{}", text(key), layout.space, self::value(value, &inner)));
            enclose('{', members, '}', layout)
        }
    }
}

fn enclose(open: char, members: impl Iterator<Item = String>, close: char, layout: &Layout) -> String {
    let members: Vec<String> = members.collect();
    match layout.lines {
        None => format!("{open}{}{close}", members.join(&format!(",{}", layout.space))),
        Some(newline) => {
            let begin = format!("{newline}{}", layout.deeper().indent);
            let members = members.join(&format!(",{begin}"));
            format!("{open}{begin}{members}{newline}{}{close}", layout.indent)
        }
    }
}
