//! A pending request: its notifications, in order, and its result.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::connection::ConnectionShared;
use crate::link::TransportError;
use crate::message::{Id, Notification, RpcError};
use parking_lot::{Mutex, MutexGuard};
use pegboard_json::RawJson;

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

/// A request without a response yet. Dropping it cancels the request on the wire.
#[derive(Debug)]
pub struct PendingRequest {
    pub(crate) id: i64,
    pub(crate) slot: Arc<ResponseSlot>,
    pub(crate) shared: Arc<ConnectionShared>,
}

impl PendingRequest {
    /// Returns the id of the request on the wire.
    pub fn id(&self) -> Id {
        Id::Number(self.id)
    }

    /// Waits for the next event. After the end, returns the end again.
    pub async fn next_event(&mut self) -> ResponseEvent {
        poll_fn(|context| {
            let mut state = self.slot.state();
            if let Some(notification) = state.notifications.pop_front() {
                return Poll::Ready(ResponseEvent::Notification(notification));
            }
            if let Some(end) = &state.end {
                return Poll::Ready(ResponseEvent::End(end.clone()));
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
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
        if self.slot.state().end.is_none() {
            self.shared.cancel_pending(self.id);
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
    end: Option<Result<RawJson, RequestError>>,
    waker: Option<Waker>,
}

impl ResponseSlot {
    /// Queues a notification; returns `false` if the request has ended or `max_notifications` are unread.
    pub(crate) fn push_notification(&self, notification: Notification, max_notifications: usize) -> bool {
        let mut state = self.state();
        if state.end.is_some() || state.notifications.len() >= max_notifications {
            return false;
        }
        state.notifications.push_back(notification);
        state.waker.take().inspect(Waker::wake_by_ref);
        true
    }

    /// Stores the result. Only the first one counts.
    pub(crate) fn finish(&self, result: Result<RawJson, RequestError>) {
        let mut state = self.state();
        state.end.get_or_insert(result);
        state.waker.take().inspect(Waker::wake_by_ref);
    }

    // A panic while the lock is held cannot leave the state inconsistent.
    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock()
    }
}
