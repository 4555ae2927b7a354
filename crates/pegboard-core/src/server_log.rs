//! What a provider says beside its answers: the last lines of it, for people who look.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::text::clipped;

/// How many lines are kept.
const MAX_LINES: usize = 2_000;
/// How many bytes of them are kept.
const MAX_BYTES: usize = 1024 * 1024;
/// How long a line may be.
const MAX_LINE_BYTES: usize = 16 * 1024;
/// How many lines wait for whoever is slow to read them.
const MAX_WAITING: usize = 1_024;

/// The last lines that a provider said beside its answers. Clones are the same log.
///
/// ```
/// use pegboard_core::server_log::{ServerLog, Stream};
///
/// let log = ServerLog::default();
/// log.write(Stream::Stderr, None, "listening");
/// assert_eq!(log.last(10)[0].text, "listening");
/// ```
#[derive(Clone, Default)]
pub struct ServerLog(Arc<Mutex<Kept>>);

/// A line of such a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerLine {
    /// Which line of the log it is, from 1.
    pub number: u64,
    /// When it was said.
    pub at: Instant,
    /// Where it was said.
    pub stream: Stream,
    /// How much it matters, in the words of the protocol, if the server says so.
    pub level: Option<String>,
    /// What was said.
    pub text: String,
}

/// Where a line of a log comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The standard error of its program.
    Stderr,
    /// A message of the protocol.
    Message,
    /// Whoever starts, watches and ends it.
    Keeper,
}

impl Stream {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stderr => "stderr",
            Self::Message => "message",
            Self::Keeper => "pegboard",
        }
    }
}

#[derive(Default)]
struct Kept {
    lines: VecDeque<Arc<ServerLine>>,
    n_bytes: usize,
    n_said: u64,
    /// There from the first moment on that somebody listens.
    listeners: Option<broadcast::Sender<Arc<ServerLine>>>,
}

impl ServerLog {
    /// Adds a line.
    pub fn write(&self, stream: Stream, level: Option<&str>, text: &str) {
        let mut kept = self.kept();
        kept.n_said += 1;
        let text = clipped(text, MAX_LINE_BYTES).into_owned();
        let level = level.map(|level| clipped(level, MAX_LINE_BYTES).into_owned());
        let line = Arc::new(ServerLine { number: kept.n_said, at: Instant::now(), stream, level, text });
        kept.n_bytes += line.text.len();
        kept.lines.push_back(Arc::clone(&line));
        while kept.lines.len() > MAX_LINES || kept.n_bytes > MAX_BYTES {
            let Some(oldest) = kept.lines.pop_front() else { break };
            kept.n_bytes -= oldest.text.len();
        }
        if let Some(listeners) = &kept.listeners {
            // Nobody may be there any more.
            let _ = listeners.send(line);
        }
    }

    /// The last lines, the oldest first.
    pub fn last(&self, n_most: usize) -> Vec<Arc<ServerLine>> {
        self.kept().last(n_most)
    }

    /// The last lines, and every one that follows them.
    pub fn follow(&self, n_most: usize) -> (Vec<Arc<ServerLine>>, broadcast::Receiver<Arc<ServerLine>>) {
        let mut kept = self.kept();
        let listener = kept.listeners.get_or_insert_with(|| broadcast::Sender::new(MAX_WAITING)).subscribe();
        (kept.last(n_most), listener)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn last(&self, n_most: usize) -> Vec<Arc<ServerLine>> {
        self.lines.iter().skip(self.lines.len().saturating_sub(n_most)).cloned().collect()
    }
}

/// What was said stays out: it is for people who look, not for other logs.
impl fmt::Debug for ServerLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerLog").field("n_lines", &self.kept().lines.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        let log = ServerLog::default();
        for number in 0..3_000 {
            log.write(Stream::Stderr, None, &format!("line {number}"));
        }
        let last = log.last(usize::MAX);
        assert_eq!((last.len(), last[0].text.as_str(), last[0].number), (MAX_LINES, "line 1000", 1_001));
        assert_eq!(log.last(1)[0].text, "line 2999");
        for _ in 0..100 {
            log.write(Stream::Stderr, None, &"x".repeat(2 * MAX_LINE_BYTES));
        }
        assert!(log.kept().n_bytes <= MAX_BYTES && log.last(1)[0].text.len() < MAX_LINE_BYTES + 4);
    }

    #[test]
    fn who_follows_misses_nothing_and_hears_nothing_twice() {
        let log = ServerLog::default();
        log.write(Stream::Keeper, None, "started");
        let (before, mut after) = log.clone().follow(10);
        log.write(Stream::Message, Some("error"), "no key");
        let line = after.try_recv().expect("it was said");
        assert_eq!((before.len(), before[0].number), (1, 1));
        assert_eq!((line.number, line.level.as_deref(), line.text.as_str()), (2, Some("error"), "no key"));
        assert!(after.try_recv().is_err());
    }
}
