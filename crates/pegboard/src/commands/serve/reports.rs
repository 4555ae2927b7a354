//! How servers come up and fail, told as it happens.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use pegboard::provider::ServerState;
use pegboard::runtime::Runtime;
use pegboard::runtime::event::Event;
use pegboard::telemetry::tell;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use crate::cli::words;

/// How wide the names of servers are.
const NAME_WIDTH: usize = 24;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loudness {
    /// Everything.
    Usual,
    /// What goes wrong.
    Faults,
}

/// Somebody who tells how servers are.
pub(super) struct Reports {
    runtime: Runtime,
    events: Receiver<Event>,
    loudness: Loudness,
    /// Those that are being started, and since when.
    starting: HashMap<String, Instant>,
    /// What was last told of each that failed.
    faults: HashMap<String, String>,
}

impl Reports {
    /// Listens from now on.
    pub(super) fn of(runtime: &Runtime, loudness: Loudness) -> Self {
        let events = runtime.events().subscribe();
        Self { runtime: runtime.clone(), events, loudness, starting: HashMap::new(), faults: HashMap::new() }
    }

    /// Tells everything as it happens, for ever.
    pub(super) async fn follow(&mut self) -> Infallible {
        loop {
            match self.events.recv().await {
                Ok(Event::Server { toolbox, server, state }) => self.note(&toolbox, &server, &state),
                // Of very much that happens at once some is not told.
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    fn note(&mut self, toolbox: &str, server: &str, state: &ServerState) {
        let name = format!("{toolbox}/{server}");
        match state {
            ServerState::Starting => {
                self.starting.entry(name).or_insert_with(Instant::now);
            }
            ServerState::Ready => {
                let took = self.starting.remove(&name).map(|begun| begun.elapsed());
                // Who was told that it failed wants to know that it is well again.
                let was_wrong = self.faults.remove(&name).is_some();
                if self.loudness == Loudness::Usual || was_wrong {
                    tell(&came_up(&name, self.n_tools(toolbox, server), took));
                }
            }
            ServerState::Restarting { attempt } => {
                self.starting.entry(name.clone()).or_insert_with(Instant::now);
                if *attempt == 1 && self.loudness == Loudness::Usual {
                    tell(&format!("↻ {name:<NAME_WIDTH$}  went away and is started again"));
                }
            }
            ServerState::NeedsLogin { fix } => self.tell_fault(name, "somebody must log in first", fix),
            ServerState::Failed { why, fix } => {
                // Whose fault it is stands at the beginning of the line.
                let its = format!("MCP server '{server}' ");
                self.tell_fault(name, why.strip_prefix(&its).unwrap_or(why), fix);
            }
            ServerState::Idle | ServerState::Stopped => {
                self.starting.remove(&name);
            }
        }
    }

    /// Tells a fault, once for as long as it is the same.
    fn tell_fault(&mut self, name: String, why: &str, fix: &str) {
        self.starting.remove(&name);
        let told = failed(&name, why, fix);
        if self.faults.get(&name) != Some(&told) {
            tell(&told);
            self.faults.insert(name, told);
        }
    }

    fn n_tools(&self, toolbox: &str, server: &str) -> usize {
        let is_it = |status: &&pegboard::runtime::toolbox::ServerStatus| {
            status.toolbox.as_str() == toolbox && status.server.as_str() == server
        };
        self.runtime.servers().iter().find(is_it).map_or(0, |status| status.n_tools)
    }
}

fn came_up(name: &str, n_tools: usize, took: Option<Duration>) -> String {
    let took = took.map(|took| {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        format!("  {}", words::took(millis))
    });
    format!("✓ {name:<NAME_WIDTH$}  {}{}", words::count(n_tools as u64, "tool"), took.unwrap_or_default())
}

/// Cause and remedy, in two lines.
fn failed(name: &str, why: &str, fix: &str) -> String {
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (why, fix) = (one_line(why), one_line(fix));
    format!("✗ {name:<NAME_WIDTH$}  {why}\n  help: {fix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_in_one_line_and_a_fault_in_two() {
        let lines = [
            came_up("dev/github", 21, Some(Duration::from_micros(340_400))),
            came_up("dev/clock", 1, None),
            failed(
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
