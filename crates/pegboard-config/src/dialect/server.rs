//! One MCP server, as every dialect that has `mcpServers` describes it.

use indexmap::IndexMap;
use pegboard_core::id::ServerName;
use pegboard_core::settings::mcp::{InvalidSettings, McpServerEntry, McpServerSettings};
use pegboard_core::settings::{QueueSettings, ServerSettings};
use serde::de::DeserializeOwned;

use super::environment;
use super::native::{check_range, subset};
use crate::configuration::{Server, Toolbox};
use crate::mask::{hidden_in, is_before_secret};
use crate::near::near;
use crate::path::Path;
use crate::read::{Missing, Reader, field_names};
use crate::source::is_veiling;
use crate::tree::{Entry, Node, Origin, Span, Value};

/// The queue that is always there.
pub(super) const DEFAULT_QUEUE: &str = "default";
/// Names that tools of other kinds go by.
const RESERVED: [&str; 6] = ["agent", "chain", "gateway", "rest", "router", "tool_output"];

/// Reads one server into its toolbox. What is wrong with it leaves out that server alone.
pub(super) fn read(
    reader: &mut Reader<'_>,
    entry: &Entry,
    way: &Path,
    toolbox: &mut Toolbox,
    queues: &IndexMap<String, QueueSettings>,
) {
    let way = way.key(&entry.key);
    let missing = if is_off(&entry.value) { Missing::Ignored } else { Missing::Told };
    reader.begin_part();
    let (name, _) = reader.fill_text(&entry.key, entry.key_span, &way, missing);
    let name = check_name(reader, &name, entry.key_span, &way, toolbox);
    let described = describe(reader, &entry.value, &way, missing);
    if let Some(described) = &described {
        check_queues(reader, ("MCP server", entry), &way, &described.tools, queues);
    }
    let server = match (&name, described) {
        (Some(name), Some(described)) if !reader.is_part_wrong() => {
            normalise(reader, name, described, entry, &way)
        }
        _ => None,
    };
    let part = reader.end_part(&way);
    let Some(name) = name else { return };
    let server = match server.filter(|_| !part.is_wrong) {
        Some(server) => server,
        None => Server::Unusable { needs: part.needs, problems: part.problems },
    };
    toolbox.servers.insert(name, server);
}

/// Whether a server says that it is not used. Then nothing that it needs has to be there.
pub(super) fn is_off(node: &Node) -> bool {
    let says = |key: &str, word: bool| matches!(node.get(key), Some(Node { value: Value::Bool(said), .. }) if *said == word);
    says("enabled", false) || says("disabled", true)
}

pub(super) fn check_name(
    reader: &mut Reader<'_>,
    name: &str,
    span: Span,
    way: &Path,
    toolbox: &Toolbox,
) -> Option<ServerName> {
    let name = match ServerName::new(name) {
        Ok(name) => name,
        Err(invalid) => {
            reader.error(span, way, invalid.to_string(), Some("call it something else".to_owned()));
            return None;
        }
    };
    if RESERVED.contains(&name.as_str()) {
        let help = format!("call it something like my-{name}");
        reader.error(span, way, format!("'{name}' is the name of a kind of tools"), Some(help));
    }
    if toolbox.servers.contains_key(&name) {
        let help = Some("call one of them something else".to_owned());
        reader.error(span, way, format!("the toolbox has a server '{name}' already"), help);
        return None;
    }
    Some(name)
}

fn describe(reader: &mut Reader<'_>, node: &Node, way: &Path, missing: Missing) -> Option<McpServerEntry> {
    let Value::Map(entries) = &node.value else {
        reader.error(node.span, way, format!("a server is an object, not {}", node.kind()), None);
        return None;
    };
    let mut filled = filled(reader, node, entries, way, (missing, "toolSchemas"));
    environment::complete(reader, &mut filled, way, missing);
    let (connection, settings, tools) = split(reader, &filled, way, &McpServerSettings::FIELDS);
    for tool in tools.get("tools").and_then(Node::entries).unwrap_or_default() {
        check_range(reader, &tool.value, &way.key("tools").key(&tool.key), "priority", (-10, 10));
    }
    Some(McpServerEntry { connection: connection?, tools: settings? })
}

/// A description with its variables filled in, and secrets remembered. What stands under `as_written` stays so: schemas
/// are passed on as they are.
pub(super) fn filled(
    reader: &mut Reader<'_>,
    node: &Node,
    entries: &[Entry],
    way: &Path,
    (missing, as_written): (Missing, &str),
) -> Node {
    let mut entries = entries.to_vec();
    for entry in entries.iter_mut().filter(|entry| entry.key != as_written) {
        as_texts(reader, entry);
        reader.fill(&mut entry.value, &way.key(&entry.key), missing);
        veil(reader, entry);
    }
    Node { value: Value::Map(entries), ..node.clone() }
}

/// A description as the two that it is made of: what the fields say, and what holds for its tools, which is given as it
/// was written, too.
pub(super) fn split<A: DeserializeOwned, B: DeserializeOwned>(
    reader: &mut Reader<'_>,
    filled: &Node,
    way: &Path,
    fields: &[&str],
) -> (Option<A>, Option<B>, Node) {
    let own = reader.read(&subset(filled, fields), way, &[]);
    let is_other = |entry: &&Entry| !fields.contains(&entry.key.as_str());
    let others = filled.entries().unwrap_or_default().iter().filter(is_other).cloned().collect();
    let others = Node { value: Value::Map(others), ..filled.clone() };
    let rules = reader.read(&others, way, fields);
    check_range(reader, &others, way, "priority", (-10, 10));
    (own, rules, others)
}

