//! A resumable event stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::event_memory::{DroppedNotifications, EventMemory, NotificationLoss};
use crate::message::{Id, Message, RpcError, code};

mod reader;

pub(super) use reader::{Reader, ReaderItem, parse_event_id};

/// Maximum number of notifications that a stream keeps for a slow or reconnecting client, and their bytes.
const MAX_NOTIFICATIONS: usize = 10_000;
const MAX_NOTIFICATION_BYTES: usize = 4 << 20;
/// Maximum bytes of notifications in a stream that was never read.
const MAX_NEVER_READ_BYTES: usize = 256 << 10;

/// Bytes that an event takes besides its message.
const EVENT_OVERHEAD: usize = 64;

/// Maximum length of a request id that is kept when the response is dropped.
const MAX_ID_BYTES: usize = 256;

/// State shared by the streams of a session.
#[derive(Debug, Default)]
pub(super) struct StreamContext {
    pub(super) memory: EventMemory,
    /// `true` if the client accepts log messages of level `warning`.
    pub(super) accepts_warnings: AtomicBool,
}

/// An outgoing message.
#[derive(Debug)]
pub(super) enum StreamMessage {
    /// May be dropped if the client does not read.
    Notification(Bytes),
    /// A request to the client, or the cancellation of one.
    Request(Bytes),
    /// The response to the request with this id.
    Response(Id, Bytes),
}

/// The memory for the events of this client is full of responses that were not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventMemoryFull;

/// A group of events that are dropped together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventClass {
    ReadNotifications,
    ReadRequestsAndResponses,
    NotificationsWithoutReader,
    UnreadNotifications,
    ResponsesWithoutReader,
}

impl EventClass {
    /// All classes, in the order in which memory is reclaimed from them.
    pub(super) const DROP_ORDER: [Self; 5] = [
        Self::ReadNotifications,
        Self::ReadRequestsAndResponses,
        Self::NotificationsWithoutReader,
        Self::UnreadNotifications,
        Self::ResponsesWithoutReader,
    ];
}

