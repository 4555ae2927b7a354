//! Where this user and this folder have what commands need.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pegboard::config::clients::System;
use pegboard::config::survey::{Survey, survey_layers};
use pegboard::config::{self, Around, Configuration, ConfigurationError, Layers, Spec};
use pegboard::telemetry::tell;

use crate::cli::{Failure, Globals};

mod probe;

/// How long the whole name of a socket may be, and the part of it that names a process.
#[cfg(unix)]
const MAX_SOCKET_BYTES: usize = 100;
#[cfg(unix)]
const MAX_SOCKET_NAME_BYTES: usize = "/4294967295.sock".len();

/// What the process has set.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What a command is to run with: what is named, or the files that are found, and single settings.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    folder: PathBuf,
    specs: Vec<Spec>,
    /// The toolbox of what stands in none.
    toolbox: Option<String>,
    settings: Vec<String>,
}

impl Wanted {
    /// What the options of a command say.
    pub(crate) fn of(globals: &Globals) -> Result<Self, Failure> {
        Self::with(globals, &[], &[])
    }

    /// What the options of a command say, and beside them sources that it is given, and a command that is one.
    pub(crate) fn with(globals: &Globals, sources: &[PathBuf], command: &[String]) -> Result<Self, Failure> {
        let mut wanted = Self::named(globals, sources, command)?;
        wanted.specs = wanted.specs.into_iter().map(probe::looked_at).collect();
        Ok(wanted)
    }

    /// What the options of a command say, for whoever asks for files alone: what is at addresses is not looked at.
    pub(crate) fn unseen(globals: &Globals) -> Result<Self, Failure> {
        Self::named(globals, &[], &[])
    }

    fn named(globals: &Globals, sources: &[PathBuf], command: &[String]) -> Result<Self, Failure> {
        let folder = std::env::current_dir().map_err(|error| {
            Failure::system(format!("this folder is not there any more: {error}")).hint("go to another one")
        })?;
        let mut specs = Vec::new();
        for source in globals.config.iter().chain(sources) {
            specs.push(written(source, &folder)?);
        }
        if !command.is_empty() {
            specs.push(Spec::Command(command.to_vec()));
        }
        Ok(Self { folder, specs, toolbox: None, settings: globals.set.clone() })
    }

    /// The same, with what stands in no toolbox in this one.
    pub(crate) fn in_toolbox(mut self, toolbox: Option<String>) -> Self {
        self.toolbox = toolbox;
        self
    }

    fn around(&self) -> Around<'_> {
        let toolbox = self.toolbox.as_deref();
        Around { folder: &self.folder, environment: &environment, system: System::here(), toolbox }
    }

    /// All sources, from the least. Which files there are is looked up anew each time; where there is none at all,
    /// nothing is wanted but the settings.
    fn layers(&self) -> Result<Layers, ConfigurationError> {
        let mut layers = if self.specs.is_empty() {
            match Layers::usual(&self.folder, &[], &environment) {
                Err(ConfigurationError::NoneFound { .. }) => Layers::new(&self.folder),
                found => found?,
            }
        } else {
            let user = config::find_user(&environment);
            user.iter().fold(Layers::new(&self.folder), |layers, user| layers.user(user))
        };
        for spec in &self.specs {
            layers = spec.add_to(layers, &self.around())?;
        }
        let texts =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let layers = layers.environment(std::env::vars_os().filter_map(texts));
        Ok(self.settings.iter().fold(layers, |layers, setting| layers.set(setting.clone())))
    }

    /// Reads all of it.
    pub(crate) fn read(&self) -> Result<Configuration, ConfigurationError> {
        config::load_layers(&self.layers()?, &environment)
    }

    /// The same for a command that can do nothing without.
    pub(crate) fn read_some(&self) -> Result<Configuration, ConfigurationError> {
        let configuration = self.read()?;
        if configuration.sources.is_empty() && configuration.toolboxes.is_empty() {
            return Err(ConfigurationError::NoneFound { folder: self.folder.clone() });
        }
        Ok(configuration)
    }

    /// What all of it names, before anything of it is used.
    pub(crate) fn survey(&self) -> Result<Survey, ConfigurationError> {
        survey_layers(Path::new("the configuration"), &self.layers()?, &environment)
    }

    /// Reads another source, and nothing but that.
    pub(crate) fn read_alone(&self, source: &Path) -> Result<Configuration, ConfigurationError> {
        config::load_spec(&spec(source, &self.folder)?, &self.around())
    }

    /// Every file that could say something, there or not.
    pub(crate) fn candidates(&self) -> Vec<PathBuf> {
        if self.specs.is_empty() {
            return config::candidates(&self.folder, &environment);
        }
        let user = config::find_user(&environment);
        let named = self.specs.iter().flat_map(|spec| spec.candidates(&self.around()));
        user.into_iter().chain(named).collect()
    }

    /// The files that are read now, from the least.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let layers = self.layers().unwrap_or_else(|_| Layers::new(&self.folder));
        layers
            .files()
            .into_iter()
            .map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()))
            .collect()
    }

    /// The same, to be named.
    pub(crate) fn files(&self) -> String {
        let files: Vec<String> = self.paths().iter().map(|file| file.display().to_string()).collect();
        if files.is_empty() { "no file".to_owned() } else { files.join(", ") }
    }

    /// Where the project is: with the file that counts most, or else here.
    pub(crate) fn project(&self) -> PathBuf {
        let folder = self.paths().last().and_then(|file| file.parent()).map(Path::to_owned);
        folder.filter(|folder| folder != Path::new("")).unwrap_or_else(|| self.folder.clone())
    }
}

/// What a source is. What is at an address is looked at.
pub(crate) fn spec(source: &Path, folder: &Path) -> Result<Spec, ConfigurationError> {
    written(source, folder).map(probe::looked_at)
}

/// What a source is, as far as its name tells. What has the name of a file is one, there or not.
fn written(source: &Path, folder: &Path) -> Result<Spec, ConfigurationError> {
    match source.to_str() {
        Some(text) if source.extension().is_none() || text.contains("://") => Spec::parse(text, folder),
        _ if folder.join(source).is_dir() => Ok(Spec::Folder(folder.join(source))),
        _ => Ok(Spec::File(source.to_owned())),
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

/// The folder where running gateways of a state can be asked, each through a socket that is called after its process.
///
/// It is below the state, unless no socket could have so long a name; then it is with what this user runs.
#[cfg(unix)]
pub(crate) fn sockets(state: &Path) -> PathBuf {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let usual = state.join("run");
    if usual.as_os_str().len() + MAX_SOCKET_NAME_BYTES <= MAX_SOCKET_BYTES {
        return usual;
    }
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let of_user = of_user.unwrap_or_else(|| {
        std::env::temp_dir().join(format!("pegboard-{}", rustix::process::getuid().as_raw()))
    });
    of_user.join(format!("pegboard-{:016x}", hasher.finish()))
}
