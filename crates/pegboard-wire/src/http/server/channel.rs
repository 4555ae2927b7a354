//! A stream of events that a client may read, lose and read on from where it was.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time;

use crate::http::sse::{self, SseEvent};

/// How many events a channel keeps for a client that is slow or comes back, and how many bytes of them.
const MAX_EVENTS: usize = 100_000;
const MAX_BYTES: usize = 32 << 20;

/// The events of one stream, numbered, with the newest kept.
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
    /// How many were read by somebody.
    n_read: u64,
    is_closed: bool,
    /// Who reads: a newer reader takes the place of an older one.
    reader: u64,
    /// Readers up to this one are sent away, to come back after a while.
    sent_away: Option<(u64, Duration)>,
}

/// What a reader finds.
pub(super) enum Next {
    /// An event, ready to be written.
    Event(Bytes),
    /// Nothing, for a while.
    Silence,
    /// Nothing more.
    End,
}

impl Channel {
    pub(super) fn new(number: u64) -> Self {
        Self { number, state: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Adds a message.
    pub(super) fn send(&self, message: Bytes) {
        self.add(message, false);
    }

    /// Adds the last message, so that whoever waits for the first one knows at once whether it is the only one.
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

    /// Sends the reader away once it has read what there is, to come back after `retry`.
    pub(super) fn hang_up(&self, retry: Duration) {
        let mut state = self.state();
        // Whoever reads first after this, if nobody has yet, is meant as well.
        state.sent_away = Some((state.reader.max(1), retry));
        drop(state);
        self.changed.notify_waiters();
    }

    /// Nothing more will be added.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_waiters();
    }

    /// The one message of a channel that is closed with nothing else in it.
    pub(super) fn only_message(&self) -> Option<Bytes> {
        let state = self.state();
        (state.is_closed && state.n_sent == 1).then(|| state.kept.front().cloned()).flatten()
    }

    /// Waits until there is a first message, and whether it is all there is is known.
    pub(super) async fn begun(&self) {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                if state.n_sent > 0 || state.is_closed {
                    return;
                }
            }
            changed.await;
        }
    }

    /// A reader of what nobody has read yet.
    pub(super) fn reader_of_news(self: &std::sync::Arc<Self>) -> Reader {
        let from = {
            let state = self.state();
            state.n_read.max(state.n_sent - state.kept.len() as u64)
        };
        self.reader(from)
    }

    /// A reader of the events from number `from` on.
    pub(super) fn reader(self: &std::sync::Arc<Self>, from: u64) -> Reader {
        let mut state = self.state();
        state.reader += 1;
        let reader =
            Reader { channel: std::sync::Arc::clone(self), next: from, turn: state.reader, told_when: false };
        drop(state);
        // An older reader wakes up and finds that it is none any more.
        self.changed.notify_waiters();
        reader
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change under the lock is whole by itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a channel.
pub(super) struct Reader {
    channel: std::sync::Arc<Channel>,
    next: u64,
    turn: u64,
    /// Whether it knows when to come back.
    told_when: bool,
}

impl Reader {
    /// An event without data that only tells the client where it is.
    pub(super) fn priming(&self) -> Bytes {
        sse::encode(&SseEvent { id: Some(event_id(self.channel.number, self.next)), ..SseEvent::default() })
    }

    pub(super) async fn next(&mut self, keep_alive: Duration) -> Next {
        let deadline = time::Instant::now() + keep_alive;
        loop {
            let changed = self.channel.changed.notified();
            {
                let mut state = self.channel.state();
                if state.reader != self.turn {
                    return Next::End;
                }
                let first_kept = state.n_sent - state.kept.len() as u64;
                // What a reader has missed it cannot be given any more, and it must not believe that it has all.
                let Some(behind) = self.next.checked_sub(first_kept) else { return Next::End };
                let position = usize::try_from(behind).unwrap_or(usize::MAX);
                if let Some(message) = state.kept.get(position).cloned() {
                    self.next += 1;
                    state.n_read = state.n_read.max(self.next);
                    let id = event_id(self.channel.number, self.next);
                    return Next::Event(sse::encode(&SseEvent {
                        id: Some(id),
                        ..SseEvent::message(message.clone())
                    }));
                }
                match state.sent_away {
                    Some((until, retry)) if self.turn <= until && !self.told_when => {
                        self.told_when = true;
                        return Next::Event(sse::encode(&SseEvent {
                            retry: Some(retry),
                            ..SseEvent::default()
                        }));
                    }
                    Some((until, _)) if self.turn <= until => return Next::End,
                    _ if state.is_closed => return Next::End,
                    _ => {}
                }
            }
            if time::timeout_at(deadline, changed).await.is_err() {
                return Next::Silence;
            }
        }
    }
}

/// The id of an event names its channel and how many events came up to it.
fn event_id(channel: u64, n_events: u64) -> String {
    format!("{channel}-{n_events}")
}

/// The channel and the number of events that an event id names.
pub(super) fn parse_event_id(id: &str) -> Option<(u64, u64)> {
    let (channel, n_events) = id.split_once('-')?;
    Some((channel.parse().ok()?, n_events.parse().ok()?))
}
