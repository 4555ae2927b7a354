//! Docker's catalogue of servers in containers.

use super::TranslationNotes;
use super::client_file::TranslatedServers;
use super::field_rules::DialectRules;
use super::synthetic::{as_text, entry, items, map, text};
use super::translate::{Translator, text_entry, text_list};
use super::variable_syntax::InputDefaults;
use crate::path::KeyPath;
use crate::tree::{Node, TreeEntry, Value};

/// Translates the file to the native format.
pub(super) fn translate(rules: &DialectRules, root: &Node, notes: &mut TranslationNotes) -> Node {
    let mut servers = TranslatedServers::default();
    let section = root.get("registry");
    for listed in section.and_then(Node::entries).unwrap_or_default() {
        let key_path = KeyPath::default().key("registry").key(&listed.key);
        let Some(described) = server_entry(&listed.value, &key_path, notes) else { continue };
        let mut translator = Translator::new(rules, InputDefaults::new(), notes);
        let mut node = translator.server(described, &key_path);
        rewrite_placeholders(&mut node);
        let name = servers.name(&listed.key, listed.key_span, &key_path, notes);
        servers.entries.push(entry(name, listed.key_span, node));
    }
    let span = section.unwrap_or(root).span;
    map(root.span, vec![entry("mcpServers", span, map(span, servers.entries))])
}

/// Converts one catalogue entry to a server entry with common field names.
fn server_entry(node: &Node, key_path: &KeyPath, notes: &mut TranslationNotes) -> Option<Node> {
    let string = |key: &str| node.get(key).and_then(as_text).filter(|text| !text.is_empty());
    if let Some(lost) = node.entry("allowHosts") {
        let message = "not supported: host allowlists; the container may reach every host";
        notes.warn(lost.key_span, &key_path.key("allowHosts"), message, None);
    }
    let env = environment(node);
    let remote = node.get("remote").filter(|remote| remote.get("url").is_some());
    if let Some(Node { value: Value::Map(remote), .. }) = remote {
        return Some(map(node.span, remote.clone()));
    }
    if let Some(address) = string("sseEndpoint") {
        return Some(map(
            node.span,
            vec![
                text_entry("url", node.span, address.to_owned()),
                text_entry("type", node.span, "sse".to_owned()),
            ],
        ));
    }
    if let Some(image) = string("image").filter(|_| string("type") != Some("poci")) {
        let args = docker_args(node, image, &env);
        let entries = vec![
            text_entry("command", node.span, "docker".to_owned()),
            entry("args", node.span, text_list(node.span, args)),
            entry("env", node.span, map(node.span, env)),
        ];
        return Some(map(node.span, entries));
    }
    let message = "skipped: each of its tools is a separate container";
    notes.warn(node.span, key_path, message, None);
    None
}

/// Returns the environment variables, including those that hold secrets.
fn environment(node: &Node) -> Vec<TreeEntry> {
    let string = |item: &Node, key: &str| item.get(key).and_then(as_text).map(str::to_owned);
    let listed = |key: &str| node.get(key).and_then(items).unwrap_or_default();
    let secrets = listed("secrets").iter().filter_map(|item| {
        let name = string(item, "env").or_else(|| string(item, "name"))?;
        // In double braces, so that it is not mistaken for a literal of the catalogue.
        Some(entry(&name, item.span, text(item.span, format!("{{{{secret {name}}}}}"))))
    });
    let plain = listed("env").iter().filter_map(|item| {
        Some(entry(
            string(item, "name")?,
            item.span,
            text(item.span, string(item, "value").unwrap_or_default()),
        ))
    });
    secrets.chain(plain).collect()
}

/// Returns the arguments of `docker`.
fn docker_args(node: &Node, image: &str, env: &[TreeEntry]) -> Vec<String> {
    let texts = |key: &str| {
        let listed = node.get(key).and_then(items).unwrap_or_default().iter();
        listed.filter_map(as_text).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut args: Vec<String> = ["run", "-i", "--rm"].map(str::to_owned).to_vec();
    let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    for variable in env {
        add("-e", variable.key.clone());
    }
    for volume in texts("volumes") {
        add("-v", volume);
    }
    for host in texts("extraHosts") {
        add("--add-host", host);
    }
    if let Some(user) = node.get("user").and_then(as_text).filter(|user| !user.is_empty()) {
        add("-u", user.to_owned());
    }
    if matches!(node.get("disableNetwork"), Some(Node { value: Value::Bool(true), .. })) {
        add("--network", "none".to_owned());
    }
    args.push(image.to_owned());
    args.extend(texts("command"));
    args
}

/// Replaces the placeholders of the catalogue, `{{path.to.value}}`, with inputs.
fn rewrite_placeholders(node: &mut Node) {
    match &mut node.value {
        Value::Text(text) => {
            while let Some((start, inner)) = text.find("{{").and_then(|start| {
                let end = text[start..].find("}}")?;
                Some((start, text[start + 2..start + end].to_owned()))
            }) {
                let end = start + inner.len() + 4;
                let name = inner.split('|').next().unwrap_or_default().trim();
                let reference = match name.strip_prefix("secret ") {
                    Some(variable) => format!("${{{variable}}}"),
                    None => format!("${{input:{name}}}"),
                };
                text.replace_range(start..end, &reference);
            }
        }
        Value::List(items) => items.iter_mut().for_each(rewrite_placeholders),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| rewrite_placeholders(&mut entry.value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
