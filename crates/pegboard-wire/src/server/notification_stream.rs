//! The notifications of one stateless request, on their way to its response stream.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::message::Notification;
use crate::transport::TransportError;

/// Maximum number of unread notifications; senders wait.
const CAPACITY: usize = 64;

/// The sending end of a response stream. It costs nothing until the first notification.
#[derive(Debug, Default)]
pub(crate) struct NotificationStream {
    state: Mutex<StreamState>,
    has_space: Notify,
}

#[derive(Debug, Default)]
struct StreamState {
    queue: VecDeque<Notification>,
    reader: Option<Waker>,
    is_closed: bool,
}

/// The receiving end of a response stream. Dropping it closes the stream.
#[derive(Debug)]
pub(crate) struct NotificationReader(Arc<NotificationStream>);

impl NotificationStream {
    /// Creates a stream and its reader.
    pub(crate) fn new() -> (Arc<Self>, NotificationReader) {
        let stream = Arc::<Self>::default();
        (Arc::clone(&stream), NotificationReader(stream))
    }

    /// Sends a notification; waits while too many are unread.
    pub(super) async fn send(&self, notification: Notification) -> Result<(), TransportError> {
        loop {
            let has_space = self.has_space.notified();
            {
                let mut state = self.state.lock();
                if state.is_closed {
                    return Err(TransportError::Closed);
                }
                if state.queue.len() < CAPACITY {
                    state.queue.push_back(notification);
                    if let Some(reader) = state.reader.take() {
                        reader.wake();
                    }
                    return Ok(());
                }
            }
            has_space.await;
        }
    }
}

impl NotificationReader {
    /// Returns the next notification, if there is one.
    pub(crate) fn try_next(&mut self) -> Option<Notification> {
        let next = self.0.state.lock().queue.pop_front();
        if next.is_some() {
            self.0.has_space.notify_waiters();
        }
        next
    }

    /// Returns the next notification, or wakes the task once there is one.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Notification> {
        let mut state = self.0.state.lock();
        if let Some(next) = state.queue.pop_front() {
            self.0.has_space.notify_waiters();
            return Poll::Ready(next);
        }
        if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(context.waker())) {
            state.reader = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for NotificationReader {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.has_space.notify_waiters();
    }
}
