//! The workbench dialect: toolboxes with a description and servers, and little else.
//!
//! Error messages are worded as in the original program.

use super::TranslationNotes;
use super::native::root_names;
use crate::path::KeyPath;
use crate::tree::{Node, TreeEntry, Value};

const ROOT_KEYS: [&str; 2] = ["toolboxes", "toolMode"];
const TOOLBOX_KEYS: [&str; 2] = ["description", "mcpServers"];

/// Returns `true` if the file is of this dialect: it has toolboxes, and no other native settings.
pub(super) fn is_workbench(root: &Node) -> bool {
    let only_ours = |entry: &TreeEntry| {
        entry.key != "toolboxes" && entry.key != "$schema" && root_names().contains(&entry.key.as_str())
    };
    let entries = root.entries().unwrap_or_default();
    let has_more = |toolbox: &TreeEntry| {
        ["agents", "chains", "restTools"].iter().any(|section| toolbox.value.get(section).is_some())
    };
    let toolboxes = root.get("toolboxes").and_then(Node::entries).unwrap_or_default();
    root.get("toolboxes").is_some() && !entries.iter().any(only_ours) && !toolboxes.iter().any(has_more)
}

/// Translates the file to the native format and reports problems as the original program does. Invalid parts
/// are dropped, so that they are not reported twice.
pub(super) fn translate(mut root: Node, notes: &mut TranslationNotes) -> Node {
    let key_path = KeyPath::default();
    for entry in root.entries().unwrap_or_default() {
        if !ROOT_KEYS.contains(&entry.key.as_str()) {
            notes.unknown(&entry.key, entry.key_span, &key_path.key(&entry.key), &ROOT_KEYS);
        }
    }
    check_tool_mode(notes, &root, &key_path);
    let whole = root.span;
    let Value::Map(entries) = &mut root.value else { return root };
    entries.retain(|entry| entry.key == "toolboxes");
    let key_path = key_path.key("toolboxes");
    match entries.first_mut().map(|entry| (entry.value.span, &mut entry.value.value)) {
        Some((_, Value::Map(toolboxes))) => {
            for entry in toolboxes {
                translate_toolbox(notes, entry, &key_path.key(&entry.key));
            }
        }
        other => {
            let span = other.map_or(whole, |(span, _)| span);
            notes.error(span, &key_path, "Configuration must have a 'toolboxes' object", None);
            entries.clear();
        }
    }
    root
}

/// Reports the obsolete `toolMode` setting.
fn check_tool_mode(notes: &mut TranslationNotes, root: &Node, key_path: &KeyPath) {
    let Some(mode) = root.get("toolMode") else { return };
    let key_path = key_path.key("toolMode");
    match &mode.value {
        Value::Text(mode_name) if mode_name == "dynamic" => {
            let message = "toolMode 'dynamic' was removed: use open_toolbox and use_tool";
            let help = "remove toolMode; to list every tool, use a pegboard.json with expose: flat";
            notes.error(mode.span, &key_path, message, Some(help.to_owned()));
        }
        Value::Text(mode_name) if mode_name == "proxy" => {
            let help = Some("remove it: there is no other mode".to_owned());
            notes.warn(mode.span, &key_path, "toolMode is deprecated", help);
        }
        _ => notes.warn(mode.span, &key_path, "toolMode is ignored", Some("remove it".to_owned())),
    }
}

fn translate_toolbox(notes: &mut TranslationNotes, entry: &mut TreeEntry, key_path: &KeyPath) {
    for inner in entry.value.entries().unwrap_or_default() {
        if !TOOLBOX_KEYS.contains(&inner.key.as_str()) {
            notes.unknown(&inner.key, inner.key_span, &key_path.key(&inner.key), &TOOLBOX_KEYS);
        }
    }
    let name = entry.key.clone();
    let described = entry.value.get("description");
    if !matches!(described, Some(Node { value: Value::Text(text), .. }) if !text.is_empty()) {
        let span = described.map_or(entry.key_span, |node| node.span);
        let message = format!("Toolbox '{name}' must have a description");
        let help = Some("describe its purpose in a sentence: models choose by it".to_owned());
        notes.error(span, &key_path.key("description"), message, help);
    }
    check_servers(notes, entry, key_path, &name);
    match &mut entry.value.value {
        Value::Map(entries) => entries.retain(|inner| match inner.key.as_str() {
            "description" => matches!(inner.value.value, Value::Text(_)),
            "mcpServers" => true,
            _ => false,
        }),
        other => *other = Value::Null,
    }
}

/// Checks that there are servers and that their entries have the right types.
fn check_servers(notes: &mut TranslationNotes, entry: &TreeEntry, key_path: &KeyPath, toolbox: &str) {
    let key_path = key_path.key("mcpServers");
    let Some(servers) = entry.value.get("mcpServers") else {
        let message = format!("Toolbox '{toolbox}' must have an 'mcpServers' object");
        return notes.error(entry.key_span, &key_path, message, None);
    };
    if matches!(&servers.value, Value::Map(entries) if entries.is_empty()) {
        let message = format!("Toolbox '{toolbox}' must have at least one MCP server");
        notes.error(servers.span, &key_path, message, None);
    }
    for server in servers.entries().unwrap_or_default() {
        let mut check = |key: &str, is_right: fn(&Value) -> bool, what: &str| {
            if let Some(found) = server.value.get(key).filter(|found| !is_right(&found.value)) {
                let name = &server.key;
                let message = format!("Server '{name}' in toolbox '{toolbox}': '{key}' must be an {what}");
                notes.error(found.span, &key_path.key(name).key(key), message, None);
            }
        };
        check("args", |value| matches!(value, Value::List(_)), "array");
        check("env", |value| matches!(value, Value::Map(_)), "object");
    }
}
