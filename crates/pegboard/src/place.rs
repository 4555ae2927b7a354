//! Where this user and this folder have what commands need.

use std::path::{Path, PathBuf};

use pegboard::config::{self, ConfigurationError};

use crate::reload;

/// Where the configuration is: at the named place, or else where it is looked for.
pub(crate) fn configuration(named: Option<&Path>) -> Result<PathBuf, ConfigurationError> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let here = PathBuf::from(".");
    let folder =
        std::env::current_dir().map_err(|error| ConfigurationError::Unreadable { path: here, error })?;
    config::find(&folder, &reload::environment)
}

/// Where state is kept: at the named place, where `PEGBOARD_STATE` says, or in this user's folder for state.
pub(crate) fn state(named: Option<&Path>) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let of_user = || {
        if cfg!(windows) {
            return variable("LOCALAPPDATA");
        }
        variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local").join("state")))
    };
    let usual = || Some(of_user()?.join("pegboard"));
    named.map(Path::to_owned).or_else(|| variable("PEGBOARD_STATE")).or_else(usual)
}
