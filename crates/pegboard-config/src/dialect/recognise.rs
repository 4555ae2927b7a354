//! Whose words a file uses, by what is in it.

use std::path::Path;

use super::Dialect;
use super::made::{as_text, items};
use crate::clients::client_at;
use crate::tree::{Entry, Node, Value};

/// What may stand in a description of a server, and in hardly anything else.
const OF_SERVERS: [&str; 6] = ["command", "cmd", "url", "serverUrl", "httpUrl", "uri"];

/// The dialect of a file that is not ours; `None` if it is nobody's that we know. The name counts only where the content
/// leaves it open.
pub(super) fn recognise(path: &Path, root: &Node) -> Option<Dialect> {
    let has = |key: &str| root.get(key).is_some();
    let is_object = |key: &str| root.get(key).is_some_and(|node| node.entries().is_some());
    let is_list = |key: &str| root.get(key).is_some_and(|node| items(node).is_some());
    if (has("openapi") || has("swagger")) && (has("paths") || has("info")) {
        return Some(Dialect::OpenApi);
    }
    if is_object("registry") && root.get("registry").is_some_and(is_catalogue) {
        return Some(Dialect::DockerCatalog);
    }
    if is_registry(root) || root.get("server").is_some_and(is_registry) {
        return Some(Dialect::Registry);
    }
    if let Some(servers) = root.get("mcpServers") {
        return Some(if items(servers).is_some() {
            Dialect::Continue
        } else {
            of_servers(path, root, servers)
        });
    }
    if is_list("binds") || root.get("mcp").is_some_and(|mcp| mcp.get("targets").is_some()) {
        return Some(Dialect::AgentGateway);
    }
    if has("context_servers") {
        return Some(Dialect::Zed);
    }
    if has("mcp_servers") {
        return Some(Dialect::Codex);
    }
    let is_alone = || root.entries().unwrap_or_default().iter().all(|entry| entry.key == "servers");
    if is_object("servers")
        && (is_list("inputs") || is_alone() || root.get("servers").is_some_and(are_servers))
    {
        return Some(Dialect::VsCode);
    }
    if let Some(dialect) = root.get("mcp").and_then(|mcp| of_mcp(root, mcp)) {
        return Some(dialect);
    }
    if root.get("extensions").is_some_and(are_extensions) {
        return Some(Dialect::Goose);
    }
    if root.get("steps").and_then(items).is_some_and(|steps| has("chain") || steps.iter().any(is_step)) {
        return Some(Dialect::Chain);
    }
    if is_object("source") && (has("deployment") || has("environment") || says(root, "fastmcp")) {
        return Some(Dialect::FastMcp);
    }
    let values = root.entries().unwrap_or_default();
    (!values.is_empty() && values.iter().all(|entry| is_server(&entry.value))).then_some(Dialect::Bare)
}

/// The dialect of a file that nothing in it tells, but that is where a client keeps its settings.
pub(super) fn by_place(path: &Path) -> Option<Dialect> {
    let dialect = match client_at(path)?.name() {
        "claude-code" => Dialect::ClaudeCode,
        "cline" | "roo" => Dialect::Cline,
        "codex" => Dialect::Codex,
        "continue" => Dialect::Continue,
        "crush" => Dialect::Crush,
        "gemini" | "qwen" => Dialect::Gemini,
        "goose" => Dialect::Goose,
        "opencode" => Dialect::OpenCode,
        "vscode" => Dialect::VsCode,
        "zed" => Dialect::Zed,
        _ => Dialect::McpServers,
    };
    Some(dialect)
}

