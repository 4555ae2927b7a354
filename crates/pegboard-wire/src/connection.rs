//! One peer, many requests: ids, order, cancellation, and the peer's own requests.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::HeaderMap;
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time;

use crate::exchange::{Exchange, Failure, Slot};
use crate::link::{Arrival, Cancel, Event, Letter, Link, TransportError};
use crate::message::{Id, Message, Notification, Request, Response, RpcError};
use pegboard_json::RawJson;

/// The code of our own for a peer that asks too much at once.
const OVERLOADED: i64 = -32_000;

/// What a peer asks and tells on its own account.
pub trait Receiver: Send + Sync + 'static {
    /// Answers a request of the peer. Dropping the future cancels the work.
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>>;

    /// Hears a notification; `about` is the request of ours that it came with, where the transport can tell.
    fn notification(&self, notification: Notification, about: Option<Id>);
}

/// A request of the peer.
#[derive(Debug)]
pub struct Inbound {
    /// What it asks.
    pub request: Request,
    /// Our request that it belongs to, where the transport can tell.
    pub about: Option<Id>,
    /// The headers it came with, where the transport has them.
    pub headers: HeaderMap,
    /// The way back to the peer. It does not keep the connection alive: whoever made the connection does.
    pub connection: WeakConnection,
}

/// What may grow on a connection, and how far.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests of ours under way.
    pub max_pending: usize,
    /// Requests of the peer under way.
    pub max_serving: usize,
    /// Notices that nobody has read, for each request.
    pub max_notices: usize,
    /// How long requests of the peer may go on after it has stopped talking.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_pending: 10_000, max_serving: 10_000, max_notices: 10_000, linger: Duration::ZERO }
    }
}

/// What was dropped because it made no sense, for those who watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddities {
    /// Answers to requests that nobody made, or that were given up.
    pub stray_answers: u64,
    /// Notices of requests that nobody made, or more than anybody read.
    pub stray_notices: u64,
    /// Input that was no message.
    pub garbage: u64,
}

/// A connection to one peer. Clones are the same connection; it ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Connection(Arc<Shared>);

/// What the clones of a connection, its exchanges and its dispatcher share.
#[derive(Debug)]
pub(crate) struct Shared {
    letters: mpsc::Sender<Letter>,
    cancels: mpsc::UnboundedSender<Cancel>,
    limits: Limits,
    next_id: AtomicI64,
    table: Mutex<Table>,
    stray_answers: AtomicU64,
    stray_notices: AtomicU64,
    garbage: AtomicU64,
    /// How many requests of the peer are under way.
    n_serving: watch::Sender<usize>,
    closed: watch::Sender<Option<TransportError>>,
}

#[derive(Debug, Default)]
struct Table {
    pending: HashMap<i64, Pending>,
    serving: HashMap<Id, AbortHandle>,
    closed: Option<TransportError>,
}

#[derive(Debug)]
struct Pending {
    slot: Arc<Slot>,
    /// The caller's own progress token, which ours stands in for on the wire.
    token: Option<RawJson>,
    /// Whether the peer is told when nobody waits any more. What opens a connection is never cancelled.
    is_cancellable: bool,
}

impl Connection {
    /// Speaks over a link. What the peer asks on its own account goes to `receiver`.
    pub fn open(link: Link, receiver: Arc<dyn Receiver>, limits: Limits) -> Self {
        let shared = Arc::new(Shared {
            letters: link.letters,
            cancels: link.cancels,
            limits,
            next_id: AtomicI64::new(1),
            table: Mutex::default(),
            stray_answers: AtomicU64::new(0),
            stray_notices: AtomicU64::new(0),
            garbage: AtomicU64::new(0),
            n_serving: watch::Sender::new(0),
            closed: watch::Sender::new(None),
        });
        // It ends when the transport does, which ends when the last clone of the connection is dropped.
        tokio::spawn(dispatch(Arc::downgrade(&shared), link.arrivals, receiver));
        Self(shared)
    }

    /// Sends a request. The ids on the wire are the connection's own, and so are progress tokens.
    pub async fn request(&self, method: &str, params: Option<RawJson>) -> Result<Exchange, Failure> {
        self.request_with(method, params, None, HeaderMap::new()).await
    }

