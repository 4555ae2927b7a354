//! Finds keys that are written into a file instead of a variable.

use std::ops::Range;

use pegboard_core::redact::is_secret_name;
use serde_json::Value as Json;

use crate::redact::{secret_ranges, takes_secret_value};

/// Returns the paths of plaintext keys in a value: `env.GITHUB_TOKEN`, `url`, `args`.
pub(crate) fn plaintext_keys(value: &Json) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    replace_plaintext_keys(value, &mut |path, _| {
        found.push(path.join("."));
        None
    });
    found.dedup();
    found
}

/// Replaces plaintext keys with what `replace` returns for their path and text. Returns the changed values with their
/// paths; a list is one value.
pub(crate) fn replace_plaintext_keys(
    value: &Json,
    replace: &mut dyn FnMut(&[String], &str) -> Option<String>,
) -> Vec<(Vec<String>, Json)> {
    let mut search = KeySearch { path: Vec::new(), replace, changed: Vec::new() };
    search.walk(value, ValueMeaning::Unknown);
    search.changed
}

/// Meaning of a value, as far as its place tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueMeaning {
    /// The value is a key.
    Key,
    /// The value may contain one.
    Unknown,
}

struct KeySearch<'r> {
    path: Vec<String>,
    replace: &'r mut dyn FnMut(&[String], &str) -> Option<String>,
    changed: Vec<(Vec<String>, Json)>,
}

impl KeySearch<'_> {
    fn walk(&mut self, value: &Json, meaning: ValueMeaning) {
        match value {
            Json::Object(entries) => {
                for (key, value) in entries {
                    let is_in_credentials = self.path.last().is_some_and(|last| last == "credentials");
                    let is_key =
                        is_secret_name(key) || key.to_uppercase().ends_with("KEY") || is_in_credentials;
                    let is_text = value.is_string() || is_in_credentials;
                    self.path.push(key.clone());
                    self.walk(value, if is_key && is_text { ValueMeaning::Key } else { meaning });
                    self.path.pop();
                }
            }
            Json::Array(items) => {
                let mut is_next_key = false;
                let mut changed = items.clone();
                for (item, changed) in items.iter().zip(&mut changed) {
                    let Some(text) = item.as_str() else {
                        self.walk(item, meaning);
                        is_next_key = false;
                        continue;
                    };
                    let is_key = is_next_key && !text.starts_with('-');
                    if let Some(new) = self.replaced(text, if is_key { ValueMeaning::Key } else { meaning }) {
                        *changed = new.into();
                    }
                    is_next_key = takes_secret_value(text);
                }
                if changed != *items {
                    self.changed.push((self.path.clone(), Json::Array(changed)));
                }
            }
            Json::String(text) => {
                if let Some(new) = self.replaced(text, meaning) {
                    self.changed.push((self.path.clone(), new.into()));
                }
            }
            Json::Null | Json::Bool(_) | Json::Number(_) => {}
        }
    }

    /// Returns a text with its keys replaced, if there are any to replace.
    fn replaced(&mut self, text: &str, meaning: ValueMeaning) -> Option<String> {
        let is_plain = |text: &str| !text.is_empty() && !text.contains("${");
        let keys = match meaning {
            ValueMeaning::Key if is_plain(text) => vec![without_scheme(text)],
            ValueMeaning::Key => Vec::new(),
            ValueMeaning::Unknown => {
                secret_ranges(text).into_iter().filter(|range| is_plain(&text[range.clone()])).collect()
            }
        };
        let mut new: Option<String> = None;
        for range in keys.into_iter().rev() {
            if let Some(reference) = (self.replace)(&self.path, &text[range.clone()]) {
                new.get_or_insert_with(|| text.to_owned()).replace_range(range, &reference);
            }
        }
        new
    }
}

/// Returns the range of a token behind its scheme: `Bearer …`.
fn without_scheme(text: &str) -> Range<usize> {
    let scheme = ["Bearer ", "Basic ", "Token "].iter().find(|scheme| {
        text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
            && text.len() > scheme.len()
    });
    scheme.map_or(0, |scheme| scheme.len())..text.len()
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

    #[test]
    fn keys_are_replaced_and_the_text_around_them_stays() {
        let value = json!({
            "env": {"GITHUB_TOKEN": "ghp_1", "LEVEL": "debug", "OTHER_TOKEN": "${OTHER}"},
            "headers": {"Authorization": "Bearer abc"},
            "url": "https://ada:pw@example.com/?api_key=1",
            "args": ["--token", "xyz", "--port", "1"],
        });
        let changed = replace_plaintext_keys(&value, &mut |path, key| {
            (path.last().unwrap() != "LEVEL").then(|| format!("${{keyring:{}-{key}}}", path.join("-")))
        });
        let changed: Vec<_> = changed.into_iter().map(|(path, value)| (path.join("."), value)).collect();
        assert_eq!(
            changed,
            [
                ("env.GITHUB_TOKEN".to_owned(), json!("${keyring:env-GITHUB_TOKEN-ghp_1}")),
                ("headers.Authorization".to_owned(), json!("Bearer ${keyring:headers-Authorization-abc}")),
                (
                    "url".to_owned(),
                    json!("https://ada:${keyring:url-pw}@example.com/?api_key=${keyring:url-1}")
                ),
                ("args".to_owned(), json!(["--token", "${keyring:args-xyz}", "--port", "1"])),
            ]
        );
    }
}
