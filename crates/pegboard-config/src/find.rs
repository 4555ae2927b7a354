//! Where a configuration is looked for when nobody names a file.

use std::path::{Path, PathBuf};

use crate::error::ConfigurationError;

/// The files that are looked for in a folder, the first that is there first.
const NAMES: [&str; 7] = [
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
/// How many folders are climbed, at most.
const MAX_CLIMB: usize = 64;

/// The configuration of a folder: the file that the variable `WORKBENCH_CONFIG` names, or else the first of
/// `pegboard.yaml`, `.yml`, `.json`, `.jsonc`, `.toml`, `workbench-config.json` and `workbench.json` that is there, or in
/// one of the folders above it as far as they belong to the same repository.
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
    let candidates = candidates(folder, environment);
    match candidates.as_slice() {
        // What is named is meant, there or not.
        [named] => Ok(named.clone()),
        several => several
            .iter()
            .find(|path| path.is_file())
            .cloned()
            .ok_or_else(|| ConfigurationError::NoneFound { folder: folder.to_owned() }),
    }
}

/// Every file that [`find`] looks for, in that order.
pub fn candidates(folder: &Path, environment: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    if let Some(named) = environment("WORKBENCH_CONFIG").filter(|named| !named.is_empty()) {
        return vec![folder.join(named)];
    }
    let folders = || folder.ancestors().take(MAX_CLIMB);
    // Above a repository, and where there is none, lies what has nothing to do with this folder.
    let n_folders = folders().position(|folder| folder.join(".git").exists()).map_or(1, |root| root + 1);
    let of_folder = |folder: &Path| NAMES.iter().map(|name| folder.join(name)).collect::<Vec<_>>();
    folders().take(n_folders).flat_map(of_folder).collect()
}

/// Every file that may hold what is the same in all folders of a user, the one that counts first: `pegboard.*` in
/// `$XDG_CONFIG_HOME/pegboard`, `~/.config/pegboard`, or `%APPDATA%\pegboard`.
pub fn user_candidates(environment: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let variable = |name: &str| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = if cfg!(windows) {
        variable("APPDATA")
    } else {
        variable("XDG_CONFIG_HOME").or_else(|| Some(variable("HOME")?.join(".config")))
    };
    let folder = folder.map(|folder| folder.join("pegboard"));
    folder.into_iter().flat_map(|folder| NAMES[..N_OURS].iter().map(move |name| folder.join(name))).collect()
}
