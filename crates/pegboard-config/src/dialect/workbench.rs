//! The dialect of a workbench: toolboxes that each have a description and servers, and next to nothing else.
//!
//! The words of its errors are those that its users know.

use super::Remarks;
use super::native::root_names;
use crate::path::Path;
use crate::tree::{Entry, Node, Value};

const AT_ROOT: [&str; 2] = ["toolboxes", "toolMode"];
const IN_TOOLBOX: [&str; 2] = ["description", "mcpServers"];

/// Whether a file is of this dialect: it has toolboxes, and nothing that only ours has.
pub(super) fn is_one(root: &Node) -> bool {
    let only_ours = |entry: &Entry| {
        entry.key != "toolboxes" && entry.key != "$schema" && root_names().contains(&entry.key.as_str())
    };
    let entries = root.entries().unwrap_or_default();
    let has_more = |toolbox: &Entry| {
        ["agents", "chains", "restTools"].iter().any(|section| toolbox.value.get(section).is_some())
    };
    let toolboxes = root.get("toolboxes").and_then(Node::entries).unwrap_or_default();
    root.get("toolboxes").is_some() && !entries.iter().any(only_ours) && !toolboxes.iter().any(has_more)
}

/// The same in our own words, with what its users would be told about it. What is wrong is left out, so that it is not
/// told again.
pub(super) fn translate(mut root: Node, remarks: &mut Remarks) -> Node {
    let way = Path::default();
    for entry in root.entries().unwrap_or_default() {
        if !AT_ROOT.contains(&entry.key.as_str()) {
            remarks.unknown(&entry.key, entry.key_span, &way.key(&entry.key), &AT_ROOT);
        }
    }
    check_mode(remarks, &root, &way);
    let whole = root.span;
    let Value::Map(entries) = &mut root.value else { return root };
    entries.retain(|entry| entry.key == "toolboxes");
    let way = way.key("toolboxes");
    match entries.first_mut().map(|entry| (entry.value.span, &mut entry.value.value)) {
        Some((_, Value::Map(toolboxes))) => {
            for entry in toolboxes {
                translate_toolbox(remarks, entry, &way.key(&entry.key));
            }
        }
        other => {
            let span = other.map_or(whole, |(span, _)| span);
            remarks.error(span, &way, "Configuration must have a 'toolboxes' object", None);
            entries.clear();
        }
    }
    root
}

/// What older workbenches did by this setting, and what became of it.
fn check_mode(remarks: &mut Remarks, root: &Node, way: &Path) {
    let Some(mode) = root.get("toolMode") else { return };
    let way = way.key("toolMode");
    match &mode.value {
        Value::Text(mode_name) if mode_name == "dynamic" => {
            let message = "toolMode 'dynamic' is gone: tools are used through open_toolbox and use_tool";
            let help =
                "take toolMode away; to list every tool instead, use a pegboard.json with expose: flat";
            remarks.error(mode.span, &way, message, Some(help.to_owned()));
        }
        Value::Text(mode_name) if mode_name == "proxy" => {
            let help = Some("take it away: there is no other mode".to_owned());
            remarks.warn(mode.span, &way, "toolMode is deprecated", help);
        }
        _ => remarks.warn(mode.span, &way, "toolMode is ignored", Some("take it away".to_owned())),
    }
}

fn translate_toolbox(remarks: &mut Remarks, entry: &mut Entry, way: &Path) {
    for inner in entry.value.entries().unwrap_or_default() {
        if !IN_TOOLBOX.contains(&inner.key.as_str()) {
            remarks.unknown(&inner.key, inner.key_span, &way.key(&inner.key), &IN_TOOLBOX);
        }
    }
    let name = entry.key.clone();
    let described = entry.value.get("description");
    if !matches!(described, Some(Node { value: Value::Text(text), .. }) if !text.is_empty()) {
        let span = described.map_or(entry.key_span, |node| node.span);
        let message = format!("Toolbox '{name}' must have a description");
        let help = Some("say in a sentence what it is for: models choose by it".to_owned());
        remarks.error(span, &way.key("description"), message, help);
    }
    check_servers(remarks, entry, way, &name);
    match &mut entry.value.value {
        Value::Map(entries) => entries.retain(|inner| match inner.key.as_str() {
            "description" => matches!(inner.value.value, Value::Text(_)),
            "mcpServers" => true,
            _ => false,
        }),
        other => *other = Value::Null,
    }
}

/// Whether there are servers, and whether their descriptions have the right shape.
fn check_servers(remarks: &mut Remarks, entry: &Entry, way: &Path, toolbox: &str) {
    let way = way.key("mcpServers");
    let Some(servers) = entry.value.get("mcpServers") else {
        let message = format!("Toolbox '{toolbox}' must have an 'mcpServers' object");
        return remarks.error(entry.key_span, &way, message, None);
    };
    if matches!(&servers.value, Value::Map(entries) if entries.is_empty()) {
        let message = format!("Toolbox '{toolbox}' must have at least one MCP server");
        remarks.error(servers.span, &way, message, None);
    }
    for server in servers.entries().unwrap_or_default() {
        let mut check = |key: &str, is_right: fn(&Value) -> bool, what: &str| {
            if let Some(found) = server.value.get(key).filter(|found| !is_right(&found.value)) {
                let name = &server.key;
                let message = format!("Server '{name}' in toolbox '{toolbox}': '{key}' must be an {what}");
                remarks.error(found.span, &way.key(name).key(key), message, None);
            }
        };
        check("args", |value| matches!(value, Value::List(_)), "array");
        check("env", |value| matches!(value, Value::Map(_)), "object");
    }
}
