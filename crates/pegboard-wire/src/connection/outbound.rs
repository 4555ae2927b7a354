//! Requests and notifications to the peer, and their way to the transport.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture, Either};
use http::HeaderMap;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time;

use super::pending::{CancelMode, ProgressToken};
use super::{CANCELLED_METHOD, Connection, ConnectionRole};
use crate::era::Era;
#[cfg(feature = "http-client")]
use crate::http::client::HttpTransport;
#[cfg(feature = "http-client")]
use crate::http::client::call::HttpCall;
use crate::http::headers::MirroredHeaders;
use crate::http::resend::ResendSafety;
#[cfg(feature = "http-server")]
use crate::http::server::streams::SessionStreams;
use crate::message::outgoing::{EncodedRequest, OutgoingMeta};
use crate::message::{Id, Message, Notification};
use crate::pending_request::{PendingRequest, RequestDriver, RequestError};
use crate::transport::{CancelRequest, OutgoingMessage, TransportError};
use pegboard_json::RawJson;

impl Connection {
    /// Sends a request. Ids and progress tokens on the wire are the connection's own.
    pub async fn request(
        &self,
        method: &str,
        params: Option<RawJson>,
    ) -> Result<PendingRequest, RequestError> {
        self.request_with(method, params, None, HeaderMap::new()).await
    }

    /// Sends a request that belongs to a request of the peer, or that has headers.
    pub async fn request_with(
        &self,
        method: &str,
        params: Option<RawJson>,
        related_request: Option<Id>,
        headers: HeaderMap,
    ) -> Result<PendingRequest, RequestError> {
        let id = self.reserve_id();
        let era = Era::claimed(params.as_ref());
        let own = params.as_ref().and_then(|params| params.get("_meta"));
        let token = own.as_ref().and_then(|own| own.get("progressToken"));
        let meta = OutgoingMeta {
            has_progress: token.is_some(),
            given: own.as_ref(),
            hidden: &["progressToken"],
            ..OutgoingMeta::default()
        };
        let params = if own.is_some() { params.map(|params| params.without("_meta")) } else { params };
        let encoded = EncodedRequest::new(id, method, params.as_ref(), &meta);
        let progress_token = token.map_or(ProgressToken::None, ProgressToken::Given);
        let (mirrored_headers, resend) = (None, ResendSafety::of(method));
        let request =
            OutgoingRequest { id, method, encoded, progress_token, era, headers, mirrored_headers, resend };
        self.send_request(request, related_request).await
    }

    /// Returns the id of the next request.
    pub(crate) fn reserve_id(&self) -> i64 {
        self.0.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends an encoded request.
    pub(crate) fn send_request(
        &self,
        request: OutgoingRequest<'_>,
        related_request: Option<Id>,
    ) -> impl Future<Output = Result<PendingRequest, RequestError>> + use<'_> {
        #[cfg(feature = "http-client")]
        if let Outbound::HttpClient { transport, .. } = &self.0.outbound {
            return Either::Left(future::ready(self.request_over_http(transport, request)));
        }
        let queued = self.queue_request(request, related_request);
        #[cfg(feature = "http-client")]
        let queued = Either::Right(queued);
        queued
    }

    fn queue_request(
        &self,
        request: OutgoingRequest<'_>,
        related_request: Option<Id>,
    ) -> impl Future<Output = Result<PendingRequest, RequestError>> + use<'_> {
        let OutgoingRequest { id, method, encoded, progress_token, headers, .. } = request;
        let cancel = match method {
            "initialize" | "server/discover" => CancelMode::Silent,
            _ => CancelMode::Notify(HeaderMap::new()),
        };
        let sending = self.0.register_pending(id, progress_token, cancel).map(|slot| {
            // From here on, dropping the request cancels it.
            let pending =
                PendingRequest { id, slot, shared: Arc::clone(&self.0), driver: None, cancel_reason: None };
            let message = Message::request(Id::Number(id), method, encoded.params());
            let message =
                OutgoingMessage { headers, ..OutgoingMessage::new(message).related_to(related_request) };
            (pending, self.send(message))
        });
        async move {
            let (pending, sending) = sending?;
            sending.await?;
            Ok(pending)
        }
    }

    /// Prepares a request that its caller drives.
    #[cfg(feature = "http-client")]
    fn request_over_http(
        &self,
        transport: &Arc<HttpTransport>,
        request: OutgoingRequest<'_>,
    ) -> Result<PendingRequest, RequestError> {
        let (id, progress_token) = (request.id, request.progress_token.clone());
        if let Some(trace) = &self.0.trace {
            trace.sent(request.encoded.text());
        }
        let call = HttpCall::new(Arc::clone(&self.0), Arc::clone(transport), request);
        let cancel = call.cancel_headers().map_or(CancelMode::Silent, CancelMode::Notify);
        let slot = self.0.register_pending(id, progress_token, cancel)?;
        let driver: RequestDriver = Box::pin(call.run(transport.next_turn()));
        let shared = Arc::clone(&self.0);
        Ok(PendingRequest { id, slot, shared, driver: Some(driver), cancel_reason: None })
    }

    /// Queues a message for the transport.
    fn send(&self, message: OutgoingMessage) -> impl Future<Output = Result<(), TransportError>> + use<'_> {
        if let Some(trace) = &self.0.trace {
            trace.sent(&message.message.encode());
        }
        let sending = self.0.outbound.send(message);
        async move {
            match sending.await {
                Ok(()) => Ok(()),
                // The transport works, but has refused this message.
                Err(refused @ TransportError::Failed { .. }) => Err(refused),
                Err(_) => Err(Box::pin(self.send_error()).await),
            }
        }
    }

    /// Sends a notification; `related_request` is the peer's request that it belongs to.
    pub async fn notify(
        &self,
        notification: Notification,
        related_request: Option<Id>,
    ) -> Result<(), TransportError> {
        self.send(OutgoingMessage::new(Message::Notification(notification)).related_to(related_request)).await
    }

    /// Sends a notification, after which the transport may close the stream of the peer's request
    /// `related_request`; the peer reconnects after `retry`. Transports without per-request streams only send
    /// it.
    pub async fn notify_and_close_stream(
        &self,
        notification: Notification,
        related_request: Id,
        retry: Duration,
    ) -> Result<(), TransportError> {
        let message =
            OutgoingMessage::new(Message::Notification(notification)).related_to(Some(related_request));
        self.send(OutgoingMessage { close_stream: Some(retry), ..message }).await
    }

    /// Returns the reason why the transport accepts no more messages. The transport may end a moment before
    /// the dispatcher learns the reason. The serving side does not wait for it, since the dispatcher may
    /// itself wait for the work it serves.
    async fn send_error(&self) -> TransportError {
        const SOON: Duration = Duration::from_secs(1);
        if self.0.limits.role == ConnectionRole::Client
            && let Ok(reason) = time::timeout(SOON, self.closed()).await
        {
            return reason;
        }
        self.0.close_reason()
    }
}

