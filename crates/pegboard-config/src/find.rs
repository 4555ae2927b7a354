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

/// The configuration of a folder: the file that the variable `WORKBENCH_CONFIG` names, or else the first of
/// `pegboard.yaml`, `.yml`, `.json`, `.jsonc`, `.toml`, `workbench-config.json` and `workbench.json` that is there.
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
    if let Some(named) = environment("WORKBENCH_CONFIG").filter(|named| !named.is_empty()) {
        return Ok(folder.join(named));
    }
    NAMES
        .iter()
        .map(|name| folder.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| ConfigurationError::NoneFound { folder: folder.to_owned() })
}
