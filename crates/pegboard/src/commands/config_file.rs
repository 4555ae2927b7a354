//! Edits of Pegboard's own configuration file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use pegboard::config::edit::{self, ConfigDocument, EditError, EditPath, WriteError};
use pegboard::config::{self, ConfigProblem, Configuration, ConfigurationError, Layers, Severity};
use pegboard::telemetry::write_stderr;
use serde_json::{Map, Value, json};

use crate::cli::{CliError, ExitReason, Globals, OutputFormat, print};
use crate::paths;

mod entries;

pub(crate) use entries::{ConfigEntry, EntrySection, config_entries, find_entry, unused_name};

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

/// Writes a change, or only shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteMode {
    /// Writes the file.
    Write,
    /// Shows the diff.
    DryRun,
}

impl EditTarget {
    pub(crate) fn write_mode(self) -> WriteMode {
        if self.dry_run { WriteMode::DryRun } else { WriteMode::Write }
    }
}

/// Pegboard's own configuration file.
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    pub(crate) document: ConfigDocument,
    /// Content on disk; `None` if the file does not exist.
    old: Option<String>,
    /// Problems that existed before the edit.
    known_problems: BTreeSet<String>,
    /// Dialect of the file.
    pub(crate) dialect: config::ConfigDialect,
}

/// Result of an edit.
#[derive(Debug)]
pub(crate) struct FileChange {
    pub(crate) path: PathBuf,
    /// Set if the content changed.
    pub(crate) has_effect: bool,
    /// Diff, in a dry run.
    pub(crate) diff: Option<String>,
    /// Entries that cannot be used yet, each with the reason.
    pub(crate) obstacles: Vec<(String, String)>,
}

impl FileChange {
    /// Prints the result: as a document that names the file, or as a line of text. `names` are the edited
    /// entries.
    pub(crate) fn report(
        &self,
        globals: &Globals,
        names: &[&str],
        mut document: Map<String, Value>,
        text: &str,
    ) {
        document.insert("file".to_owned(), json!(self.path));
        document.insert("changed".to_owned(), json!(self.has_effect && self.diff.is_none()));
        if let Some(diff) = &self.diff {
            document.insert("diff".to_owned(), json!(diff));
        }
        let of_these = |(name, _): &&(String, String)| names.contains(&name.as_str());
        let obstacles: Vec<&(String, String)> = self.obstacles.iter().filter(of_these).collect();
        if !obstacles.is_empty() {
            let needs = obstacles.iter().map(|(name, reason)| (name.clone(), json!(reason))).collect();
            document.insert("obstacles".to_owned(), Value::Object(needs));
        }
        let is_text = globals.format_or(OutputFormat::Text) == OutputFormat::Text;
        print::document(globals.format_or(OutputFormat::Text), &document, || match &self.diff {
            Some(diff) if diff.is_empty() => "No changes".to_owned(),
            Some(diff) => diff.clone(),
            None => text.to_owned(),
        });
        if is_text && !globals.quiet {
            for (name, reason) in obstacles {
                write_stderr(&format!("{name} is not usable yet: {reason}"));
            }
        }
    }
}

impl ConfigFile {
    /// Opens the file that commands edit; it may not exist yet.
    pub(crate) fn open(globals: &Globals, target: EditTarget) -> Result<Self, CliError> {
        Self::open_at(&target_path(globals, target)?)
    }

    /// Opens the file at a path; it may not exist yet.
    pub(crate) fn open_at(path: &Path) -> Result<Self, CliError> {
        let document = match ConfigDocument::read(path) {
            Ok(document) => document,
            Err(ConfigurationError::NotFound { .. }) => return Self::create(path, String::new()),
            Err(error) => return Err(error.into()),
        };
        let old = document.text();
        let configuration = match load_text(path, &old) {
            Ok(configuration) => configuration,
            // An empty file is valid.
            Err(ConfigurationError::Empty { .. }) => Configuration::default(),
            Err(error) => {
                return Err(CliError::from(error).detail("fix this first; the file was not changed"));
            }
        };
        let known_problems = configuration.problems.iter().map(problem_key).collect();
        let dialect =
            configuration.sources.first().map_or(config::ConfigDialect::Native, |source| source.dialect);
        Ok(Self { path: path.to_owned(), document, old: Some(old), known_problems, dialect })
    }