/// A request before it is sent.
pub(crate) struct OutgoingRequest<'r> {
    /// Id from [`Connection::reserve_id`].
    pub(crate) id: i64,
    pub(crate) method: &'r str,
    pub(crate) encoded: EncodedRequest,
    pub(crate) progress_token: ProgressToken,
    /// The era that the parameters claim.
    pub(crate) era: Era,
    pub(crate) headers: HeaderMap,
    /// Headers of a stateless request, over which `headers` take precedence.
    pub(crate) mirrored_headers: Option<MirroredHeaders>,
    pub(crate) resend: ResendSafety,
}

/// The way of outgoing messages.
#[derive(Clone, Debug)]
pub(super) enum Outbound {
    /// All messages are queued for the transport.
    Queue { outgoing: mpsc::Sender<OutgoingMessage>, cancels: mpsc::UnboundedSender<CancelRequest> },
    /// A client over HTTP: each request is driven by its caller, the rest is queued.
    #[cfg(feature = "http-client")]
    HttpClient {
        outgoing: mpsc::Sender<OutgoingMessage>,
        cancels: mpsc::UnboundedSender<CancelRequest>,
        transport: Arc<HttpTransport>,
    },
    /// A session of the HTTP server: messages go straight to its streams.
    #[cfg(feature = "http-server")]
    HttpSession { streams: Arc<SessionStreams> },
}

impl Outbound {
    /// Sends a message, at once if there is space for it; an error if the transport has ended.
    pub(super) fn send(&self, mut message: OutgoingMessage) -> Sending<'_> {
        let outgoing = match self {
            Self::Queue { outgoing, .. } => outgoing,
            #[cfg(feature = "http-client")]
            Self::HttpClient { outgoing, transport, .. } => {
                message.turn = Some(transport.turn_of(&message.message));
                outgoing
            }
            #[cfg(feature = "http-server")]
            Self::HttpSession { streams } => return Either::Left(future::ready(streams.route(&message))),
        };
        match outgoing.try_send(message) {
            Ok(()) => Either::Left(future::ready(Ok(()))),
            Err(TrySendError::Closed(_)) => Either::Left(future::ready(Err(TransportError::Closed))),
            // Boxed, so that the futures of those that send stay small.
            Err(TrySendError::Full(message)) => Either::Right(
                async move { outgoing.send(message).await.map_err(|_| TransportError::Closed) }.boxed(),
            ),
        }
    }

    /// Cancels a request on the wire. A closed transport has nothing to cancel.
    pub(super) fn cancel(&self, cancel: CancelRequest) {
        match self {
            Self::Queue { cancels, .. } => {
                let _ = cancels.send(cancel);
            }
            #[cfg(feature = "http-client")]
            Self::HttpClient { cancels, .. } => {
                let _ = cancels.send(cancel);
            }
            #[cfg(feature = "http-server")]
            Self::HttpSession { streams } => {
                // Without memory for it, the client keeps a request that has ended.
                let _ = streams.route(&OutgoingMessage::new(cancel_notification(&cancel)));
            }
        }
    }
}

/// A message on its way to the transport.
type Sending<'s> =
    Either<future::Ready<Result<(), TransportError>>, BoxFuture<'s, Result<(), TransportError>>>;

/// Returns the `notifications/cancelled` message, for transports that cancel with a message.
pub(crate) fn cancel_notification(cancel: &CancelRequest) -> Message {
    let reason = cancel.reason.clone().unwrap_or_else(|| RawJson::of("the caller cancelled the request"));
    let params = RawJson::object(&[("requestId", &RawJson::of(&cancel.id)), ("reason", &reason)]);
    Message::notification(CANCELLED_METHOD, Some(params))
}
