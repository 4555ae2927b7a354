//! The retained record of an operation.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use indexmap::IndexMap;
use tokio::time::Instant;

use super::node::LogLine;
use super::path::OpSegment;
use super::text::{self, Payload};
use super::{OpError, OpKind, OpTree, OpUsage};

/// Maximum number of attributes of an operation or a session.
const MAX_ATTRIBUTES: usize = 64;
/// Maximum number of log lines per operation.
const MAX_LOG_LINES: usize = 200;
/// Maximum length of a log line, attribute key or attribute value, in bytes.
const MAX_NOTE: usize = 512;

/// An operation, live or finished.
#[derive(Clone, Debug)]
pub(super) struct OpRecord {
    pub(super) at: OpSegment,
    pub(super) kind: OpKind,
    pub(super) name: Arc<str>,
    pub(super) server: Option<Arc<str>>,
    pub(super) started: SystemTime,
    pub(super) began: Instant,
    pub(super) size: u64,
    pub(super) child: Option<OpTree>,
    /// `None` for most operations.
    pub(super) notes: Option<Box<OpNotes>>,
    pub(super) finish: Option<OpFinish>,
}

/// There may be very many records: up to a thousand for each session.
const _: () = assert!(size_of::<OpRecord>() <= 208);

/// Outcome and duration of an operation.
#[derive(Clone, Debug)]
pub(super) struct OpFinish {
    pub(super) result: Result<(), OpError>,
    pub(super) size: u64,
    pub(super) cached: bool,
    pub(super) waited: Duration,
    pub(super) latency: Duration,
}

/// Parts of a record that few operations have.
#[derive(Clone, Debug, Default)]
pub(super) struct OpNotes {
    pub(super) request: Option<Payload>,
    pub(super) response: Option<Payload>,
    pub(super) usage: OpUsage,
    pub(super) attributes: Attributes,
    pub(super) lines: VecDeque<LogLine>,
}

impl OpNotes {
    /// Appends a line; drops the oldest one if there are too many.
    pub(super) fn log(&mut self, line: LogLine) {
        if self.lines.len() == MAX_LOG_LINES {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }
}

/// Attributes, in insertion order.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes(pub(super) IndexMap<Arc<str>, Arc<str>>);

impl Attributes {
    /// Sets an attribute; a new one is ignored if there are too many.
    pub(super) fn set(&mut self, (key, value): (Arc<str>, Arc<str>)) {
        if self.0.len() < MAX_ATTRIBUTES || self.0.contains_key(&key) {
            self.0.insert(key, value);
        }
    }
}

/// Truncates a note to its maximum length.
pub(super) fn bounded_note(text: &str) -> Arc<str> {
    text::truncate(text, MAX_NOTE)
}

/// Milliseconds since the Unix epoch; 0 for earlier times.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Adds a duration to a time; returns the time unchanged on overflow.
pub(super) fn add_duration(time: SystemTime, by: Duration) -> SystemTime {
    time.checked_add(by).unwrap_or(time)
}
