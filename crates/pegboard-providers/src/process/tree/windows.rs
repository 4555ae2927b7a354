//! A program and everything it started, on Windows: a job, which ends with this process however that ends.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::process::Child;
use win32job::{ExtendedLimitInfo, Job};

/// A program and everything it started. Clones are the same.
#[derive(Clone, Debug)]
pub(in crate::process) struct Tree {
    program: u32,
    /// Everyone in it is killed when it is closed, which the system does at the latest when this process is gone.
    /// Without one, the system's own tools know the children of the program.
    job: Arc<Mutex<Option<Job>>>,
}

impl Tree {
    /// A child of this process and everything below it.
    pub(in crate::process) fn of_child(program: u32, child: &Child) -> Self {
        let job = job_of(child).inspect_err(|error| {
            tracing::warn!(%error, "The system gives no job for a server, so what it leaves behind may run on.");
        });
        Self { program, job: Arc::new(Mutex::new(job.ok())) }
    }

    /// Everyone who runs.
    pub(in crate::process) fn look(&mut self) -> Vec<u32> {
        let job = self.job.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pids) = job.as_ref().and_then(|job| job.query_process_id_list().ok()) {
            return pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()).collect();
        }
        drop(job);
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
        let job = self.job.lock().unwrap_or_else(PoisonError::into_inner).take();
        if job.is_none() {
            self.task_kill(&["/T", "/F"]);
        }
    }

    fn task_kill(&self, switches: &[&str]) {
        let mut command = Command::new("taskkill");
        command.args(["/PID", &self.program.to_string()]).args(switches);
        // Who is gone by now needs no killing.
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// A job with the program in it. What it starts from now on is in it, too.
fn job_of(child: &Child) -> std::io::Result<Job> {
    let mut limits = ExtendedLimitInfo::new();
    limits.limit_kill_on_job_close();
    let job = Job::create_with_limit_info(&limits).map_err(std::io::Error::other)?;
    let handle = child.raw_handle().ok_or_else(|| std::io::Error::other("the program has ended"))?;
    job.assign_process(handle as isize).map_err(std::io::Error::other)?;
    Ok(job)
}
