//! `pegboard sessions`: sessions and their calls.

use std::fmt::Write;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use pegboard::owner::LOCAL_PRINCIPAL;
use serde_json::Value;

use super::trace::drawing::{TraceDrawing, TraceLayout};
use crate::api_client::{ApiClient, ApiPath};
use crate::cli::format::{DIM, PLAIN, ago, columns, now_millis, one_line, plural};
use crate::cli::{CliError, Globals, print};

/// Default number of sessions listed.
const N_LISTED: u16 = 50;
/// Number of characters shown of an id; enough to identify it.
const ID_CHARACTERS: usize = 8;

/// Arguments of `pegboard sessions`.
#[derive(Args)]
pub(crate) struct SessionsArgs {
    #[command(subcommand)]
    command: Option<SessionsCommand>,
}

#[derive(Subcommand)]
enum SessionsCommand {
    /// List sessions, most recently used first
    Ls {
        /// Maximum number of sessions
        #[arg(long, value_name = "NUMBER", default_value_t = N_LISTED, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        limit: u16,
    },
    /// Show everything done in a session
    Show {
        /// Prefix of the session id; the most recently used by default
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        id: Option<String>,
    },
}

impl SessionsArgs {
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        match &self.command {
            None => list(globals, api, N_LISTED).await,
            Some(SessionsCommand::Ls { limit }) => list(globals, api, *limit).await,
            Some(SessionsCommand::Show { id }) => {
                let id = match id {
                    Some(id) => id.clone(),
                    None => newest(api).await?,
                };
                let response = api.get(&ApiPath::new(&["sessions", &id])).await?;
                let session = &response["session"];
                print::document(globals.data_format(), session, || text(session, now_millis()));
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

async fn list(globals: &Globals, api: &ApiClient, limit: u16) -> Result<ExitCode, CliError> {
    let response = api.get(&ApiPath::new(&["sessions"]).with("limit", &limit)).await?;
    print::listing(
        globals,
        &response,
        "sessions",
        |sessions| rows(sessions, now_millis()),
        "No sessions yet",
    );
    Ok(ExitCode::SUCCESS)
}

async fn newest(api: &ApiClient) -> Result<String, CliError> {
    let response = api.get(&ApiPath::new(&["sessions"]).with("limit", &1)).await?;
    let id = response["sessions"][0]["id"].as_str().map(str::to_owned);
    id.ok_or_else(|| CliError::not_found("not_found", "no sessions yet"))
}

fn rows(sessions: &Value, now: u64) -> String {
    let rows = sessions.as_array().into_iter().flatten().map(|session| {
        let number = |name: &str| session[name].as_u64().unwrap_or_default();
        let failed =
            if number("failed") > 0 { format!(", {} failed", number("failed")) } else { String::new() };
        vec![
            short(session["id"].as_str().unwrap_or_default()),
            if session["live"] == true { "live".to_owned() } else { String::new() },
            ago(now, number("usedAt")),
            format!("{}{failed}{}", plural(number("calls"), "call"), in_flight(session)),
            name(session),
        ]
    });
    columns(&rows.collect::<Vec<_>>())
}

fn in_flight(session: &Value) -> String {
    match session["inFlight"].as_u64() {
        None | Some(0) => String::new(),
        Some(n_calls) => format!(", {n_calls} in flight"),
    }
}

/// Names of a session, as far as known. The local principal needs no mention.
fn name(session: &Value) -> String {
    let words = ["name", "title", "client", "principal", "workspace"];
    let is_local = |name: &str| name == "principal" && session[name] == LOCAL_PRINCIPAL;
    let words = words.iter().filter(|name| !is_local(name)).filter_map(|name| session[*name].as_str());
    let words = words.filter(|word| !word.is_empty());
    words.map(|word| one_line(word, 60)).collect::<Vec<_>>().join("  ")
}

/// Shortened session id.
pub(super) fn short(id: &str) -> String {
    id.strip_prefix("session-").unwrap_or(id).chars().take(ID_CHARACTERS).collect()
}

fn text(session: &Value, now: u64) -> String {
    let number = |name: &str| session[name].as_u64().unwrap_or_default();
    let mut text = format!(
        "{}  {DIM}began {}, used {}{PLAIN}  {}\n",
        session["id"].as_str().unwrap_or_default(),
        ago(now, number("startedAt")),
        ago(now, number("usedAt")),
        name(session)
    );
    text.truncate(text.trim_end().len());
    text.push('\n');
    text.push_str(&TraceDrawing::of_session(&session["tree"]).text(TraceLayout::Tree));
    text.push_str(&records(&session["records"], now));
    text.push_str(&usage(&session["accounting"]));
    text
}

/// Totals of tool usage, if recorded.
fn usage(accounting: &Value) -> String {
    let entries: Vec<&Value> = accounting.as_array().into_iter().flatten().collect();
    let sum = |name: &str| entries.iter().filter_map(|entry| entry[name].as_u64()).sum::<u64>();
    if entries.is_empty() {
        return String::new();
    }
    let tools = plural(entries.len() as u64, "tool");
    format!("{DIM}{tools} used, {} characters in, {} out{PLAIN}\n", sum("charactersIn"), sum("charactersOut"))
}

/// Renders the log records of a session.
pub(super) fn records(records: &Value, now: u64) -> String {
    let mut text = String::new();
    for record in records.as_array().into_iter().flatten() {
        let kind = record["kind"].as_str().or(record["type"].as_str()).unwrap_or_default();
        let content = one_line(record["content"].as_str().unwrap_or_default(), 100);
        let _ = writeln!(
            text,
            "{DIM}{}{PLAIN}  {kind}  {content}",
            ago(now, record["timestamp"].as_u64().unwrap_or_default())
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sessions_are_rendered_with_their_operations() {
        let sessions = json!([
            {"id": "session-0f2c7a6e-1111", "principal": "ada", "startedAt": 0, "usedAt": 950_000, "calls": 3, "failed": 1, "live": true, "inFlight": 2},
            {"id": "notes-1", "name": "notes", "startedAt": 0, "usedAt": 10_000, "calls": 1, "failed": 0, "live": false},
        ]);
        insta::assert_snapshot!(rows(&sessions, 1_000_000), @"
        0f2c7a6e  live  50 s ago    3 calls, 1 failed, 2 in flight  ada
        notes-1         16 min ago  1 call                          notes
        ");
        let mut session = sessions[0].clone();
        let operation = json!({"kind": "tool", "name": "add", "server": "notes", "status": "ok", "startedAt": 1, "latencyMs": 2});
        session["tree"] = json!({"turns": [{"ops": [operation]}]});
        session["records"] = json!([{"kind": "tool", "content": "added", "timestamp": 990_000}]);
        session["accounting"] = json!([{"charactersIn": 16, "charactersOut": 120}, {"charactersIn": 4}]);
        let text = text(&session, 1_000_000);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @"
        session-0f2c7a6e-1111  began 16 min ago, used 50 s ago  ada
        ✓ add  notes  2 ms
        10 s ago  tool  added
        2 tools used, 20 characters in, 120 out
        ");
    }
}
