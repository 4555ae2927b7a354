//! Regular files, which can be read without waiting.
//!
//! Opening a pipe waits for its other end, and a device may never end. A check before a file is opened is about another
//! file if the path is changed in between, so the open file is checked.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

/// An open regular file.
///
/// ```
/// use pegboard_files::RegularFile;
///
/// # let folder = tempfile::tempdir()?;
/// let path = folder.path().join("notes.txt");
/// std::fs::write(&path, "three")?;
/// assert_eq!(RegularFile::open(&path)?.read(5)?.as_deref(), Some(&b"three"[..]));
/// assert_eq!(RegularFile::open(&path)?.read(4)?, None);
/// assert!(RegularFile::open(folder.path()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RegularFile(File);

/// Treatment of a path that is a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Links {
    Follow,
    Refuse,
}

impl RegularFile {
    /// Opens a file for reading. Never waits; an error if it is a directory, a pipe or a device.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_with(path, Links::Follow)
    }

    /// Opens a file of secrets for reading: it is no link, belongs to this user, and other users cannot access it.
    pub fn open_private(path: &Path) -> io::Result<Self> {
        let file = Self::open_with(path, Links::Refuse)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let metadata = file.0.metadata()?;
            if metadata.uid() != rustix::process::geteuid().as_raw() {
                return Err(io::Error::other("it belongs to another user"));
            }
            if metadata.mode() & 0o077 != 0 {
                let problem = "other users can access it";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
            }
        }
        Ok(file)
    }

    fn open_with(path: &Path, links: Links) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true);
        #[cfg(unix)]
        {
            use rustix::fs::OFlags;
            use std::os::unix::fs::OpenOptionsExt;
            let flags = match links {
                Links::Follow => OFlags::empty(),
                Links::Refuse => OFlags::NOFOLLOW,
            };
            // A terminal must not become that of this process, and nothing is waited for.
            let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
            options.custom_flags(flags.bits().cast_signed());
        }
        #[cfg(not(unix))]
        if links == Links::Refuse && path.is_symlink() {
            return Err(io::Error::other("it is a link"));
        }
        let file = options.open(path).map_err(|error| with_reason(error, links))?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        Ok(Self(file))
    }

    /// Returns the open file.
    pub fn as_file(&self) -> &File {
        &self.0
    }

    /// Reads the file; `None` if it is larger than `max_bytes`.
    pub fn read(self, max_bytes: u64) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        self.0.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 <= max_bytes).then_some(bytes))
    }
}

/// Says what is wrong with a link that is not followed.
fn with_reason(error: io::Error, links: Links) -> io::Error {
    #[cfg(unix)]
    if links == Links::Refuse && error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) {
        return io::Error::other("it is a link");
    }
    #[cfg(not(unix))]
    let _ = links;
    error
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for (name, to) in
            [("to-file", "file"), ("to-pipe", "pipe"), ("to-device", "/dev/zero"), ("to-nothing", "gone")]
        {
            symlink(folder.path().join(to), at(name)).unwrap();
        }
        for (name, is_regular) in [
            ("file", true),
            ("to-file", true),
            ("folder", false),
            ("pipe", false),
            ("socket", false),
            ("to-pipe", false),
            ("to-device", false),
            ("to-nothing", false),
        ] {
            assert_eq!(RegularFile::open(&at(name)).is_ok(), is_regular, "{name}");
        }
    }

    #[test]
    fn a_file_of_secrets_is_no_link_and_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "secret").unwrap();
        for (mode, is_private) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(RegularFile::open_private(&path).is_ok(), is_private, "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(RegularFile::open_private(&link).is_err());
    }
}
