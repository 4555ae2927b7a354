//! Ownership of configuration files.

use std::fmt;
use std::fs::File;
use std::path::Path;

/// Required owner of files that are loaded without being named. Files of the system administrator are loaded, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    /// Id of the user.
    pub uid: u32,
    /// Group that has no other member, if there is one: with a umask of 002 it may write the user's files.
    pub private_group: Option<u32>,
}

/// Reason why a file is not loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsafeFileReason {
    /// The file belongs to another user.
    OtherOwner {
        /// Id of the owner.
        uid: u32,
    },
    /// The file is a symbolic link that belongs to another user.
    OtherLinkOwner {
        /// Id of the owner.
        uid: u32,
    },
    /// Other users can write the file.
    WritableByOthers {
        /// Permission bits.
        mode: u32,
    },
}

impl fmt::Display for UnsafeFileReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherOwner { uid } => write!(f, "the file belongs to another user (uid {uid})"),
            Self::OtherLinkOwner { uid } => {
                write!(f, "the file is a symbolic link of another user (uid {uid})")
            }
            Self::WritableByOthers { mode } => write!(f, "other users can write the file (mode {mode:04o})"),
        }
    }
}

impl UnsafeFileReason {
    /// Returns the suggested fix.
    pub(crate) fn help(self, path: &Path) -> String {
        match self {
            Self::OtherOwner { .. } | Self::OtherLinkOwner { .. } => {
                format!("If you trust its owner, pass --config {}", path.display())
            }
            Self::WritableByOthers { .. } => format!("Run: chmod go-w {}", path.display()),
        }
    }
}

impl FileOwner {
    /// Checks that an open file belongs to the user or the administrator and that no other user can write it.
    #[cfg(unix)]
    pub(crate) fn check(self, path: &Path, file: &File) -> std::io::Result<Result<(), UnsafeFileReason>> {
        use std::os::unix::fs::MetadataExt;

        let is_own = |uid: u32| uid == self.uid || uid == 0;
        let link = std::fs::symlink_metadata(path)?;
        if !is_own(link.uid()) && link.is_symlink() {
            return Ok(Err(UnsafeFileReason::OtherLinkOwner { uid: link.uid() }));
        }
        // Of the open file, which cannot be exchanged any more.
        let metadata = file.metadata()?;
        if !is_own(metadata.uid()) {
            return Ok(Err(UnsafeFileReason::OtherOwner { uid: metadata.uid() }));
        }
        let mode = metadata.mode() & 0o7777;
        let is_private_group = self.private_group == Some(metadata.gid());
        if mode & 0o002 != 0 || (mode & 0o020 != 0 && !is_private_group) {
            return Ok(Err(UnsafeFileReason::WritableByOthers { mode }));
        }
        Ok(Ok(()))
    }

    /// Files have no such owner on this platform.
    #[cfg(not(unix))]
    pub(crate) fn check(self, _: &Path, _: &File) -> std::io::Result<Result<(), UnsafeFileReason>> {
        Ok(Ok(()))
    }
}
