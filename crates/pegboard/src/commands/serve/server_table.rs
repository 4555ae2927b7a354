//! Live table of servers at the bottom of the terminal.

use std::collections::HashMap;
use std::time::Duration;

use pegboard::provider::ServerState;
use pegboard::runtime::toolbox::ServerStatus;
use pegboard::telemetry::{LiveLine, leave_live_lines, set_live_lines, stderr_size};
use tokio::time::Instant;

use crate::api_client::missing_variables;
use crate::cli::format::{
    BOLD, DIM, GREEN, PLAIN, RED, YELLOW, format_millis, one_line, plural, seconds, visible_width,
};
use crate::cli::print;

/// Maximum width of the name column.
const MAX_NAME_WIDTH: usize = 32;
/// Rows of the terminal that the table leaves to other text.
const SPARE_ROWS: usize = 4;
/// Maximum number of lines, however high the terminal is.
const MAX_LINES: usize = 24;

/// Table of servers, which is redrawn in place. Dropping it leaves it on the terminal.
pub(super) struct ServerTable(());

impl ServerTable {
    /// Returns a table, if standard error is a terminal with a known size.
    pub(super) fn on_terminal() -> Option<Self> {
        (print::can_redraw() && stderr_size().is_some()).then_some(Self(()))
    }

    /// Draws the table. `starting` has the times since when servers start.
    #[expect(clippy::unused_self, reason = "only the owner of the table draws it")]
    pub(super) fn draw(&self, servers: &[ServerStatus], starting: &HashMap<String, Instant>) {
        let Some((columns, rows)) = stderr_size() else { return };
        let n_lines = rows.saturating_sub(SPARE_ROWS).min(MAX_LINES);
        let since = |name: &str| starting.get(name).map(Instant::elapsed);
        let lines = table(servers, since, columns, n_lines)
            .into_iter()
            .map(|line| LiveLine { width: visible_width(&line), text: print::rendered(&line) });
        set_live_lines(lines.collect());
    }
}

impl Drop for ServerTable {
    fn drop(&mut self) {
        leave_live_lines();
    }
}

/// Returns the lines of the table: a summary, and a line for each server within the limit. Those that start or have
/// failed come first if there is no space for all.
fn table(
    servers: &[ServerStatus],
    since: impl Fn(&str) -> Option<Duration>,
    columns: usize,
    n_lines: usize,
) -> Vec<String> {
    if servers.is_empty() || n_lines < 2 {
        return Vec::new();
    }
    let mut shown: Vec<&ServerStatus> = servers.iter().collect();
    let n_hidden = if servers.len() < n_lines { 0 } else { servers.len() + 2 - n_lines };
    if n_hidden > 0 {
        shown.sort_by_key(|status| urgency(&status.state));
        shown.truncate(servers.len() - n_hidden);
    }
    let names = shown.iter().map(|status| address(status).chars().count());
    let name_width = names.max().unwrap_or_default().min(MAX_NAME_WIDTH).min(columns / 2);
    let mut lines = vec![summary(servers, columns)];
    lines.extend(shown.into_iter().map(|status| row(status, since(&address(status)), name_width, columns)));
    if n_hidden > 0 {
        lines.push(format!("{DIM}… and {n_hidden} more{PLAIN}"));
    }
    lines
}

/// Returns `true` for a server that is on its way.
pub(super) fn is_starting(state: &ServerState) -> bool {
    matches!(state, ServerState::Starting | ServerState::Restarting { .. })
}

fn urgency(state: &ServerState) -> u8 {
    match state {
        ServerState::Failed { .. } | ServerState::NeedsLogin { .. } => 0,
        ServerState::Starting | ServerState::Restarting { .. } => 1,
        ServerState::Ready => 2,
        ServerState::Idle | ServerState::Stopped => 3,
    }
}

fn summary(servers: &[ServerStatus], columns: usize) -> String {
    let count =
        |is_it: fn(&ServerState) -> bool| servers.iter().filter(|status| is_it(&status.state)).count();
    let is_unset = |state: &ServerState| needs(state).is_some();
    let (n_starting, n_unset) = (count(is_starting), count(is_unset));
    let n_failed = count(ServerState::is_failure) - n_unset;
    let n_ready = count(|state| matches!(state, ServerState::Ready));
    let mut parts = vec![plural(servers.len() as u64, "server"), format!("{n_ready} ready")];
    let need = if n_unset == 1 { "needs a variable" } else { "need a variable" };
    let others = [(n_starting, "starting"), (n_failed, "failed"), (n_unset, need)];
    parts.extend(
        others.into_iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")),
    );
    format!("{BOLD}{}{PLAIN}", one_line(&parts.join(", "), columns))
}

