//! What is shown of values that nobody should see.

use std::ops::Range;

use pegboard_core::redact::is_secret_name;
use serde_json::Value as Json;

use crate::source::is_veiling;

/// What stands where a secret stood.
const MASK: &str = "***";

/// A value as it may be shown. `keys` lead to it. Variables that are not filled in stay what they are.
pub(crate) fn masked(value: &Json, keys: &[&str]) -> Json {
    let is_secret =
        keys.iter().any(|key| is_veiling(key)) || keys.last().is_some_and(|key| is_secret_name(key));
    match value {
        Json::Object(entries) => {
            let masked = |(key, value): (&String, &Json)| {
                let keys: Vec<&str> = keys.iter().copied().chain([key.as_str()]).collect();
                (key.clone(), masked(value, &keys))
            };
            Json::Object(entries.iter().map(masked).collect())
        }
        Json::Array(items) => {
            let mut is_next_secret = false;
            let mut shown = Vec::with_capacity(items.len());
            for item in items {
                let is_option = item.as_str().is_some_and(|text| text.starts_with('-'));
                shown.push(match item {
                    Json::String(text) if is_next_secret && !is_option => Json::from(without_values(text)),
                    other => masked(other, keys),
                });
                is_next_secret = item.as_str().is_some_and(is_before_secret);
            }
            Json::Array(shown)
        }
        Json::String(text) if is_secret => Json::from(without_values(text)),
        Json::String(text) => Json::from(without_passwords(text)),
        Json::Number(_) | Json::Bool(_) if is_secret => Json::from(MASK),
        Json::Null | Json::Number(_) | Json::Bool(_) => value.clone(),
    }
}

/// A text of which only the names of variables may be seen.
fn without_values(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        shown.push_str(if at > 0 { MASK } else { "" });
        let reference = &rest[at..];
        let name_end = reference.find([':', '}']).unwrap_or(reference.len());
        let end = reference.find('}').map_or(reference.len(), |end| end + 1);
        shown.push_str(&reference[..name_end.min(end)]);
        // What stands behind the name is the name of a file, or may be a secret.
        let names_something = ["${file", "${env", "${input"].contains(&&reference[..name_end]);
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

/// A text without what addresses and options may carry: `https://ada:***@example.com/?token=***`, `--token=***`.
fn without_passwords(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut done = 0;
    for hidden in hidden_in(text) {
        shown.push_str(&text[done..hidden.start]);
        shown.push_str(&without_values(&text[hidden.clone()]));
        done = hidden.end;
    }
    shown.push_str(&text[done..]);
    shown
}

/// Where a text has the password of an address, or the value of an option or parameter that sounds secret.
pub(crate) fn hidden_in(text: &str) -> Vec<Range<usize>> {
    let mut hidden = Vec::new();
    let mut from = 0;
    if let Some(start) = text.find("://").map(|at| at + 3) {
        let end = text[start..].find(['/', '?', '#']).map_or(text.len(), |end| start + end);
        if let Some(at) = text[start..end].rfind('@').map(|at| start + at)
            && let Some(colon) = text[start..at].find(':').map(|colon| start + colon)
        {
            hidden.push(colon + 1..at);
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

/// Whether the word behind this one is the value of an option that sounds secret: `--api-key`.
pub(crate) fn is_before_secret(word: &str) -> bool {
    word.starts_with('-') && !word.contains('=') && is_secret_name(word)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_should_see_is_starred_out() {
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
            (
                json!(["--port", "1", "--api-key", "abc", "--token=${T}", "--password=x y"]),
                vec!["args"],
                json!(["--port", "1", "--api-key", "***", "--token=${T}", "--password=*** y"]),
            ),
        ] {
            assert_eq!(masked(&value, &keys), expected, "{value}");
        }
    }
}
