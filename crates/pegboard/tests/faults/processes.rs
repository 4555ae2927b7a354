//! Inspection of processes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use uuid::Uuid;

/// Timeout after which a test fails, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// Path of the testkit program, built with the same profile.
pub(crate) fn testkit() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let own = std::env::current_exe().unwrap();
        let folder = own.ancestors().nth(2).unwrap();
        let profile = match folder.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            profile => profile,
        };
        // It belongs to another package, which is not built with this test.
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "pegboard-testkit", "--bin", "pegboard-testkit"])
            .args(["--profile", profile, "--target-dir"])
            .arg(folder.parent().unwrap())
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(built.unwrap().success(), "pegboard-testkit cannot be built");
        folder.join("pegboard-testkit").to_str().unwrap().to_owned()
    });
    &PROGRAM
}

/// Environment variable that marks all processes of a case.
#[derive(Clone, Debug)]
pub(crate) struct Marker(String);

impl Marker {
    pub(crate) const VARIABLE: &str = "PEGBOARD_FAULT_CASE";

    pub(crate) fn new() -> Self {
        Self(Uuid::new_v4().to_string())
    }

    pub(crate) fn value(&self) -> &str {
        &self.0
    }

    /// Marked processes with their command lines.
    pub(crate) fn processes(&self) -> Vec<String> {
        let marked = format!("{}={}", Self::VARIABLE, self.0);
        let has_it = |folder: &Path| {
            // Processes that have exited or belong to other users cannot be read.
            let environment = fs::read(folder.join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == marked.as_bytes())
        };
        let folders = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
        let marked = folders.filter(|folder| has_it(folder));
        marked
            .map(|folder| {
                let command = fs::read_to_string(folder.join("cmdline")).unwrap_or_default();
                format!("{} {}", folder.file_name().unwrap().display(), command.replace('\0', " "))
            })
            .collect()
    }

    /// Waits until no marked process is left.
    pub(crate) async fn is_gone(&self) {
        let begun = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < LONG, "processes are left: {left:#?}");
            pause().await;
        }
    }
}

/// Peak memory of a process, in KiB.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Poll interval for processes and files.
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}