/// Returns the line of a server, cut to the width of the terminal.
fn row(status: &ServerStatus, since: Option<Duration>, name_width: usize, columns: usize) -> String {
    let elapsed = since.map(|since| format!(" {}", seconds(since))).unwrap_or_default();
    let tools = plural(status.n_tools as u64, "tool");
    let transport = status.process_info.transport.map(|transport| format!("  {}", transport.as_str()));
    let transport = transport.unwrap_or_default();
    let most = columns.saturating_sub(name_width + 5);
    let (style, mark, detail) = match &status.state {
        ServerState::Idle if status.n_tools > 0 => (DIM, '·', format!("{tools}, starts with the first call")),
        ServerState::Idle => (DIM, '·', "starts with the first call".to_owned()),
        ServerState::Starting => (YELLOW, '◌', format!("starting{elapsed}")),
        ServerState::Ready => {
            let took = status.process_info.started_in.map(|took| {
                format!("  {}", format_millis(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)))
            });
            (GREEN, '✓', format!("{tools}{}{transport}", took.unwrap_or_default()))
        }
        ServerState::Restarting { attempt } => {
            (YELLOW, '↻', format!("restarting{elapsed}, attempt {attempt}"))
        }
        ServerState::NeedsLogin { .. } => (RED, '✗', "login required".to_owned()),
        state if needs(state).is_some() => {
            let needs = needs(state).unwrap_or_default();
            (YELLOW, '!', one_line(&format!("needs: {needs}"), most))
        }
        ServerState::Failed { .. } => (RED, '✗', one_line(&status.state.reason().unwrap_or_default(), most)),
        ServerState::Stopped => (DIM, '·', "stopped".to_owned()),
    };
    let name = one_line(&address(status), name_width);
    let detail: String = detail.chars().take(most).collect();
    format!("{style}{mark}{PLAIN} {name:<name_width$}  {}", detail.trim_end())
}

/// Returns the variables that a server needs, if that is all that is missing.
pub(super) fn needs(state: &ServerState) -> Option<String> {
    missing_variables(&state.reason()?).map(str::to_owned)
}

fn address(status: &ServerStatus) -> String {
    format!("{}/{}", status.toolbox, status.server)
}

#[cfg(test)]
mod tests {
    use pegboard::id::{ServerName, ToolboxName};
    use pegboard::provider::{ProcessInfo, ToolKind, TransportKind};

    use super::*;

    fn server(name: &str, state: ServerState, n_tools: usize) -> ServerStatus {
        ServerStatus {
            toolbox: ToolboxName::new("dev").unwrap(),
            server: ServerName::new(name).unwrap(),
            kind: ToolKind::Mcp,
            process_info: ProcessInfo {
                transport: Some(TransportKind::Stdio),
                started_in: (state == ServerState::Ready).then_some(Duration::from_millis(340)),
                ..ProcessInfo::default()
            },
            state,
            n_tools,
            is_stale: false,
            is_partial: false,
            warnings: Vec::new(),
        }
    }

    fn drawn(servers: &[ServerStatus], columns: usize, n_lines: usize) -> String {
        let lines = table(servers, |_| Some(Duration::from_secs(12)), columns, n_lines);
        for line in &lines {
            assert!(visible_width(line) <= columns, "{columns}: {line}");
        }
        anstream::adapter::strip_str(&lines.join("\n")).to_string()
    }

    #[test]
    fn the_table_shows_states_tools_and_times() {
        let servers = [
            server("github", ServerState::Ready, 21),
            server("clock", ServerState::Ready, 1),
            server("notes", ServerState::Idle, 3),
            server("jira", ServerState::Starting, 0),
            server("wiki", ServerState::Restarting { attempt: 2 }, 4),
            server("shop", ServerState::failed("it exited with 127:\n uvx: not found", "Install uv"), 0),
            server(
                "mail",
                ServerState::failed("MCP server 'mail' cannot be used: needs: MAIL_KEY", "export"),
                0,
            ),
        ];
        insta::assert_snapshot!(drawn(&servers, 80, 24), @"
        7 servers, 2 ready, 2 starting, 1 failed, 1 needs a variable
        ✓ dev/github  21 tools  340 ms  stdio
        ✓ dev/clock   1 tool  340 ms  stdio
        · dev/notes   3 tools, starts with the first call
        ◌ dev/jira    starting 12 s
        ↻ dev/wiki    restarting 12 s, attempt 2
        ✗ dev/shop    it exited with 127: uvx: not found
        ! dev/mail    needs: MAIL_KEY
        ");
        insta::assert_snapshot!(drawn(&servers, 30, 5), @"
        7 servers, 2 ready, 2 startin…
        ✗ dev/shop  it exited with 1…
        ! dev/mail  needs: MAIL_KEY
        ◌ dev/jira  starting 12 s
        … and 4 more
        ");
        assert_eq!(drawn(&servers, 80, 1), "");
        assert_eq!(drawn(&[], 80, 24), "");
    }
}
