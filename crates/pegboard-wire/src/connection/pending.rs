//! Requests to the peer without a response yet: registration, notifications and results.

use std::sync::Arc;

use foldhash::HashMap;
use http::HeaderMap;

use super::{ConnectionShared, increment};
use crate::message::{Id, Message, Notification, Response};
use crate::pending_request::{RequestError, ResponseSlot};
use crate::transport::{CancelRequest, TransportError};
use pegboard_json::RawJson;

impl ConnectionShared {
    pub(super) fn register_pending(
        &self,
        id: i64,
        progress_token: ProgressToken,
        cancel: CancelMode,
    ) -> Result<Arc<ResponseSlot>, RequestError> {
        let mut table = self.table();
        if let Some(reason) = &table.closed {
            return Err(TransportError::clone(reason).into());
        }
        if table.pending.len() >= self.limits.max_pending {
            return Err(RequestError::Overloaded);
        }
        let slot = Arc::new(ResponseSlot::default());
        table.pending.insert(id, PendingEntry { slot: Arc::clone(&slot), progress_token, cancel });
        Ok(slot)
    }

    /// Removes a pending request, because its handle was dropped, and cancels it on the wire.
    pub(crate) fn cancel_pending(&self, id: i64, reason: Option<RawJson>) {
        let cancelled = self.table().pending.remove(id);
        if let Some(CancelMode::Notify(headers)) = cancelled.map(|pending| pending.cancel) {
            self.outbound.cancel(CancelRequest { id: Id::Number(id), reason, headers });
        }
    }

    /// Ends a request that was driven over HTTP.
    pub(crate) fn finish_request(&self, id: &Id, response: Result<Response, TransportError>) {
        match response {
            Ok(response) => {
                if let Some(trace) = &self.trace {
                    trace.message_received(&Message::Response(response.clone()));
                }
                self.complete(id, response.result.map_err(RequestError::Rpc));
            }
            Err(error) => self.complete(id, Err(error.into())),
        }
    }

    pub(super) fn handle_response(&self, response: Response) {
        match response.id {
            Some(id) => self.complete(&id, response.result.map_err(RequestError::Rpc)),
            None => increment(&self.stray_responses),
        }
    }

    pub(super) fn complete(&self, id: &Id, result: Result<RawJson, RequestError>) {
        let pending = match id {
            Id::Number(id) => self.table().pending.remove(*id),
            Id::Text(_) => None,
        };
        match pending {
            Some(pending) => pending.slot.finish(result),
            None => increment(&self.stray_responses),
        }
    }

    /// Fails the pending request if there is only one, because of a response that names none.
    pub(super) fn fail_only_request(&self, error: TransportError) {
        increment(&self.malformed);
        let mut table = self.table();
        let only = table.pending.take_only();
        drop(table);
        if let Some(pending) = only {
            pending.slot.finish(Err(error.into()));
        }
    }

    pub(super) fn enqueue_notification(&self, slot: &ResponseSlot, notification: Notification) {
        if !slot.push_notification(notification, self.limits.max_notifications) {
            increment(&self.stray_notifications);
        }
    }

    pub(super) fn pending_slot(&self, id: &Id) -> Option<Arc<ResponseSlot>> {
        let Id::Number(id) = id else { return None };
        self.table().pending.get(*id).map(|pending| Arc::clone(&pending.slot))
    }

    /// Delivers progress to the request with this token, under the caller's original token.
    pub(super) fn route_progress(&self, notification: &Notification) {
        let params = notification.params.clone().unwrap_or_else(RawJson::empty_object);
        let id = params.get("progressToken").and_then(|token| token.read::<i64>().ok());
        let found = id.and_then(|id| {
            let table = self.table();
            let pending = table.pending.get(id)?;
            Some((Arc::clone(&pending.slot), pending.progress_token.clone()))
        });
        let (slot, params) = match found {
            Some((slot, ProgressToken::Given(token))) => (slot, params.with("progressToken", &token)),
            Some((slot, ProgressToken::RequestId)) => (slot, params),
            Some((_, ProgressToken::None)) | None => return increment(&self.stray_notifications),
        };
        let notification = Notification::new(Arc::clone(&notification.method), Some(params));
        self.enqueue_notification(&slot, notification);
    }
}

/// Requests without a response yet, by id.
#[derive(Debug, Default)]
pub(super) struct PendingRequests {
    /// `None` until there was a request: those of most sessions come from the client alone.
    entries: Option<Box<HashMap<i64, PendingEntry>>>,
}

impl PendingRequests {
    pub(super) fn len(&self) -> usize {
        self.entries.as_ref().map_or(0, |entries| entries.len())
    }

    fn get(&self, id: i64) -> Option<&PendingEntry> {
        self.entries.as_ref()?.get(&id)
    }

    fn insert(&mut self, id: i64, entry: PendingEntry) {
        self.entries.get_or_insert_default().insert(id, entry);
    }

    fn remove(&mut self, id: i64) -> Option<PendingEntry> {
        self.entries.as_mut()?.remove(&id)
    }

    /// Removes the request that is there, if it is the only one.
    fn take_only(&mut self) -> Option<PendingEntry> {
        let entries = self.entries.as_mut().filter(|entries| entries.len() == 1)?;
        entries.drain().next().map(|(_, entry)| entry)
    }

    /// Ends all requests with an error.
    pub(super) fn fail_all(self, error: &RequestError) {
        for entry in self.entries.into_iter().flat_map(|entries| entries.into_values()) {
            entry.slot.finish(Err(error.clone()));
        }
    }
}

#[derive(Debug)]
pub(super) struct PendingEntry {
    pub(super) slot: Arc<ResponseSlot>,
    progress_token: ProgressToken,
    cancel: CancelMode,
}

/// The progress token under which a caller is notified. On the wire it is the id of the request, so that the
/// tokens of different callers cannot collide.
#[derive(Clone, Debug)]
pub(crate) enum ProgressToken {
    /// Progress was not requested.
    None,
    /// The id of the request.
    RequestId,
    /// The caller's own.
    Given(RawJson),
}

/// Effect of dropping a request on the wire.
#[derive(Debug)]
pub(super) enum CancelMode {
    /// None: handshake requests are never cancelled, and closing an HTTP stream may be enough.
    Silent,
    /// A `notifications/cancelled`, with these headers.
    Notify(HeaderMap),
}
