//! A directory that only this user can access.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Permissions: only this user.
const MODE: u32 = 0o700;

/// A directory for this user alone, and the directories above it that must be, too. It may not exist.
#[derive(Clone, Debug)]
pub(crate) struct PrivateDir {
    /// Outermost first.
    chain: Vec<PathBuf>,
}

impl PrivateDir {
    /// A directory in one that other users cannot write to.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { chain: vec![path] }
    }

    /// A directory below another private one, for a place that all users can write to.
    pub(crate) fn below(parent: PathBuf, name: &str) -> Self {
        let path = parent.join(name);
        Self { chain: vec![parent, path] }
    }

    /// Path of the directory.
    pub(crate) fn path(&self) -> &Path {
        self.chain.last().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Creates the directory if needed. It is an error if it belongs to another user, or is a link.
    pub(crate) fn create(&self) -> io::Result<()> {
        for folder in &self.chain {
            fs::DirBuilder::new().recursive(true).mode(MODE).create(folder)?;
            if !is_own(folder)? {
                let problem = format!("{} belongs to another user or is a link", folder.display());
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
            }
            fs::set_permissions(folder, fs::Permissions::from_mode(MODE))?;
        }
        Ok(())
    }

    /// Returns `true` if the directory exists, and other users cannot have put anything there.
    pub(crate) fn is_private(&self) -> bool {
        let is_closed = |folder: &PathBuf| {
            let mode = fs::symlink_metadata(folder).map(|metadata| metadata.mode());
            mode.is_ok_and(|mode| mode & 0o022 == 0)
        };
        self.chain.iter().all(|folder| is_own(folder).unwrap_or(false) && is_closed(folder))
    }
}

/// Returns `true` for a directory of this user that is no link.
fn is_own(folder: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(folder)?;
    Ok(metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn every_directory_of_the_chain_is_created_for_this_user_alone() {
        let temp = tempfile::tempdir().unwrap();
        let parent = temp.path().join("pegboard-1");
        let folder = PrivateDir::below(parent.clone(), "sockets");
        assert!(!folder.is_private(), "it does not exist");
        folder.create().unwrap();
        assert_eq!((mode(&parent), mode(folder.path()), folder.is_private()), (0o700, 0o700, true));
        fs::set_permissions(&parent, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!folder.is_private());
        folder.create().unwrap();
        assert!(folder.is_private());
    }

    #[test]
    fn a_link_is_refused_at_every_level() {
        let temp = tempfile::tempdir().unwrap();
        let elsewhere = temp.path().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        for level in 0..2 {
            let parent = temp.path().join(format!("pegboard-{level}"));
            let folder = PrivateDir::below(parent, "sockets");
            if level == 1 {
                fs::create_dir(&folder.chain[0]).unwrap();
            }
            std::os::unix::fs::symlink(&elsewhere, &folder.chain[level]).unwrap();
            assert_eq!(folder.create().unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{level}");
            assert!(!folder.is_private(), "{level}");
        }
    }

    #[test]
    fn a_directory_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can give a directory to another user");
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        for level in 0..2 {
            let folder = PrivateDir::below(temp.path().join(format!("pegboard-{level}")), "sockets");
            folder.create().unwrap();
            std::os::unix::fs::chown(&folder.chain[level], Some(65_534), None).unwrap();
            assert_eq!(folder.create().unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{level}");
            assert!(!folder.is_private(), "{level}");
        }
    }
}
