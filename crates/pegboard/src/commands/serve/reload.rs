//! Reloads the configuration when its files change, or on SIGHUP.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pegboard::config::Configuration;
use pegboard::config::source::MAX_BYTES;
use pegboard::config::trust::{ApprovedConfiguration, FileAction, HeldChange, TrustStore};
use pegboard::gateway::api::{PendingChange, PendingChanges};
use pegboard::telemetry::write_stderr;
use pegboard::wire::descriptors;
use pegboard::wiring::App;
use pegboard_files::RegularFile;
use tokio::time;

use super::approval::{APPROVE_BY_COMMAND, ReloadRequest, ReloadRequests, TerminalAnswers};
use crate::cli::CliError;
use crate::cli::format::one_line;
use crate::paths::{self, ConfigSelection};
use crate::trust::{MAX_CHARACTERS, TrustedConfiguration, is_shown_in_full};

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
    /// Entries that the user has agreed to.
    approved: ApprovedConfiguration,
    /// Changes that wait for approval.
    pending: PendingChanges,
    /// Those among them that were printed in full, and that an answer on the terminal is about.
    shown: Vec<HeldChange>,
}

/// Sources of requests to reload.
pub(crate) struct ReloadTriggers {
    /// SIGHUP.
    pub(crate) signal: ReloadSignal,
    /// Requests of commands.
    pub(crate) requests: ReloadRequests,
    /// Answers typed on the terminal.
    pub(crate) terminal: TerminalAnswers,
}

/// Event that causes a reload.
enum ReloadTrigger {
    /// Files changed. The user has not agreed to the changes.
    FilesChanged,
    /// The user agreed, on the terminal or with SIGHUP, to the changes that were printed.
    Agreed,
    /// A command asked for a reload. It may agree to changes that it has shown.
    Requested(ReloadRequest),
}

/// Consent of the user to changes that need approval. It never covers more than the user was shown.
enum Consent {
    /// The user was not asked.
    None,
    /// The user agreed to these changes and to no others.
    Shown(Vec<HeldChange>),
    /// The user agreed to the changes with this digest.
    Digest(String),
}

impl Consent {
    /// Splits changes into those that the user agreed to and those that wait.
    fn split(&self, changes: Vec<HeldChange>) -> (Vec<HeldChange>, Vec<HeldChange>) {
        // The files may have changed since.
        let is_agreed = match self {
            Self::None => false,
            Self::Shown(shown) => *shown == changes,
            Self::Digest(digest) => HeldChange::digest_of(&changes) == *digest,
        };
        if is_agreed { (changes, Vec::new()) } else { (Vec::new(), changes) }
    }

    /// Returns `true` if the user agreed to some changes.
    fn is_given(&self) -> bool {
        match self {
            Self::None => false,
            Self::Shown(shown) => !shown.is_empty(),
            Self::Digest(_) => true,
        }
    }
}

/// Result of a reload.
pub(crate) struct ReloadOutcome {
    /// Changes that were made.
    pub(super) changes: String,
    /// Changes among them that needed approval.
    pub(super) approved: Vec<PendingChange>,
    /// Changes that wait, what they do in full, for the user who decides, and the digest that approves them.
    pub(super) pending: Vec<PendingChange>,
    pub(super) as_written: Vec<String>,
    pub(super) digest: String,
}

impl ConfigWatcher {
    /// Starts watching now.
    pub(crate) fn new(selection: ConfigSelection, mode: WatchMode) -> Self {
        let digests = FileDigests::new(&selection.candidates(), &[]);
        let (approved, pending) = (ApprovedConfiguration::default(), PendingChanges::default());
        Self { selection, mode, referenced: Vec::new(), digests, approved, pending, shown: Vec::new() }
    }

    /// Watched sources.
    pub(crate) fn selection(&self) -> &ConfigSelection {
        &self.selection
    }

    /// Changes that wait for approval.
    pub(crate) fn pending(&self) -> &PendingChanges {
        &self.pending
    }