/// Numbers and words among arguments, variables and headers are the texts that they are written as.
pub(super) fn as_texts(reader: &Reader<'_>, entry: &mut Entry) {
    let as_text = |node: &mut Node| {
        if matches!(node.value, Value::Number(_) | Value::Bool(_)) {
            node.value = Value::Text(reader.text(node.span).slice(node.span).to_owned());
        }
    };
    match &mut entry.value.value {
        Value::List(items) if entry.key == "args" || entry.key == "command" => {
            items.iter_mut().for_each(as_text);
        }
        Value::Map(entries) if is_veiling(&entry.key) || entry.key == "serverVariables" => {
            entries.iter_mut().map(|entry| &mut entry.value).for_each(as_text);
        }
        _ => {}
    }
}

/// Remembers the values of variables and headers, and of a header the part that is the secret: `Bearer …`.
pub(super) fn veil(reader: &mut Reader<'_>, entry: &mut Entry) {
    if !is_veiling(&entry.key) {
        return veil_words(reader, entry);
    }
    let Value::Map(entries) = &mut entry.value.value else { return };
    for inner in entries {
        inner.value.origin = Origin::Secret;
        if let Value::Text(text) = &inner.value.value {
            reader.keep_secret(text);
            if let Some((_, token)) = text.split_once(' ') {
                reader.keep_secret(token);
            }
        }
    }
}

/// Remembers what arguments and addresses carry: `--api-key=…`, `?token=…`.
fn veil_words(reader: &mut Reader<'_>, entry: &Entry) {
    let text = |node: &Node| if let Value::Text(text) = &node.value { Some(text.clone()) } else { None };
    let words: Vec<String> = match (entry.key.as_str(), &entry.value.value) {
        ("url" | "baseUrl" | "spec", Value::Text(text)) => vec![text.clone()],
        ("args" | "command", Value::List(items)) => items.iter().filter_map(text).collect(),
        _ => return,
    };
    let mut is_value = false;
    for word in &words {
        for hidden in hidden_in(word) {
            reader.keep_secret(&word[hidden]);
        }
        if is_value && !word.starts_with('-') {
            reader.keep_secret(word);
        }
        is_value = is_before_secret(word);
    }
}

/// Whether every queue that is named is there. `kind` is what the entry describes.
pub(super) fn check_queues(
    reader: &mut Reader<'_>,
    (kind, entry): (&str, &Entry),
    way: &Path,
    settings: &ServerSettings,
    queues: &IndexMap<String, QueueSettings>,
) {
    let (server, node) = (&entry.key, &entry.value);
    let is_there = |queue: &str| queue == DEFAULT_QUEUE || queues.contains_key(queue);
    let mut wrong = Vec::new();
    if let Some(queue) = settings.queue.as_deref().filter(|queue| !is_there(queue)) {
        wrong.push((queue, node.get("queue"), way.key("queue")));
    }
    for (tool, its) in &settings.tools {
        if let Some(queue) = its.queue.as_deref().filter(|queue| !is_there(queue)) {
            let written =
                node.get("tools").and_then(|tools| tools.get(tool)).and_then(|tool| tool.get("queue"));
            wrong.push((queue, written, way.key("tools").key(tool).key("queue")));
        }
    }
    for (queue, written, way) in wrong {
        let message = format!(
            "{kind} '{server}' references unknown queue '{queue}'. Add it under configuration.queues."
        );
        let help =
            near(queue, queues.keys().map(String::as_str)).map(|meant| format!("did you mean {meant}?"));
        // What is missing is missing from the file, and the server may be as it should.
        reader.error_of_file(written.unwrap_or(node).span, &way, message, help);
    }
}

fn normalise(
    reader: &mut Reader<'_>,
    name: &ServerName,
    described: McpServerEntry,
    entry: &Entry,
    way: &Path,
) -> Option<Server> {
    if let (Some(url), Some(written)) = (&described.connection.url, entry.value.get("url"))
        && !["http://", "https://", "ws://", "wss://"].iter().any(|scheme| url.trim().starts_with(scheme))
    {
        let help = Some("write one like https://example.com/mcp".to_owned());
        reader.error(written.span, &way.key("url"), "this is no address of a server", help);
        return None;
    }
    match described.normalise(name.clone()) {
        Ok((connection, tools)) => {
            Some(Server::Mcp { connection: Box::new(connection), tools: Box::new(tools) })
        }
        Err(invalid) => {
            let known = field_names::<McpServerSettings>().iter().copied();
            let meant =
                |key: &str| near(key, ["command", "url"]).filter(|_| !known.clone().any(|name| name == key));
            let misspelt =
                entry.value.entries().unwrap_or_default().iter().find_map(|entry| meant(&entry.key));
            let help = match (&invalid, misspelt) {
                (_, Some(meant)) => format!("did you mean {meant}?"),
                (InvalidSettings::NoCommand { .. }, None) => {
                    "give it the command that starts it, or the url where it is".to_owned()
                }
                _ => "give it the url where it is".to_owned(),
            };
            reader.error(entry.key_span, way, invalid.to_string(), Some(help));
            None
        }
    }
}
