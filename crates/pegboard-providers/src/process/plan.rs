//! A launch that was looked over: its program found, its environment made.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf, absolute};

use indexmap::IndexMap;

use super::environment;
use super::launch::{Launch, LaunchError};

/// Where programs are if no `PATH` says so.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// What a program may be called on Windows if no `PATHEXT` says so.
const USUAL_EXTENSIONS: &str = ".COM;.EXE;.BAT;.CMD";

/// What will be started.
pub(super) struct Plan<'l> {
    pub(super) launch: &'l Launch,
    pub(super) program: PathBuf,
    pub(super) environment: IndexMap<OsString, OsString>,
}

impl<'l> Plan<'l> {
    /// Finds the program and makes its environment.
    pub(super) fn of(launch: &'l Launch) -> Result<Self, LaunchError> {
        check_texts(launch)?;
        if let Some(directory) = &launch.cwd
            && !directory.is_dir()
        {
            return Err(LaunchError::NoDirectory(directory.clone()));
        }
        let environment = environment::of(&launch.env, std::env::vars_os());
        let program = find(launch, &environment)?;
        Ok(Self { launch, program, environment })
    }

    /// What starts `program` in the place and with the variables of this plan.
    pub(super) fn command(&self, program: &Path) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(program);
        command.env_clear().envs(&self.environment);
        if let Some(directory) = &self.launch.cwd {
            command.current_dir(directory);
        }
        command
    }
}

/// Refuses what no system can hand to a program.
fn check_texts(launch: &Launch) -> Result<(), LaunchError> {
    let Launch { command, args, env, cwd, supervisor: _, grace: _ } = launch;
    if command.is_empty() {
        return Err(LaunchError::NoCommand);
    }
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains('=')) {
        return Err(LaunchError::BadVariable(name.clone()));
    }
    let has_nul = |text: &str| text.contains('\0');
    let place = if has_nul(command) {
        "the command".to_owned()
    } else if let Some(index) = args.iter().position(|argument| has_nul(argument)) {
        format!("argument {}", index + 1)
    } else if let Some((name, _)) = env.iter().find(|(name, value)| has_nul(name) || has_nul(value)) {
        format!("the environment variable {name:?}")
    } else if cwd.as_ref().is_some_and(|cwd| cwd.as_os_str().as_encoded_bytes().contains(&0)) {
        "`cwd`".to_owned()
    } else {
        return Ok(());
    };
    Err(LaunchError::Nul(place))
}

/// The full path of the program.
fn find(launch: &Launch, environment: &IndexMap<OsString, OsString>) -> Result<PathBuf, LaunchError> {
    let variable = |name: &str| {
        let is_it =
            |known: &OsStr| if cfg!(windows) { known.eq_ignore_ascii_case(name) } else { known == name };
        environment.iter().find(|(known, _)| is_it(known)).map(|(_, value)| value.as_os_str())
    };
    let command = launch.command.clone();
    let names = file_names(&command, variable("PATHEXT"));
    let here = |path: PathBuf| {
        let path = launch.cwd.as_ref().map_or(path.clone(), |cwd| cwd.join(path));
        // Fails only for an empty path, and for a current directory that is gone.
        absolute(&path).unwrap_or(path)
    };

    let is_path = command.contains('/') || (cfg!(windows) && command.contains(['\\', ':']));
    let folders: Vec<PathBuf> = if is_path {
        vec![PathBuf::new()]
    } else {
        let path = variable("PATH").unwrap_or(OsStr::new(USUAL_PATH));
        std::env::split_paths(path).filter(|folder| !folder.as_os_str().is_empty()).collect()
    };
    let files = folders.iter().flat_map(|folder| names.iter().map(|name| here(folder.join(name))));
    let mut not_executable = None;
    for path in files.filter(|path| path.exists()) {
        if is_executable(&path) {
            return Ok(path);
        }
        not_executable.get_or_insert(path);
    }
    Err(match not_executable {
        Some(path) => LaunchError::NotExecutable { command, path },
        None if is_path => LaunchError::NoFile { path: here(command.clone().into()), command },
        None => LaunchError::NotInPath { command },
    })
}

/// What the file of a command may be called: on Windows `npx` is `npx.cmd`, and the `npx` beside it is for others.
fn file_names(command: &str, extensions: Option<&OsStr>) -> Vec<String> {
    if !cfg!(windows) {
        return vec![command.to_owned()];
    }
    let extensions = extensions.and_then(OsStr::to_str).unwrap_or(USUAL_EXTENSIONS);
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
