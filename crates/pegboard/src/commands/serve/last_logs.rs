//! The logs of the servers of the last gateway, in the state directory.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use pegboard::runtime::Runtime;
use serde_json::{Value, json};
use tokio::task;

use super::log_file::LogFile;
use crate::cli::format::now_millis;

/// Maximum number of lines per server.
const MAX_LINES: usize = 200;
/// Maximum total size of the texts.
const MAX_BYTES: usize = 1024 * 1024;
/// Maximum size of a file that is read.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Extension of the files.
const EXTENSION: &str = "servers.json";

/// File with the last lines of all servers of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct LastLogs {
    path: PathBuf,
    /// Number of lines that had been written when the file was saved.
    n_saved: Arc<Mutex<Option<u64>>>,
}

/// Lines of a file, and the time at which it was saved.
#[derive(Clone, Debug)]
pub(crate) struct SavedLogs {
    /// Lines in the form of the API, oldest first.
    pub(crate) lines: Vec<Value>,
    /// Time in milliseconds since the Unix epoch.
    pub(crate) saved_at: u64,
}

impl LastLogs {
    /// File of a configuration.
    pub(crate) fn new(state: &Path, identity: &str) -> Self {
        let path = LogFile::new(state, identity).path().with_extension(EXTENSION);
        Self { path, n_saved: Arc::default() }
    }

    /// Saves the last lines of all servers while other tasks go on, if there are new ones.
    pub(crate) async fn save_in_background(&self, runtime: &Runtime) {
        if *self.n_saved.lock() == Some(n_written(runtime)) {
            return;
        }
        let (logs, runtime) = (self.clone(), runtime.clone());
        if let Err(error) = task::spawn_blocking(move || logs.save(&runtime)).await {
            tracing::debug!(%error, "The logs of servers are not saved.");
        }
    }

    /// Saves the last lines of all servers, if there are new ones.
    pub(crate) fn save(&self, runtime: &Runtime) {
        let mut n_saved = self.n_saved.lock();
        // Lines that are written meanwhile are saved again the next time.
        let n_written = n_written(runtime);
        if *n_saved == Some(n_written) {
            return;
        }
        let (now, mut lines) = (now_millis(), Vec::new());
        for (server, log) in runtime.server_logs() {
            let (toolbox, name) = (server.toolbox.as_str(), server.server.as_str());
            lines.extend(log.last(MAX_LINES).iter().map(|line| {
                let age = u64::try_from(line.at.elapsed().as_millis()).unwrap_or(u64::MAX);
                json!({
                    "toolbox": toolbox,
                    "server": name,
                    "number": line.number,
                    "at": now.saturating_sub(age),
                    "stream": line.stream.as_str(),
                    "level": line.level,
                    "text": runtime.redact(&line.text),
                })
            }));
        }
        lines.sort_by_key(|line| line["at"].as_u64());
        let saved = write(&self.path, &json!({"savedAt": now, "lines": newest(lines)}));
        match saved {
            Ok(()) => *n_saved = Some(n_written),
            Err(error) => tracing::debug!(%error, "The logs of servers are not saved."),
        }
    }

    /// Reads the lines of the last gateway.
    pub(crate) fn read(&self) -> Option<SavedLogs> {
        use std::io::Read;

        let mut text = String::new();
        fs::File::open(&self.path).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        let mut document: Value = serde_json::from_str(&text).ok()?;
        let Value::Array(lines) = document["lines"].take() else { return None };
        Some(SavedLogs { lines, saved_at: document["savedAt"].as_u64()? })
    }
}

/// Returns the number of lines that all servers have written.
fn n_written(runtime: &Runtime) -> u64 {
    runtime.server_logs().iter().map(|(_, log)| log.last(1).last().map_or(0, |line| line.number)).sum()
}

/// Returns the newest lines within the limit, oldest first.
fn newest(mut lines: Vec<Value>) -> Vec<Value> {
    let mut n_bytes = 0;
    let fits = |line: &&Value| {
        n_bytes += line["text"].as_str().map_or(0, str::len);
        n_bytes <= MAX_BYTES
    };
    let n_kept = lines.iter().rev().take_while(fits).count();
    lines.split_off(lines.len() - n_kept)
}

/// Replaces the file. Only this user can read it.
fn write(path: &Path, document: &Value) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};

    let folder = path.parent().unwrap_or(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    let written = file.write_all(document.to_string().as_bytes()).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_lines_within_the_limit_are_kept() {
        let line = |number: usize, n_bytes: usize| json!({"number": number, "text": "x".repeat(n_bytes)});
        let kept = newest(vec![line(1, 10), line(2, MAX_BYTES - 5), line(3, 5)]);
        assert_eq!(kept.iter().map(|line| line["number"].as_u64().unwrap()).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn lines_are_read_as_they_were_saved() {
        let state = tempfile::tempdir().unwrap();
        let logs = LastLogs::new(state.path(), "a");
        assert!(logs.read().is_none());
        write(&logs.path, &json!({"savedAt": 5, "lines": [{"text": "hello"}]})).unwrap();
        let saved = logs.read().unwrap();
        assert_eq!((saved.saved_at, saved.lines), (5, vec![json!({"text": "hello"})]));
    }
}
