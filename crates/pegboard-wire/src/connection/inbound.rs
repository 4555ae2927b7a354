//! Requests of the peer: admission, execution and cancellation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::{ConnectionShared, HandlerRef, InboundHandler, InboundRequest, WeakConnection};
use crate::http::received_headers::ReceivedHeaders;
use crate::message::{Id, Message, Request, RpcError, code};
use crate::transport::OutgoingMessage;
use crate::turns::{Turn, take_turn};
use pegboard_json::RawJson;

/// Number of requests of a peer in progress from which on another one waits for its turn.
pub(super) const CROWD: usize = 32;

/// Maximum number of reasons for cancellations that are kept.
const MAX_CANCEL_REASONS: usize = 64;

impl ConnectionShared {
    pub(super) fn begin(
        self: &Arc<Self>,
        request: Request,
        headers: ReceivedHeaders,
    ) -> Result<InboundCall, RpcError> {
        let Some(HandlerRef(handler)) = &self.handler else { return Err(RpcError::handler_panicked()) };
        let id = request.id.clone();
        let is_crowded = self.admit(&id)?.is_crowded;
        let connection = WeakConnection { shared: Arc::downgrade(self) };
        let inbound = InboundRequest { request, related_request: None, headers, connection };
        let work = catch_unwind(AssertUnwindSafe(|| handler.request(inbound)));
        let work = work.map_err(|_panic| RpcError::handler_panicked())?;
        let (abort, registration) = future::AbortHandle::new_pair();
        let mut table = self.table();
        if table.closed.is_some() {
            return Err(session_ended());
        }
        table.inbound.insert(id.clone(), InboundEntry::Call(abort));
        drop(table);
        self.n_inbound.increment();
        let work = future::Abortable::new(work, registration);
        let turn = is_crowded.then(|| take_turn().boxed());
        Ok(InboundCall { work, id, shared: Arc::downgrade(self), is_crowded, turn })
    }

    /// Starts a request of the peer, or returns the response that rejects it.
    pub(super) fn serve(
        self: &Arc<Self>,
        request: Request,
        (related_request, headers): (Option<Id>, ReceivedHeaders),
        handler: &Arc<dyn InboundHandler>,
    ) -> Option<OutgoingMessage> {
        let id = request.id.clone();
        let answer = |id: Id, result| {
            OutgoingMessage::new(Message::response(Some(id.clone()), result)).related_to(Some(id))
        };
        let is_crowded = match self.admit(&id) {
            Ok(admitted) => admitted.is_crowded,
            Err(rejection) => return Some(answer(id, Err(rejection))),
        };
        let connection = WeakConnection { shared: Arc::downgrade(self) };
        let inbound = InboundRequest { request, related_request, headers, connection };
        // A panic in the handler costs only this request.
        let work = match catch_unwind(AssertUnwindSafe(|| handler.request(inbound))) {
            Ok(work) => work,
            Err(_panic) => return Some(answer(id, Err(RpcError::handler_panicked()))),
        };
        let (shared, outbound) = (Arc::downgrade(self), self.outbound.clone());
        let mut table = self.table();
        if table.closed.is_some() {
            return Some(answer(id, Err(session_ended())));
        }
        if table.inbound.contains(&id) {
            return None;
        }
        let entry_id = id.clone();
        // The task ends with the work, or is aborted when the peer cancels or the connection closes.
        let task = tokio::spawn(async move {
            let mut turn = None;
            if is_crowded {
                turn = Some(take_turn().await);
            }
            let mut work = AssertUnwindSafe(work).catch_unwind();
            let result = future::poll_fn(|context| {
                let polled = work.poll_unpin(context);
                drop(turn.take());
                polled
            });
            let result = result.await.unwrap_or_else(|_| Err(RpcError::handler_panicked()));
            // From here on it cannot be cancelled, and its id is free. It still counts as in progress, so
            // that unread responses are bounded, too.
            let is_wanted =
                shared.upgrade().is_some_and(|shared| shared.table().inbound.remove(&id).is_some());
            if is_wanted {
                let _ = outbound.send(answer(id, result)).await;
                if let Some(shared) = shared.upgrade() {
                    shared.n_inbound.decrement();
                }
            }
        });
        table.inbound.insert(entry_id, InboundEntry::Task(task.abort_handle()));
        self.n_inbound.increment();
        None
    }

