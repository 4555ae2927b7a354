//! `pegboard status`: status of the running gateway.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pegboard::duration::HumanDuration;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::ls::server_mark;
use crate::api_client::{ApiClient, ApiPath, ServerView, view};
use crate::cli::format::{format_millis, json_millis, one_line, plural};
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, ExitReason, Globals, duration_with_unit, print};

/// Poll interval of `--wait`.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of warnings per server; `ls -l` has all.
const MAX_WARNINGS: usize = 3;

/// Arguments of `pegboard status`.
#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Wait until a gateway is running and its servers have started, up to this long
    #[arg(long, value_name = "DURATION", value_parser = duration_with_unit, num_args = 0..=1, default_missing_value = "30s")]
    wait: Option<HumanDuration>,
}

impl StatusArgs {
    /// Finds the gateway and prints its status.
    pub(crate) async fn run(&self, globals: &Globals) -> Result<ExitCode, CliError> {
        if globals.no_daemon {
            return Err(CliError::usage(
                "--no-daemon cannot be used with status: it shows a running gateway",
            ));
        }
        let Some(timeout) = self.wait.map(Duration::from) else {
            return print_status(globals, &fetch_status(globals).await?);
        };
        let (spinner, end) = (Spinner::new(globals, "Waiting for the gateway"), Instant::now() + timeout);
        let settled = async {
            loop {
                match fetch_status(globals).await {
                    Ok(found) if !is_starting(&found) => return Ok(found),
                    Ok(_) if Instant::now() >= end => {
                        return Err(timed_out("its servers were not ready", timeout));
                    }
                    Err(_) if Instant::now() >= end => {
                        return Err(timed_out("no gateway was running", timeout));
                    }
                    Ok(_) => spinner.set_message("Waiting for servers"),
                    Err(_) => {}
                }
                sleep(POLL_INTERVAL).await;
            }
        };
        print_status(globals, &spinner.during(settled).await?)
    }
}

fn timed_out(what: &str, timeout: Duration) -> CliError {
    let timeout = HumanDuration::from(timeout);
    CliError::new(ExitReason::TimedOut, "timeout", format!("after {timeout} {what}"))
}

/// Fetches the status of the gateway and its servers.
async fn fetch_status(globals: &Globals) -> Result<Value, CliError> {
    let api = ApiClient::running(globals).await?;
    let mut status = api.get(&ApiPath::new(&["status"])).await?;
    let servers = api.get(&ApiPath::new(&["servers"])).await?;
    if let Some(counts) = status["servers"].as_object_mut() {
        counts.insert("list".to_owned(), servers["servers"].clone());
    }
    Ok(status)
}

fn is_starting(found: &Value) -> bool {
    found["servers"]["starting"].as_u64().unwrap_or_default() > 0
}

fn print_status(globals: &Globals, found: &Value) -> Result<ExitCode, CliError> {
    let servers: Vec<ServerView> = view(&found["servers"], "list")?;
    print::document(globals.data_format(), found, || text(found, &servers));
    Ok(ExitCode::SUCCESS)
}

/// Lines about a server that does not run, runs several times or has a warning.
fn server_remarks(server: &ServerView) -> String {
    let is_running = server.state == "ready" || server.state == "idle";
    let n_further = server.further_instances.unwrap_or_default();
    if is_running && n_further == 0 && server.warnings.is_empty() {
        return String::new();
    }
    let (mark, address) = (server_mark(server), server.address());
    let why = match server.needs() {
        Some(needs) => format!("needs: {needs}"),
        None => server.error.clone().unwrap_or_else(|| server.state.clone()),
    };
    let why = one_line(&why, 200);
    let mut text = format!("  {mark} {address}  {why}");
    if n_further > 0 {
        let _ = write!(text, ", {}", plural(n_further, "further instance"));
    }
    text.push('\n');
    if let Some(hint) = &server.hint {
        let _ = writeln!(text, "    help: {}", one_line(hint, 200));
    }
    for warning in server.warnings.iter().take(MAX_WARNINGS) {
        let _ = writeln!(text, "    warning: {}", one_line(warning, 300));
    }
    text
}

