//! Default locations of configuration files.

use std::path::{Path, PathBuf};

use crate::Environment;
use crate::error::ConfigurationError;
use crate::layers::Layers;

/// Names of configuration files in a project directory, in order of preference.
pub(crate) const FILE_NAMES: [&str; 7] = [
    "pegboard.yaml",
    "pegboard.yml",
    "pegboard.json",
    "pegboard.jsonc",
    "pegboard.toml",
    "workbench-config.json",
    "workbench.json",
];

/// Variable that names the configuration file.
const CONFIG_VARIABLE: &str = "WORKBENCH_CONFIG";
/// Number of native names among them.
const N_NATIVE: usize = 5;

/// Finds the configuration of a project: the file named by the variable `WORKBENCH_CONFIG`, or the first of
/// `pegboard.yaml`, `.yml`, `.json`, `.jsonc`, `.toml`, `workbench-config.json` and `workbench.json` in
/// `folder`.
///
/// If there is none, parent directories are searched up to the root of the repository or the user's home
/// directory. Outside of both no parents are searched, since other users may write there.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("pegboard.toml"), "toolTimeout = '30s'")?;
/// let found = pegboard_config::find(folder.path(), &|_| None)?;
/// assert!(found.ends_with("pegboard.toml"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn find(folder: &Path, environment: Environment<'_>) -> Result<PathBuf, ConfigurationError> {
    if let Some(named) = non_empty_variable(environment, CONFIG_VARIABLE) {
        return Ok(folder.join(named));
    }
    let in_folder = |folder: &Path| first_existing(folder, &FILE_NAMES);
    in_folder(folder)
        .or_else(|| ancestor_folders(folder, environment).iter().find_map(|folder| in_folder(folder)))
        .ok_or_else(|| ConfigurationError::NoConfiguration { folder: folder.to_owned() })
}

/// Finds the user's configuration, which applies to all projects: `pegboard/pegboard.yaml`, `.yml`, `.json`,
/// `.jsonc` or `.toml` in `$XDG_CONFIG_HOME`, `%APPDATA%` or `~/.config`.
pub fn find_user(environment: Environment<'_>) -> Option<PathBuf> {
    user_folder(environment).and_then(|folder| find_native(&folder))
}

/// Finds the native file of a directory.
pub fn find_native(folder: &Path) -> Option<PathBuf> {
    first_existing(folder, &FILE_NAMES[..N_NATIVE])
}

/// Returns the directory of the user's configuration, which may not exist.
pub fn user_folder(environment: Environment<'_>) -> Option<PathBuf> {
    let absolute =
        |name| non_empty_variable(environment, name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let settings = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("APPDATA"))
        .or_else(|| absolute("HOME").map(|home| home.join(".config")));
    settings.map(|settings| settings.join("pegboard"))
}

/// Returns every file that could apply to a directory by default, whether it exists or not.
pub fn candidates(folder: &Path, environment: Environment<'_>) -> Vec<PathBuf> {
    let of_folder =
        |folder: &Path, names: &[&str]| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    let mut candidates: Vec<PathBuf> = user_folder(environment)
        .iter()
        .flat_map(|folder| of_folder(folder, &FILE_NAMES[..N_NATIVE]))
        .collect();
    if let Some(named) = non_empty_variable(environment, CONFIG_VARIABLE) {
        candidates.push(folder.join(named));
    } else {
        candidates.extend(of_folder(folder, &FILE_NAMES));
        candidates.extend(
            ancestor_folders(folder, environment)
                .iter()
                .flat_map(|ancestor| of_folder(ancestor, &FILE_NAMES)),
        );
    }
    candidates
}

impl Layers {
    /// Collects the layers for a directory: the user's file, and on top of it the named files or else the
    /// project's file. Returns an error if there is none of them.
    ///
    /// Named files replace the project's file. Of the user's file only the settings apply then, and no tools.
    pub fn discover(
        folder: &Path,
        named: &[PathBuf],
        environment: Environment<'_>,
    ) -> Result<Self, ConfigurationError> {
        let user = find_user(environment);
        let mut layers = Self::new(folder);
        if let Some(user) = &user {
            layers = layers.user(user);
        }
        if !named.is_empty() {
            return Ok(named.iter().fold(layers, |layers, path| layers.file(path)));
        }
        match find(folder, environment) {
            // In the user's configuration directory both are the same file.
            Ok(project) if Some(&project) == user.as_ref() => Ok(layers),
            // The user named the file with the variable.
            Ok(project) if non_empty_variable(environment, CONFIG_VARIABLE).is_some() => {
                Ok(layers.named_project(&project))
            }
            Ok(project) => Ok(layers.project(&project)),
            Err(ConfigurationError::NoConfiguration { .. }) if user.is_some() => Ok(layers),
            Err(error) => Err(error),
        }
    }
}

/// Returns the parent directories that belong to the user or the project, the closest first.
fn ancestor_folders(folder: &Path, environment: Environment<'_>) -> Vec<PathBuf> {
    let Ok(folder) = std::path::absolute(folder) else { return Vec::new() };
    let home = non_empty_variable(environment, "HOME")
        .or_else(|| non_empty_variable(environment, "USERPROFILE"))
        .map(PathBuf::from);
    let is_last = |folder: &Path| folder.join(".git").exists() || home.as_deref() == Some(folder);
    let folders: Vec<&Path> = folder.ancestors().collect();
    match folders.iter().position(|folder| is_last(folder)) {
        Some(last) => folders[..=last].iter().skip(1).map(|&folder| folder.to_owned()).collect(),
        None => Vec::new(),
    }
}

pub(crate) fn first_existing(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Returns a variable unless it is unset or empty.
fn non_empty_variable(environment: Environment<'_>, name: &str) -> Option<String> {
    environment(name).filter(|value| !value.is_empty())
}
