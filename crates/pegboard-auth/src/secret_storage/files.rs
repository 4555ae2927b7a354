//! Files that only this user can access. They are created so; permissions are never changed afterwards.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use zeroize::Zeroizing;

/// Timeout and poll interval of the lock. A keyring may ask its user while the lock is held.
const LOCK_TIMEOUT: Duration = Duration::from_secs(90);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reason why a file of secrets cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {}: {problem}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    problem: String,
}

impl FileError {
    pub(super) fn new(path: &Path, problem: impl Into<String>) -> Self {
        Self { path: path.to_owned(), problem: problem.into() }
    }

    /// The system provides no random bytes.
    pub(super) fn random(path: &Path) -> Self {
        Self::new(path, "the system provides no random bytes")
    }
}

/// Creates a folder that only this user can access.
pub(super) fn create_private_dir(folder: &Path) -> Result<(), FileError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder).map_err(|error| FileError::new(folder, error.to_string()))
}

/// Reads a file; `None` if it does not exist. One that other users own or can access is refused.
pub(super) fn read_private(path: &Path, max_bytes: u64) -> Result<Option<Zeroizing<String>>, FileError> {
    let problem = |problem: &str| FileError::new(path, problem);
    let mut options = OpenOptions::new();
    options.read(true);
    // A link would lead elsewhere, and opening a pipe would wait for its writer.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.custom_flags(flags.bits().cast_signed());
    }
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::new(path, error.to_string())),
    };
    let metadata = file.metadata().map_err(|error| FileError::new(path, error.to_string()))?;
    if !metadata.is_file() {
        return Err(problem("it is not a regular file"));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(problem("it belongs to another user"));
        }
        if metadata.mode() & 0o077 != 0 {
            return Err(problem(
                "other users can access it, so its secrets may be known; replace them, and remove the file",
            ));
        }
    }
    let mut text = Zeroizing::new(String::new());
    file.take(max_bytes + 1)
        .read_to_string(&mut text)
        .map_err(|error| FileError::new(path, error.to_string()))?;
    if text.len() as u64 > max_bytes {
        return Err(problem("it is too large"));
    }
    Ok(Some(text))
}

/// Replaces a file in one step.
pub(super) fn replace_private(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), FileError> {
    let path = folder.join(name);
    let mut random = [0; 8];
    rand::fill(&mut random).map_err(|_| FileError::random(&path))?;
    let draft = folder.join(format!("{name}.{:016x}", u64::from_ne_bytes(random)));
    let written = private_options().create_new(true).open(&draft).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, &path)
    });
    written.map_err(|error| {
        let _ = fs::remove_file(&draft);
        FileError::new(&path, error.to_string())
    })
}

/// Returns options for a file that, if it is created, only this user can access.
fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A lock among processes that is held until it is dropped.
pub(super) struct StorageLock(#[expect(dead_code, reason = "held for its lock")] File);

impl StorageLock {
    /// Takes the lock. Waits for other processes, up to a limit.
    pub(super) fn acquire(path: &Path) -> Result<Self, FileError> {
        let problem = |error: io::Error| FileError::new(path, error.to_string());
        let file = private_options().create(true).truncate(false).open(path).map_err(problem)?;
        let begun = Instant::now();
        while let Err(error) = file.try_lock() {
            match error {
                TryLockError::Error(error) => return Err(problem(error)),
                TryLockError::WouldBlock if begun.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_POLL_INTERVAL);
                }
                TryLockError::WouldBlock => {
                    return Err(FileError::new(path, "another process holds the lock"));
                }
            }
        }
        Ok(Self(file))
    }
}
