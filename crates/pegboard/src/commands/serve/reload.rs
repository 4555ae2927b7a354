//! Reloads the configuration when its files change, or on SIGHUP.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pegboard::config::Configuration;
use pegboard::config::source::MAX_BYTES;
use pegboard::telemetry::{Telemetry, write_stderr};
use pegboard::wiring::App;
use tokio::time;

use crate::cli::CliError;
use crate::paths::{self, ConfigSelection};

/// Interval between checks of the files.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Time for which a changed file must stay the same before it is read, and the maximum number of such waits:
/// an editor may still be writing it.
const SETTLE_INTERVAL: Duration = Duration::from_millis(100);
const MAX_SETTLE_ROUNDS: usize = 20;

/// Watching of configuration files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WatchMode {
    /// Reload when files change.
    Enabled,
    /// Reload only on a signal.
    Disabled,
}

/// Watches the files of a configuration and reloads it.
pub(crate) struct ConfigWatcher {
    selection: ConfigSelection,
    mode: WatchMode,
    /// Files that the configuration refers to: secrets, agents and their includes.
    referenced: Vec<PathBuf>,
    /// Digests of the files when they were last read.
    digests: FileDigests,
}

impl ConfigWatcher {
    /// Starts watching now.
    pub(crate) fn new(selection: ConfigSelection, mode: WatchMode) -> Self {
        let digests = FileDigests { own: digest(&selection.candidates()), referenced: digest(&[]) };
        Self { selection, mode, referenced: Vec::new(), digests }
    }

    /// Watched sources.
    pub(crate) fn selection(&self) -> &ConfigSelection {
        &self.selection
    }

    /// Also watches the files that a configuration refers to.
    pub(crate) fn watch_references(&mut self, configuration: &Configuration) {
        self.referenced.clone_from(&configuration.watched);
        self.digests.referenced = digest(&self.referenced);
    }

    /// Reloads the configuration on every change. Never completes.
    pub(crate) async fn run(
        &mut self,
        mut signal: ReloadSignal,
        app: &App,
        served: Option<&str>,
        telemetry: &Telemetry,
    ) {
        loop {
            self.wait_for_change(&mut signal).await;
            let files = self.selection.files();
            // A change of a project file must be trusted, and the user is not asked.
            let reloaded = match self.read_trusted() {
                Ok(configuration) => {
                    paths::print_problems(&configuration);
                    self.watch_references(&configuration);
                    let reloaded = app.reload(configuration, served, telemetry).await;
                    reloaded.map_err(|error| CliError::configuration(error.to_string()))
                }
                Err(failure) => Err(failure),
            };
            let then = match self.mode {
                WatchMode::Enabled => "and it is reloaded",
                WatchMode::Disabled => "and send SIGHUP again",
            };
            match reloaded {
                Ok(changes) => write_stderr(&format!("Reloaded  {files}: {changes}")),
                Err(failure) => {
                    write_stderr(&format!(
                        "{}\nKept  the previous configuration; fix {files}, {then}",
                        failure.text()
                    ));
                }
            }
        }
    }

    /// Loads the files if those of a project are trusted.
    fn read_trusted(&self) -> Result<Configuration, CliError> {
        let configuration = self.selection.inspect()?;
        self.selection.gate().check(&configuration)?;
        Ok(configuration)
    }

    /// Waits for a change or a signal.
    async fn wait_for_change(&mut self, signal: &mut ReloadSignal) {
        let (mode, digests) = (self.mode, self.digests);
        let (own, referenced) = (self.selection.candidates(), self.referenced.clone());
        let change = async {
            match mode {
                WatchMode::Enabled => wait_for_change(&own, &referenced, digests).await,
                WatchMode::Disabled => std::future::pending().await,
            }
        };
        self.digests = tokio::select! {
            now = change => now,
            () = signal.next() => FileDigests::new(&own, &referenced),
        };
    }
}

/// Digests of file contents.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileDigests {
    own: u64,
    referenced: u64,
}

impl FileDigests {
    fn new(own: &[PathBuf], referenced: &[PathBuf]) -> Self {
        Self { own: digest(own), referenced: digest(referenced) }
    }
}

/// Waits until files differ from `digests` and have settled.
async fn wait_for_change(own: &[PathBuf], referenced: &[PathBuf], digests: FileDigests) -> FileDigests {
    loop {
        time::sleep(POLL_INTERVAL).await;
        let mut now = digest_files(own, referenced).await.unwrap_or(digests);
        if now == digests {
            continue;
        }
        for _ in 0..MAX_SETTLE_ROUNDS {
            time::sleep(SETTLE_INTERVAL).await;
            let before = now;
            now = digest_files(own, referenced).await.unwrap_or(before);
            if before == now {
                break;
            }
        }
        if now != digests {
            return now;
        }
    }
}

/// Digests files on a blocking thread, since the disk may be slow.
async fn digest_files(own: &[PathBuf], referenced: &[PathBuf]) -> Option<FileDigests> {
    let (own, referenced) = (own.to_vec(), referenced.to_vec());
    tokio::task::spawn_blocking(move || FileDigests::new(&own, &referenced)).await.ok()
}

/// Digests the contents of files. Modification times are not reliable: a file can be written twice within one
/// tick, or be replaced by an older one.
fn digest(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        read(path).hash(&mut hasher);
    }
    hasher.finish()
}

/// Content of a regular file; `None` if there is none. Pipes and devices are skipped, since they can be read
/// only once.
fn read(path: &Path) -> Option<Vec<u8>> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// SIGHUP as a request to reload.
#[cfg(unix)]
pub(crate) struct ReloadSignal(Option<tokio::signal::unix::Signal>);

#[cfg(unix)]
impl ReloadSignal {
    pub(crate) fn listen() -> Self {
        use std::io::IsTerminal;
        use tokio::signal::unix::{SignalKind, signal};

        // On a terminal, SIGHUP means that the terminal is gone.
        let is_reload_request = !std::io::stdin().is_terminal();
        Self(is_reload_request.then(|| signal(SignalKind::hangup()).ok()).flatten())
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

/// There is no such signal on this platform.
#[cfg(not(unix))]
pub(crate) struct ReloadSignal;

#[cfg(not(unix))]
impl ReloadSignal {
    pub(crate) fn listen() -> Self {
        Self
    }

    async fn next(&mut self) {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_at_the_end_of_a_large_file_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pegboard.yaml");
        let digest_of = |end: &str| {
            std::fs::write(&path, format!("{}{end}", "# filler\n".repeat(1024 * 1024))).unwrap();
            digest(std::slice::from_ref(&path))
        };
        assert_ne!(digest_of("toolTimeout: 1m"), digest_of("toolTimeout: 2m"));
        assert_eq!(digest_of("toolTimeout: 2m"), digest_of("toolTimeout: 2m"));
    }
}
