//! Locations of configuration and state for the current user and directory.

#[cfg(unix)]
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use pegboard::config::clients::Platform;
use pegboard::config::inventory::{Inventory, inventory_layers};
use pegboard::config::trust::{FileAction, FileOrigin, FileOwner};
use pegboard::config::{
    self, ConfigProblem, Configuration, ConfigurationError, Layers, SecretSource, SourceSpec, SpecContext,
};
#[cfg(unix)]
use pegboard_core::fingerprint::sha256_hex;

use crate::cli::error::colored;
use crate::cli::format::{fit_quotes, one_line};
use crate::cli::{CliError, ExitReason, Globals, print};
use crate::environment;
use crate::secrets::{AssumedUserSecrets, UserSecrets};
use crate::trust::{TrustGate, TrustedConfiguration};

#[cfg(unix)]
mod owner;
#[cfg(unix)]
mod private_dir;
mod probe;

#[cfg(unix)]
pub(crate) use private_dir::PrivateDir;

/// Maximum length of a socket's path, and the part of it that depends on the process id.
#[cfg(unix)]
const MAX_SOCKET_BYTES: usize = 100;
#[cfg(unix)]
const MAX_SOCKET_NAME_BYTES: usize = "/4294967295.sock".len();

/// Maximum length of a command in a message.
const MAX_COMMAND_CHARACTERS: usize = 200;

/// Length of the digest that identifies a configuration.
#[cfg(unix)]
const IDENTITY_DIGITS: usize = 32;

/// Reads an environment variable of this process.
pub(crate) fn env_var(name: &str) -> Option<String> {
    environment::var(name)
}

/// Working directory.
pub(crate) fn working_dir() -> Result<PathBuf, CliError> {
    std::env::current_dir().map_err(|error| {
        CliError::system(format!("the working directory does not exist: {error}"))
            .hint("change to another directory")
    })
}

/// Returns a path that is valid in every directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|error| CliError::system(format!("{}: {error}", path.display())))
}

/// Sources and settings that a command runs with: those named on the command line, or the files that are
/// found.
#[derive(Clone, Debug)]
pub(crate) struct ConfigSelection {
    folder: PathBuf,
    specs: Vec<SourceSpec>,
    /// Toolbox for entries without one.
    toolbox: Option<String>,
    settings: Vec<String>,
    gate: TrustGate,
    /// State folder that was named.
    state: Option<PathBuf>,
    /// Commands of the configuration that have run for secrets.
    commands: Arc<Mutex<HashSet<Vec<String>>>>,
}

impl ConfigSelection {
    /// Returns the selection of the global options.
    pub(crate) fn from_globals(globals: &Globals) -> Result<Self, CliError> {
        Self::with_sources(globals, &[], &[])
    }

    /// Same as [`from_globals`](Self::from_globals), plus the sources and the server command that a command
    /// was given.
    pub(crate) fn with_sources(
        globals: &Globals,
        sources: &[PathBuf],
        command: &[String],
    ) -> Result<Self, CliError> {
        let mut selection = Self::resolve(globals, sources, command)?;
        selection.specs = selection.specs.into_iter().map(probe::probe).collect();
        Ok(selection)
    }

    /// Same as [`from_globals`](Self::from_globals), for callers that need only file paths: URLs are not
    /// probed.
    pub(crate) fn without_probing(globals: &Globals) -> Result<Self, CliError> {
        Self::resolve(globals, &[], &[])
    }

    fn resolve(globals: &Globals, sources: &[PathBuf], command: &[String]) -> Result<Self, CliError> {
        let folder = working_dir()?;
        let mut specs = Vec::new();
        for source in globals.config.iter().chain(sources) {
            specs.push(parse_source(source, &folder)?);
        }
        if !command.is_empty() {
            specs.push(SourceSpec::Command(command.to_vec()));
        }
        let gate = TrustGate::from_globals(globals);
        Ok(Self {
            folder,
            specs,
            toolbox: None,
            settings: globals.set.clone(),
            gate,
            state: globals.state.clone(),
            commands: Arc::default(),
        })
    }

    /// Sets the toolbox for entries without one.
    pub(crate) fn in_toolbox(mut self, toolbox: Option<String>) -> Self {
        self.toolbox = toolbox;
        self
    }

