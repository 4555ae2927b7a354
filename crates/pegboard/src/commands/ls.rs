//! `pegboard ls`: toolboxes, their servers and their tools, as a tree.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::clients::client;
use pegboard::config::near;
use serde_json::{Value, json};

use crate::cli::waiting::Waiting;
use crate::cli::words::{BOLD, DIM, GREEN, PLAIN, RED, count, length, one_line};
use crate::cli::{Failure, Format, Globals, print};
use crate::desk::{Address, Desk, ServerView, ToolView, ToolboxView, view};
use pattern::Pattern;

mod pattern;

/// How many tools are listed.
const MAX_TOOLS: usize = 5_000;
/// How many characters of a description are shown.
const MAX_CHARACTERS: usize = 100;

/// Which of it is listed.
#[derive(Args)]
pub(crate) struct Ls {
    /// Only what has this in its address, or matches it if there is a * in it; a file, an address or a client such as
    /// cursor stands for all that it names
    pattern: Option<String>,
    /// Show more of everything: how tools are called, processes, warnings
    #[arg(long, short)]
    long: bool,
}

/// All that there is.
struct Tree {
    toolboxes: Vec<ToolboxView>,
    servers: Vec<ServerView>,
    tools: Vec<ToolView>,
}

impl Ls {
    /// What is looked at instead of the configuration, if that is what somebody names.
    pub(crate) fn take_source(&mut self) -> Option<PathBuf> {
        let is_source = |text: &String| {
            let word = text.split(':').next().unwrap_or_default();
            text.contains("://") || Path::new(text).is_file() || client(word).is_some()
        };
        self.pattern.take_if(|text| is_source(text)).map(PathBuf::from)
    }

