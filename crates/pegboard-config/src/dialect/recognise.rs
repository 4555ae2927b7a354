//! Detects the dialect of a file by its contents.

use std::path::Path;

use super::ConfigDialect;
use super::synthetic::{as_text, items};
use crate::clients::client_for_path;
use crate::tree::{Node, TreeEntry, Value};

/// Keys that occur in server entries and hardly anywhere else.
const SERVER_KEYS: [&str; 6] = ["command", "cmd", "url", "serverUrl", "httpUrl", "uri"];

/// Returns the dialect of a foreign file; `None` if it is unknown. The file name counts only where the
/// contents are ambiguous.
pub(super) fn recognise(path: &Path, root: &Node) -> Option<ConfigDialect> {
    let has = |key: &str| root.get(key).is_some();
    let is_object = |key: &str| root.get(key).is_some_and(|node| node.entries().is_some());
    let is_list = |key: &str| root.get(key).is_some_and(|node| items(node).is_some());
    if (has("openapi") || has("swagger")) && (has("paths") || has("info")) {
        return Some(ConfigDialect::OpenApi);
    }
    if is_object("registry") && root.get("registry").is_some_and(is_catalogue) {
        return Some(ConfigDialect::DockerCatalog);
    }
    if is_registry_entry(root) || root.get("server").is_some_and(is_registry_entry) {
        return Some(ConfigDialect::Registry);
    }
    if let Some(servers) = root.get("mcpServers") {
        return Some(if items(servers).is_some() {
            ConfigDialect::Continue
        } else {
            mcp_servers_dialect(path, root, servers)
        });
    }
    if is_list("binds") || root.get("mcp").is_some_and(|mcp| mcp.get("targets").is_some()) {
        return Some(ConfigDialect::AgentGateway);
    }
    if has("context_servers") {
        return Some(ConfigDialect::Zed);
    }
    if has("mcp_servers") {
        return Some(ConfigDialect::Codex);
    }
    let is_alone = || root.entries().unwrap_or_default().iter().all(|entry| entry.key == "servers");
    if is_object("servers")
        && (is_list("inputs") || is_alone() || root.get("servers").is_some_and(are_servers))
    {
        return Some(ConfigDialect::VsCode);
    }
    if let Some(dialect) = root.get("mcp").and_then(|mcp| mcp_dialect(root, mcp)) {
        return Some(dialect);
    }
    if root.get("extensions").is_some_and(are_extensions) {
        return Some(ConfigDialect::Goose);
    }
    if root.get("steps").and_then(items).is_some_and(|steps| has("chain") || steps.iter().any(is_step)) {
        return Some(ConfigDialect::Chain);
    }
    if is_object("source")
        && (has("deployment") || has("environment") || schema_url_contains(root, "fastmcp"))
    {
        return Some(ConfigDialect::FastMcp);
    }
    let values = root.entries().unwrap_or_default();
    (!values.is_empty() && values.iter().all(|entry| is_server(&entry.value))).then_some(ConfigDialect::Bare)
}

/// Returns the dialect of an ambiguous file by its location.
pub(super) fn by_path(path: &Path) -> Option<ConfigDialect> {
    let dialect = match client_for_path(path)?.name() {
        "claude-code" => ConfigDialect::ClaudeCode,
        "cline" | "roo" => ConfigDialect::Cline,
        "codex" => ConfigDialect::Codex,
        "continue" => ConfigDialect::Continue,
        "crush" => ConfigDialect::Crush,
        "gemini" | "qwen" => ConfigDialect::Gemini,
        "goose" => ConfigDialect::Goose,
        "opencode" => ConfigDialect::OpenCode,
        "vscode" => ConfigDialect::VsCode,
        "zed" => ConfigDialect::Zed,
        _ => ConfigDialect::McpServers,
    };
    Some(dialect)
}

