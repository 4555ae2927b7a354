//! The seam between a connection and its transport: messages go out, events come in.
//!
//! A transport takes a [`TransportEnd`], writes each outgoing message to its peer and sends incoming events, in order.
//! It ends when there are no more messages, and closes the connection by dropping its end. Over streamable HTTP a
//! request does not take this way: its caller drives it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc;
use tokio::time;

#[cfg(feature = "http-client")]
use crate::http::client::send_order::MessageTurn;
#[cfg(feature = "http-client")]
use crate::http::client::{AuthorizationError, HttpDispatcher, HttpTransport};
use crate::message::outline::{AnsweredRequest, answered_requests};
use crate::message::{Frame, Id, InvalidMessage, Message, code};
use pegboard_json::RawJson;

mod traced;

pub(crate) use traced::MessageTrace;
pub use traced::TARGET as TRACE_TARGET;

/// Capacity of the channels of outgoing messages and incoming events.
pub(crate) const CAPACITY: usize = 256;

/// An outgoing message.
#[derive(Debug)]
pub struct OutgoingMessage {
    /// The message.
    pub message: Message,
    /// The peer's request that it belongs to, for transports with a stream per request.
    pub related_request: Option<Id>,
    /// HTTP headers, for transports that have them.
    pub headers: HeaderMap,
    /// Closes the stream after this message; the peer reconnects after this delay.
    pub close_stream: Option<Duration>,
    /// Position in the send order, for the HTTP client.
    #[cfg(feature = "http-client")]
    pub(crate) turn: Option<MessageTurn>,
}

impl OutgoingMessage {
    /// Creates a message that belongs to no request.
    pub fn new(message: Message) -> Self {
        Self {
            message,
            related_request: None,
            headers: HeaderMap::new(),
            close_stream: None,
            #[cfg(feature = "http-client")]
            turn: None,
        }
    }

    /// Sets the request of the peer that the message belongs to.
    #[must_use]
    pub fn related_to(mut self, id: Option<Id>) -> Self {
        self.related_request = id;
        self
    }
}

/// Cancels a pending request after its handle was dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CancelRequest {
    /// The id of the request.
    pub id: Id,
    /// The reason, as the caller gave it.
    pub reason: Option<RawJson>,
    /// HTTP headers, for transports that have them.
    pub headers: HeaderMap,
}

/// An incoming event.
#[derive(Debug)]
pub struct IncomingEvent {
    /// The event.
    pub event: TransportEvent,
    /// The local request that owns the stream it arrived on, for transports with a stream per request.
    pub related_request: Option<Id>,
    /// HTTP headers of the message, for transports that have them.
    pub headers: HeaderMap,
}

impl IncomingEvent {
    /// Creates an event on a stream shared by all requests.
    pub fn new(event: TransportEvent) -> Self {
        Self { event, related_request: None, headers: HeaderMap::new() }
    }

    /// Creates the event of a message on a stream shared by all requests.
    pub fn message(message: Message) -> Self {
        Self::new(TransportEvent::Message(message))
    }

    /// Sets the local request that owns the stream it arrived on.
    #[must_use]
    pub fn related_to(mut self, id: Option<Id>) -> Self {
        self.related_request = id;
        self
    }

    /// Sets the HTTP headers.
    #[must_use]
    pub fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }
}

/// An event reported by a transport.
#[derive(Debug)]
pub enum TransportEvent {
    /// A message.
    Message(Message),
    /// Malformed input, which must be answered with an error.
    Malformed(InvalidMessage),
    /// A pending request failed: its response will not arrive.
    RequestFailed {
        /// The id of the request.
        id: Id,
        /// The cause.
        error: TransportError,
    },
    /// A response that cannot be read and names no request. It fails the pending request, if there is only one.
    UnreadableResponse {
        /// The problem.
        error: TransportError,
    },
    /// Malformed input, already skipped.
    Skipped,
    /// The peer closed its sending side, but may still read.
    EndOfInput,
    /// The transport is closed.
    Closed(TransportError),
}

