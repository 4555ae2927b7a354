//! The description of one server as registries have it: packages that can be run, and addresses.

use super::Remarks;
use super::file::plain_name;
use super::foreign::{entry_of, words_of};
use super::made::{as_text, entry, items, map, text};
use super::recognise::is_registry;
use super::syntax::{Answers, Syntax, ours};
use crate::path::{Path as Way, Step};
use crate::tree::{Entry, Node, Span, Value};

/// The file in our own words: one server for each way to have it, of which the first is on.
pub(super) fn translate(root: &Node, remarks: &mut Remarks) -> Node {
    let described = root.get("server").filter(|server| is_registry(server)).unwrap_or(root);
    let title = described.get("name").unwrap_or(described);
    let written = as_text(title).unwrap_or_default();
    let name = plain_name(written.rsplit('/').next().unwrap_or_default());
    let mut servers: Vec<Entry> = Vec::new();
    let mut add = |kind: String, mut node: Node| {
        let is_first = servers.is_empty();
        if let (false, Value::Map(entries)) = (is_first, &mut node.value) {
            entries.push(entry("enabled", title.span, Node::new(title.span, Value::Bool(false))));
        }
        let called = if is_first { name.clone() } else { plain_name(&format!("{name}-{kind}")) };
        if !servers.iter().any(|server| server.key == called) {
            servers.push(entry(called, title.span, node));
        }
    };
    for (index, package) in listed(described, "packages").iter().enumerate() {
        let way = Way::default().key("packages").step(Step::Index(index));
        if let Some((kind, node)) = (Package { node: package, way }).run(remarks) {
            add(kind, node);
        }
    }
    for (index, remote) in listed(described, "remotes").iter().enumerate() {
        let way = Way::default().key("remotes").step(Step::Index(index));
        if let Some(node) = address(remote, &way, remarks) {
            add("remote".to_owned(), node);
        }
    }
    map(root.span, vec![entry("mcpServers", root.span, map(root.span, servers))])
}

fn listed<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    node.get(key).and_then(items).unwrap_or_default()
}

/// The value under one of two spellings of a key.
fn either<'n>(node: &'n Node, key: &str, other: &str) -> Option<&'n Node> {
    node.get(key).or_else(|| node.get(other))
}

fn said<'n>(node: &'n Node, key: &str, other: &str) -> Option<&'n str> {
    either(node, key, other).and_then(as_text).filter(|text| !text.is_empty())
}

/// A package that can be run.
struct Package<'p> {
    node: &'p Node,
    way: Way,
}

impl Package<'_> {
    /// Its kind, and the program that runs it.
    fn run(&self, remarks: &mut Remarks) -> Option<(String, Node)> {
        let node = self.node;
        let span = node.span;
        let kind = said(node, "registryType", "registry_type").or_else(|| said(node, "registry_name", ""));
        let kind = kind.unwrap_or_default().to_lowercase();
        let id = said(node, "identifier", "name").unwrap_or_default();
        let transport = node.get("transport").and_then(|transport| said(transport, "type", ""));
        if let Some(other) = transport.filter(|transport| *transport != "stdio") {
            let message =
                format!("this package is left out: it speaks {other}, so something else must start it");
            let help = Some("start it, and add the server by its url".to_owned());
            remarks.warn(span, &self.way, message, help);
            return None;
        }
        let version = said(node, "version", "");
        let (env, passed) = variables(either(node, "environmentVariables", "environment_variables"));
        let line = Line {
            before: arguments(either(node, "runtimeArguments", "runtime_arguments")),
            after: arguments(either(node, "packageArguments", "package_arguments")),
            env,
            passed,
        };
        let at_version = || version.map_or(id.to_owned(), |version| format!("{id}@{version}"));
        let (program, middle) = match kind.as_str() {
            "npm" => ("npx", npm(&line.before, at_version())),
            "pypi" => ("uvx", vec![at_version()]),
            "nuget" => ("dnx", vec![at_version(), "--yes".to_owned()]),
            "oci" | "docker" => return Some((kind, line.container(span, id, version))),
            _ => {
                let message = format!("this package is left out: packages of {kind:?} cannot be run");
                remarks.warn(span, &self.way, message, Some("there are npm, pypi, nuget and oci".to_owned()));
                return None;
            }
        };
        let runner = said(node, "runtimeHint", "runtime_hint").unwrap_or(program);
        let runner = ours(runner, Syntax::Plain, &Answers::new());
        Some((kind, line.program(span, &runner, middle)))
    }
}

/// What stands around a package on the command line that runs it, and its variables.
struct Line {
    before: Vec<String>,
    after: Vec<String>,
    env: Vec<Entry>,
    passed: Vec<String>,
}