    /// Sets the configuration that was started, and reports its problems. Also watches the files that it refers to.
    pub(crate) fn started(&mut self, configuration: &TrustedConfiguration) {
        paths::print_problems(&configuration.get().problems);
        self.approved = ApprovedConfiguration::new(configuration.get());
        self.watch_references(configuration.get());
    }

    fn watch_references(&mut self, configuration: &Configuration) {
        self.referenced.clone_from(&configuration.watched);
        self.digests.referenced = digest(&self.referenced).unwrap_or_default();
    }

    /// Reloads the configuration on every change. Never completes.
    pub(crate) async fn run(&mut self, mut triggers: ReloadTriggers, app: &App, served: Option<&str>) {
        loop {
            let trigger = self.wait_for_trigger(&mut triggers).await;
            let files = self.selection.files();
            let consent = match &trigger {
                ReloadTrigger::FilesChanged => Consent::None,
                ReloadTrigger::Agreed => Consent::Shown(self.shown.clone()),
                ReloadTrigger::Requested(request) => {
                    request.approve.clone().map_or(Consent::None, Consent::Digest)
                }
            };
            let outcome = match self.reload(consent, app, served).await {
                Ok(outcome) => {
                    write_stderr(&format!("Reloaded  {files}: {}", outcome.changes));
                    self.report_pending(&mut triggers.terminal);
                    Ok(outcome)
                }
                Err(failure) => {
                    let then = match self.mode {
                        WatchMode::Enabled => "and it is reloaded",
                        WatchMode::Disabled => "and send SIGHUP again",
                    };
                    let text = failure.text();
                    write_stderr(&format!("{text}\nKept  the previous configuration; fix {files}, {then}"));
                    Err(failure)
                }
            };
            if let ReloadTrigger::Requested(request) = trigger {
                // The command may have been interrupted.
                let _ = request.reply.send(outcome);
            }
        }
    }

    /// Loads the files and switches to them. Changes that need approval are left out unless the user has agreed.
    async fn reload(
        &mut self,
        consent: Consent,
        app: &App,
        served: Option<&str>,
    ) -> Result<ReloadOutcome, CliError> {
        // A command or a keyring that the configuration refers to may take a while.
        let selection = self.selection.clone();
        let inspected = tokio::task::spawn_blocking(move || selection.reload()).await;
        let mut configuration = inspected.map_err(|error| CliError::system(error.to_string()))??;
        paths::print_problems(&configuration.problems);
        self.watch_references(&configuration);
        let changes = self.review(&configuration);
        let (agreed, held) = consent.split(changes);
        if consent.is_given() && !held.is_empty() {
            write_stderr("Not approved: the changes are no longer those that were shown");
        }
        self.approved.take_back(&mut configuration, &held);
        let approved = self.approved.after(&configuration, &held);
        let mut actions = configuration.actions.clone();
        actions.retain(|action| agreed.iter().any(|change| change.includes(action)));
        let changes = app.reload(configuration, served).await;
        let changes = changes.map_err(|error| CliError::configuration(error.to_string()))?.to_string();
        self.approved = approved;
        let pending: Vec<PendingChange> = held.iter().cloned().map(pending_change).collect();
        self.pending.replace(pending.clone());
        let as_written = held.iter().map(|change| change.as_written.clone()).collect();
        let digest = HeldChange::digest_of(&held);
        self.shown = held;
        self.remember(actions).await;
        let approved = agreed.into_iter().map(pending_change).collect();
        Ok(ReloadOutcome { changes, approved, pending, as_written, digest })
    }

    /// Trusts the project files among these actions from now on.
    async fn remember(&self, actions: Vec<FileAction>) {
        let gate = self.selection.gate().clone();
        // Another process may hold the lock of the record.
        let remembered = tokio::task::spawn_blocking(move || gate.remember(&actions)).await;
        let remembered = remembered.unwrap_or_else(|error| Err(CliError::system(error.to_string())));
        if let Err(failure) = remembered {
            let reason = failure.summary();
            write_stderr(&format!("The project's files are not trusted after a restart: {reason}"));
        }
    }

