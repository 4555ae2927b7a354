//! `pegboard ls`: toolboxes, servers and tools as a tree.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::clients::find_client;
use pegboard::config::did_you_mean;
use serde_json::{Value, json};

use super::server_starts::start_servers;
use crate::api_client::{ApiClient, ApiPath, ServerView, ToolView, ToolboxView, view};
use crate::cli::format::{BOLD, DIM, GREEN, PLAIN, RED, YELLOW, one_line, plural, visible_width};
use crate::cli::{CliError, Globals, OutputFormat, print};
use pattern::AddressPattern;

mod pattern;

/// Maximum number of tools listed.
const MAX_TOOLS: usize = 5_000;
/// Maximum number of characters of a description.
const MAX_CHARACTERS: usize = 100;

/// Arguments of `pegboard ls`.
#[derive(Args)]
pub(crate) struct LsArgs {
    /// Part of an address, or a glob with *; a file, URL or client such as cursor lists that source instead
    pattern: Option<String>,
    /// Show signatures, processes and warnings
    #[arg(long, short)]
    long: bool,
}

/// Toolboxes with their servers and tools.
struct ToolboxTree {
    toolboxes: Vec<ToolboxView>,
    servers: Vec<ServerView>,
    tools: Vec<ToolView>,
}

impl LsArgs {
    /// Takes the pattern if it names a source to list instead of the configuration.
    pub(crate) fn take_source(&mut self) -> Option<PathBuf> {
        let is_source = |text: &String| {
            let word = text.split(':').next().unwrap_or_default();
            text.contains("://") || Path::new(text).is_file() || find_client(word).is_some()
        };
        self.pattern.take_if(|text| is_source(text)).map(PathBuf::from)
    }

    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        let pattern = self.pattern.as_deref().map(AddressPattern::new);
        // A pattern that no server matches may match tools of each.
        let named: Vec<String> = match &pattern {
            Some(pattern) => {
                let listed: Vec<ServerView> = view(&api.get(&ApiPath::new(&["servers"])).await?, "servers")?;
                listed.iter().map(ServerView::address).filter(|address| pattern.matches(address)).collect()
            }
            None => Vec::new(),
        };
        let is_wanted = |server: &ServerView| named.is_empty() || named.contains(&server.address());
        let started = Box::pin(start_servers(globals, api, is_wanted)).await?;
        let tools = ApiPath::new(&["tools"]).with("limit", &MAX_TOOLS);
        let mut tools = api.get(&tools).await?;
        let mut servers = api.get(&ApiPath::new(&["servers"])).await?;
        let mut toolboxes = api.get(&ApiPath::new(&["toolboxes"])).await?;
        if let Some(pattern) = &pattern {
            retain_items(&mut tools["tools"], |tool| {
                pattern.matches(tool["address"].as_str().unwrap_or_default())
            });
            let has_tools = |place: &str| {
                let tools = tools["tools"].as_array().into_iter().flatten();
                tools.filter_map(|tool| tool["address"].as_str()).any(|address| address.starts_with(place))
            };
            let address = |server: &Value| {
                ["toolbox", "server"]
                    .map(|part| server[part].as_str().unwrap_or_default().to_owned())
                    .join("/")
            };
            let all: Vec<String> = servers["servers"].as_array().into_iter().flatten().map(address).collect();
            retain_items(&mut servers["servers"], |server| {
                let address = address(server);
                pattern.matches(&address) || has_tools(&format!("{address}/"))
            });
            retain_items(&mut toolboxes["toolboxes"], |toolbox| {
                let name = toolbox["name"].as_str().unwrap_or_default();
                let servers = servers["servers"].as_array().into_iter().flatten();
                pattern.matches(name) || servers.into_iter().any(|server| server["toolbox"] == name)
            });
            if toolboxes["toolboxes"] == json!([]) {
                return Err(unknown(self.pattern.as_deref().unwrap_or_default(), &all));
            }
        }
        let document = json!({"toolboxes": toolboxes["toolboxes"], "servers": servers["servers"], "tools": tools["tools"]});
        let tree = ToolboxTree {
            toolboxes: view(&document, "toolboxes")?,
            servers: view(&document, "servers")?,
            tools: view(&document, "tools")?,
        };
        let format = globals.data_format();
        match format {
            OutputFormat::Ndjson => print::list(format, &document["tools"]),
            OutputFormat::Text | OutputFormat::Json | OutputFormat::Yaml => {
                let detail = if self.long { LsDetail::Long } else { LsDetail::Short };
                print::document(format, &document, || tree.text(detail));
            }
        }
        started.finish()
    }
}

/// Retains the items of a list that match.
fn retain_items(list: &mut Value, is_wanted: impl Fn(&Value) -> bool) {
    if let Some(list) = list.as_array_mut() {
        list.retain(is_wanted);
    }
}

fn unknown(pattern: &str, servers: &[String]) -> CliError {
    let failure = CliError::not_found("not_found", format!("no match for '{pattern}'"));
    let names = servers.iter().flat_map(|address| address.split('/'));
    let meant = did_you_mean(pattern, names);
    failure.hint(meant.as_deref().unwrap_or("list all with pegboard ls, or search with pegboard tools"))
}

/// Level of detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LsDetail {
    Short,
    Long,
}

