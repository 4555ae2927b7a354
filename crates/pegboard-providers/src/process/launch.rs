//! What to start, and why it cannot be.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use pegboard_core::redact::{Redactor, may_be_secret};

use super::plan::Plan;

/// What to start.
///
/// ```
/// use pegboard_providers::process::Launch;
///
/// let launch = Launch { args: vec!["-y".to_owned(), "some-server".to_owned()], ..Launch::new("npx") };
/// assert!(launch.supervisor.is_none());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program: a name that is looked for in `PATH`, or a path, which is read from `cwd`.
    pub command: String,
    /// Its arguments, which no shell reads.
    pub args: Vec<String>,
    /// Variables of its environment, over the few it gets anyway.
    pub env: IndexMap<String, String>,
    /// The directory it starts in; `None` for that of this process.
    pub cwd: Option<PathBuf>,
    /// Who watches it; `None` for this process. Not used on Windows.
    pub supervisor: Option<Supervisor>,
    /// How patiently it is ended.
    pub grace: Grace,
}

impl Launch {
    /// A program without arguments.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            env: IndexMap::new(),
            cwd: None,
            supervisor: None,
            grace: Grace::default(),
        }
    }

    /// Blots out what the program is given in secret.
    pub(crate) fn redactor(&self) -> Redactor {
        let secrets = self.env.iter().filter(|(name, value)| may_be_secret(name, value));
        Redactor::new(secrets.map(|(_, value)| value))
    }

    /// Whether it could be started: its program is there, and so is the folder that it runs in.
    pub fn check(&self) -> Result<(), LaunchError> {
        Plan::of(self).map(drop)
    }
}

/// The values of variables are left out, since secrets are given that way.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, args, env, cwd, supervisor, grace } = self;
        f.debug_struct("Launch")
            .field("command", command)
            .field("args", args)
            .field("env", &env.keys().collect::<Vec<_>>())
            .field("cwd", cwd)
            .field("supervisor", supervisor)
            .field("grace", grace)
            .finish()
    }
}

/// A program that does nothing but [`supervise`](super::supervise()).
///
/// It is started with `arguments`, `--` and the command to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supervisor {
    /// The full path of the program.
    pub program: PathBuf,
    /// The arguments that make it supervise.
    pub arguments: Vec<OsString>,
}

/// How long to wait at each step of an ending. More than a minute counts as a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grace {
    /// How long after its standard input was closed a program may take to exit.
    pub close: Duration,
    /// How long after being told to terminate everything may take before it is killed.
    pub terminate: Duration,
}

impl Grace {
    const LONGEST: Duration = Duration::from_mins(1);

    /// The same, with no wait that is too long.
    pub(super) fn bounded(self) -> Self {
        Self { close: self.close.min(Self::LONGEST), terminate: self.terminate.min(Self::LONGEST) }
    }
}

impl Default for Grace {
    /// Two seconds for each.
    fn default() -> Self {
        Self { close: Duration::from_secs(2), terminate: Duration::from_secs(2) }
    }
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no name.
    #[error("the command is empty: name the program to start")]
    NoCommand,
    /// No directory of `PATH` has it.
    #[error(
        "spawn {command} ENOENT: no program called '{command}' in PATH; install it, or give its full path",
        command = command.escape_debug()
    )]
    NotInPath {
        /// The name.
        command: String,
    },
    /// There is nothing at the path.
    #[error(
        "spawn {command} ENOENT: there is no file {path}; install the program, or correct the path",
        command = command.escape_debug(), path = path.display().to_string().escape_debug()
    )]
    NoFile {
        /// The path as it was given.
        command: String,
        /// The path that was tried.
        path: PathBuf,
    },
    /// It is there, and is no program.
    #[error(
        "spawn {command} EACCES: {path} may not be run; make it executable, or name the program that runs it",
        command = command.escape_debug(), path = path.display().to_string().escape_debug()
    )]
    NotExecutable {
        /// The command as it was given.
        command: String,
        /// The file that was found.
        path: PathBuf,
    },
    /// The directory to start in is missing.
    #[error("there is no directory {} to start in; create it, or correct `cwd`", .0.display().to_string().escape_debug())]
    NoDirectory(PathBuf),
    /// A variable cannot have this name.
    #[error("an environment variable cannot be called {0:?}: its name is empty or has a '=' in it")]
    BadVariable(String),
    /// Something has a NUL in it, where the system ends it.
    #[error("{0} has a NUL character in it, which no program can be given; remove it")]
    Nul(String),
    /// The supervisor cannot be started.
    #[error("the supervisor {} cannot be started: {error}", program.display())]
    Supervisor {
        /// Its program.
        program: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The system refuses.
    #[error("spawn {command}: {error}", command = command.escape_debug())]
    Refused {
        /// The command as it was given.
        command: String,
        /// What the system says.
        error: io::Error,
    },
}
