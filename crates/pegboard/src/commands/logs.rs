//! `pegboard logs`: logs of servers.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::did_you_mean;
use serde_json::{Value, json};
use tokio::sync::mpsc;

#[cfg(unix)]
use super::serve::{last_logs::LastLogs, log_file::LogFile};
use crate::api_client::{ApiClient, ApiEvents, ApiPath, ServerView, view};
use crate::cli::format::{DIM, PLAIN};
#[cfg(unix)]
use crate::cli::format::{ago, now_millis};
use crate::cli::{CliError, ExitReason, Globals, OutputFormat, notice, print};
#[cfg(unix)]
use crate::paths::{self, ConfigSelection};

/// Name of the gateway in the name column.
const GATEWAY: &str = "gateway";
/// Capacity of the print queue.
const MAX_QUEUED: usize = 1_000;

/// Arguments of `pegboard logs`.
#[derive(Args)]
#[command(
    after_help = "A server's log is what its program writes to standard error, and the log messages that it sends. \
    Lines that start with \"pegboard:\" are state changes, and those of \"gateway\" are what a gateway in the background \
    prints. If no gateway runs, the logs of the last one are shown."
)]
pub(crate) struct LogsArgs {
    /// Server: toolbox/server, or just its name if that is unambiguous; all servers by default
    server: Option<String>,
    /// Follow the log until Ctrl-C
    #[arg(long, short)]
    follow: bool,
    /// Maximum number of lines per server
    #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 200)]
    lines: usize,
}

/// Log line of a server.
struct PrintedLogLine {
    /// Display name of the server.
    name: String,
    record: Value,
}

/// Selected servers.
struct SelectedServers {
    list: Vec<ServerView>,
    /// Width of the name column; 0 for a single server, which is not named.
    width: usize,
    /// Lines already printed: toolboxes may share a server.
    seen: HashSet<(String, Option<u64>, Option<u64>)>,
}

impl LogsArgs {
    /// Rejects options that do not apply.
    pub(crate) fn check(globals: &Globals) -> Result<(), CliError> {
        if globals.no_daemon {
            return Err(CliError::usage("--no-daemon cannot be used with logs: they are those of a gateway"));
        }
        Ok(())
    }

    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        let response = api.get(&ApiPath::new(&["servers"])).await?;
        let own_log = api.get(&ApiPath::new(&["status"])).await?["log"].as_str().map(PathBuf::from);
        let own_log = own_log.filter(|_| self.server.is_none());
        let servers: Vec<ServerView> = view(&response, "servers")?;
        let mut servers = SelectedServers::new(match &self.server {
            None => servers,
            Some(name) => vec![find_server(&servers, name)?],
        });
        // Subscribe before reading history, so that no line is missed in between.
        let following = if self.follow { Some(servers.follow(api).await?) } else { None };
        let mut lines = servers.history(api, self.lines).await?;
        lines.splice(0..0, own_log.iter().flat_map(|path| gateway_lines(path, self.lines)));
        let is_empty = lines.is_empty();
        let format = globals.format_or(OutputFormat::Text);
        match (format, following) {
            (OutputFormat::Json | OutputFormat::Yaml, None) => {
                let lines: Vec<Value> = lines.into_iter().map(|line| line.record).collect();
                print::document(format, &json!({"lines": lines}), String::new);
            }
            (_, following) => {
                servers.width = servers.width_with(&lines);
                for line in &lines {
                    line.print(format, servers.width);
                }
                if let Some(following) = following {
                    return servers.print(globals, following).await;
                }
            }
        }
        if is_empty {
            notice(globals, "No log lines yet: servers start on first use");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints the logs of the last gateway of the configuration. Returns the failure if there are none.
    #[cfg(unix)]
    pub(crate) fn print_last(&self, globals: &Globals, failure: CliError) -> Result<ExitCode, CliError> {
        let state = paths::state_dir(globals.state.as_deref());
        let Some(state) = state.filter(|_| !self.follow && failure.is_not_running()) else {
            return Err(failure);
        };
        let identity = ConfigSelection::without_probing(globals)?.identity();
        let own = LogFile::new(&state, &identity);
        let saved = LastLogs::new(&state, &identity).read();
        let saved_at = saved.as_ref().map(|saved| saved.saved_at);
        let is_all = self.server.is_none();
        let mut lines = if is_all { gateway_lines(own.path(), self.lines) } else { Vec::new() };
        if saved.is_none() && lines.is_empty() {
            return Err(failure);
        }
        let records = saved.map(|saved| saved.lines).unwrap_or_default();
        let mut servers: Vec<ServerView> = Vec::new();
        for record in &records {
            let server: ServerView = view(&json!({"server": record}), "server")?;
            if servers.iter().all(|known| known.address() != server.address()) {
                servers.push(server);
            }
        }
        if let Some(name) = &self.server {
            servers = vec![find_server(&servers, name)?];
        }
        let mut servers = SelectedServers::new(servers);
        for server in servers.list.clone() {
            let is_own =
                |record: &&Value| record["toolbox"] == server.toolbox && record["server"] == server.server;
            let own: Vec<&Value> = records.iter().filter(is_own).collect();
            let last = own[own.len().saturating_sub(self.lines)..].iter();
            lines.extend(last.filter_map(|record| servers.line(&server, (*record).clone())));
        }
        lines.sort_by_key(|line| line.record["at"].as_u64());
        let format = globals.format_or(OutputFormat::Text);
        if matches!(format, OutputFormat::Json | OutputFormat::Yaml) {
            let lines: Vec<Value> = lines.into_iter().map(|line| line.record).collect();
            print::document(format, &json!({"lines": lines}), String::new);
        } else {
            let width = servers.width_with(&lines);
            for line in &lines {
                line.print(format, width);
            }
        }
        let age = saved_at.map(|at| format!(", saved {}", ago(now_millis(), at))).unwrap_or_default();
        notice(globals, &format!("No gateway is running: these are the last lines of the previous one{age}"));
        Ok(ExitCode::SUCCESS)
    }

    /// Nothing is kept of the last gateway on this platform.
    #[cfg(not(unix))]
    pub(crate) fn print_last(&self, _globals: &Globals, failure: CliError) -> Result<ExitCode, CliError> {
        Err(failure)
    }

    /// Maps the result: interrupting `--follow` is not an error.
    pub(crate) fn map_result(&self, done: Result<ExitCode, CliError>) -> Result<ExitCode, CliError> {
        match done {
            Err(failure) if self.follow && failure.is_interrupted() => Ok(ExitReason::Interrupted.into()),
            done => done,
        }
    }
}

impl SelectedServers {
    fn new(servers: Vec<ServerView>) -> Self {
        let mut servers = Self { list: servers, width: 0, seen: HashSet::new() };
        if servers.list.len() > 1 {
            let names = servers.list.iter().map(|server| servers.name(server).len());
            servers.width = names.max().unwrap_or_default();
        }
        servers
    }

