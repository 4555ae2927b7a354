//! Client of the HTTP+SSE transport of revision 2024-11-05: one event stream from the server, one POST per
//! message.

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, coop};
use tokio::time;

use crate::connection::cancel_notification;
use crate::http::client::HttpOptions;
use crate::http::client::endpoint::{self, HttpEndpoint, ResponseBodyKind, SseStream, SseStreamError};
use crate::http::client::send_order::SendOrder;
use crate::http::resend::ResendSafety;
use crate::http::sse::EventTooLarge;
use crate::message::Message;
use crate::transport::{
    CLOSE_TIMEOUT, CancelRequest, IncomingEvent, OutgoingMessage, TransportEnd, TransportError,
    TransportEvent, TransportHandle, channels, input_events, too_large, unreadable_responses,
};

/// Maximum number of sends in flight; beyond that no more messages are accepted.
const MAX_TASKS: usize = 16_384;

/// Creates a transport to a server that speaks HTTP+SSE; the URL is that of its event stream.
///
/// The transport ends with an error if the stream does not open within the connect timeout, and it ends with the
/// stream.
pub fn connect(options: HttpOptions) -> Result<TransportHandle, TransportError> {
    let endpoint = HttpEndpoint::new(options)?;
    let (transport, TransportEnd { outgoing, cancels, incoming }) = channels();
    // The task ends with the stream or the transport; before the stream is open, after the connect timeout.
    tokio::spawn(async move {
        let limit = endpoint.connect_timeout;
        let opened = time::timeout(limit, open(&endpoint)).await.unwrap_or_else(|_elapsed| {
            let what = format!("the server sent no endpoint within {} s", limit.as_secs_f32());
            Err(TransportError::failed(what))
        });
        let reason = match opened {
            Err(reason) => reason,
            Ok((events, target)) => tokio::select! {
                reason = read(&endpoint, events, &incoming) => reason,
                () = Outbox::new(target, incoming.clone()).run(outgoing, cancels) => TransportError::Closed,
            },
        };
        let _ = incoming.send(IncomingEvent::new(TransportEvent::Closed(reason))).await;
    });
    Ok(transport)
}

/// Opens the event stream and reads the endpoint for messages from it.
async fn open(endpoint: &HttpEndpoint) -> Result<(SseStream, HttpEndpoint), TransportError> {
    let response = endpoint.get(&HeaderMap::new(), None).await?;
    if !response.status().is_success() {
        return Err(endpoint.error_response(response).await.into_error());
    }
    if endpoint::response_body_kind(&response)? != ResponseBodyKind::Events {
        return Err(TransportError::protocol("the server did not answer with an event stream"));
    }
    let mut events = endpoint.events(response);
    loop {
        let event = events.next().await.map_err(close_reason)?;
        match event.event.as_deref() {
            Some("endpoint") => {
                let target = endpoint.resolve(String::from_utf8_lossy(&event.data).trim())?;
                return Ok((events, target));
            }
            _ if event.is_message() => {
                return Err(TransportError::protocol("the server sent a message before its endpoint"));
            }
            _ => {}
        }
    }
}

/// Forwards messages until the stream ends; returns the reason.
async fn read(
    endpoint: &HttpEndpoint,
    mut events: SseStream,
    incoming: &mpsc::Sender<IncomingEvent>,
) -> TransportError {
    loop {
        // A flood of events must not keep other tasks of the thread waiting.
        coop::consume_budget().await;
        let received = match events.next().await {
            Ok(event) if event.is_message() => input_events(&event.data, endpoint.input_limits()),
            Ok(_) => continue,
            // Reported again when it is known which request the event answers.
            Err(SseStreamError::TooLarge(problem)) if problem.answered.is_empty() => continue,
            Err(SseStreamError::TooLarge(EventTooLarge { limit, answered, .. })) => {
                unreadable_responses(answered, &too_large(limit))
            }
            Err(end) => return close_reason(end),
        };
        for event in received {
            // If the receiver is gone, the transport is closing, and this task with it.
            let _ = incoming.send(IncomingEvent::new(event)).await;
        }
    }
}

fn close_reason(end: SseStreamError) -> TransportError {
    match end {
        SseStreamError::TooLarge(problem) => TransportError::protocol(problem),
        SseStreamError::End => TransportError::Closed,
        SseStreamError::Broken(error) => error,
    }
}

/// Sends messages, each after the preceding notification.
struct Outbox {
    target: HttpEndpoint,
    order: SendOrder,
    tasks: JoinSet<()>,
    incoming: mpsc::Sender<IncomingEvent>,
}

impl Outbox {
    fn new(target: HttpEndpoint, incoming: mpsc::Sender<IncomingEvent>) -> Self {
        Self { target, order: SendOrder::default(), tasks: JoinSet::new(), incoming }
    }

    /// Sends messages until the transport closes.
    async fn run(
        mut self,
        mut outgoing: mpsc::Receiver<OutgoingMessage>,
        mut cancels: mpsc::UnboundedReceiver<CancelRequest>,
    ) {
        loop {
            tokio::select! {
                // A request is cancelled after it was sent, so messages come first.
                biased;
                queued = outgoing.recv(), if self.tasks.len() < MAX_TASKS => match queued {
                    Some(queued) => self.send(queued),
                    None => break,
                },
                cancel = cancels.recv() => match cancel {
                    Some(cancel) => self.send(OutgoingMessage::new(cancel_notification(&cancel))),
                    None => break,
                },
                Some(_done) = self.tasks.join_next() => {}
            }
        }
        while let Ok(cancel) = cancels.try_recv() {
            self.send(OutgoingMessage::new(cancel_notification(&cancel)));
        }
        let draining = async { while self.tasks.join_next().await.is_some() {} };
        let _ = time::timeout(CLOSE_TIMEOUT, draining).await;
    }

    fn send(&mut self, queued: OutgoingMessage) {
        let OutgoingMessage { message, headers, .. } = queued;
        let target = self.target.clone();
        let body = message.encode();
        match message {
            Message::Request(request) => {
                let turn = self.order.next_turn();
                let incoming = self.incoming.clone();
                self.tasks.spawn(async move {
                    turn.wait().await;
                    let resend = ResendSafety::of(&request.method);
                    if let Err(error) = post_request(&target, headers, body, resend).await {
                        let about = Some(request.id.clone());
                        let _ = incoming
                            .send(
                                IncomingEvent::new(TransportEvent::RequestFailed { id: request.id, error })
                                    .related_to(about),
                            )
                            .await;
                    }
                });
            }
            Message::Notification(_) => {
                let (turn, done) = self.order.barrier();
                self.tasks.spawn(async move {
                    turn.wait().await;
                    let response = target.send_oneway(&target.message_headers(&headers), body).await;
                    drop(done);
                    if let Some(response) = response {
                        response.drain().await;
                    }
                });
            }
            Message::Response(_) => {
                let turn = self.order.next_turn();
                self.tasks.spawn(async move {
                    turn.wait().await;
                    if let Some(response) = target.send_oneway(&target.message_headers(&headers), body).await
                    {
                        response.drain().await;
                    }
                });
            }
        }
    }
}

/// Sends a request. The response arrives on the event stream, possibly before the POST completes, so there is
/// no time limit here: it ends with the POST or with the transport.
async fn post_request(
    target: &HttpEndpoint,
    headers: HeaderMap,
    body: Bytes,
    resend: ResendSafety,
) -> Result<(), TransportError> {
    let response = target.post(&target.message_headers(&headers), body, resend).await?;
    if !response.status().is_success() {
        return Err(target.error_response(response).await.into_error());
    }
    response.drain().await;
    Ok(())
}