/// A transport error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The peer closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// An operating system or network error.
    #[error("{what}")]
    Failed {
        /// Description of the failure.
        what: String,
    },
    /// No connection could be made, so that nothing was sent.
    #[error("{what}")]
    Unreachable {
        /// Description of the failure.
        what: String,
    },
    /// The certificate of the peer cannot be verified, so that nothing was sent.
    #[error("{what}")]
    Untrusted {
        /// Description of the problem.
        what: String,
    },
    /// The peer answered with an HTTP status and no JSON-RPC message.
    #[error("the server answered with HTTP status {status}{}", status_note(*status))]
    Status {
        /// The HTTP status code.
        status: u16,
        /// The beginning of the body.
        body: Bytes,
        /// The `WWW-Authenticate` header of a 401 or 403.
        authenticate: Option<String>,
    },
    /// The request cannot be authorized, so that the peer has not processed it.
    #[cfg(feature = "http-client")]
    #[error(transparent)]
    Unauthorized(#[from] AuthorizationError),
    /// The peer violated the protocol of the transport.
    #[error("protocol violation: {what}")]
    Protocol {
        /// Description of the violation.
        what: String,
    },
}

impl TransportError {
    /// Creates an operating system or network error.
    pub fn failed(what: impl fmt::Display) -> Self {
        Self::Failed { what: what.to_string() }
    }

    /// Returns the error of a request that was sent before: a peer without a connection may have received it.
    pub(crate) fn after_sending(self) -> Self {
        match self {
            Self::Unreachable { what } | Self::Untrusted { what } => Self::Failed { what },
            sent => sent,
        }
    }

    /// Creates a protocol violation error.
    pub fn protocol(what: impl fmt::Display) -> Self {
        Self::Protocol { what: what.to_string() }
    }
}

/// Returns the meaning of a status that servers of MCP do not use themselves.
fn status_note(status: u16) -> &'static str {
    match status {
        300..=399 => ": only one redirect, and only on the same origin, is followed",
        407 => ": the proxy requires a user and password in its URL",
        _ => "",
    }
}

/// Treatment of malformed input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedPolicy {
    /// Answer with a JSON-RPC error, as a server should.
    Reply,
    /// Skip it, as a client should: servers print banners.
    Skip,
}

/// Limits for one unit of input: a line, or a WebSocket message.
#[derive(Clone, Copy, Debug)]
pub struct InputLimits {
    /// Maximum size in bytes.
    pub max_bytes: usize,
    /// Maximum nesting depth of JSON.
    pub max_depth: usize,
    /// Treatment of malformed input.
    pub on_malformed: MalformedPolicy,
}

impl InputLimits {
    /// Returns the default limits of a server, which answers malformed input with an error.
    pub fn server() -> Self {
        Self {
            max_bytes: crate::MAX_MESSAGE_BYTES,
            max_depth: crate::MAX_DEPTH,
            on_malformed: MalformedPolicy::Reply,
        }
    }

    /// Returns the default limits of a client, which skips malformed input.
    pub fn client() -> Self {
        Self { on_malformed: MalformedPolicy::Skip, ..Self::server() }
    }
}

/// Decodes a unit of input into events, on transports where all requests share a stream.
pub(crate) fn input_events(input: &Bytes, limits: InputLimits) -> Vec<TransportEvent> {
    let messages = match Message::decode_shared(input, limits.max_depth) {
        // Nearly always.
        Ok(Frame::Single(message)) => return vec![TransportEvent::Message(message)],
        Ok(Frame::Batch(messages)) => messages,
        Err(problem) => vec![Err(problem)],
    };
    let events = |message: Result<Message, InvalidMessage>| match (message, limits.on_malformed) {
        (Ok(message), _) => vec![TransportEvent::Message(message)],
        (Err(problem), MalformedPolicy::Reply) => vec![TransportEvent::Malformed(problem)],
        // The pending request with this id fails at once instead of waiting for ever.
        (Err(InvalidMessage { id: Some(id), has_method: false, error }), MalformedPolicy::Skip) => {
            vec![TransportEvent::RequestFailed { id, error: TransportError::protocol(error.message) }]
        }
        (Err(problem), MalformedPolicy::Skip) if problem.error.code == code::PARSE_ERROR => {
            unreadable_responses(answered_requests(input), &problem)
        }
        (Err(problem), MalformedPolicy::Skip) => unreadable_responses(Vec::new(), &problem),
    };
    messages.into_iter().flat_map(events).collect()
}

