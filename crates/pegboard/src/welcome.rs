//! What is served while nobody has written a configuration: a toolbox that tells how to begin.

use pegboard::config::clients::{self, System};
use pegboard::prelude::*;
use pegboard::wiring::Embedded;

use crate::place;

/// How to add the first server, as it is told on the terminal and by the toolbox.
pub(crate) const FIRST_STEPS: &str =
    "  pegboard import                             brings the servers that your clients have
  pegboard add time -- uvx mcp-server-time    adds one
  pegboard connect claude-code                connects a client (or cursor, vscode, codex, …)";

/// The toolbox.
pub(crate) fn toolbox() -> Embedded {
    Embedded {
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
        "This gateway has no configuration yet. In a terminal:\n\n{FIRST_STEPS}\n\nor write a pegboard.yaml into the folder \
         where it runs:\n\nmcpServers:\n  time: {{command: uvx, args: [mcp-server-time]}}\n\nIt is read as soon as it is \
         there; this toolbox makes room for the tools in it."
    )
}

/// A file in which a client keeps its MCP servers.
#[derive(Serialize, JsonSchema)]
struct ClientFile {
    /// The client.
    client: String,
    /// Its file.
    file: String,
    /// The command that takes its servers over.
    import: String,
}

/// Which clients on this machine have a file with MCP servers, and how to import each.
#[tool(read_only)]
fn where_servers_are() -> Vec<ClientFile> {
    let folder = std::env::current_dir().unwrap_or_default();
    let of_client = |client: &'static clients::Client| {
        let places = client.places(&place::environment, &folder, System::here());
        places.into_iter().filter(|path| path.is_file()).map(|path| ClientFile {
            client: client.title().to_owned(),
            file: path.display().to_string(),
            import: format!("pegboard import {}", client.name()),
        })
    };
    clients::clients().iter().flat_map(of_client).collect()
}
