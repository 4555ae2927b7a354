//! The parent's view of a program that runs under a supervisor.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use bytes::{Buf, BytesMut};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::SetOnce;

use super::command::{GracePeriods, SpawnError, SupervisorCommand};
use super::control::{STOP_BYTE, SupervisorReport, send_setup};
use super::exit::ProcessExit;
use super::plan::SpawnPlan;
use super::tree::ProcessTree;
use super::waiter::{SpawnedProcess, WatchedProcess};

/// Environment variable of a supervised program with an id of its own, by which its descendants are found if
/// the supervisor is killed.
const MARKER: &str = "PEGBOARD_SUPERVISED";

/// A supervisor and its control socket. Dropping it makes the supervisor end everything.
#[derive(Debug)]
pub(super) struct SupervisedProcess {
    supervisor: Child,
    control: tokio::net::UnixStream,
    received: BytesMut,
    pid: Arc<SetOnce<u32>>,
    /// Value of [`MARKER`].
    marker: String,
    /// Processes left by a supervisor that was killed.
    orphans: Option<ProcessTree>,
}

/// Starts a supervisor that starts the program.
pub(super) fn start(
    plan: &SpawnPlan<'_>,
    supervisor: &SupervisorCommand,
    grace: GracePeriods,
) -> Result<SpawnedProcess, SpawnError> {
    try_start(plan, supervisor, grace).map_err(|error| SpawnError::supervisor(supervisor, error))
}

fn try_start(
    plan: &SpawnPlan<'_>,
    supervisor: &SupervisorCommand,
    grace: GracePeriods,
) -> io::Result<SpawnedProcess> {
    let (child_stdin, stdin) = io::pipe()?;
    let (stdout, child_stdout) = io::pipe()?;
    let (stderr, child_stderr) = io::pipe()?;
    let (control, child_control) = UnixStream::pair()?;
    let child_pipes = [child_stdin.as_fd(), child_stdout.as_fd(), child_stderr.as_fd()];
    send_setup(&control, child_pipes, grace.bounded().terminate)?;
    control.set_nonblocking(true)?;

    let mut command = plan.command(&supervisor.program);
    let marker = format!("{:032x}", rand::random::<u128>());
    command.env(MARKER, &marker);
    command.args(&supervisor.arguments).arg("--").arg(&plan.program).args(&plan.spec.program.args);
    // The supervisor's own messages go to the stderr of the program.
    command.stdin(OwnedFd::from(child_control)).stdout(Stdio::null()).stderr(child_stderr);
    let control = tokio::net::UnixStream::from_std(control)?;
    let stdin = ChildStdin::from_std(OwnedFd::from(stdin).into())?;
    let stdout = ChildStdout::from_std(OwnedFd::from(stdout).into())?;
    let stderr = ChildStderr::from_std(OwnedFd::from(stderr).into())?;
    let pid = Arc::default();
    let supervisor = command.spawn()?;
    let supervised = SupervisedProcess {
        supervisor,
        control,
        received: BytesMut::new(),
        pid: Arc::clone(&pid),
        marker,
        orphans: None,
    };
    Ok(SpawnedProcess { stdin, stdout, stderr, pid, watched: WatchedProcess::Supervised(supervised) })
}

impl SupervisedProcess {
    /// Waits for the exit of the program.
    pub(super) async fn exit(&mut self) -> ProcessExit {
        loop {
            while let Some(&report) = self.received.first_chunk() {
                self.received.advance(SupervisorReport::LEN);
                match SupervisorReport::from_bytes(report) {
                    Some(SupervisorReport::Started(pid)) => {
                        // Each supervisor starts one program.
                        let _ = self.pid.set(pid);
                    }
                    Some(SupervisorReport::Exited(status)) => return ExitStatus::from_raw(status).into(),
                    None => return self.supervisor_lost().await,
                }
            }
            match self.control.read_buf(&mut self.received).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return self.supervisor_lost().await,
            }
        }
    }

    /// Takes over after the supervisor was killed: its processes are looked up and killed.
    async fn supervisor_lost(&mut self) -> ProcessExit {
        let tree = |&pid: &u32| ProcessTree::rooted_at(pid).with_marker(MARKER, &self.marker);
        self.orphans = self.pid.get().map(tree);
        self.kill().await;
        ProcessExit::UNKNOWN
    }

    /// Tells the supervisor to end everything, with its own grace period.
    pub(super) async fn terminate(&mut self) {
        // A failed write means that it is gone or already ending.
        let _ = rustix::io::write(&self.control, &[STOP_BYTE]);
        self.kill().await;
    }

    /// Kills orphaned processes. A supervisor kills its own processes and must exit last; if it was stopped
    /// by a signal it is continued.
    pub(super) async fn kill(&mut self) {
        let supervisor = self.supervisor.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(supervisor) = supervisor {
            // It has not been reaped, so the id is still its own.
            let _ = kill_process(supervisor, Signal::CONT);
        }
        if let Some(mut orphans) = self.orphans.clone() {
            let killed = tokio::task::spawn_blocking(move || {
                orphans.kill();
                orphans
            });
            self.orphans = killed.await.ok().or(self.orphans.take());
        }
    }

    /// Returns `true` if no process is left: the supervisor exits last, unless it was killed.
    pub(super) async fn has_fully_exited(&mut self) -> bool {
        match &self.orphans {
            Some(orphans) => list_running(orphans.clone()).await.is_empty(),
            None => !matches!(self.supervisor.try_wait(), Ok(None)),
        }
    }

    /// Returns the ids of the running processes.
    pub(super) async fn still_running(&mut self) -> Vec<u32> {
        match (&self.orphans, self.supervisor.id()) {
            (Some(orphans), _) => list_running(orphans.clone()).await,
            (None, Some(supervisor)) => list_running(ProcessTree::rooted_at(supervisor)).await,
            (None, None) => Vec::new(),
        }
    }
}

async fn list_running(mut tree: ProcessTree) -> Vec<u32> {
    tokio::task::spawn_blocking(move || tree.refresh()).await.unwrap_or_default()
}