    /// Sends a request about a request of the peer, or with headers of its own.
    pub async fn request_with(
        &self,
        method: &str,
        params: Option<RawJson>,
        about: Option<Id>,
        headers: HeaderMap,
    ) -> Result<Exchange, Failure> {
        let id = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let (params, token) = with_own_token(params, id);
        let is_cancellable = !matches!(method, "initialize" | "server/discover");
        let slot = self.0.expect_answer(id, token, is_cancellable)?;
        // From here on dropping this future gives the request up.
        let exchange = Exchange { id, slot, shared: Arc::clone(&self.0) };
        let message = Message::request(Id::Number(id), method, params);
        let letter = Letter { headers, ..Letter::new(message).about(about) };
        if self.0.letters.send(letter).await.is_err() {
            return Err(self.why_not_sent().await.into());
        }
        Ok(exchange)
    }

    /// Sends a notification; `about` is the peer's request that it belongs to.
    pub async fn notify(&self, notification: Notification, about: Option<Id>) -> Result<(), TransportError> {
        let letter = Letter::new(Message::Notification(notification)).about(about);
        match self.0.letters.send(letter).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.why_not_sent().await),
        }
    }

    /// Sends a notification after which the transport may close the stream of the peer's request `about`; the peer
    /// comes back for the rest after `retry`. Transports without a stream for each request just send it.
    pub async fn notify_and_hang_up(
        &self,
        notification: Notification,
        about: Id,
        retry: Duration,
    ) -> Result<(), TransportError> {
        let letter = Letter::new(Message::Notification(notification)).about(Some(about));
        let letter = Letter { hang_up: Some(retry), ..letter };
        match self.0.letters.send(letter).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.why_not_sent().await),
        }
    }

    /// Why the transport takes no more letters. It may have ended a moment before the dispatcher hears the reason; the
    /// serving side does not wait for that, since what it serves may be what the dispatcher waits for.
    async fn why_not_sent(&self) -> TransportError {
        const SOON: Duration = Duration::from_secs(1);
        if self.0.limits.linger.is_zero()
            && let Ok(reason) = time::timeout(SOON, self.closed()).await
        {
            return reason;
        }
        self.0.why_closed()
    }

    /// Waits until the connection has ended, and says why.
    pub async fn closed(&self) -> TransportError {
        let mut closed = self.0.closed.subscribe();
        match closed.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or(TransportError::Closed),
            Err(_) => TransportError::Closed,
        }
    }

    /// The connection without keeping it alive.
    pub fn downgrade(&self) -> WeakConnection {
        WeakConnection { shared: Arc::downgrade(&self.0), closed: self.0.closed.subscribe() }
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.0.closed.borrow().is_some()
    }

    /// What was dropped because it made no sense.
    pub fn oddities(&self) -> Oddities {
        Oddities {
            stray_answers: self.0.stray_answers.load(Ordering::Relaxed),
            stray_notices: self.0.stray_notices.load(Ordering::Relaxed),
            garbage: self.0.garbage.load(Ordering::Relaxed),
        }
    }

    /// How many requests of ours are under way.
    pub fn n_pending(&self) -> usize {
        self.0.table().pending.len()
    }
}

/// A connection that somebody else keeps alive.
#[derive(Clone, Debug)]
pub struct WeakConnection {
    shared: Weak<Shared>,
    closed: watch::Receiver<Option<TransportError>>,
}

impl WeakConnection {
    /// The connection, if it is still there.
    pub fn upgrade(&self) -> Option<Connection> {
        self.shared.upgrade().map(Connection)
    }

    /// Waits until the connection has ended or nobody holds it any more.
    pub async fn closed(&self) {
        let _ = self.closed.clone().wait_for(Option::is_some).await;
    }
}

/// Puts our token in the place of the caller's, so that tokens of many callers never meet.
fn with_own_token(params: Option<RawJson>, id: i64) -> (Option<RawJson>, Option<RawJson>) {
    let Some(given) = params else { return (None, None) };
    let meta = given.get("_meta");
    match meta.as_ref().and_then(|meta| Some((meta, meta.get("progressToken")?))) {
        None => (Some(given), None),
        Some((meta, token)) => {
            let meta = meta.with("progressToken", &RawJson::of(&id));
            (Some(given.with("_meta", &meta)), Some(token))
        }
    }
}