    fn resolve_context(&self) -> SpecContext<'_> {
        let toolbox = self.toolbox.as_deref();
        SpecContext { folder: &self.folder, environment: &env_var, platform: Platform::current(), toolbox }
    }

    /// All layers, lowest priority first. Files are looked up again on each call; without any file there are
    /// only the settings.
    fn layers(&self) -> Result<Layers, ConfigurationError> {
        let mut layers = if self.specs.is_empty() {
            match Layers::discover(&self.folder, &[], &env_var) {
                Err(ConfigurationError::NoConfiguration { .. }) => Layers::new(&self.folder),
                found => found?,
            }
        } else {
            let user = config::find_user(&env_var);
            user.iter().fold(Layers::new(&self.folder), |layers, user| layers.user(user))
        };
        for spec in &self.specs {
            layers = spec.add_to(layers, &self.resolve_context())?;
        }
        let texts =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let layers = layers.environment(environment::vars_os().filter_map(texts));
        let secrets = Arc::new(AssumedUserSecrets::new(self.state.as_deref()));
        let layers = layers.owned_by(file_owner()).secrets(secrets);
        Ok(self.settings.iter().fold(layers, |layers, setting| layers.set(setting.clone())))
    }

    /// Loads the configuration in order to start it. Asks for consent to project files.
    pub(crate) fn read_trusted(&self) -> Result<TrustedConfiguration, CliError> {
        self.gate.admit(self.load()?)
    }

    /// Same as [`read_trusted`](Self::read_trusted), but an error if there is no configuration. Neither the prompt nor
    /// a secret that has to be fetched blocks the event loop, so that signals are handled.
    pub(crate) async fn require_trusted(&self) -> Result<TrustedConfiguration, CliError> {
        let selection = self.clone();
        unblocked(move || selection.gate.admit(selection.load_required()?)).await
    }

    /// Asks for consent to the project files of a loaded configuration, without blocking the event loop.
    pub(crate) async fn admit(&self, configuration: Configuration) -> Result<TrustedConfiguration, CliError> {
        let gate = self.gate.clone();
        unblocked(move || gate.admit(configuration)).await
    }

    /// Asks for consent to the project files that can be loaded now.
    pub(crate) fn require_trust(&self) -> Result<(), CliError> {
        match self.inspect() {
            Ok(configuration) => self.require_consent(&configuration),
            // The start reports the problem.
            Err(_) => Ok(()),
        }
    }

    /// Loads the configuration in order to look at what another process starts. Asks for consent to project files.
    pub(crate) fn inspect_trusted(&self) -> Result<Configuration, CliError> {
        let configuration = self.inspect()?;
        self.require_consent(&configuration)?;
        Ok(configuration)
    }

    fn require_consent(&self, configuration: &Configuration) -> Result<(), CliError> {
        self.gate.require(&self.gate.untrusted(&configuration.actions)?, &configuration.actions)
    }

    /// Decides on the project files.
    pub(crate) fn gate(&self) -> &TrustGate {
        &self.gate
    }

    /// Loads the configuration in order to start it: reads the secrets that it refers to from the keyring, which may ask
    /// the user, and runs the commands that print others.
    pub(crate) fn load(&self) -> Result<Configuration, ConfigurationError> {
        let secrets = Arc::new(UserSecrets::new(self.state.as_deref()));
        let configuration = self.load_with(&secrets)?;
        *self.commands.lock() = secrets.commands();
        Ok(configuration)
    }

    /// Same as [`load`](Self::load), but runs only commands that it has run: files have changed without their user, such
    /// as by a tool that writes files, and what writes files must not run programs.
    pub(crate) fn reload(&self) -> Result<Configuration, CliError> {
        let known = self.commands.lock().clone();
        let secrets = Arc::new(UserSecrets::new(self.state.as_deref()).with_allowed_commands(known));
        let configuration = self.load_with(&secrets);
        let refused = secrets.refused_commands();
        if let Some(first) = refused.first() {
            let command = one_line(&first.join(" "), MAX_COMMAND_CHARACTERS);
            let more = match refused.len() {
                1 => String::new(),
                n => format!(", and {} more", n - 1),
            };
            let message = format!("a reload does not run a new command for a secret: {command}{more}");
            return Err(CliError::configuration(message)
                .hint("if it is yours, run it with pegboard restart; otherwise remove it"));
        }
        Ok(configuration?)
    }

    fn load_with(&self, secrets: &Arc<UserSecrets>) -> Result<Configuration, ConfigurationError> {
        let secrets = Arc::clone(secrets) as Arc<dyn SecretSource>;
        let configuration = config::load_layers(&self.layers()?.secrets(secrets), &env_var)?;
        print::redact(&configuration.secrets);
        Ok(configuration)
    }

    /// Same as [`load`](Self::load), but an error if there is no configuration.
    pub(crate) fn load_required(&self) -> Result<Configuration, ConfigurationError> {
        self.required(self.load()?)
    }

    /// Loads the configuration in order to look at it. Tells which secrets are missing, but reads none, and runs no
    /// command.
    pub(crate) fn inspect(&self) -> Result<Configuration, ConfigurationError> {
        let configuration = config::load_layers(&self.layers()?, &env_var)?;
        print::redact(&configuration.secrets);
        Ok(configuration)
    }

    /// Same as [`inspect`](Self::inspect), with the names of the variables that the configuration refers to, set or
    /// not.
    #[cfg(unix)]
    pub(crate) fn inspect_variables(&self) -> Result<(Configuration, BTreeSet<String>), ConfigurationError> {
        let names = RefCell::new(BTreeSet::new());
        let lookup = |name: &str| {
            names.borrow_mut().insert(name.to_owned());
            env_var(name)
        };
        let configuration = config::load_layers(&self.layers()?, &lookup)?;
        Ok((configuration, names.into_inner()))
    }

    /// Returns a digest of the resolved sources. Gateways with equal digests serve the same configuration.
    #[cfg(unix)]
    pub(crate) fn identity(&self) -> String {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // Files are known by their paths, however they were selected.
        let specs = self.specs.iter().filter_map(|spec| match spec {
            SourceSpec::File(_) => None,
            SourceSpec::Folder(path) => Some(real(&self.folder.join(path)).display().to_string()),
            other => Some(format!("{other:?}")),
        });
        let files = self.files();
        // A command runs in the working directory.
        let folder = (self.names_server() || files.all.is_empty()).then(|| real(&self.folder));
        let parts = (specs.collect::<Vec<_>>(), files.canonical(), folder, &self.toolbox, &self.settings);
        sha256_hex(format!("{parts:?}"))[..IDENTITY_DIGITS].to_owned()
    }

    /// Same as [`inspect`](Self::inspect), but an error if there is no configuration.
    pub(crate) fn inspect_required(&self) -> Result<Configuration, ConfigurationError> {
        self.required(self.inspect()?)
    }

    fn required(&self, configuration: Configuration) -> Result<Configuration, ConfigurationError> {
        if configuration.sources.is_empty() && configuration.toolboxes.is_empty() {
            return Err(ConfigurationError::NoConfiguration { folder: self.folder.clone() });
        }
        Ok(configuration)
    }

    /// Lists what project files start: those of the given sources, or else those of this selection. A file among
    /// the sources counts as one.
    pub(crate) fn project_actions(&self, sources: &[PathBuf]) -> Result<Vec<FileAction>, ConfigurationError> {
        let mut actions = Vec::new();
        if sources.is_empty() {
            actions = self.inspect_required()?.actions;
        }
        for source in sources {
            let layers = Layers::new(&self.folder);
            let layers = match parse_source(source, &self.folder)? {
                SourceSpec::File(path) => layers.project(&path),
                spec => spec.add_to(layers, &self.resolve_context())?,
            };
            let layers = layers.owned_by(file_owner()).assuming_secrets();
            actions.extend(config::load_layers(&layers, &env_var)?.actions);
        }
        actions.retain(|action| action.origin == FileOrigin::Project);
        Ok(actions)
    }

    /// Lists the entries of all sources before they are validated.
    pub(crate) fn inventory(&self) -> Result<Inventory, ConfigurationError> {
        inventory_layers(Path::new("the configuration"), &self.layers()?, &env_var)
    }

    /// Loads another source by itself.
    pub(crate) fn read_source(&self, source: &Path) -> Result<Configuration, ConfigurationError> {
        config::load_spec(&source_spec(source, &self.folder)?, &self.resolve_context())
    }

    /// All files that may hold configuration, whether or not they exist.
    pub(crate) fn candidates(&self) -> Vec<PathBuf> {
        if self.specs.is_empty() {
            return config::candidates(&self.folder, &env_var);
        }
        let user = config::find_user(&env_var);
        let named = self.specs.iter().flat_map(|spec| spec.candidates(&self.resolve_context()));
        user.into_iter().chain(named).collect()
    }

    /// Returns `true` if a source is a server itself, not a file, so that no running gateway stands for it.
    pub(crate) fn names_server(&self) -> bool {
        self.specs.iter().any(|spec| match spec {
            SourceSpec::Url(_) | SourceSpec::Document(_) | SourceSpec::Command(_) => true,
            SourceSpec::File(_) | SourceSpec::Folder(_) | SourceSpec::Client { .. } => false,
        })
    }

    /// Files that are loaded now.
    pub(crate) fn files(&self) -> SelectedFiles {
        let layers = self.layers().unwrap_or_else(|_| Layers::new(&self.folder));
        let absolute = |files: Vec<&Path>| {
            files
                .into_iter()
                .map(|file| std::path::absolute(file).unwrap_or_else(|_| file.to_owned()))
                .collect()
        };
        SelectedFiles { all: absolute(layers.files()), settings_only: absolute(layers.files_of_settings()) }
    }

    /// Project directory: that of the highest-priority file, or else the working directory.
    pub(crate) fn project(&self) -> PathBuf {
        let folder = self.files().all.last().and_then(|file| file.parent()).map(Path::to_owned);
        folder.filter(|folder| folder != Path::new("")).unwrap_or_else(|| self.folder.clone())
    }
}

