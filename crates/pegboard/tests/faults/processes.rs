//! Inspection of processes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use uuid::Uuid;

/// Timeout after which a test fails, even on a busy machine.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns the path of the testkit.
pub(crate) fn testkit() -> &'static str {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| pegboard_testkit::example::path("testkit"));
    PROGRAM.to_str().unwrap()
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
    pub(crate) async fn wait_until_gone(&self) {
        let begun = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < TEST_TIMEOUT, "processes are left: {left:#?}");
            poll_interval().await;
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
pub(crate) async fn poll_interval() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}
