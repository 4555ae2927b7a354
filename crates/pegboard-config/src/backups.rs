//! Backups of clients' files that Pegboard changes.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::clients::KnownClient;
use crate::edit::{self, FileChange, WriteError};
use crate::private_file::{FileLock, LockError, create_private_dir, create_private_file};

mod undo;

/// File that lists all changes.
const INDEX: &str = "index.json";
/// Lock file for writers.
const LOCK: &str = "lock";
/// Maximum number of changes recorded.
const MAX_RECORDS: usize = 1_000;

/// Recorded changes of clients' files.
///
/// ```
/// use pegboard_config::backups::Backups;
/// use pegboard_config::clients::find_client;
/// use pegboard_config::edit::FileChange;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("mcp.json");
/// std::fs::write(&path, "{}")?;
/// let mut backups = Backups::open_locked(&folder.path().join("backups"))?;
/// let change = FileChange { path: path.clone(), old: Some("{}".to_owned()), new: "[]".to_owned() };
/// backups.write(find_client("cursor").unwrap(), &change)?;
/// let original = backups.original(&path)?.unwrap();
/// backups.restore(&path, &original)?;
/// assert_eq!(std::fs::read_to_string(&path)?, "{}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Backups {
    folder: PathBuf,
    records: Vec<BackupRecord>,
    /// Held by writers: concurrent writers would reuse each other's ids.
    _lock: Option<FileLock>,
}

/// One change of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct BackupRecord {
    id: u64,
    /// Client that the file belongs to.
    client: String,
    /// Path of the file.
    path: PathBuf,
    /// Set if the file existed before.
    existed: bool,
    /// Unix permissions of the file before the change.
    mode: Option<u32>,
}

/// Original content of a file.
pub struct OriginalFile {
    /// Content before the change; `None` if the file did not exist.
    pub text: Option<String>,
    /// Current content; `None` if the file does not exist.
    pub present: Option<String>,
    /// Content after the last change.
    left: String,
    /// Changes that a restore undoes, oldest first.
    records: Vec<BackupRecord>,
}

/// Error of backing up or restoring a file.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The backups are in use.
    #[error("another pegboard process is changing clients' files")]
    Locked,
    /// The directory of the backups cannot be written.
    #[error("cannot write a backup to {}: {error}", folder.display())]
    Unwritable {
        /// Directory of the backups.
        folder: PathBuf,
        /// The underlying error.
        #[source]
        error: io::Error,
    },
    /// The list of changes is invalid.
    #[error("cannot read {}: {error}", path.display())]
    InvalidIndex {
        /// Path of the list.
        path: PathBuf,
        /// The underlying error.
        #[source]
        error: serde_json::Error,
    },
    /// A file cannot be read or removed.
    #[error("cannot {action} {}: {error}", path.display())]
    File {
        /// The attempted action.
        action: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        #[source]
        error: io::Error,
    },
    /// A client's file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl BackupError {
    /// Returns the suggested fix, if there is one.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Locked => Some("wait for it to finish and try again"),
            Self::InvalidIndex { .. } => {
                Some("the backups next to it are intact; restore them by hand and move this file away")
            }
            Self::Unwritable { .. } => Some("set another directory with --state"),
            Self::File { .. } | Self::Write(_) => None,
        }
    }
}

impl OriginalFile {
    /// Returns `true` if the file is as Pegboard left it.
    pub fn is_as_left(&self) -> bool {
        self.present.as_deref() == Some(self.left.as_str())
    }

    /// Returns the present content of a file that was changed since, with Pegboard's changes undone and all others kept;
    /// `None` if they cannot be told apart.
    pub fn undone(&self, path: &Path) -> Option<String> {
        undo::undo(path, self.text.as_deref(), &self.left, self.present.as_deref()?)
    }
}

