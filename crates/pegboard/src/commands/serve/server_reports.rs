//! Prints state changes of servers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use pegboard::owner::OwnerScope;
use pegboard::provider::{ServerState, ToolKind, TransportKind};
use pegboard::runtime::Runtime;
use pegboard::runtime::event::RuntimeEvent;
use pegboard::runtime::toolbox::ServerStatus;
use pegboard::telemetry::write_stderr;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{self, Instant, MissedTickBehavior};

use super::server_table::{ServerTable, is_starting, needs};
use crate::cli::format;

/// Width of the name column.
const NAME_WIDTH: usize = 24;

/// Amount of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportVerbosity {
    /// All state changes.
    All,
    /// Only failures.
    FailuresOnly,
}

/// Interval at which the times of servers that start are redrawn, and the time before the table is shown.
const DRAW_INTERVAL: Duration = Duration::from_millis(250);

/// Prints state changes of servers: on a terminal as a live table, elsewhere as lines. Failures are always lines.
pub(super) struct ServerReporter {
    runtime: Runtime,
    events: Receiver<RuntimeEvent>,
    verbosity: ReportVerbosity,
    /// Servers that are starting, with the time since when.
    starting: HashMap<String, Instant>,
    /// Last failure printed for each server.
    failures: HashMap<String, String>,
    table: Option<ServerTable>,
}

impl ServerReporter {
    /// Subscribes to the runtime's events.
    pub(super) fn new(runtime: &Runtime, verbosity: ReportVerbosity) -> Self {
        let events = runtime.events().subscribe_to_servers();
        Self {
            runtime: runtime.clone(),
            events,
            verbosity,
            starting: HashMap::new(),
            failures: HashMap::new(),
            table: if verbosity == ReportVerbosity::All { ServerTable::on_terminal() } else { None },
        }
    }

    /// Prints events as they arrive, forever.
    pub(super) async fn follow(&mut self) -> Infallible {
        let mut pace = time::interval_at(Instant::now() + DRAW_INTERVAL, DRAW_INTERVAL);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What changes between two ticks is drawn once.
        let mut is_due = self.table.is_some();
        loop {
            let event = tokio::select! {
                event = self.events.recv() => event,
                _ = pace.tick(), if is_due => {
                    is_due = self.draw();
                    continue;
                }
            };
            is_due = self.table.is_some();
            match event {
                Ok(RuntimeEvent::Server { toolbox, server, state }) => {
                    self.print_state(&toolbox, &server, &state);
                }
                // Events dropped under load are not printed.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    /// Draws the table. Returns `true` if it shows times that go on.
    fn draw(&self) -> bool {
        let Some(table) = &self.table else { return false };
        let mut servers = self.runtime.servers(&OwnerScope::All);
        // What this program offers itself does not start.
        servers.retain(|status| status.kind != ToolKind::Agent);
        table.draw(&servers, &self.starting);
        servers.iter().any(|status| is_starting(&status.state))
    }

    fn print_state(&mut self, toolbox: &str, server: &str, state: &ServerState) {
        let name = format!("{toolbox}/{server}");
        match state {
            ServerState::Starting => {
                self.starting.entry(name).or_insert_with(Instant::now);
            }
            ServerState::Ready => {
                let took = self.starting.remove(&name).map(|begun| begun.elapsed());
                // A recovery is always printed if the failure was.
                let was_wrong = self.failures.remove(&name).is_some();
                let is_new = self.verbosity == ReportVerbosity::All && self.table.is_none();
                if is_new || was_wrong {
                    write_stderr(&ready_line(&name, self.n_tools(toolbox, server), took));
                }
            }
            ServerState::Restarting { attempt } => {
                self.starting.entry(name.clone()).or_insert_with(Instant::now);
                if *attempt == 1 && self.verbosity == ReportVerbosity::All {
                    let what = lost(self.transport(toolbox, server));
                    write_stderr(&format!("↻ {name:<NAME_WIDTH$}  {what}"));
                }
            }
            ServerState::NeedsLogin { fix } => self.print_failure(name, '✗', "login required", fix),
            ServerState::Failed { fix, .. } if needs(state).is_some() => {
                let needs = format!("needs: {}", needs(state).unwrap_or_default());
                self.print_failure(name, '!', &needs, fix);
            }
            ServerState::Failed { fix, .. } => {
                let why = &*state.reason().unwrap_or_default();
                // The name is already at the start of the line.
                let its = format!("MCP server '{server}' ");
                self.print_failure(name, '✗', why.strip_prefix(&its).unwrap_or(why), fix);
            }
            ServerState::Idle | ServerState::Stopped => {
                self.starting.remove(&name);
            }
        }
    }

    /// Prints a failure, unless it is the same as before.
    fn print_failure(&mut self, name: String, mark: char, why: &str, fix: &str) {
        self.starting.remove(&name);
        let text = failed(mark, &name, why, fix);
        if self.failures.get(&name) != Some(&text) {
            write_stderr(&text);
            self.failures.insert(name, text);
        }
    }

    fn n_tools(&self, toolbox: &str, server: &str) -> usize {
        self.status(toolbox, server).map_or(0, |status| status.n_tools)
    }

    fn transport(&self, toolbox: &str, server: &str) -> Option<TransportKind> {
        self.status(toolbox, server)?.process_info.transport
    }

    fn status(&self, toolbox: &str, server: &str) -> Option<ServerStatus> {
        let is_it =
            |status: &ServerStatus| status.toolbox.as_str() == toolbox && status.server.as_str() == server;
        self.runtime.servers(&OwnerScope::All).into_iter().find(is_it)
    }
}

/// Describes the loss of a server: only a program exits.
fn lost(transport: Option<TransportKind>) -> &'static str {
    match transport {
        Some(TransportKind::Stdio) | None => "exited; restarting",
        Some(TransportKind::Http | TransportKind::Sse | TransportKind::WebSocket) => {
            "connection lost; reconnecting"
        }
    }
}

fn ready_line(name: &str, n_tools: usize, took: Option<Duration>) -> String {
    let took = took.map(|took| {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        format!("  {}", format::format_millis(millis))
    });
    format!("✓ {name:<NAME_WIDTH$}  {}{}", format::plural(n_tools as u64, "tool"), took.unwrap_or_default())
}

/// Cause and remedy on two lines.
fn failed(mark: char, name: &str, why: &str, fix: &str) -> String {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (why, fix) = (one_line(why), one_line(fix));
    format!("{mark} {name:<NAME_WIDTH$}  {why}\n  help: {fix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_exits() {
        assert_eq!(lost(Some(TransportKind::Stdio)), "exited; restarting");
        for transport in [TransportKind::Http, TransportKind::Sse, TransportKind::WebSocket] {
            assert_eq!(lost(Some(transport)), "connection lost; reconnecting");
        }
    }

    #[test]
    fn a_started_server_is_one_line_and_a_failure_two() {
        let lines = [
            ready_line("dev/github", 21, Some(Duration::from_micros(340_400))),
            ready_line("dev/clock", 1, None),
            failed(
                '✗',
                "dev/jira",
                "it exited with 127:\n uvx: not found",
                "Install uv, or set command for jira.",
            ),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r"
        ✓ dev/github                21 tools  340 ms
        ✓ dev/clock                 1 tool
        ✗ dev/jira                  it exited with 127: uvx: not found
          help: Install uv, or set command for jira.
        ");
    }
}
