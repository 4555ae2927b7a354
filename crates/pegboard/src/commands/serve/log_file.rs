//! The log of a background gateway, in the state directory.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Directory in the state directory.
const FOLDER: &str = "log";
/// Size above which the log becomes the previous one.
const MAX_BYTES: u64 = 4 * 1024 * 1024;
/// Maximum number of bytes that are read from the end of a log.
const MAX_TAIL_BYTES: u64 = 64 * 1024;

/// Log of the background gateways of a configuration: that of the last run, and the one before it.
#[derive(Clone, Debug)]
pub(crate) struct LogFile(PathBuf);

impl LogFile {
    /// Log of a configuration.
    pub(crate) fn new(state: &Path, identity: &str) -> Self {
        Self(state.join(FOLDER).join(format!("{identity}.log")))
    }

    /// Log with this path.
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Starts the log of a new run. That of the last run becomes the previous one.
    pub(crate) fn begin(&self) -> io::Result<File> {
        if let Some(folder) = self.0.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let _ = fs::rename(&self.0, self.previous());
        OpenOptions::new().create(true).append(true).mode(0o600).open(&self.0)
    }

    /// Makes the log of the last run the previous one: another run follows without a log of its own.
    pub(crate) fn end(&self) {
        let _ = fs::rename(&self.0, self.previous());
    }

    /// Starts over if the log has grown too large. The gateway appends to the same file, so it is copied.
    pub(crate) fn rotate(&self) {
        if fs::metadata(&self.0).is_ok_and(|file| file.len() > MAX_BYTES) {
            let _ = fs::copy(&self.0, self.previous());
            let _ = OpenOptions::new().write(true).open(&self.0).and_then(|file| file.set_len(0));
        }
    }

    /// Returns the last lines.
    pub(crate) fn tail(&self, n_lines: usize) -> Vec<String> {
        use std::io::{Read, Seek, SeekFrom};

        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.0)?;
            let start = file.metadata()?.len().saturating_sub(MAX_TAIL_BYTES);
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.take(MAX_TAIL_BYTES).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(n_lines)..].iter().map(|line| (*line).to_owned()).collect()
    }

    fn previous(&self) -> PathBuf {
        self.0.with_extension("log.1")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_log_is_rotated_by_run_and_by_size() {
        let state = tempfile::tempdir().unwrap();
        let log = LogFile::new(state.path(), "a");
        writeln!(log.begin().unwrap(), "first").unwrap();
        let mut second = log.begin().unwrap();
        writeln!(second, "second\nrun").unwrap();
        assert_eq!((log.tail(1), log.tail(9)), (vec!["run".to_owned()], vec!["second".into(), "run".into()]));
        assert_eq!(fs::read_to_string(log.previous()).unwrap(), "first\n");
        log.rotate();
        assert_eq!(log.tail(9).len(), 2);
        second.write_all(&vec![b'x'; usize::try_from(MAX_BYTES).unwrap()]).unwrap();
        log.rotate();
        writeln!(second, "third").unwrap();
        assert_eq!(fs::read_to_string(log.path()).unwrap(), "third\n");
        assert!(fs::metadata(log.previous()).unwrap().len() > MAX_BYTES);
    }
}
