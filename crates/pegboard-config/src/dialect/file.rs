//! A file of another program, as one of ours: where its servers are, what they are called, and which are off.

use std::path::Path;

use super::foreign::Translator;
use super::made::{as_text, entry, items, map, text};
use super::recognise::{are_servers, is_server};
use super::syntax::Answers;
use super::words::{Root, Unit, Words};
use super::{Dialect, Place, Remarks, hub, native};
use crate::clients::{Client, client_at};
use crate::near::near;
use crate::path::{Path as Way, Step};
use crate::tree::{Entry, Node, Span, Value};

/// Where servers may be, in files of any program.
const SECTIONS: [&str; 6] = ["mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "extensions"];
/// What is an object where it is ours. Somebody else may mean something else by the word.
const OBJECTS: [&str; 10] = [
    "chains",
    "defaults",
    "inputs",
    "openapiSpecs",
    "profiles",
    "providers",
    "queues",
    "restTools",
    "toolOutput",
    "toolboxes",
];
/// What a file says about itself.
const ABOUT: [&str; 11] = [
    "author",
    "comment",
    "description",
    "homepage",
    "icon",
    "keywords",
    "license",
    "name",
    "repository",
    "title",
    "version",
];
/// Names that tools of other kinds go by.
pub(super) const RESERVED: [&str; 6] = ["agent", "chain", "gateway", "rest", "router", "tool_output"];

/// The file in our own words.
pub(super) fn translate(
    dialect: Dialect,
    words: &Words,
    root: &Node,
    place: &Place<'_>,
    remarks: &mut Remarks,
) -> Node {
    let Some((way, section)) = find(words, root) else {
        // Nobody has put a server there yet.
        return map(root.span, vec![entry("mcpServers", root.span, map(root.span, Vec::new()))]);
    };
    tell_others(&way, root, remarks);
    // The same shape is that of many, and they count in other units.
    let unit = match words.timeout {
        Unit::Unsaid => client_at(place.path).and_then(Client::timeout).map_or(Unit::Unsaid, Unit::from),
        said @ (Unit::Milliseconds | Unit::Seconds) => said,
    };
    let words = &Words { timeout: unit, ..*words };
    let mut translator = Translator::new(words, answers(root), remarks);
    let (mut servers, mut services) = (Servers::default(), Servers::default());
    let mut left_out = Vec::new();
    for part in parts(section, &way) {
        if let Some(reason) = why_left_out(dialect, &part.value) {
            left_out.push((reason, part));
            continue;
        }
        let node = translator.server(part.value.clone(), &part.way);
        if is_pegboard(&part.name, &node) {
            left_out.push(("this is Pegboard itself", part));
            continue;
        }
        let service = (dialect == Dialect::McpHub)
            .then(|| hub::service(&node, &part.way, translator.remarks))
            .flatten();
        match service {
            Some(service) => services.add(&part, service, translator.remarks),
            None => servers.add(&part, node, translator.remarks),
        }
    }
    tell_left_out(&left_out, remarks);
    if dialect == Dialect::ClaudeCode {
        add_local(words, root, place.project, &mut servers, remarks);
    }
    if dialect == Dialect::Gemini {
        switch_off(root, &mut servers, remarks);
    }
    if dialect == Dialect::OpenCode {
        deny_tools(root, &mut servers);
    }
    let value = match &section.value {
        Value::Map(_) | Value::List(_) => map(section.span, servers.entries),
        // Whoever reads on says what is wrong with it.
        _ => section.clone(),
    };
    let is_of_client = dialect == Dialect::McpServers && is_of_client(place.path);
    let words = &Words { root: if is_of_client { Root::Client } else { words.root }, ..*words };
    let mut root = with_servers(words, root, (&way, section.span), value, remarks);
    if let (false, Value::Map(entries)) = (services.entries.is_empty(), &mut root.value) {
        entries.push(entry("openapiSpecs", section.span, map(section.span, services.entries)));
    }
    root
}

/// The servers of a file, and the keys that lead to them.
fn find<'n>(words: &Words, root: &'n Node) -> Option<(Vec<&'static str>, &'n Node)> {
    let follow = |way: &&[&str]| way.iter().try_fold(root, |node, key| node.get(key));
    words.ways.iter().find_map(|way| follow(way).map(|node| (way.to_vec(), node)))
}

/// One server as it was written.
struct Part {
    name: String,
    name_span: Span,
    value: Node,
    way: Way,
}

