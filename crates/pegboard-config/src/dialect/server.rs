//! An entry of `mcpServers`, common to all dialects that have them.

use std::path::PathBuf;

use indexmap::IndexMap;
use pegboard_core::id::ServerName;
use pegboard_core::settings::{QueueSettings, ServerSettings};
use serde::de::DeserializeOwned;

use super::environment;
use super::native::{check_range, subset};
use crate::clients::client_for_path;
use crate::configuration::{ServerEntry, ToolboxConfig};
use crate::did_you_mean;
use crate::path::{KeyPath, KeySegment};
use crate::read::{ConfigReader, OnUnsetVariable, field_names};
use crate::redact::{secret_ranges, takes_secret_value};
use crate::settings::{IncompleteServer, McpServerSettings};
use crate::source::holds_secrets;
use crate::tree::{Node, Span, TreeEntry, Value, ValueOrigin};

/// Queue that always exists.
const DEFAULT_QUEUE: &str = "default";
/// Names reserved for other kinds of tools.
const RESERVED: [&str; 6] = ["agent", "chain", "gateway", "rest", "router", "tool_output"];

/// Reads one server into its toolbox. A problem leaves out only this server.
pub(super) fn read(
    reader: &mut ConfigReader<'_>,
    entry: &TreeEntry,
    key_path: &KeyPath,
    toolbox: &mut ToolboxConfig,
    queues: &IndexMap<String, QueueSettings>,
) {
    let key_path = key_path.key(&entry.key);
    let on_unset = if is_disabled(&entry.value) { OnUnsetVariable::Ignore } else { OnUnsetVariable::Report };
    reader.begin_part();
    let name = reader.expand_name(&entry.key, entry.key_span, &key_path, on_unset);
    toolbox.rename_service(&name);
    let name = check_name(reader, &name, entry.key_span, &key_path, toolbox);
    let described = describe(reader, &entry.value, &key_path, on_unset);
    if let Some((_, tools)) = &described {
        check_queues(reader, ("MCP server", entry), &key_path, tools, queues);
    }
    let server = match (&name, described) {
        (Some(name), Some(described)) if !reader.is_part_invalid() => {
            resolve(reader, name, described, entry, &key_path)
        }
        _ => None,
    };
    let part = reader.end_part(&key_path);
    let Some(name) = name else { return };
    toolbox.servers.insert(name, part.entry(server).unwrap_or_else(ServerEntry::Unusable));
}

/// Returns `true` if the entry is disabled. Its missing variables are not reported then.
pub(super) fn is_disabled(node: &Node) -> bool {
    let is_set_to = |key: &str, expected: bool| matches!(node.get(key), Some(Node { value: Value::Bool(found), .. }) if *found == expected);
    is_set_to("enabled", false) || is_set_to("disabled", true)
}

pub(super) fn check_name(
    reader: &mut ConfigReader<'_>,
    name: &str,
    span: Span,
    key_path: &KeyPath,
    toolbox: &ToolboxConfig,
) -> Option<ServerName> {
    let name = reader.valid_name(ServerName::new(name), span, key_path)?;
    if RESERVED.contains(&name.as_str()) {
        let help = format!("use a name such as my-{name}");
        reader.error(span, key_path, format!("'{name}' is a reserved name"), Some(help));
    }
    if toolbox.servers.contains_key(&name) {
        let help = Some("rename one of them".to_owned());
        reader.error(span, key_path, format!("duplicate server name '{name}' in the toolbox"), help);
        return None;
    }
    Some(name)
}

fn describe(
    reader: &mut ConfigReader<'_>,
    node: &Node,
    key_path: &KeyPath,
    on_unset: OnUnsetVariable,
) -> Option<(McpServerSettings, ServerSettings)> {
    let entries = reader.object(node, key_path, "a server", None)?;
    let mut expanded = expand_entries(reader, node, entries, key_path, (on_unset, "toolSchemas"));
    environment::merge_environment(reader, &mut expanded, key_path, on_unset);
    let (connection, settings, tools) = read_split(reader, &expanded, key_path);
    for tool in tools.get("tools").and_then(Node::entries).unwrap_or_default() {
        check_range(reader, &tool.value, &key_path.key("tools").key(&tool.key), "priority", (-10, 10));
    }
    Some((connection?, settings?))
}

