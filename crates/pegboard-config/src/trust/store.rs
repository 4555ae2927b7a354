//! The record of trusted files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use pegboard_files::RegularFile;
use serde::{Deserialize, Serialize};

use super::action::file_key;
use super::{FileAction, FileOwner, UnsafeFileReason};
use crate::edit::{self, WriteError};
use crate::private_file::{FileLock, LockError, create_private_dir};

/// File with the record, and the lock of its writers.
const RECORD: &str = "trust.json";
const LOCK: &str = "trust.lock";
/// Version of the record.
const VERSION: u32 = 1;
/// Maximum size of the record.
const MAX_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum number of files. The ones trusted longest ago are dropped first.
const MAX_FILES: usize = 1_000;
/// Maximum number of actions of one file. The ones trusted longest ago are dropped first.
const MAX_ACTIONS: usize = 2_000;

/// The files that a user trusts, and what they do.
///
/// ```
/// use pegboard_config::trust::TrustStore;
/// # let folder = tempfile::tempdir()?;
/// # let state = folder.path().join("state");
/// # let path = folder.path().join("pegboard.yaml");
/// std::fs::write(&path, "mcpServers: {notes: {command: notes-server}}")?;
/// let actions = pegboard_config::load(&path, &|_| None)?.actions;
/// TrustStore::trust(&state, None, &actions)?;
/// assert!(TrustStore::open(&state, None)?.is_trusted(&actions[0]));
///
/// std::fs::write(&path, "mcpServers: {notes: {command: other-server}}")?;
/// let changed = pegboard_config::load(&path, &|_| None)?.actions;
/// assert!(!TrustStore::open(&state, None)?.is_trusted(&changed[0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct TrustStore {
    /// Files, the one trusted longest ago first.
    files: Vec<TrustedFile>,
    /// Contents of the record on disk.
    text: Option<String>,
}

/// A trusted file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedFile {
    /// Path of the file.
    pub path: PathBuf,
    /// Allowed actions.
    pub actions: Vec<TrustedAction>,
}

/// An allowed action of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedAction {
    /// Name of the part of the file.
    pub name: String,
    /// Digest of what it does.
    pub digest: String,
}

/// The record on disk.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustRecord {
    version: u32,
    files: Vec<TrustedFile>,
}

/// The record of trusted files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The record cannot be read.
    #[error("cannot read the trusted files in {}: {reason}", path.display())]
    Corrupt {
        /// Path of the record.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// Other users could have written the record.
    #[error("cannot use the trusted files in {}: {reason}", path.display())]
    Unsafe {
        /// Path of the record.
        path: PathBuf,
        /// The reason.
        reason: UnsafeFileReason,
    },
    /// Another process holds the lock.
    #[error("another pegboard process is changing the trusted files")]
    Locked,
    /// The directory cannot be written.
    #[error("cannot write the trusted files to {}: {error}", folder.display())]
    Unwritable {
        /// Directory of the record.
        folder: PathBuf,
        /// The underlying error.
        #[source]
        error: io::Error,
    },
    /// The record cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A file has too many entries.
    #[error("{}: more than {MAX_ACTIONS} servers, services and tools in one file", path.display())]
    TooManyActions {
        /// Path of the file.
        path: PathBuf,
    },
}

impl TrustError {
    /// Returns the suggested fix, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Corrupt { .. } | Self::Unsafe { .. } => {
                Some("remove it, and trust your files again with pegboard trust")
            }
            Self::Locked => Some("wait for it to finish and try again"),
            Self::Unwritable { .. } => Some("set another directory with --state"),
            Self::Write(_) => None,
            Self::TooManyActions { .. } => Some("pass the file with --config"),
        }
    }
}

