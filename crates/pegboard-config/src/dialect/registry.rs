//! A server entry of the MCP registry: runnable packages and remote URLs.

use super::TranslationNotes;
use super::client_file::sanitize_name;
use super::recognise::is_registry_entry;
use super::synthetic::{as_text, entry, items, map, text};
use super::translate::{text_entry, text_list};
use super::variable_syntax::{InputDefaults, VariableSyntax, to_native};
use crate::path::{KeyPath, KeySegment};
use crate::tree::{Node, Span, TreeEntry, Value};

/// Translates the file to the native format: one server per package or remote, of which only the first is
/// enabled.
pub(super) fn translate(root: &Node, notes: &mut TranslationNotes) -> Node {
    let described = root.get("server").filter(|server| is_registry_entry(server)).unwrap_or(root);
    let title = described.get("name").unwrap_or(described);
    let written = as_text(title).unwrap_or_default();
    let name = sanitize_name(written.rsplit('/').next().unwrap_or_default());
    let mut servers: Vec<TreeEntry> = Vec::new();
    let mut add = |kind: String, mut node: Node| {
        let is_first = servers.is_empty();
        if let (false, Value::Map(entries)) = (is_first, &mut node.value) {
            entries.push(entry("enabled", title.span, Node::new(title.span, Value::Bool(false))));
        }
        let called = if is_first { name.clone() } else { sanitize_name(&format!("{name}-{kind}")) };
        if !servers.iter().any(|server| server.key == called) {
            servers.push(entry(called, title.span, node));
        }
    };
    for (index, package) in list_items(described, "packages").iter().enumerate() {
        let key_path = KeyPath::default().key("packages").segment(KeySegment::Index(index));
        if let Some((kind, node)) = (Package { node: package, key_path }).run(notes) {
            add(kind, node);
        }
    }
    for (index, remote) in list_items(described, "remotes").iter().enumerate() {
        let key_path = KeyPath::default().key("remotes").segment(KeySegment::Index(index));
        if let Some(node) = address(remote, &key_path, notes) {
            add("remote".to_owned(), node);
        }
    }
    map(root.span, vec![entry("mcpServers", root.span, map(root.span, servers))])
}

fn list_items<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    node.get(key).and_then(items).unwrap_or_default()
}

/// Returns the value under either spelling of a key.
fn either<'n>(node: &'n Node, key: &str, other: &str) -> Option<&'n Node> {
    node.get(key).or_else(|| node.get(other))
}

fn text_of<'n>(node: &'n Node, key: &str, other: &str) -> Option<&'n str> {
    either(node, key, other).and_then(as_text).filter(|text| !text.is_empty())
}

/// A package of a server.
struct Package<'p> {
    node: &'p Node,
    key_path: KeyPath,
}

impl Package<'_> {
    /// Returns the registry type and the translated server entry.
    fn run(&self, notes: &mut TranslationNotes) -> Option<(String, Node)> {
        let node = self.node;
        let span = node.span;
        let kind =
            text_of(node, "registryType", "registry_type").or_else(|| text_of(node, "registry_name", ""));
        let kind = kind.unwrap_or_default().to_lowercase();
        let id = text_of(node, "identifier", "name").unwrap_or_default();
        let transport = node.get("transport").and_then(|transport| text_of(transport, "type", ""));
        if let Some(other) = transport.filter(|transport| *transport != "stdio") {
            let message = format!("package skipped: its transport {other} requires a running server");
            let help = Some("start it yourself and add the server by its URL".to_owned());
            notes.warn(span, &self.key_path, message, help);
            return None;
        }
        let version = text_of(node, "version", "");
        let (env, passed) = variables(either(node, "environmentVariables", "environment_variables"));
        let command_line = CommandLine {
            before: arguments(either(node, "runtimeArguments", "runtime_arguments")),
            after: arguments(either(node, "packageArguments", "package_arguments")),
            env,
            passed,
        };
        let at_version = || version.map_or(id.to_owned(), |version| format!("{id}@{version}"));
        let (program, middle) = match kind.as_str() {
            "npm" => ("npx", npm(&command_line.before, at_version())),
            "pypi" => ("uvx", vec![at_version()]),
            "nuget" => ("dnx", vec![at_version(), "--yes".to_owned()]),
            "oci" | "docker" => return Some((kind, command_line.container(span, id, version))),
            _ => {
                let message = format!("package skipped: unsupported registry {kind:?}");
                notes.warn(
                    span,
                    &self.key_path,
                    message,
                    Some("supported registries: npm, pypi, nuget and oci".to_owned()),
                );
                return None;
            }
        };
        let runner = text_of(node, "runtimeHint", "runtime_hint").unwrap_or(program);
        let runner = to_native(runner, VariableSyntax::Plain, &InputDefaults::new());
        Some((kind, command_line.program(span, &runner, middle)))
    }
}

/// The command line around a package, and its environment.
struct CommandLine {
    before: Vec<String>,
    after: Vec<String>,
    env: Vec<TreeEntry>,
    passed: Vec<String>,
}

impl CommandLine {
    fn container(mut self, span: Span, id: &str, version: Option<&str>) -> Node {
        let is_extra = |word: &String| !["run", "-i", "--rm", "--interactive"].contains(&word.as_str());
        let before = std::mem::take(&mut self.before).into_iter().filter(is_extra);
        let mut args: Vec<String> = ["run", "-i", "--rm"].map(str::to_owned).to_vec();
        for name in self.env.iter().map(|entry| &entry.key).chain(&self.passed) {
            args.extend(["-e".to_owned(), name.clone()]);
        }
        args.extend(before);
        let has_tag = id.rsplit('/').next().is_some_and(|last| last.contains([':', '@']));
        args.push(match version {
            Some(version) if !has_tag => format!("{id}:{version}"),
            _ => id.to_owned(),
        });
        self.program(span, "docker", args)
    }

