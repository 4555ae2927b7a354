//! Merges two trees.

use crate::schema::{PASSTHROUGH_SETTINGS, SchemaPosition};
use crate::source::{KeyStrictness, SourceKind, SourceText};
use crate::to_json::to_json;
use crate::tree::{Node, Span, TreeEntry, Value};
use crate::trust;

/// Server settings with two names.
const SERVER_ALIASES: [(&str, &str); 2] = [("type", "transport"), ("env", "environment")];
/// Queue settings with two names.
const QUEUE_ALIASES: [(&str, &str); 3] = [
    ("maxConcurrency", "concurrent"),
    ("waitTimeoutMs", "waitTimeout"),
    ("defaultTimeoutMs", "defaultTimeout"),
];
/// Settings of servers that are started as a command.
const COMMAND_SETTINGS: [&str; 7] = ["command", "args", "env", "environment", "envFile", "passEnv", "cwd"];
/// Settings of servers with a URL.
const URL_SETTINGS: [&str; 2] = ["url", "headers"];

/// Settings that say which program is started, or where requests go.
const DESTINATION_SETTINGS: [&str; 9] =
    ["args", "baseUrl", "command", "cwd", "otlpEndpoint", "server", "spec", "tokenUrl", "url"];
/// Settings with secrets for it.
const SECRET_SETTINGS: [&str; 8] =
    ["apiKey", "credentials", "env", "envFile", "environment", "headers", "passEnv", "serverVariables"];

/// Merges one tree on top of another: objects are merged key by key, other values are replaced, and `null`
/// removes.
pub(super) fn merge(below: Node, above: Node, texts: &[SourceText]) -> Node {
    Merger { texts, key_path: Vec::new() }.node(below, above)
}

/// Removes nulls, which count as unset. A container without a value is kept as an empty one.
pub(super) fn drop_nulls(root: &mut Node, texts: &[SourceText]) {
    // Few files have nulls, and the schema takes longer to build than a file to read.
    if contains_null(root) {
        drop_nulls_inside(root, SchemaPosition::root(), texts);
    }
}

fn contains_null(node: &Node) -> bool {
    match &node.value {
        Value::Null => true,
        Value::Map(entries) => entries.iter().any(|entry| contains_null(&entry.value)),
        Value::Bool(_) | Value::Number(_) | Value::Text(_) | Value::List(_) => false,
    }
}

fn drop_nulls_inside(node: &mut Node, position: SchemaPosition, texts: &[SourceText]) {
    let Value::Map(entries) = &mut node.value else { return };
    entries.retain_mut(|entry| {
        // Unknown keys are kept, so that they are reported.
        let is_known = position.allows_any_key() || position.names().contains(&entry.key.as_str());
        let Some(inner) = position.child(&entry.key).filter(|_| is_known) else { return true };
        if matches!(entry.value.value, Value::Null) {
            let is_written = !texts[entry.value.span.text].slice(entry.value.span).is_empty();
            return !is_written && inner.is_container();
        }
        match (entry.key.as_str(), &mut entry.value.value) {
            // In a chain null is a value like any other.
            ("chains", Value::Map(chains)) => {
                chains.retain(|chain| !matches!(chain.value.value, Value::Null));
            }
            (name, _) if PASSTHROUGH_SETTINGS.contains(&name) => {}
            _ => drop_nulls_inside(&mut entry.value, inner, texts),
        }
        true
    });
}

struct Merger<'t> {
    texts: &'t [SourceText],
    key_path: Vec<String>,
}

/// The kind of object being merged, as far as it affects merging.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeTarget {
    Server,
    Queue,
    Other,
}

