//! Where this user and this folder have what commands need.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pegboard::config::{self, Configuration, ConfigurationError, Layers};
use pegboard::telemetry::tell;

use crate::cli::{Failure, Globals};

/// What the process has set.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What a command is to run with: the files that are named, or those that are found, and single settings.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    folder: PathBuf,
    files: Vec<PathBuf>,
    settings: Vec<String>,
}

impl Wanted {
    /// What the options of a command say, and the files that it is given beside them.
    pub(crate) fn of(globals: &Globals, files: &[PathBuf]) -> Result<Self, Failure> {
        let folder = std::env::current_dir().map_err(|error| {
            Failure::system(format!("this folder is not there any more: {error}")).hint("go to another one")
        })?;
        let files = globals.config.iter().chain(files).cloned().collect();
        Ok(Self { folder, files, settings: globals.set.clone() })
    }

    /// All sources, from the least. Which files there are is looked up anew each time.
    fn layers(&self) -> Layers {
        let is_there = |paths: Vec<PathBuf>| paths.into_iter().find(|path| path.is_file());
        let mut layers = Layers::new(&self.folder);
        if let Some(user) = is_there(config::user_candidates(&environment)) {
            layers = layers.user(&user);
        }
        if !self.files.is_empty() {
            layers = self.files.iter().fold(layers, |layers, file| layers.file(file));
        } else if let Ok(project) = config::find(&self.folder, &environment) {
            layers = layers.project(&project);
        }
        let texts =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        layers = layers.environment(std::env::vars_os().filter_map(texts));
        self.settings.iter().fold(layers, |layers, setting| layers.set(setting.clone()))
    }

    /// Reads all of it. Where there is no file at all, nothing is wanted but the settings.
    pub(crate) fn read(&self) -> Result<Configuration, ConfigurationError> {
        config::load_layers(&self.layers(), &environment)
    }

    /// The same for a command that can do nothing without.
    pub(crate) fn read_some(&self) -> Result<Configuration, ConfigurationError> {
        let configuration = self.read()?;
        if configuration.sources.is_empty() && configuration.toolboxes.is_empty() {
            return Err(ConfigurationError::NoneFound { folder: self.folder.clone() });
        }
        Ok(configuration)
    }

    /// Every file that could say something, there or not.
    pub(crate) fn candidates(&self) -> Vec<PathBuf> {
        let mut candidates = config::user_candidates(&environment);
        if self.files.is_empty() {
            candidates.extend(config::candidates(&self.folder, &environment));
        }
        candidates.extend(self.files.iter().cloned());
        candidates
    }

    /// The files that are read now, to be named.
    pub(crate) fn files(&self) -> String {
        let layers = self.layers();
        let files: Vec<String> = layers.files().iter().map(|file| file.display().to_string()).collect();
        if files.is_empty() { "no file".to_owned() } else { files.join(", ") }
    }

    /// Where the project is: with the file that counts most, or else here.
    pub(crate) fn project(&self) -> PathBuf {
        let layers = self.layers();
        let folder = layers.files().last().and_then(|file| file.parent()).map(Path::to_owned);
        folder.filter(|folder| folder != Path::new("")).unwrap_or_else(|| self.folder.clone())
    }
}

/// Says what is worth saying about a configuration.
pub(crate) fn tell_problems(configuration: &Configuration) {
    for problem in &configuration.problems {
        tell(&problem.to_string());
    }
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
