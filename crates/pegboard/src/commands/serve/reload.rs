//! A configuration that is read again when its file changes, or when somebody says so.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pegboard::config::Configuration;
use pegboard::telemetry::{Telemetry, tell};
use pegboard::wiring::Board;
use tokio::time;

use crate::cli::Failure;
use crate::place::{self, Wanted};

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
    wanted: Wanted,
    watching: Watching,
    /// Files that those files name: of secrets, of agents and what these include.
    named: Vec<PathBuf>,
    /// What the files were when they were last read.
    seen: Seen,
}

impl Reloading {
    /// One that begins now.
    pub(crate) fn of(wanted: Wanted, watching: Watching) -> Self {
        let seen = Seen { own: digest(&wanted.candidates()), named: digest(&[]) };
        Self { wanted, watching, named: Vec::new(), seen }
    }

    /// What is followed.
    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Has those files followed, too, that a configuration depends on.
    pub(crate) fn follow(&mut self, configuration: &Configuration) {
        self.named.clone_from(&configuration.watched);
        self.seen.named = digest(&self.named);
    }

    /// Has what runs keep up with the file. Never ends.
    pub(crate) async fn keep_up(
        &mut self,
        mut calls: Calls,
        board: &Board,
        served: Option<&str>,
        telemetry: &Telemetry,
    ) {
        loop {
            self.changed(&mut calls).await;
            let files = self.wanted.files();
            let reloaded = match self.wanted.read() {
                Ok(configuration) => {
                    place::tell_problems(&configuration);
                    self.follow(&configuration);
                    let reloaded = board.reload(configuration, served, telemetry).await;
                    reloaded.map_err(|error| Failure::configuration(error.to_string()))
                }
                Err(error) => Err(Failure::from(error)),
            };
            let then = match self.watching {
                Watching::Yes => "and it is read again",
                Watching::No => "and say so again",
            };
            match reloaded {
                Ok(changes) => tell(&format!("Reloaded  {files}: {changes}")),
                Err(failure) => {
                    tell(&format!("{}\nKept  what ran before; correct {files}, {then}", failure.text()));
                }
            }
        }
    }

    /// Waits until the file should be read again.
    async fn changed(&mut self, calls: &mut Calls) {
        let (watching, seen) = (self.watching, self.seen);
        let (own, named) = (self.wanted.candidates(), self.named.clone());
        let changed = async {
            match watching {
                Watching::Yes => changed(&own, &named, seen).await,
                Watching::No => std::future::pending().await,
            }
        };
        self.seen = tokio::select! {
            now = changed => now,
            () = calls.next() => Seen::of(&own, &named),
        };
    }
}

/// What files were at one time.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    own: u64,
    named: u64,
}

impl Seen {
    fn of(own: &[PathBuf], named: &[PathBuf]) -> Self {
        Self { own: digest(own), named: digest(named) }
    }
}

/// Waits until files are others than were seen, and stay so for a moment.
async fn changed(own: &[PathBuf], named: &[PathBuf], seen: Seen) -> Seen {
    loop {
        time::sleep(EVERY).await;
        let mut now = look(own, named).await.unwrap_or(seen);
        if now == seen {
            continue;
        }
        for _ in 0..MAX_SETTLING {
            time::sleep(SETTLING).await;
            let before = now;
            now = look(own, named).await.unwrap_or(before);
            if before == now {
                break;
            }
        }
        if now != seen {
            return now;
        }
    }
}

/// Looks at files, without anybody waiting for a disk that is slow.
async fn look(own: &[PathBuf], named: &[PathBuf]) -> Option<Seen> {
    let (own, named) = (own.to_vec(), named.to_vec());
    tokio::task::spawn_blocking(move || Seen::of(&own, &named)).await.ok()
}

/// Tells what is in files from everything else. Dates are not trusted: a file can be written twice within one tick, and
/// be put in place of another that is younger.
fn digest(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        read(path).hash(&mut hasher);
    }
    hasher.finish()
}

/// What is in a file; `None` if there is no such file. What is no plain file gives what it has only once.
fn read(path: &Path) -> Option<Vec<u8>> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Somebody who says that the file should be read again.
#[cfg(unix)]
pub(crate) struct Calls(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl Calls {
    pub(crate) fn listen() -> Self {
        use std::io::IsTerminal;
        use tokio::signal::unix::{SignalKind, signal};

        // With a terminal it means that the terminal is gone.
        let is_call = !std::io::stdin().is_terminal();
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
pub(crate) struct Calls;

#[cfg(not(unix))]
impl Calls {
    pub(crate) fn listen() -> Self {
        Self
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}
