//! Calls that have ended, written down for people who look back when whoever made them is gone.
//!
//! The end of a call only marks the page of its caller. About once a second somebody goes through the marked pages and
//! writes what is new on them to a store. A caller that ends more calls between two such rounds than its tree keeps
//! loses the oldest of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pegboard_core::store::{CallSummary, HistoryStore, PastCall, StoreError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{self, Instant};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::caller::Caller;
use crate::optree::{OpNode, OpTree};
use crate::trace_id::TraceId;
use crate::wall::WallClock;

/// How many pages may be marked at a time; the calls on more are lost.
const MAX_MARKED: usize = 10_000;
/// How long pages are marked before somebody goes through them.
const ROUND: Duration = Duration::from_secs(1);
/// How many calls are written at once.
const MAX_CALLS: usize = 100;
/// How many bytes are written at once.
const MAX_BYTES: usize = 4 << 20;
/// How large what is known of one call may be; a larger one is cut.
const MAX_BODY_BYTES: usize = 512 << 10;
/// How long a call is kept.
const KEPT: Duration = Duration::from_hours(7 * 24);
/// How long the store may take over what is written at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long everything may take when somebody waits for it.
const FLUSH_PATIENCE: Duration = Duration::from_secs(5);
/// How often a store that fails is complained about.
const COMPLAINT_INTERVAL: Duration = Duration::from_mins(1);

/// Writes calls that have ended to a store, behind the back of those that run.
pub(crate) struct History {
    letters: mpsc::Sender<Letter>,
    _writer: AbortOnDropHandle<()>,
}

/// Where the calls of one caller are written down. It outlasts the caller until it was gone through.
pub(crate) struct Page {
    session: Arc<str>,
    mark: Uuid,
    owner: Arc<str>,
    tree: OpTree,
    is_marked: AtomicBool,
    /// How many calls had ended when it was last gone through.
    n_written: AtomicU64,
}

enum Letter {
    Page(Arc<Page>),
    Flush(oneshot::Sender<()>),
}

impl History {
    /// Begins to write to a store. There must be a runtime to do it on.
    pub(crate) fn new(store: Arc<dyn HistoryStore>, wall: WallClock) -> Self {
        // One more than may be marked, so that somebody can always ask for all to be written.
        let (letters, waiting) = mpsc::channel(MAX_MARKED + 1);
        let writer = Writer { store, wall, last_complaint: None };
        Self { letters, _writer: AbortOnDropHandle::new(tokio::spawn(writer.run(waiting))) }
    }

    /// Notes that a call of a caller has ended.
    pub(crate) fn note(&self, caller: &Caller) {
        let page = caller.page();
        if page.is_marked.swap(true, Ordering::AcqRel) {
            return;
        }
        let is_sent =
            self.letters.capacity() > 1 && self.letters.try_send(Letter::Page(Arc::clone(page))).is_ok();
        if !is_sent {
            // The next call that ends tries again.
            page.is_marked.store(false, Ordering::Release);
        }
    }

    /// Waits, for some seconds at most, until everything that was noted so far was tried.
    pub(crate) async fn flush(&self) {
        let (done, finished) = oneshot::channel();
        let flushed =
            async { self.letters.send(Letter::Flush(done)).await.is_ok() && finished.await.is_ok() };
        // What is not written then is written later, or lost with the process.
        let _ = time::timeout(FLUSH_PATIENCE, flushed).await;
    }
}

impl Page {
    pub(crate) fn new(session: Arc<str>, mark: Uuid, owner: Arc<str>, tree: OpTree) -> Self {
        let (is_marked, n_written) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { session, mark, owner, tree, is_marked, n_written }
    }

    /// The calls that have ended since it was last gone through.
    fn news(&self, now: SystemTime) -> Vec<PastCall> {
        // First, so that a call that ends from here on marks it again.
        self.is_marked.store(false, Ordering::Release);
        let ended = self.tree.ended_after(self.n_written.load(Ordering::Relaxed));
        if let Some((n_ended, _)) = ended.last() {
            self.n_written.store(*n_ended, Ordering::Relaxed);
        }
        ended.into_iter().map(|(_, call)| self.past(call, now)).collect()
    }