async fn dispatch(shared: Weak<Shared>, mut arrivals: mpsc::Receiver<Arrival>, receiver: Arc<dyn Receiver>) {
    let mut reason = TransportError::Closed;
    let mut has_ended = false;
    while let Some(arrival) = arrivals.recv().await {
        let Some(strong) = shared.upgrade() else { return };
        // Nothing that waits for the peer may hold the connection: it could not be given up any more.
        let letters = strong.letters.clone();
        match arrival.event {
            Event::Message(Message::Response(response)) => strong.take_answer(response),
            Event::Message(Message::Notification(notification)) => {
                strong.take_notice(notification, arrival.about, &*receiver);
            }
            Event::Message(Message::Request(request)) => {
                let from = (arrival.about, arrival.headers);
                let refused = strong.serve(request, from, &receiver);
                drop(strong);
                if let Some(refusal) = refused {
                    let _ = letters.send(refusal).await;
                }
            }
            Event::Garbage(garbage) => {
                count(&strong.garbage);
                drop(strong);
                let _ = letters.send(Letter::new(Message::response(garbage.id, Err(*garbage.error)))).await;
            }
            Event::Skipped => count(&strong.garbage),
            Event::Lost { id, error } => strong.finish(&id, Err(error.into())),
            Event::Ended => has_ended = true,
            Event::Closed(error) => reason = error,
        }
    }
    // Answers are of use only to a peer that still reads.
    let lingering = shared.upgrade().filter(|_| has_ended);
    let lingering = lingering.map(|shared| (shared.limits.linger, shared.n_serving.subscribe()));
    if let Some((linger, mut n_serving)) = lingering {
        // Meanwhile the connection may be given up, and then nothing is left to wait for.
        let _ = time::timeout(linger, n_serving.wait_for(|n_serving| *n_serving == 0)).await;
    }
    if let Some(shared) = shared.upgrade() {
        shared.close(reason);
    }
}

