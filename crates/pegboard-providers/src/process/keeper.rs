//! Who waits for a program, and ends it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::{SetOnce, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::direct::Direct;
use super::exit::Exit;
use super::launch::Grace;
use super::stdio::{self, StdinCloser};
#[cfg(unix)]
use super::supervised::Supervised;
use super::tail::{self, Heard, Tail};
use super::{Ended, Process, Stdin, Stdout};

/// How long those may take to terminate that a program leaves behind when it ends by itself.
pub(super) const AFTERMATH: Duration = Duration::from_millis(500);
/// How long what was killed may take to be gone.
const KILLED: Duration = Duration::from_secs(2);
/// How often somebody looks whether everything is gone, at first and at last.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(200)];
/// How long the last words of a program are waited for; they are in the pipe by the time that it is dead, but somebody
/// else may hold the pipe, so that its end never comes.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// A program that was just started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) pid: Arc<SetOnce<u32>>,
    pub(super) kept: Kept,
}

/// What is kept: a program, by one of the two ways to watch it.
#[derive(Debug)]
pub(super) enum Kept {
    Direct(Direct),
    #[cfg(unix)]
    Supervised(Supervised),
}

impl Kept {
    /// How the program ends. Dropping the future loses nothing.
    async fn exit(&mut self) -> Exit {
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

    /// Whether nothing runs any more, once the program has ended.
    async fn is_clear(&mut self) -> bool {
        match self {
            Self::Direct(direct) => direct.left().await.is_empty(),
            #[cfg(unix)]
            Self::Supervised(supervised) => supervised.is_clear().await,
        }
    }

    /// What still runs.
    async fn left(&mut self) -> Vec<u32> {
        match self {
            Self::Direct(direct) => direct.left().await,
            #[cfg(unix)]
            Self::Supervised(supervised) => supervised.left().await,
        }
    }
}

/// The task that waits for a program, and ends it when its owner wants or is gone.
pub(super) struct Keeper {
    kept: Kept,
    grace: Grace,
    stdin: StdinCloser,
    stderr: JoinHandle<()>,
    exit: Option<Exit>,
    exited: watch::Sender<Option<Exit>>,
}

impl Keeper {
    /// Keeps a program in a task of its own.
    pub(super) fn keep(started: Started, grace: Grace, heard: Heard) -> (Process, Stdin, Stdout) {
        let Started { stdin, stdout, stderr, pid, kept } = started;
        let (stdin, closer) = stdio::stdin(stdin);
        let tail: Arc<Mutex<Tail>> = Arc::default();
        let stderr = tokio::spawn(tail::follow(stderr, Arc::clone(&tail), heard));
        let (exited, seen) = watch::channel(None);
        let (keep, is_kept) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        let keeper = Self { kept, grace: grace.bounded(), stdin: closer, stderr, exit: None, exited };
        tokio::spawn(async move {
            // Nobody may be there to hear how it went.
            let _ = done.send(keeper.run(is_kept).await);
        });
        (Process { exited: seen, pid, tail, keep, ended }, stdin, Stdout::new(stdout))
    }

    async fn run(mut self, mut is_kept: oneshot::Receiver<()>) -> Ended {
        let exit = tokio::select! {
            exit = self.kept.exit() => Some(exit),
            _ = &mut is_kept => {
                self.stdin.close();
                timeout(self.grace.close, self.kept.exit()).await.ok()
            }
        };
        let patience = match exit {
            Some(exit) => {
                self.publish(exit).await;
                AFTERMATH
            }
            None => self.grace.terminate,
        };
        let left_running = self.clear(patience).await;
        if !left_running.is_empty() {
            tracing::warn!(pids = ?left_running, "processes of a server could not be ended");
        }
        self.stdin.close();
        // Who still holds the pipe is not listened to any more.
        self.stderr.abort();
        Ended { exit: self.exit, left_running }
    }

    /// Ends what still runs, and gives what runs after all.
    async fn clear(&mut self, patience: Duration) -> Vec<u32> {
        if self.is_clear().await {
            return Vec::new();
        }
        self.kept.terminate().await;
        if self.clears_within(patience).await {
            return Vec::new();
        }
        self.kept.kill().await;
        if self.clears_within(KILLED).await {
            return Vec::new();
        }
        self.kept.left().await
    }

    /// Waits until nothing runs any more.
    async fn clears_within(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let [mut pause, longest] = LOOK_EVERY;
        while Instant::now() < deadline {
            if self.is_clear().await {
                return true;
            }
            pause = longest.min(pause * 2);
            tokio::select! {
                exit = self.kept.exit(), if self.exit.is_none() => self.publish(exit).await,
                () = sleep_until(deadline.min(Instant::now() + pause)) => {}
            }
        }
        self.is_clear().await
    }

    async fn is_clear(&mut self) -> bool {
        self.exit.is_some() && self.kept.is_clear().await
    }

    async fn publish(&mut self, exit: Exit) {
        self.exit = Some(exit);
        // What it said last belongs to how it ended.
        let _ = timeout(LAST_WORDS, &mut self.stderr).await;
        self.exited.send_replace(Some(exit));
    }
}
