//! Resolution of a command: its program found, its environment built.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf, absolute};

use indexmap::IndexMap;
use pegboard_core::settings::mcp::ServerProgram;

use super::command::{CommandSpec, SpawnError};
use super::environment;

/// Search path if `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Extensions of programs on Windows if `PATHEXT` is not set.
const DEFAULT_EXTENSIONS: &str = ".COM;.EXE;.BAT;.CMD";

/// A command that is ready to be spawned.
pub(super) struct SpawnPlan<'l> {
    pub(super) spec: &'l CommandSpec,
    pub(super) program: PathBuf,
    pub(super) environment: IndexMap<OsString, OsString>,
}

impl<'l> SpawnPlan<'l> {
    /// Checks the command, finds the program and builds its environment.
    pub(super) fn resolve(spec: &'l CommandSpec) -> Result<Self, SpawnError> {
        check_strings(&spec.program)?;
        if let Some(directory) = &spec.program.cwd
            && !directory.is_dir()
        {
            return Err(SpawnError::DirectoryNotFound(directory.clone()));
        }
        let environment = environment::build(&spec.program.env, std::env::vars_os());
        let program = find_program(&spec.program, &environment)?;
        Ok(Self { spec, program, environment })
    }

    /// Returns a command that runs `program` in the directory and with the environment of this plan.
    pub(super) fn command(&self, program: &Path) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(program);
        command.env_clear().envs(&self.environment);
        if let Some(directory) = &self.spec.program.cwd {
            command.current_dir(directory);
        }
        command
    }
}

/// Rejects strings that the operating system cannot pass to a program.
fn check_strings(program: &ServerProgram) -> Result<(), SpawnError> {
    let ServerProgram { command, args, env, cwd } = program;
    if command.is_empty() {
        return Err(SpawnError::EmptyCommand);
    }
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains('=')) {
        return Err(SpawnError::InvalidVariableName(name.clone()));
    }
    let has_nul = |text: &str| text.contains('\0');
    let place = if has_nul(command) {
        "the command".to_owned()
    } else if let Some(index) = args.iter().position(|argument| has_nul(argument)) {
        format!("argument {}", index + 1)
    } else if let Some((name, _)) = env.iter().find(|(name, value)| has_nul(name) || has_nul(value.reveal()))
    {
        format!("the environment variable {name:?}")
    } else if cwd.as_ref().is_some_and(|cwd| cwd.as_os_str().as_encoded_bytes().contains(&0)) {
        "`cwd`".to_owned()
    } else {
        return Ok(());
    };
    Err(SpawnError::Nul(place))
}

/// Returns the absolute path of the program.
fn find_program(
    program: &ServerProgram,
    environment: &IndexMap<OsString, OsString>,
) -> Result<PathBuf, SpawnError> {
    let variable = |name: &str| {
        let is_name =
            |known: &OsStr| if cfg!(windows) { known.eq_ignore_ascii_case(name) } else { known == name };
        environment.iter().find(|(known, _)| is_name(known)).map(|(_, value)| value.as_os_str())
    };
    let command = program.command.clone();
    let names = file_names(&command, variable("PATHEXT"));
    let to_absolute = |path: PathBuf| {
        let path = program.cwd.as_ref().map_or(path.clone(), |cwd| cwd.join(path));
        // Fails only for an empty path, and if the current directory is gone.
        absolute(&path).unwrap_or(path)
    };

    let is_path = command.contains('/') || (cfg!(windows) && command.contains(['\\', ':']));
    let directories: Vec<PathBuf> = if is_path {
        vec![PathBuf::new()]
    } else {
        let path = variable("PATH").unwrap_or(OsStr::new(DEFAULT_PATH));
        std::env::split_paths(path).filter(|directory| !directory.as_os_str().is_empty()).collect()
    };
    let files =
        directories.iter().flat_map(|directory| names.iter().map(|name| to_absolute(directory.join(name))));
    let mut not_executable = None;
    for path in files.filter(|path| path.exists()) {
        if is_executable(&path) {
            return Ok(path);
        }
        not_executable.get_or_insert(path);
    }
    Err(match not_executable {
        Some(path) => SpawnError::NotExecutable { command, path },
        None if is_path => SpawnError::FileNotFound { path: to_absolute(command.clone().into()), command },
        None => SpawnError::NotInPath { command },
    })
}

/// Returns the possible file names of a command: on Windows `npx` is `npx.cmd`; the file `npx` next to it is
/// a shell script.
fn file_names(command: &str, extensions: Option<&OsStr>) -> Vec<String> {
    if !cfg!(windows) {
        return vec![command.to_owned()];
    }
    let extensions = extensions.and_then(OsStr::to_str).unwrap_or(DEFAULT_EXTENSIONS);
    let extensions: Vec<&str> = extensions.split(';').filter(|extension| !extension.is_empty()).collect();
    let lower = command.to_ascii_lowercase();
    if extensions.iter().any(|extension| lower.ends_with(&extension.to_ascii_lowercase())) {
        return vec![command.to_owned()];
    }
    extensions.iter().map(|extension| format!("{command}{extension}")).collect()
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;

    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}
