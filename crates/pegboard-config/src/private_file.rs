//! Files and directories that only this user can access, and a lock among processes.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Timeout and poll interval of a lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Creates a directory that only this user can access.
pub(crate) fn create_private_dir(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Creates or truncates a file that only this user can access.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    private_options().create(true).truncate(true).open(path)
}

/// Returns options for a file that, if it is created, only this user can access.
pub(crate) fn private_options() -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A lock file that is held until it is dropped.
pub(crate) struct FileLock(#[expect(dead_code, reason = "held for its lock")] File);

/// A lock cannot be taken.
pub(crate) enum LockError {
    /// Another process holds it.
    Busy,
    /// The operating system reported an error.
    System(io::Error),
}

impl FileLock {
    /// Takes the lock. Waits for other processes, up to a limit.
    pub(crate) fn acquire(path: &Path) -> Result<Self, LockError> {
        let file = create_private_file(path).map_err(LockError::System)?;
        let begun = Instant::now();
        while let Err(error) = file.try_lock() {
            match error {
                TryLockError::Error(error) => return Err(LockError::System(error)),
                TryLockError::WouldBlock if begun.elapsed() < LOCK_TIMEOUT => {
                    std::thread::sleep(LOCK_POLL_INTERVAL);
                }
                TryLockError::WouldBlock => return Err(LockError::Busy),
            }
        }
        Ok(Self(file))
    }
}