/// The numbered events of one stream, of which the newest are kept.
#[derive(Debug)]
pub(super) struct Channel {
    number: u64,
    context: Arc<StreamContext>,
    state: Mutex<ChannelState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct ChannelState {
    /// The newest notifications, with their numbers.
    notifications: VecDeque<(u64, Bytes)>,
    /// Requests and responses, with their numbers.
    essential: VecDeque<(u64, EssentialEvent)>,
    n_notification_bytes: usize,
    /// Bytes charged to the memory.
    n_bytes: usize,
    n_sent: u64,
    /// Number of events read so far.
    n_read: u64,
    /// A response with a smaller number was dropped, and its request id was not kept.
    n_forgotten: u64,
    is_closed: bool,
    /// Number of the current reader; a newer reader replaces an older one. 0 if the stream was never read.
    reader: u64,
    has_reader: bool,
    /// Readers up to this number are closed, with the time after which they may reconnect.
    closed_readers: Option<(u64, Duration)>,
    /// `true` once the loss of notifications was logged.
    has_logged_loss: bool,
}

#[derive(Debug)]
enum EssentialEvent {
    Request(Bytes),
    Response(Id, Bytes),
    /// The place of a response that was dropped.
    DroppedResponse(Id),
}

impl Channel {
    /// Creates a channel, from which memory can be reclaimed.
    pub(super) fn new(number: u64, context: &Arc<StreamContext>) -> Arc<Self> {
        let channel = Arc::new(Self {
            number,
            context: Arc::clone(context),
            state: Mutex::default(),
            changed: Notify::new(),
        });
        context.memory.register(&channel);
        channel
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn memory(&self) -> &EventMemory {
        &self.context.memory
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.state().n_bytes
    }

    /// Appends a message. There is an error only if a request to the client finds no memory.
    pub(super) fn send(&self, message: StreamMessage) -> Result<(), EventMemoryFull> {
        let number = self.add(self.state(), message);
        let Some(request) = number else { return Ok(()) };
        // Only a request is refused: a notification was dropped, and a response is always delivered.
        if self.memory().is_full() && self.withdraw_request(request) {
            return Err(EventMemoryFull);
        }
        Ok(())
    }

    /// Appends a response that is not the last one.
    pub(super) fn send_response(&self, message: StreamMessage) {
        self.add(self.state(), message);
    }

    /// Appends the last message and closes the channel.
    pub(super) fn send_last(&self, message: StreamMessage) {
        // At once: a reader must not find the end before the message.
        let mut state = self.state();
        state.is_closed = true;
        self.add(state, message);
    }

    /// Appends a message and releases the lock. Returns the number of the event if it is a request to the client.
    fn add(&self, mut state: MutexGuard<'_, ChannelState>, message: StreamMessage) -> Option<u64> {
        let number = state.n_sent;
        state.n_sent += 1;
        let (n_bytes, is_request) = match message {
            StreamMessage::Notification(message) => {
                let n_bytes = message.len() + EVENT_OVERHEAD;
                state.n_notification_bytes += n_bytes;
                state.notifications.push_back((number, message));
                (n_bytes, false)
            }
            StreamMessage::Request(message) => {
                (state.push_essential(number, EssentialEvent::Request(message)), true)
            }
            StreamMessage::Response(id, message) => {
                (state.push_essential(number, EssentialEvent::Response(id, message)), false)
            }
        };
        state.n_bytes += n_bytes;
        self.memory().charge(n_bytes);
        let max_bytes = if state.reader == 0 { MAX_NEVER_READ_BYTES } else { MAX_NOTIFICATION_BYTES };
        let is_full = state.notifications.len() > MAX_NOTIFICATIONS || state.n_notification_bytes > max_bytes;
        let n_lost = if is_full {
            // A quarter at once, so that a flood costs little.
            let n_excess = state.n_notification_bytes.saturating_sub(max_bytes / 4 * 3);
            let n_newest = MAX_NOTIFICATIONS / 4 * 3;
            self.drop_notifications(&mut state, u64::MAX, |kept, n_freed| {
                kept.len() > n_newest || n_freed < n_excess
            })
        } else {
            0
        };
        let loss = state.loss(n_lost);
        drop(state);
        self.changed.notify_waiters();
        self.report(loss);
        self.memory().reclaim();
        is_request.then_some(number)
    }

    /// Removes a request to the client, unless it was read.
    fn withdraw_request(&self, number: u64) -> bool {
        let mut state = self.state();
        let position = state.essential.partition_point(|(other, _)| *other < number);
        let is_unread = number >= state.n_read
            && state.essential.get(position).is_some_and(|(other, _)| *other == number);
        if is_unread && let Some((_, event)) = state.essential.remove(position) {
            self.release(&mut state, event.n_bytes());
        }
        is_unread
    }

    /// Drops events of a class, the oldest first, until `n_wanted` bytes are free.
    pub(super) fn drop_events(&self, class: EventClass, n_wanted: usize) {
        let mut state = self.state();
        let (n_read, has_reader) = (state.n_read, state.has_reader);
        let n_lost = match class {
            EventClass::ReadNotifications => {
                self.drop_notifications(&mut state, n_read, |_, n_freed| n_freed < n_wanted)
            }
            EventClass::NotificationsWithoutReader | EventClass::ResponsesWithoutReader if has_reader => 0,
            EventClass::NotificationsWithoutReader | EventClass::UnreadNotifications => {
                self.drop_notifications(&mut state, u64::MAX, |_, n_freed| n_freed < n_wanted)
            }
            EventClass::ReadRequestsAndResponses => {
                self.drop_essential(&mut state, n_wanted, |number, _| number < n_read);
                0
            }
            EventClass::ResponsesWithoutReader => {
                let is_response = |_, event: &EssentialEvent| matches!(event, EssentialEvent::Response(..));
                self.drop_essential(&mut state, n_wanted, is_response);
                0
            }
        };
        let loss = state.loss(n_lost);
        drop(state);
        self.report(loss);
    }

    /// Drops the oldest notifications below number `end` while `goes_on`, given those that are left and the bytes freed
    /// so far. Returns the number of unread ones among them.
    fn drop_notifications(
        &self,
        state: &mut ChannelState,
        end: u64,
        goes_on: impl Fn(&VecDeque<(u64, Bytes)>, usize) -> bool,
    ) -> u64 {
        let (mut n_freed, mut n_unread) = (0, 0);
        while goes_on(&state.notifications, n_freed)
            && state.notifications.front().is_some_and(|(number, _)| *number < end)
            && let Some((number, message)) = state.notifications.pop_front()
        {
            n_freed += message.len() + EVENT_OVERHEAD;
            n_unread += u64::from(number >= state.n_read);
        }
        if state.notifications.is_empty() {
            state.notifications.shrink_to_fit();
        }
        state.n_notification_bytes -= n_freed;
        self.release(state, n_freed);
        n_unread
    }

    fn drop_essential(
        &self,
        state: &mut ChannelState,
        n_wanted: usize,
        is_droppable: impl Fn(u64, &EssentialEvent) -> bool,
    ) {
        let (mut n_freed, mut n_forgotten) = (0, state.n_forgotten);
        state.essential.retain_mut(|(number, event)| {
            if n_freed >= n_wanted || !is_droppable(*number, event) {
                return true;
            }
            let n_before = event.n_bytes();
            let place = match event {
                EssentialEvent::Request(_) => None,
                EssentialEvent::DroppedResponse(_) => return true,
                EssentialEvent::Response(id, _) if id_bytes(id) <= MAX_ID_BYTES => {
                    Some(EssentialEvent::DroppedResponse(id.clone()))
                }
                EssentialEvent::Response(..) => {
                    n_forgotten = *number + 1;
                    None
                }
            };
            n_freed += n_before - place.as_ref().map_or(0, EssentialEvent::n_bytes);
            place.map(|place| *event = place).is_some()
        });
        state.n_forgotten = n_forgotten;
        self.release(state, n_freed);
    }

    fn release(&self, state: &mut ChannelState, n_bytes: usize) {
        state.n_bytes -= n_bytes;
        self.memory().release(n_bytes);
    }

    /// Reports the loss of notifications: always to the observer, and once per stream in the log.
    fn report(&self, loss: Option<(DroppedNotifications, IsFirstLoss)>) {
        let Some((dropped, IsFirstLoss(is_first))) = loss else { return };
        self.memory().report(dropped);
        match (dropped.reason, is_first) {
            (NotificationLoss::SlowReader, true) => tracing::warn!(
                stream = self.number,
                n_notifications = dropped.n_notifications,
                "Dropping notifications that the client does not read in time."
            ),
            (NotificationLoss::NoReader, true) => {
                tracing::debug!("Dropping notifications of a session without an event stream.");
            }
            (_, false) => {}
        }
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
    pub(super) fn reader_of_unread(self: &Arc<Self>) -> Reader {
        let n_read = self.state().n_read;
        self.reader(n_read)
    }

    /// Returns a reader of the events after the first `n_seen`; `None` if a response among them was dropped and cannot
    /// be reported, or if there were never as many.
    pub(super) fn resume(self: &Arc<Self>, n_seen: u64) -> Option<Reader> {
        let is_possible = {
            let state = self.state();
            (state.n_forgotten..=state.n_sent).contains(&n_seen)
        };
        is_possible.then(|| self.reader(n_seen))
    }

    /// Returns a reader of the events from number `from` on.
    pub(super) fn reader(self: &Arc<Self>, from: u64) -> Reader {
        let mut state = self.state();
        state.reader += 1;
        state.has_reader = true;
        let reader = Reader::new(self, from, state.reader);
        drop(state);
        // The previous reader wakes up and finds itself replaced.
        self.changed.notify_waiters();
        reader
    }

    fn state(&self) -> MutexGuard<'_, ChannelState> {
        // A panic while the lock is held cannot leave the state inconsistent.
        self.state.lock()
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let n_bytes = self.state.get_mut().n_bytes;
        self.memory().release(n_bytes);
        self.memory().allow_drop(n_bytes);
    }
}

/// `true` for the first loss of a stream.
#[derive(Clone, Copy)]
struct IsFirstLoss(bool);

impl ChannelState {
    /// Returns the number of bytes that it takes.
    fn push_essential(&mut self, number: u64, event: EssentialEvent) -> usize {
        let n_bytes = event.n_bytes();
        self.essential.push_back((number, event));
        n_bytes
    }

