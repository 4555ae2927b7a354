//! What is kept of one operation.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use indexmap::IndexMap;
use tokio::time::Instant;

use super::node::LogLine;
use super::path::Segment;
use super::text::{self, Payload};
use super::{End, OpKind, OpTree};

/// How many attributes an operation or a session has.
const MAX_ATTRIBUTES: usize = 64;
/// How many lines of log an operation has.
const MAX_LOG_LINES: usize = 200;
/// How long a line, or the key or the value of an attribute, may be, in bytes.
const MAX_NOTE: usize = 512;

/// One operation, live or finished.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) at: Segment,
    pub(super) kind: OpKind,
    pub(super) name: Arc<str>,
    pub(super) server: Option<Arc<str>>,
    pub(super) started: SystemTime,
    pub(super) began: Instant,
    pub(super) size: u64,
    pub(super) payload: Option<Payload>,
    pub(super) child: Option<OpTree>,
    /// Most operations have none.
    pub(super) notes: Option<Box<Notes>>,
    pub(super) finish: Option<Finish>,
}

/// How an operation ended, and after how long.
#[derive(Clone, Debug)]
pub(super) struct Finish {
    pub(super) end: End,
    pub(super) latency: Duration,
    /// The how manieth of its session to end, from 1.
    pub(super) place: u64,
}

/// What was remarked on an operation.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    pub(super) attributes: Attributes,
    pub(super) lines: VecDeque<LogLine>,
}

impl Notes {
    /// Adds a line; the oldest goes if there are too many.
    pub(super) fn log(&mut self, line: LogLine) {
        if self.lines.len() == MAX_LOG_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

/// Names with values, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes(pub(super) IndexMap<Arc<str>, Arc<str>>);

impl Attributes {
    /// Sets one; a new one is left out if there are too many.
    pub(super) fn set(&mut self, (key, value): (Arc<str>, Arc<str>)) {
        if self.0.len() < MAX_ATTRIBUTES || self.0.contains_key(&key) {
            self.0.insert(key, value);
        }
    }
}

/// A remark as it is kept.
pub(super) fn note(text: &str) -> Arc<str> {
    text::bounded(text, MAX_NOTE)
}

/// Milliseconds since 1970; 0 before it.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time that much later; the same if there is no such time.
pub(super) fn later(time: SystemTime, by: Duration) -> SystemTime {
    time.checked_add(by).unwrap_or(time)
}