    /// Starts a new file with this text.
    pub(crate) fn create(path: &Path, text: String) -> Result<Self, CliError> {
        let document = ConfigDocument::new(path, text)?;
        let dialect = config::ConfigDialect::Native;
        Ok(Self { path: path.to_owned(), document, old: None, known_problems: BTreeSet::new(), dialect })
    }

    /// Returns `true` if the file does not exist yet.
    pub(crate) fn is_new(&self) -> bool {
        self.old.is_none()
    }

    /// Sets the content on disk that the new file replaces.
    pub(crate) fn replacing(self, old: Option<String>) -> Self {
        Self { old, ..self }
    }

    pub(crate) fn set(&mut self, path: &EditPath, value: &Value) -> Result<(), CliError> {
        self.document.set(path, value).map_err(edit_error)
    }

    pub(crate) fn append(&mut self, path: &EditPath, value: &Value) -> Result<(), CliError> {
        self.document.append(path, value).map_err(edit_error)
    }

    /// Replaces the whole text.
    pub(crate) fn replace_text(&mut self, text: String) -> Result<(), CliError> {
        self.document = ConfigDocument::new(&self.path, text)?;
        Ok(())
    }

    pub(crate) fn remove(&mut self, path: &EditPath) -> Result<Option<Value>, CliError> {
        self.document.remove(path).map_err(edit_error)
    }

    /// Resolves the toolbox for a new entry. The workbench dialect has no entries outside toolboxes.
    pub(crate) fn toolbox(&self, wanted: Option<&str>) -> Result<Option<String>, CliError> {
        let is_workbench = self.dialect == config::ConfigDialect::Workbench;
        if wanted.is_some() || !is_workbench {
            return Ok(wanted.filter(|toolbox| *toolbox != "default" || is_workbench).map(str::to_owned));
        }
        let toolboxes = self.document.value().get("toolboxes").and_then(Value::as_object);
        let names: Vec<&str> = toolboxes.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        match names.as_slice() {
            [only] => Ok(Some((*only).to_owned())),
            _ => Err(CliError::usage("the file has several toolboxes")
                .hint(format!("choose one with -b: {}", names.join(", ")))),
        }
    }

    /// Problems that the edit would introduce.
    pub(crate) fn new_problems(&self) -> Result<Vec<ConfigProblem>, CliError> {
        match load_text(&self.path, &self.document.text()) {
            Ok(configuration) => Ok(self.problems_of(&configuration)),
            Err(ConfigurationError::Empty { .. }) => Ok(Vec::new()),
            Err(ConfigurationError::Invalid { problems }) => Ok(problems),
            Err(error) => Err(unchanged(error.into(), &self.path)),
        }
    }

    /// Problems of single entries that are new and not merely unset variables.
    fn problems_of(&self, configuration: &Configuration) -> Vec<ConfigProblem> {
        let obstacles = obstacles(configuration);
        let unusable: BTreeSet<String> =
            obstacles.iter().flat_map(|obstacle| obstacle.problems.iter().map(problem_key)).collect();
        let is_new = |problem: &&ConfigProblem| {
            problem.severity == Severity::Error
                && !self.known_problems.contains(&problem_key(problem))
                && !unusable.contains(&problem_key(problem))
        };
        configuration.problems.iter().filter(is_new).cloned().collect()
    }

