//! The task that waits for a program and ends it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{SetOnce, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::command::GracePeriods;
use super::direct::DirectProcess;
use super::exit::ProcessExit;
use super::stderr::{self, LineForwarder, StderrTail};
use super::stdio::{self, StdinCloser};
#[cfg(unix)]
use super::supervised::SupervisedProcess;
use super::{Process, ShutdownOutcome, Stdin, Stdout};

/// Grace period for descendants that outlive a program which exited by itself.
pub(super) const LEFTOVER_GRACE: Duration = Duration::from_millis(500);
/// Time limit for killed processes to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
/// Initial and maximum interval between checks for remaining processes.
const POLL_INTERVALS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(200)];
/// Time limit for reading the rest of stderr after an exit. It is in the pipe by then, but another process
/// may hold the pipe open, so that its end never comes.
const STDERR_DRAIN_TIMEOUT: Duration = Duration::from_millis(100);

/// A program that was just started.
#[derive(Debug)]
pub(super) struct SpawnedProcess {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) pid: Arc<SetOnce<u32>>,
    pub(super) watched: WatchedProcess,
}

/// A program that is watched directly or through a supervisor.
#[derive(Debug)]
pub(super) enum WatchedProcess {
    Direct(DirectProcess),
    #[cfg(unix)]
    Supervised(SupervisedProcess),
}

impl WatchedProcess {
    /// Waits for the exit of the program. Cancel-safe.
    async fn exit(&mut self) -> ProcessExit {
        match self {
            Self::Direct(direct) => direct.exit().await,
            #[cfg(unix)]
            Self::Supervised(supervised) => supervised.exit().await,
        }
    }

    async fn terminate(&mut self) {
        match self {
            Self::Direct(direct) => direct.terminate().await,
            #[cfg(unix)]
            Self::Supervised(supervised) => supervised.terminate().await,
        }
    }

    async fn kill(&mut self) {
        match self {
            Self::Direct(direct) => direct.kill().await,
            #[cfg(unix)]
            Self::Supervised(supervised) => supervised.kill().await,
        }
    }

    /// Returns `true` if no process is left, once the program has exited.
    async fn has_fully_exited(&mut self) -> bool {
        match self {
            Self::Direct(direct) => direct.still_running().await.is_empty(),
            #[cfg(unix)]
            Self::Supervised(supervised) => supervised.has_fully_exited().await,
        }
    }

    /// Returns the ids of the running processes.
    async fn still_running(&mut self) -> Vec<u32> {
        match self {
            Self::Direct(direct) => direct.still_running().await,
            #[cfg(unix)]
            Self::Supervised(supervised) => supervised.still_running().await,
        }
    }
}

/// Task that waits for a program, and ends it when its owner requests that or is gone.
pub(super) struct ProcessWaiter {
    watched: WatchedProcess,
    grace: GracePeriods,
    stdin: StdinCloser,
    stderr: JoinHandle<()>,
    exit: Option<ProcessExit>,
    exited: watch::Sender<Option<ProcessExit>>,
}

impl ProcessWaiter {
    /// Spawns the task for a program.
    pub(super) fn spawn(
        started: SpawnedProcess,
        grace: GracePeriods,
        forwarder: LineForwarder,
    ) -> io::Result<(Process, Stdin, Stdout)> {
        let SpawnedProcess { stdin, stdout, stderr, pid, watched } = started;
        let (stdin, closer, stdin_closed) = stdio::stdin(stdin)?;
        let tail: Arc<Mutex<StderrTail>> = Arc::default();
        let stderr = tokio::spawn(stderr::read_stderr(stderr, Arc::clone(&tail), forwarder));
        let (exited, exited_rx) = watch::channel(None);
        let (stop_on_drop, stop_requested) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        let waiter = Self { watched, grace: grace.bounded(), stdin: closer, stderr, exit: None, exited };
        tokio::spawn(async move {
            // The receiver may be gone.
            let _ = done.send(waiter.run(stop_requested).await);
        });
        let process = Process { exited: exited_rx, stdin_closed, pid, tail, stop_on_drop, ended };
        Ok((process, stdin, Stdout::new(stdout)))
    }

    async fn run(mut self, mut stop_requested: oneshot::Receiver<()>) -> ShutdownOutcome {
        let exit = tokio::select! {
            exit = self.watched.exit() => Some(exit),
            _ = &mut stop_requested => {
                self.stdin.close();
                timeout(self.grace.close, self.watched.exit()).await.ok()
            }
        };
        let grace = match exit {
            Some(exit) => {
                self.publish_exit(exit).await;
                LEFTOVER_GRACE
            }
            None => self.grace.terminate,
        };
        let left_running = self.end_remaining(grace).await;
        if !left_running.is_empty() {
            tracing::warn!(pids = ?left_running, "Some processes of a server could not be ended.");
        }
        self.stdin.close();
        // Processes that still hold the pipe are not read any more.
        self.stderr.abort();
        ShutdownOutcome { exit: self.exit, left_running }
    }

    /// Ends the remaining processes; returns the ids of those that could not be ended.
    async fn end_remaining(&mut self, grace: Duration) -> Vec<u32> {
        if self.has_fully_exited().await {
            return Vec::new();
        }
        self.watched.terminate().await;
        if self.fully_exits_within(grace).await {
            return Vec::new();
        }
        self.watched.kill().await;
        if self.fully_exits_within(KILL_TIMEOUT).await {
            return Vec::new();
        }
        self.watched.still_running().await
    }

    /// Waits until no process is left; returns `false` after the grace period.
    async fn fully_exits_within(&mut self, grace: Duration) -> bool {
        let deadline = Instant::now() + grace;
        let [mut pause, max_pause] = POLL_INTERVALS;
        while Instant::now() < deadline {
            if self.has_fully_exited().await {
                return true;
            }
            pause = max_pause.min(pause * 2);
            tokio::select! {
                exit = self.watched.exit(), if self.exit.is_none() => self.publish_exit(exit).await,
                () = sleep_until(deadline.min(Instant::now() + pause)) => {}
            }
        }
        self.has_fully_exited().await
    }

    async fn has_fully_exited(&mut self) -> bool {
        self.exit.is_some() && self.watched.has_fully_exited().await
    }

    async fn publish_exit(&mut self, exit: ProcessExit) {
        self.exit = Some(exit);
        // The exit is published after the last stderr output.
        let _ = timeout(STDERR_DRAIN_TIMEOUT, &mut self.stderr).await;
        self.exited.send_replace(Some(exit));
    }
}
