//! Edits of Pegboard's own configuration file.

use std::path::{Path, PathBuf};

use clap::Args;
use pegboard::config::edit::FileChange;
use pegboard::config::trust::FileAction;
use pegboard::config::{self, ConfigFile, ConfigurationError, UnusableEntry};
use pegboard::telemetry::write_stderr;
use serde_json::{Map, Value, json};

use crate::cli::{CliError, Globals, OutputFormat, format, print};
use crate::paths::{self, absolute, working_dir};
use crate::trust::TrustGate;

mod entries;

use entries::find_entry;
pub(crate) use entries::{ConfigEntry, config_entries};

/// Selects the file to edit.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct EditTarget {
    /// Edit the user's configuration file instead of the project's
    #[arg(long)]
    pub(crate) user: bool,
    /// Show the changes without writing them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Result of an edit: written, or only shown in a dry run.
pub(crate) struct EditedFile {
    pub(crate) change: FileChange,
    /// Diff, in a dry run.
    pub(crate) diff: Option<String>,
    /// Entries that cannot be used yet.
    obstacles: Vec<(String, UnusableEntry)>,
}

impl EditTarget {
    /// Opens the file that commands edit; it may not exist yet.
    pub(crate) fn open(self, globals: &Globals) -> Result<ConfigFile<'static>, CliError> {
        Ok(ConfigFile::open(&target_path(globals, self)?, &paths::env_var)?)
    }

    /// Selects the user's file if these entries are there and not in the project's file.
    pub(crate) fn of_entries(self, globals: &Globals, names: &[String]) -> Self {
        let users = Self { user: true, ..self };
        let has_all = |target: Self| {
            target.open(globals).is_ok_and(|file| {
                let entries = config_entries(file.document.value());
                names
                    .iter()
                    .all(|name| !matches!(find_entry(&entries, name), Err(failure) if failure.is_not_found()))
            })
        };
        if self.is_project(globals) && !has_all(self) && has_all(users) { users } else { self }
    }

    /// Finds an entry of the file. An unknown name gets suggestions from the user's file, too.
    pub(crate) fn find_entry<'a>(
        self,
        globals: &Globals,
        file: &ConfigFile<'_>,
        name: &'a str,
    ) -> Result<(ConfigEntry, Option<&'a str>), CliError> {
        let mut entries = config_entries(file.document.value());
        let found = find_entry(&entries, name);
        let users = Self { user: true, ..self };
        match (&found, users.open(globals)) {
            (Err(failure), Ok(users)) if failure.is_not_found() && self.is_project(globals) => {
                entries.extend(config_entries(users.document.value()));
            }
            (Ok(_) | Err(_), _) => return found,
        }
        match find_entry(&entries, name) {
            Err(of_both) if of_both.is_not_found() => Err(of_both),
            Ok(_) | Err(_) => found,
        }
    }

    /// Checks an edit, and writes and trusts it unless this is a dry run.
    pub(crate) fn finish(self, globals: &Globals, file: &ConfigFile<'_>) -> Result<EditedFile, CliError> {
        let edited = self.check(file)?;
        if edited.diff.is_none() {
            edited.write(globals, |_| false)?;
        }
        Ok(edited)
    }

    /// Returns `true` if the file was found in a project, and may come from someone else.
    pub(crate) fn is_project(self, globals: &Globals) -> bool {
        !self.user && globals.config.is_empty()
    }

    /// Checks an edit.
    pub(crate) fn check(self, file: &ConfigFile<'_>) -> Result<EditedFile, CliError> {
        let obstacles = file.check()?;
        let change = file.change();
        let diff = self.dry_run.then(|| change.diff(&display_path(&change.path)));
        Ok(EditedFile { change, diff, obstacles })
    }
}

impl EditedFile {
    /// Writes the file and trusts the new entries, except for those that `is_foreign` names.
    pub(crate) fn write(
        &self,
        globals: &Globals,
        is_foreign: impl Fn(&FileAction) -> bool,
    ) -> Result<(), CliError> {
        if self.change.write_guarded()? {
            warn_about_keys(&self.change);
        }
        TrustGate::from_globals(globals).trust_edit(&self.change, is_foreign);
        Ok(())
    }

    /// Path of the file for display.
    pub(crate) fn place(&self) -> String {
        display_path(&self.change.path)
    }

    /// Returns `true` if the file was written.
    pub(crate) fn is_written(&self) -> bool {
        self.diff.is_none() && self.change.has_effect()
    }

