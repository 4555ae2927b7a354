//! Persists finished calls, so that they can be inspected after their caller is gone.
//!
//! The end of a call only marks its caller as dirty. A background task visits dirty callers about once a
//! second and writes their new calls to the store. If a caller finishes more calls between two visits than
//! its tree retains, the oldest are lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pegboard_core::store::{CallSummary, FinishedCall, HistoryStore};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, Instant};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::caller::Caller;
use crate::optree::{OpNode, OpTree};
use crate::store_timeout::with_timeout;
use crate::trace_id::TraceId;
use crate::wall_clock::WallClock;

/// Maximum number of dirty callers; the calls of further ones are lost.
const MAX_DIRTY: usize = 10_000;
/// Time between two visits of the dirty callers.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of calls per write.
const MAX_BATCH_CALLS: usize = 100;
/// Maximum number of bytes per write.
const MAX_BATCH_BYTES: usize = 4 << 20;
/// Maximum size of one call; a larger one is reduced.
const MAX_BODY_BYTES: usize = 512 << 10;
/// Retention of a call.
const RETENTION: Duration = Duration::from_hours(7 * 24);
/// Timeout of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a flush.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum time between two warnings about a failing store.
const WARN_INTERVAL: Duration = Duration::from_mins(1);

/// Writes finished calls to a store in the background.
pub(crate) struct HistoryRecorder {
    messages: mpsc::Sender<HistoryMessage>,
    _writer: AbortOnDropHandle<()>,
}

/// Pending history of one caller. It outlives the caller until it is written.
pub(crate) struct CallerHistory {
    session: Arc<str>,
    instance_id: Uuid,
    owner: Arc<str>,
    tree: OpTree,
    is_dirty: AtomicBool,
    /// Number of finished calls at the last visit.
    n_flushed: AtomicU64,
}

enum HistoryMessage {
    Dirty(Arc<CallerHistory>),
    Flush(oneshot::Sender<()>),
}

impl HistoryRecorder {
    /// Starts the background task. Must be called within a Tokio runtime.
    pub(crate) fn new(store: Arc<dyn HistoryStore>, wall: WallClock) -> Self {
        // One more than the maximum, so that a flush always finds room.
        let (messages, waiting) = mpsc::channel(MAX_DIRTY + 1);
        let writer = HistoryWriter { store, wall, last_warning: None };
        Self { messages, _writer: AbortOnDropHandle::new(tokio::spawn(writer.run(waiting))) }
    }

    /// Records that a call of a caller has ended.
    pub(crate) fn mark_dirty(&self, caller: &Caller) {
        let history = caller.history();
        if history.is_dirty.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_sent = self.messages.capacity() > 1
            && self.messages.try_send(HistoryMessage::Dirty(Arc::clone(history))).is_ok();
        if !is_sent {
            // The next call that ends tries again.
            history.is_dirty.store(false, Ordering::Release);
        }
    }

    /// Waits, up to a timeout, until everything recorded so far has been attempted.
    pub(crate) async fn flush(&self) {
        let (done, finished) = oneshot::channel();
        let flushed =
            async { self.messages.send(HistoryMessage::Flush(done)).await.is_ok() && finished.await.is_ok() };
        // What is not written by then is written later, or lost with the process.
        let _ = time::timeout(FLUSH_TIMEOUT, flushed).await;
    }
}

impl CallerHistory {
    pub(crate) fn new(session: Arc<str>, instance_id: Uuid, owner: Arc<str>, tree: OpTree) -> Self {
        let (is_dirty, n_flushed) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { session, instance_id, owner, tree, is_dirty, n_flushed }
    }

    /// Returns the calls that have ended since the last visit.
    fn take_new_calls(&self, now: SystemTime) -> Vec<FinishedCall> {
        // Cleared first, so that a call that ends from here on marks it again.
        self.is_dirty.store(false, Ordering::Release);
        let ended = self.tree.ended_after(self.n_flushed.load(Ordering::Relaxed));
        if let Some((n_ended, _)) = ended.last() {
            self.n_flushed.store(*n_ended, Ordering::Relaxed);
        }
        ended.into_iter().map(|(_, call)| self.finished_call(call, now)).collect()
    }

