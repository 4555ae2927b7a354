//! Dispatch of the peer's messages to pending requests and to the handler.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time;

use super::inbound::InboundEntry;
use super::{CANCELLED_METHOD, ConnectionRole, ConnectionShared, HandlerRef, InboundHandler, increment};
use crate::http::received_headers::ReceivedHeaders;
use crate::message::{Id, Message, Notification, RpcError, code};
use crate::transport::{CLOSE_TIMEOUT, IncomingEvent, OutgoingMessage, TransportError, TransportEvent};

pub(super) async fn dispatch(
    shared: Weak<ConnectionShared>,
    mut incoming: mpsc::Receiver<IncomingEvent>,
    handler: Arc<dyn InboundHandler>,
) {
    let mut reason = TransportError::Closed;
    let mut has_ended = false;
    while let Some(event) = incoming.recv().await {
        let Some(strong) = shared.upgrade() else { return };
        if let Some(trace) = &strong.trace {
            trace.received(&event.event);
        }
        // Nothing that awaits the peer may hold the connection: it could not be dropped otherwise.
        let outbound = strong.outbound.clone();
        match event.event {
            TransportEvent::Message(Message::Response(response)) => strong.handle_response(response),
            TransportEvent::Message(Message::Notification(notification)) => {
                strong.handle_notification(notification, event.related_request, &*handler);
            }
            TransportEvent::Message(Message::Request(request)) => {
                let from = (event.related_request, event.headers.into());
                let rejection = strong.serve(request, from, &handler);
                drop(strong);
                if let Some(rejection) = rejection {
                    let _ = outbound.send(rejection).await;
                }
            }
            TransportEvent::Malformed(malformed) => {
                increment(&strong.malformed);
                drop(strong);
                let _ = outbound
                    .send(OutgoingMessage::new(Message::response(malformed.id, Err(*malformed.error))))
                    .await;
            }
            TransportEvent::UnreadableResponse { error } => strong.fail_only_request(error),
            TransportEvent::Skipped => increment(&strong.malformed),
            TransportEvent::RequestFailed { id, error } => strong.complete(&id, Err(error.into())),
            TransportEvent::EndOfInput => {
                strong.input_end().cancel();
                has_ended = true;
            }
            TransportEvent::Closed(error) => reason = error,
        }
    }
    // Responses matter only to a peer that still reads.
    let linger = shared.upgrade().filter(|_| has_ended).and_then(|shared| match shared.limits.role {
        ConnectionRole::Client => None,
        ConnectionRole::Server { linger } => Some((linger, Arc::clone(&shared.n_inbound))),
    });
    if let Some((linger, n_inbound)) = linger {
        // Meanwhile the connection may be dropped; then nothing is left to wait for.
        if time::timeout(linger, n_inbound.wait_for_zero()).await.is_err() {
            // A peer that does not read must not keep the connection alive.
            let _ = time::timeout(CLOSE_TIMEOUT, reject_inbound(&shared, linger)).await;
        }
    }
    if let Some(shared) = shared.upgrade() {
        shared.close(reason);
    }
}

impl ConnectionShared {
    /// Handles a message that arrived over HTTP; `related_request` is the request that owns its stream.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        message: Message,
        related_request: Option<Id>,
        headers: ReceivedHeaders,
    ) {
        let Some(HandlerRef(handler)) = &self.handler else { return };
        if let Some(trace) = &self.trace {
            trace.message_received(&message);
        }
        match message {
            Message::Response(response) => self.handle_response(response),
            Message::Notification(notification) => {
                self.handle_notification(notification, related_request, &**handler);
            }
            Message::Request(request) => {
                let rejection = self.serve(request, (related_request, headers), handler);
                if let Some(rejection) = rejection {
                    let _ = self.outbound.send(rejection).await;
                }
            }
        }
    }

    fn handle_notification(
        &self,
        notification: Notification,
        related_request: Option<Id>,
        handler: &dyn InboundHandler,
    ) {
        if &*notification.method == "notifications/progress" {
            return self.route_progress(&notification);
        }
        if let Some(id) = cancelled_id(&notification)
            && let Some(entry) = self.end_inbound(&id)
        {
            self.record_cancel_reason(id, notification.params.as_ref());
            return entry.abort();
        }
        match related_request.as_ref().and_then(|id| self.pending_slot(id)) {
            Some(slot) => self.enqueue_notification(&slot, notification),
            None => handler.notification(notification, related_request),
        }
    }
}

/// Cancels all requests of the peer and answers them with an error.
async fn reject_inbound(shared: &Weak<ConnectionShared>, linger: Duration) {
    let Some(strong) = shared.upgrade() else { return };
    let inbound: Vec<(Id, InboundEntry)> = strong.table().inbound.take().collect();
    let outbound = strong.outbound.clone();
    drop(strong);
    // All at once, since the peer may read the responses slowly or not at all.
    for (_, request) in &inbound {
        request.abort();
    }
    for (id, _) in inbound {
        let error = RpcError::new(
            code::SERVER_ERROR,
            format!(
                "The request was cancelled: it did not finish within {linger:?} after the end of the input"
            ),
        );
        let rejection =
            OutgoingMessage::new(Message::response(Some(id.clone()), Err(error))).related_to(Some(id));
        if outbound.send(rejection).await.is_err() {
            return;
        }
    }
}

/// Returns the id of the request that a `notifications/cancelled` cancels.
pub(crate) fn cancelled_id(notification: &Notification) -> Option<Id> {
    if &*notification.method != CANCELLED_METHOD {
        return None;
    }
    notification.params.as_ref()?.get("requestId")?.read().ok()
}