    /// Width of the name column for these lines.
    fn width_with(&self, lines: &[PrintedLogLine]) -> usize {
        let has_gateway = lines.iter().any(|line| line.name == GATEWAY);
        let names = self.list.iter().map(|server| self.name(server).len());
        if has_gateway { names.chain([GATEWAY.len()]).max().unwrap_or_default() } else { self.width }
    }

    /// Display name of a server: with its toolbox, if the name is ambiguous.
    fn name(&self, server: &ServerView) -> String {
        let is_other = |other: &&ServerView| other.server == server.server;
        if self.list.iter().filter(is_other).count() > 1 { server.address() } else { server.server.clone() }
    }

    /// Subscribes to new lines.
    async fn follow(&self, api: &ApiClient) -> Result<Vec<(ServerView, ApiEvents)>, CliError> {
        let mut all = Vec::new();
        for server in &self.list {
            let events = api.follow(&log_path(server).with("follow", &true).with("lines", &0)).await?;
            all.push((server.clone(), events));
        }
        Ok(all)
    }

    /// Fetches past lines, oldest first.
    async fn history(&mut self, api: &ApiClient, n_most: usize) -> Result<Vec<PrintedLogLine>, CliError> {
        let mut lines = Vec::new();
        for server in self.list.clone() {
            let response = api.get(&log_path(&server).with("lines", &n_most)).await?;
            let own = response["lines"].as_array().into_iter().flatten();
            lines.extend(own.filter_map(|line| self.line(&server, line.clone())));
        }
        lines.sort_by_key(|line| line.record["at"].as_u64());
        Ok(lines)
    }

    /// Returns a line, unless it was already printed.
    fn line(&mut self, server: &ServerView, mut record: Value) -> Option<PrintedLogLine> {
        let key = (server.server.clone(), record["number"].as_u64(), record["at"].as_u64());
        if !self.seen.insert(key) {
            return None;
        }
        record["toolbox"] = server.toolbox.as_str().into();
        record["server"] = server.server.as_str().into();
        Some(PrintedLogLine { name: self.name(server), record })
    }

    /// Prints new lines until the gateway shuts down or standard output is closed.
    async fn print(
        mut self,
        globals: &Globals,
        following: Vec<(ServerView, ApiEvents)>,
    ) -> Result<ExitCode, CliError> {
        let (sender, mut receiver) = mpsc::channel(MAX_QUEUED);
        let receiving =
            futures_util::future::try_join_all(following.into_iter().map(|(server, mut events)| {
                let sender = sender.clone();
                async move {
                    while let Some(event) = events.next().await? {
                        // The receiver lives as long as this future.
                        let _ = sender.send((server.clone(), event)).await;
                    }
                    Ok::<(), CliError>(())
                }
            }));
        let format = globals.format_or(OutputFormat::Text);
        let width = self.width;
        let printing = async {
            while let Some((server, event)) = receiver.recv().await {
                match event.name.as_str() {
                    "line" => {
                        if let Some(line) = self.line(&server, event.data.to_value()) {
                            line.print(format, width);
                        }
                    }
                    "missed" => notice(globals, "Some lines were dropped"),
                    // Unknown events are ignored for forward compatibility.
                    _ => {}
                }
                if print::is_stdout_closed() {
                    return;
                }
            }
        };
        tokio::select! {
            ended = receiving => {
                ended?;
                notice(globals, "The gateway has shut down");
                Ok(ExitCode::SUCCESS)
            }
            () = printing => Ok(ExitCode::SUCCESS),
        }
    }
}

impl PrintedLogLine {
    fn print(&self, format: OutputFormat, width: usize) {
        match format {
            OutputFormat::Text => print::text(&self.text(width)),
            OutputFormat::Json | OutputFormat::Ndjson => print::json(&self.record.to_string()),
            OutputFormat::Yaml => print::document(format, &[&self.record], String::new),
        }
    }

