//! Single settings that are in no file: variables such as `PEGBOARD__TOOL_TIMEOUT=30s`, and `--set
//! toolTimeout=30s`.

use crate::dialect::TranslationNotes;
use crate::path::KeyPath;
use crate::schema::SchemaPosition;
use crate::source::holds_secrets;
use crate::suggest;
use crate::tree::{Node, Span, TreeEntry, Value, json};

/// Prefix of variables that are settings.
pub(super) const PREFIX: &str = "PEGBOARD__";
/// Maximum number of keys in a path.
const MAX_STEPS: usize = 16;

/// Parses a variable into a tree. Its name is matched ignoring case and separators: `TOOL_TIMEOUT` is
/// `toolTimeout`, and `MY_SERVER` is `my-server` if `root` has one.
pub(super) fn parse_variable(
    name: &str,
    text: SettingText<'_>,
    root: &Node,
    notes: &mut TranslationNotes,
) -> Option<Node> {
    let name_span = text.span(0, name.len());
    let mut position = Some(SchemaPosition::root());
    let mut below = Some(root);
    let mut keys: Vec<String> = Vec::new();
    let written: Vec<&str> = name[PREFIX.len()..].split("__").collect();
    for step in &written {
        let key_path = keys.iter().fold(KeyPath::default(), |key_path, key| key_path.key(key));
        let found = resolve_name(step, position, below, keys.last().map(String::as_str));
        let Some(key) = found.filter(|key| !key.is_empty() && written.len() <= MAX_STEPS) else {
            let names = position.map(SchemaPosition::names).unwrap_or_default();
            let spelled: Vec<(String, &str)> = names.iter().map(|&key| (to_env_name(key), key)).collect();
            let suggestion = suggest(step, spelled.iter().map(|(spelling, _)| spelling.as_str()));
            let help = suggestion.map(|suggestion| {
                let before = keys.iter().map(|key| to_env_name(key) + "__").collect::<String>();
                format!("did you mean {PREFIX}{before}{suggestion}?")
            });
            notes.error(name_span, &key_path, format!("unknown setting '{step}'"), help);
            return None;
        };
        position = position.and_then(|position| position.child(&key));
        below = below.and_then(|below| below.get(&key));
        keys.push(key);
    }
    Some(nest(&keys, name_span, value(text, name.len() + 1)))
}

/// Parses `path=value` into a tree. Keys are separated by dots; a key that contains a dot is written in
/// double quotes.
pub(super) fn parse_assignment(text: SettingText<'_>, notes: &mut TranslationNotes) -> Option<Node> {
    let equals = text.body.find('=').unwrap_or(text.body.len());
    let keys = split_keys(&text.body[..equals]).filter(|_| equals < text.body.len());
    let Some(keys) = keys.filter(|keys| keys.len() <= MAX_STEPS) else {
        let help = Some("use --set toolTimeout=30s or --set mcpServers.github.enabled=false".to_owned());
        let span = text.span(0, text.body.len());
        notes.error(span, &KeyPath::default(), "expected NAME=VALUE", help);
        return None;
    };
    Some(nest(&keys, text.span(0, equals), value(text, equals + 1)))
}

/// A text that is in no file, and its index among the texts.
#[derive(Clone, Copy)]
pub(super) struct SettingText<'t> {
    pub(super) body: &'t str,
    pub(super) index: usize,
}

impl SettingText<'_> {
    fn span(self, start: usize, end: usize) -> Span {
        Span { text: self.index, ..Span::new(start, end) }
    }
}

/// Splits a dotted path. Returns `None` if a key is empty.
fn split_keys(written: &str) -> Option<Vec<String>> {
    let mut keys = vec![String::new()];
    let mut is_quoted = false;
    for character in written.trim().chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            '.' if !is_quoted => keys.push(String::new()),
            character => keys.last_mut()?.push(character),
        }
    }
    (!is_quoted && keys.iter().all(|key| !key.is_empty())).then_some(keys)
}

/// Parses the value after the `=` as JSON, or else as a string.
fn value(text: SettingText<'_>, start: usize) -> Node {
    let written = &text.body[start..];
    match json::parse(written) {
        Ok(Some(parsed)) if parsed.duplicates.is_empty() => {
            let mut root = parsed.root;
            root.relocate(text.index, start);
            root
        }
        _ => Node::new(text.span(start, text.body.len()), Value::Text(written.to_owned())),
    }
}

fn nest(keys: &[String], key_span: Span, value: Node) -> Node {
    let whole = Span { end: value.span.end, ..key_span };
    keys.iter().rev().fold(value, |value, key| {
        Node::new(whole, Value::Map(vec![TreeEntry { key: key.clone(), key_span, value }]))
    })
}

/// Resolves a part of a variable's name to a key: a known setting, an existing key, or a new key where any
/// key is allowed.
fn resolve_name(
    step: &str,
    position: Option<SchemaPosition>,
    below: Option<&Node>,
    parent: Option<&str>,
) -> Option<String> {
    let position = position?;
    let is_meant = |key: &str| normalize(key) == normalize(step);
    if let Some(key) = position.names().into_iter().find(|key| is_meant(key)) {
        return Some(key.to_owned());
    }
    if !position.allows_any_key() {
        return None;
    }
    let there = below.and_then(Node::entries).unwrap_or_default();
    if let Some(entry) = there.iter().find(|entry| is_meant(&entry.key)) {
        return Some(entry.key.clone());
    }
    match parent {
        // Header names have no underscores, and variable names no dashes.
        Some("headers") => Some(step.replace('_', "-")),
        Some(parent) if holds_secrets(parent) => Some(step.to_owned()),
        _ => Some(step.to_lowercase()),
    }
}

/// Removes the differences between spellings of a name.
fn normalize(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|each| each.to_ascii_lowercase()).collect()
}

/// Converts `toolTimeout` to the spelling of variables, `TOOL_TIMEOUT`.
fn to_env_name(name: &str) -> String {
    let mut spelled = String::new();
    let mut is_after_lower = false;
    for character in name.chars() {
        if character.is_ascii_uppercase() && is_after_lower {
            spelled.push('_');
        }
        is_after_lower = character.is_ascii_lowercase() || character.is_ascii_digit();
        spelled.push(if character.is_ascii_alphanumeric() { character.to_ascii_uppercase() } else { '_' });
    }
    spelled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dotted_path_is_split_into_keys() {
        for (written, expected) in [
            ("toolTimeout", Some(vec!["toolTimeout"])),
            ("mcpServers.github.url", Some(vec!["mcpServers", "github", "url"])),
            ("providers.\"a.b\".type", Some(vec!["providers", "a.b", "type"])),
            ("a..b", None),
            ("", None),
            ("a.\"b", None),
        ] {
            let expected = expected.map(|keys| keys.into_iter().map(str::to_owned).collect());
            assert_eq!(split_keys(written), expected, "{written}");
        }
    }

    #[test]
    fn a_setting_is_converted_to_a_variable_name() {
        for (name, expected) in [
            ("toolTimeout", "TOOL_TIMEOUT"),
            ("mcpServers", "MCP_SERVERS"),
            ("traceMCP", "TRACE_MCP"),
            ("my-server", "MY_SERVER"),
        ] {
            assert_eq!(to_env_name(name), expected);
        }
    }
}
