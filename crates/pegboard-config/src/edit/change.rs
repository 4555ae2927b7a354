//! A change of one file.

use std::path::{Path, PathBuf};

use super::{WriteError, diff, write};

/// Change of a file that is not written yet.
#[derive(Debug)]
pub struct FileChange {
    /// Path of the file.
    pub path: PathBuf,
    /// Content on disk; `None` if the file does not exist.
    pub old: Option<String>,
    /// New content.
    pub new: String,
}

impl FileChange {
    /// Returns `true` if the content differs from that on disk.
    pub fn has_effect(&self) -> bool {
        self.old.as_deref() != Some(self.new.as_str())
    }

    /// Returns the diff under this name, with secrets redacted.
    pub fn diff(&self, name: &str) -> String {
        diff(Path::new(name), self.old.as_deref().unwrap_or_default(), &self.new)
    }

    /// Writes the file atomically, if the content differs.
    pub fn write(&self) -> Result<(), WriteError> {
        if self.has_effect() { write(&self.path, self.old.as_deref(), &self.new) } else { Ok(()) }
    }

    /// Same as [`write`](Self::write), but makes a new file readable only by this user.
    pub fn write_private(&self) -> Result<(), WriteError> {
        self.write()?;
        #[cfg(unix)]
        if self.old.is_none() {
            use std::os::unix::fs::PermissionsExt;
            // Best effort: on failure the file has the default permissions.
            let _ = std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(0o600));
        }
        Ok(())
    }
}
