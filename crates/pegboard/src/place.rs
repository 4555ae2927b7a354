//! Where this user and this folder have what commands need.

use std::path::{Path, PathBuf};

use pegboard::config::{self, Configuration, ConfigurationError};
use pegboard::telemetry::tell;

use crate::cli::{Failure, Globals};

/// What the process has set.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Where the configuration is: at the place that is named, or else where it is looked for.
pub(crate) fn configuration(globals: &Globals, named: Option<&Path>) -> Result<PathBuf, ConfigurationError> {
    if let Some(path) = named.or(globals.config.as_deref()) {
        return Ok(path.to_owned());
    }
    let here = PathBuf::from(".");
    let folder =
        std::env::current_dir().map_err(|error| ConfigurationError::Unreadable { path: here, error })?;
    config::find(&folder, &environment)
}

/// Reads a configuration and says what is worth saying about it.
pub(crate) fn read(path: &Path) -> Result<Configuration, Failure> {
    let configuration = config::load(path, &environment)?;
    for problem in &configuration.problems {
        tell(&problem.to_string());
    }
    Ok(configuration)
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