/// Expands the variables of an entry and collects its secrets. The value under `as_written` is kept
/// unchanged, since schemas are passed through.
pub(super) fn expand_entries(
    reader: &mut ConfigReader<'_>,
    node: &Node,
    entries: &[TreeEntry],
    key_path: &KeyPath,
    (on_unset, as_written): (OnUnsetVariable, &str),
) -> Node {
    let mut entries = entries.to_vec();
    for entry in entries.iter_mut().filter(|entry| entry.key != as_written) {
        scalars_to_text(reader, entry);
        reader.expand(&mut entry.value, &key_path.key(&entry.key), on_unset);
        collect_secrets(reader, entry);
    }
    Node { value: Value::Map(entries), ..node.clone() }
}

/// Splits an entry into its own fields and the settings of its tools, and reads both. Also returns the
/// entries of the latter.
pub(super) fn read_split<A: DeserializeOwned, B: DeserializeOwned>(
    reader: &mut ConfigReader<'_>,
    expanded: &Node,
    key_path: &KeyPath,
) -> (Option<A>, Option<B>, Node) {
    let fields = field_names::<A>();
    let own = reader.read(&subset(expanded, fields), key_path, &[]);
    let is_other = |entry: &&TreeEntry| !fields.contains(&entry.key.as_str());
    let others = expanded.entries().unwrap_or_default().iter().filter(is_other).cloned().collect();
    let others = Node { value: Value::Map(others), ..expanded.clone() };
    let settings = reader.read(&others, key_path, fields);
    check_range(reader, &others, key_path, "priority", (-10, 10));
    (own, settings, others)
}

/// Converts numbers and booleans among arguments, variables and headers to the text as written.
pub(super) fn scalars_to_text(reader: &ConfigReader<'_>, entry: &mut TreeEntry) {
    let as_text = |node: &mut Node| {
        if matches!(node.value, Value::Number(_) | Value::Bool(_)) {
            node.value = Value::Text(reader.text(node.span).slice(node.span).to_owned());
        }
    };
    match &mut entry.value.value {
        Value::List(items) if entry.key == "args" || entry.key == "command" => {
            items.iter_mut().for_each(as_text);
        }
        Value::Map(entries) if holds_secrets(&entry.key) || entry.key == "serverVariables" => {
            entries.iter_mut().map(|entry| &mut entry.value).for_each(as_text);
        }
        _ => {}
    }
}

/// Collects the values of variables and headers as secrets, and the token of a header such as `Bearer …`.
pub(super) fn collect_secrets(reader: &mut ConfigReader<'_>, entry: &mut TreeEntry) {
    if !holds_secrets(&entry.key) {
        return collect_argument_secrets(reader, entry);
    }
    let Value::Map(entries) = &mut entry.value.value else { return };
    for inner in entries {
        inner.value.origin = ValueOrigin::Secret;
        if let Value::Text(text) = &inner.value.value {
            reader.add_named_secret(&inner.key, text);
            if let Some((_, token)) = text.split_once(' ') {
                reader.add_named_secret(&inner.key, token);
            }
        }
    }
}

/// Collects the secrets in arguments and URLs: `--api-key=…`, `?token=…`.
fn collect_argument_secrets(reader: &mut ConfigReader<'_>, entry: &TreeEntry) {
    let text = |node: &Node| if let Value::Text(text) = &node.value { Some(text.clone()) } else { None };
    let words: Vec<String> = match (entry.key.as_str(), &entry.value.value) {
        ("url" | "baseUrl" | "spec", Value::Text(text)) => vec![text.clone()],
        ("args" | "command", Value::List(items)) => items.iter().filter_map(text).collect(),
        _ => return,
    };
    let mut is_value = false;
    for word in &words {
        for hidden in secret_ranges(word) {
            reader.add_secret(&word[hidden]);
        }
        if is_value && !word.starts_with('-') {
            reader.add_secret(word);
        }
        is_value = takes_secret_value(word);
    }
}

