//! Writes finished calls and trace records to the call log, in the background.
//!
//! A call only pushes a handle of its record to a queue. A background task hands what has gathered to the store after a
//! short time, or at once if it is much; the store builds the entries on its own thread. If the store does not keep up,
//! the oldest entries are dropped and counted: no call ever waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pegboard_core::owner::Owner;
use pegboard_core::store::{
    CallLog, CallSummary, FinishedCall, LogEntry, OwnedTrace, RefusedEntries, StoreError,
};
use pegboard_json::RawJson;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use tokio::time::{self, Instant};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::event::{EventBus, LogLossReason, RuntimeEvent};
use crate::optree::{CompactOperation, EndedOperation, OpNode};
use crate::store_timeout::with_timeout;
use crate::trace_id::TraceId;
use crate::wall_clock::WallClock;

/// Time until an entry is written. Documented as the most that a crash loses.
const WRITE_INTERVAL: Duration = Duration::from_millis(200);
/// Number of entries that are written without waiting for more.
const FULL_BATCH: usize = 256;
/// Maximum number of entries that wait to be written.
const MAX_PENDING: usize = 4_096;
/// Maximum size of one call; a larger one is reduced.
const MAX_BODY_BYTES: usize = 512 << 10;
/// Size of most calls in full.
const USUAL_BODY_BYTES: usize = 1 << 10;
/// Size of most calls in the compact form.
const COMPACT_BODY_BYTES: usize = 1 << 7;
/// Timeout of one write, much longer than any disk takes.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout of a flush.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum time between two warnings about lost entries.
const WARN_INTERVAL: Duration = Duration::from_mins(1);

/// Appends entries to a store in the background.
pub(crate) struct CallLogWriter {
    queue: Arc<LogQueue>,
    _task: AbortOnDropHandle<()>,
}

/// An entry to be written.
pub(crate) enum UnwrittenEntry {
    Call(EndedCall),
    Trace(Box<OwnedTrace>),
}

/// A call that has ended, with the identity of its caller.
pub(crate) struct EndedCall {
    pub(crate) owner: Owner,
    pub(crate) client: Option<Arc<str>>,
    pub(crate) instance_id: Uuid,
    pub(crate) operation: EndedOperation,
}

impl CallLogWriter {
    /// Starts the background task. Must be called within a Tokio runtime.
    pub(crate) fn new(store: Arc<dyn CallLog>, wall: WallClock, events: EventBus) -> Self {
        let queue = Arc::<LogQueue>::default();
        let writer = LogWriterTask { store, wall, events, queue: Arc::clone(&queue), last_warning: None };
        Self { queue, _task: AbortOnDropHandle::new(tokio::spawn(writer.run())) }
    }

    /// Enqueues an entry.
    pub(crate) fn push(&self, entry: UnwrittenEntry) {
        let mut pending = self.queue.pending.lock();
        let dropped = (pending.entries.len() == MAX_PENDING).then(|| pending.entries.pop_front());
        pending.n_dropped += u64::from(dropped.is_some());
        pending.n_pushed += 1;
        pending.entries.push_back(entry);
        let n_entries = pending.entries.len();
        pending.is_urgent |= n_entries >= FULL_BATCH;
        drop(pending);
        if n_entries == 1 || n_entries == FULL_BATCH {
            self.queue.wake.notify_one();
        }
    }

    /// Waits, up to a timeout, until everything pushed so far has been attempted.
    pub(crate) async fn flush(&self) {
        let n_pushed = self.queue.pending.lock().n_pushed;
        let mut n_attempted = self.queue.n_attempted.subscribe();
        if *n_attempted.borrow() >= n_pushed {
            return;
        }
        self.queue.pending.lock().is_urgent = true;
        self.queue.wake.notify_one();
        // What is not written by then is written later, or lost with the process.
        let _ = time::timeout(FLUSH_TIMEOUT, n_attempted.wait_for(|number| *number >= n_pushed)).await;
    }
}