    fn text(&self, width: usize) -> String {
        let text = self.record["text"].as_str().unwrap_or_default();
        let level = self.record["level"].as_str().map(|level| format!("{level}: ")).unwrap_or_default();
        let line = match self.record["stream"].as_str() {
            Some("pegboard") => format!("{DIM}pegboard: {text}{PLAIN}"),
            _ => format!("{level}{text}"),
        };
        if width == 0 { line } else { format!("{DIM}{:<width$}{PLAIN}  {line}", self.name) }
    }
}

/// Reads the last lines of a gateway's own log.
#[cfg(unix)]
fn gateway_lines(path: &Path, n_most: usize) -> Vec<PrintedLogLine> {
    let line = |text: String| {
        let record = json!({"stream": GATEWAY, "text": text});
        PrintedLogLine { name: GATEWAY.to_owned(), record }
    };
    LogFile::at(path).tail(n_most).into_iter().map(line).collect()
}

/// A gateway has no log of its own on this platform.
#[cfg(not(unix))]
fn gateway_lines(_path: &Path, _n_most: usize) -> Vec<PrintedLogLine> {
    Vec::new()
}

fn log_path(server: &ServerView) -> ApiPath {
    ApiPath::new(&["servers", &server.toolbox, &server.server, "logs"])
}

/// Finds a server by name or address.
pub(super) fn find_server(servers: &[ServerView], name: &str) -> Result<ServerView, CliError> {
    let meant: Vec<&ServerView> =
        servers.iter().filter(|server| server.server == name || server.address() == name).collect();
    match meant.as_slice() {
        [server] => Ok((*server).clone()),
        [] => {
            let failure = CliError::not_found("unknown_server", format!("no server '{name}'"));
            let names = servers.iter().map(|server| server.server.as_str());
            Err(failure.hint(did_you_mean(name, names).as_deref().unwrap_or("list all with pegboard ls")))
        }
        several => {
            let several: Vec<String> = several.iter().map(|server| server.address()).collect();
            let message = format!("'{name}' is ambiguous: {}", several.join(" or "));
            Err(CliError::not_found("unknown_server", message).hint("use one of them"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::style;

    #[test]
    fn a_server_is_found_by_name_or_address() {
        let response = json!({"servers": [
            {"toolbox": "dev", "server": "github"}, {"toolbox": "ops", "server": "github"}, {"toolbox": "ops", "server": "jira"},
        ]});
        let servers: Vec<ServerView> = view(&response, "servers").unwrap();
        let found = |name: &str| match find_server(&servers, name) {
            Ok(server) => server.address(),
            Err(failure) => failure.text(),
        };
        insta::assert_snapshot!(["jira", "ops/github", "github", "jria"].map(found).join("\n"), @"
        ops/jira
        ops/github
        error[unknown_server]: 'github' is ambiguous: dev/github or ops/github
          help: use one of them
        error[unknown_server]: no server 'jria'
          help: did you mean jira?
        ");
    }

    #[test]
    fn lines_of_several_servers_are_prefixed_with_the_name() {
        let line = |record: Value| PrintedLogLine { name: "jira".to_owned(), record };
        let message = line(json!({"stream": "message", "level": "error", "text": "no\u{1b}[1m key"}));
        let state = line(json!({"stream": "pegboard", "text": "started"}));
        let all = [message.text(0), message.text(6), state.text(6)].join("\n");
        insta::assert_snapshot!(anstream::adapter::strip_str(&style::render(&all)), @"
        error: no␛[1m key
        jira    error: no␛[1m key
        jira    pegboard: started
        ");
    }

    #[test]
    fn lines_of_a_shared_server_are_printed_once() {
        let response = json!({"servers": [{"toolbox": "dev", "server": "github"}, {"toolbox": "ops", "server": "github"}]});
        let mut servers = SelectedServers::new(view(&response, "servers").unwrap());
        let line = json!({"number": 1, "at": 7, "text": "hello"});
        let [dev, ops] = [0, 1].map(|index: usize| servers.list[index].clone());
        let first = servers.line(&dev, line.clone()).unwrap();
        assert_eq!((first.name.as_str(), &first.record["toolbox"]), ("dev/github", &json!("dev")));
        assert!(servers.line(&ops, line).is_none());
    }
}