/// Checks that all referenced queues exist. `kind` names the kind of entry in messages.
pub(super) fn check_queues(
    reader: &mut ConfigReader<'_>,
    (kind, entry): (&str, &TreeEntry),
    key_path: &KeyPath,
    settings: &ServerSettings,
    queues: &IndexMap<String, QueueSettings>,
) {
    check_queue(reader, (kind, entry), key_path, (settings.queue.as_deref(), &["queue"]), queues);
    for (tool, its) in &settings.tools {
        let queue = (its.queue.as_deref(), &["tools", tool, "queue"][..]);
        check_queue(reader, (kind, entry), key_path, queue, queues);
    }
}

/// Checks that a queue exists, if one is referenced. `keys` lead to the reference in the entry.
pub(super) fn check_queue(
    reader: &mut ConfigReader<'_>,
    (kind, entry): (&str, &TreeEntry),
    key_path: &KeyPath,
    (queue, keys): (Option<&str>, &[&str]),
    queues: &IndexMap<String, QueueSettings>,
) {
    let is_missing = |queue: &&str| *queue != DEFAULT_QUEUE && !queues.contains_key(*queue);
    let Some(queue) = queue.filter(is_missing) else { return };
    let message = format!(
        "{kind} '{}' references unknown queue '{queue}'. Add it under configuration.queues.",
        entry.key
    );
    let help = did_you_mean(queue, queues.keys().map(String::as_str));
    let written = keys.iter().try_fold(&entry.value, |node, key| node.get(key)).unwrap_or(&entry.value);
    let key_path = keys.iter().fold(key_path.clone(), |path, key| path.key(key));
    // The queue is missing from the file; the entry itself may be valid.
    reader.file_error(written.span, &key_path, message, help);
}

fn resolve(
    reader: &mut ConfigReader<'_>,
    name: &ServerName,
    (mut connection, tools): (McpServerSettings, ServerSettings),
    entry: &TreeEntry,
    key_path: &KeyPath,
) -> Option<ServerEntry> {
    connection.cwd = Some(working_dir(reader, entry, connection.cwd));
    if let (Some(url), Some(written)) = (&connection.url, entry.value.get("url"))
        && !["http://", "https://", "ws://", "wss://"].iter().any(|scheme| url.trim().starts_with(scheme))
    {
        let help = Some("use a URL such as https://example.com/mcp".to_owned());
        reader.error(written.span, &key_path.key("url"), "invalid server URL", help);
        return None;
    }
    match connection.resolve(name.clone(), tools) {
        Ok(server) => Some(server),
        Err(invalid) => {
            let known = field_names::<McpServerSettings>().iter().copied();
            let suggestion = |key: &str| {
                did_you_mean(key, ["command", "url"]).filter(|_| !known.clone().any(|name| name == key))
            };
            let misspelt =
                entry.value.entries().unwrap_or_default().iter().find_map(|entry| suggestion(&entry.key));
            let help = match (&invalid, misspelt) {
                (_, Some(meant)) => meant,
                (IncompleteServer::NoCommand { .. }, None) => "set command or url".to_owned(),
                _ => "set url".to_owned(),
            };
            reader.error(entry.key_span, key_path, invalid.to_string(), Some(help));
            None
        }
    }
}

/// Returns the working directory of a program: relative to the project of the file that names the program, which is the
/// default.
fn working_dir(reader: &ConfigReader<'_>, entry: &TreeEntry, written: Option<PathBuf>) -> PathBuf {
    let of_command = entry.value.get("command").map_or(entry.key_span, |command| command.span);
    let text = reader.text(of_command);
    let local = client_for_path(&text.path).filter(|client| client.has_local_servers()).and_then(|client| {
        let keys = text.original_path(of_command)?;
        let keys = keys.segments().iter().map_while(|segment| match segment {
            KeySegment::Key(key) => Some(key.as_str()),
            KeySegment::Index(_) => None,
        });
        client.directory_of(keys)
    });
    let workspace = reader.variable_context(of_command).workspace.folder();
    let folder = local.as_deref().filter(|folder| folder.is_dir()).unwrap_or(workspace);
    // Without `.` in the middle.
    written.map_or_else(|| folder.to_owned(), |written| folder.join(written).components().collect())
}
