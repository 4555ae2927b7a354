//! A change of one file.

use std::path::{Path, PathBuf};

use super::atomic_write::{AccessRule, write_with};
use super::{ConfigDocument, WriteError, diff, write};
use crate::plaintext_keys::plaintext_keys;

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

    /// Returns the paths of plaintext keys that the change adds: `mcpServers.github.env.GITHUB_TOKEN`. Empty if
    /// the file is no configuration.
    pub fn added_keys(&self) -> Vec<String> {
        let keys = |text: &str| {
            let document = ConfigDocument::new(&self.path, text.to_owned());
            document.map(|document| plaintext_keys(document.value())).unwrap_or_default()
        };
        let before = self.old.as_deref().map(keys).unwrap_or_default();
        let mut added = keys(&self.new);
        added.retain(|key| !before.contains(key));
        added
    }

    /// Writes the file atomically, if the content differs.
    pub fn write(&self) -> Result<(), WriteError> {
        if self.has_effect() { write(&self.path, self.old.as_deref(), &self.new) } else { Ok(()) }
    }

    /// Writes the file atomically, if the content differs. If it adds plaintext keys, only the owner of the file
    /// can access it afterwards.
    ///
    /// Returns `true` if other users could read the file before.
    pub fn write_guarded(&self) -> Result<bool, WriteError> {
        if self.added_keys().is_empty() {
            return self.write().map(|()| false);
        }
        let was_open = self.old.is_some() && is_readable_by_others(&self.path);
        write_with(&self.path, self.old.as_deref(), &self.new, AccessRule::OwnerOnly)?;
        Ok(was_open)
    }
}

/// Returns `true` if other users can read the file.
#[cfg(unix)]
fn is_readable_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o077 != 0)
}

/// Permissions are inherited from the directory on this platform.
#[cfg(not(unix))]
fn is_readable_by_others(_: &Path) -> bool {
    false
}
