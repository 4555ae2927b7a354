//! `pegboard status`: how the gateway is that runs.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pegboard::duration::HumanDuration;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::ls::mark;
use crate::cli::waiting::Waiting;
use crate::cli::words::{count, millis, one_line, took};
use crate::cli::{Exit, Failure, Globals, print};
use crate::desk::{Address, Desk, ServerView, view};

/// How often it is looked again.
const PACE: Duration = Duration::from_millis(100);

/// Whether it is waited for.
#[derive(Args)]
pub(crate) struct Status {
    /// Wait until a gateway runs and none of its servers is about to start, for so long at most
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "30s")]
    wait: Option<HumanDuration>,
}

impl Status {
    /// Looks for the gateway, and tells how it is.
    pub(crate) async fn run(&self, globals: &Globals) -> Result<ExitCode, Failure> {
        if globals.no_daemon {
            return Err(Failure::usage("--no-daemon asks no gateway that runs, and status tells of one"));
        }
        let Some(patience) = self.wait.map(Duration::from) else {
            return tell(globals, &look(globals).await?);
        };
        let (waiting, end) = (Waiting::new(globals, "Waiting for the gateway"), Instant::now() + patience);
        let settled = async {
            loop {
                match look(globals).await {
                    Ok(found) if !is_starting(&found) => return Ok(found),
                    Ok(_) if Instant::now() >= end => {
                        return Err(late("its servers are not ready yet", patience));
                    }
                    Err(_) if Instant::now() >= end => return Err(late("no gateway runs", patience)),
                    Ok(_) => waiting.say("Waiting for servers"),
                    Err(_) => {}
                }
                sleep(PACE).await;
            }
        };
        tell(globals, &waiting.during(settled).await?)
    }
}

fn late(what: &str, patience: Duration) -> Failure {
    let patience = HumanDuration::from(patience);
    Failure::new(Exit::TimedOut, "timeout", format!("after {patience} {what}"))
}

/// The gateway and its servers.
async fn look(globals: &Globals) -> Result<Value, Failure> {
    let desk = Desk::running(globals).await?;
    let mut status = desk.get(&Address::of(&["status"])).await?;
    let servers = desk.get(&Address::of(&["servers"])).await?;
    if let Some(counts) = status["servers"].as_object_mut() {
        counts.insert("list".to_owned(), servers["servers"].clone());
    }
    Ok(status)
}

fn is_starting(found: &Value) -> bool {
    found["servers"]["starting"].as_u64().unwrap_or_default() > 0
}

fn tell(globals: &Globals, found: &Value) -> Result<ExitCode, Failure> {
    let servers: Vec<ServerView> = view(&found["servers"], "list")?;
    print::document(globals.data_format(), found, || text(found, &servers));
    Ok(ExitCode::SUCCESS)
}

fn text(found: &Value, servers: &[ServerView]) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let word = |value: &Value| one_line(value.as_str().unwrap_or_default(), 400);
    let mut text = format!(
        "pegboard {}  pid {}  up {}\n",
        word(&found["version"]),
        number(&found["pid"]),
        took(millis(&found["uptimeMs"]))
    );
    for (title, key) in [("config", "configuration"), ("MCP", "addresses")] {
        for value in found[key].as_array().into_iter().flatten() {
            let _ = writeln!(text, "{title:<8} {}", word(value));
        }
    }
    let counts = &found["servers"];
    let _ = writeln!(
        text,
        "{:<8} {} of {} ready, {}",
        "servers",
        number(&counts["ready"]),
        number(&counts["total"]),
        count(number(&found["tools"]), "tool")
    );
    for server in servers.iter().filter(|server| server.state != "ready" && server.state != "idle") {
        let why = server.error.as_deref().unwrap_or(&server.state);
        let _ = writeln!(text, "  {} {}  {}", mark(&server.state), server.address(), one_line(why, 200));
        if let Some(hint) = &server.hint {
            let _ = writeln!(text, "    help: {}", one_line(hint, 200));
        }
    }
    let calls = &found["calls"];
    let _ = writeln!(
        text,
        "{:<8} {} under way, {} waiting for clients; {}",
        "calls",
        number(&calls["underWay"]),
        number(&calls["parked"]),
        count(number(&found["callers"]), "client")
    );
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_wrong_is_told_with_what_to_do() {
        let servers = json!([
            {"toolbox": "dev", "server": "github", "kind": "mcp", "state": "ready", "tools": 21},
            {"toolbox": "dev", "server": "jira", "kind": "mcp", "state": "failed", "tools": 0,
             "error": "uvx: not found", "hint": "install uv"},
        ]);
        let found = json!({
            "version": "0.1.0", "pid": 4127, "uptimeMs": 185_000.4, "configuration": ["/home/me/pegboard.yaml"],
            "addresses": ["http://127.0.0.1:7332/mcp"], "calls": {"underWay": 2, "parked": 1}, "callers": 1,
            "servers": {"total": 2, "ready": 1, "starting": 0, "idle": 0, "failed": 1, "list": servers}, "tools": 21,
        });
        let servers: Vec<ServerView> = view(&found["servers"], "list").unwrap();
        let text = text(&found, &servers);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @"
        pegboard 0.1.0  pid 4127  up 3 min 5 s
        config   /home/me/pegboard.yaml
        MCP      http://127.0.0.1:7332/mcp
        servers  1 of 2 ready, 21 tools
          ✗ dev/jira  uvx: not found
            help: install uv
        calls    2 under way, 1 waiting for clients; 1 client
        ");
    }
}
