//! A resumable event stream.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time;

use crate::http::sse::{self, SseEvent};

/// Maximum number of events and bytes kept for a slow or reconnecting client.
const MAX_EVENTS: usize = 100_000;
const MAX_BYTES: usize = 32 << 20;

/// The numbered events of one stream, of which the newest are kept.
#[derive(Debug)]
pub(super) struct Channel {
    number: u64,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The newest events; the last one has the number `n_sent - 1`.
    kept: VecDeque<Bytes>,
    n_bytes: usize,
    n_sent: u64,
    /// Number of events read so far.
    n_read: u64,
    is_closed: bool,
    /// Number of the current reader; a newer reader replaces an older one.
    reader: u64,
    /// Readers up to this number are closed, with the time after which they may reconnect.
    closed_readers: Option<(u64, Duration)>,
}

/// The next item for a reader.
pub(super) enum Next {
    /// An encoded event.
    Event(Bytes),
    /// No event within the keep-alive interval.
    KeepAlive,
    /// The end of the stream.
    End,
}

impl Channel {
    pub(super) fn new(number: u64) -> Self {
        Self { number, state: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Appends a message.
    pub(super) fn send(&self, message: Bytes) {
        self.add(message, false);
    }

    /// Appends the last message and closes the channel.
    pub(super) fn send_last(&self, message: Bytes) {
        self.add(message, true);
    }

    fn add(&self, message: Bytes, is_last: bool) {
        let mut state = self.state();
        state.is_closed |= is_last;
        state.n_bytes += message.len();
        state.kept.push_back(message);
        while state.kept.len() > MAX_EVENTS || (state.n_bytes > MAX_BYTES && state.kept.len() > 1) {
            let oldest = state.kept.pop_front().map_or(0, |oldest| oldest.len());
            state.n_bytes -= oldest;
        }
        state.n_sent += 1;
        drop(state);
        self.changed.notify_waiters();
    }

    /// Closes the current reader after it has read everything; it may reconnect after `retry`.
    pub(super) fn close_reader(&self, retry: Duration) {
        let mut state = self.state();
        // If there is no reader yet, the first one is meant.
        state.closed_readers = Some((state.reader.max(1), retry));
        drop(state);
        self.changed.notify_waiters();
    }

    /// Closes the channel: no more messages will be added.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_waiters();
    }

    /// Returns a reader of the unread events.
    pub(super) fn reader_of_unread(self: &std::sync::Arc<Self>) -> Reader {
        let from = {
            let state = self.state();
            state.n_read.max(state.n_sent - state.kept.len() as u64)
        };
        self.reader(from)
    }

    /// Returns a reader of the events from number `from` on.
    pub(super) fn reader(self: &std::sync::Arc<Self>, from: u64) -> Reader {
        let mut state = self.state();
        state.reader += 1;
        let reader = Reader {
            channel: std::sync::Arc::clone(self),
            next: from,
            number: state.reader,
            sent_retry: false,
        };
        drop(state);
        // The previous reader wakes up and finds itself replaced.
        self.changed.notify_waiters();
        reader
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held cannot leave the state inconsistent.
        self.state.lock()
    }
}

/// A reader of a channel.
pub(super) struct Reader {
    channel: std::sync::Arc<Channel>,
    next: u64,
    number: u64,
    /// `true` once the client has received the reconnect time.
    sent_retry: bool,
}

impl Reader {
    /// Returns an event without data that tells the client its position.
    pub(super) fn priming(&self) -> Bytes {
        sse::encode(&SseEvent { id: Some(event_id(self.channel.number, self.next)), ..SseEvent::default() })
    }

    pub(super) async fn next(&mut self, keep_alive: Duration) -> Next {
        let deadline = time::Instant::now() + keep_alive;
        loop {
            let changed = self.channel.changed.notified();
            {
                let mut state = self.channel.state();
                if state.reader != self.number {
                    return Next::End;
                }
                let first_kept = state.n_sent - state.kept.len() as u64;
                // Events that were dropped cannot be replayed, and the reader must not believe that it has
                // them all.
                let Some(offset) = self.next.checked_sub(first_kept) else { return Next::End };
                let position = usize::try_from(offset).unwrap_or(usize::MAX);
                if let Some(message) = state.kept.get(position).cloned() {
                    self.next += 1;
                    state.n_read = state.n_read.max(self.next);
                    let id = event_id(self.channel.number, self.next);
                    return Next::Event(sse::encode(&SseEvent {
                        id: Some(id),
                        ..SseEvent::message(message.clone())
                    }));
                }
                match state.closed_readers {
                    Some((until, retry)) if self.number <= until && !self.sent_retry => {
                        self.sent_retry = true;
                        return Next::Event(sse::encode(&SseEvent {
                            retry: Some(retry),
                            ..SseEvent::default()
                        }));
                    }
                    Some((until, _)) if self.number <= until => return Next::End,
                    _ if state.is_closed => return Next::End,
                    _ => {}
                }
            }
            if time::timeout_at(deadline, changed).await.is_err() {
                return Next::KeepAlive;
            }
        }
    }
}

/// Formats an event id: the channel and the number of events up to this one.
fn event_id(channel: u64, n_events: u64) -> String {
    format!("{channel}-{n_events}")
}

/// Parses an event id into its channel and number of events.
pub(super) fn parse_event_id(id: &str) -> Option<(u64, u64)> {
    let (channel, n_events) = id.split_once('-')?;
    Some((channel.parse().ok()?, n_events.parse().ok()?))
}
