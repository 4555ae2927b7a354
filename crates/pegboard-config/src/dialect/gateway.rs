//! The file of agentgateway: targets of MCP, in its short form and in its long one.

use super::Remarks;
use super::file::Servers;
use super::foreign::Translator;
use super::made::{as_text, entry, items, list, map, text};
use super::syntax::{Answers, Syntax, ours};
use super::words::Words;
use crate::path::{Path as Way, Step};
use crate::tree::{Entry, Node, Span, Value};

const POLICIES: &str = "this is not carried over: who may use what is said otherwise here";

/// The file in our own words. What is not about MCP is told once.
pub(super) fn translate(words: &Words, root: &Node, remarks: &mut Remarks) -> Node {
    let mut found = Targets { servers: Servers::default(), services: Vec::new() };
    let mut ignored: Vec<(Span, Way)> = Vec::new();
    if let Some(mcp) = root.get("mcp") {
        let way = Way::default().key("mcp");
        found.read(words, mcp, &way, remarks);
        tell_policies(mcp, &way, remarks);
    }
    let binds = Level { names: &["binds", "listeners", "routes", "backends"], way: Way::default() };
    let routes = Level { names: &["binds", "listeners", "routes"], way: Way::default() };
    let mut ruled: Option<(Span, Way)> = None;
    routes.walk(root, &mut |route, way| {
        let backends = route.get("backends").and_then(items).unwrap_or_default();
        if let Some(policies) = route.entry("policies")
            && backends.iter().any(|backend| backend.get("mcp").is_some())
        {
            ruled.get_or_insert_with(|| (policies.key_span, way.key("policies")));
        }
    });
    if let Some((span, way)) = &ruled {
        remarks.warn(*span, way, POLICIES, None);
    }
    binds.walk(root, &mut |backend, way| match backend.get("mcp") {
        Some(mcp) => found.read(words, mcp, &way.key("mcp"), remarks),
        None => ignored.push((backend.span, way.clone())),
    });
    for name in ["llm", "frontendPolicies", "backends", "services", "workloads", "routes", "ui"] {
        let entry = root.entry(name).map(|entry| (entry.key_span, Way::default().key(name)));
        ignored.extend(entry);
    }
    if let Some((span, first)) = ignored.first() {
        let more = match ignored.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more like it"),
        };
        let message = format!("only targets of MCP are read, not this{more}");
        remarks.warn(*span, first, message, None);
    }
    found.into_root(root)
}

/// The targets of a file.
struct Targets {
    servers: Servers,
    services: Vec<Entry>,
}

impl Targets {
    fn read(&mut self, words: &Words, mcp: &Node, way: &Way, remarks: &mut Remarks) {
        let way = way.key("targets");
        let Some(targets) = mcp.get("targets") else { return };
        let Some(listed) = items(targets) else {
            let message = format!("expected a list of targets, not {}", targets.kind());
            return remarks.warn(targets.span, &way, message, None);
        };
        for (index, target) in listed.iter().enumerate() {
            let way = way.step(Step::Index(index));
            let name = target.get("name").unwrap_or(target);
            let written = as_text(name).map_or_else(|| format!("target-{}", index + 1), str::to_owned);
            let called = self.servers.name(&written, name.span, &way, remarks);
            if let Some(openapi) = target.get("openapi") {
                let service = service(openapi, &way.key("openapi"), remarks);
                self.services.push(entry(called, name.span, service));
                continue;
            }
            let mut translator = Translator::new(words, Answers::new(), remarks);
            let node = translator.server(target.clone(), &way);
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

/// A service with an OpenAPI document.
fn service(openapi: &Node, way: &Way, remarks: &mut Remarks) -> Node {
    let mut entries = Vec::new();
    let schema = openapi.get("schema");
    let document = schema.and_then(|schema| schema.get("file").or_else(|| schema.get("url")));
    if let Some((written, span)) = document.and_then(|node| Some((as_text(node)?, node.span))) {
        let spec = ours(written, Syntax::Plain, &Answers::new());
        entries.push(entry("spec", span, text(span, spec)));
    } else {
        let span = schema.unwrap_or(openapi).span;
        let help = Some("put it into a file, and name that under schema.file".to_owned());
        remarks.warn(span, &way.key("schema"), "the document cannot stand in the file itself", help);
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

fn tell_policies(mcp: &Node, way: &Way, remarks: &mut Remarks) {
    if let Some(policies) = mcp.entry("policies") {
        remarks.warn(policies.key_span, &way.key("policies"), POLICIES, None);
    }
}

/// Lists in lists.
struct Level<'l> {
    names: &'l [&'l str],
    way: Way,
}

impl Level<'_> {
    fn walk(&self, node: &Node, visit: &mut dyn FnMut(&Node, &Way)) {
        let [name, rest @ ..] = self.names else { return visit(node, &self.way) };
        let empty = list(node.span, Vec::new());
        let listed = node.get(name).unwrap_or(&empty);
        for (index, item) in items(listed).unwrap_or_default().iter().enumerate() {
            let way = self.way.key(name).step(Step::Index(index));
            Level { names: rest, way }.walk(item, visit);
        }
    }
}
