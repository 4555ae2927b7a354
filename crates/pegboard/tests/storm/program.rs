//! The gateway process and its directory.

use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

/// A directory with a configuration.
pub(super) struct TestDirectory(TempDir);

impl TestDirectory {
    pub(super) fn with(configuration: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("pegboard.json"), configuration.to_string()).unwrap();
        Self(folder)
    }

    /// Starts the program with these arguments.
    pub(super) fn serving(&self, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pegboard"));
        command
            .current_dir(self.0.path())
            .args(["serve", "pegboard.json", "--no-daemon"])
            .args(options)
            .env("PEGBOARD_STATE", self.0.path().join("state"))
            .env_remove("WORKBENCH_CONFIG")
            .env_remove("PEGBOARD_LOG");
        command
    }
}

/// A running gateway.
pub(super) struct Program {
    pub(super) child: Child,
    lines: Lines<BufReader<ChildStderr>>,
}

impl Program {
    pub(super) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Next line of standard error with this prefix.
    pub(super) async fn wait_for_line(&mut self, begins: &str) -> String {
        loop {
            let line = self.lines.next_line().await.unwrap().expect("it runs");
            if line.starts_with(begins) {
                return line;
            }
        }
    }
}
