//! Log output of a server: its most recent lines.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::text::clipped;

/// Maximum number of buffered lines.
const MAX_LINES: usize = 2_000;
/// Maximum total size of the buffered lines.
const MAX_BYTES: usize = 1024 * 1024;
/// Maximum length of a line.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// Number of lines buffered for a slow subscriber.
const MAX_WAITING: usize = 1_024;

/// Ring buffer of a server's most recent log lines. Clones share the buffer.
///
/// ```
/// use pegboard_core::server_log::{ServerLog, LogStream};
///
/// let log = ServerLog::default();
/// log.write(LogStream::Stderr, None, "listening");
/// assert_eq!(log.last(10)[0].text, "listening");
/// ```
#[derive(Clone, Default)]
pub struct ServerLog(Arc<Mutex<LogBuffer>>);

/// A line of a server log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLogLine {
    /// Line number, from 1.
    pub number: u64,
    /// Time of the line.
    pub at: Instant,
    /// Source of the line.
    pub stream: LogStream,
    /// Log level of the protocol, if the server gave one.
    pub level: Option<String>,
    /// Text of the line.
    pub text: String,
}

/// Source of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogStream {
    /// Standard error of the server process.
    Stderr,
    /// Log notification of the protocol.
    Message,
    /// Supervisor of the server.
    Supervisor,
}

impl LogStream {
    /// Returns the source as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stderr => "stderr",
            Self::Message => "message",
            Self::Supervisor => "pegboard",
        }
    }
}

#[derive(Default)]
struct LogBuffer {
    lines: VecDeque<Arc<ServerLogLine>>,
    n_bytes: usize,
    n_written: u64,
    /// Created when the first subscriber arrives.
    subscribers: Option<broadcast::Sender<Arc<ServerLogLine>>>,
}

impl ServerLog {
    /// Appends a line.
    pub fn write(&self, stream: LogStream, level: Option<&str>, text: &str) {
        let mut buffer = self.buffer();
        buffer.n_written += 1;
        let text = clipped(text, MAX_LINE_BYTES).into_owned();
        let level = level.map(|level| clipped(level, MAX_LINE_BYTES).into_owned());
        let line =
            Arc::new(ServerLogLine { number: buffer.n_written, at: Instant::now(), stream, level, text });
        buffer.n_bytes += line.text.len();
        buffer.lines.push_back(Arc::clone(&line));
        while buffer.lines.len() > MAX_LINES || buffer.n_bytes > MAX_BYTES {
            let Some(oldest) = buffer.lines.pop_front() else { break };
            buffer.n_bytes -= oldest.text.len();
        }
        if let Some(subscribers) = &buffer.subscribers {
            // There may be no subscribers left.
            let _ = subscribers.send(line);
        }
    }

    /// Returns the last lines, oldest first.
    pub fn last(&self, limit: usize) -> Vec<Arc<ServerLogLine>> {
        self.buffer().last(limit)
    }

    /// Returns the last lines, and a subscription to the following ones.
    pub fn follow(&self, limit: usize) -> (Vec<Arc<ServerLogLine>>, broadcast::Receiver<Arc<ServerLogLine>>) {
        let mut buffer = self.buffer();
        let subscriber =
            buffer.subscribers.get_or_insert_with(|| broadcast::Sender::new(MAX_WAITING)).subscribe();
        (buffer.last(limit), subscriber)
    }

    fn buffer(&self) -> MutexGuard<'_, LogBuffer> {
        self.0.lock()
    }
}

impl LogBuffer {
    fn last(&self, limit: usize) -> Vec<Arc<ServerLogLine>> {
        self.lines.iter().skip(self.lines.len().saturating_sub(limit)).cloned().collect()
    }
}

/// Omits the lines, to keep them out of other logs.
impl fmt::Debug for ServerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLog").field("n_lines", &self.buffer().lines.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        let log = ServerLog::default();
        for number in 0..3_000 {
            log.write(LogStream::Stderr, None, &format!("line {number}"));
        }
        let last = log.last(usize::MAX);
        assert_eq!((last.len(), last[0].text.as_str(), last[0].number), (MAX_LINES, "line 1000", 1_001));
        assert_eq!(log.last(1)[0].text, "line 2999");
        for _ in 0..100 {
            log.write(LogStream::Stderr, None, &"x".repeat(2 * MAX_LINE_BYTES));
        }
        assert!(log.buffer().n_bytes <= MAX_BYTES && log.last(1)[0].text.len() < MAX_LINE_BYTES + 4);
    }

    #[test]
    fn a_follower_gets_every_line_exactly_once() {
        let log = ServerLog::default();
        log.write(LogStream::Supervisor, None, "started");
        let (before, mut after) = log.clone().follow(10);
        log.write(LogStream::Message, Some("error"), "no key");
        let line = after.try_recv().expect("a line was written");
        assert_eq!((before.len(), before[0].number), (1, 1));
        assert_eq!((line.number, line.level.as_deref(), line.text.as_str()), (2, Some("error"), "no key"));
        assert!(after.try_recv().is_err());
    }
}