    /// Describes the loss of unread notifications.
    fn loss(&mut self, n_notifications: u64) -> Option<(DroppedNotifications, IsFirstLoss)> {
        if n_notifications == 0 {
            return None;
        }
        let reason = if self.reader == 0 { NotificationLoss::NoReader } else { NotificationLoss::SlowReader };
        let is_first = !std::mem::replace(&mut self.has_logged_loss, true);
        Some((DroppedNotifications { n_notifications, reason }, IsFirstLoss(is_first)))
    }

    /// Returns the number and the message of the first kept event from number `from` on.
    fn first_from(&self, from: u64) -> Option<(u64, Bytes)> {
        let at = self.notifications.partition_point(|(number, _)| *number < from);
        let notification = self.notifications.get(at);
        let at = self.essential.partition_point(|(number, _)| *number < from);
        let essential = self.essential.get(at);
        match (notification, essential) {
            (Some((number, message)), None) => Some((*number, message.clone())),
            (Some((number, message)), Some((later, _))) if number < later => Some((*number, message.clone())),
            (_, Some((number, event))) => Some((*number, event.message())),
            (None, None) => None,
        }
    }
}

impl EssentialEvent {
    fn n_bytes(&self) -> usize {
        EVENT_OVERHEAD
            + match self {
                Self::Request(message) => message.len(),
                Self::Response(id, message) => id_bytes(id) + message.len(),
                Self::DroppedResponse(id) => id_bytes(id),
            }
    }

    fn message(&self) -> Bytes {
        match self {
            Self::Request(message) | Self::Response(_, message) => message.clone(),
            Self::DroppedResponse(id) => {
                let message = "The response was dropped to free memory. The request was processed";
                let error = RpcError::new(code::SERVER_ERROR, message);
                Message::response(Some(id.clone()), Err(error)).encode()
            }
        }
    }
}

fn id_bytes(id: &Id) -> usize {
    match id {
        Id::Number(_) => 0,
        Id::Text(text) => text.len(),
    }
}