    /// Returns the changes that need approval.
    fn review(&self, configuration: &Configuration) -> Vec<HeldChange> {
        let trusted = self.selection.gate().store().unwrap_or_else(|error| {
            write_stderr(&format!("{error}"));
            TrustStore::default()
        });
        self.approved.review(configuration, &|action| trusted.is_trusted(action))
    }

    /// Prints the changes that wait for approval.
    fn report_pending(&mut self, terminal: &mut TerminalAnswers) {
        let pending: Vec<PendingChange> = if terminal.is_there() {
            self.shown.iter().map(pending_as_written).collect()
        } else {
            self.pending.list()
        };
        for PendingChange { entry, reason, action, .. } in &pending {
            let (entry, action) = (one_line(entry, MAX_CHARACTERS), one_line(action, MAX_CHARACTERS));
            write_stderr(&format!("Waiting  {entry} ({reason}): {action}"));
        }
        if pending.iter().any(|change| !is_shown_in_full(&change.entry, &change.action)) {
            // An answer would be about more than the user can see.
            self.shown.clear();
        }
        if !pending.is_empty() {
            write_stderr(if self.shown.is_empty() { APPROVE_BY_COMMAND } else { terminal.invite() });
        }
    }

    /// Waits for a change, or for a request of the user.
    async fn wait_for_trigger(&mut self, triggers: &mut ReloadTriggers) -> ReloadTrigger {
        let (mode, digests) = (self.mode, self.digests);
        let (own, referenced) = (self.selection.candidates(), self.referenced.clone());
        let change = async {
            match mode {
                WatchMode::Enabled => wait_for_change(&own, &referenced, digests).await,
                WatchMode::Disabled => std::future::pending().await,
            }
        };
        let is_waiting = !self.shown.is_empty();
        let trigger = tokio::select! {
            now = change => {
                self.digests = now;
                return ReloadTrigger::FilesChanged;
            }
            () = triggers.signal.next() => ReloadTrigger::Agreed,
            request = triggers.requests.next() => ReloadTrigger::Requested(request),
            () = triggers.terminal.agreed(), if is_waiting => ReloadTrigger::Agreed,
        };
        self.digests = FileDigests::new(&own, &referenced);
        trigger
    }
}

/// Returns a change with its description in full.
fn pending_as_written(held: &HeldChange) -> PendingChange {
    PendingChange { action: held.as_written.clone(), ..pending_change(held.clone()) }
}

fn pending_change(held: HeldChange) -> PendingChange {
    let HeldChange { target, reason, summary, file, .. } = held;
    PendingChange { entry: target.to_string(), reason: reason.to_string(), action: summary, file }
}

/// Digests of file contents.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct FileDigests {
    own: u64,
    referenced: u64,
}

impl FileDigests {
    fn new(own: &[PathBuf], referenced: &[PathBuf]) -> Self {
        Self::of(own, referenced).unwrap_or_default()
    }

    /// Digests the files; an error if there are no file descriptors to read them, which is not a change.
    fn of(own: &[PathBuf], referenced: &[PathBuf]) -> io::Result<Self> {
        Ok(Self { own: digest(own)?, referenced: digest(referenced)? })
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
    tokio::task::spawn_blocking(move || FileDigests::of(&own, &referenced).ok()).await.ok()?
}

/// Digests the contents of files. Modification times are not reliable: a file can be written twice within one
/// tick, or be replaced by an older one.
fn digest(paths: &[PathBuf]) -> io::Result<u64> {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        match read(path) {
            Err(error) if descriptors::are_exhausted(&error) => return Err(error),
            content => content.ok().flatten().hash(&mut hasher),
        }
    }
    Ok(hasher.finish())
}

/// Content of a regular file; `None` if there is none. Pipes and devices are skipped, since they can be read
/// only once.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    RegularFile::open(path)?.read(MAX_BYTES)
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
            digest(std::slice::from_ref(&path)).unwrap()
        };
        assert_ne!(digest_of("toolTimeout: 1m"), digest_of("toolTimeout: 2m"));
        assert_eq!(digest_of("toolTimeout: 2m"), digest_of("toolTimeout: 2m"));
    }
}
