//! Commands to run, and the errors of starting them.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use pegboard_core::redact::{Redactor, may_be_secret};
use pegboard_core::settings::mcp::ServerProgram;
use pegboard_wire::descriptors;

use super::plan::SpawnPlan;

/// A program to run.
///
/// ```
/// use pegboard_core::settings::mcp::ServerProgram;
/// use pegboard_providers::process::CommandSpec;
///
/// let args = vec!["-y".to_owned(), "some-server".to_owned()];
/// let spec = CommandSpec::new(ServerProgram { args, ..ServerProgram::new("npx") });
/// assert!(spec.supervisor.is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSpec {
    /// The program.
    pub program: ServerProgram,
    /// Supervisor; `None` if this process watches the program itself. Ignored on Windows.
    pub supervisor: Option<SupervisorCommand>,
    /// Grace periods of the shutdown.
    pub grace: GracePeriods,
}

impl CommandSpec {
    /// Creates a command that this process watches itself.
    pub fn new(program: ServerProgram) -> Self {
        Self { program, supervisor: None, grace: GracePeriods::default() }
    }

    /// Returns a redactor for the secrets in the environment of the program.
    pub(crate) fn redactor(&self) -> Redactor {
        let variables = self.program.env.iter().map(|(name, value)| (name, value.reveal()));
        let secrets = variables.filter(|(name, value)| may_be_secret(name, value));
        Redactor::with_escapes(secrets.map(|(_, value)| value))
    }

    /// Checks that the command can be started: its program and its directory exist.
    pub fn check(&self) -> Result<(), SpawnError> {
        SpawnPlan::resolve(self).map(drop)
    }
}

/// Command of a supervisor: a program that does nothing but call [`supervise`](super::supervise()).
///
/// It is started with `arguments`, `--` and the command to supervise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorCommand {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments that select the supervisor mode.
    pub arguments: Vec<OsString>,
}

/// Grace periods of a shutdown, each limited to one minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracePeriods {
    /// Time to exit after stdin was closed.
    pub close: Duration,
    /// Time to exit after SIGTERM, before SIGKILL.
    pub terminate: Duration,
}

impl GracePeriods {
    const MAX: Duration = Duration::from_mins(1);

    /// Limits both periods to the maximum.
    pub(super) fn bounded(self) -> Self {
        Self { close: self.close.min(Self::MAX), terminate: self.terminate.min(Self::MAX) }
    }
}

impl Default for GracePeriods {
    /// Two seconds each.
    fn default() -> Self {
        Self { close: Duration::from_secs(2), terminate: Duration::from_secs(2) }
    }
}

/// A program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The command is empty.
    #[error("the command is empty: specify the program to start")]
    EmptyCommand,
    /// The program is not in `PATH`.
    #[error(
        "spawn {command} ENOENT: '{command}' not found in PATH; install it, or specify its full path",
        command = command.escape_debug()
    )]
    NotInPath {
        /// The command.
        command: String,
    },
    /// The path does not exist.
    #[error(
        "spawn {command} ENOENT: {path} does not exist; install the program, or correct the path",
        command = command.escape_debug(), path = path.display().to_string().escape_debug()
    )]
    FileNotFound {
        /// Path from the configuration.
        command: String,
        /// Path that was tried.
        path: PathBuf,
    },
    /// The file is not executable.
    #[error(
        "spawn {command} EACCES: {path} is not executable; make it executable, or specify its interpreter",
        command = command.escape_debug(), path = path.display().to_string().escape_debug()
    )]
    NotExecutable {
        /// Command from the configuration.
        command: String,
        /// File that was found.
        path: PathBuf,
    },
    /// The working directory does not exist.
    #[error("directory {} does not exist; create it, or correct `cwd`", .0.display().to_string().escape_debug())]
    DirectoryNotFound(PathBuf),
    /// The name of a variable is invalid.
    #[error("invalid environment variable name {0:?}: it is empty or contains '='")]
    InvalidVariableName(String),
    /// A string contains a NUL character, which cannot be passed to a program.
    #[error("{0} contains a NUL character; remove it")]
    Nul(String),
    /// The supervisor cannot be started.
    #[error("cannot start the supervisor {}: {error}", program.display())]
    Supervisor {
        /// Program of the supervisor.
        program: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// This process has no file descriptors left for the pipes of the program.
    #[error("too many open files in this process")]
    TooManyFiles,
    /// The operating system refused to start the program.
    #[error("spawn {command}: {error}", command = command.escape_debug())]
    Refused {
        /// Command from the configuration.
        command: String,
        /// Error of the operating system.
        error: io::Error,
    },
}

impl SpawnError {
    /// Creates the error for a program that the operating system did not start.
    pub(super) fn refused(command: &str, error: io::Error) -> Self {
        if descriptors::are_exhausted(&error) {
            return Self::TooManyFiles;
        }
        Self::Refused { command: command.to_owned(), error }
    }

    /// Creates the error for a supervisor that could not be started.
    #[cfg(unix)]
    pub(super) fn supervisor(supervisor: &SupervisorCommand, error: io::Error) -> Self {
        if descriptors::are_exhausted(&error) {
            return Self::TooManyFiles;
        }
        Self::Supervisor { program: supervisor.program.clone(), error }
    }

    /// Returns the remedy.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::EmptyCommand
            | Self::NotInPath { .. }
            | Self::FileNotFound { .. }
            | Self::NotExecutable { .. }
            | Self::Refused { .. } => "Fix its `command`.",
            Self::DirectoryNotFound(_) => "Fix its `cwd`.",
            Self::InvalidVariableName(_) => "Fix its `env`.",
            Self::Nul(_) => "Remove the NUL character from its settings.",
            Self::Supervisor { .. } => "Check the installation of Pegboard.",
            Self::TooManyFiles => {
                "Raise the limit of open files of this process, for example with `ulimit -n 65536`."
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_lack_of_file_descriptors_is_not_the_fault_of_the_command() {
        let supervisor = SupervisorCommand { program: "/bin/pegboard".into(), arguments: Vec::new() };
        for errno in [Errno::MFILE, Errno::NFILE] {
            let errors =
                [SpawnError::refused("npx", errno.into()), SpawnError::supervisor(&supervisor, errno.into())];
            for error in errors {
                let text = format!("{error}. {}", error.fix());
                assert_eq!(
                    text,
                    "too many open files in this process. Raise the limit of open files of this process, for example with \
                     `ulimit -n 65536`."
                );
            }
        }
        let error = SpawnError::refused("npx", Errno::ACCESS.into());
        assert_eq!(error.fix(), "Fix its `command`.");
    }
}
