//! The lock of a configuration: at most one gateway of a user serves it to all clients.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::paths::PrivateDir;

/// Permissions: only this user.
const MODE: u32 = 0o600;
/// Maximum length of a process id with its line feed.
const MAX_BYTES: u64 = 16;
/// Maximum number of attempts while others remove the file.
const MAX_ATTEMPTS: usize = 100;

/// Lock of a configuration. It ends with the process that holds it, however that ends; the file is removed when the
/// lock is dropped.
#[derive(Debug)]
pub(crate) struct GatewayLock {
    file: File,
    path: PathBuf,
    /// Unset if another process has taken over.
    is_owned: bool,
}

/// Result of an attempt to take a lock.
#[derive(Debug)]
pub(crate) enum LockAttempt {
    /// No gateway serves the configuration.
    Acquired(GatewayLock),
    /// A gateway holds it; its process id, once it accepts clients.
    Held(Option<u32>),
}

impl GatewayLock {
    /// Takes the lock of a configuration, unless another process holds it.
    pub(crate) fn try_acquire(folder: &PrivateDir, identity: &str) -> io::Result<LockAttempt> {
        folder.create()?;
        let path = lock_path(folder, identity);
        for _ in 0..MAX_ATTEMPTS {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(MODE);
            let mut file = options.open(&path)?;
            match file.try_lock() {
                Ok(()) if is_same(&file, &path) => {
                    file.set_len(0)?;
                    return Ok(LockAttempt::Acquired(Self { file, path, is_owned: true }));
                }
                // Its last owner has removed it.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(LockAttempt::Held(read_pid(&mut file))),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        Err(io::Error::other(format!("{} is removed again and again", path.display())))
    }

    /// Takes over the lock that the process which started this one passes on as standard input. Standard input is
    /// empty from then on.
    pub(crate) fn inherit(folder: &PrivateDir, identity: &str) -> io::Result<Option<Self>> {
        let path = lock_path(folder, identity);
        let file = File::from(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 0)?);
        if !is_same(&file, &path) || file.try_lock().is_err() {
            return Ok(None);
        }
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        Ok(Some(Self { file, path, is_owned: true }))
    }

    /// Publishes the id of this process: from now on it accepts clients.
    pub(crate) fn publish(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.rewind()?;
        writeln!(self.file, "{}", std::process::id())
    }

    /// Returns the file, for the process that takes over.
    pub(crate) fn pass_on(mut self) -> io::Result<File> {
        let file = self.file.try_clone()?;
        self.is_owned = false;
        Ok(file)
    }
}

impl Drop for GatewayLock {
    fn drop(&mut self) {
        // While it is locked, no other process can have taken it.
        if self.is_owned && is_same(&self.file, &self.path) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// End of a gateway, as its lock shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockEnd {
    /// The process holds it: it is about to end, or starts again.
    Held,
    /// The process ended without giving it up.
    Abandoned,
    /// The process gave it up, or another one has it.
    GivenUp,
}

impl LockEnd {
    /// Looks at the lock of a gateway with this process id, which is gone or about to be.
    pub(crate) fn of(folder: &PrivateDir, identity: &str, pid: u32) -> Self {
        let Ok(mut file) = File::open(lock_path(folder, identity)) else { return Self::GivenUp };
        // A gateway does not share it.
        let is_free = file.try_lock_shared().is_ok();
        match read_pid(&mut file) {
            Some(holder) if holder == pid && is_free => Self::Abandoned,
            Some(holder) if holder == pid => Self::Held,
            _ => Self::GivenUp,
        }
    }
}

fn lock_path(folder: &PrivateDir, identity: &str) -> PathBuf {
    folder.path().join(format!("{identity}.lock"))
}

/// Returns `true` if an open file is the one with this path.
fn is_same(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(named)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (named.dev(), named.ino())
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Removes the lock files of gateways that did not shut down cleanly.
pub(crate) fn remove_stale_locks(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in entries.filter(|path| path.extension().is_some_and(|extension| extension == "lock")) {
        if let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            drop(GatewayLock { file, path, is_owned: true });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(attempt: &LockAttempt) -> Option<u32> {
        match attempt {
            LockAttempt::Held(pid) => *pid,
            LockAttempt::Acquired(_) => panic!("it is free"),
        }
    }

    fn acquired(attempt: LockAttempt) -> GatewayLock {
        match attempt {
            LockAttempt::Acquired(lock) => lock,
            LockAttempt::Held(pid) => panic!("it is held by {pid:?}"),
        }
    }

    #[test]
    fn one_process_holds_the_lock_and_its_file_ends_with_it() {
        let temp = tempfile::tempdir().unwrap();
        let folder = PrivateDir::new(temp.path().join("run"));
        let mut lock = acquired(GatewayLock::try_acquire(&folder, "a").unwrap());
        assert_eq!(held(&GatewayLock::try_acquire(&folder, "a").unwrap()), None);
        lock.publish().unwrap();
        assert_eq!(held(&GatewayLock::try_acquire(&folder, "a").unwrap()), Some(std::process::id()));
        let other = acquired(GatewayLock::try_acquire(&folder, "b").unwrap());
        remove_stale_locks(folder.path());
        drop((lock, other));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_that_is_passed_on_stays_held() {
        let temp = tempfile::tempdir().unwrap();
        let folder = PrivateDir::new(temp.path().join("run"));
        let passed_on = acquired(GatewayLock::try_acquire(&folder, "a").unwrap()).pass_on().unwrap();
        assert_eq!(held(&GatewayLock::try_acquire(&folder, "a").unwrap()), None);
        // As if the process that took over was killed.
        drop(passed_on);
        assert!(folder.path().join("a.lock").exists());
        drop(acquired(GatewayLock::try_acquire(&folder, "a").unwrap()));
        assert!(!folder.path().join("a.lock").exists());
    }

    #[test]
    fn concurrent_attempts_yield_one_owner_each_time() {
        let temp = tempfile::tempdir().unwrap();
        let folder = PrivateDir::new(temp.path().join("run"));
        let owners = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        if let LockAttempt::Acquired(lock) = GatewayLock::try_acquire(&folder, "a").unwrap() {
                            assert_eq!(owners.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                            owners.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                            drop(lock);
                        }
                    }
                });
            }
        });
    }
}
