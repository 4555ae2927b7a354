//! What a hostile server was told and what it did, written down where a test can read it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// The variable with the path of the file.
pub const JOURNAL: &str = "HOSTILE_JOURNAL";

/// A file with one line for everything that happened: `start`, the method of every message that came, and `count` for
/// every time that the tool of this name ran. Without a file nothing is written.
#[derive(Clone, Debug, Default)]
pub struct Journal(Option<PathBuf>);

impl Journal {
    /// The journal that the environment names.
    pub fn from_environment() -> Self {
        Self(std::env::var_os(JOURNAL).map(Into::into))
    }

    /// Adds a line.
    pub(super) fn note(&self, line: &str) {
        let Some(path) = &self.0 else { return };
        // One write, so that lines of several processes do not mix.
        let written = OpenOptions::new().create(true).append(true).open(path);
        let written = written.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.expect("the journal can be written, or no test can tell what happened");
    }
}
