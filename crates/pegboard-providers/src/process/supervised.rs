//! A program that a supervisor watches, seen from the process that started both.

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

use super::control::{END, Report, hand_over};
use super::exit::Exit;
use super::keeper::{Kept, Started};
use super::launch::{Grace, LaunchError, Supervisor};
use super::plan::Plan;
use super::tree::Tree;

/// A supervisor and what is heard from it. Dropping it makes the supervisor end everything.
#[derive(Debug)]
pub(super) struct Supervised {
    supervisor: Child,
    control: tokio::net::UnixStream,
    heard: BytesMut,
    pid: Arc<SetOnce<u32>>,
    /// What a supervisor that was killed has left behind.
    orphans: Option<Tree>,
}

/// Starts a supervisor that starts the program.
pub(super) fn start(plan: &Plan<'_>, supervisor: &Supervisor, grace: Grace) -> Result<Started, LaunchError> {
    try_start(plan, supervisor, grace)
        .map_err(|error| LaunchError::Supervisor { program: supervisor.program.clone(), error })
}

fn try_start(plan: &Plan<'_>, supervisor: &Supervisor, grace: Grace) -> io::Result<Started> {
    let (their_stdin, stdin) = io::pipe()?;
    let (stdout, their_stdout) = io::pipe()?;
    let (stderr, their_stderr) = io::pipe()?;
    let (control, their_control) = UnixStream::pair()?;
    let theirs = [their_stdin.as_fd(), their_stdout.as_fd(), their_stderr.as_fd()];
    hand_over(&control, theirs, grace.bounded().terminate)?;
    control.set_nonblocking(true)?;

    let mut command = plan.command(&supervisor.program);
    command.args(&supervisor.arguments).arg("--").arg(&plan.program).args(&plan.launch.args);
    // What it has to say itself it says where the program would.
    command.stdin(OwnedFd::from(their_control)).stdout(Stdio::null()).stderr(their_stderr);
    let control = tokio::net::UnixStream::from_std(control)?;
    let stdin = ChildStdin::from_std(OwnedFd::from(stdin).into())?;
    let stdout = ChildStdout::from_std(OwnedFd::from(stdout).into())?;
    let stderr = ChildStderr::from_std(OwnedFd::from(stderr).into())?;
    let pid = Arc::default();
    let supervisor = command.spawn()?;
    let supervised =
        Supervised { supervisor, control, heard: BytesMut::new(), pid: Arc::clone(&pid), orphans: None };
    Ok(Started { stdin, stdout, stderr, pid, kept: Kept::Supervised(supervised) })
}

impl Supervised {
    /// How the program ends, when it does.
    pub(super) async fn exit(&mut self) -> Exit {
        loop {
            while let Some(&report) = self.heard.first_chunk() {
                self.heard.advance(Report::LENGTH);
                match Report::from_bytes(report) {
                    Some(Report::Started(pid)) => {
                        // It starts one program.
                        let _ = self.pid.set(pid);
                    }
                    Some(Report::Exited(status)) => return ExitStatus::from_raw(status).into(),
                    None => return self.lost().await,
                }
            }
            match self.control.read_buf(&mut self.heard).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => return self.lost().await,
            }
        }
    }

    /// Somebody killed the supervisor. What it watched can still be ended, by looking for it.
    async fn lost(&mut self) -> Exit {
        self.orphans = self.pid.get().map(|&pid| Tree::of(pid));
        self.kill().await;
        Exit::UNKNOWN
    }

    /// Tells the supervisor to end everything, in its own time.
    pub(super) async fn terminate(&mut self) {
        // If it does not take this, it is gone or at it already.
        let _ = rustix::io::write(&self.control, &[END]);
        self.kill().await;
    }

    /// Kills what nobody watches. A supervisor does so itself, and must not go before what it watches; at most it
    /// was stopped by somebody.
    pub(super) async fn kill(&mut self) {
        let supervisor = self.supervisor.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        if let Some(supervisor) = supervisor {
            // Nobody has waited for it, so the number is its own.
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

    /// Whether nothing runs any more: a supervisor goes last, unless it was killed.
    pub(super) async fn is_clear(&mut self) -> bool {
        match &self.orphans {
            Some(orphans) => look(orphans.clone()).await.is_empty(),
            None => !matches!(self.supervisor.try_wait(), Ok(None)),
        }
    }

    /// What still runs.
    pub(super) async fn left(&mut self) -> Vec<u32> {
        match (&self.orphans, self.supervisor.id()) {
            (Some(orphans), _) => look(orphans.clone()).await,
            (None, Some(supervisor)) => look(Tree::of(supervisor)).await,
            (None, None) => Vec::new(),
        }
    }
}

async fn look(mut tree: Tree) -> Vec<u32> {
    tokio::task::spawn_blocking(move || tree.look()).await.unwrap_or_default()
}