/// Returns the description of a response that exceeds the size limit.
pub(crate) fn too_large(limit: usize) -> String {
    format!("the response exceeds {limit} bytes")
}

/// Returns the events for input that cannot be read, with the requests that it answers.
pub(crate) fn unreadable_responses(
    answered: Vec<AnsweredRequest>,
    problem: &dyn fmt::Display,
) -> Vec<TransportEvent> {
    if answered.is_empty() {
        tracing::debug!(%problem, "Skipping malformed input.");
        return vec![TransportEvent::Skipped];
    }
    let event = |answered| match answered {
        AnsweredRequest::Known(id) => {
            TransportEvent::RequestFailed { id, error: TransportError::protocol(problem) }
        }
        AnsweredRequest::Unknown => {
            TransportEvent::UnreadableResponse { error: TransportError::protocol(problem) }
        }
    };
    answered.into_iter().map(event).collect()
}

/// Time limit for a transport to close.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Forwards cancellations until the transport is dropped, then waits for the close timeout: a peer that does not
/// read must not keep a transport alive for ever.
pub(crate) async fn drain_cancels(
    mut cancels: mpsc::UnboundedReceiver<CancelRequest>,
    relay: mpsc::UnboundedSender<CancelRequest>,
) {
    while let Some(cancel) = cancels.recv().await {
        // If the receiver is gone, the transport has ended, and this future with it.
        let _ = relay.send(cancel);
    }
    drop(relay);
    time::sleep(CLOSE_TIMEOUT).await;
}

/// A transport, for the connection that will use it.
#[derive(Debug)]
pub struct TransportHandle {
    pub(crate) outgoing: mpsc::Sender<OutgoingMessage>,
    pub(crate) cancels: mpsc::UnboundedSender<CancelRequest>,
    pub(crate) requests: RequestPath,
}

/// Path of requests and their responses.
#[derive(Debug)]
pub(crate) enum RequestPath {
    /// All messages share one stream; the transport drives it.
    Multiplexed { incoming: mpsc::Receiver<IncomingEvent> },
    /// Each request has its own HTTP exchange, driven by its caller.
    #[cfg(feature = "http-client")]
    Http { transport: Arc<HttpTransport>, dispatcher: HttpDispatcher },
}

/// The transport's end of the channels to its connection.
#[derive(Debug)]
pub struct TransportEnd {
    /// Messages to write. Closed when the connection is dropped.
    pub outgoing: mpsc::Receiver<OutgoingMessage>,
    /// Requests to cancel. Each was pending before, and the transport takes them as fast as it can write.
    pub cancels: mpsc::UnboundedReceiver<CancelRequest>,
    /// Sender for incoming events.
    pub incoming: mpsc::Sender<IncomingEvent>,
}

/// Creates the channels between a connection and a transport.
pub fn channels() -> (TransportHandle, TransportEnd) {
    let (outgoing, outgoing_receiver) = mpsc::channel(CAPACITY);
    let (cancels, cancels_receiver) = mpsc::unbounded_channel();
    let (incoming_sender, incoming) = mpsc::channel(CAPACITY);
    (
        TransportHandle { outgoing, cancels, requests: RequestPath::Multiplexed { incoming } },
        TransportEnd { outgoing: outgoing_receiver, cancels: cancels_receiver, incoming: incoming_sender },
    )
}