impl ToolboxTree {
    fn text(&self, detail: LsDetail) -> String {
        let mut text = String::new();
        if self.toolboxes.is_empty() {
            text.push_str("No toolboxes. Add a server: pegboard add NAME -- COMMAND\n");
        }
        for toolbox in &self.toolboxes {
            let _ = write!(text, "{BOLD}{}{PLAIN}", toolbox.name);
            match one_line(&toolbox.description, MAX_CHARACTERS) {
                description if description.is_empty() => text.push('\n'),
                description => {
                    let _ = writeln!(text, "  {DIM}{description}{PLAIN}");
                }
            }
            let servers: Vec<&ServerView> =
                self.servers.iter().filter(|server| server.toolbox == toolbox.name).collect();
            let width = servers.iter().map(|server| visible_width(&server.server)).max().unwrap_or_default();
            for (place, server) in servers.iter().enumerate() {
                let is_last = place + 1 == servers.len();
                let (branch, trunk) = if is_last { ("└", " ") } else { ("├", "│") };
                let _ = writeln!(text, "{branch} {}", server_line(server, width, detail).trim_end());
                for line in server_notes(server, detail) {
                    let _ = writeln!(text, "{trunk}   {line}");
                }
                self.write_tools(&mut text, server, trunk, detail);
            }
        }
        text
    }

    fn write_tools(&self, text: &mut String, server: &ServerView, trunk: &str, detail: LsDetail) {
        let is_own = |tool: &&ToolView| tool.toolbox == server.toolbox && tool.server == server.server;
        let tools: Vec<&ToolView> = self.tools.iter().filter(is_own).collect();
        for (place, tool) in tools.iter().enumerate() {
            let branch = if place + 1 == tools.len() { "└" } else { "├" };
            let signature = one_line(&tool.signature, usize::MAX);
            let _ = match detail {
                LsDetail::Short => writeln!(text, "{trunk} {branch} {}", tool.name),
                LsDetail::Long => match tool.annotations.label() {
                    "" => writeln!(text, "{trunk} {branch} {signature}"),
                    word => writeln!(text, "{trunk} {branch} {signature}  {DIM}{word}{PLAIN}"),
                },
            };
        }
    }
}

/// Renders a server on one line: mark, name, state and number of tools.
fn server_line(server: &ServerView, width: usize, detail: LsDetail) -> String {
    let mut line = format!("{} {:<width$}", server_mark(server), server.server);
    if server.is_disabled() {
        let _ = write!(line, "  {DIM}disabled; pegboard enable {}{PLAIN}", server.server);
        return line;
    }
    let tools = plural(server.tools, "tool");
    let transport = server.transport.as_deref().unwrap_or(&server.kind);
    let state = if server.needs().is_some() { "needs a variable" } else { &server.state };
    let _ = write!(line, "  {DIM}{transport}  {state}{PLAIN}  {tools}");
    if detail == LsDetail::Long {
        if let Some(pid) = server.pid {
            let _ = write!(line, "  {DIM}pid {pid}{PLAIN}");
        }
        if let Some(restarts) = server.restarts.filter(|restarts| *restarts > 0) {
            let _ = write!(line, "  {DIM}{}{PLAIN}", plural(restarts, "restart"));
        }
        if let Some(further) = server.further_instances {
            let _ = write!(line, "  {DIM}{}{PLAIN}", plural(further, "further instance"));
        }
    }
    line
}

/// Additional lines about a server.
fn server_notes(server: &ServerView, detail: LsDetail) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(needs) = server.needs() {
        remarks.push(format!("{YELLOW}needs: {}{PLAIN}", one_line(needs, 400)));
    } else if let Some(error) = &server.error {
        remarks.push(format!("{RED}{}{PLAIN}", one_line(error, 400)));
    }
    if let Some(hint) = &server.hint {
        remarks.push(format!("help: {}", one_line(hint, 400)));
    }
    if detail == LsDetail::Long {
        remarks.extend(server.warnings.iter().map(|warning| format!("warning: {}", one_line(warning, 400))));
    }
    remarks
}

/// Mark for the state of a server.
pub(super) fn server_mark(server: &ServerView) -> String {
    match server.state.as_str() {
        _ if server.needs().is_some() => format!("{YELLOW}!{PLAIN}"),
        "ready" => format!("{GREEN}✓{PLAIN}"),
        "failed" | "needs_login" => format!("{RED}✗{PLAIN}"),
        "starting" | "restarting" => "…".to_owned(),
        _ => "·".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_line_shows_transport_and_in_long_form_the_process() {
        let response = json!({"servers": [
            {"toolbox": "dev", "server": "files", "kind": "mcp", "state": "ready", "tools": 3, "transport": "stdio",
             "pid": 4711, "restarts": 2, "startedInMs": 88.5, "furtherInstances": 1},
            {"toolbox": "dev", "server": "wiki", "kind": "mcp", "state": "idle", "tools": 0, "transport": "http",
             "restarts": 0},
            {"toolbox": "dev", "server": "shop", "kind": "openapi", "state": "ready", "tools": 1},
        ]});
        let servers: Vec<ServerView> = view(&response, "servers").unwrap();
        let mut lines = String::new();
        for detail in [LsDetail::Short, LsDetail::Long] {
            for server in &servers {
                let _ = writeln!(lines, "{}", server_line(server, 5, detail));
            }
        }
        insta::assert_snapshot!(anstream::adapter::strip_str(&lines), @"
        ✓ files  stdio  ready  3 tools
        · wiki   http  idle  0 tools
        ✓ shop   openapi  ready  1 tool
        ✓ files  stdio  ready  3 tools  pid 4711  2 restarts  1 further instance
        · wiki   http  idle  0 tools
        ✓ shop   openapi  ready  1 tool
        ");
    }
}
