//! A log of what a hostile server received and did, for tests to read.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Environment variable with the path of the journal.
pub const JOURNAL: &str = "HOSTILE_JOURNAL";

/// A file with one line per event: `start`, the method of every message received, and `count` for every run
/// of that tool. Without a path nothing is written.
#[derive(Clone, Debug, Default)]
pub struct Journal(Option<PathBuf>);

impl Journal {
    /// Returns the journal that the environment names.
    pub fn from_environment() -> Self {
        Self(std::env::var_os(JOURNAL).map(Into::into))
    }

    /// Appends a line.
    pub(super) fn note(&self, line: &str) {
        let Some(path) = &self.0 else { return };
        // A single write, so that lines of several processes do not mix.
        let written = OpenOptions::new().create(true).append(true).open(path);
        let written = written.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.expect("the journal can be written, or no test can tell what happened");
    }
}