    fn finished_call(&self, call: OpNode, now: SystemTime) -> FinishedCall {
        let summary = CallSummary {
            id: TraceId::of(self.instance_id, &call.op_id).to_string(),
            session: self.session.to_string(),
            owner: self.owner.to_string(),
            tool: call.name.to_string(),
            error: call.error.as_ref().map(|error| error.kind().to_owned()),
            started: SystemTime::UNIX_EPOCH + Duration::from_millis(call.started_at),
            duration: call.latency,
        };
        FinishedCall { summary, expires: now.checked_add(RETENTION).unwrap_or(now), body: body(call) }
    }
}

/// Serializes a call. If it is too large, first its nested session is dropped, then its logs and attributes.
fn body(mut call: OpNode) -> Bytes {
    let written = |call: &OpNode| serde_json::to_vec(call).unwrap_or_default();
    let mut body = written(&call);
    if body.len() > MAX_BODY_BYTES {
        call.child_session = None;
        call.attributes.insert("omitted".into(), "childSession".into());
        body = written(&call);
    }
    if body.len() > MAX_BODY_BYTES {
        call.logs.clear();
        call.attributes.clear();
        call.attributes.insert("omitted".into(), "childSession, logs, attributes".into());
        body = written(&call);
    }
    body.into()
}

/// The background task.
struct HistoryWriter {
    store: Arc<dyn HistoryStore>,
    wall: WallClock,
    last_warning: Option<Instant>,
}

impl HistoryWriter {
    async fn run(mut self, mut messages: mpsc::Receiver<HistoryMessage>) {
        while let Some(first) = messages.recv().await {
            let mut message = Some(first);
            let mut callers = Vec::new();
            let mut waiting = None;
            let deadline = Instant::now() + FLUSH_INTERVAL;
            while let Some(next) = message {
                match next {
                    HistoryMessage::Dirty(history) => callers.push(history),
                    HistoryMessage::Flush(done) => {
                        waiting = Some(done);
                        break;
                    }
                }
                let is_enough = callers.len() >= MAX_DIRTY;
                message = if is_enough {
                    None
                } else {
                    time::timeout_at(deadline, messages.recv()).await.ok().flatten()
                };
            }
            self.write(callers).await;
            if let Some(done) = waiting {
                // The receiver may have timed out.
                let _ = done.send(());
            }
        }
    }

    async fn write(&mut self, callers: Vec<Arc<CallerHistory>>) {
        let now = self.wall.now();
        let (mut calls, mut n_bytes) = (Vec::new(), 0);
        for history in callers {
            for call in history.take_new_calls(now) {
                n_bytes += call.body.len();
                calls.push(call);
                if calls.len() >= MAX_BATCH_CALLS || n_bytes >= MAX_BATCH_BYTES {
                    n_bytes = 0;
                    self.add(std::mem::take(&mut calls), now).await;
                }
            }
            // Running calls take precedence.
            tokio::task::yield_now().await;
        }
        if !calls.is_empty() {
            self.add(calls, now).await;
        }
    }

    async fn add(&mut self, calls: Vec<FinishedCall>, now: SystemTime) {
        let n_lost = calls.len();
        let added = with_timeout(WRITE_TIMEOUT, self.store.add(calls, now)).await;
        let Err(error) = added else { return };
        if self.last_warning.is_none_or(|last| last.elapsed() >= WARN_INTERVAL) {
            self.last_warning = Some(Instant::now());
            tracing::warn!(%error, n_lost, "Cannot write finished calls to the history; they are lost.");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::optree::{OpEnd, OpKind, OpStart, SessionIdentity};

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
            call.end(OpEnd::ok());
            let history = CallerHistory::new("s".into(), Uuid::nil(), "".into(), tree);
            let calls = history.take_new_calls(now);
            let [call] = &calls[..] else { panic!("one call has ended, not {}", calls.len()) };
            assert!(call.body.len() <= MAX_BODY_BYTES);
            let read: serde_json::Value = serde_json::from_slice(&call.body).expect("it is JSON");
            assert_eq!(read["attributes"]["omitted"].as_str(), expected);
            assert!(history.take_new_calls(now).is_empty());
        }
    }
}