    fn program(self, span: Span, command: &str, middle: Vec<String>) -> Node {
        let args = self.before.into_iter().chain(middle).chain(self.after);
        let mut entries =
            vec![text_entry("command", span, command.to_owned()), entry("args", span, text_list(span, args))];
        if !self.env.is_empty() {
            entries.push(entry("env", span, map(span, self.env)));
        }
        if !self.passed.is_empty() {
            entries.push(entry("passEnv", span, text_list(span, self.passed)));
        }
        map(span, entries)
    }
}

/// Returns the arguments of `npx`, which prompts before it installs a package unless `-y` is given.
fn npm(before: &[String], package: String) -> Vec<String> {
    let asks = !before.iter().any(|word| word == "-y" || word == "--yes");
    asks.then(|| "-y".to_owned()).into_iter().chain([package]).collect()
}

/// Returns the arguments of a command line.
fn arguments(node: Option<&Node>) -> Vec<String> {
    let mut words = Vec::new();
    for argument in node.and_then(items).unwrap_or_default() {
        let name = text_of(argument, "name", "");
        let is_named = text_of(argument, "type", "") == Some("named");
        let hint = text_of(argument, "valueHint", "value_hint").or(name).unwrap_or("value");
        let value = value(argument, hint.trim_start_matches('-'));
        match (is_named, name, value) {
            (true, Some(name), Some(value)) => words.extend([name.to_owned(), value]),
            // A flag has no value; an optional argument without a value is omitted.
            (true, Some(name), None) if is_flag(argument) => words.push(name.to_owned()),
            (false, _, Some(value)) => words.push(value),
            (_, _, _) => {}
        }
    }
    words
}

fn is_flag(argument: &Node) -> bool {
    let is_required = is_required(argument);
    is_required || !["format", "valueHint", "value_hint"].iter().any(|key| argument.get(key).is_some())
}

fn is_required(node: &Node) -> bool {
    matches!(either(node, "isRequired", "is_required"), Some(Node { value: Value::Bool(true), .. }))
}

/// Returns the value of an argument or a header: the fixed value, the default, or an input reference.
fn value(node: &Node, id: &str) -> Option<String> {
    let scalar = |key: &str| match &node.get(key)?.value {
        Value::Text(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    };
    if let Some(template) = scalar("value") {
        return Some(with_variables(&template, node.get("variables")));
    }
    let plain = |text: String| to_native(&text, VariableSyntax::Plain, &InputDefaults::new());
    let default = scalar("default").map(plain);
    match (default, is_required(node) && !is_flag_only(node)) {
        (Some(default), _) => Some(format!("${{input:{id}:-{default}}}")),
        (None, true) => Some(format!("${{input:{id}}}")),
        (None, false) => None,
    }
}

fn is_flag_only(node: &Node) -> bool {
    text_of(node, "format", "") == Some("boolean")
}

/// Replaces the `{name}` placeholders of a template.
fn with_variables(template: &str, variables: Option<&Node>) -> String {
    let mut text = to_native(template, VariableSyntax::Plain, &InputDefaults::new());
    for variable in variables.and_then(Node::entries).unwrap_or_default() {
        let filled =
            value(&variable.value, &variable.key).unwrap_or_else(|| format!("${{input:{}:-}}", variable.key));
        text = text.replace(&format!("{{{}}}", variable.key), &filled);
    }
    text
}

/// Returns the variables to set, and the names of those to pass through.
fn variables(node: Option<&Node>) -> (Vec<TreeEntry>, Vec<String>) {
    let (mut env, mut passed) = (Vec::new(), Vec::new());
    for variable in node.and_then(items).unwrap_or_default() {
        let Some(name) = text_of(variable, "name", "") else { continue };
        let span = variable.span;
        let default = variable.get("default").and_then(as_text);
        if let Some(template) = variable.get("value").and_then(as_text) {
            env.push(text_entry(name, span, with_variables(template, variable.get("variables"))));
        } else if let Some(default) = default {
            let default = to_native(default, VariableSyntax::Plain, &InputDefaults::new());
            env.push(text_entry(name, span, format!("${{{name}:-{default}}}")));
        } else if is_required(variable) {
            env.push(text_entry(name, span, format!("${{{name}}}")));
        } else {
            passed.push(name.to_owned());
        }
    }
    (env, passed)
}

/// Translates a remote server.
fn address(remote: &Node, key_path: &KeyPath, notes: &mut TranslationNotes) -> Option<Node> {
    let url = remote.get("url")?;
    let Some(written) = as_text(url) else {
        notes.warn(url.span, &key_path.key("url"), "invalid server URL", None);
        return None;
    };
    let mut entries =
        vec![entry("url", url.span, text(url.span, with_variables(written, remote.get("variables"))))];
    let kind = text_of(remote, "type", "transport_type").unwrap_or("http");
    let kind = if kind == "sse" { "sse" } else { "http" };
    entries.push(text_entry("type", remote.span, kind.to_owned()));
    let header = |header: &Node| {
        let name = text_of(header, "name", "")?;
        let span: Span = header.span;
        Some(text_entry(name, span, value(header, name)?))
    };
    let headers: Vec<TreeEntry> = list_items(remote, "headers").iter().filter_map(header).collect();
    if !headers.is_empty() {
        entries.push(entry("headers", remote.span, map(remote.span, headers)));
    }
    Some(map(remote.span, entries))
}
