//! Processes, as the system sees them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use uuid::Uuid;

/// Longer than anything takes on a busy machine; who waits for so long has failed.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// The program with the hostile servers and the small gateway, built as this test is.
pub(crate) fn testkit() -> &'static str {
    static PROGRAM: LazyLock<String> = LazyLock::new(|| {
        let own = std::env::current_exe().unwrap();
        let folder = own.ancestors().nth(2).unwrap();
        let profile = match folder.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            profile => profile,
        };
        // It is a program of another package, which is not built for a test of this one.
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

/// What all processes of one case have in their environment, wherever they went.
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

    /// The processes that have it, with their commands.
    pub(crate) fn processes(&self) -> Vec<String> {
        let marked = format!("{}={}", Self::VARIABLE, self.0);
        let has_it = |folder: &Path| {
            // Whoever has just ended, or is somebody else's, cannot be read.
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

    /// Waits until nobody has it any more.
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

/// The most memory that a process has had, in KiB.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A moment until the system or a file is looked at again, of which nobody tells news.
pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}
