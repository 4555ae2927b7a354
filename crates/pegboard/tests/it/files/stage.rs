//! Isolated home directory for commands.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A home directory with a project. Commands read and write nothing outside of it.
pub(crate) struct Stage {
    folder: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let stage = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::create_dir_all(stage.home()).unwrap();
        std::fs::create_dir_all(stage.project()).unwrap();
        stage
    }

    /// Creates the directories and a file in the project.
    pub(crate) fn with(name: &str, text: &str) -> Self {
        let stage = Self::new();
        stage.write(name, text);
        stage
    }

    /// Adds a configuration of the user.
    pub(crate) fn configured(self) -> Self {
        self.write("~/.config/pegboard/pegboard.yaml", "mcpServers: {}\n");
        self
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.folder.path().join("home/project")
    }

    /// Writes a file in the project, or in the home directory: `~/.cursor/mcp.json`.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match name.strip_prefix("~/") {
            Some(name) => self.home().join(name),
            None => self.project().join(name),
        }
    }

    pub(crate) fn command(&self, line: &str) -> Command {
        self.command_of(&line.split_whitespace().collect::<Vec<_>>())
    }

    pub(crate) fn command_of(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pegboard"));
        command.args(arguments).current_dir(self.project()).env_clear();
        command.env("HOME", self.home()).env("USERPROFILE", self.home()).env("PATH", "/nowhere");
        command
            .env("APPDATA", self.home().join("AppData"))
            .env("LOCALAPPDATA", self.home().join("LocalAppData"));
        command.env("XDG_STATE_HOME", self.home().join("state"));
        command.env("PEGBOARD_KEYRING", "off");
        command.env("XDG_CONFIG_HOME", self.home().join(".config"));
        command
    }

    /// Runs a command and returns its output and exit code.
    pub(crate) fn run(&self, line: &str) -> String {
        self.told(&mut self.command(line))
    }

    /// Same as `run`, for arguments with spaces.
    pub(crate) fn run_of(&self, arguments: &[&str]) -> String {
        self.told(&mut self.command_of(arguments))
    }

    pub(crate) fn told(&self, command: &mut Command) -> String {
        let output = command.output().unwrap();
        let mut told = String::new();
        let (out, err) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        told.push_str(&out);
        if !err.is_empty() {
            write!(told, "(stderr) {err}").unwrap();
        }
        if !output.status.success() {
            write!(told, "(exit {})", output.status.code().unwrap()).unwrap();
        }
        self.without_paths(&told)
    }

    /// Replaces temporary paths and the token in a text.
    pub(crate) fn without_paths(&self, text: &str) -> String {
        let real = |path: &Path| path.canonicalize().unwrap().display().to_string();
        let program = Path::new(env!("CARGO_BIN_EXE_pegboard"));
        let token = std::fs::read_to_string(self.home().join("state/pegboard/token"));
        let token = token.map_or_else(|_| "no token yet".to_owned(), |token| token.trim().to_owned());
        text.replace(&real(program), "/bin/pegboard")
            .replace(&program.display().to_string(), "/bin/pegboard")
            .replace(&real(&self.home()), "~")
            .replace(&self.home().display().to_string(), "~")
            .replace(&token, "TOKEN")
    }
}
