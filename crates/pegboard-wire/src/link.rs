//! The seam between a connection and its transport: letters go out, arrivals come in.
//!
//! A transport is whatever moves them: it takes the [`Port`] of a link, writes each letter to its peer and sends
//! what the peer says to `arrivals`, in order. It ends when the letters end, and ends the connection by dropping
//! its port.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc;
use tokio::time;

use crate::message::{Frame, Id, Message, Unreadable};

mod traced;

pub use traced::TARGET as TRACE_TARGET;

/// How many letters or arrivals wait before the sender does.
const CAPACITY: usize = 256;

/// A message on its way out.
#[derive(Clone, Debug)]
pub struct Letter {
    /// What is said.
    pub message: Message,
    /// The peer's request that it is about, for transports that keep a stream for each request.
    pub about: Option<Id>,
    /// Headers for transports that have them.
    pub headers: HeaderMap,
    /// After this letter the stream it goes on may be closed; the peer comes back for the rest after so long.
    pub hang_up: Option<Duration>,
}

impl Letter {
    /// A letter about nothing in particular.
    pub fn new(message: Message) -> Self {
        Self { message, about: None, headers: HeaderMap::new(), hang_up: None }
    }

    /// The letter about a request of the peer.
    #[must_use]
    pub fn about(mut self, id: Option<Id>) -> Self {
        self.about = id;
        self
    }
}

/// A request of ours whose answer nobody waits for any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The id of the request.
    pub id: Id,
}

/// Something that came in.
#[derive(Debug)]
pub struct Arrival {
    /// What came.
    pub event: Event,
    /// Our request whose stream it came on, for transports that keep a stream for each request.
    pub about: Option<Id>,
    /// The headers it came with, for transports that have them.
    pub headers: HeaderMap,
}

impl Arrival {
    /// What came on a stream that all requests share.
    pub fn new(event: Event) -> Self {
        Self { event, about: None, headers: HeaderMap::new() }
    }

    /// A message that came on a stream that all requests share.
    pub fn message(message: Message) -> Self {
        Self::new(Event::Message(message))
    }

    /// The arrival on the stream of a request of ours.
    #[must_use]
    pub fn about(mut self, id: Option<Id>) -> Self {
        self.about = id;
        self
    }

    /// The arrival with the headers it came with.
    #[must_use]
    pub fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.headers = headers;
        self
    }
}

/// What came in.
#[derive(Debug)]
pub enum Event {
    /// A message.
    Message(Message),
    /// Input that is no message.
    Garbage(Unreadable),
    /// The answer to one request of ours will not come.
    Lost {
        /// The id of the request.
        id: Id,
        /// Why.
        error: TransportError,
    },
    /// Input that is no message, and was passed over.
    Skipped,
    /// The peer has said all, but may still listen.
    Ended,
    /// Nothing more will come.
    Closed(TransportError),
}

/// Why a transport could not do its work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The peer ended the connection.
    #[error("the connection was closed")]
    Closed,
    /// The operating system or the network refused.
    #[error("{what}")]
    Failed {
        /// What happened.
        what: String,
    },
    /// The peer answered with an HTTP status that carries no JSON-RPC answer.
    #[error("the server answered with HTTP status {status}")]
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: Bytes,
        /// What the server asks for with a 401 or 403.
        authenticate: Option<String>,
    },
    /// The peer broke the rules of the transport.
    #[error("the peer broke the protocol: {what}")]
    Protocol {
        /// How.
        what: String,
    },
}

impl TransportError {
    /// A refusal of the operating system or the network.
    pub fn failed(what: impl fmt::Display) -> Self {
        Self::Failed { what: what.to_string() }
    }

    /// A breach of the transport's rules.
    pub fn protocol(what: impl fmt::Display) -> Self {
        Self::Protocol { what: what.to_string() }
    }
}

/// What happens to input that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbage {
    /// It is answered with an error, as a server should.
    Answer,
    /// It is passed over, as a client should: servers print banners.
    Skip,
}

/// What one piece of input may be: a line, or a message of a socket.
#[derive(Clone, Copy, Debug)]
pub struct InputLimits {
    /// The longest, in bytes.
    pub max_bytes: usize,
    /// The deepest nesting of JSON.
    pub max_depth: usize,
    /// What happens to one that is no message.
    pub garbage: Garbage,
}

impl InputLimits {
    /// The limits of a server, which answers what it cannot read.
    pub fn server() -> Self {
        Self { max_bytes: crate::MAX_MESSAGE_BYTES, max_depth: crate::MAX_DEPTH, garbage: Garbage::Answer }
    }

    /// The limits of a client, which passes over what it cannot read.
    pub fn client() -> Self {
        Self { garbage: Garbage::Skip, ..Self::server() }
    }
}

/// What a piece of input brings, on transports where all requests share a stream.
pub(crate) fn events_of(frame: Result<Frame, Unreadable>, garbage: Garbage) -> Vec<Event> {
    let messages = match frame {
        Ok(Frame::One(message)) => vec![Ok(message)],
        Ok(Frame::Batch(messages)) => messages,
        Err(problem) => vec![Err(problem)],
    };
    let event = |message: Result<Message, Unreadable>| match (message, garbage) {
        (Ok(message), _) => Event::Message(message),
        (Err(problem), Garbage::Answer) => Event::Garbage(problem),
        // Whoever waits for it need not wait any longer.
        (Err(Unreadable { id: Some(id), has_method: false, error }), Garbage::Skip) => {
            Event::Lost { id, error: TransportError::protocol(error.message) }
        }
        (Err(problem), Garbage::Skip) => {
            tracing::debug!(%problem, "Input that is no message was passed over.");
            Event::Skipped
        }
    };
    messages.into_iter().map(event).collect()
}

/// How long a transport may take to say good-bye.
pub(crate) const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Passes on what is to be cancelled, and ends some time after the link has: a peer that does not read must not keep
/// a transport for ever.
pub(crate) async fn outlast(
    mut cancels: mpsc::UnboundedReceiver<Cancel>,
    relay: mpsc::UnboundedSender<Cancel>,
) {
    while let Some(cancel) = cancels.recv().await {
        // If nobody takes it the transport has ended, and this with it.
        let _ = relay.send(cancel);
    }
    drop(relay);
    time::sleep(LEAVE_TIMEOUT).await;
}

/// The connection's end of a link.
#[derive(Debug)]
pub struct Link {
    pub(crate) letters: mpsc::Sender<Letter>,
    pub(crate) cancels: mpsc::UnboundedSender<Cancel>,
    pub(crate) arrivals: mpsc::Receiver<Arrival>,
}

/// The transport's end of a link.
#[derive(Debug)]
pub struct Port {
    /// What is to be written. It ends when the connection is given up.
    pub letters: mpsc::Receiver<Letter>,
    /// What is to be cancelled. There are never more than requests under way, so it needs no bound of its own.
    pub cancels: mpsc::UnboundedReceiver<Cancel>,
    /// Where to put what comes in.
    pub arrivals: mpsc::Sender<Arrival>,
}

/// A new link: an end for the connection and one for the transport.
pub fn link() -> (Link, Port) {
    let (letters, letters_out) = mpsc::channel(CAPACITY);
    let (cancels, cancels_out) = mpsc::unbounded_channel();
    let (arrivals_in, arrivals) = mpsc::channel(CAPACITY);
    (
        Link { letters, cancels, arrivals },
        Port { letters: letters_out, cancels: cancels_out, arrivals: arrivals_in },
    )
}
