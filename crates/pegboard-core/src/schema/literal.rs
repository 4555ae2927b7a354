//! Literals in validation messages.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

/// Maximum length of a quoted value.
const MAX_QUOTED_CHARS: usize = 120;
/// Maximum number of options in a list, and length from which on no further one is added.
const MAX_QUOTED_OPTIONS: usize = 50;
const MAX_LIST_CHARS: usize = 1_000;

/// Spelling of `true`, `false` and `null`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LiteralStyle {
    Json,
    Python,
}

/// Formats a list of values: `['red', 'green']`.
pub(super) fn literal_list(values: &[Value], style: LiteralStyle) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut n_chars = 0;
    for value in values.iter().take(MAX_QUOTED_OPTIONS) {
        if n_chars > MAX_LIST_CHARS {
            break;
        }
        let text = literal(value, style);
        n_chars += text.chars().count();
        shown.push(text);
    }
    if values.len() > shown.len() {
        shown.push(format!("… {} more", values.len() - shown.len()));
    }
    format!("[{}]", shown.join(", "))
}

/// Formats a value: strings in single quotes, long values truncated.
pub(super) fn literal(value: &Value, style: LiteralStyle) -> String {
    let mut text = String::new();
    write_literal(&mut text, value, style);
    shortened(&text, MAX_QUOTED_CHARS).into_owned()
}

/// Truncates a text to this number of characters.
pub(super) fn shortened(text: &str, max_chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
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