/// Distinguishes the dialects with `mcpServers`.
fn mcp_servers_dialect(path: &Path, root: &Node, servers: &Node) -> ConfigDialect {
    let has = |key: &str| root.get(key).is_some();
    let in_mcp = |key: &str| root.get("mcp").is_some_and(|mcp| mcp.get(key).is_some());
    let any_server_has =
        |key: &str| servers.entries().unwrap_or_default().iter().any(|entry| entry.value.get(key).is_some());
    let is_gemini_settings =
        ["security", "selectedAuthType", "contextFileName", "ui", "general"].into_iter().any(has);
    let place = path.to_string_lossy().replace('\\', "/");
    let is_at = |ending: &str| place.ends_with(ending);
    if has("mcpProxy") {
        ConfigDialect::McpProxy
    } else if root.get("projects").is_some_and(|projects| projects.entries().is_some()) {
        ConfigDialect::ClaudeCode
    } else if ["allowed", "excluded", "serverCommand"].into_iter().any(in_mcp)
        || any_server_has("httpUrl")
        || is_gemini_settings
    {
        ConfigDialect::Gemini
    } else if has("systemConfig") || has("users") {
        ConfigDialect::McpHub
    } else if is_at("cline_mcp_settings.json")
        || is_at("roo-cline/settings/mcp_settings.json")
        || is_at(".roo/mcp.json")
    {
        ConfigDialect::Cline
    } else if is_at(".gemini/settings.json") || is_at(".qwen/settings.json") {
        ConfigDialect::Gemini
    } else if is_at(".claude.json") {
        ConfigDialect::ClaudeCode
    } else {
        ConfigDialect::McpServers
    }
}

/// Distinguishes the dialects with `mcp`.
fn mcp_dialect(root: &Node, mcp: &Node) -> Option<ConfigDialect> {
    let entries = mcp.entries()?;
    let kind = |entry: &TreeEntry| entry.value.get("type").and_then(as_text).map(str::to_owned);
    let is_of_opencode = |entry: &TreeEntry| {
        let is_list = entry.value.get("command").is_some_and(|command| items(command).is_some());
        is_list || matches!(kind(entry).as_deref(), Some("local" | "remote"))
    };
    if let Some(servers) = mcp.get("servers").and_then(Node::entries) {
        let is_one = schema_url_contains(root, "opencode") || servers.iter().any(is_of_opencode);
        return Some(if is_one { ConfigDialect::OpenCode } else { ConfigDialect::VsCode });
    }
    if schema_url_contains(root, "crush") {
        return Some(ConfigDialect::Crush);
    }
    if schema_url_contains(root, "opencode") || entries.iter().any(is_of_opencode) {
        return Some(ConfigDialect::OpenCode);
    }
    let is_of_crush = |entry: &TreeEntry| matches!(kind(entry).as_deref(), Some("stdio" | "http" | "sse"));
    entries.iter().any(is_of_crush).then_some(ConfigDialect::Crush)
}

/// Returns `true` if the file's `$schema` URL contains a word.
fn schema_url_contains(root: &Node, word: &str) -> bool {
    root.get("$schema").and_then(as_text).is_some_and(|schema| schema.contains(word))
}

/// Returns `true` if the node is a step of a chain.
fn is_step(node: &Node) -> bool {
    ["tool", "tool_name"].iter().any(|key| node.get(key).is_some())
}

/// Returns `true` if the node is a server entry.
pub(super) fn is_server(node: &Node) -> bool {
    SERVER_KEYS.iter().any(|key| node.get(key).is_some())
}

/// Returns `true` if the node is an object with at least one server entry.
pub(super) fn are_servers(node: &Node) -> bool {
    node.entries().unwrap_or_default().iter().any(|entry| is_server(&entry.value))
}

fn are_extensions(node: &Node) -> bool {
    let is_one = |entry: &TreeEntry| {
        let has = |key: &str| entry.value.get(key).is_some();
        has("cmd") || has("uri") || (has("type") && has("enabled"))
    };
    node.entries().unwrap_or_default().iter().any(is_one)
}

fn is_catalogue(node: &Node) -> bool {
    let is_one =
        |entry: &TreeEntry| ["image", "remote", "poci"].iter().any(|key| entry.value.get(key).is_some());
    node.entries().unwrap_or_default().iter().any(is_one)
}

/// Returns `true` if the node is a registry entry of a server.
pub(super) fn is_registry_entry(node: &Node) -> bool {
    let has_list = |key: &str, inside: &[&str]| {
        let is_one = |item: &Node| inside.iter().any(|key| item.get(key).is_some());
        node.get(key).and_then(items).is_some_and(|items| items.iter().any(is_one))
    };
    let is_named = node.get("name").is_some_and(|name| matches!(name.value, Value::Text(_)));
    is_named
        && (has_list("packages", &["registryType", "registry_type", "registry_name", "identifier"])
            || has_list("remotes", &["url"]))
}
