//! Prints values as JSON.

use serde_json::Value;

use super::print::{MAX_WIDTH, PrintLayout};

/// Prints a string with quotes.
pub(super) fn text(text: &str) -> String {
    Value::from(text).to_string()
}

pub(super) fn value(value: &Value, layout: &PrintLayout) -> String {
    let one_line = PrintLayout { lines: None, ..layout.clone() };
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
            let inner = layout.indented();
            enclose('[', items.iter().map(|item| self::value(item, &inner)), ']', layout)
        }
        Value::Object(entries) => {
            let inner = layout.indented();
            let members = entries
                .iter()
                .map(|(key, value)| format!("{}:{}{}", text(key), layout.space, self::value(value, &inner)));
            enclose('{', members, '}', layout)
        }
    }
}

fn enclose(open: char, members: impl Iterator<Item = String>, close: char, layout: &PrintLayout) -> String {
    let members: Vec<String> = members.collect();
    match layout.lines {
        None => format!("{open}{}{close}", members.join(&format!(",{}", layout.space))),
        Some(newline) => {
            let begin = format!("{newline}{}", layout.indented().indent);
            let members = members.join(&format!(",{begin}"));
            format!("{open}{begin}{members}{newline}{}{close}", layout.indent)
        }
    }
}
