//! Programs that are started, watched and ended with everything they started themselves.
//!
//! A program gets a few harmless variables of this process and those it is given, pipes, and nothing else: no shell, no
//! terminal, and under a supervisor no open files. Its death is noticed by waiting for it, so that a child of its own that keeps a pipe
//! open hides nothing. It is ended step by step: its standard input closes, then everything it started is asked to
//! stop, then it is killed, and then somebody looks whether anything is left.
//!
//! How thorough that is depends on who watches:
//!
//! - **With a [`Supervisor`]**, a process of its own between this one and the program, nothing is left: neither children
//!   that made sessions of their own, nor anything after this process is killed outright. Only a program that kills its
//!   supervisor is back to the other case. This takes Linux; elsewhere on Unix the supervisor does what it can by
//!   process groups.
//! - **Without one** it is as good as can be done from here. Children that made a session of their own and whose
//!   parents are gone are missed. If this process is killed outright, whatever does not end by itself when its standard
//!   input closes runs on.

use std::sync::{Arc, Mutex};

use pegboard_core::server_log::ServerLog;
use tokio::sync::{SetOnce, oneshot, watch};

pub use self::exit::Exit;
pub use self::launch::{Grace, Launch, LaunchError, Supervisor};
pub use self::stdio::{Stdin, Stdout};
#[cfg(unix)]
pub use self::supervise::supervise;

use self::keeper::Keeper;
use self::plan::Plan;
pub(crate) use self::tail::shown;
use self::tail::{Heard, Tail};

#[cfg(unix)]
mod control;
mod direct;
mod environment;
mod exit;
mod keeper;
mod launch;
mod plan;
mod stdio;
#[cfg(unix)]
mod supervise;
#[cfg(unix)]
mod supervised;
mod tail;
mod tree;

/// A program that runs, and the one who ends it.
///
/// Dropping it begins the same ending as [`end`](Self::end), which a task of its own carries through. If there is no
/// runtime left to carry it, everything is killed at once.
#[derive(Debug)]
pub struct Process {
    exited: watch::Receiver<Option<Exit>>,
    pid: Arc<SetOnce<u32>>,
    tail: Arc<Mutex<Tail>>,
    /// Dropping it is the sign to begin the ending.
    keep: oneshot::Sender<()>,
    ended: oneshot::Receiver<Ended>,
}

/// The end of what a program wrote to its standard error.
#[derive(Clone, Debug)]
pub struct LastWords(Arc<Mutex<Tail>>);

impl LastWords {
    /// The last lines, fit to be shown: characters that would do something instead of being seen are replaced by their
    /// pictures or codes.
    pub fn text(&self) -> String {
        tail::lock(&self.0).text()
    }
}

/// Which process a program is.
#[derive(Clone, Debug)]
pub struct Presence {
    exited: watch::Receiver<Option<Exit>>,
    pid: Arc<SetOnce<u32>>,
}

impl Presence {
    /// The id of the program's process while it runs; that of its supervisor is another.
    pub fn pid(&self) -> Option<u32> {
        match *self.exited.borrow() {
            None => self.pid.get().copied(),
            Some(_) => None,
        }
    }

    /// Waits until the id is known; for ever if the program never runs.
    pub async fn known(&self) {
        self.pid.wait().await;
    }
}

/// How an ending went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Ended {
    /// How the program ended; `None` if it did not.
    pub exit: Option<Exit>,
    /// What runs on in spite of everything.
    pub left_running: Vec<u32>,
}

impl Process {
    /// Starts a program.
    ///
    /// What can be seen beforehand is an error here: a program that is not there or may not be run, a directory that
    /// is missing. Under a supervisor a program that turns out not to be runnable ends without a code, and the
    /// reason is in [`stderr_tail`](Self::stderr_tail).
    ///
    /// ```
    /// use pegboard_providers::process::{Launch, Process};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let missing = Process::start(&Launch::new("no-such-program")).unwrap_err();
    /// assert!(missing.to_string().starts_with("spawn no-such-program ENOENT"));
    /// # }
    /// ```
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(launch: &Launch) -> Result<(Self, Stdin, Stdout), LaunchError> {
        Self::start_logging(launch, ServerLog::default())
    }

    /// The same, with everything that it writes to its standard error in a log, but for secrets that it is given.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start_logging(launch: &Launch, log: ServerLog) -> Result<(Self, Stdin, Stdout), LaunchError> {
        let plan = Plan::of(launch)?;
        #[cfg(unix)]
        let started = match &launch.supervisor {
            Some(supervisor) => supervised::start(&plan, supervisor, launch.grace)?,
            None => direct::start(&plan)?,
        };
        #[cfg(not(unix))]
        let started = direct::start(&plan)?;
        Ok(Keeper::keep(started, launch.grace, Heard::new(log, launch.redactor())))
    }

    /// How the program ended, as soon as it did, whoever still holds its pipes.
    ///
    /// What it wrote to its standard error before is in [`stderr_tail`](Self::stderr_tail) by then.
    pub fn exited(&self) -> watch::Receiver<Option<Exit>> {
        self.exited.clone()
    }

    /// The end of what the program wrote to its standard error, fit to be shown.
    pub fn stderr_tail(&self) -> String {
        self.last_words().text()
    }

    /// What the program writes to its standard error, for whoever wants to read it after the end.
    pub fn last_words(&self) -> LastWords {
        LastWords(Arc::clone(&self.tail))
    }

    /// Which process it is, for whoever wants to know as long as it runs.
    pub fn presence(&self) -> Presence {
        Presence { exited: self.exited.clone(), pid: Arc::clone(&self.pid) }
    }

    /// The id of the program's process; `None` while the supervisor has not started it yet.
    pub fn pid(&self) -> Option<u32> {
        self.pid.get().copied()
    }

    /// Ends the program and everything it started, within the times of [`Grace`] and a few seconds.
    ///
    /// Dropping the future does not stop the ending.
    pub async fn end(self) -> Ended {
        let Self { exited, pid, keep, ended, tail: _ } = self;
        drop(keep);
        ended.await.unwrap_or_else(|_| {
            // The runtime is shutting down: everything was killed, and nobody looked.
            let exit = *exited.borrow();
            let left_running = if exit.is_none() { pid.get().copied().into_iter().collect() } else { vec![] };
            Ended { exit, left_running }
        })
    }
}