    /// Writes the file or shows the diff, provided that the result is a valid configuration.
    pub(crate) fn finish(self, write_mode: WriteMode) -> Result<FileChange, CliError> {
        let text = self.document.text();
        let configuration = match load_text(&self.path, &text) {
            Ok(configuration) => configuration,
            Err(ConfigurationError::Empty { .. }) => Configuration::default(),
            Err(ConfigurationError::Invalid { problems }) => {
                return Err(unchanged(CliError::from_problems(problems), &self.path));
            }
            Err(error) => return Err(unchanged(error.into(), &self.path)),
        };
        let problems = self.problems_of(&configuration);
        if !problems.is_empty() {
            return Err(unchanged(CliError::from_problems(problems), &self.path));
        }
        let obstacles = obstacles(&configuration);
        let has_effect = self.old.as_deref() != Some(text.as_str());
        let diff = match write_mode {
            WriteMode::DryRun => {
                let path = display_path(&self.path);
                Some(edit::diff(Path::new(&path), self.old.as_deref().unwrap_or_default(), &text))
            }
            WriteMode::Write if has_effect => {
                edit::write(&self.path, self.old.as_deref(), &text).map_err(|error| write_error(&error))?;
                None
            }
            WriteMode::Write => None,
        };
        let obstacles = obstacles.into_iter().map(|obstacle| (obstacle.name, obstacle.reason)).collect();
        Ok(FileChange { path: self.path, has_effect, diff, obstacles })
    }
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

/// Working directory.
pub(crate) fn working_dir() -> Result<PathBuf, CliError> {
    std::env::current_dir().map_err(|error| {
        CliError::system(format!("the working directory does not exist: {error}"))
            .hint("change to another directory")
    })
}

/// Loads a text as if it were in this file.
fn load_text(path: &Path, text: &str) -> Result<Configuration, ConfigurationError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    config::load_layers(&Layers::new(folder).text(path, text), &paths::env_var)
}

/// Entry that needs something from its environment before it can be used.
struct UnusableEntry {
    name: String,
    reason: String,
    problems: Vec<ConfigProblem>,
}

fn obstacles(configuration: &Configuration) -> Vec<UnusableEntry> {
    let mut obstacles = Vec::new();
    for toolbox in configuration.toolboxes.values() {
        for (name, server) in &toolbox.servers {
            if let config::ServerEntry::Unusable { needs, problems } = server
                && !needs.is_empty()
            {
                let reason = server.unusable_reason().unwrap_or_default();
                obstacles.push(UnusableEntry { name: name.to_string(), reason, problems: problems.clone() });
            }
        }
        for (name, tool) in &toolbox.rest_tools {
            if let config::RestEntry::Unusable { needs, problems } = tool
                && !needs.is_empty()
            {
                let reason = tool.unusable_reason().unwrap_or_default();
                obstacles.push(UnusableEntry { name: name.to_string(), reason, problems: problems.clone() });
            }
        }
    }
    for (name, provider) in &configuration.providers {
        if let config::ModelProviderEntry::Unusable { needs, problems } = provider
            && !needs.is_empty()
        {
            let reason = provider.unusable_reason().unwrap_or_default();
            obstacles.push(UnusableEntry { name: name.to_string(), reason, problems: problems.clone() });
        }
    }
    obstacles
}

/// Identifies a problem without its line, which shifts when something is added above.
fn problem_key(problem: &ConfigProblem) -> String {
    format!("{}: {}", problem.path, problem.message)
}

pub(crate) fn edit_error(error: EditError) -> CliError {
    match error {
        EditError::Unsafe(problem) => CliError::from_problems(vec![*problem]),
    }
}

pub(crate) fn write_error(error: &WriteError) -> CliError {
    CliError::new(ExitReason::Failed, "system", error.to_string())
}

fn unchanged(failure: CliError, path: &Path) -> CliError {
    failure.detail(format!("{} was not changed", path.display()))
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
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|error| CliError::system(format!("{}: {error}", path.display())))
    };
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