impl TrustStore {
    /// Opens the record in a directory; it is empty if there is none. If `owner` is given, the record must
    /// belong to that user.
    pub fn open(folder: &Path, owner: Option<FileOwner>) -> Result<Self, TrustError> {
        let path = folder.join(RECORD);
        let corrupt = |reason: String| TrustError::Corrupt { path: path.clone(), reason };
        let file = match RegularFile::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(corrupt(error.to_string())),
        };
        if let Some(owner) = owner {
            let checked = owner.check(&path, file.as_file()).map_err(|error| corrupt(error.to_string()))?;
            checked.map_err(|reason| TrustError::Unsafe { path: path.clone(), reason })?;
        }
        let bytes = file.read(MAX_BYTES).map_err(|error| corrupt(error.to_string()))?;
        let bytes =
            bytes.ok_or_else(|| corrupt(format!("it is larger than {} MiB", MAX_BYTES / 1024 / 1024)))?;
        let text = String::from_utf8(bytes).map_err(|_| corrupt("it is not UTF-8".to_owned()))?;
        let record: TrustRecord = serde_json::from_str(&text).map_err(|error| corrupt(error.to_string()))?;
        if record.version != VERSION {
            return Err(corrupt(format!("unknown version {}; this program knows {VERSION}", record.version)));
        }
        Ok(Self { files: record.files, text: Some(text) })
    }

    /// Trusted files, the one trusted longest ago first.
    pub fn files(&self) -> &[TrustedFile] {
        &self.files
    }

    /// Returns `true` if the user has allowed this action of this file.
    pub fn is_trusted(&self, action: &FileAction) -> bool {
        let mut files = self.files.iter().filter(|file| file.path == action.file);
        files.any(|file| file.actions.iter().any(|trusted| trusted.digest == action.digest))
    }

    /// Trusts files with all of their actions, which replace the ones trusted before. If `owner` is given, a record
    /// of another user is an error, as in [`TrustStore::open`].
    pub fn trust(folder: &Path, owner: Option<FileOwner>, actions: &[FileAction]) -> Result<(), TrustError> {
        Self::update(folder, owner, |store| {
            let files: BTreeSet<&PathBuf> = actions.iter().map(|action| &action.file).collect();
            store.files.retain(|file| !files.contains(&file.path));
            store.add(actions)
        })
    }

    /// Trusts further actions of files. The owner is checked as in [`TrustStore::trust`].
    pub fn trust_more(
        folder: &Path,
        owner: Option<FileOwner>,
        actions: &[FileAction],
    ) -> Result<(), TrustError> {
        if actions.is_empty() {
            return Ok(());
        }
        Self::update(folder, owner, |store| store.add(actions))
    }

    /// Revokes the trust in files. Returns those that were trusted. The owner is checked as in
    /// [`TrustStore::trust`].
    pub fn revoke(
        folder: &Path,
        owner: Option<FileOwner>,
        paths: &[PathBuf],
    ) -> Result<Vec<PathBuf>, TrustError> {
        let keys: Vec<PathBuf> = paths.iter().map(|path| file_key(path)).collect();
        let mut revoked = Vec::new();
        Self::update(folder, owner, |store| {
            store.files.retain(|file| {
                let is_revoked = keys.contains(&file.path) || paths.contains(&file.path);
                if is_revoked {
                    revoked.push(file.path.clone());
                }
                !is_revoked
            });
            Ok(())
        })?;
        Ok(revoked)
    }

    fn add(&mut self, actions: &[FileAction]) -> Result<(), TrustError> {
        let mut n_actions: BTreeMap<&PathBuf, usize> = BTreeMap::new();
        for action in actions {
            *n_actions.entry(&action.file).or_default() += 1;
        }
        if let Some((path, _)) = n_actions.into_iter().find(|(_, n_actions)| *n_actions > MAX_ACTIONS) {
            return Err(TrustError::TooManyActions { path: path.clone() });
        }
        for action in actions {
            // The file that was trusted last is dropped last.
            let at = self.files.iter().position(|file| file.path == action.file);
            let mut file = match at {
                Some(at) => self.files.remove(at),
                None => TrustedFile { path: action.file.clone(), actions: Vec::new() },
            };
            file.actions.retain(|trusted| trusted.digest != action.digest);
            file.actions
                .push(TrustedAction { name: action.target.to_string(), digest: action.digest.clone() });
            let n_dropped = file.actions.len().saturating_sub(MAX_ACTIONS);
            file.actions.drain(..n_dropped);
            self.files.push(file);
        }
        let n_dropped = self.files.len().saturating_sub(MAX_FILES);
        self.files.drain(..n_dropped);
        Ok(())
    }

    /// Changes the record. Other processes wait. The entries of a record that another user could have written are
    /// not taken over: once rewritten, they would be ours.
    fn update(
        folder: &Path,
        owner: Option<FileOwner>,
        change: impl FnOnce(&mut Self) -> Result<(), TrustError>,
    ) -> Result<(), TrustError> {
        let unwritable = |error| TrustError::Unwritable { folder: folder.to_owned(), error };
        create_private_dir(folder).map_err(unwritable)?;
        let _lock = FileLock::acquire(&folder.join(LOCK)).map_err(|error| match error {
            LockError::Busy => TrustError::Locked,
            LockError::System(error) => unwritable(error),
        })?;
        let mut store = Self::open(folder, owner)?;
        change(&mut store)?;
        let Self { files, text } = store;
        let record = TrustRecord { version: VERSION, files };
        let new = serde_json::to_string_pretty(&record).unwrap_or_default() + "\n";
        if text.as_deref() != Some(new.as_str()) {
            edit::write(&folder.join(RECORD), text.as_deref(), &new)?;
        }
        Ok(())
    }
}
