//! Atomic file writes.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::private_file::private_options;

/// Maximum number of attempts to find an unused temporary name.
const MAX_TRIES: u32 = 100;

/// Error of writing a file. The file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file is read-only.
    #[error("{}: the file is read-only and was not changed. Make it writable first", path.display())]
    ReadOnly {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file changed since it was read.
    #[error("{}: another program changed the file, so it was not written. Try again", path.display())]
    Changed {
        /// Path of the file.
        path: PathBuf,
    },
    /// The operating system reported an error.
    #[error("{}: cannot write the file: {error}. Check the permissions of its directory", path.display())]
    Unwritable {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        #[source]
        error: io::Error,
    },
}

/// Writes a file atomically: readers see either the old text or the new one.
///
/// Symbolic links are followed and kept, permissions are preserved, and missing directories are created. Only this
/// user can access a new file. If `old` is given, the file must still have that content; otherwise it must not
/// exist yet.
///
/// ```
/// use pegboard_config::edit::write;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("pegboard.yaml");
/// write(&path, None, "toolTimeout: 30s\n")?;
/// write(&path, Some("toolTimeout: 30s\n"), "toolTimeout: 1m\n")?;
/// assert!(write(&path, Some("toolTimeout: 30s\n"), "toolTimeout: 2m\n").is_err());
/// assert_eq!(std::fs::read_to_string(&path)?, "toolTimeout: 1m\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write(path: &Path, old: Option<&str>, new: &str) -> Result<(), WriteError> {
    write_with(path, old, new, AccessRule::Preserve)
}

/// Permissions of a file that is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessRule {
    /// As before.
    Preserve,
    /// As before, but for this user alone.
    OwnerOnly,
}

/// Same as [`write`], with a rule for the permissions of an existing file.
pub(super) fn write_with(
    path: &Path,
    old: Option<&str>,
    new: &str,
    access: AccessRule,
) -> Result<(), WriteError> {
    let unwritable = |error| WriteError::Unwritable { path: path.to_owned(), error };
    let real = resolve_links(path).map_err(unwritable)?;
    let present = match fs::metadata(&real) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(unwritable(error)),
    };
    if present.as_ref().is_some_and(|metadata| metadata.permissions().readonly()) {
        return Err(WriteError::ReadOnly { path: path.to_owned() });
    }
    let folder = real.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(unwritable)?;
    let (temp_path, file) = create_temp_file(&real).map_err(unwritable)?;
    let temp_file = TempFile(temp_path);
    write_temp_file(file, new, (present.as_ref(), access)).map_err(unwritable)?;
    // As late as possible, so that a concurrent change is not lost.
    let is_as_read = match old {
        Some(old) => fs::read(&real).is_ok_and(|now| now == old.as_bytes()),
        None => !real.exists(),
    };
    if !is_as_read {
        return Err(WriteError::Changed { path: path.to_owned() });
    }
    fs::rename(&temp_file.0, &real).map_err(unwritable)?;
    std::mem::forget(temp_file);
    // Not every platform can sync a directory, and the file is complete either way.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// A temporary file that is removed on drop unless it is renamed.
struct TempFile(PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Follows all symbolic links, even if the final target does not exist.
pub fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    // More than any platform follows.
    for _ in 0..64 {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target)),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("symbolic links form a cycle"))
}

/// Creates a temporary file beside another one. It is private before anything is written to it.
fn create_temp_file(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let mut options = private_options();
    options.create_new(true);
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 0..MAX_TRIES {
        let temp_path = path.with_file_name(format!(".{name}.{}-{number}.tmp", std::process::id()));
        match options.open(&temp_path) {
            Ok(file) => return Ok((temp_path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Writes the text, copies permissions and owner from another file, and syncs to disk.
fn write_temp_file(
    mut file: File,
    text: &str,
    (like, access): (Option<&fs::Metadata>, AccessRule),
) -> io::Result<()> {
    if let Some(like) = like {
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
                // Only privileged users may do this; for others the owner is the same anyway.
                let _ = fchown(&file, Some(like.uid()), Some(like.gid()));
            }
            let kept = match access {
                AccessRule::Preserve => 0o7777,
                AccessRule::OwnerOnly => 0o700,
            };
            // After the owner: to change it clears bits.
            file.set_permissions(fs::Permissions::from_mode(like.mode() & kept))?;
        }
        #[cfg(not(unix))]
        {
            let _ = access;
            file.set_permissions(like.permissions())?;
        }
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
