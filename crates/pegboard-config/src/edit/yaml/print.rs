//! How values are written in YAML.

use serde_json::Value;

use crate::edit::print::{Layout, MAX_WIDTH};
use crate::tree::{Value as Meaning, yaml::plain};

/// A key and its value, on lines that begin where the key does.
pub(super) fn entry(key: &str, value: &Value, layout: &Layout) -> String {
    let key = text(key, Place::Key);
    if let Some(value) = short(value) {
        return format!("{key}: {value}");
    }
    let inner = layout.deeper();
    format!("{key}:{}{}", begin(&inner), body(value, &inner))
}

/// A value behind its dash.
pub(super) fn item(value: &Value, layout: &Layout) -> String {
    let inner = Layout { indent: format!("{}  ", layout.indent), ..layout.clone() };
    format!("- {}", body(value, &inner))
}

/// A value by itself; its lines but for the first begin where it does.
pub(super) fn body(value: &Value, layout: &Layout) -> String {
    if let Some(text) = short(value) {
        return text;
    }
    let begin = begin(layout);
    match value {
        Value::Object(entries) => {
            let entries: Vec<String> = entries.iter().map(|(key, value)| entry(key, value, layout)).collect();
            entries.join(&begin)
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|value| item(value, layout)).collect();
            items.join(&begin)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => flow(value),
    }
}

fn begin(layout: &Layout) -> String {
    format!("{}{}", layout.lines.unwrap_or("\n"), layout.indent)
}

/// A value that is best written on the line of its key.
pub(super) fn short(value: &Value) -> Option<String> {
    match value {
        Value::Object(entries) if entries.is_empty() => Some("{}".to_owned()),
        Value::Object(_) => None,
        Value::Array(items) => {
            let is_flat = !items.iter().any(|item| item.is_object() || item.is_array());
            let text = flow(value);
            (is_flat && text.len() <= MAX_WIDTH).then_some(text)
        }
        Value::String(value) => Some(text(value, Place::Line)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
    }
}

/// A value between brackets.
pub(in crate::edit) fn flow(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(value) => flow_text(value),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(entries) => {
            let member = |(key, value): (&String, &Value)| format!("{}: {}", flow_text(key), flow(value));
            format!("{{{}}}", entries.iter().map(member).collect::<Vec<_>>().join(", "))
        }
    }
}

/// A text between brackets.
pub(in crate::edit) fn flow_text(value: &str) -> String {
    text(value, Place::Flow)
}

/// Where a text stands, which decides what it may hold without quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Key,
    Line,
    Flow,
}

/// A text, in quotes where it would mean something else without.
fn text(text: &str, place: Place) -> String {
    if is_plain(text, place) { text.to_owned() } else { Value::from(text).to_string() }
}

fn is_plain(text: &str, place: Place) -> bool {
    let starts_well =
        |first: char| first.is_alphanumeric() || matches!(first, '/' | '.' | '_' | '$' | '~' | '-');
    let is_harmless = |each: char| {
        each.is_alphanumeric()
            || matches!(each, '/' | '.' | '_' | '-' | '$' | '~' | '+' | '=' | '@' | ':' | '%' | ';')
            || (place != Place::Flow && matches!(each, '{' | '}' | '?' | '&' | ','))
            || (place == Place::Line && matches!(each, ' ' | '(' | ')' | '\''))
    };
    // Older readers take these for true and false.
    let is_word_of_old = || {
        ["y", "n", "yes", "no", "on", "off"].iter().any(|word| text.eq_ignore_ascii_case(word))
            || text.starts_with(|first: char| first.is_ascii_digit() || first == '.')
    };
    let has_harmless_colons = match place {
        Place::Key => !text.contains(':'),
        Place::Line => !text.contains(": "),
        Place::Flow => !text.contains(':') || text.contains("://"),
    };
    let is_sign = text == "-" || text.starts_with("- ") || text.starts_with("---") || text.starts_with("...");
    text.starts_with(starts_well)
        && text.chars().all(is_harmless)
        && !text.ends_with([':', ' '])
        && has_harmless_colons
        && !is_sign
        && matches!(plain(text), Meaning::Text(_))
        && !is_word_of_old()
}
