//! Translates a client's file: finds its servers, gives them valid names and applies its enable lists.

use std::path::Path;

use indexmap::IndexMap;

use super::field_rules::{DialectRules, DurationUnit, RootContent};
use super::recognise::{are_servers, is_server};
use super::synthetic::{as_text, entry, items, map, text};
use super::translate::Translator;
use super::variable_syntax::InputDefaults;
use super::{ConfigDialect, FileContext, TranslationNotes, mcphub, native};
use crate::clients::{KnownClient, client_for_path};
use crate::inventory::command_line;
use crate::path::{KeyPath, KeySegment};
use crate::suggest;
use crate::to_json::to_json;
use crate::tree::{Node, Span, TreeEntry, Value};

/// Reason to skip the entry of Pegboard, which `import --take-over` and `connect` write.
pub(crate) const PEGBOARD_ITSELF: &str = "this is Pegboard itself";
/// Keys that hold servers in the files of any client.
const SERVER_SECTIONS: [&str; 6] =
    ["mcpServers", "servers", "context_servers", "mcp_servers", "mcp", "extensions"];
/// Native settings that are objects. Other programs may use the same key for something else.
const OBJECT_SETTINGS: [&str; 10] = [
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
/// Keys that describe the file itself.
const FILE_METADATA: [&str; 11] = [
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
/// Names reserved for other kinds of tools.
pub(super) const RESERVED: [&str; 6] = ["agent", "chain", "gateway", "rest", "router", "tool_output"];

/// Translates the file to the native format.
pub(super) fn translate(
    dialect: ConfigDialect,
    rules: &DialectRules,
    root: &Node,
    file: &FileContext<'_>,
    notes: &mut TranslationNotes,
) -> Node {
    let Some((key_path, section)) = find_servers(rules, root) else {
        // The section does not exist yet.
        return map(root.span, vec![entry("mcpServers", root.span, map(root.span, Vec::new()))]);
    };
    report_other_sections(&key_path, root, notes);
    // Many clients share this shape but use different units.
    let unit = match rules.timeout {
        DurationUnit::Unknown => client_for_path(file.path)
            .and_then(KnownClient::timeout)
            .map_or(DurationUnit::Unknown, DurationUnit::from),
        known @ (DurationUnit::Milliseconds | DurationUnit::Seconds) => known,
    };
    let rules = &DialectRules { timeout: unit, ..*rules };
    let mut translator = Translator::new(rules, input_defaults(root), notes);
    let (mut servers, mut services) = (TranslatedServers::default(), TranslatedServers::default());
    let mut skipped = Vec::new();
    for part in listed_servers(section, &key_path) {
        if let Some(reason) = skip_reason(dialect, &part.value) {
            skipped.push((reason, part));
            continue;
        }
        let node = translator.server(part.value.clone(), &part.key_path);
        if is_pegboard(&part.name, &node) {
            skipped.push((PEGBOARD_ITSELF, part));
            continue;
        }
        let service = (dialect == ConfigDialect::McpHub)
            .then(|| mcphub::service(&node, &part.key_path, translator.notes))
            .flatten();
        match service {
            Some(service) => services.add(&part, service, translator.notes),
            None => servers.add(&part, node, translator.notes),
        }
    }
    report_skipped(&skipped, notes);
    if dialect == ConfigDialect::ClaudeCode {
        add_project_servers(rules, root, file.project, &mut servers, notes);
    }
    if dialect == ConfigDialect::Gemini {
        apply_gemini_filters(root, &mut servers, notes);
    }
    if dialect == ConfigDialect::OpenCode {
        deny_tools(root, &mut servers);
    }
    let value = match &section.value {
        Value::Map(_) | Value::List(_) => map(section.span, servers.entries),
        // The reader reports the wrong type.
        _ => section.clone(),
    };
    let is_client_file = dialect == ConfigDialect::McpServers && is_client_file(file.path);
    let rules =
        &DialectRules { root: if is_client_file { RootContent::Client } else { rules.root }, ..*rules };
    let mut root = native_root(rules, root, (&key_path, section.span), value, notes);
    if let (false, Value::Map(entries)) = (services.entries.is_empty(), &mut root.value) {
        entries.push(entry("openapiSpecs", section.span, map(section.span, services.entries)));
    }
    root
}

/// Returns the servers of a file and the keys that lead to them.
fn find_servers<'n>(rules: &DialectRules, root: &'n Node) -> Option<(Vec<&'static str>, &'n Node)> {
    let follow = |key_path: &&[&str]| key_path.iter().try_fold(root, |node, key| node.get(key));
    rules.server_paths.iter().find_map(|key_path| follow(key_path).map(|node| (key_path.to_vec(), node)))
}

/// A server as written.
struct ListedServer {
    name: String,
    name_span: Span,
    value: Node,
    key_path: KeyPath,
}

/// Returns the servers of an object, or of a list of items with a `name`.
fn listed_servers(section: &Node, key_path: &[&str]) -> Vec<ListedServer> {
    let key_path = key_path.iter().fold(KeyPath::default(), |key_path, key| key_path.key(key));
    match &section.value {
        Value::Map(entries) => {
            // In formats without comments, comments are written as entries.
            let is_one = |entry: &&TreeEntry| !is_comment_key(&entry.key) || is_server(&entry.value);
            let part = |entry: &TreeEntry| ListedServer {
                name: entry.key.clone(),
                name_span: entry.key_span,
                value: entry.value.clone(),
                key_path: key_path.key(&entry.key),
            };
            entries.iter().filter(is_one).map(part).collect()
        }
        Value::List(listed) => {
            let part = |(index, item): (usize, &Node)| {
                let name = item.get("name").and_then(|node| Some((as_text(node)?.to_owned(), node.span)));
                let (name, name_span) = name.unwrap_or_else(|| (format!("server-{}", index + 1), item.span));
                ListedServer {
                    name,
                    name_span,
                    value: item.clone(),
                    key_path: key_path.segment(KeySegment::Index(index)),
                }
            };
            listed.iter().enumerate().map(part).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns `true` if an entry with this key is a comment rather than a server.
fn is_comment_key(key: &str) -> bool {
    key.starts_with(['$', '_']) || key.starts_with("//") || key.starts_with('#')
}

/// Translated servers with valid, unique names.
#[derive(Default)]
pub(super) struct TranslatedServers {
    pub(super) entries: Vec<TreeEntry>,
}

impl TranslatedServers {
    fn add(&mut self, part: &ListedServer, value: Node, notes: &mut TranslationNotes) {
        let name = self.name(&part.name, part.name_span, &part.key_path, notes);
        self.entries.push(entry(name, part.name_span, value));
    }

    /// Returns a valid, unique name. Adds a warning if it differs from the written one.
    pub(super) fn name(
        &self,
        written: &str,
        span: Span,
        key_path: &KeyPath,
        notes: &mut TranslationNotes,
    ) -> String {
        let name = sanitize_name(written);
        let is_taken = |name: &str| self.entries.iter().any(|entry| entry.key == name);
        let mut free = name.clone();
        for number in 2.. {
            if !is_taken(&free) {
                break;
            }
            free = format!("{name}-{number}");
        }
        let reason = if free != name {
            "the name is taken"
        } else if RESERVED.contains(&written) {
            "the name is reserved"
        } else {
            "names may contain letters, digits, '-' and '_'"
        };
        if free != written {
            notes.warn(span, key_path, format!("server renamed to {free}: {reason}"), None);
        }
        free
    }

    fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        let name = sanitize_name(name);
        self.entries.iter_mut().find(|entry| entry.key == name).map(|entry| &mut entry.value)
    }
}

/// Converts a text to a valid server name.
pub(crate) fn sanitize_name(written: &str) -> String {
    let is_plain = |each: char| each.is_ascii_alphanumeric() || matches!(each, '-' | '_');
    // A lone dash between words is a separator, too.
    let is_word = |word: &&str| !word.is_empty() && *word != "-";
    let words: Vec<&str> = written.split(|each| !is_plain(each)).filter(is_word).collect();
    let name: String = words.join("-").chars().take(64).collect();
    match name.as_str() {
        "" => "server".to_owned(),
        reserved if RESERVED.contains(&reserved) => format!("my-{reserved}"),
        _ => name,
    }
}

/// Returns the reason if a server works only inside its own client.
fn skip_reason(dialect: ConfigDialect, node: &Node) -> Option<&'static str> {
    node.entries()?;
    let has = |key: &str| node.get(key).is_some();
    let kind = node.get("type").and_then(as_text).unwrap_or_default();
    match dialect {
        ConfigDialect::Zed if !has("command") && !has("url") => Some("provided by a Zed extension"),
        ConfigDialect::Goose if matches!(kind, "builtin" | "platform" | "frontend" | "inline_python") => {
            Some("built into Goose")
        }
        ConfigDialect::OpenCode if !has("command") && !has("url") => Some("defined elsewhere"),
        ConfigDialect::Continue if has("uses") => Some("defined elsewhere"),
        _ => None,
    }
}

/// Returns `true` if the server is Pegboard itself: importing it would create a loop.
fn is_pegboard(name: &str, node: &Node) -> bool {
    let line = command_line(&to_json(node));
    let program = line.first().and_then(|command| command.rsplit(['/', '\\']).next()).unwrap_or_default();
    let is_program =
        program.trim_end_matches(".exe") == "pegboard" && line.iter().any(|word| word == "serve");
    // An entry with this name, host and path was written by `connect --http`.
    let url = node.get("url").and_then(as_text).unwrap_or_default();
    let is_here = ["http://127.0.0.1:", "http://localhost:"].iter().any(|here| url.starts_with(here));
    let is_address = name == "pegboard" && is_here && url.split('/').nth(3) == Some("mcp");
    is_program || is_address
}

fn report_skipped(skipped: &[(&'static str, ListedServer)], notes: &mut TranslationNotes) {
    let mut by_reason: IndexMap<&str, Vec<&ListedServer>> = IndexMap::new();
    for (reason, part) in skipped {
        by_reason.entry(reason).or_default().push(part);
    }
    for (reason, servers) in by_reason {
        let names: Vec<&str> = servers.iter().map(|part| part.name.as_str()).collect();
        let first = servers[0];
        let message = format!("skipped {}: {reason}", names.join(", "));
        notes.warn(first.name_span, &first.key_path, message, None);
    }
}

/// Reports other sections with servers, which are not read.
fn report_other_sections(key_path: &[&str], root: &Node, notes: &mut TranslationNotes) {
    let first = key_path.first().copied().unwrap_or_default();
    for section in SERVER_SECTIONS.iter().filter(|section| **section != first && !key_path.is_empty()) {
        let Some(found) = root.entry(section) else { continue };
        if are_servers(&found.value) || found.value.get("servers").is_some_and(are_servers) {
            let message = format!("these servers are ignored: the file also has {}", key_path.join("."));
            let help = Some("merge them, or use two files".to_owned());
            notes.warn(found.key_span, &KeyPath::default().key(section), message, help);
        }
    }
}

/// Returns the input definitions.
fn inputs(root: &Node) -> &[Node] {
    let listed = root.get("inputs").or_else(|| root.get("mcp")?.get("inputs"));
    listed.and_then(items).unwrap_or_default()
}

/// Returns the default values of inputs.
fn input_defaults(root: &Node) -> InputDefaults {
    let id_and_default = |input: &Node| {
        let id = as_text(input.get("id")?)?.to_owned();
        Some((id, as_text(input.get("default")?)?.to_owned()))
    };
    inputs(root).iter().filter_map(id_and_default).collect()
}

/// Converts the input definitions to the native format.
fn native_inputs(root: &Node) -> Option<TreeEntry> {
    let definition = |input: &Node| {
        let id = input.get("id")?;
        let is_known = |entry: &&TreeEntry| matches!(entry.key.as_str(), "description" | "password");
        let mut settings: Vec<TreeEntry> = input.entries()?.iter().filter(is_known).cloned().collect();
        if let Some(options) = input.get("options") {
            let value = |option: &Node| option.get("value").unwrap_or(option).clone();
            let values = items(options).unwrap_or_default().iter().map(value).collect();
            settings.push(entry("options", options.span, Node::new(options.span, Value::List(values))));
        }
        Some(entry(as_text(id)?, id.span, map(input.span, settings)))
    };
    let definitions: Vec<TreeEntry> = inputs(root).iter().filter_map(definition).collect();
    let span = definitions.first()?.key_span;
    Some(entry("inputs", span, map(span, definitions)))
}

/// Adds Claude Code's servers of a single directory.
fn add_project_servers(
    rules: &DialectRules,
    root: &Node,
    project: Option<&Path>,
    servers: &mut TranslatedServers,
    notes: &mut TranslationNotes,
) {
    let projects = root.get("projects").and_then(Node::entries).unwrap_or_default();
    let key_path = KeyPath::default().key("projects");
    let mut elsewhere: Vec<&TreeEntry> = Vec::new();
    for folder in projects {
        let found = folder.value.get("mcpServers");
        let is_here = project.is_some_and(|project| project == Path::new(&folder.key));
        if !is_here {
            let has_some = found.and_then(Node::entries).is_some_and(|found| !found.is_empty());
            elsewhere.extend(has_some.then_some(folder));
            continue;
        }
        let own = found.map(|found| listed_servers(found, &["projects", &folder.key, "mcpServers"]));
        for part in own.unwrap_or_default() {
            let mut translator = Translator::new(rules, InputDefaults::new(), notes);
            let node = translator.server(part.value.clone(), &part.key_path);
            // Servers of a directory override global ones.
            servers.entries.retain(|entry| entry.key != sanitize_name(&part.name));
            if !is_pegboard(&part.name, &node) {
                servers.add(&part, node, notes);
            }
        }
        let off = folder.value.get("disabledMcpServers").and_then(items).unwrap_or_default();
        off.iter().filter_map(as_text).for_each(|name| disable(servers, name));
    }
    if let (Some(first), None) = (elsewhere.first(), project) {
        let folders: Vec<&str> = elsewhere.iter().map(|folder| folder.key.as_str()).collect();
        let message = format!("servers of {} are ignored", folders.join(", "));
        let help = "to use them, run in that directory with the source claude-code";
        notes.warn(first.key_span, &key_path.key(&first.key), message, Some(help.to_owned()));
    }
}

/// Disables the servers that Gemini does not start.
fn apply_gemini_filters(root: &Node, servers: &mut TranslatedServers, notes: &mut TranslationNotes) {
    let Some(mcp) = root.get("mcp") else { return };
    let listed = |key: &str| -> Option<Vec<String>> {
        let names = items(mcp.get(key)?)?.iter().filter_map(as_text);
        Some(names.map(sanitize_name).collect())
    };
    if let Some(allowed) = listed("allowed") {
        let names: Vec<String> = servers.entries.iter().map(|entry| entry.key.clone()).collect();
        names.iter().filter(|name| !allowed.contains(name)).for_each(|name| disable(servers, name));
    }
    listed("excluded").unwrap_or_default().iter().for_each(|name| disable(servers, name));
    if let Some(command) = mcp.entry("serverCommand") {
        let key_path = KeyPath::default().key("mcp").key("serverCommand");
        let help = Some("add it under mcpServers".to_owned());
        notes.warn(command.key_span, &key_path, "not supported: a server without a name", help);
    }
}

fn disable(servers: &mut TranslatedServers, name: &str) {
    let Some(node) = servers.get_mut(name) else { return };
    let span = node.span;
    if let Value::Map(entries) = &mut node.value {
        entries.retain(|entry| entry.key != "enabled" && entry.key != "disabled");
        entries.push(entry("enabled", span, Node::new(span, Value::Bool(false))));
    }
}

/// Applies `OpenCode`'s global tool switches: `server_tool: false`.
fn deny_tools(root: &Node, servers: &mut TranslatedServers) {
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
                Some(TreeEntry { value: Node { value: Value::List(items), .. }, .. }) => items.push(denied),
                Some(_) => {}
                None => {
                    let list = Node::new(tool.key_span, Value::List(vec![denied]));
                    entries.push(entry("toolsDenied", tool.key_span, list));
                }
            }
        }
    }
}

/// Returns `true` if the file also holds a client's other settings.
fn is_client_file(path: &Path) -> bool {
    // The settings of ai-agent are native settings, too.
    let is_other = |client: &KnownClient| client.name() != "ai-agent";
    client_for_path(path).is_some_and(is_other) || path.ends_with("claude_desktop_config.json")
}

/// Builds the native root: the servers under `mcpServers`, and other keys only if they are native settings or
/// nearly so.
fn native_root(
    rules: &DialectRules,
    root: &Node,
    (key_path, span): (&[&str], Span),
    servers: Node,
    notes: &mut TranslationNotes,
) -> Node {
    let names = native::root_names();
    let is_ours = |entry: &TreeEntry| {
        let key = entry.key.as_str();
        let is_other =
            OBJECT_SETTINGS.contains(&key) && !matches!(entry.value.value, Value::Map(_) | Value::Null);
        !is_other && (names.contains(&key) || suggest(key, names.iter().copied()).is_some())
    };
    let is_kept = |entry: &&TreeEntry| {
        rules.root != RootContent::Program
            && key_path == ["mcpServers"]
            && !SERVER_SECTIONS.contains(&entry.key.as_str())
            && is_ours(entry)
    };
    if rules.root == RootContent::Servers {
        report_ignored_keys(root, key_path, &is_ours, notes);
    }
    let key_span = key_path.first().and_then(|key| root.entry(key)).map_or(span, |entry| entry.key_span);
    let mut entries: Vec<TreeEntry> =
        root.entries().unwrap_or_default().iter().filter(is_kept).cloned().collect();
    entries.push(entry("mcpServers", key_span, servers));
    entries.extend(native_inputs(root));
    Node { value: Value::Map(entries), ..root.clone() }
}

/// Reports all ignored keys in a single warning.
fn report_ignored_keys(
    root: &Node,
    key_path: &[&str],
    is_ours: &dyn Fn(&TreeEntry) -> bool,
    notes: &mut TranslationNotes,
) {
    let is_rest = |entry: &&TreeEntry| {
        let key = entry.key.as_str();
        // Inputs are read, and metadata of the file is not worth a warning.
        let is_known = SERVER_SECTIONS.contains(&key) || FILE_METADATA.contains(&key) || key == "inputs";
        !key_path.contains(&key) && !is_comment_key(key) && !is_known && !is_ours(entry)
    };
    let rest: Vec<&TreeEntry> = root.entries().unwrap_or_default().iter().filter(is_rest).collect();
    let Some(first) = rest.first().filter(|_| !key_path.is_empty()) else { return };
    let names: Vec<&str> = rest.iter().map(|entry| entry.key.as_str()).collect();
    let s = if names.len() == 1 { "" } else { "s" };
    let message = format!("ignored unknown setting{s}: {}", names.join(", "));
    notes.warn(first.key_span, &KeyPath::default().key(&first.key), message, None);
}
