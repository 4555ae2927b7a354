//! Backups of clients' files, for `pegboard restore`.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pegboard::config::edit;
use serde::{Deserialize, Serialize};

use super::config_file::write_error;
use crate::cli::{CliError, Globals};
use crate::paths;

/// File that lists all changes.
const INDEX: &str = "index.json";
/// Lock file for writers.
const LOCK: &str = "lock";
/// Timeout and poll interval of the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of changes recorded.
const MAX_RECORDS: usize = 1_000;

/// Recorded changes of clients' files.
pub(crate) struct Backups {
    folder: PathBuf,
    records: Vec<BackupRecord>,
    /// Held by writers: concurrent writers would reuse each other's ids.
    _lock: Option<File>,
}

/// One change of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupRecord {
    id: u64,
    /// Client that the file belongs to.
    pub(crate) client: String,
    /// Path of the file.
    pub(crate) path: PathBuf,
    /// Set if the file existed before.
    pub(crate) existed: bool,
    /// Unix permissions of the file before the change.
    mode: Option<u32>,
}

/// Original content of a file.
pub(crate) struct OriginalFile {
    /// Content before the change; `None` if the file did not exist.
    pub(crate) text: Option<String>,
    /// Content after the last change.
    pub(crate) left: String,
    /// Changes that a restore undoes, oldest first.
    records: Vec<BackupRecord>,
}

impl Backups {
    /// Opens the backups for a change. Waits for other writers.
    pub(crate) fn open_locked(globals: &Globals) -> Result<Self, CliError> {
        let folder = folder(globals)?;
        let unusable = |error: io::Error| CliError::system(format!("{}: {error}", folder.display()));
        create_private_dir(&folder).map_err(unusable)?;
        let lock = private_file(&folder.join(LOCK)).map_err(unusable)?;
        let begun = Instant::now();
        while let Err(error) = lock.try_lock() {
            match error {
                TryLockError::Error(error) => return Err(unusable(error)),
                TryLockError::WouldBlock if begun.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_POLL_INTERVAL);
                }
                TryLockError::WouldBlock => {
                    return Err(CliError::system("another pegboard process is changing clients' files")
                        .hint("wait for it to finish and try again"));
                }
            }
        }
        Ok(Self { _lock: Some(lock), ..Self::open(globals)? })
    }

    /// Opens the backups for reading.
    pub(crate) fn open(globals: &Globals) -> Result<Self, CliError> {
        let folder = folder(globals)?;
        let records = match fs::read(folder.join(INDEX)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                CliError::system(format!("cannot read {}: {error}", folder.join(INDEX).display()))
                    .hint("the backups next to it are intact; restore them by hand and move this file away")
            })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(CliError::system(format!("{}: {error}", folder.display()))),
        };
        Ok(Self { folder, records, _lock: None })
    }

    /// Recorded changes, oldest first.
    pub(crate) fn records(&self) -> &[BackupRecord] {
        &self.records
    }

    /// Changes a client's file and records its previous content.
    pub(crate) fn write(
        &mut self,
        client: &str,
        path: &Path,
        old: Option<&str>,
        new: &str,
    ) -> Result<(), CliError> {
        let id = self.records.iter().map(|record| record.id).max().unwrap_or_default() + 1;
        let record = BackupRecord {
            id,
            client: client.to_owned(),
            path: path.to_owned(),
            existed: old.is_some(),
            mode: mode(path),
        };
        self.store(&record, "before", old.unwrap_or_default())?;
        self.store(&record, "after", new)?;
        self.records.push(record.clone());
        while self.records.len() > MAX_RECORDS {
            let oldest = self.records.remove(0);
            self.drop_files(&oldest);
        }
        self.save()?;
        edit::write(path, old, new).map_err(|error| {
            // The file is unchanged, so the record is removed.
            self.records.retain(|kept| *kept != record);
            self.drop_files(&record);
            let _ = self.save();
            write_error(&error)
        })
    }

    /// Finds the content before the last change. Consecutive changes by Pegboard count as one.
    pub(crate) fn original(&self, path: &Path) -> Result<Option<OriginalFile>, CliError> {
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
        Ok(Some(OriginalFile { text, left, records }))
    }

    /// Restores the original content. `present` is the current content; it is backed up if it was changed
    /// since.
    pub(crate) fn restore(
        &mut self,
        path: &Path,
        original: &OriginalFile,
        present: Option<&str>,
    ) -> Result<Option<PathBuf>, CliError> {
        let first = original.records.first();
        let aside = match (present, first) {
            (Some(present), Some(first)) if present != original.left => {
                let free = |what: &String| !self.file(first, what).exists();
                let what =
                    (1..=MAX_RECORDS).map(|number| format!("{number}.aside")).find(free).unwrap_or_default();
                Some(self.store(first, &what, present)?)
            }
            _ => None,
        };
        match &original.text {
            Some(text) => {
                edit::write(path, present, text).map_err(|error| write_error(&error))?;
                set_mode(path, first.and_then(|first| first.mode));
            }
            None => match edit::resolve_links(path).and_then(fs::remove_file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(CliError::system(format!("cannot remove {}: {error}", path.display())));
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

    fn read(&self, record: &BackupRecord, what: &str) -> Result<String, CliError> {
        let path = self.file(record, what);
        fs::read_to_string(&path)
            .map_err(|error| CliError::system(format!("cannot read backup {}: {error}", path.display())))
    }

    /// Writes a backup file that only this user can read, since it may contain keys.
    fn store(&self, record: &BackupRecord, what: &str, text: &str) -> Result<PathBuf, CliError> {
        let write_failed = |error: io::Error| {
            CliError::system(format!("cannot write a backup to {}: {error}", self.folder.display()))
                .hint("set another directory with --state")
        };
        let path = self.file(record, what);
        create_private_dir(&self.folder).map_err(write_failed)?;
        let mut file = private_file(&path).map_err(write_failed)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(write_failed)?;
        Ok(path)
    }

    fn drop_files(&self, record: &BackupRecord) {
        // A leftover file does no harm.
        for what in ["before", "after"] {
            let _ = fs::remove_file(self.file(record, what));
        }
    }

    fn save(&self) -> Result<(), CliError> {
        let path = self.folder.join(INDEX);
        let old = fs::read_to_string(&path).ok();
        let text = serde_json::to_string_pretty(&self.records).unwrap_or_default() + "\n";
        edit::write(&path, old.as_deref(), &text).map_err(|error| write_error(&error))
    }
}

/// Directory of the backups.
fn folder(globals: &Globals) -> Result<PathBuf, CliError> {
    let state = paths::state_dir(globals.state.as_deref())
        .ok_or_else(|| CliError::system("no state directory for backups").hint("set one with --state"))?;
    Ok(state.join("backups"))
}

/// Creates a directory that only this user can access.
fn create_private_dir(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Creates or truncates a file that only this user can access.
fn private_file(path: &Path) -> io::Result<File> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
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