/// Which of the many that have `mcpServers`.
fn of_servers(path: &Path, root: &Node, servers: &Node) -> Dialect {
    let has = |key: &str| root.get(key).is_some();
    let in_mcp = |key: &str| root.get("mcp").is_some_and(|mcp| mcp.get(key).is_some());
    let some =
        |key: &str| servers.entries().unwrap_or_default().iter().any(|entry| entry.value.get(key).is_some());
    let is_of_program =
        ["security", "selectedAuthType", "contextFileName", "ui", "general"].into_iter().any(has);
    let place = path.to_string_lossy().replace('\\', "/");
    let is_at = |ending: &str| place.ends_with(ending);
    if has("mcpProxy") {
        Dialect::McpProxy
    } else if root.get("projects").is_some_and(|projects| projects.entries().is_some()) {
        Dialect::ClaudeCode
    } else if ["allowed", "excluded", "serverCommand"].into_iter().any(in_mcp)
        || some("httpUrl")
        || is_of_program
    {
        Dialect::Gemini
    } else if has("systemConfig") || has("users") {
        Dialect::McpHub
    } else if is_at("cline_mcp_settings.json")
        || is_at("roo-cline/settings/mcp_settings.json")
        || is_at(".roo/mcp.json")
    {
        Dialect::Cline
    } else if is_at(".gemini/settings.json") || is_at(".qwen/settings.json") {
        Dialect::Gemini
    } else if is_at(".claude.json") {
        Dialect::ClaudeCode
    } else {
        Dialect::McpServers
    }
}

/// Which of those that have `mcp`.
fn of_mcp(root: &Node, mcp: &Node) -> Option<Dialect> {
    let entries = mcp.entries()?;
    let kind = |entry: &Entry| entry.value.get("type").and_then(as_text).map(str::to_owned);
    let is_of_opencode = |entry: &Entry| {
        let is_list = entry.value.get("command").is_some_and(|command| items(command).is_some());
        is_list || matches!(kind(entry).as_deref(), Some("local" | "remote"))
    };
    if let Some(servers) = mcp.get("servers").and_then(Node::entries) {
        let is_one = says(root, "opencode") || servers.iter().any(is_of_opencode);
        return Some(if is_one { Dialect::OpenCode } else { Dialect::VsCode });
    }
    if says(root, "crush") {
        return Some(Dialect::Crush);
    }
    if says(root, "opencode") || entries.iter().any(is_of_opencode) {
        return Some(Dialect::OpenCode);
    }
    let is_of_crush = |entry: &Entry| matches!(kind(entry).as_deref(), Some("stdio" | "http" | "sse"));
    entries.iter().any(is_of_crush).then_some(Dialect::Crush)
}

/// Whether the address of its schema says whose a file is.
fn says(root: &Node, word: &str) -> bool {
    root.get("$schema").and_then(as_text).is_some_and(|schema| schema.contains(word))
}

/// Whether a node calls a tool in a chain.
fn is_step(node: &Node) -> bool {
    ["tool", "tool_name"].iter().any(|key| node.get(key).is_some())
}

/// Whether a node describes a server.
pub(super) fn is_server(node: &Node) -> bool {
    OF_SERVERS.iter().any(|key| node.get(key).is_some())
}

/// Whether a node is an object with a server in it.
pub(super) fn are_servers(node: &Node) -> bool {
    node.entries().unwrap_or_default().iter().any(|entry| is_server(&entry.value))
}

fn are_extensions(node: &Node) -> bool {
    let is_one = |entry: &Entry| {
        let has = |key: &str| entry.value.get(key).is_some();
        has("cmd") || has("uri") || (has("type") && has("enabled"))
    };
    node.entries().unwrap_or_default().iter().any(is_one)
}

fn is_catalogue(node: &Node) -> bool {
    let is_one = |entry: &Entry| ["image", "remote", "poci"].iter().any(|key| entry.value.get(key).is_some());
    node.entries().unwrap_or_default().iter().any(is_one)
}

/// Whether a node describes one server as registries do.
pub(super) fn is_registry(node: &Node) -> bool {
    let has_list = |key: &str, inside: &[&str]| {
        let is_one = |item: &Node| inside.iter().any(|key| item.get(key).is_some());
        node.get(key).and_then(items).is_some_and(|items| items.iter().any(is_one))
    };
    let is_named = node.get("name").is_some_and(|name| matches!(name.value, Value::Text(_)));
    is_named
        && (has_list("packages", &["registryType", "registry_type", "registry_name", "identifier"])
            || has_list("remotes", &["url"]))
}