    pub(crate) async fn ask(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        let waiting = Waiting::new(globals, "Starting servers");
        let mut tools = Address::of(&["tools"]).with("limit", &MAX_TOOLS);
        if desk.is_new() {
            tools = tools.with("open", &true);
        }
        // The tools come first, because asking for them may make servers ready.
        let mut tools = waiting.during(desk.get(&tools)).await?;
        let mut servers = desk.get(&Address::of(&["servers"])).await?;
        let mut toolboxes = desk.get(&Address::of(&["toolboxes"])).await?;
        if let Some(pattern) = &self.pattern {
            let pattern = Pattern::new(pattern);
            keep(&mut tools["tools"], |tool| pattern.meets(tool["address"].as_str().unwrap_or_default()));
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
            keep(&mut servers["servers"], |server| {
                let address = address(server);
                pattern.meets(&address) || has_tools(&format!("{address}/"))
            });
            keep(&mut toolboxes["toolboxes"], |toolbox| {
                let name = toolbox["name"].as_str().unwrap_or_default();
                let servers = servers["servers"].as_array().into_iter().flatten();
                pattern.meets(name) || servers.into_iter().any(|server| server["toolbox"] == name)
            });
            if toolboxes["toolboxes"] == json!([]) {
                return Err(unknown(self.pattern.as_deref().unwrap_or_default(), &all));
            }
        }
        let document = json!({"toolboxes": toolboxes["toolboxes"], "servers": servers["servers"], "tools": tools["tools"]});
        let tree = Tree {
            toolboxes: view(&document, "toolboxes")?,
            servers: view(&document, "servers")?,
            tools: view(&document, "tools")?,
        };
        let format = globals.data_format();
        match format {
            Format::Ndjson => print::list(format, &document["tools"]),
            Format::Text | Format::Json | Format::Yaml => {
                let detail = if self.long { Detail::Long } else { Detail::Short };
                print::document(format, &document, || tree.text(detail));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Keeps those of a list that are wanted.
fn keep(list: &mut Value, is_wanted: impl Fn(&Value) -> bool) {
    if let Some(list) = list.as_array_mut() {
        list.retain(is_wanted);
    }
}

fn unknown(pattern: &str, servers: &[String]) -> Failure {
    let failure = Failure::not_found("not_found", format!("nothing is called '{pattern}'"));
    let names: Vec<&str> = servers.iter().flat_map(|address| address.split('/')).collect();
    match near(pattern, names.iter().copied()) {
        Some(meant) => failure.hint(format!("did you mean {meant}?")),
        None => failure.hint("pegboard ls shows everything; pegboard tools finds tools by what they do"),
    }
}

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Detail {
    Short,
    Long,
}

impl Tree {
    fn text(&self, detail: Detail) -> String {
        let mut text = String::new();
        if self.toolboxes.is_empty() {
            text.push_str("There are no toolboxes. Add a server: pegboard add NAME -- COMMAND\n");
        }
        for toolbox in &self.toolboxes {
            let _ = writeln!(
                text,
                "{BOLD}{}{PLAIN}  {DIM}{}{PLAIN}",
                toolbox.name,
                one_line(&toolbox.description, MAX_CHARACTERS)
            );
            let servers: Vec<&ServerView> =
                self.servers.iter().filter(|server| server.toolbox == toolbox.name).collect();
            let width = servers.iter().map(|server| length(&server.server)).max().unwrap_or_default();
            for (place, server) in servers.iter().enumerate() {
                let is_last = place + 1 == servers.len();
                let (branch, trunk) = if is_last { ("└", " ") } else { ("├", "│") };
                let _ = writeln!(text, "{branch} {}", server_line(server, width, detail).trim_end());
                for line in server_remarks(server, detail) {
                    let _ = writeln!(text, "{trunk}   {line}");
                }
                self.write_tools(&mut text, server, trunk, detail);
            }
        }
        text
    }

    fn write_tools(&self, text: &mut String, server: &ServerView, trunk: &str, detail: Detail) {
        let is_own = |tool: &&ToolView| tool.toolbox == server.toolbox && tool.server == server.server;
        let tools: Vec<&ToolView> = self.tools.iter().filter(is_own).collect();
        for (place, tool) in tools.iter().enumerate() {
            let branch = if place + 1 == tools.len() { "└" } else { "├" };
            let _ = match detail {
                Detail::Short => writeln!(text, "{trunk} {branch} {}", tool.name),
                Detail::Long => match tool.annotations.word() {
                    "" => writeln!(text, "{trunk} {branch} {}", tool.signature),
                    word => writeln!(text, "{trunk} {branch} {}  {DIM}{word}{PLAIN}", tool.signature),
                },
            };
        }
    }
}

/// A server in one line: its mark, name and state, and how many tools it has.
fn server_line(server: &ServerView, width: usize, detail: Detail) -> String {
    let mut line = format!("{} {:<width$}", mark(&server.state), server.server);
    let tools = count(server.tools, "tool");
    let transport = server.transport.as_deref().unwrap_or(&server.kind);
    let _ = write!(line, "  {DIM}{transport}  {}{PLAIN}  {tools}", server.state);
    if detail == Detail::Long {
        if let Some(pid) = server.pid {
            let _ = write!(line, "  {DIM}pid {pid}{PLAIN}");
        }
        if let Some(restarts) = server.restarts.filter(|restarts| *restarts > 0) {
            let _ = write!(line, "  {DIM}{}{PLAIN}", count(restarts, "restart"));
        }
    }
    line
}

/// What is worth saying of a server on lines of their own.
fn server_remarks(server: &ServerView, detail: Detail) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(error) = &server.error {
        remarks.push(format!("{RED}{}{PLAIN}", one_line(error, 400)));
    }
    if let Some(hint) = &server.hint {
        remarks.push(format!("help: {}", one_line(hint, 400)));
    }
    if detail == Detail::Long {
        remarks.extend(server.warnings.iter().map(|warning| format!("warning: {}", one_line(warning, 400))));
    }
    remarks
}

/// How a server is, as a mark.
pub(super) fn mark(state: &str) -> String {
    match state {
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
    fn a_server_is_shown_with_how_it_is_reached_and_at_length_with_its_process() {
        let told = json!({"servers": [
            {"toolbox": "dev", "server": "files", "kind": "mcp", "state": "ready", "tools": 3, "transport": "stdio",
             "pid": 4711, "restarts": 2, "startedInMs": 88.5},
            {"toolbox": "dev", "server": "wiki", "kind": "mcp", "state": "idle", "tools": 0, "transport": "http",
             "restarts": 0},
            {"toolbox": "dev", "server": "shop", "kind": "openapi", "state": "ready", "tools": 1},
        ]});
        let servers: Vec<ServerView> = view(&told, "servers").unwrap();
        let mut lines = String::new();
        for detail in [Detail::Short, Detail::Long] {
            for server in &servers {
                let _ = writeln!(lines, "{}", server_line(server, 5, detail));
            }
        }
        insta::assert_snapshot!(anstream::adapter::strip_str(&lines), @"
        ✓ files  stdio  ready  3 tools
        · wiki   http  idle  0 tools
        ✓ shop   openapi  ready  1 tool
        ✓ files  stdio  ready  3 tools  pid 4711  2 restarts
        · wiki   http  idle  0 tools
        ✓ shop   openapi  ready  1 tool
        ");
    }
}