impl Line {
    fn container(mut self, span: Span, id: &str, version: Option<&str>) -> Node {
        let is_usual = |word: &String| !["run", "-i", "--rm", "--interactive"].contains(&word.as_str());
        let before = std::mem::take(&mut self.before).into_iter().filter(is_usual);
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
            vec![entry_of("command", span, command.to_owned()), entry("args", span, words_of(span, args))];
        if !self.env.is_empty() {
            entries.push(entry("env", span, map(span, self.env)));
        }
        if !self.passed.is_empty() {
            entries.push(entry("passEnv", span, words_of(span, self.passed)));
        }
        map(span, entries)
    }
}

/// What `npx` is given: it asks before it fetches something, unless it is told not to.
fn npm(before: &[String], package: String) -> Vec<String> {
    let asks = !before.iter().any(|word| word == "-y" || word == "--yes");
    asks.then(|| "-y".to_owned()).into_iter().chain([package]).collect()
}

/// The words of a command line.
fn arguments(node: Option<&Node>) -> Vec<String> {
    let mut words = Vec::new();
    for argument in node.and_then(items).unwrap_or_default() {
        let name = said(argument, "name", "");
        let is_named = said(argument, "type", "") == Some("named");
        let hint = said(argument, "valueHint", "value_hint").or(name).unwrap_or("value");
        let value = value(argument, hint.trim_start_matches('-'));
        match (is_named, name, value) {
            (true, Some(name), Some(value)) => words.extend([name.to_owned(), value]),
            // A flag says all by being there; what is not needed and has no value is not there.
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

/// The value of an argument or a header: what is said, or the default, or what somebody must say.
fn value(node: &Node, asked: &str) -> Option<String> {
    let scalar = |key: &str| match &node.get(key)?.value {
        Value::Text(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(value) => Some(value.to_string()),
        _ => None,
    };
    if let Some(template) = scalar("value") {
        return Some(with_variables(&template, node.get("variables")));
    }
    let plain = |text: String| ours(&text, Syntax::Plain, &Answers::new());
    let default = scalar("default").map(plain);
    match (default, is_required(node) && !is_flag_only(node)) {
        (Some(default), _) => Some(format!("${{input:{asked}:-{default}}}")),
        (None, true) => Some(format!("${{input:{asked}}}")),
        (None, false) => None,
    }
}

fn is_flag_only(node: &Node) -> bool {
    said(node, "format", "") == Some("boolean")
}

/// A text with `{name}` filled in from what is said about its variables.
fn with_variables(template: &str, variables: Option<&Node>) -> String {
    let mut text = ours(template, Syntax::Plain, &Answers::new());
    for variable in variables.and_then(Node::entries).unwrap_or_default() {
        let filled =
            value(&variable.value, &variable.key).unwrap_or_else(|| format!("${{input:{}:-}}", variable.key));
        text = text.replace(&format!("{{{}}}", variable.key), &filled);
    }
    text
}

/// Variables that are set or must be, and names of those that are handed through.
fn variables(node: Option<&Node>) -> (Vec<Entry>, Vec<String>) {
    let (mut env, mut passed) = (Vec::new(), Vec::new());
    for variable in node.and_then(items).unwrap_or_default() {
        let Some(name) = said(variable, "name", "") else { continue };
        let span = variable.span;
        let default = variable.get("default").and_then(as_text);
        if let Some(template) = variable.get("value").and_then(as_text) {
            env.push(entry_of(name, span, with_variables(template, variable.get("variables"))));
        } else if let Some(default) = default {
            let default = ours(default, Syntax::Plain, &Answers::new());
            env.push(entry_of(name, span, format!("${{{name}:-{default}}}")));
        } else if is_required(variable) {
            env.push(entry_of(name, span, format!("${{{name}}}")));
        } else {
            passed.push(name.to_owned());
        }
    }
    (env, passed)
}

/// A server at an address.
fn address(remote: &Node, way: &Way, remarks: &mut Remarks) -> Option<Node> {
    let url = remote.get("url")?;
    let Some(written) = as_text(url) else {
        remarks.warn(url.span, &way.key("url"), "this is no address of a server", None);
        return None;
    };
    let mut entries =
        vec![entry("url", url.span, text(url.span, with_variables(written, remote.get("variables"))))];
    let kind = said(remote, "type", "transport_type").unwrap_or("http");
    let kind = if kind == "sse" { "sse" } else { "http" };
    entries.push(entry_of("type", remote.span, kind.to_owned()));
    let header = |header: &Node| {
        let name = said(header, "name", "")?;
        let span: Span = header.span;
        Some(entry_of(name, span, value(header, name)?))
    };
    let headers: Vec<Entry> = listed(remote, "headers").iter().filter_map(header).collect();
    if !headers.is_empty() {
        entries.push(entry("headers", remote.span, map(remote.span, headers)));
    }
    Some(map(remote.span, entries))
}
