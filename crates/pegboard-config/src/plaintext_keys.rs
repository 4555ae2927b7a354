//! Finds keys that are written into a file instead of a variable.

use pegboard_core::redact::is_secret_name;
use serde_json::Value as Json;

use crate::redact::{secret_ranges, takes_secret_value};

/// Returns the paths of plaintext keys in a value: `env.GITHUB_TOKEN`, `url`, `args`.
pub(crate) fn plaintext_keys(value: &Json) -> Vec<String> {
    let mut search = KeySearch { path: Vec::new(), found: Vec::new() };
    search.walk(value, ValueMeaning::Unknown);
    search.found.dedup();
    search.found
}

/// Meaning of a value, as far as its place tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueMeaning {
    /// The value is a key.
    Key,
    /// The value may contain one.
    Unknown,
}

struct KeySearch<'v> {
    path: Vec<&'v str>,
    found: Vec<String>,
}

impl<'v> KeySearch<'v> {
    fn walk(&mut self, value: &'v Json, meaning: ValueMeaning) {
        match value {
            Json::Object(entries) => {
                for (key, value) in entries {
                    let is_key = is_secret_name(key)
                        || key.to_uppercase().ends_with("KEY")
                        || self.path.last() == Some(&"credentials");
                    let is_text = value.is_string() || self.path.last() == Some(&"credentials");
                    self.path.push(key);
                    self.walk(value, if is_key && is_text { ValueMeaning::Key } else { meaning });
                    self.path.pop();
                }
            }
            Json::Array(items) => {
                let mut is_next_key = false;
                for item in items {
                    let text = item.as_str().unwrap_or_default();
                    let is_key = is_next_key && !text.starts_with('-');
                    self.walk(item, if is_key { ValueMeaning::Key } else { meaning });
                    is_next_key = takes_secret_value(text);
                }
            }
            Json::String(text) if is_plaintext_key(text, meaning) => self.found.push(self.path.join(".")),
            Json::String(_) | Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }
}

fn is_plaintext_key(text: &str, meaning: ValueMeaning) -> bool {
    let is_plain = |text: &str| !text.is_empty() && !text.contains("${");
    match meaning {
        ValueMeaning::Key => is_plain(text),
        ValueMeaning::Unknown => secret_ranges(text).into_iter().any(|range| is_plain(&text[range])),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_in_names_urls_and_arguments_are_found() {
        for (value, expected) in [
            (json!({"env": {"GITHUB_TOKEN": "ghp_1"}}), vec!["env.GITHUB_TOKEN"]),
            (
                json!({"env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}", "LEVEL": "debug", "EMPTY_TOKEN": ""}}),
                vec![],
            ),
            (json!({"env": {"OPENAIKEY": "sk-1"}}), vec!["env.OPENAIKEY"]),
            (json!({"env": {"DATABASE_URL": "postgres://ada:pw@db/x"}}), vec!["env.DATABASE_URL"]),
            (json!({"env": {"DATABASE_URL": "postgres://ada:${PW}@db/x"}}), vec![]),
            (json!({"url": "https://ada:pw@example.com/"}), vec!["url"]),
            (json!({"url": "https://ghp_0123456789abcdef0123@example.com/"}), vec!["url"]),
            (json!({"url": "https://ada@example.com/"}), vec![]),
            (json!({"url": "https://example.com/?api_key=1"}), vec!["url"]),
            (json!({"headers": {"Authorization": "Bearer x"}}), vec!["headers.Authorization"]),
            (json!({"args": ["--token", "x", "--port", "1"]}), vec!["args"]),
            (json!({"args": ["--token", "${T}"]}), vec![]),
            (
                json!({"credentials": {"basic": {"username": "a", "password": "b"}}}),
                vec!["credentials.basic.username", "credentials.basic.password"],
            ),
            (json!({"openai": {"apiKey": "sk-1"}}), vec!["openai.apiKey"]),
        ] {
            assert_eq!(plaintext_keys(&value), expected, "{value}");
        }
    }
}