/// The servers in an object, or in a list where each has its name inside.
fn parts(section: &Node, way: &[&str]) -> Vec<Part> {
    let way = way.iter().fold(Way::default(), |way, key| way.key(key));
    match &section.value {
        Value::Map(entries) => {
            // Where no remarks can be written, they are written as entries.
            let is_one = |entry: &&Entry| !is_remark(&entry.key) || is_server(&entry.value);
            let part = |entry: &Entry| Part {
                name: entry.key.clone(),
                name_span: entry.key_span,
                value: entry.value.clone(),
                way: way.key(&entry.key),
            };
            entries.iter().filter(is_one).map(part).collect()
        }
        Value::List(listed) => {
            let part = |(index, item): (usize, &Node)| {
                let name = item.get("name").and_then(|node| Some((as_text(node)?.to_owned(), node.span)));
                let (name, name_span) = name.unwrap_or_else(|| (format!("server-{}", index + 1), item.span));
                Part { name, name_span, value: item.clone(), way: way.step(Step::Index(index)) }
            };
            listed.iter().enumerate().map(part).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether an entry of this name is a remark, unless it says otherwise.
fn is_remark(key: &str) -> bool {
    key.starts_with(['$', '_']) || key.starts_with("//") || key.starts_with('#')
}

/// Servers with names that we can use.
#[derive(Default)]
pub(super) struct Servers {
    pub(super) entries: Vec<Entry>,
}

impl Servers {
    fn add(&mut self, part: &Part, value: Node, remarks: &mut Remarks) {
        let name = self.name(&part.name, part.name_span, &part.way, remarks);
        self.entries.push(entry(name, part.name_span, value));
    }

    /// A name that we can use, and the remark that it is another one.
    pub(super) fn name(&self, written: &str, span: Span, way: &Way, remarks: &mut Remarks) -> String {
        let name = plain_name(written);
        let is_taken = |name: &str| self.entries.iter().any(|entry| entry.key == name);
        let mut free = name.clone();
        for number in 2.. {
            if !is_taken(&free) {
                break;
            }
            free = format!("{name}-{number}");
        }
        let reason = if free != name {
            "there is another one of its name"
        } else if RESERVED.contains(&written) {
            "its name is that of a kind of tools"
        } else {
            "names have letters, digits, '-' and '_'"
        };
        if free != written {
            remarks.warn(span, way, format!("the server is called {free} here: {reason}"), None);
        }
        free
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        let name = plain_name(name);
        self.entries.iter_mut().find(|entry| entry.key == name).map(|entry| &mut entry.value)
    }
}

/// A name with nothing in it but what a name of ours may have.
pub(crate) fn plain_name(written: &str) -> String {
    let is_plain = |each: char| each.is_ascii_alphanumeric() || matches!(each, '-' | '_');
    // A dash between words is one between letters, too.
    let is_word = |word: &&str| !word.is_empty() && *word != "-";
    let words: Vec<&str> = written.split(|each| !is_plain(each)).filter(is_word).collect();
    let name: String = words.join("-").chars().take(64).collect();
    match name.as_str() {
        "" => "server".to_owned(),
        reserved if RESERVED.contains(&reserved) => format!("my-{reserved}"),
        _ => name,
    }
}

/// Why a server is none that anybody else could use.
fn why_left_out(dialect: Dialect, node: &Node) -> Option<&'static str> {
    node.entries()?;
    let has = |key: &str| node.get(key).is_some();
    let kind = node.get("type").and_then(as_text).unwrap_or_default();
    match dialect {
        Dialect::Zed if !has("command") && !has("url") => Some("a part of an extension of Zed"),
        Dialect::Goose if matches!(kind, "builtin" | "platform" | "frontend" | "inline_python") => {
            Some("a part of Goose itself")
        }
        Dialect::OpenCode if !has("command") && !has("url") => Some("described elsewhere"),
        Dialect::Continue if has("uses") => Some("described elsewhere"),
        _ => None,
    }
}

/// Whether a server is this program, serving: whoever reads a client's file would go round in circles.
fn is_pegboard(name: &str, node: &Node) -> bool {
    let words = |key: &str| match node.get(key).map(|node| &node.value) {
        Some(Value::Text(word)) => vec![word.as_str()],
        Some(Value::List(items)) => items.iter().filter_map(as_text).collect(),
        _ => Vec::new(),
    };
    let line: Vec<&str> = words("command").into_iter().chain(words("args")).collect();
    let program = line.first().and_then(|command| command.rsplit(['/', '\\']).next()).unwrap_or_default();
    let is_program = program.trim_end_matches(".exe") == "pegboard" && line.contains(&"serve");
    // What goes by our name on this machine and at our path is what `connect --http` wrote.
    let url = node.get("url").and_then(as_text).unwrap_or_default();
    let is_here = ["http://127.0.0.1:", "http://localhost:"].iter().any(|here| url.starts_with(here));
    let is_address = name == "pegboard" && is_here && url.split('/').nth(3) == Some("mcp");
    is_program || is_address
}

fn tell_left_out(left_out: &[(&'static str, Part)], remarks: &mut Remarks) {
    let mut reasons: Vec<&str> = left_out.iter().map(|(reason, _)| *reason).collect();
    reasons.dedup();
    for reason in reasons {
        let parts: Vec<&Part> =
            left_out.iter().filter(|(why, _)| *why == reason).map(|(_, part)| part).collect();
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let Some(first) = parts.first() else { continue };
        let (are, each) = if parts.len() == 1 { ("is", "") } else { ("are", " each") };
        let message = format!("{} {are} left out:{each} {reason}", names.join(", "));
        remarks.warn(first.name_span, &first.way, message, None);
    }
}

/// Tells other servers in the file, which are not read.
fn tell_others(way: &[&str], root: &Node, remarks: &mut Remarks) {
    let first = way.first().copied().unwrap_or_default();
    for section in SECTIONS.iter().filter(|section| **section != first && !way.is_empty()) {
        let Some(found) = root.entry(section) else { continue };
        if are_servers(&found.value) || found.value.get("servers").is_some_and(are_servers) {
            let message = format!("the servers here are not read: those of {} are", way.join("."));
            let help = Some("put them into one place, or into two files".to_owned());
            remarks.warn(found.key_span, &Way::default().key(section), message, help);
        }
    }
}

/// What a person is asked for.
fn inputs(root: &Node) -> &[Node] {
    let listed = root.get("inputs").or_else(|| root.get("mcp")?.get("inputs"));
    listed.and_then(items).unwrap_or_default()
}

/// What stands in for the answers to what a person would be asked for.
fn answers(root: &Node) -> Answers {
    let answer = |input: &Node| {
        let id = as_text(input.get("id")?)?.to_owned();
        Some((id, as_text(input.get("default")?)?.to_owned()))
    };
    inputs(root).iter().filter_map(answer).collect()
}

/// What a person is asked for, in our words.
fn asked(root: &Node) -> Option<Entry> {
    let question = |input: &Node| {
        let id = input.get("id")?;
        let is_known = |entry: &&Entry| matches!(entry.key.as_str(), "description" | "password");
        let mut words: Vec<Entry> = input.entries()?.iter().filter(is_known).cloned().collect();
        if let Some(options) = input.get("options") {
            let value = |option: &Node| option.get("value").unwrap_or(option).clone();
            let values = items(options).unwrap_or_default().iter().map(value).collect();
            words.push(entry("options", options.span, Node::new(options.span, Value::List(values))));
        }
        Some(entry(as_text(id)?, id.span, map(input.span, words)))
    };
    let questions: Vec<Entry> = inputs(root).iter().filter_map(question).collect();
    let span = questions.first()?.key_span;
    Some(entry("inputs", span, map(span, questions)))
}

/// The servers that Claude Code has for one folder alone.
fn add_local(
    words: &Words,
    root: &Node,
    project: Option<&Path>,
    servers: &mut Servers,
    remarks: &mut Remarks,
) {
    let projects = root.get("projects").and_then(Node::entries).unwrap_or_default();
    let way = Way::default().key("projects");
    let mut elsewhere: Vec<&Entry> = Vec::new();
    for folder in projects {
        let found = folder.value.get("mcpServers");
        let is_here = project.is_some_and(|project| project == Path::new(&folder.key));
        if !is_here {
            let has_some = found.and_then(Node::entries).is_some_and(|found| !found.is_empty());
            elsewhere.extend(has_some.then_some(folder));
            continue;
        }
        let own = found.map(|found| parts(found, &["projects", &folder.key, "mcpServers"]));
        for part in own.unwrap_or_default() {
            let mut translator = Translator::new(words, Answers::new(), remarks);
            let node = translator.server(part.value.clone(), &part.way);
            // What is for one folder counts before what is for all.
            servers.entries.retain(|entry| entry.key != plain_name(&part.name));
            if !is_pegboard(&part.name, &node) {
                servers.add(&part, node, remarks);
            }
        }
        let off = folder.value.get("disabledMcpServers").and_then(items).unwrap_or_default();
        off.iter().filter_map(as_text).for_each(|name| turn_off(servers, name));
    }
    if let (Some(first), None) = (elsewhere.first(), project) {
        let folders: Vec<&str> = elsewhere.iter().map(|folder| folder.key.as_str()).collect();
        let message = format!("the servers of {} are not used", folders.join(", "));
        let help = "they are those of claude-code in that folder: go there and name claude-code";
        remarks.warn(first.key_span, &way.key(&first.key), message, Some(help.to_owned()));
    }
}

/// The servers that Gemini does not start.
fn switch_off(root: &Node, servers: &mut Servers, remarks: &mut Remarks) {
    let Some(mcp) = root.get("mcp") else { return };
    let listed = |key: &str| -> Option<Vec<String>> {
        let names = items(mcp.get(key)?)?.iter().filter_map(as_text);
        Some(names.map(plain_name).collect())
    };
    if let Some(allowed) = listed("allowed") {
        let names: Vec<String> = servers.entries.iter().map(|entry| entry.key.clone()).collect();
        names.iter().filter(|name| !allowed.contains(name)).for_each(|name| turn_off(servers, name));
    }
    listed("excluded").unwrap_or_default().iter().for_each(|name| turn_off(servers, name));
    if let Some(command) = mcp.entry("serverCommand") {
        let way = Way::default().key("mcp").key("serverCommand");
        let help = Some("describe it under mcpServers".to_owned());
        remarks.warn(command.key_span, &way, "this server is not carried over", help);
    }
}

fn turn_off(servers: &mut Servers, name: &str) {
    let Some(node) = servers.get_mut(name) else { return };
    let span = node.span;
    if let Value::Map(entries) = &mut node.value {
        entries.retain(|entry| entry.key != "enabled" && entry.key != "disabled");
        entries.push(entry("enabled", span, Node::new(span, Value::Bool(false))));
    }
}

/// What `OpenCode` says about tools at the root: `server_tool: false`.
fn deny_tools(root: &Node, servers: &mut Servers) {
    for tool in root.get("tools").and_then(Node::entries).unwrap_or_default() {
        if !matches!(tool.value.value, Value::Bool(false)) {
            continue;
        }
        for server in &mut servers.entries {
            let Some(denied) = tool.key.strip_prefix(&server.key).and_then(|rest| rest.strip_prefix('_'))
            else {
                continue;
            };
            let denied = text(tool.key_span, denied);
            let Value::Map(entries) = &mut server.value.value else { continue };
            match entries.iter_mut().find(|entry| entry.key == "toolsDenied") {
                Some(Entry { value: Node { value: Value::List(items), .. }, .. }) => items.push(denied),
                Some(_) => {}
                None => {
                    let list = Node::new(tool.key_span, Value::List(vec![denied]));
                    entries.push(entry("toolsDenied", tool.key_span, list));
                }
            }
        }
    }
}

/// Whether a file is one in which a client has other settings, too.
fn is_of_client(path: &Path) -> bool {
    // What ai-agent has there we have, too.
    let is_other = |client: &Client| client.name() != "ai-agent";
    client_at(path).is_some_and(is_other) || path.ends_with("claude_desktop_config.json")
}

/// The root with its servers under our name for them. Of what else there is only that stays which is ours, or nearly.
fn with_servers(
    words: &Words,
    root: &Node,
    (way, span): (&[&str], Span),
    servers: Node,
    remarks: &mut Remarks,
) -> Node {
    let names = native::root_names();
    let is_ours = |entry: &Entry| {
        let key = entry.key.as_str();
        let is_other = OBJECTS.contains(&key) && !matches!(entry.value.value, Value::Map(_) | Value::Null);
        !is_other && (names.contains(&key) || near(key, names.iter().copied()).is_some())
    };
    let is_kept = |entry: &&Entry| {
        words.root != Root::Program
            && way == ["mcpServers"]
            && !SECTIONS.contains(&entry.key.as_str())
            && is_ours(entry)
    };
    if words.root == Root::Servers {
        tell_rest(root, way, &is_ours, remarks);
    }
    let key_span = way.first().and_then(|key| root.entry(key)).map_or(span, |entry| entry.key_span);
    let mut entries: Vec<Entry> =
        root.entries().unwrap_or_default().iter().filter(is_kept).cloned().collect();
    entries.push(entry("mcpServers", key_span, servers));
    entries.extend(asked(root));
    Node { value: Value::Map(entries), ..root.clone() }
}

/// Tells what else is in a file, once for all of it.
fn tell_rest(root: &Node, way: &[&str], is_ours: &dyn Fn(&Entry) -> bool, remarks: &mut Remarks) {
    let is_rest = |entry: &&Entry| {
        let key = entry.key.as_str();
        // What a person is asked for is read, and what a file says about itself concerns nobody.
        let is_known = SECTIONS.contains(&key) || ABOUT.contains(&key) || key == "inputs";
        !way.contains(&key) && !is_remark(key) && !is_known && !is_ours(entry)
    };
    let rest: Vec<&Entry> = root.entries().unwrap_or_default().iter().filter(is_rest).collect();
    let Some(first) = rest.first().filter(|_| !way.is_empty()) else { return };
    let names: Vec<&str> = rest.iter().map(|entry| entry.key.as_str()).collect();
    let are = if names.len() == 1 { "is no setting" } else { "are no settings" };
    let message = format!("{} {are} of ours, and left alone", names.join(", "));
    remarks.warn(first.key_span, &Way::default().key(&first.key), message, None);
}