impl Backups {
    /// Opens the backups in a directory for a change. Waits for other writers.
    pub fn open_locked(folder: &Path) -> Result<Self, BackupError> {
        let unwritable = |error| BackupError::Unwritable { folder: folder.to_owned(), error };
        create_private_dir(folder).map_err(unwritable)?;
        let lock = FileLock::acquire(&folder.join(LOCK)).map_err(|error| match error {
            LockError::Busy => BackupError::Locked,
            LockError::System(error) => unwritable(error),
        })?;
        Ok(Self { _lock: Some(lock), ..Self::open(folder)? })
    }

    /// Opens the backups in a directory for reading.
    pub fn open(folder: &Path) -> Result<Self, BackupError> {
        let (folder, path) = (folder.to_owned(), folder.join(INDEX));
        let records = match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| BackupError::InvalidIndex { path, error })?
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(BackupError::File { action: "read", path, error }),
        };
        Ok(Self { folder, records, _lock: None })
    }

    /// Changed files with the names of their clients, oldest change first.
    pub fn files(&self) -> Vec<(&str, &Path)> {
        let mut files: Vec<(&str, &Path)> = Vec::new();
        for record in &self.records {
            let file = (record.client.as_str(), record.path.as_path());
            if !files.contains(&file) {
                files.push(file);
            }
        }
        files
    }

    /// Changes a client's file and records its previous content. If the change adds plaintext keys, only the
    /// owner can access the file afterwards; returns `true` if others could read it before.
    pub fn write(&mut self, client: &KnownClient, change: &FileChange) -> Result<bool, BackupError> {
        let record = BackupRecord {
            id: self.records.iter().map(|record| record.id).max().unwrap_or_default() + 1,
            client: client.name().to_owned(),
            path: change.path.clone(),
            existed: change.old.is_some(),
            mode: mode(&change.path),
        };
        self.store(&record, "before", change.old.as_deref().unwrap_or_default())?;
        self.store(&record, "after", &change.new)?;
        self.records.push(record.clone());
        self.save()?;
        let was_open = match change.write_guarded() {
            Ok(was_open) => was_open,
            Err(error) => {
                // The file is unchanged, so the record is removed.
                self.records.retain(|kept| *kept != record);
                let _ = self.save();
                self.drop_files(&record);
                return Err(error.into());
            }
        };
        self.drop_oldest()?;
        Ok(was_open)
    }

    /// Drops the oldest records beyond the maximum, once a new one is complete: first from the index, which never names a
    /// file that is gone.
    fn drop_oldest(&mut self) -> Result<(), BackupError> {
        let n_surplus = self.records.len().saturating_sub(MAX_RECORDS);
        if n_surplus == 0 {
            return Ok(());
        }
        let dropped: Vec<BackupRecord> = self.records.drain(..n_surplus).collect();
        self.save()?;
        for record in &dropped {
            self.drop_files(record);
        }
        Ok(())
    }

    /// Finds the content before the last change. Consecutive changes by Pegboard count as one.
    pub fn original(&self, path: &Path) -> Result<Option<OriginalFile>, BackupError> {
        let of_file: Vec<&BackupRecord> = self.records.iter().filter(|record| record.path == path).collect();
        let Some((last, earlier)) = of_file.split_last() else { return Ok(None) };
        let left = self.read(last, "after")?;
        let mut first = *last;
        let mut records = vec![first.clone()];
        for record in earlier.iter().rev() {
            if !first.existed || self.read(record, "after")? != self.read(first, "before")? {
                break;
            }
            first = record;
            records.insert(0, first.clone());
        }
        let text = if first.existed { Some(self.read(first, "before")?) } else { None };
        let present = match fs::read_to_string(path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(BackupError::File { action: "read", path: path.to_owned(), error }),
        };
        Ok(Some(OriginalFile { text, present, left, records }))
    }

    /// Restores the original content. Changes since are backed up; returns the path of that backup.
    pub fn restore(&mut self, path: &Path, original: &OriginalFile) -> Result<Option<PathBuf>, BackupError> {
        self.replace(path, original, original.text.as_deref())
    }

    /// Replaces the content by this one, or removes the file. Changes since are backed up; returns the path of that
    /// backup.
    pub fn replace(
        &mut self,
        path: &Path,
        original: &OriginalFile,
        text: Option<&str>,
    ) -> Result<Option<PathBuf>, BackupError> {
        let first = original.records.first();
        let aside = match (&original.present, first) {
            (Some(present), Some(first)) if !original.is_as_left() => {
                let free = |what: &String| !self.file(first, what).exists();
                let what =
                    (1..=MAX_RECORDS).map(|number| format!("{number}.aside")).find(free).unwrap_or_default();
                Some(self.store(first, &what, present)?)
            }
            _ => None,
        };
        match text {
            Some(text) => {
                edit::write(path, original.present.as_deref(), text)?;
                set_mode(path, first.and_then(|first| first.mode));
            }
            None => match edit::resolve_links(path).and_then(fs::remove_file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(BackupError::File { action: "remove", path: path.to_owned(), error });
                }
                _ => {}
            },
        }
        self.records.retain(|record| !original.records.contains(record));
        self.save()?;
        original.records.iter().for_each(|record| self.drop_files(record));
        Ok(aside)
    }

    fn file(&self, record: &BackupRecord, what: &str) -> PathBuf {
        self.folder.join(format!("{:04}.{what}", record.id))
    }

    fn read(&self, record: &BackupRecord, what: &str) -> Result<String, BackupError> {
        let path = self.file(record, what);
        fs::read_to_string(&path).map_err(|error| BackupError::File { action: "read backup", path, error })
    }

    /// Writes a backup file that only this user can read, since it may contain keys.
    fn store(&self, record: &BackupRecord, what: &str, text: &str) -> Result<PathBuf, BackupError> {
        let write_failed = |error| BackupError::Unwritable { folder: self.folder.clone(), error };
        let path = self.file(record, what);
        create_private_dir(&self.folder).map_err(write_failed)?;
        let mut file = create_private_file(&path).map_err(write_failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(write_failed)?;
        Ok(path)
    }

    fn drop_files(&self, record: &BackupRecord) {
        // A leftover file does no harm.
        for what in ["before", "after"] {
            let _ = fs::remove_file(self.file(record, what));
        }
    }

    fn save(&self) -> Result<(), BackupError> {
        let path = self.folder.join(INDEX);
        let old = fs::read_to_string(&path).ok();
        let text = serde_json::to_string_pretty(&self.records).unwrap_or_default() + "\n";
        Ok(edit::write(&path, old.as_deref(), &text)?)
    }
}

