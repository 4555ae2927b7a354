//! Server instructions for models: the toolboxes and the use of meta-tools.

use pegboard_core::id::ServerName;
use pegboard_core::text::clipped;
use pegboard_runtime::toolbox::ConfiguredToolbox;
use serde_json::json;

/// Maximum length of a toolbox description.
const MAX_DESCRIPTION_BYTES: usize = 1024;
/// Maximum length of the toolbox list.
const MAX_LIST_BYTES: usize = 64 * 1024;

/// Renders the instructions.
pub(crate) fn for_toolboxes(toolboxes: &[ConfiguredToolbox]) -> String {
    let Some(first) = toolboxes.first() else {
        return include_str!("instructions/none.md").trim_end().to_owned();
    };
    let lines: Vec<String> = toolboxes.iter().map(toolbox_line).collect();
    let server = first.servers.first().map_or("SERVER", |server| server.as_str());
    let open = json!({"toolbox": first.name});
    let call = json!({"tool": {"toolbox": first.name, "server": server, "name": "TOOL"}, "arguments": {}});
    include_str!("instructions/toolboxes.md")
        .trim_end()
        .replace("{open}", &open.to_string())
        .replace("{call}", &call.to_string())
        // Last, so that placeholders in descriptions are not expanded.
        .replace("{toolboxes}", &clipped(&lines.join("\n"), MAX_LIST_BYTES))
}

fn toolbox_line(toolbox: &ConfiguredToolbox) -> String {
    let servers: Vec<&str> = toolbox.servers.iter().map(ServerName::as_str).collect();
    let (n_servers, s) = (servers.len(), if servers.len() == 1 { "" } else { "s" });
    let description = clipped(toolbox.description.trim(), MAX_DESCRIPTION_BYTES);
    let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let names = if servers.is_empty() { String::new() } else { format!(": {}", servers.join(", ")) };
    format!("- {} ({n_servers} server{s}{names}) {description}", toolbox.name).trim_end().to_owned()
}