/// Entries that wait to be written.
#[derive(Default)]
struct LogQueue {
    pending: Mutex<UnwrittenEntries>,
    /// Wakes the background task: there is a first entry, or they are urgent.
    wake: Notify,
    /// Number of entries that were written, lost or dropped.
    n_attempted: watch::Sender<u64>,
}

#[derive(Default)]
struct UnwrittenEntries {
    entries: VecDeque<UnwrittenEntry>,
    n_pushed: u64,
    /// Number of entries dropped since the last write.
    n_dropped: u64,
    /// Set if they are to be written at once.
    is_urgent: bool,
}

/// The background task.
struct LogWriterTask {
    store: Arc<dyn CallLog>,
    wall: WallClock,
    events: EventBus,
    queue: Arc<LogQueue>,
    last_warning: Option<Instant>,
}

impl LogWriterTask {
    async fn run(mut self) {
        loop {
            self.queue.wake.notified().await;
            let deadline = Instant::now() + WRITE_INTERVAL;
            let is_urgent = || self.queue.pending.lock().is_urgent;
            while !is_urgent() && time::timeout_at(deadline, self.queue.wake.notified()).await.is_ok() {}
            self.write().await;
        }
    }

    async fn write(&mut self) {
        let pending = {
            let mut pending = self.queue.pending.lock();
            let n_pushed = pending.n_pushed;
            std::mem::replace(&mut *pending, UnwrittenEntries { n_pushed, ..UnwrittenEntries::default() })
        };
        if pending.n_dropped > 0 {
            self.report_loss(LogLossReason::QueueFull, pending.n_dropped, None);
        }
        let n_entries = pending.entries.len() as u64;
        if n_entries > 0 {
            let batch = Box::new(pending.entries.into_iter().map(LogEntry::from));
            let written = self.store.append(batch, self.wall.now());
            // A write that is late is complete in the end; counted as lost, it would be there all the same.
            let (n_lost, reason) = match with_timeout(WRITE_TIMEOUT, written).await {
                Ok(RefusedEntries { n_entries, reason }) => (n_entries, reason),
                Err(error) => (n_entries, Some(error)),
            };
            if n_lost > 0 {
                self.report_loss(LogLossReason::StoreFailed, n_lost, reason.as_ref());
            }
        }
        self.queue.n_attempted.send_replace(pending.n_pushed);
    }

    fn report_loss(&mut self, reason: LogLossReason, n_entries: u64, error: Option<&StoreError>) {
        self.events.emit(|| RuntimeEvent::LogLost { n_entries, reason });
        if self.last_warning.is_some_and(|last| last.elapsed() < WARN_INTERVAL) {
            return;
        }
        self.last_warning = Some(Instant::now());
        if let Some(error) = error {
            tracing::warn!(%error, n_entries, "Cannot write to the call log; entries are lost.");
        } else {
            tracing::warn!(n_entries, "The call log does not keep up; its oldest entries are lost.");
        }
    }
}

impl From<UnwrittenEntry> for LogEntry {
    fn from(entry: UnwrittenEntry) -> Self {
        match entry {
            UnwrittenEntry::Call(call) => Self::Call(call.into()),
            UnwrittenEntry::Trace(trace) => Self::Trace(*trace),
        }
    }
}

impl From<EndedCall> for FinishedCall {
    fn from(EndedCall { owner, client, instance_id, operation }: EndedCall) -> Self {
        let (duration, error) = operation.outcome();
        let summary = CallSummary {
            id: TraceId::of(instance_id, &operation.path()).into_string(),
            session: Arc::clone(operation.session()),
            client,
            owner,
            tool: Arc::clone(operation.name()),
            error: error.map(|error| error.kind().to_owned()),
            started: operation.started(),
            duration,
        };
        let body = match CompactOperation::of(&operation) {
            Some(compact) => to_json(&compact, COMPACT_BODY_BYTES),
            None => whole_body(operation.to_node()),
        };
        Self { summary, body }
    }
}

/// Returns the operation of a call in the log, with everything below it; `None` if it cannot be read.
pub fn logged_operation(FinishedCall { summary, body }: FinishedCall) -> Option<RawJson> {
    if !body.starts_with('[') {
        return RawJson::parse(body.into()).ok();
    }
    let operation: CompactOperation<'_> = serde_json::from_str(&body).ok()?;
    Some(RawJson::of(&operation.to_node(&summary.session, &summary.tool)))
}

