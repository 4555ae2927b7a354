//! A program and everything it started, on Windows, as well as the system's own tools know it.

use std::process::{Command, Stdio};

/// A program and its children.
#[derive(Clone, Debug)]
pub(in crate::process) struct Tree {
    program: u32,
}

impl Tree {
    /// A program and everything below it.
    pub(in crate::process) fn of(program: u32) -> Self {
        Self { program }
    }

    /// The program, if it runs.
    pub(in crate::process) fn look(&mut self) -> Vec<u32> {
        let filter = format!("PID eq {}", self.program);
        let listed = Command::new("tasklist").args(["/FI", &filter, "/NH", "/FO", "CSV"]).output();
        let quoted = format!("\"{}\"", self.program);
        let runs = listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains(&quoted));
        if runs { vec![self.program] } else { Vec::new() }
    }

    /// Asks the windows of the program to close.
    pub(in crate::process) fn terminate(&mut self) {
        self.task_kill(&["/T"]);
    }

    /// Kills everyone.
    pub(in crate::process) fn kill(&mut self) {
        self.task_kill(&["/T", "/F"]);
    }

    fn task_kill(&self, switches: &[&str]) {
        let mut command = Command::new("taskkill");
        command.args(["/PID", &self.program.to_string()]).args(switches);
        // Who is gone by now needs no killing.
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
