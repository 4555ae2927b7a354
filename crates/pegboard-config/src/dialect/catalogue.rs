//! A catalogue of servers in containers, as Docker has it.

use super::Remarks;
use super::file::Servers;
use super::foreign::{Translator, entry_of, words_of};
use super::made::{as_text, entry, items, map, text};
use super::syntax::Answers;
use super::words::Words;
use crate::path::Path as Way;
use crate::tree::{Entry, Node, Value};

/// The file in our own words.
pub(super) fn translate(words: &Words, root: &Node, remarks: &mut Remarks) -> Node {
    let mut servers = Servers::default();
    let section = root.get("registry");
    for listed in section.and_then(Node::entries).unwrap_or_default() {
        let way = Way::default().key("registry").key(&listed.key);
        let Some(described) = describe(&listed.value, &way, remarks) else { continue };
        let mut translator = Translator::new(words, Answers::new(), remarks);
        let mut node = translator.server(described, &way);
        fill_in(&mut node);
        let name = servers.name(&listed.key, listed.key_span, &way, remarks);
        servers.entries.push(entry(name, listed.key_span, node));
    }
    let span = section.unwrap_or(root).span;
    map(root.span, vec![entry("mcpServers", span, map(span, servers.entries))])
}

/// One server, in words that many have.
fn describe(node: &Node, way: &Way, remarks: &mut Remarks) -> Option<Node> {
    let said = |key: &str| node.get(key).and_then(as_text).filter(|text| !text.is_empty());
    if let Some(lost) = node.entry("allowHosts") {
        let message = "this is not carried over: the container may reach every host";
        remarks.warn(lost.key_span, &way.key("allowHosts"), message, None);
    }
    let env = environment(node);
    let remote = node.get("remote").filter(|remote| remote.get("url").is_some());
    if let Some(Node { value: Value::Map(remote), .. }) = remote {
        return Some(map(node.span, remote.clone()));
    }
    if let Some(address) = said("sseEndpoint") {
        return Some(map(
            node.span,
            vec![
                entry_of("url", node.span, address.to_owned()),
                entry_of("type", node.span, "sse".to_owned()),
            ],
        ));
    }
    if let Some(image) = said("image").filter(|_| said("type") != Some("poci")) {
        let args = container(node, image, &env);
        let entries = vec![
            entry_of("command", node.span, "docker".to_owned()),
            entry("args", node.span, words_of(node.span, args)),
            entry("env", node.span, map(node.span, env)),
        ];
        return Some(map(node.span, entries));
    }
    let message = "this is left out: each of its tools is a container of its own";
    remarks.warn(node.span, way, message, None);
    None
}

/// Its variables, and those that hold its secrets.
fn environment(node: &Node) -> Vec<Entry> {
    let said = |item: &Node, key: &str| item.get(key).and_then(as_text).map(str::to_owned);
    let listed = |key: &str| node.get(key).and_then(items).unwrap_or_default();
    let secrets = listed("secrets").iter().filter_map(|item| {
        let name = said(item, "env").or_else(|| said(item, "name"))?;
        // In double braces, so that it is not taken for a text of the catalogue.
        Some(entry(&name, item.span, text(item.span, format!("{{{{secret {name}}}}}"))))
    });
    let plain = listed("env").iter().filter_map(|item| {
        Some(entry(said(item, "name")?, item.span, text(item.span, said(item, "value").unwrap_or_default())))
    });
    secrets.chain(plain).collect()
}

/// What `docker` is given.
fn container(node: &Node, image: &str, env: &[Entry]) -> Vec<String> {
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

/// What the catalogue leaves open, `{{path.to.value}}`, as what somebody is asked for.
fn fill_in(node: &mut Node) {
    match &mut node.value {
        Value::Text(text) => {
            while let Some((start, inner)) = text.find("{{").and_then(|start| {
                let end = text[start..].find("}}")?;
                Some((start, text[start + 2..start + end].to_owned()))
            }) {
                let end = start + inner.len() + 4;
                let name = inner.split('|').next().unwrap_or_default().trim();
                let ours = match name.strip_prefix("secret ") {
                    Some(variable) => format!("${{{variable}}}"),
                    None => format!("${{input:{name}}}"),
                };
                text.replace_range(start..end, &ours);
            }
        }
        Value::List(items) => items.iter_mut().for_each(fill_in),
        Value::Map(entries) => entries.iter_mut().for_each(|entry| fill_in(&mut entry.value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