/// Serializes a call. If it is too large, first its nested session is dropped, then its logs and attributes.
fn whole_body(mut call: OpNode) -> String {
    let mut body = to_json(&call, USUAL_BODY_BYTES);
    if body.len() > MAX_BODY_BYTES {
        call.child_session = None;
        call.attributes.insert("omitted".into(), "childSession".into());
        body = to_json(&call, USUAL_BODY_BYTES);
    }
    if body.len() > MAX_BODY_BYTES {
        call.logs.clear();
        call.attributes.clear();
        call.attributes.insert("omitted".into(), "childSession, logs, attributes".into());
        body = to_json(&call, USUAL_BODY_BYTES);
    }
    body
}

fn to_json(value: &impl Serialize, capacity: usize) -> String {
    let mut text = Vec::with_capacity(capacity);
    let written = serde_json::to_writer(&mut text, value);
    written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use crate::optree::{OpEnd, OpError, OpKind, OpStart, OpTree, OpUsage, Payload, SessionIdentity};

    use super::*;

    #[test]
    fn an_oversized_call_drops_its_nested_session_and_then_its_logs() {
        let now = SystemTime::UNIX_EPOCH;
        // Each character takes six bytes in JSON.
        let long = "\u{1}".repeat(512);
        for (n_under, n_lines, expected) in
            [(0, 1, None), (300, 1, Some("childSession")), (0, 200, Some("childSession, logs, attributes"))]
        {
            let tree = OpTree::new(SessionIdentity::new("s", now));
            let call = tree.begin(OpStart::of(OpKind::Tool, "chain", now));
            (0..n_lines).for_each(|_| call.log(&long));
            let under = call.child("").unwrap();
            for _ in 0..n_under {
                let step = under.begin(OpStart::of(OpKind::Tool, "step", now));
                step.log(&long);
                step.end(OpEnd::ok());
            }
            let operation = call.end_retained(OpEnd::ok()).expect("the tree has room");
            let call: FinishedCall =
                EndedCall { owner: Owner::local(), client: None, instance_id: Uuid::nil(), operation }.into();
            assert!(call.body.len() <= MAX_BODY_BYTES);
            let read: serde_json::Value = serde_json::from_str(&call.body).expect("it is JSON");
            assert_eq!(read["attributes"]["omitted"].as_str(), expected);
        }
    }

    #[test]
    fn the_operation_of_a_logged_call_is_what_it_was() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_789_000_000_123_456_789);
        let plain = OpEnd { size: 52, ..OpEnd::ok() };
        let waited = Duration::from_micros(1_500);
        let failed = OpEnd::failed(OpError::new("timeout", "too slow"));
        let usage = OpUsage { tokens_in: 3, ..OpUsage::default() };
        for (server, log, end, is_compact) in [
            (Some("s \"0\""), None, plain.clone(), true),
            (None, None, OpEnd { cached: true, waited, ..plain.clone() }, true),
            (None, None, failed, false),
            (None, Some("a line"), plain.clone(), false),
            (None, None, OpEnd { payload: Some(Payload::of("{}")), ..plain.clone() }, false),
            (None, None, OpEnd { usage, ..plain }, false),
        ] {
            let tree = OpTree::new(SessionIdentity::new("session-1", now));
            tree.next_turn();
            let server = server.map(Into::into);
            let call = tree.begin(OpStart { server, size: 17, ..OpStart::of(OpKind::Tool, "s0__echo", now) });
            if let Some(line) = log {
                call.log(line);
            }
            let operation = call.end_retained(end).expect("the tree has room");
            let node = operation.to_node();
            let call: FinishedCall =
                EndedCall { owner: Owner::local(), client: None, instance_id: Uuid::nil(), operation }.into();
            assert_eq!(call.body.starts_with('['), is_compact);
            assert_eq!(
                logged_operation(call).map(RawJson::into_bytes),
                Some(RawJson::of(&node).into_bytes())
            );
        }
    }
}