/// Runs work that may wait for the user or for another program, without blocking the event loop.
pub(crate) async fn unblocked<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CliError> + Send + 'static,
) -> Result<T, CliError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(CliError::new(ExitReason::Bug, "internal_error", error.to_string())))
}

/// Files of a selection, lowest priority first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SelectedFiles {
    pub(crate) all: Vec<PathBuf>,
    /// Those of which only the settings apply, not the tools.
    pub(crate) settings_only: Vec<PathBuf>,
}

impl SelectedFiles {
    /// Returns the real paths, once each, so that equal selections are equal however the files were named.
    pub(crate) fn canonical(&self) -> Self {
        let real = |files: &[PathBuf]| {
            let mut seen = BTreeSet::new();
            let real = files.iter().map(|file| file.canonicalize().unwrap_or_else(|_| file.clone()));
            real.filter(|file| seen.insert(file.clone())).collect()
        };
        Self { all: real(&self.all), settings_only: real(&self.settings_only) }
    }
}

impl fmt::Display for SelectedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all.is_empty() {
            return f.write_str("no files");
        }
        for (index, file) in self.all.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, file.display())?;
        }
        Ok(())
    }
}

/// Interprets a source. URLs are probed.
pub(crate) fn source_spec(source: &Path, folder: &Path) -> Result<SourceSpec, ConfigurationError> {
    parse_source(source, folder).map(probe::probe)
}

