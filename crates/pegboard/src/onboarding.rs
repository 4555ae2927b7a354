//! The toolbox that is served while there is no configuration: it explains the first steps.

use pegboard::config::clients::{self, Platform};
use pegboard::prelude::*;
use pegboard::wiring::EmbeddedToolbox;

use crate::paths;

/// First steps, as printed on the terminal and by the toolbox.
pub(crate) const FIRST_STEPS: &str =
    "  pegboard import                             import the servers of your clients
  pegboard add time -- uvx mcp-server-time    add a server
  pegboard connect claude-code                connect a client (or cursor, vscode, codex, …)";

/// Returns the onboarding toolbox.
pub(crate) fn toolbox() -> EmbeddedToolbox {
    EmbeddedToolbox {
        toolbox: "welcome".to_owned(),
        description: "How to give this gateway its first tools".to_owned(),
        server: "pegboard".to_owned(),
        tools: tools![how_to_begin, where_servers_are].into(),
    }
}

/// How to add MCP servers, web services and agents to this gateway, and how to connect clients.
#[tool(read_only)]
fn how_to_begin() -> String {
    format!(
        "This gateway has no configuration yet. In a terminal:\n\n{FIRST_STEPS}\n\nor create a pegboard.yaml in the directory \
         where it runs:\n\nmcpServers:\n  time: {{command: uvx, args: [mcp-server-time]}}\n\nThe file is loaded as soon as \
         it exists, and its tools replace this toolbox."
    )
}

/// A file in which a client keeps its MCP servers.
#[derive(Serialize, JsonSchema)]
struct ClientFile {
    /// The client.
    client: String,
    /// Its file.
    file: String,
    /// The command that imports its servers.
    import: String,
}

/// Which clients on this machine have a file with MCP servers, and how to import each.
#[tool(read_only)]
fn where_servers_are() -> Vec<ClientFile> {
    let folder = std::env::current_dir().unwrap_or_default();
    let of_client = |client: &'static clients::KnownClient| {
        let places = client.config_paths(&paths::env_var, &folder, Platform::current());
        places.into_iter().filter(|path| path.is_file()).map(|path| ClientFile {
            client: client.title().to_owned(),
            file: path.display().to_string(),
            import: format!("pegboard import {}", client.name()),
        })
    };
    clients::clients().iter().flat_map(of_client).collect()
}
