//! Literals in validation messages.

use std::fmt::Write as _;

use serde_json::Value;

/// Maximum length of a quoted value.
const MAX_QUOTED_CHARS: usize = 120;
const MAX_QUOTED_OPTIONS: usize = 50;

/// Spelling of `true`, `false` and `null`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LiteralStyle {
    Json,
    Python,
}

/// Formats a list of values: `['red', 'green']`.
pub(super) fn literal_list(values: &[Value], style: LiteralStyle) -> String {
    let mut shown: Vec<String> =
        values.iter().take(MAX_QUOTED_OPTIONS).map(|value| literal(value, style)).collect();
    if values.len() > MAX_QUOTED_OPTIONS {
        shown.push(format!("… {} more", values.len() - MAX_QUOTED_OPTIONS));
    }
    format!("[{}]", shown.join(", "))
}

/// Formats a value: strings in single quotes, long values truncated.
pub(super) fn literal(value: &Value, style: LiteralStyle) -> String {
    let mut text = String::new();
    write_literal(&mut text, value, style);
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn write_literal(text: &mut String, value: &Value, style: LiteralStyle) {
    // Only the first characters are kept, so a long value need not be printed to its end.
    if text.len() > 4 * MAX_QUOTED_CHARS {
        return;
    }
    match (value, style) {
        (Value::Null, LiteralStyle::Python) => text.push_str("None"),
        (Value::Bool(true), LiteralStyle::Python) => text.push_str("True"),
        (Value::Bool(false), LiteralStyle::Python) => text.push_str("False"),
        (Value::String(string), _) => write_string(text, string),
        (Value::Array(items), _) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                write_literal(text, item, style);
            }
            text.push(']');
        }
        (Value::Object(members), _) => {
            text.push('{');
            for (index, (name, member)) in members.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { ", " });
                write_string(text, name);
                text.push_str(": ");
                write_literal(text, member, style);
            }
            text.push('}');
        }
        (Value::Null | Value::Bool(_) | Value::Number(_), _) => {
            let _ = write!(text, "{value}");
        }
    }
}

/// Writes a string in single quotes, or in double ones if that saves an escape, with control characters
/// escaped.
fn write_string(text: &mut String, string: &str) {
    let quote = if string.contains('\'') && !string.contains('"') { '"' } else { '\'' };
    text.push(quote);
    for character in string.chars().take(MAX_QUOTED_CHARS + 1) {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            _ if character == quote => {
                text.push('\\');
                text.push(quote);
            }
            _ if character.is_control() => {
                let _ = write!(text, "\\x{:02x}", u32::from(character));
            }
            _ => text.push(character),
        }
    }
    text.push(quote);
}
