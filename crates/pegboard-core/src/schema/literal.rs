//! Values as messages quote them.

use std::fmt::Write as _;

use serde_json::Value;

/// How much of a value or of a list of options a message quotes.
const MAX_QUOTED_CHARS: usize = 120;
const MAX_QUOTED_OPTIONS: usize = 50;

/// How the words for `true`, `false` and `null` are spelt.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Literal {
    Json,
    Python,
}

/// A list of values as a message quotes it: `['red', 'green']`.
pub(super) fn literal_list(values: &[Value], style: Literal) -> String {
    let mut shown: Vec<String> =
        values.iter().take(MAX_QUOTED_OPTIONS).map(|value| literal(value, style)).collect();
    if values.len() > MAX_QUOTED_OPTIONS {
        shown.push(format!("… {} more", values.len() - MAX_QUOTED_OPTIONS));
    }
    format!("[{}]", shown.join(", "))
}

/// A value as a message quotes it: strings in single quotes, long ones cut.
pub(super) fn literal(value: &Value, style: Literal) -> String {
    let mut text = String::new();
    write_literal(&mut text, value, style);
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn write_literal(text: &mut String, value: &Value, style: Literal) {
    // A value is quoted to its first characters only: there is no use in printing a long one to its end.
    if text.len() > 4 * MAX_QUOTED_CHARS {
        return;
    }
    match (value, style) {
        (Value::Null, Literal::Python) => text.push_str("None"),
        (Value::Bool(true), Literal::Python) => text.push_str("True"),
        (Value::Bool(false), Literal::Python) => text.push_str("False"),
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

/// A string in single quotes, or in double ones if that saves an escape, with control characters escaped.
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
