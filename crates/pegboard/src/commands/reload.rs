//! `pegboard reload`: reloads the configuration of the running gateway, and shows and approves what waits.

use std::process::ExitCode;

use clap::Args;
use pegboard::json::RawJson;
use serde_json::{Value, json};

use crate::api_client::{ApiClient, ApiPath};
use crate::cli::format::one_line;
use crate::cli::prompt::terminal::Terminal;
use crate::cli::prompt::{Echo, Prompter};
use crate::cli::{CliError, ExitReason, Globals, print};

/// Arguments of `pegboard reload`.
#[derive(Args)]
pub(crate) struct ReloadArgs {
    /// Approve new and changed programs without asking
    #[arg(long, short = 'y')]
    yes: bool,
}

impl ReloadArgs {
    /// Asks the gateway to reload. Approves exactly the changes that were shown.
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        let mut done = reload(api, &json!({})).await?;
        if has_pending(&done) {
            self.confirm(globals, &done)?;
            let before = done;
            done = reload(api, &json!({"approve": before["digest"]})).await?;
            if has_pending(&done) {
                let message = "nothing was approved: the files have changed since the changes were shown";
                return Err(not_approved(message, &lines("Waiting", &done["pending"])));
            }
            // What changed with the first request was applied, too.
            if before["changes"] != "no changes" && done["changes"] == "no changes" {
                done["changes"] = before["changes"].clone();
            }
        }
        print::document(globals.data_format(), &done, || text(&done));
        Ok(ExitCode::SUCCESS)
    }

    /// Shows the changes that wait and asks for consent, unless it was given on the command line.
    fn confirm(&self, globals: &Globals, done: &Value) -> Result<(), CliError> {
        if self.yes {
            return Ok(());
        }
        let Some(mut terminal) = Terminal::detect().filter(|_| !globals.no_input) else {
            return Err(not_approved("the changes need your approval", &lines("Waiting", &done["pending"])));
        };
        for line in lines("Waiting", &in_full(done)) {
            print::unredacted_line(&line);
        }
        let answer = terminal.read_line("Approve? [y/N] ", Echo::Shown).unwrap_or_default();
        if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            return Ok(());
        }
        Err(not_approved("the changes were not approved", &[]))
    }
}

async fn reload(api: &ApiClient, body: &Value) -> Result<Value, CliError> {
    api.post(&ApiPath::new(&["reload"]), &RawJson::of(body)).await
}

fn not_approved(message: &str, waiting: &[String]) -> CliError {
    let failure = CliError::new(ExitReason::Configuration, "not_approved", message.to_owned());
    let failure = waiting.iter().cloned().fold(failure, CliError::detail);
    failure.hint("review them, then run pegboard reload --yes; everything else was reloaded")
}

fn text(done: &Value) -> String {
    let changes = one_line(done["changes"].as_str().unwrap_or_default(), usize::MAX);
    let mut all = vec![format!("Reloaded  {changes}")];
    all.extend(lines("Approved", &done["approved"]));
    all.join("\n")
}

fn has_pending(done: &Value) -> bool {
    done["pending"].as_array().is_some_and(|pending| !pending.is_empty())
}

/// Returns the changes that wait as their files have them.
fn in_full(done: &Value) -> Value {
    let mut pending = done["pending"].clone();
    let actions = done["asWritten"].as_array().into_iter().flatten();
    for (change, action) in pending.as_array_mut().into_iter().flatten().zip(actions) {
        change["action"] = action.clone();
    }
    pending
}

/// Renders changes, one in each line.
fn lines(verb: &str, changes: &Value) -> Vec<String> {
    let word = |value: &Value| one_line(value.as_str().unwrap_or_default(), usize::MAX);
    let line = |change: &Value| {
        let [entry, reason, action] = ["entry", "reason", "action"].map(|key| word(&change[key]));
        format!("{verb}  {entry} ({reason}): {action}")
    };
    changes.as_array().into_iter().flatten().map(line).collect()
}