impl Shared {
    // No panic can happen while the lock is held that leaves the table half-changed.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn why_closed(&self) -> TransportError {
        self.table().closed.clone().unwrap_or(TransportError::Closed)
    }

    fn expect_answer(
        &self,
        id: i64,
        token: Option<RawJson>,
        is_cancellable: bool,
    ) -> Result<Arc<Slot>, Failure> {
        let mut table = self.table();
        if let Some(reason) = &table.closed {
            return Err(reason.clone().into());
        }
        if table.pending.len() >= self.limits.max_pending {
            return Err(Failure::Overloaded);
        }
        let slot = Arc::new(Slot::default());
        table.pending.insert(id, Pending { slot: Arc::clone(&slot), token, is_cancellable });
        Ok(slot)
    }

    /// Nobody waits for this answer any more.
    pub(crate) fn give_up(&self, id: i64) {
        let given_up = self.table().pending.remove(&id);
        if given_up.is_some_and(|pending| pending.is_cancellable) {
            // A transport that is gone has nothing to cancel.
            let _ = self.cancels.send(Cancel { id: Id::Number(id) });
        }
    }

    fn take_answer(&self, response: Response) {
        match response.id {
            Some(id) => self.finish(&id, response.result.map_err(Failure::Refused)),
            None => count(&self.stray_answers),
        }
    }

    fn finish(&self, id: &Id, result: Result<RawJson, Failure>) {
        let pending = match id {
            Id::Number(id) => self.table().pending.remove(id),
            Id::Text(_) => None,
        };
        match pending {
            Some(pending) => pending.slot.end(result),
            None => count(&self.stray_answers),
        }
    }

    fn take_notice(&self, notification: Notification, about: Option<Id>, receiver: &dyn Receiver) {
        match &*notification.method {
            "notifications/progress" => self.take_progress(&notification),
            "notifications/cancelled" if self.is_serving(&notification) => self.stop_serving(&notification),
            _ => match about.as_ref().and_then(|id| self.slot_of(id)) {
                Some(slot) => self.leave(&slot, notification),
                None => receiver.notification(notification, about),
            },
        }
    }

    fn leave(&self, slot: &Slot, notification: Notification) {
        if !slot.notice(notification, self.limits.max_notices) {
            count(&self.stray_notices);
        }
    }

    fn slot_of(&self, id: &Id) -> Option<Arc<Slot>> {
        let Id::Number(id) = id else { return None };
        self.table().pending.get(id).map(|pending| Arc::clone(&pending.slot))
    }

    /// Progress goes to the request whose token it carries, under the caller's own token.
    fn take_progress(&self, notification: &Notification) {
        let params = notification.params.clone().unwrap_or_else(RawJson::empty_object);
        let id = params.get("progressToken").and_then(|token| token.read::<i64>().ok());
        let found = id.and_then(|id| {
            let table = self.table();
            let pending = table.pending.get(&id)?;
            Some((Arc::clone(&pending.slot), pending.token.clone()?))
        });
        match found {
            Some((slot, token)) => {
                let params = params.with("progressToken", &token);
                self.leave(&slot, Notification::new(Arc::clone(&notification.method), Some(params)));
            }
            None => count(&self.stray_notices),
        }
    }

    fn is_serving(&self, notification: &Notification) -> bool {
        cancelled_id(notification).is_some_and(|id| self.table().serving.contains_key(&id))
    }

    fn stop_serving(&self, notification: &Notification) {
        let stopped = cancelled_id(notification).and_then(|id| self.table().serving.remove(&id));
        if let Some(task) = stopped {
            task.abort();
            self.n_serving.send_modify(|n_serving| *n_serving -= 1);
        }
    }

    /// Starts to answer a request of the peer, or gives the letter that refuses it.
    fn serve(
        self: &Arc<Self>,
        request: Request,
        (about, headers): (Option<Id>, HeaderMap),
        receiver: &Arc<dyn Receiver>,
    ) -> Option<Letter> {
        let id = request.id.clone();
        let answer =
            |id: Id, result| Letter::new(Message::response(Some(id.clone()), result)).about(Some(id));
        if let Some(refusal) = self.refusal_of(&id) {
            return Some(answer(id, Err(refusal)));
        }
        let connection = Connection(Arc::clone(self)).downgrade();
        let inbound = Inbound { request, about, headers, connection };
        // A bug in the receiver costs this request and nothing else.
        let work = match catch_unwind(AssertUnwindSafe(|| receiver.request(inbound))) {
            Ok(work) => work,
            Err(_panic) => return Some(answer(id, Err(RpcError::bug()))),
        };
        let (shared, letters) = (Arc::downgrade(self), self.letters.clone());
        let mut table = self.table();
        let Entry::Vacant(free) = table.serving.entry(id.clone()) else { return None };
        // It ends with the work, or is aborted when the peer cancels or the connection ends.
        let task = tokio::spawn(async move {
            let result = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| Err(RpcError::bug()));
            // From here on nobody can cancel it, and its id is free; its place is not, so that answers which nobody
            // reads are bounded, too.
            let is_wanted =
                shared.upgrade().is_some_and(|shared| shared.table().serving.remove(&id).is_some());
            if is_wanted {
                let _ = letters.send(answer(id, result)).await;
                if let Some(shared) = shared.upgrade() {
                    shared.n_serving.send_modify(|n_serving| *n_serving -= 1);
                }
            }
        });
        free.insert(task.abort_handle());
        self.n_serving.send_modify(|n_serving| *n_serving += 1);
        None
    }

    fn refusal_of(&self, id: &Id) -> Option<RpcError> {
        let table = self.table();
        if table.serving.contains_key(id) {
            return Some(RpcError::new(
                crate::code::INVALID_REQUEST,
                "Invalid request: a request with this id is under way",
            ));
        }
        let is_full = *self.n_serving.borrow() >= self.limits.max_serving;
        is_full.then(|| RpcError::new(OVERLOADED, "Too many requests are under way"))
    }

    /// The connection is over: every request ends, every answer stops.
    fn close(&self, reason: TransportError) {
        let (pending, serving) = {
            let mut table = self.table();
            table.closed = Some(reason.clone());
            (std::mem::take(&mut table.pending), std::mem::take(&mut table.serving))
        };
        for pending in pending.into_values() {
            pending.slot.end(Err(reason.clone().into()));
        }
        for task in serving.into_values() {
            task.abort();
        }
        self.closed.send_replace(Some(reason));
    }
}

impl Drop for Shared {
    /// Work for a peer that cannot be answered any more is given up.
    fn drop(&mut self) {
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        table.serving.values().for_each(AbortHandle::abort);
    }
}

fn cancelled_id(notification: &Notification) -> Option<Id> {
    notification.params.as_ref()?.get("requestId")?.read().ok()
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The notification that cancels a request, for transports that say so with a message.
pub(crate) fn cancelled(cancel: &Cancel) -> Message {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'c> {
        request_id: &'c Id,
        reason: &'static str,
    }
    let params = Params { request_id: &cancel.id, reason: "nobody waits for the answer any more" };
    Message::notification("notifications/cancelled", Some(RawJson::of(&params)))
}

#[cfg(test)]
mod tests;
