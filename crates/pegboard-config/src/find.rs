//! Where configurations are looked for when nobody names a file.

use std::path::{Path, PathBuf};

use crate::error::ConfigurationError;
use crate::layers::Layers;

/// The files that are looked for in the folder of a project, the first that is there first.
pub(crate) const NAMES: [&str; 7] = [
    "pegboard.yaml",
    "pegboard.yml",
    "pegboard.json",
    "pegboard.jsonc",
    "pegboard.toml",
    "workbench-config.json",
    "workbench.json",
];

/// How many of them are ours alone.
const N_OURS: usize = 5;

/// The configuration of a project: the file that the variable `WORKBENCH_CONFIG` names, or else the first of
/// `pegboard.yaml`, `.yml`, `.json`, `.jsonc`, `.toml`, `workbench-config.json` and `workbench.json` that is in `folder`.
///
/// If none is, the folders around it are looked at, up to that of the repository or else the user's own. In a folder
/// that is in neither nobody looks further: others may write there.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("pegboard.toml"), "toolTimeout = '30s'")?;
/// let found = pegboard_config::find(folder.path(), &|_| None)?;
/// assert!(found.ends_with("pegboard.toml"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn find(
    folder: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<PathBuf, ConfigurationError> {
    if let Some(named) = set(environment, "WORKBENCH_CONFIG") {
        return Ok(folder.join(named));
    }
    let in_folder = |folder: &Path| first_of(folder, &NAMES);
    in_folder(folder)
        .or_else(|| folders_around(folder, environment).iter().find_map(|folder| in_folder(folder)))
        .ok_or_else(|| ConfigurationError::NoneFound { folder: folder.to_owned() })
}

/// The configuration of the user, which holds for all projects: `pegboard/pegboard.yaml`, `.yml`, `.json`, `.jsonc` or
/// `.toml` in the folder for settings, which is `$XDG_CONFIG_HOME`, `%APPDATA%` or `~/.config`.
pub fn find_user(environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    user_folder(environment).and_then(|folder| first_of(&folder, &NAMES[..N_OURS]))
}

/// The folder where the configuration of the user is, or would be.
pub fn user_folder(environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let absolute = |name| set(environment, name).map(PathBuf::from).filter(|folder| folder.is_absolute());
    let settings = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("APPDATA"))
        .or_else(|| absolute("HOME").map(|home| home.join(".config")));
    settings.map(|settings| settings.join("pegboard"))
}

/// Every file that could hold something for a folder if nobody names files, there or not.
pub fn candidates(folder: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let of_folder =
        |folder: &Path, names: &[&str]| names.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    let mut candidates: Vec<PathBuf> =
        user_folder(environment).iter().flat_map(|folder| of_folder(folder, &NAMES[..N_OURS])).collect();
    if let Some(named) = set(environment, "WORKBENCH_CONFIG") {
        candidates.push(folder.join(named));
    } else {
        candidates.extend(of_folder(folder, &NAMES));
        candidates
            .extend(folders_around(folder, environment).iter().flat_map(|around| of_folder(around, &NAMES)));
    }
    candidates
}

impl Layers {
    /// The files that hold in a folder: that of the user, and upon it those that somebody names, or else that of the
    /// project. It is an error if there is none of them.
    ///
    /// Named files take the place of the project's. Of the user's file they leave the settings, and no tools.
    pub fn usual(
        folder: &Path,
        named: &[PathBuf],
        environment: &dyn Fn(&str) -> Option<String>,
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
            // Whoever works in the folder for settings has one file, not two.
            Ok(project) if Some(&project) == user.as_ref() => Ok(layers),
            Ok(project) => Ok(layers.project(&project)),
            Err(ConfigurationError::NoneFound { .. }) if user.is_some() => Ok(layers),
            Err(error) => Err(error),
        }
    }
}

/// The folders around one that are the user's or the project's, from the nearest.
fn folders_around(folder: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let Ok(folder) = std::path::absolute(folder) else { return Vec::new() };
    let home = set(environment, "HOME").or_else(|| set(environment, "USERPROFILE")).map(PathBuf::from);
    let is_last = |folder: &Path| folder.join(".git").exists() || home.as_deref() == Some(folder);
    let folders: Vec<&Path> = folder.ancestors().collect();
    match folders.iter().position(|folder| is_last(folder)) {
        Some(last) => folders[..=last].iter().skip(1).map(|&folder| folder.to_owned()).collect(),
        None => Vec::new(),
    }
}

pub(crate) fn first_of(folder: &Path, names: &[&str]) -> Option<PathBuf> {
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// A variable that is set to something.
fn set(environment: &dyn Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    environment(name).filter(|value| !value.is_empty())
}