#[cfg(unix)]
fn mode(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;
    Some(fs::metadata(path).ok()?.permissions().mode() & 0o7777)
}

#[cfg(not(unix))]
fn mode(_: &Path) -> Option<u32> {
    None
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: Option<u32>) {
    use std::os::unix::fs::PermissionsExt;
    if let Some(mode) = mode {
        // Only the owner may change permissions. A user who is not the owner did not change them either.
        let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
    }
}

#[cfg(not(unix))]
fn set_mode(_: &Path, _: Option<u32>) {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clients::clients;

    #[test]
    fn the_oldest_backup_goes_only_when_a_new_one_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let mut backups = Backups::open_locked(&folder.path().join("backups")).unwrap();
        let client = &clients()[0];
        let record = |id| BackupRecord {
            id,
            client: client.name().to_owned(),
            path: folder.path().join("other.json"),
            existed: true,
            mode: None,
        };
        backups.records = (1..=u32::try_from(MAX_RECORDS).unwrap()).map(|id| record(id.into())).collect();
        let oldest = backups.store(&record(1), "before", "first").unwrap();
        let path = folder.path().join("client.json");
        fs::write(&path, "present").unwrap();
        let change =
            |old: &str| FileChange { path: path.clone(), old: Some(old.to_owned()), new: "new".to_owned() };
        for (old, is_written) in [("something else", false), ("present", true)] {
            assert_eq!(backups.write(client, &change(old)).is_ok(), is_written);
            let index = Backups::open(&backups.folder).unwrap().records;
            assert_eq!((index.len(), &index), (MAX_RECORDS, &backups.records));
            assert_eq!((index[0].id == 1, oldest.exists()), (!is_written, !is_written));
        }
    }
}
