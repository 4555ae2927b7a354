//! A configuration that is read again when its file changes, or when somebody says so.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pegboard::telemetry::{Telemetry, tell};
use pegboard::wiring::Board;
use tokio::time;

use crate::place;

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// How long a file that has changed must stay as it is before it is read, and how often that is waited for: an editor
/// may be in the middle of it.
const SETTLING: Duration = Duration::from_millis(100);
const MAX_SETTLING: usize = 20;
/// How much of a file is looked at. No configuration has more.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Whether the file is looked at from time to time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watching {
    /// It is.
    Yes,
    /// It is not, so somebody has to say that it has changed.
    No,
}

/// A configuration that is read again when its file changes, or when somebody says so.
pub(crate) struct Reloading {
    path: PathBuf,
    watching: Watching,
    /// What the file was when it was last read.
    seen: Option<u64>,
    calls: Calls,
}

impl Reloading {
    /// One that begins now.
    pub(crate) fn of(path: &Path, watching: Watching) -> Self {
        Self { path: path.to_owned(), watching, seen: digest(path), calls: Calls::listen() }
    }

    /// Has what runs keep up with the file. Never ends.
    pub(crate) async fn keep_up(&mut self, board: &Board, served: Option<&str>, telemetry: &Telemetry) {
        loop {
            self.wanted().await;
            let reloaded = match place::read(&self.path) {
                Ok(configuration) => {
                    let reloaded = board.reload(configuration, served, telemetry).await;
                    reloaded.map_err(|error| format!("error[config_invalid]: {error}"))
                }
                Err(failure) => Err(failure.text()),
            };
            let path = self.path.display();
            let then = match self.watching {
                Watching::Yes => "and it is read again",
                Watching::No => "and say so again",
            };
            match reloaded {
                Ok(changes) => tell(&format!("Reloaded  {path}: {changes}")),
                Err(problems) => {
                    tell(&format!("{problems}\nKept  what ran before; correct {path}, {then}"));
                }
            }
        }
    }

    /// Waits until the file should be read again.
    async fn wanted(&mut self) {
        let (watching, path) = (self.watching, self.path.clone());
        let seen = self.seen;
        let changed = async {
            match watching {
                Watching::Yes => changed(&path, seen).await,
                Watching::No => std::future::pending().await,
            }
        };
        self.seen = tokio::select! {
            now = changed => now,
            () = self.calls.next() => digest(&self.path),
        };
    }
}

/// Waits until a file is another than was seen, and stays so for a moment.
async fn changed(path: &Path, seen: Option<u64>) -> Option<u64> {
    loop {
        time::sleep(EVERY).await;
        let mut now = look(path).await;
        if now == seen {
            continue;
        }
        for _ in 0..MAX_SETTLING {
            time::sleep(SETTLING).await;
            let before = std::mem::replace(&mut now, look(path).await);
            if before == now {
                break;
            }
        }
        if now != seen {
            return now;
        }
    }
}

/// Looks at a file, without anybody waiting for a disk that is slow.
async fn look(path: &Path) -> Option<u64> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || digest(&path)).await.ok().flatten()
}

/// Tells what is in a file from everything else; `None` if there is no such file. Dates are not trusted: a file can be
/// written twice within one tick, and be put in place of another that is younger.
fn digest(path: &Path) -> Option<u64> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // What is no plain file gives what it has only once.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    read().ok()?.hash(&mut hasher);
    Some(hasher.finish())
}

/// Somebody who says that the file should be read again.
#[cfg(unix)]
struct Calls(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Calls {
    fn listen() -> Self {
        use std::io::IsTerminal;
        use tokio::signal::unix::{SignalKind, signal};

        // With a terminal it means that the terminal is gone.
        let is_call = !io::stdin().is_terminal();
        Self(is_call.then(|| signal(SignalKind::hangup()).ok()).flatten())
    }

    async fn next(&mut self) {
        match &mut self.0 {
            Some(signal) => {
                signal.recv().await;
            }
            None => std::future::pending().await,
        }
    }
}

/// There is no such signal there.
#[cfg(not(unix))]
struct Calls;

#[cfg(not(unix))]
impl Calls {
    fn listen() -> Self {
        Self
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}
