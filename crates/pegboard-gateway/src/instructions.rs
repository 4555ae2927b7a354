//! What a model is told about the toolboxes there are.

use pegboard_core::id::ServerName;
use pegboard_core::text::clipped;
use pegboard_runtime::toolbox::ConfiguredToolbox;
use serde_json::json;

/// How much of a description is told.
const MAX_DESCRIPTION_BYTES: usize = 1024;
/// How long the list of toolboxes may be.
const MAX_LIST_BYTES: usize = 64 * 1024;

/// The toolboxes, and how their tools are used.
pub(crate) fn of(toolboxes: &[ConfiguredToolbox]) -> String {
    let Some(first) = toolboxes.first() else {
        return include_str!("instructions/none.md").trim_end().to_owned();
    };
    let lines: Vec<String> = toolboxes.iter().map(line).collect();
    let server = first.servers.first().map_or("SERVER", |server| server.as_str());
    let open = json!({"toolbox": first.name});
    let call = json!({"tool": {"toolbox": first.name, "server": server, "name": "TOOL"}, "arguments": {}});
    include_str!("instructions/toolboxes.md")
        .trim_end()
        .replace("{open}", &open.to_string())
        .replace("{call}", &call.to_string())
        // Last, so that nothing in a description is taken for a place to fill in.
        .replace("{toolboxes}", &clipped(&lines.join("\n"), MAX_LIST_BYTES))
}

fn line(toolbox: &ConfiguredToolbox) -> String {
    let servers: Vec<&str> = toolbox.servers.iter().map(ServerName::as_str).collect();
    let (n_servers, s) = (servers.len(), if servers.len() == 1 { "" } else { "s" });
    let description = clipped(toolbox.description.trim(), MAX_DESCRIPTION_BYTES);
    let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let names = if servers.is_empty() { String::new() } else { format!(": {}", servers.join(", ")) };
    format!("- {} ({n_servers} server{s}{names}) {description}", toolbox.name).trim_end().to_owned()
}