    /// Admits a request of the peer, or returns the error that rejects it. Nothing was done for it so far.
    fn admit(&self, id: &Id) -> Result<AdmittedInbound, RpcError> {
        let table = self.table();
        if table.closed.is_some() {
            return Err(session_ended());
        }
        if table.inbound.contains(id) {
            return Err(RpcError::new(
                code::INVALID_REQUEST,
                "Invalid request: a request with this id is in progress",
            ));
        }
        drop(table);
        let n_inbound = self.n_inbound.get();
        if n_inbound >= self.limits.max_inbound {
            if !self.has_refused.swap(true, Ordering::Relaxed) {
                tracing::warn!(n_inbound, "Refusing requests of a peer: too many are in flight.");
            }
            return Err(RpcError::new(code::SERVER_ERROR, "Too many requests in flight"));
        }
        Ok(AdmittedInbound { is_crowded: n_inbound >= CROWD })
    }

    /// Keeps the reason that the peer gave for a cancellation, until the work is dropped.
    pub(super) fn record_cancel_reason(&self, id: Id, params: Option<&RawJson>) {
        let Some(reason) = params.and_then(|params| params.get("reason")) else { return };
        let mut table = self.table();
        if table.cancel_reasons.len() >= MAX_CANCEL_REASONS {
            table.cancel_reasons.remove(0);
        }
        table.cancel_reasons.push((id, reason));
    }

    /// Takes the reason that the peer gave for the cancellation of a request.
    pub(super) fn take_cancel_reason(&self, id: &Id) -> Option<RawJson> {
        let mut table = self.table();
        let position = table.cancel_reasons.iter().position(|(cancelled, _)| cancelled == id)?;
        Some(table.cancel_reasons.remove(position).1)
    }

    /// Removes a request of the peer that has ended.
    pub(super) fn end_inbound(&self, id: &Id) -> Option<InboundEntry> {
        let ended = self.table().inbound.remove(id)?;
        self.n_inbound.decrement();
        Some(ended)
    }
}

/// Error for a request of a session that has ended.
fn session_ended() -> RpcError {
    RpcError::new(code::INVALID_REQUEST, "Invalid request: the session has ended")
}

/// A request of the peer, driven by its transport: the result, or `None` if the peer cancelled it. Dropping it
/// cancels the work.
pub(crate) struct InboundCall {
    work: future::Abortable<BoxFuture<'static, Result<RawJson, RpcError>>>,
    id: Id,
    shared: Weak<ConnectionShared>,
    is_crowded: bool,
    /// The wait for its turn, if the peer has many requests in progress.
    turn: Option<BoxFuture<'static, Turn>>,
}

impl InboundCall {
    /// Returns `true` if the peer had many other requests in progress.
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded
    }
}

impl Future for InboundCall {
    type Output = Option<Result<RawJson, RpcError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Dropped after the work was polled.
        let mut _turn = None;
        if let Some(turn) = &mut self.turn {
            _turn = Some(ready!(turn.poll_unpin(context)));
            self.turn = None;
        }
        // A panic in the handler costs only this request.
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.work).poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(result.ok()),
            Err(_panic) => Poll::Ready(Some(Err(RpcError::handler_panicked()))),
        }
    }
}

impl Drop for InboundCall {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.end_inbound(&self.id);
        }
    }
}

/// A request of the peer in progress.
#[derive(Debug)]
pub(super) enum InboundEntry {
    /// Runs in a task of its own.
    Task(AbortHandle),
    /// Is driven by the transport.
    Call(future::AbortHandle),
}

impl InboundEntry {
    pub(super) fn abort(&self) {
        match self {
            Self::Task(task) => task.abort(),
            Self::Call(call) => call.abort(),
        }
    }
}

/// A request of the peer that may begin.
struct AdmittedInbound {
    /// `true` if the peer has many others in progress.
    is_crowded: bool,
}

/// Number of requests of the peer in progress.
#[derive(Debug, Default)]
pub(super) struct InboundCounter {
    n_inbound: AtomicUsize,
    is_zero: Notify,
}

impl InboundCounter {
    fn get(&self) -> usize {
        self.n_inbound.load(Ordering::Relaxed)
    }

    fn increment(&self) {
        self.n_inbound.fetch_add(1, Ordering::Relaxed);
    }

    fn decrement(&self) {
        if self.n_inbound.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.is_zero.notify_waiters();
        }
    }

    pub(super) fn clear(&self) {
        self.n_inbound.store(0, Ordering::Relaxed);
        self.is_zero.notify_waiters();
    }

    /// Waits until no request is in progress. The caller limits the time.
    pub(super) async fn wait_for_zero(&self) {
        loop {
            let is_zero = self.is_zero.notified();
            if self.get() == 0 {
                return;
            }
            is_zero.await;
        }
    }
}