fn text(found: &Value, servers: &[ServerView]) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let word = |value: &Value| one_line(value.as_str().unwrap_or_default(), 400);
    let mut text = format!(
        "pegboard {}  pid {}  up {}\n",
        word(&found["version"]),
        number(&found["pid"]),
        format_millis(json_millis(&found["uptimeMs"]))
    );
    text.push_str(&started_by(&found["startedBy"]));
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
        plural(number(&found["tools"]), "tool")
    );
    for server in servers {
        text.push_str(&server_remarks(server));
    }
    for change in found["pending"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "{:<8} {} ({}): {}",
            "waiting",
            word(&change["entry"]),
            word(&change["reason"]),
            word(&change["action"])
        );
    }
    if found["pending"].as_array().is_some_and(|changes| !changes.is_empty()) {
        let _ = writeln!(text, "         help: approve with pegboard reload");
    }
    let calls = &found["calls"];
    let _ = writeln!(
        text,
        "{:<8} {} in flight, {} suspended; {}",
        "calls",
        number(&calls["inFlight"]),
        number(&calls["suspended"]),
        plural(number(&found["callers"]), "client")
    );
    for client in found["clients"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "{}", client_line(client, found));
    }
    text
}

/// Line that says who started the gateway, and when it ends.
fn started_by(started: &Value) -> String {
    let word = |value: &Value| one_line(value.as_str().unwrap_or_default(), 200);
    let how = match started["mode"].as_str() {
        Some("foreground") => "in the foreground".to_owned(),
        Some("stdio") => "by a client, for itself".to_owned(),
        Some("background") => {
            let end = match started["idleTimeoutMs"].as_u64() {
                Some(millis) => {
                    let timeout = HumanDuration::from(Duration::from_millis(millis));
                    format!("ends {timeout} after its last client")
                }
                None => "ends with `pegboard stop`".to_owned(),
            };
            format!("in the background by {}; {end}", word(&started["client"]))
        }
        // That of another version.
        _ => return String::new(),
    };
    format!("{:<8} {how}\n", "started")
}

/// Line about a client over stdio.
fn client_line(client: &Value, gateway: &Value) -> String {
    let word = |value: &Value| one_line(value.as_str().unwrap_or_default(), 200);
    let mut line = format!("  {}", word(&client["program"]));
    if client["profile"].is_string() {
        let _ = write!(line, "  profile {}", word(&client["profile"]));
    }
    if client["version"] != gateway["version"] {
        let _ = write!(line, "  Pegboard {}", word(&client["version"]));
    }
    let names: Vec<String> =
        client["differingVariables"].as_array().into_iter().flatten().map(word).collect();
    if !names.is_empty() {
        let _ = write!(line, "  other values for {}", names.join(", "));
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn servers_that_do_not_run_or_run_several_times_are_shown() {
        let servers = json!([
            {"toolbox": "dev", "server": "github", "kind": "mcp", "state": "ready", "tools": 21},
            {"toolbox": "dev", "server": "jira", "kind": "mcp", "state": "failed", "tools": 0,
             "error": "uvx: not found", "hint": "install uv"},
            {"toolbox": "dev", "server": "forms", "kind": "mcp", "state": "ready", "tools": 2, "furtherInstances": 2,
             "warnings": ["clients have separate instances"]},
        ]);
        let found = json!({
            "version": "0.1.0", "pid": 4127, "uptimeMs": 185_000.4, "configuration": ["/home/me/pegboard.yaml"],
            "addresses": ["http://127.0.0.1:7332/mcp"], "calls": {"inFlight": 2, "suspended": 1}, "callers": 2,
            "startedBy": {"mode": "background", "client": "claude (pid 4100)", "idleTimeoutMs": 600_000},
            "clients": [
                {"program": "claude (pid 4100)", "version": "0.1.0", "differingVariables": []},
                {"program": "cursor (pid 4200)", "version": "0.2.0", "profile": "flat", "differingVariables": ["API_KEY"]},
            ],
            "servers": {"total": 2, "ready": 1, "starting": 0, "idle": 0, "failed": 1, "list": servers}, "tools": 21,
        });
        let servers: Vec<ServerView> = view(&found["servers"], "list").unwrap();
        let text = text(&found, &servers);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @"
        pegboard 0.1.0  pid 4127  up 3 min 5 s
        started  in the background by claude (pid 4100); ends 10m after its last client
        config   /home/me/pegboard.yaml
        MCP      http://127.0.0.1:7332/mcp
        servers  1 of 2 ready, 21 tools
          ✗ dev/jira  uvx: not found
            help: install uv
          ✓ dev/forms  ready, 2 further instances
            warning: clients have separate instances
        calls    2 in flight, 1 suspended; 2 clients
          claude (pid 4100)
          cursor (pid 4200)  profile flat  Pegboard 0.2.0  other values for API_KEY
        ");
    }
}