impl Merger<'_> {
    fn node(&mut self, below: Node, above: Node) -> Node {
        match (below.value, above.value) {
            (Value::Map(mut entries), Value::Map(others)) => {
                let target = self.target();
                if target == MergeTarget::Server {
                    if self.is_complete_server(&others, above.span) {
                        return Node { span: above.span, value: Value::Map(others), origin: above.origin };
                    }
                    drop_other_transport(&mut entries, &others);
                }
                if self.texts[above.span.text].kind == SourceKind::File && leads_elsewhere(&entries, &others)
                {
                    drop_secrets(&mut entries, self.key_path.iter().any(|name| name == "credentials"));
                }
                for entry in others {
                    self.entry(&mut entries, entry, target);
                }
                // The first definition keeps its span; later layers only modify it.
                Node { span: below.span, value: Value::Map(entries), origin: below.origin }
            }
            (_, value) => Node { span: above.span, value, origin: above.origin },
        }
    }

    fn entry(&mut self, entries: &mut Vec<TreeEntry>, above: TreeEntry, target: MergeTarget) {
        if target == MergeTarget::Server {
            let opposite = match above.key.as_str() {
                "enabled" => "disabled",
                "disabled" => "enabled",
                _ => "",
            };
            entries.retain(|entry| entry.key != opposite);
        }
        let Some(at) = entries.iter().position(|below| is_same_setting(&below.key, &above.key, target))
        else {
            // There is nothing to remove.
            let is_file = self.texts[above.key_span.text].kind == SourceKind::File;
            if is_file || !matches!(above.value.value, Value::Null) {
                entries.push(above);
            }
            return;
        };
        if matches!(above.value.value, Value::Null) {
            // A key without a value does not affect lower layers.
            let is_written = !self.texts[above.value.span.text].slice(above.value.span).is_empty();
            if is_written {
                entries.remove(at);
            }
            return;
        }
        let below = &mut entries[at];
        let are_maps = matches!((&below.value.value, &above.value.value), (Value::Map(_), Value::Map(_)));
        self.key_path.push(below.key.clone());
        let value = std::mem::replace(&mut below.value, Node::new(above.value.span, Value::Null));
        below.value = self.node(value, above.value);
        self.key_path.pop();
        if !are_maps {
            (below.key, below.key_span) = (above.key, above.key_span);
        }
    }

    /// Returns `true` if the entry is a complete server. Other programs do not write partial entries.
    fn is_complete_server(&self, entries: &[TreeEntry], span: Span) -> bool {
        let is_foreign = self.texts[span.text].strictness == KeyStrictness::Lenient;
        is_foreign && entries.iter().any(|entry| entry.key == "command" || entry.key == "url")
    }

    fn target(&self) -> MergeTarget {
        match self.key_path.iter().rev().nth(1).map(String::as_str) {
            Some("mcpServers") => MergeTarget::Server,
            Some("queues") if self.key_path.len() == 2 => MergeTarget::Queue,
            _ => MergeTarget::Other,
        }
    }
}

/// Returns `true` if two keys are names of the same setting.
fn is_same_setting(below: &str, above: &str, target: MergeTarget) -> bool {
    let names: &[(&str, &str)] = match target {
        MergeTarget::Server => &SERVER_ALIASES,
        MergeTarget::Queue => &QUEUE_ALIASES,
        MergeTarget::Other => &[],
    };
    below == above || names.contains(&(below, above)) || names.contains(&(above, below))
}

/// Returns `true` if one entry of a file gives another a new destination: another program, or another origin.
fn leads_elsewhere(below: &[TreeEntry], above: &[TreeEntry]) -> bool {
    let value = |entries: &[TreeEntry], name: &str| {
        entries.iter().find(|entry| entry.key == name).map(|entry| to_json(&entry.value))
    };
    DESTINATION_SETTINGS.iter().any(|name| match (value(below, name), value(above, name)) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(old), Some(new)) => {
            let origins = [&old, &new].map(|value| value.as_str().and_then(trust::origin));
            let is_same_origin = origins[0].is_some() && origins[0] == origins[1];
            old != new && !is_same_origin
        }
    })
}