    /// Prints the result: as a document that names the file, or as a line of text. `names` are the edited
    /// entries.
    pub(crate) fn report(
        &self,
        globals: &Globals,
        names: &[&str],
        mut document: Map<String, Value>,
        text: &str,
    ) {
        document.insert("file".to_owned(), json!(self.change.path));
        document.insert("changed".to_owned(), json!(self.is_written()));
        if let Some(diff) = &self.diff {
            document.insert("diff".to_owned(), json!(diff));
        }
        let of_these = |(name, _): &&(String, UnusableEntry)| names.contains(&name.as_str());
        let obstacles: Vec<&(String, UnusableEntry)> = self.obstacles.iter().filter(of_these).collect();
        if !obstacles.is_empty() {
            let needs = obstacles.iter().map(|(name, entry)| (name.clone(), json!(entry.reason()))).collect();
            document.insert("obstacles".to_owned(), Value::Object(needs));
        }
        let is_text = globals.format_or(OutputFormat::Text) == OutputFormat::Text;
        print::document(globals.format_or(OutputFormat::Text), &document, || match &self.diff {
            Some(diff) if diff.is_empty() => "No changes".to_owned(),
            Some(diff) => format::diff(diff),
            None => text.to_owned(),
        });
        if is_text && !globals.quiet {
            for (name, entry) in obstacles {
                write_stderr(&format!(
                    "{name} is not usable yet: {}\n  help: {}",
                    entry.reason(),
                    entry.fix()
                ));
            }
        }
    }
}

/// Reports that a file with new keys was made private.
pub(crate) fn warn_about_keys(change: &FileChange) {
    let (place, keys) = (display_path(&change.path), change.added_keys().join(", "));
    write_stderr(&format!(
        "{place} was readable by other users; it now contains keys ({keys}), and only you can read it"
    ));
}

/// Path of the file that commands edit.
fn target_path(globals: &Globals, target: EditTarget) -> Result<PathBuf, CliError> {
    if target.user {
        return user_config_path();
    }
    match globals.config.as_slice() {
        [] => {}
        [only] => return editable_path(only),
        _ => {
            return Err(CliError::usage("cannot edit several files").hint("pass --config FILE only once"));
        }
    }
    let folder = working_dir()?;
    match config::find(&folder, &paths::env_var) {
        Ok(path) => Ok(path),
        Err(ConfigurationError::NoConfiguration { folder }) => Ok(folder.join("pegboard.yaml")),
        Err(error) => Err(error.into()),
    }
}

/// Returns `true` if the path is that of the user's configuration file.
pub(crate) fn is_users_file(path: &Path) -> bool {
    user_config_path().is_ok_and(|user| same_place(&user, path))
}

/// Returns `true` if two paths are in the same place, whether or not there is a file.
fn same_place(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| {
        let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
        folder.map(|folder| folder.join(path.file_name().unwrap_or_default()))
    };
    one == other || same_file(one, other) || real(one).is_some_and(|one| real(other) == Some(one))
}

/// Returns `true` if two paths lead to the same file.
pub(crate) fn same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Describes the use of a configuration file: for a directory, or for all.
pub(crate) fn purpose(path: &Path) -> &'static str {
    if is_users_file(path) {
        "your configuration for every folder"
    } else {
        "for this folder; --user is for every folder"
    }
}

/// Checks that a path names a file, existing or not. Other sources cannot be edited.
pub(crate) fn editable_path(path: &Path) -> Result<PathBuf, CliError> {
    let is_other = !path.exists()
        && (path.to_str().is_some_and(|text| text.contains("://"))
            || matches!(paths::source_spec(path, &working_dir()?), Ok(config::SourceSpec::Client { .. })));
    if is_other {
        let failure = CliError::usage(format!("{} is not a file; only files can be edited", path.display()));
        return Err(failure.hint("pass a file, such as pegboard.yaml"));
    }
    Ok(path.to_owned())
}

/// Path of the user's configuration file, existing or not.
pub(crate) fn user_config_path() -> Result<PathBuf, CliError> {
    let default_path = || Some(config::user_folder(&paths::env_var)?.join("pegboard.yaml"));
    config::find_user(&paths::env_var).or_else(default_path).ok_or_else(|| {
        CliError::system("no user configuration directory").hint("set HOME, or pass a file: --config FILE")
    })
}

/// Path for display: relative to the working directory, if inside it.
pub(crate) fn display_path(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).unwrap_or(path).display().to_string()
}

/// Converts a path typed in the working directory to one relative to the configuration file. URLs stay as
/// they are.
pub(crate) fn relative_to_file(file: &Path, written: &str) -> Result<String, CliError> {
    if written.contains("://") {
        return Ok(written.to_owned());
    }
    let (file, path) = (absolute(file)?, absolute(Path::new(written))?);
    let folder = file.parent().unwrap_or(Path::new(""));
    let named = path.strip_prefix(folder).unwrap_or(&path);
    // Forward slashes work on every platform.
    Ok(if cfg!(windows) {
        named.display().to_string().replace('\\', "/")
    } else {
        named.display().to_string()
    })
}
