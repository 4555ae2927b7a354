//! Child processes, ended together with all their descendants.
//!
//! A program gets an allow-list of this process's environment variables, those it is configured with, and
//! pipes: no shell, no terminal, and under a supervisor no other file descriptors. Its exit is detected by
//! waiting for the process, so a child that holds a pipe open does not hide it. Shutdown is stepwise: stdin
//! is closed, then the process tree gets SIGTERM, then SIGKILL, and finally the process table is checked for
//! survivors.
//!
//! The guarantees depend on the watcher:
//!
//! - **With a supervisor** ([`SupervisorCommand`]), a process between this one and the program, nothing is
//!   left: neither children with sessions of their own, nor anything after this process is killed with
//!   SIGKILL. If its supervisor is killed as well, the program is, too; only its children with sessions of
//!   their own are missed then. This requires Linux; on other Unix systems the supervisor works by process
//!   groups.
//! - **Without one** it is best effort. Children with sessions of their own and no parent left are missed. If
//!   this process is killed with SIGKILL, programs that do not exit when their stdin closes keep running.

use std::sync::Arc;

use parking_lot::Mutex;
use pegboard_core::server_log::ServerLog;
use tokio::sync::{SetOnce, oneshot, watch};
use tokio_util::sync::CancellationToken;

pub use self::command::{CommandSpec, GracePeriods, SpawnError, SupervisorCommand};
pub use self::environment::is_inherited_name;
pub use self::exit::ProcessExit;
pub use self::stdio::{Stdin, Stdout};
#[cfg(unix)]
pub use self::supervise::supervise;

use self::plan::SpawnPlan;
pub(crate) use self::stderr::printable;
use self::stderr::{LineForwarder, StderrTail};
use self::waiter::ProcessWaiter;

mod command;
#[cfg(unix)]
mod control;
mod direct;
mod environment;
mod exit;
mod plan;
mod stderr;
mod stdio;
#[cfg(unix)]
mod supervise;
#[cfg(unix)]
mod supervised;
mod tree;
mod waiter;

/// A running program.
///
/// Dropping it starts the same shutdown as [`shut_down`](Self::shut_down), in the background. If the runtime
/// is gone, everything is killed at once.
#[derive(Debug)]
pub struct Process {
    exited: watch::Receiver<Option<ProcessExit>>,
    /// Cancelled when the program has closed its stdin.
    stdin_closed: CancellationToken,
    pid: Arc<SetOnce<u32>>,
    tail: Arc<Mutex<StderrTail>>,
    /// Dropping it starts the shutdown.
    stop_on_drop: oneshot::Sender<()>,
    ended: oneshot::Receiver<ShutdownOutcome>,
}

/// Handle to the end of a program's stderr.
#[derive(Clone, Debug)]
pub struct StderrHandle(Arc<Mutex<StderrTail>>);

impl StderrHandle {
    /// Returns the last lines. Control characters are replaced by visible symbols or escapes.
    pub fn tail(&self) -> String {
        stderr::lock(&self.0).text()
    }
}

/// Handle to the process id of a program.
#[derive(Clone, Debug)]
pub struct PidHandle {
    exited: watch::Receiver<Option<ProcessExit>>,
    pid: Arc<SetOnce<u32>>,
}

impl PidHandle {
    /// Returns the id of the program's process while it runs, not that of its supervisor.
    pub fn pid(&self) -> Option<u32> {
        match *self.exited.borrow() {
            None => self.pid.get().copied(),
            Some(_) => None,
        }
    }

    /// Waits until the id is known; forever if the program never runs.
    pub async fn wait_for_pid(&self) {
        self.pid.wait().await;
    }
}

/// Outcome of a shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct ShutdownOutcome {
    /// Exit of the program; `None` if it did not exit.
    pub exit: Option<ProcessExit>,
    /// Ids of processes that are still running.
    pub left_running: Vec<u32>,
}

impl Process {
    /// Starts a program.
    ///
    /// Problems that can be detected beforehand are errors: a program that is missing or not executable, a
    /// missing directory. Under a supervisor, a program that cannot be executed after all exits, and the reason
    /// is in [`stderr_tail`](Self::stderr_tail).
    ///
    /// ```
    /// use pegboard_core::settings::mcp::ServerProgram;
    /// use pegboard_providers::process::{CommandSpec, Process};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let missing = Process::start(&CommandSpec::new(ServerProgram::new("no-such-program"))).unwrap_err();
    /// assert!(missing.to_string().starts_with("spawn no-such-program ENOENT"));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(spec: &CommandSpec) -> Result<(Self, Stdin, Stdout), SpawnError> {
        Self::start_logging(spec, ServerLog::default())
    }

    /// Starts a program and writes its stderr to a log, redacted.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start_logging(spec: &CommandSpec, log: ServerLog) -> Result<(Self, Stdin, Stdout), SpawnError> {
        let plan = SpawnPlan::resolve(spec)?;
        #[cfg(unix)]
        let started = match &spec.supervisor {
            Some(supervisor) => supervised::start(&plan, supervisor, spec.grace)?,
            None => direct::start(&plan)?,
        };
        #[cfg(not(unix))]
        let started = direct::start(&plan)?;
        let forwarder = LineForwarder::new(log, spec.redactor());
        ProcessWaiter::spawn(started, spec.grace, forwarder)
            .map_err(|error| SpawnError::Refused { command: spec.program.command.clone(), error })
    }

    /// Returns a receiver of the exit, set as soon as the program has exited, even if its pipes are still
    /// open.
    ///
    /// By then its stderr is in [`stderr_tail`](Self::stderr_tail).
    pub fn exited(&self) -> watch::Receiver<Option<ProcessExit>> {
        self.exited.clone()
    }

    /// Returns a token that is cancelled when the program closes its stdin, as it does when it exits. On Windows
    /// it never is.
    pub fn stdin_closed(&self) -> CancellationToken {
        self.stdin_closed.clone()
    }

    /// Returns the end of the program's stderr, with control characters made visible.
    pub fn stderr_tail(&self) -> String {
        self.stderr_handle().tail()
    }

    /// Returns a handle to the program's stderr that outlives the process.
    pub fn stderr_handle(&self) -> StderrHandle {
        StderrHandle(Arc::clone(&self.tail))
    }

    /// Returns a handle to the process id.
    pub fn pid_handle(&self) -> PidHandle {
        PidHandle { exited: self.exited.clone(), pid: Arc::clone(&self.pid) }
    }

    /// Returns the id of the program's process; `None` until the supervisor has started it.
    pub fn pid(&self) -> Option<u32> {
        self.pid.get().copied()
    }

    /// Shuts down the program and its descendants, within the [`GracePeriods`] and a few seconds.
    ///
    /// The shutdown continues if the future is dropped.
    pub async fn shut_down(self) -> ShutdownOutcome {
        let Self { exited, pid, stop_on_drop, ended, stdin_closed: _, tail: _ } = self;
        drop(stop_on_drop);
        ended.await.unwrap_or_else(|_| {
            // The runtime is shutting down: everything was killed without a check for survivors.
            let exit = *exited.borrow();
            let left_running = if exit.is_none() { pid.get().copied().into_iter().collect() } else { vec![] };
            ShutdownOutcome { exit, left_running }
        })
    }
}