/// Interprets a source by its name alone. A name with a file extension is a file, whether or not it exists.
fn parse_source(source: &Path, folder: &Path) -> Result<SourceSpec, ConfigurationError> {
    match source.to_str() {
        Some(text) if source.extension().is_none() || text.contains("://") => SourceSpec::parse(text, folder),
        _ if folder.join(source).is_dir() => Ok(SourceSpec::Folder(folder.join(source))),
        _ => Ok(SourceSpec::File(source.to_owned())),
    }
}

/// Prints problems of a configuration.
pub(crate) fn print_problems<'p>(problems: impl IntoIterator<Item = &'p ConfigProblem>) {
    for problem in problems {
        print::error_line(&colored(&fit_quotes(&problem.to_string(), print::error_width())));
    }
}

/// Returns the current user, as the owner of files that are loaded without being named.
#[cfg(unix)]
pub(crate) fn file_owner() -> FileOwner {
    owner::current()
}

/// Owners are not checked on this platform.
#[cfg(not(unix))]
pub(crate) fn file_owner() -> FileOwner {
    FileOwner { uid: 0, private_group: None }
}

/// State directory: the given one, `PEGBOARD_STATE`, or the default of this user.
pub(crate) fn state_dir(named: Option<&Path>) -> Option<PathBuf> {
    let variable =
        |name: &str| environment::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base_dir = || {
        if cfg!(windows) {
            return variable("LOCALAPPDATA");
        }
        variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local").join("state")))
    };
    let default_dir = || Some(base_dir()?.join("pegboard"));
    named.map(Path::to_owned).or_else(|| variable("PEGBOARD_STATE")).or_else(default_dir)
}

/// Directory with the API sockets of running gateways, one per process id.
///
/// It is inside the state directory, unless that makes the socket path too long; then it is in the user's
/// runtime directory, or in one of this user below the temporary directory, where others may have been first.
#[cfg(unix)]
pub(crate) fn socket_dir(state: &Path) -> PrivateDir {
    use std::hash::{DefaultHasher, Hash, Hasher};

    let default_dir = state.join("run");
    if default_dir.as_os_str().len() + MAX_SOCKET_NAME_BYTES <= MAX_SOCKET_BYTES {
        return PrivateDir::new(default_dir);
    }
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    let name = format!("pegboard-{:016x}", hasher.finish());
    let runtime_dir = environment::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    if let Some(runtime_dir) = runtime_dir {
        return PrivateDir::new(PathBuf::from(runtime_dir).join(name));
    }
    let user = rustix::process::geteuid().as_raw();
    PrivateDir::below(std::env::temp_dir().join(format!("pegboard-{user}")), &name)
}
