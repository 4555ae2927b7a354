//! `pegboard restore`: restores clients' files that Pegboard changed.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::backups::{Backups, OriginalFile};
use pegboard::config::clients::KnownClient;
use pegboard::config::edit;
use serde_json::json;

use super::client_file::{ClientScope, backup_dir, open_backups, require_client};
use super::config_file::display_path;
use crate::cli::format::columns;
use crate::cli::{CliError, ExitReason, Globals, OutputFormat, format, print};

/// Arguments of `pegboard restore`.
#[derive(Args)]
pub(crate) struct RestoreArgs {
    /// Clients to restore the files of; without any, lists the files that can be restored
    #[arg(value_name = "CLIENT")]
    clients: Vec<String>,
    /// Restore all files of these clients, or of all clients
    #[arg(long, conflicts_with_all = ["user", "project"])]
    all: bool,
    /// Restore the whole file even if it was changed since; its current content is backed up
    #[arg(long)]
    force: bool,
    /// Show the changes without writing them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    scope: ClientScope,
}

impl RestoreArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        if self.clients.is_empty() && !self.all {
            list(globals, &Backups::open(&backup_dir(globals)?)?);
            return Ok(ExitCode::SUCCESS);
        }
        let mut backups = open_backups(globals)?;
        let mut paths = Vec::new();
        for name in &self.clients {
            paths.extend(self.paths(require_client(name)?, &backups)?);
        }
        if self.clients.is_empty() {
            paths.extend(backups.files().into_iter().map(|(_, path)| path.to_owned()));
        }
        paths.sort();
        paths.dedup();
        if paths.is_empty() {
            list(globals, &backups);
        }
        let mut failures = Vec::new();
        for path in &paths {
            // A file that was changed since does not keep others from being restored.
            failures.extend(self.restore(globals, &mut backups, path).err());
        }
        CliError::report_all(failures, globals)
    }

    /// Changed files of a client that match the selection.
    fn paths(&self, client: &KnownClient, backups: &Backups) -> Result<Vec<PathBuf>, CliError> {
        let changed = backups.files();
        let of_client = |path: &PathBuf| changed.contains(&(client.name(), path.as_path()));
        let mut paths: Vec<PathBuf> = self.scope.paths(client)?.into_iter().filter(of_client).collect();
        // In the home directory the project's file may be the user's.
        paths.sort();
        paths.dedup();
        match paths.as_slice() {
            [] => Err(CliError::not_found(
                "no_backup",
                format!("Pegboard has changed no file of {}", client.title()),
            )
            .hint("list changed files with pegboard restore")),
            [_, _, ..] if !self.all => {
                let names: Vec<String> = paths.iter().map(|path| display_path(path)).collect();
                Err(CliError::usage(format!(
                    "several files of {} were changed: {}",
                    client.title(),
                    names.join(", ")
                ))
                .hint("choose with --user, --project or --all"))
            }
            _ => Ok(paths),
        }
    }

    fn restore(&self, globals: &Globals, backups: &mut Backups, path: &Path) -> Result<(), CliError> {
        let Some(original) = backups.original(path)? else { return Ok(()) };
        let undone = if original.is_as_left() || self.force { None } else { original.undone(path) };
        if !original.is_as_left() && !self.force && !self.dry_run && undone.is_none() {
            let failure = CliError::new(
                ExitReason::Usage,
                "file_changed",
                format!("{} has changed since", display_path(path)),
            );
            return Err(failure
                .detail("what Pegboard wrote there is no longer as it was, so the changes would be lost")
                .hint("review with --dry-run, then use --force; the current content is backed up"));
        }
        let text = |content: &Option<String>| content.clone().unwrap_or_default();
        let place = display_path(path);
        let wanted = undone.clone().or_else(|| original.text.clone());
        let diff =
            self.dry_run.then(|| edit::diff(Path::new(&place), &text(&original.present), &text(&wanted)));
        let aside = if self.dry_run { None } else { backups.replace(path, &original, wanted.as_deref())? };
        print_result(globals, path, &original, &RestoreResult { diff, aside, is_partial: undone.is_some() });
        Ok(())
    }
}

/// Result of restoring a file.
struct RestoreResult {
    diff: Option<String>,
    aside: Option<PathBuf>,
    /// Set if later changes of the client are kept.
    is_partial: bool,
}

fn print_result(globals: &Globals, path: &Path, original: &OriginalFile, result: &RestoreResult) {
    let document = json!({
        "file": path,
        "restored": result.diff.is_none(),
        "removed": original.text.is_none() && !result.is_partial,
        "keptChanges": result.is_partial,
        "aside": result.aside,
        "diff": result.diff,
    });
    print::document(globals.format_or(OutputFormat::Text), &document, || {
        match (&result.diff, &original.text) {
            (Some(diff), _) => format::diff(diff),
            (None, _) if result.is_partial => {
                format!("Took Pegboard out of {}, and kept what has changed there since", display_path(path))
            }
            (None, Some(_)) => format!("Restored {}", display_path(path)),
            (None, None) => format!("Removed {}, which did not exist before", display_path(path)),
        }
    });
    if let (Some(aside), false) = (&result.aside, globals.quiet) {
        pegboard::telemetry::write_stderr(&format!("The previous content is in {}", aside.display()));
    }
}

fn list(globals: &Globals, backups: &Backups) {
    let files = backups.files();
    let document: Vec<_> =
        files.iter().map(|(client, path)| json!({"client": client, "file": path})).collect();
    print::document(globals.format_or(OutputFormat::Text), &document, || {
        if files.is_empty() {
            return "Pegboard has changed no files of clients".to_owned();
        }
        let row = |(client, path): &(&str, &Path)| vec![(*client).to_owned(), display_path(path)];
        columns(&files.iter().map(row).collect::<Vec<_>>())
    });
}
