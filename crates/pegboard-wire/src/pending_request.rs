//! A pending request: its notifications, in order, and its result.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;

use crate::connection::ConnectionShared;
use crate::message::{Id, Notification, RpcError};
use crate::transport::TransportError;
use parking_lot::{Mutex, MutexGuard};
use pegboard_json::RawJson;

/// Maximum bytes of unread notifications per pending request.
const MAX_NOTIFICATION_BYTES: usize = 8 << 20;

/// An error that ends a request without a result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// The peer answered with an error.
    #[error("{}", .0.message)]
    Rpc(RpcError),
    /// The transport failed before the response arrived.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The limit of pending requests of this connection is reached.
    #[error("too many requests in flight")]
    Overloaded,
}

/// An event of a pending request.
#[derive(Clone, Debug, PartialEq)]
pub enum ResponseEvent {
    /// A notification that belongs to the request.
    Notification(Notification),
    /// The response, or the error that ended the request.
    End(Result<RawJson, RequestError>),
}

/// Sends a request and delivers its events to its [`ResponseSlot`].
pub(crate) type RequestDriver = BoxFuture<'static, ()>;

/// A request without a response yet. Dropping it cancels the request on the wire.
///
/// Over HTTP the request makes progress, from the first byte on, only while its events are awaited.
pub struct PendingRequest {
    pub(crate) id: i64,
    pub(crate) slot: Arc<ResponseSlot>,
    pub(crate) shared: Arc<ConnectionShared>,
    /// `None` if the transport drives the request, or once it has ended.
    pub(crate) driver: Option<RequestDriver>,
    /// Reason to give to the peer if the request is cancelled.
    pub(crate) cancel_reason: Option<RawJson>,
}

impl fmt::Debug for PendingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRequest").field("id", &self.id).finish_non_exhaustive()
    }
}

impl PendingRequest {
    /// Returns the id of the request on the wire.
    pub fn id(&self) -> Id {
        Id::Number(self.id)
    }

    /// Returns `true` if the response has not arrived.
    pub fn is_awaited(&self) -> bool {
        matches!(self.slot.state().end, ResponseState::Awaited)
    }

    /// Sets the reason that the peer is given if the request is cancelled: a string, as JSON.
    pub fn set_cancel_reason(&mut self, reason: RawJson) {
        self.cancel_reason = Some(reason);
    }

    /// Waits for the next event. The end is the last one; after it, the request counts as closed.
    pub async fn next_event(&mut self) -> ResponseEvent {
        poll_fn(|context| self.poll_event(context)).await
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<ResponseEvent> {
        if let Some(event) = self.slot.next_event() {
            return Poll::Ready(event);
        }
        if let Some(driver) = &mut self.driver {
            // The driver need not wake the task that polls it.
            self.slot.state().waker = None;
            if driver.as_mut().poll(context).is_ready() {
                self.driver = None;
            }
        }
        // The driver may have delivered something, and so may other streams of the server.
        self.slot.poll_event(context)
    }

    /// Waits for the result and discards notifications.
    pub async fn response(mut self) -> Result<RawJson, RequestError> {
        loop {
            if let ResponseEvent::End(end) = self.next_event().await {
                return end;
            }
        }
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        if self.is_awaited() {
            self.shared.cancel_pending(self.id, self.cancel_reason.take());
        }
    }
}

/// Mailbox through which the dispatcher delivers the events of one request.
#[derive(Debug, Default)]
pub(crate) struct ResponseSlot {
    state: Mutex<SlotState>,
}

#[derive(Debug, Default)]
struct SlotState {
    notifications: VecDeque<Notification>,
    /// Bytes of the unread notifications.
    n_bytes: usize,
    end: ResponseState,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
enum ResponseState {
    #[default]
    Awaited,
    Arrived(Result<RawJson, RequestError>),
    /// The caller has it.
    Taken,
}

impl SlotState {
    fn next_event(&mut self) -> Option<ResponseEvent> {
        match self.notifications.pop_front() {
            Some(notification) => {
                self.n_bytes -= params_bytes(&notification);
                Some(ResponseEvent::Notification(notification))
            }
            None => match std::mem::replace(&mut self.end, ResponseState::Taken) {
                ResponseState::Awaited => {
                    self.end = ResponseState::Awaited;
                    None
                }
                ResponseState::Arrived(result) => Some(ResponseEvent::End(result)),
                ResponseState::Taken => Some(ResponseEvent::End(Err(TransportError::Closed.into()))),
            },
        }
    }
}

impl ResponseSlot {
    fn next_event(&self) -> Option<ResponseEvent> {
        self.state().next_event()
    }

    /// Returns the next event, or wakes the task once there is one.
    fn poll_event(&self, context: &mut Context<'_>) -> Poll<ResponseEvent> {
        let mut state = self.state();
        if let Some(event) = state.next_event() {
            return Poll::Ready(event);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Queues a notification; returns `false` if the request has ended, or if `max_notifications` or too many bytes
    /// are unread.
    pub(crate) fn push_notification(&self, notification: Notification, max_notifications: usize) -> bool {
        let mut state = self.state();
        let has_ended = !matches!(state.end, ResponseState::Awaited);
        let n_bytes = state.n_bytes + params_bytes(&notification);
        let has_space = state.notifications.is_empty() || n_bytes <= MAX_NOTIFICATION_BYTES;
        if has_ended || !has_space || state.notifications.len() >= max_notifications {
            return false;
        }
        state.n_bytes = n_bytes;
        state.notifications.push_back(notification);
        state.waker.take().inspect(Waker::wake_by_ref);
        true
    }

    /// Stores the result. Only the first one counts.
    pub(crate) fn finish(&self, result: Result<RawJson, RequestError>) {
        let mut state = self.state();
        if matches!(state.end, ResponseState::Awaited) {
            state.end = ResponseState::Arrived(result);
        }
        state.waker.take().inspect(Waker::wake_by_ref);
    }

    // A panic while the lock is held cannot leave the state inconsistent.
    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock()
    }
}

fn params_bytes(notification: &Notification) -> usize {
    notification.params.as_ref().map_or(0, |params| params.as_bytes().len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unread_notifications_have_a_limit_in_bytes_and_in_number() {
        let check = |n_bytes: usize, max_notifications, expected: usize| {
            let slot = ResponseSlot::default();
            let params = RawJson::from(json!("x".repeat(n_bytes)));
            let push =
                || slot.push_notification(Notification::new("log", Some(params.clone())), max_notifications);
            let n_queued = (0..100).filter(|_| push()).count();
            assert_eq!(n_queued, expected);
            // What was read makes space.
            for _ in 0..n_queued {
                assert!(matches!(slot.next_event(), Some(ResponseEvent::Notification(_))));
            }
            assert!(push());
            slot.finish(Ok(RawJson::empty_object()));
            assert!(!push());
            slot.next_event();
            assert!(matches!(slot.next_event(), Some(ResponseEvent::End(Ok(_)))));
        };
        check(1, 10, 10);
        check(1 << 20, 100, 7);
        // A single one of any size is delivered.
        check(9 << 20, 100, 1);
    }
}
