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
        let approval = if self.yes { Approval::Given } else { Approval::Ask };
        let mut done = reload(api, &json!({})).await?;
        if let Some(approved) = approval.of(&done, globals, api, "reload").await? {
            let before = std::mem::replace(&mut done, approved);
            // What changed with the first request was applied, too.
            if before["changes"] != "no changes" && done["changes"] == "no changes" {
                done["changes"] = before["changes"].clone();
            }
        }
        print::document(globals.data_format(), &done, || text(&done));
        Ok(ExitCode::SUCCESS)
    }
}

/// Approval of the changes that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approval {
    /// The user is asked, if there is a terminal.
    Ask,
    /// It was given on the command line.
    Given,
}

impl Approval {
    /// Reloads, and gets approval for what waits: exactly for the changes that are shown. `command` is the one that needs
    /// it. A configuration that cannot be loaded is left to the request that follows.
    pub(super) async fn of_waiting(
        self,
        globals: &Globals,
        api: &ApiClient,
        command: &str,
    ) -> Result<(), CliError> {
        match reload(api, &json!({})).await {
            Ok(done) => self.of(&done, globals, api, command).await.map(|_| ()),
            Err(_) => Ok(()),
        }
    }

    /// Gets approval for the changes that wait after a reload. Returns the outcome of applying them, if there are any.
    async fn of(
        self,
        before: &Value,
        globals: &Globals,
        api: &ApiClient,
        command: &str,
    ) -> Result<Option<Value>, CliError> {
        let waiting = lines("Waiting", &before["pending"]);
        if waiting.is_empty() {
            return Ok(None);
        }
        self.confirm(globals, &waiting, command)?;
        let done = reload(api, &json!({"approve": before["digest"]})).await?;
        let waiting = lines("Waiting", &done["pending"]);
        if !waiting.is_empty() {
            let message = "nothing was approved: the files have changed since the changes were shown";
            return Err(not_approved(message, &waiting, command));
        }
        Ok(Some(done))
    }

    /// Shows the changes and asks for consent, unless it was given on the command line.
    fn confirm(self, globals: &Globals, waiting: &[String], command: &str) -> Result<(), CliError> {
        if self == Self::Given {
            return Ok(());
        }
        let Some(mut terminal) = Terminal::detect().filter(|_| !globals.no_input) else {
            return Err(not_approved("the changes need your approval", waiting, command));
        };
        for line in waiting {
            terminal.print(line);
        }
        let answer = terminal.read_line("Approve? [y/N] ", Echo::Shown).unwrap_or_default();
        if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            return Ok(());
        }
        Err(not_approved("the changes were not approved", &[], command))
    }
}

async fn reload(api: &ApiClient, body: &Value) -> Result<Value, CliError> {
    api.post(&ApiPath::new(&["reload"]), &RawJson::of(body)).await
}

fn not_approved(message: &str, waiting: &[String], command: &str) -> CliError {
    let failure = CliError::new(ExitReason::Configuration, "not_approved", message.to_owned());
    let failure = waiting.iter().cloned().fold(failure, CliError::detail);
    failure.hint(format!("review them, then run pegboard {command} --yes; everything else was reloaded"))
}

fn text(done: &Value) -> String {
    let changes = one_line(done["changes"].as_str().unwrap_or_default(), usize::MAX);
    let mut all = vec![format!("Reloaded  {changes}")];
    all.extend(lines("Approved", &done["approved"]));
    all.join("\n")
}

/// Renders changes in full, one in each line.
fn lines(verb: &str, changes: &Value) -> Vec<String> {
    let word = |value: &Value| one_line(value.as_str().unwrap_or_default(), usize::MAX);
    let line = |change: &Value| {
        let [entry, reason, action] = ["entry", "reason", "action"].map(|key| word(&change[key]));
        format!("{verb}  {entry} ({reason}): {action}")
    };
    changes.as_array().into_iter().flatten().map(line).collect()
}
