//! The file of agentgateway: MCP targets, in the short and the long form.

use super::TranslationNotes;
use super::client_file::TranslatedServers;
use super::field_rules::DialectRules;
use super::synthetic::{as_text, entry, items, list, map, text};
use super::translate::Translator;
use super::variable_syntax::{InputDefaults, VariableSyntax, to_native};
use crate::path::{KeyPath, KeySegment};
use crate::tree::{Node, Span, TreeEntry, Value};

const POLICIES: &str = "not supported: access policies";

/// Translates the file to the native format. Everything else than MCP is reported once.
pub(super) fn translate(rules: &DialectRules, root: &Node, notes: &mut TranslationNotes) -> Node {
    let mut found = Targets { servers: TranslatedServers::default(), services: Vec::new() };
    let mut ignored: Vec<(Span, KeyPath)> = Vec::new();
    if let Some(mcp) = root.get("mcp") {
        let key_path = KeyPath::default().key("mcp");
        found.read(rules, mcp, &key_path, notes);
        report_policies(mcp, &key_path, notes);
    }
    let binds =
        NestedLists { names: &["binds", "listeners", "routes", "backends"], key_path: KeyPath::default() };
    let routes = NestedLists { names: &["binds", "listeners", "routes"], key_path: KeyPath::default() };
    let mut first_policy: Option<(Span, KeyPath)> = None;
    routes.walk(root, &mut |route, key_path| {
        let backends = route.get("backends").and_then(items).unwrap_or_default();
        if let Some(policies) = route.entry("policies")
            && backends.iter().any(|backend| backend.get("mcp").is_some())
        {
            first_policy.get_or_insert_with(|| (policies.key_span, key_path.key("policies")));
        }
    });
    if let Some((span, key_path)) = &first_policy {
        notes.warn(*span, key_path, POLICIES, None);
    }
    binds.walk(root, &mut |backend, key_path| match backend.get("mcp") {
        Some(mcp) => found.read(rules, mcp, &key_path.key("mcp"), notes),
        None => ignored.push((backend.span, key_path.clone())),
    });
    for name in ["llm", "frontendPolicies", "backends", "services", "workloads", "routes", "ui"] {
        let entry = root.entry(name).map(|entry| (entry.key_span, KeyPath::default().key(name)));
        ignored.extend(entry);
    }
    if let Some((span, first)) = ignored.first() {
        let more = match ignored.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        let message = format!("ignored: not an MCP target{more}");
        notes.warn(*span, first, message, None);
    }
    found.into_root(root)
}

/// The MCP targets of a file.
struct Targets {
    servers: TranslatedServers,
    services: Vec<TreeEntry>,
}

impl Targets {
    fn read(&mut self, rules: &DialectRules, mcp: &Node, key_path: &KeyPath, notes: &mut TranslationNotes) {
        let key_path = key_path.key("targets");
        let Some(targets) = mcp.get("targets") else { return };
        let Some(listed) = items(targets) else {
            let message = format!("expected a list of targets, not {}", targets.kind());
            return notes.warn(targets.span, &key_path, message, None);
        };
        for (index, target) in listed.iter().enumerate() {
            let key_path = key_path.segment(KeySegment::Index(index));
            let name = target.get("name").unwrap_or(target);
            let written = as_text(name).map_or_else(|| format!("target-{}", index + 1), str::to_owned);
            let called = self.servers.name(&written, name.span, &key_path, notes);
            if let Some(openapi) = target.get("openapi") {
                let service = service(openapi, &key_path.key("openapi"), notes);
                self.services.push(entry(called, name.span, service));
                continue;
            }
            let mut translator = Translator::new(rules, InputDefaults::new(), notes);
            let node = translator.server(target.clone(), &key_path);
            self.servers.entries.push(entry(called, name.span, node));
        }
    }

    fn into_root(self, root: &Node) -> Node {
        let mut entries = vec![entry("mcpServers", root.span, map(root.span, self.servers.entries))];
        if !self.services.is_empty() {
            entries.push(entry("openapiSpecs", root.span, map(root.span, self.services)));
        }
        map(root.span, entries)
    }
}

/// Translates a target with an OpenAPI document.
fn service(openapi: &Node, key_path: &KeyPath, notes: &mut TranslationNotes) -> Node {
    let mut entries = Vec::new();
    let schema = openapi.get("schema");
    let document = schema.and_then(|schema| schema.get("file").or_else(|| schema.get("url")));
    if let Some((written, span)) = document.and_then(|node| Some((as_text(node)?, node.span))) {
        let spec = to_native(written, VariableSyntax::Plain, &InputDefaults::new());
        entries.push(entry("spec", span, text(span, spec)));
    } else {
        let span = schema.unwrap_or(openapi).span;
        let help = Some("move it to a file and set schema.file".to_owned());
        notes.warn(span, &key_path.key("schema"), "inline documents are not supported", help);
    }
    if let Some(host) = openapi.get("host").and_then(|node| Some((as_text(node)?, node.span))) {
        let (host, span) = host;
        let number = openapi.get("port").and_then(|port| match &port.value {
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        });
        let address = match number {
            _ if host.contains("://") => host.to_owned(),
            Some(port) if port == "443" => format!("https://{host}"),
            Some(port) => format!("http://{host}:{port}"),
            None => format!("http://{host}"),
        };
        entries.push(entry("baseUrl", span, text(span, address)));
    }
    map(openapi.span, entries)
}

fn report_policies(mcp: &Node, key_path: &KeyPath, notes: &mut TranslationNotes) {
    if let Some(policies) = mcp.entry("policies") {
        notes.warn(policies.key_span, &key_path.key("policies"), POLICIES, None);
    }
}

/// A path through nested lists.
struct NestedLists<'l> {
    names: &'l [&'l str],
    key_path: KeyPath,
}

impl NestedLists<'_> {
    fn walk(&self, node: &Node, visit: &mut dyn FnMut(&Node, &KeyPath)) {
        let [name, rest @ ..] = self.names else { return visit(node, &self.key_path) };
        let empty = list(node.span, Vec::new());
        let listed = node.get(name).unwrap_or(&empty);
        for (index, item) in items(listed).unwrap_or_default().iter().enumerate() {
            let key_path = self.key_path.key(name).segment(KeySegment::Index(index));
            NestedLists { names: rest, key_path }.walk(item, visit);
        }
    }
}
