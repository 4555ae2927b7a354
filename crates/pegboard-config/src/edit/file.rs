//! Files that are written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How many names are tried for the file that is written first.
const MAX_TRIES: u32 = 100;

/// Why a file was not written. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It must not be written.
    #[error("{}: the file is read-only, so it was not changed. Make it writable first", path.display())]
    ReadOnly {
        /// Where it is.
        path: PathBuf,
    },
    /// Somebody else changed it since it was read.
    #[error("{}: the file was changed by another program just now, so it was left alone. Try again", path.display())]
    Changed {
        /// Where it is.
        path: PathBuf,
    },
    /// The system does not let it be written.
    #[error("{}: the file cannot be written: {error}. Check who may write to its folder", path.display())]
    Unwritable {
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        #[source]
        error: io::Error,
    },
}

/// Writes a file: whoever reads it finds the old text or the new one, and never a part of either.
///
/// A link leads to the file that is written, and stays a link. Who may read the file stays as it was. Folders that are
/// missing are made. If `old` is what was read, the file must still say that; without it there must be no file yet.
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
    let unwritable = |error| WriteError::Unwritable { path: path.to_owned(), error };
    let real = followed(path).map_err(unwritable)?;
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
    let (draft, file) = draft(&real).map_err(unwritable)?;
    let draft = Draft(draft);
    fill(file, new, present.as_ref()).map_err(unwritable)?;
    // As late as possible, so that what another program writes in the meantime is not lost.
    let is_as_read = match old {
        Some(old) => fs::read(&real).is_ok_and(|now| now == old.as_bytes()),
        None => !real.exists(),
    };
    if !is_as_read {
        return Err(WriteError::Changed { path: path.to_owned() });
    }
    fs::rename(&draft.0, &real).map_err(unwritable)?;
    std::mem::forget(draft);
    // Not every system can make sure of a folder, and the file is whole either way.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

/// A file that is not yet the one that was asked for. It is gone if it never becomes that.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Where all links lead, even if there is nothing yet.
pub fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    // More than any system follows.
    for _ in 0..64 {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().map_or_else(|| target.clone(), |folder| folder.join(&target)),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("links lead in a circle"))
}

/// Makes a file beside another, with a name that nobody has, for nobody else to read.
fn draft(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 0..MAX_TRIES {
        let draft = path.with_file_name(format!(".{name}.{}-{number}.tmp", std::process::id()));
        match options.open(&draft) {
            Ok(file) => return Ok((draft, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Writes a file, gives it the rights and the owner of another, and waits until it is on disk.
fn fill(mut file: File, text: &str, like: Option<&fs::Metadata>) -> io::Result<()> {
    if let Some(like) = like {
        file.set_permissions(like.permissions())?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::{MetadataExt, fchown};
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
                // Only some may do this, and for all others the two are the same but for the group.
                let _ = fchown(&file, Some(like.uid()), Some(like.gid()));
            }
        }
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