    fn past(&self, call: OpNode, now: SystemTime) -> PastCall {
        let summary = CallSummary {
            id: TraceId::of(self.mark, &call.op_id).to_string(),
            session: self.session.to_string(),
            owner: self.owner.to_string(),
            tool: call.name.to_string(),
            error: call.error.as_ref().map(|error| error.kind().to_owned()),
            started: SystemTime::UNIX_EPOCH + Duration::from_millis(call.started_at),
            duration: call.latency,
        };
        PastCall { summary, expires: now.checked_add(KEPT).unwrap_or(now), body: body(call) }
    }
}

/// All that is known of a call, or as much of it as may be kept: first without what was done under it, then without
/// what it said.
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

/// Goes through the pages.
struct Writer {
    store: Arc<dyn HistoryStore>,
    wall: WallClock,
    last_complaint: Option<Instant>,
}

impl Writer {
    async fn run(mut self, mut letters: mpsc::Receiver<Letter>) {
        while let Some(first) = letters.recv().await {
            let mut letter = Some(first);
            let mut pages = Vec::new();
            let mut waiting = None;
            let round = Instant::now() + ROUND;
            while let Some(next) = letter {
                match next {
                    Letter::Page(page) => pages.push(page),
                    Letter::Flush(done) => {
                        waiting = Some(done);
                        break;
                    }
                }
                let is_enough = pages.len() >= MAX_MARKED;
                letter = if is_enough {
                    None
                } else {
                    time::timeout_at(round, letters.recv()).await.ok().flatten()
                };
            }
            self.write(pages).await;
            if let Some(done) = waiting {
                // Who waited may have given up.
                let _ = done.send(());
            }
        }
    }

    async fn write(&mut self, pages: Vec<Arc<Page>>) {
        let now = self.wall.now();
        let (mut calls, mut n_bytes) = (Vec::new(), 0);
        for page in pages {
            for call in page.news(now) {
                n_bytes += call.body.len();
                calls.push(call);
                if calls.len() >= MAX_CALLS || n_bytes >= MAX_BYTES {
                    n_bytes = 0;
                    self.add(std::mem::take(&mut calls), now).await;
                }
            }
            // Calls that run come first.
            tokio::task::yield_now().await;
        }
        if !calls.is_empty() {
            self.add(calls, now).await;
        }
    }

    async fn add(&mut self, calls: Vec<PastCall>, now: SystemTime) {
        let n_lost = calls.len();
        let added = time::timeout(PATIENCE, self.store.add(calls, now)).await;
        let late = || StoreError::Failed { reason: format!("nothing within {PATIENCE:?}") };
        let Err(error) = added.unwrap_or_else(|_| Err(late())) else { return };
        if self.last_complaint.is_none_or(|last| last.elapsed() >= COMPLAINT_INTERVAL) {
            self.last_complaint = Some(Instant::now());
            tracing::warn!(%error, n_lost, "Past calls are lost.");
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::optree::{About, End, OpKind, Start};

    use super::*;

    #[test]
    fn a_call_that_is_too_large_to_keep_loses_what_was_done_under_it_and_then_what_it_said() {
        let now = SystemTime::UNIX_EPOCH;
        // Each character takes six to write.
        let long = "\u{1}".repeat(512);
        for (n_under, n_lines, expected) in
            [(0, 1, None), (300, 1, Some("childSession")), (0, 200, Some("childSession, logs, attributes"))]
        {
            let tree = OpTree::new(About::new("s", now));
            let call = tree.begin(Start::of(OpKind::Tool, "chain", now));
            (0..n_lines).for_each(|_| call.log(&long));
            let under = call.child("").unwrap();
            for _ in 0..n_under {
                let step = under.begin(Start::of(OpKind::Tool, "step", now));
                step.log(&long);
                step.end(End::ok());
            }
            call.end(End::ok());
            let page = Page::new("s".into(), Uuid::nil(), "".into(), tree);
            let calls = page.news(now);
            let [call] = &calls[..] else { panic!("one call has ended, not {}", calls.len()) };
            assert!(call.body.len() <= MAX_BODY_BYTES);
            let read: serde_json::Value = serde_json::from_slice(&call.body).expect("it is JSON");
            assert_eq!(read["attributes"]["omitted"].as_str(), expected);
            assert!(page.news(now).is_empty());
        }
    }
}
