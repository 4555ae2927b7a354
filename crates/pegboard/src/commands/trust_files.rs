//! `pegboard trust` and `pegboard untrust`: consent to what the configuration files of a project start.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::trust::{FileAction, TrustStore, TrustedFile};
use pegboard::config::{self, ConfigurationError};
use pegboard::telemetry::write_stderr;
use serde_json::{Value, json};

use super::config_file::display_path;
use crate::api_client::{ApiClient, ApiPath};
use crate::cli::format::columns;
use crate::cli::{CliError, Globals, OutputFormat, print};
use crate::paths::{self, ConfigSelection, working_dir};
use crate::trust::{by_file, table};

/// Arguments of `pegboard trust`.
#[derive(Args)]
pub(crate) struct TrustArgs {
    /// Files to trust, or the directories or clients that they belong to; the project's configuration file by
    /// default
    #[arg(value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// List the trusted files
    #[arg(long, conflicts_with = "sources")]
    list: bool,
}

/// Arguments of `pegboard untrust`.
#[derive(Args)]
pub(crate) struct UntrustArgs {
    /// Files to stop trusting; the project's configuration file by default
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Stop trusting all files
    #[arg(long, conflicts_with = "files")]
    all: bool,
}

impl TrustArgs {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let selection = ConfigSelection::without_probing(globals)?;
        if self.list {
            print_list(globals, selection.gate().store()?.files());
            return Ok(ExitCode::SUCCESS);
        }
        let actions = selection.project_actions(&self.sources)?;
        TrustStore::trust(&state_dir(globals)?, Some(paths::file_owner()), &actions)?;
        let actions: Vec<&FileAction> = actions.iter().collect();
        let files = by_file(&actions);
        let document: Vec<Value> = files.iter().map(|(file, actions)| document(file, actions)).collect();
        let text = || match files.as_slice() {
            [] => "Nothing to trust: no file of this project starts a program or sends a request".to_owned(),
            files => {
                let text = |(file, actions): &(&Path, Vec<&FileAction>)| {
                    format!("Trusted {}\n{}", display_path(file), table(actions))
                };
                files.iter().map(text).collect::<Vec<_>>().join("\n")
            }
        };
        print::document(globals.format_or(OutputFormat::Text), &json!({"files": document}), text);
        if has_waiting_gateway(globals).await && !globals.quiet {
            write_stderr("The running gateway still waits: run pegboard reload");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns `true` if a running gateway of this configuration has changes that wait for approval.
async fn has_waiting_gateway(globals: &Globals) -> bool {
    let Ok(api) = ApiClient::running(globals).await else { return false };
    let status = api.get(&ApiPath::new(&["status"])).await.unwrap_or_default();
    status["pending"].as_array().is_some_and(|pending| !pending.is_empty())
}

impl UntrustArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let state = state_dir(globals)?;
        let files = if self.all {
            let store = ConfigSelection::without_probing(globals)?.gate().store()?;
            store.files().iter().map(|file| file.path.clone()).collect()
        } else if self.files.is_empty() {
            vec![project_file()?]
        } else {
            self.files
        };
        let revoked = TrustStore::revoke(&state, Some(paths::file_owner()), &files)?;
        if revoked.is_empty() && !self.all {
            let names: Vec<String> = files.iter().map(|file| display_path(file)).collect();
            let failure = CliError::not_found("not_found", format!("{} is not trusted", names.join(", ")));
            return Err(failure.hint("list the trusted files with pegboard trust --list"));
        }
        print::document(globals.format_or(OutputFormat::Text), &json!({"files": revoked}), || {
            let lines = revoked.iter().map(|file| format!("No longer trusted: {}", display_path(file)));
            let lines: Vec<String> = lines.collect();
            if lines.is_empty() { "No files were trusted".to_owned() } else { lines.join("\n") }
        });
        Ok(ExitCode::SUCCESS)
    }
}

fn state_dir(globals: &Globals) -> Result<PathBuf, CliError> {
    paths::state_dir(globals.state.as_deref())
        .ok_or_else(|| CliError::system("no state directory for trusted files").hint("set one with --state"))
}

/// Returns the configuration file of the project.
fn project_file() -> Result<PathBuf, ConfigurationError> {
    let folder = working_dir().unwrap_or_default();
    config::find(&folder, &paths::env_var)
}

fn document(file: &Path, actions: &[&FileAction]) -> Value {
    let actions = actions
        .iter()
        .map(|action| json!({"name": action.target.to_string(), "action": action.as_written}))
        .collect::<Vec<_>>();
    json!({"path": file, "actions": actions})
}

fn print_list(globals: &Globals, files: &[TrustedFile]) {
    let names = |file: &TrustedFile| -> Vec<String> {
        file.actions.iter().map(|action| action.name.clone()).collect()
    };
    let document: Vec<Value> = files
        .iter()
        .map(|file| json!({"path": file.path, "exists": file.path.exists(), "names": names(file)}))
        .collect();
    print::document(globals.format_or(OutputFormat::Text), &json!({"files": document}), || {
        let row = |file: &TrustedFile| {
            let state = if file.path.exists() { "" } else { "missing" };
            vec![file.path.display().to_string(), names(file).join(", "), state.to_owned()]
        };
        match files {
            [] => "No trusted files".to_owned(),
            files => columns(&files.iter().map(row).collect::<Vec<_>>()).trim_end().to_owned(),
        }
    });
}
