//! A program and its descendants, on Windows: a job object, which ends with this process.

use std::process::{Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::process::Child;
use win32job::{ExtendedLimitInfo, Job};

/// A program and its descendants. Clones share them.
#[derive(Clone, Debug)]
pub(in crate::process) struct ProcessTree {
    program: u32,
    /// Job object; closing it kills all members, which the system does at the latest when this process exits.
    /// Without one, `taskkill` finds the children of the program.
    job: Arc<Mutex<Option<Job>>>,
}

impl ProcessTree {
    /// Creates the tree of a child process.
    pub(in crate::process) fn of_child(program: u32, child: &Child) -> Self {
        let job = create_job(child).inspect_err(|error| {
            tracing::warn!(%error, "Could not create a job object for a server; its child processes may keep running.");
        });
        Self { program, job: Arc::new(Mutex::new(job.ok())) }
    }

    /// Returns the running processes.
    pub(in crate::process) fn refresh(&mut self) -> Vec<u32> {
        let job = self.job.lock();
        if let Some(pids) = job.as_ref().and_then(|job| job.query_process_id_list().ok()) {
            return pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect();
        }
        drop(job);
        let filter = format!("PID eq {}", self.program);
        let listed = Command::new("tasklist").args(["/FI", &filter, "/NH", "/FO", "CSV"]).output();
        let quoted = format!("\"{}\"", self.program);
        let is_running = listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).contains(&quoted));
        if is_running { vec![self.program] } else { Vec::new() }
    }

    /// Asks the windows of the program to close.
    pub(in crate::process) fn terminate(&mut self) {
        self.task_kill(&["/T"]);
    }

    /// Kills all processes.
    pub(in crate::process) fn kill(&mut self) {
        let job = self.job.lock().take();
        if job.is_none() {
            self.task_kill(&["/T", "/F"]);
        }
    }

    fn task_kill(&self, switches: &[&str]) {
        let mut command = Command::new("taskkill");
        command.args(["/PID", &self.program.to_string()]).args(switches);
        // An exited process needs no signal.
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Creates a job object with the program in it. Its later children join automatically.
fn create_job(child: &Child) -> std::io::Result<Job> {
    let mut limits = ExtendedLimitInfo::new();
    limits.limit_kill_on_job_close();
    let job = Job::create_with_limit_info(&limits).map_err(std::io::Error::other)?;
    let handle = child.raw_handle().ok_or_else(|| std::io::Error::other("the program has exited"))?;
    job.assign_process(handle as isize).map_err(std::io::Error::other)?;
    Ok(job)
}
