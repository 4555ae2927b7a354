//! Prints values as YAML.

use pegboard_yaml::{YamlValue, plain_scalar};
use serde_json::Value;

use crate::edit::print::{MAX_WIDTH, PrintLayout};

/// Prints a key and its value, with lines indented like the key.
pub(super) fn entry(key: &str, value: &Value, layout: &PrintLayout) -> String {
    let key = text(key, ScalarContext::Key);
    if let Some(value) = short(value) {
        return format!("{key}: {value}");
    }
    let inner = layout.indented();
    format!("{key}:{}{}", begin(&inner), body(value, &inner))
}

/// Prints a list item with its dash.
pub(super) fn item(value: &Value, layout: &PrintLayout) -> String {
    let inner = PrintLayout { indent: format!("{}  ", layout.indent), ..layout.clone() };
    format!("- {}", body(value, &inner))
}

/// Prints a value; all lines but the first are indented.
pub(super) fn body(value: &Value, layout: &PrintLayout) -> String {
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

fn begin(layout: &PrintLayout) -> String {
    format!("{}{}", layout.lines.unwrap_or("\n"), layout.indent)
}

/// Prints a value on the line of its key, if it fits there.
pub(super) fn short(value: &Value) -> Option<String> {
    match value {
        Value::Object(entries) if entries.is_empty() => Some("{}".to_owned()),
        Value::Object(_) => None,
        Value::Array(items) => {
            let is_flat = !items.iter().any(|item| item.is_object() || item.is_array());
            let text = flow(value);
            (is_flat && text.len() <= MAX_WIDTH).then_some(text)
        }
        Value::String(value) => Some(text(value, ScalarContext::Line)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
    }
}

/// Prints a value in flow style.
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

/// Prints a string in flow style.
pub(in crate::edit) fn flow_text(value: &str) -> String {
    text(value, ScalarContext::Flow)
}

/// Context of a scalar, which decides what needs quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScalarContext {
    Key,
    Line,
    Flow,
}

/// Prints a string, with quotes where it would otherwise change its meaning.
fn text(text: &str, context: ScalarContext) -> String {
    if needs_no_quotes(text, context) { text.to_owned() } else { Value::from(text).to_string() }
}

fn needs_no_quotes(text: &str, context: ScalarContext) -> bool {
    let starts_well =
        |first: char| first.is_alphanumeric() || matches!(first, '/' | '.' | '_' | '$' | '~' | '-');
    let is_harmless = |each: char| {
        each.is_alphanumeric()
            || matches!(each, '/' | '.' | '_' | '-' | '$' | '~' | '+' | '=' | '@' | ':' | '%' | ';')
            || (context != ScalarContext::Flow && matches!(each, '{' | '}' | '?' | '&' | ','))
            || (context == ScalarContext::Line && matches!(each, ' ' | '(' | ')' | '\''))
    };
    // YAML 1.1 parsers read these as booleans and numbers.
    let is_yaml_1_1_literal = || {
        ["y", "n", "yes", "no", "on", "off"].iter().any(|word| text.eq_ignore_ascii_case(word))
            || text.starts_with(|first: char| first.is_ascii_digit() || first == '.')
    };
    let has_harmless_colons = match context {
        ScalarContext::Key => !text.contains(':'),
        ScalarContext::Line => !text.contains(": "),
        ScalarContext::Flow => !text.contains(':') || text.contains("://"),
    };
    let is_indicator =
        text == "-" || text.starts_with("- ") || text.starts_with("---") || text.starts_with("...");
    text.starts_with(starts_well)
        && text.chars().all(is_harmless)
        && !text.ends_with([':', ' '])
        && has_harmless_colons
        && !is_indicator
        && matches!(plain_scalar(text), YamlValue::Text(_))
        && !is_yaml_1_1_literal()
}
