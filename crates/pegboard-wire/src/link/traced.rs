//! Trace logging of all messages on a link.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::Level;

use super::{Arrival, CAPACITY, Link, TransportEvent};
use crate::message::Message;

/// The tracing target of messages, at trace level.
pub const TARGET: &str = "pegboard::mcp";
/// Maximum number of bytes logged per message.
const MAX_LOGGED_BYTES: usize = 64 * 1024;

impl Link {
    /// Logs all messages of the link under the name `peer`, if tracing is enabled for it.
    pub(crate) fn traced(self, peer: Option<&Arc<str>>) -> Self {
        match peer {
            Some(peer) if tracing::enabled!(target: TARGET, Level::TRACE) => {
                self.with_trace(Arc::clone(peer))
            }
            _ => self,
        }
    }

    fn with_trace(self, peer: Arc<str>) -> Self {
        let Self { letters, cancels, arrivals } = self;
        let (traced_letters, mut outgoing) = mpsc::channel(CAPACITY);
        let (incoming, traced_arrivals) = mpsc::channel(CAPACITY);
        let name = Arc::clone(&peer);
        // Each task ends when either of its channels closes.
        tokio::spawn(async move {
            while let Some(letter) = outgoing.recv().await {
                let super::Letter { message, .. } = &letter;
                tracing::trace!(target: TARGET, server = %name, direction = "sent", "{}", message_text(message));
                if letters.send(letter).await.is_err() {
                    return;
                }
            }
        });
        let mut arrivals = arrivals;
        tokio::spawn(async move {
            while let Some(arrival) = arrivals.recv().await {
                tracing::trace!(target: TARGET, server = %peer, direction = "received", "{}", describe_arrival(&arrival));
                if incoming.send(arrival).await.is_err() {
                    return;
                }
            }
        });
        Self { letters: traced_letters, cancels, arrivals: traced_arrivals }
    }
}

fn describe_arrival(arrival: &Arrival) -> String {
    match &arrival.event {
        TransportEvent::Message(message) => message_text(message),
        TransportEvent::Malformed(problem) => format!("malformed input: {problem}"),
        TransportEvent::RequestFailed { id, error } => format!("request {id:?} failed: {error}"),
        TransportEvent::Skipped => "malformed input".to_owned(),
        TransportEvent::EndOfInput => "end of input".to_owned(),
        TransportEvent::Closed(error) => format!("connection closed: {error}"),
    }
}

fn message_text(message: &Message) -> String {
    let bytes = message.encode();
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_LOGGED_BYTES)]).into_owned();
    if bytes.len() > MAX_LOGGED_BYTES { format!("{text}… ({} bytes in total)", bytes.len()) } else { text }
}
