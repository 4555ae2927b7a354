//! `pegboard restore`: a client's file as it was before we changed it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::clients::Client;
use pegboard::config::edit;
use serde_json::json;

use super::backups::{Backups, Original};
use super::client_file::{Scope, known};
use super::own_file::shown;
use crate::cli::{Exit, Failure, Format, Globals, print};

/// Whose.
#[derive(Args)]
pub(crate) struct Restore {
    /// The clients whose files are put back; without any, all that can be put back are listed
    #[arg(value_name = "CLIENT")]
    clients: Vec<String>,
    /// Put back all files of these clients, or of all clients
    #[arg(long, conflicts_with_all = ["user", "project"])]
    all: bool,
    /// Put it back even if somebody changed it since; what it says now is kept aside
    #[arg(long)]
    force: bool,
    /// Show what would change, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    scope: Scope,
}

impl Restore {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        if self.clients.is_empty() && !self.all {
            list(globals, &Backups::open(globals)?);
            return Ok(ExitCode::SUCCESS);
        }
        let mut backups = Backups::to_change(globals)?;
        let mut paths = Vec::new();
        for name in &self.clients {
            paths.extend(self.paths(known(name)?, &backups)?);
        }
        if self.clients.is_empty() {
            paths.extend(backups.notes().iter().map(|note| note.path.clone()));
        }
        paths.sort();
        paths.dedup();
        if paths.is_empty() {
            list(globals, &backups);
        }
        let mut failures = Vec::new();
        for path in &paths {
            // One that somebody changed keeps no other from coming back.
            failures.extend(self.restore(globals, &mut backups, path).err());
        }
        Failure::told_but_last(failures, globals)
    }

    /// The file of a client that was changed, or all of them.
    fn paths(&self, client: &Client, backups: &Backups) -> Result<Vec<PathBuf>, Failure> {
        let of_client = |path: &PathBuf| {
            backups.notes().iter().any(|note| note.path == *path && note.client == client.name())
        };
        let mut paths: Vec<PathBuf> = self.scope.paths(client)?.into_iter().filter(of_client).collect();
        // At home, the file of the folder is that of the user.
        paths.sort();
        paths.dedup();
        match paths.as_slice() {
            [] => Err(Failure::not_found(
                "no_backup",
                format!("no file of {} was changed from here", client.title()),
            )
            .hint("pegboard restore lists those that were")),
            [_, _, ..] if !self.all => {
                let names: Vec<String> = paths.iter().map(|path| shown(path)).collect();
                Err(Failure::usage(format!(
                    "several files of {} were changed: {}",
                    client.title(),
                    names.join(", ")
                ))
                .hint("say which: --user, --project or --all"))
            }
            _ => Ok(paths),
        }
    }

    fn restore(&self, globals: &Globals, backups: &mut Backups, path: &Path) -> Result<(), Failure> {
        let Some(original) = backups.original(path)? else { return Ok(()) };
        let present = match std::fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(Failure::system(format!("{} cannot be read: {error}", path.display()))),
        };
        let is_as_left = present.as_deref() == Some(original.left.as_str());
        if !is_as_left && !self.force && !self.dry_run {
            let failure =
                Failure::new(Exit::Usage, "file_changed", format!("{} was changed since", shown(path)));
            return Err(failure.detail("what was changed would be lost").hint(
                "look at it with --dry-run, and put it back with --force: what it says now is kept aside",
            ));
        }
        let (old, new) =
            (present.as_deref().unwrap_or_default(), original.text.as_deref().unwrap_or_default());
        let diff = self.dry_run.then(|| edit::diff(Path::new(&shown(path)), old, new));
        let aside = if self.dry_run { None } else { backups.restore(path, &original, present.as_deref())? };
        tell(globals, path, &original, &Told { diff, aside });
        Ok(())
    }
}

/// What came of it.
struct Told {
    diff: Option<String>,
    aside: Option<PathBuf>,
}

fn tell(globals: &Globals, path: &Path, original: &Original, told: &Told) {
    let document = json!({
        "file": path,
        "restored": told.diff.is_none(),
        "removed": original.text.is_none(),
        "aside": told.aside,
        "diff": told.diff,
    });
    print::document(globals.format_or(Format::Text), &document, || match (&told.diff, &original.text) {
        (Some(diff), _) => diff.clone(),
        (None, Some(_)) => format!("Restored {}", shown(path)),
        (None, None) => format!("Removed {}, which was not there before", shown(path)),
    });
    if let (Some(aside), false) = (&told.aside, globals.quiet) {
        pegboard::telemetry::tell(&format!("What it said is kept in {}", aside.display()));
    }
}

fn list(globals: &Globals, backups: &Backups) {
    let mut files: Vec<(&str, &Path)> = Vec::new();
    for note in backups.notes() {
        let file = (note.client.as_str(), note.path.as_path());
        if !files.contains(&file) {
            files.push(file);
        }
    }
    let document: Vec<_> =
        files.iter().map(|(client, path)| json!({"client": client, "file": path})).collect();
    print::document(globals.format_or(Format::Text), &document, || {
        if files.is_empty() {
            return "No file of a client was changed from here".to_owned();
        }
        let width = files.iter().map(|(client, _)| client.len()).max().unwrap_or_default();
        let lines: Vec<String> =
            files.iter().map(|(client, path)| format!("{client:<width$}  {}", shown(path))).collect();
        lines.join("\n")
    });
}
