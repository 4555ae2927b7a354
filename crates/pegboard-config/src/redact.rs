//! Redacts secrets in values.

use std::ops::Range;

use pegboard_core::redact::is_secret_name;
use serde_json::Value as Json;

use crate::source::holds_secrets;

/// Replacement of a secret.
pub(crate) const MASK: &str = "***";

/// Minimum length of a user name in a URL that may be a token.
const MIN_TOKEN_BYTES: usize = 20;

/// Redacts a value. `keys` lead to it. References to variables are kept.
pub(crate) fn redact_value(value: &Json, keys: &[&str]) -> Json {
    let is_secret =
        keys.iter().any(|key| holds_secrets(key)) || keys.last().is_some_and(|key| is_secret_name(key));
    match value {
        Json::Object(entries) => {
            let redact_entry = |(key, value): (&String, &Json)| {
                let keys: Vec<&str> = keys.iter().copied().chain([key.as_str()]).collect();
                (key.clone(), redact_value(value, &keys))
            };
            Json::Object(entries.iter().map(redact_entry).collect())
        }
        Json::Array(items) => {
            let mut is_next_secret = false;
            let mut shown = Vec::with_capacity(items.len());
            for item in items {
                let is_option = item.as_str().is_some_and(|text| text.starts_with('-'));
                shown.push(match item {
                    Json::String(text) if is_next_secret && !is_option => Json::from(redact_text(text)),
                    other => redact_value(other, keys),
                });
                is_next_secret = item.as_str().is_some_and(takes_secret_value);
            }
            Json::Array(shown)
        }
        Json::String(text) if is_secret => Json::from(redact_text(text)),
        Json::String(text) => Json::from(redact_credentials(text)),
        Json::Number(_) | Json::Bool(_) if is_secret => Json::from(MASK),
        Json::Null | Json::Number(_) | Json::Bool(_) => value.clone(),
    }
}

/// Redacts a text except for the names of variables.
fn redact_text(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        shown.push_str(if at > 0 { MASK } else { "" });
        let reference = &rest[at..];
        let name_end = reference.find([':', '}']).unwrap_or(reference.len());
        let end = reference.find('}').map_or(reference.len(), |end| end + 1);
        shown.push_str(&reference[..name_end.min(end)]);
        // The rest of a reference is a path or an ID, or may be a secret default.
        let names_something = ["${file", "${env", "${input", "${keyring"].contains(&&reference[..name_end]);
        shown.push_str(match (names_something, name_end + 1 < end) {
            (true, _) => &reference[name_end..end],
            (false, true) => ":***}",
            (false, false) => "}",
        });
        rest = &reference[end..];
    }
    shown.push_str(if rest.is_empty() { "" } else { MASK });
    shown
}

/// Redacts the passwords of URLs and the values of secret options: `https://ada:***@example.com/?token=***`,
/// `--token=***`.
fn redact_credentials(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    for hidden in secret_ranges(text) {
        shown.push_str(&text[done..hidden.start]);
        shown.push_str(&redact_text(&text[hidden.clone()]));
        done = hidden.end;
    }
    shown.push_str(&text[done..]);
    shown
}

/// Returns the ranges of a URL's password and of the values of secret options and parameters.
pub(crate) fn secret_ranges(text: &str) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    let mut from = 0;
    if let Some(start) = text.find("://").map(|at| at + 3) {
        let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |end| start + end);
        if let Some(at) = text[start..end].rfind('@').map(|at| start + at) {
            match text[start..at].find(':').map(|colon| start + colon) {
                Some(colon) => hidden.push(colon + 1..at),
                // Some services take a token as the name.
                None if at - start >= MIN_TOKEN_BYTES => hidden.push(start..at),
                None => {}
            }
            from = at;
        }
    }
    while let Some(at) = text[from..].find('=').map(|at| from + at) {
        let name_start = text[from..at].rfind(['?', '&', ' ', ';']).map_or(from, |start| from + start + 1);
        let end = text[at..].find(['&', ' ', ';', '#']).map_or(text.len(), |end| at + end);
        if is_secret_name(&text[name_start..at]) {
            hidden.push(at + 1..end);
        }
        from = end;
    }
    hidden
}

/// Returns `true` if the argument is an option with a secret value: `--api-key`.
pub(crate) fn takes_secret_value(word: &str) -> bool {
    word.starts_with('-') && !word.contains('=') && is_secret_name(word)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn secrets_are_redacted() {
        for (value, keys, expected) in [
            (json!("5m"), vec!["cache"], json!("5m")),
            (json!({"KEY": "abc", "PORT": 1}), vec!["env"], json!({"KEY": "***", "PORT": "***"})),
            (json!("Bearer ${TOKEN}"), vec!["headers", "Authorization"], json!("***${TOKEN}")),
            (json!("${TOKEN:-sk-123}x"), vec!["apiKey"], json!("${TOKEN:***}***")),
            (json!("${file:/run/key}"), vec!["apiKey"], json!("${file:/run/key}")),
            (json!("${env:A}"), vec!["apiKey"], json!("${env:A}")),
            (json!("${A"), vec!["apiKey"], json!("${A}")),
            (json!("hunter2"), vec!["dbPassword"], json!("***")),
            (
                json!("https://ada:pw@example.com/a?b=c&token=x#d"),
                vec!["url"],
                json!("https://ada:***@example.com/a?b=c&token=***#d"),
            ),
            (json!("https://example.com/@a:b"), vec!["url"], json!("https://example.com/@a:b")),
            (json!("https://ada@example.com/"), vec!["url"], json!("https://ada@example.com/")),
            (
                json!("https://ghp_0123456789abcdef0123@example.com/"),
                vec!["url"],
                json!("https://***@example.com/"),
            ),
            (
                json!(["--port", "1", "--api-key", "abc", "--token=${T}", "--password=x y"]),
                vec!["args"],
                json!(["--port", "1", "--api-key", "***", "--token=${T}", "--password=*** y"]),
            ),
        ] {
            assert_eq!(redact_value(&value, &keys), expected, "{value}");
        }
    }
}
