//! The dialect of a workbench: toolboxes that each have a description and servers, and next to nothing else.
//!
//! The words of its errors are those that its users know.

use pegboard_core::id::ToolboxName;

use super::native::{self, root_names};
use crate::configuration::{Configuration, Toolbox};
use crate::path::Path;
use crate::read::{Missing, Reader};
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

pub(super) fn read(reader: &mut Reader<'_>, root: &Node, configuration: &mut Configuration) {
    reader.root = Path::default().key("config");
    let way = reader.root.clone();
    for entry in root.entries().unwrap_or_default() {
        if !AT_ROOT.contains(&entry.key.as_str()) {
            reader.unknown_key(&entry.key, entry.key_span, &way.key(&entry.key), &AT_ROOT);
        }
    }
    check_mode(reader, root, &way);
    let Some(toolboxes) = root.get("toolboxes").and_then(Node::entries) else {
        let span = root.get("toolboxes").unwrap_or(root).span;
        let message = "Configuration must have a 'toolboxes' object";
        return reader.error(span, &way.key("toolboxes"), message, None);
    };
    for entry in toolboxes {
        read_toolbox(reader, entry, &way.key("toolboxes"), configuration);
    }
}

/// What older workbenches did by this setting, and what became of it.
fn check_mode(reader: &mut Reader<'_>, root: &Node, way: &Path) {
    let Some(mode) = root.get("toolMode") else { return };
    let way = way.key("toolMode");
    match &mode.value {
        Value::Text(mode_name) if mode_name == "dynamic" => {
            let message = "toolMode 'dynamic' is gone: tools are used through open_toolbox and use_tool";
            let help =
                "take toolMode away; to list every tool instead, use a pegboard.json with expose: flat";
            reader.error(mode.span, &way, message, Some(help.to_owned()));
        }
        Value::Text(mode_name) if mode_name == "proxy" => {
            let help = Some("take it away: there is no other mode".to_owned());
            reader.warn(mode.span, &way, "toolMode is deprecated", help);
        }
        _ => reader.warn(mode.span, &way, "toolMode is ignored", Some("take it away".to_owned())),
    }
}

fn read_toolbox(reader: &mut Reader<'_>, entry: &Entry, way: &Path, configuration: &mut Configuration) {
    let way = way.key(&entry.key);
    let (name, _) = reader.fill_text(&entry.key, entry.key_span, &way, Missing::Told);
    let name = match ToolboxName::new(&name) {
        Ok(name) => name,
        Err(invalid) => return reader.error(entry.key_span, &way, invalid.to_string(), None),
    };
    for inner in entry.value.entries().unwrap_or_default() {
        if !IN_TOOLBOX.contains(&inner.key.as_str()) {
            reader.unknown_key(&inner.key, inner.key_span, &way.key(&inner.key), &IN_TOOLBOX);
        }
    }
    let mut toolbox = Toolbox::default();
    match entry.value.get("description") {
        Some(Node { value: Value::Text(text), span, .. }) if !text.is_empty() => {
            let way = way.key("description");
            toolbox.description = reader.fill_text(text, *span, &way, Missing::Told).0;
        }
        other => {
            let span = other.map_or(entry.key_span, |node| node.span);
            let message = format!("Toolbox '{name}' must have a description");
            let help = Some("say in a sentence what it is for: models choose by it".to_owned());
            reader.error(span, &way.key("description"), message, help);
        }
    }
    check_servers(reader, entry, &way, &name);
    native::read_sections(reader, &entry.value, &way, &mut toolbox, configuration);
    configuration.toolboxes.insert(name, toolbox);
}

/// Whether there are servers, and whether their descriptions have the right shape.
fn check_servers(reader: &mut Reader<'_>, entry: &Entry, way: &Path, toolbox: &ToolboxName) {
    let way = way.key("mcpServers");
    let Some(servers) = entry.value.get("mcpServers") else {
        let message = format!("Toolbox '{toolbox}' must have an 'mcpServers' object");
        return reader.error(entry.key_span, &way, message, None);
    };
    if matches!(&servers.value, Value::Map(entries) if entries.is_empty()) {
        let message = format!("Toolbox '{toolbox}' must have at least one MCP server");
        reader.error(servers.span, &way, message, None);
    }
    for server in servers.entries().unwrap_or_default() {
        let mut check = |key: &str, is_right: fn(&Value) -> bool, what: &str| {
            if let Some(found) = server.value.get(key).filter(|found| !is_right(&found.value)) {
                let name = &server.key;
                let message = format!("Server '{name}' in toolbox '{toolbox}': '{key}' must be an {what}");
                reader.error(found.span, &way.key(name).key(key), message, None);
            }
        };
        check("args", |value| matches!(value, Value::List(_)), "array");
        check("env", |value| matches!(value, Value::Map(_)), "object");
    }
}
