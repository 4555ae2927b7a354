//! Edits of Pegboard's own configuration file. Every edit is checked before it is written.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::Environment;
use crate::configuration::{Configuration, UnusableEntry};
use crate::dialect::ConfigDialect;
use crate::edit::{ConfigDocument, EditError, EditPath, FileChange};
use crate::error::ConfigurationError;
use crate::inventory::{Inventory, inventory_layers};
use crate::layers::{Layers, load_layers};
use crate::plaintext_keys::replace_plaintext_keys;
use crate::problem::{ConfigProblem, Severity};
use crate::variables::FileWorkspace;

/// Error of editing a configuration file. The file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] ConfigurationError),
    /// The file is invalid before the edit.
    #[error("{0}")]
    InvalidBefore(#[source] ConfigurationError),
    /// The file would be invalid after the edit.
    #[error("{error}")]
    InvalidAfter {
        /// Path of the file.
        path: PathBuf,
        /// Problems of the edited file.
        #[source]
        error: ConfigurationError,
    },
    /// The edit is impossible.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The file has several toolboxes, and none was chosen.
    #[error("the file has several toolboxes")]
    SeveralToolboxes {
        /// Names of the toolboxes.
        names: Vec<String>,
    },
    /// The client supports only servers that it starts as a program.
    #[error("{client} does not support servers with a URL")]
    NoUrlSupport {
        /// Display name of the client.
        client: String,
    },
}

/// Pegboard's own configuration file, opened for an edit.
///
/// ```
/// use pegboard_config::{ConfigFile, EntrySection};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("pegboard.yaml");
/// let mut file = ConfigFile::open(&path, &|_| None)?;
/// let notes = EntrySection::Servers.path(None).key("notes");
/// file.document.set(&notes.key("url"), &"https://example.com/mcp".into())?;
/// assert!(file.check()?.is_empty());
/// file.change().write()?;
/// assert_eq!(std::fs::read_to_string(&path)?, "mcpServers:\n  notes:\n    url: https://example.com/mcp\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ConfigFile<'e> {
    /// Path of the file.
    pub path: PathBuf,
    /// Its content, which can be edited.
    pub document: ConfigDocument,
    /// Dialect of the file.
    pub dialect: ConfigDialect,
    /// Content on disk; `None` if the file does not exist.
    old: Option<String>,
    /// Problems that existed before the edit.
    known_problems: BTreeSet<String>,
    environment: Environment<'e>,
}

impl<'e> ConfigFile<'e> {
    /// Opens a file; it may not exist yet.
    pub fn open(path: &Path, environment: Environment<'e>) -> Result<Self, ConfigFileError> {
        let document = match ConfigDocument::read(path) {
            Ok(document) => document,
            Err(ConfigurationError::NotFound { .. }) => {
                return Ok(Self::create(path, String::new(), environment)?);
            }
            Err(error) => return Err(error.into()),
        };
        let old = document.text();
        let configuration = load_text(path, &old, environment).map_err(ConfigFileError::InvalidBefore)?;
        let known_problems = configuration.problems.iter().map(problem_key).collect();
        let dialect = configuration.sources.first().map_or(ConfigDialect::Native, |source| source.dialect);
        let path = path.to_owned();
        Ok(Self { path, document, dialect, old: Some(old), known_problems, environment })
    }

    /// Starts a new file with this text.
    pub fn create(
        path: &Path,
        text: String,
        environment: Environment<'e>,
    ) -> Result<Self, ConfigurationError> {
        Ok(Self {
            path: path.to_owned(),
            document: ConfigDocument::new(path, text)?,
            dialect: ConfigDialect::Native,
            old: None,
            known_problems: BTreeSet::new(),
            environment,
        })
    }

    /// Returns the directory that programs in this file run in by default.
    pub(crate) fn working_dir(&self) -> PathBuf {
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let folder = path.parent().unwrap_or(Path::new(""));
        FileWorkspace::of_file(&path, folder, self.environment).folder().to_owned()
    }

    /// Returns `true` if the file does not exist yet.
    pub fn is_new(&self) -> bool {
        self.old.is_none()
    }

    /// Sets the content on disk that the new file replaces.
    #[must_use]
    pub fn replacing(self, old: Option<String>) -> Self {
        Self { old, ..self }
    }

