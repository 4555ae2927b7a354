//! One request of ours under way: what is said about it, in order, and its end.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::connection::Shared;
use crate::link::TransportError;
use crate::message::{Id, Notification, RpcError};
use pegboard_json::RawJson;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Failure {
    /// The peer answered with an error.
    #[error("{}", .0.message)]
    Refused(RpcError),
    /// The answer will not come.
    #[error(transparent)]
    Lost(#[from] TransportError),
    /// Too many requests are under way on this connection.
    #[error("too many requests are under way")]
    Overloaded,
}

/// What happens to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// Something was said about it.
    Notice(Notification),
    /// It has ended.
    End(Result<RawJson, Failure>),
}

/// A request under way. Dropping it cancels the request on the wire.
#[derive(Debug)]
pub struct Exchange {
    pub(crate) id: i64,
    pub(crate) slot: Arc<Slot>,
    pub(crate) shared: Arc<Shared>,
}

impl Exchange {
    /// The id of the request on the wire.
    pub fn id(&self) -> Id {
        Id::Number(self.id)
    }

    /// What happens next. After the end it is the end again.
    pub async fn next(&mut self) -> Happening {
        poll_fn(|context| {
            let mut state = self.slot.state();
            if let Some(notice) = state.notices.pop_front() {
                return Poll::Ready(Happening::Notice(notice));
            }
            if let Some(end) = &state.end {
                return Poll::Ready(Happening::End(end.clone()));
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The end, whatever is said before it.
    pub async fn answer(mut self) -> Result<RawJson, Failure> {
        loop {
            if let Happening::End(end) = self.next().await {
                return end;
            }
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.slot.state().end.is_none() {
            self.shared.give_up(self.id);
        }
    }
}

/// Where the dispatcher leaves what it has for one exchange.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    notices: VecDeque<Notification>,
    end: Option<Result<RawJson, Failure>>,
    waker: Option<Waker>,
}

impl Slot {
    /// Leaves a notice; `false` if more than `max_notices` wait already.
    pub(crate) fn notice(&self, notification: Notification, max_notices: usize) -> bool {
        let mut state = self.state();
        if state.end.is_some() || state.notices.len() >= max_notices {
            return false;
        }
        state.notices.push_back(notification);
        state.waker.take().inspect(Waker::wake_by_ref);
        true
    }

    /// Leaves the end. The first one counts.
    pub(crate) fn end(&self, result: Result<RawJson, Failure>) {
        let mut state = self.state();
        state.end.get_or_insert(result);
        state.waker.take().inspect(Waker::wake_by_ref);
    }

    // A panic while the lock was held cannot leave the state half-changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
