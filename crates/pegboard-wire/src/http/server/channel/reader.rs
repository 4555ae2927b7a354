//! A reader of an event stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::time;

use super::{Channel, EVENT_OVERHEAD};
use crate::http::sse::{self, SseEvent};
use crate::message::Message;
use pegboard_json::RawJson;

/// The next item for a reader.
pub(in crate::http::server) enum ReaderItem {
    /// An encoded event.
    Event(Bytes),
    /// No event within the keep-alive interval.
    KeepAlive,
    /// The end of the stream.
    End,
}

/// A reader of a channel.
pub(in crate::http::server) struct Reader {
    channel: Arc<Channel>,
    next: u64,
    number: u64,
    /// `true` once the client has been told to reconnect.
    sent_retry: bool,
    /// Reconnect time to send with the next event.
    retry: Option<Duration>,
}

/// Time after which a client reconnects to a stream that broke off.
const RECONNECT_TIME: Duration = Duration::from_secs(1);

impl Reader {
    /// Creates a reader of the events from number `next` on.
    pub(super) fn new(channel: &Arc<Channel>, next: u64, number: u64) -> Self {
        Self { channel: Arc::clone(channel), next, number, sent_retry: false, retry: Some(RECONNECT_TIME) }
    }

    /// Returns an event without data that tells the client its position.
    pub(in crate::http::server) fn priming(&mut self) -> Bytes {
        let id = Some(event_id(self.channel.number, self.next));
        sse::encode(&SseEvent { id, retry: self.retry.take(), ..SseEvent::default() })
    }

    pub(in crate::http::server) async fn next(&mut self, keep_alive: Duration) -> ReaderItem {
        let deadline = time::Instant::now() + keep_alive;
        let channel = Arc::clone(&self.channel);
        loop {
            let changed = channel.changed.notified();
            if let Some(next) = self.poll_next() {
                return next;
            }
            if time::timeout_at(deadline, changed).await.is_err() {
                return ReaderItem::KeepAlive;
            }
        }
    }

    /// Returns the next item, unless the reader must wait for it.
    fn poll_next(&mut self) -> Option<ReaderItem> {
        let mut state = self.channel.state();
        if state.reader != self.number {
            return Some(ReaderItem::End);
        }
        let kept = state.first_from(self.next);
        let first_kept = kept.as_ref().map_or(state.n_sent, |(number, _)| *number);
        let n_dropped = first_kept.saturating_sub(self.next);
        self.next = self.next.max(first_kept);
        if n_dropped > 0 && self.channel.context.accepts_warnings.load(Ordering::Relaxed) {
            drop(state);
            return Some(self.event(loss_warning(n_dropped)));
        }
        if let Some((_, message)) = kept {
            self.next += 1;
            let is_first_read = state.n_read < self.next;
            state.n_read = state.n_read.max(self.next);
            drop(state);
            if is_first_read {
                self.channel.memory().allow_drop(message.len() + EVENT_OVERHEAD);
            }
            return Some(self.event(message));
        }
        match state.closed_readers {
            Some((until, retry)) if self.number <= until && !self.sent_retry => {
                self.sent_retry = true;
                Some(ReaderItem::Event(sse::encode(&SseEvent { retry: Some(retry), ..SseEvent::default() })))
            }
            Some((until, _)) if self.number <= until => Some(ReaderItem::End),
            _ if state.is_closed => Some(ReaderItem::End),
            _ => None,
        }
    }

    /// Encodes a message with the current position.
    fn event(&mut self, message: Bytes) -> ReaderItem {
        let id = Some(event_id(self.channel.number, self.next));
        ReaderItem::Event(sse::encode(&SseEvent {
            id,
            retry: self.retry.take(),
            ..SseEvent::message(message)
        }))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.channel.state();
        if state.reader == self.number {
            state.has_reader = false;
            let n_bytes = state.n_bytes;
            drop(state);
            self.channel.memory().allow_drop(n_bytes);
        }
    }
}

/// Returns the log message that tells a client of dropped messages.
fn loss_warning(n_dropped: u64) -> Bytes {
    let data =
        format!("{n_dropped} messages of this stream were dropped, because they were not read in time");
    let params = json!({"level": "warning", "logger": "pegboard", "data": data});
    Message::notification("notifications/message", Some(RawJson::from(params))).encode()
}

/// Formats an event id: the channel and the number of events up to this one.
fn event_id(channel: u64, n_events: u64) -> String {
    format!("{channel}-{n_events}")
}

/// Parses an event id into its channel and number of events.
pub(in crate::http::server) fn parse_event_id(id: &str) -> Option<(u64, u64)> {
    let (channel, n_events) = id.split_once('-')?;
    Some((channel.parse().ok()?, n_events.parse().ok()?))
}