    /// Replaces the plaintext keys that the edit adds with what `replace` returns for their path and text.
    pub fn replace_added_keys(
        &mut self,
        replace: &mut dyn FnMut(&[String], &str) -> Option<String>,
    ) -> Result<(), ConfigFileError> {
        let old = self.old.as_deref().and_then(|old| ConfigDocument::new(&self.path, old.to_owned()).ok());
        let mut known: Vec<(Vec<String>, String)> = Vec::new();
        if let Some(old) = old {
            replace_plaintext_keys(old.value(), &mut |path, key| {
                known.push((path.to_vec(), key.to_owned()));
                None
            });
        }
        let changed = replace_plaintext_keys(self.document.value(), &mut |path, key| {
            let is_known = known.iter().any(|(known_path, known_key)| known_path == path && known_key == key);
            if is_known { None } else { replace(path, key) }
        });
        for (path, value) in changed {
            self.document.set(&EditPath::from_keys(path.iter().map(String::as_str)), &value)?;
        }
        Ok(())
    }

    /// Resolves the toolbox of a new entry. The workbench dialect has no entries outside toolboxes.
    pub fn toolbox(&self, wanted: Option<&str>) -> Result<Option<String>, ConfigFileError> {
        let is_workbench = self.dialect == ConfigDialect::Workbench;
        if wanted.is_some() || !is_workbench {
            return Ok(wanted.filter(|toolbox| *toolbox != "default" || is_workbench).map(str::to_owned));
        }
        let toolboxes = self.document.value().get("toolboxes").and_then(Value::as_object);
        let names: Vec<String> = toolboxes.into_iter().flat_map(Map::keys).cloned().collect();
        match names.as_slice() {
            [only] => Ok(Some(only.clone())),
            _ => Err(ConfigFileError::SeveralToolboxes { names }),
        }
    }

    /// Checks that the edited file is valid. Returns the entries that cannot be used until a variable is set.
    pub fn check(&self) -> Result<Vec<(String, UnusableEntry)>, ConfigFileError> {
        let invalid = |error| ConfigFileError::InvalidAfter { path: self.path.clone(), error };
        let configuration =
            load_text(&self.path, &self.document.text(), self.environment).map_err(invalid)?;
        let obstacles = obstacles(&configuration);
        let of_obstacles = obstacles.iter().flat_map(|(_, entry)| entry.problems.iter().map(problem_key));
        let of_obstacles: BTreeSet<String> = of_obstacles.collect();
        let is_new = |problem: &&ConfigProblem| {
            problem.severity == Severity::Error
                && !self.known_problems.contains(&problem_key(problem))
                && !of_obstacles.contains(&problem_key(problem))
        };
        let problems: Vec<ConfigProblem> = configuration.problems.iter().filter(is_new).cloned().collect();
        if !problems.is_empty() {
            return Err(invalid(ConfigurationError::Invalid { problems }));
        }
        Ok(obstacles.into_iter().map(|(name, entry)| (name, entry.clone())).collect())
    }

    /// Returns the change that the edit makes.
    pub fn change(&self) -> FileChange {
        FileChange { path: self.path.clone(), old: self.old.clone(), new: self.document.text() }
    }

    /// Takes inventory of the edited file.
    pub(crate) fn inventory(&self) -> Result<Option<Inventory>, ConfigurationError> {
        match inventory_layers(&self.path, &text_layer(&self.path, &self.document.text()), self.environment) {
            Ok(inventory) => Ok(Some(inventory)),
            Err(ConfigurationError::Empty { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Loads a text as if it were in this file. An empty text is valid.
fn load_text(
    path: &Path,
    text: &str,
    environment: Environment<'_>,
) -> Result<Configuration, ConfigurationError> {
    match load_layers(&text_layer(path, text).assuming_secrets(), environment) {
        Err(ConfigurationError::Empty { .. }) => Ok(Configuration::default()),
        loaded => loaded,
    }
}

fn text_layer(path: &Path, text: &str) -> Layers {
    Layers::new(path.parent().unwrap_or(Path::new(""))).text(path, text)
}

/// Entries that need a variable before they can be used.
fn obstacles(configuration: &Configuration) -> Vec<(String, &UnusableEntry)> {
    let unusable = configuration.unusable_entries();
    let needs_variable = unusable.filter(|(_, _, entry)| !entry.needs.is_empty());
    needs_variable.map(|(_, name, entry)| (name.to_owned(), entry)).collect()
}

/// Identifies a problem without its line, which shifts when something is added above.
fn problem_key(problem: &ConfigProblem) -> String {
    format!("{}: {}", problem.path, problem.message)
}