/// Removes what the new destination of an entry must not get from the file below. Everything in a scheme of credentials
/// is secret.
fn drop_secrets(below: &mut Vec<TreeEntry>, is_scheme: bool) {
    below.retain(|entry| !is_scheme && !SECRET_SETTINGS.contains(&entry.key.as_str()));
}

/// Removes the command settings of a server that now has a URL, and vice versa.
fn drop_other_transport(below: &mut Vec<TreeEntry>, above: &[TreeEntry]) {
    let has = |entries: &[TreeEntry], key: &str| entries.iter().any(|entry| entry.key == key);
    let dropped: &[&str] = match (has(above, "command"), has(above, "url")) {
        (true, false) if has(below, "url") => &URL_SETTINGS,
        (false, true) if has(below, "command") => &COMMAND_SETTINGS,
        _ => return,
    };
    below.retain(|entry| {
        !dropped.contains(&entry.key.as_str()) && !matches!(entry.key.as_str(), "type" | "transport")
    });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value as Json;

    use super::*;
    use crate::source::ConfigFormat;
    use crate::tree;

    fn merged(below: &str, above: &str) -> Json {
        let texts = [("user.yaml", below), ("project.yaml", above)]
            .map(|(name, text)| SourceText::new(Path::new(name), text.to_owned()));
        let root = |index: usize| {
            let mut parsed = tree::parse(&texts[index].body, ConfigFormat::Yaml).ok().flatten().unwrap();
            parsed.relocate(index);
            parsed.root
        };
        to_json(&merge(root(0), root(1), &texts))
    }

    #[test]
    fn secrets_stay_with_the_destination_of_their_file() {
        for (user, project, expected) in [
            (
                "mcpServers: {a: {url: 'https://a.example/mcp', headers: {K: s}}}",
                "mcpServers: {a: {url: 'https://evil.example/mcp'}}",
                r#"{"mcpServers": {"a": {"url": "https://evil.example/mcp"}}}"#,
            ),
            (
                "mcpServers: {a: {url: 'https://a.example/mcp', headers: {K: s}}}",
                "mcpServers: {a: {url: 'https://A.example/v2', headers: {L: t}}}",
                r#"{"mcpServers": {"a": {"url": "https://A.example/v2", "headers": {"K": "s", "L": "t"}}}}"#,
            ),
            (
                "mcpServers: {a: {command: x, args: [y], env: {K: s}, passEnv: [T]}}",
                "mcpServers: {a: {args: [evil.js]}}",
                r#"{"mcpServers": {"a": {"command": "x", "args": ["evil.js"]}}}"#,
            ),
            (
                "mcpServers: {a: {command: x, args: [y], env: {K: s}}}",
                "mcpServers: {a: {command: x, env: {L: t}}}",
                r#"{"mcpServers": {"a": {"command": "x", "args": ["y"], "env": {"K": "s", "L": "t"}}}}"#,
            ),
            (
                "openapiSpecs: {a: {spec: 'https://a.example', credentials: {k: {value: s}}}}",
                "openapiSpecs: {a: {baseUrl: 'https://evil.example'}}",
                r#"{"openapiSpecs": {"a": {"spec": "https://a.example", "baseUrl": "https://evil.example"}}}"#,
            ),
            (
                "openapiSpecs: {a: {spec: 'https://a.example', credentials: {k: {clientSecret: s}}}}",
                "openapiSpecs: {a: {credentials: {k: {tokenUrl: 'https://evil.example'}}}}",
                r#"{"openapiSpecs": {"a": {"spec": "https://a.example", "credentials": {"k": {"tokenUrl": "https://evil.example"}}}}}"#,
            ),
            (
                "providers: {m: {type: anthropic, apiKey: s}}",
                "providers: {m: {baseUrl: 'https://evil.example'}}",
                r#"{"providers": {"m": {"type": "anthropic", "baseUrl": "https://evil.example"}}}"#,
            ),
        ] {
            let expected: Json = serde_json::from_str(expected).unwrap();
            assert_eq!(merged(user, project), expected, "{project}");
        }
    }
}
