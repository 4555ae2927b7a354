//! Trace logging of all messages on a connection.

use std::sync::Arc;

use tracing::Level;

use super::TransportEvent;
use crate::message::Message;

/// The tracing target of messages, at trace level.
pub const TARGET: &str = "pegboard::mcp";
/// Maximum number of bytes logged per message.
const MAX_LOGGED_BYTES: usize = 64 * 1024;

/// Logs the messages of one connection under the name of its peer.
#[derive(Debug)]
pub(crate) struct MessageTrace {
    peer: Arc<str>,
}

impl MessageTrace {
    /// Returns the trace of a peer, if tracing is enabled for messages.
    pub(crate) fn of(peer: Option<&Arc<str>>) -> Option<Self> {
        let peer = peer.filter(|_| tracing::enabled!(target: TARGET, Level::TRACE))?;
        Some(Self { peer: Arc::clone(peer) })
    }

    pub(crate) fn sent(&self, message: &[u8]) {
        tracing::trace!(target: TARGET, server = %self.peer, direction = "sent", "{}", clipped_text(message));
    }

    pub(crate) fn message_received(&self, message: &Message) {
        self.log_received(&message_text(message));
    }

    pub(crate) fn received(&self, event: &TransportEvent) {
        self.log_received(&event_text(event));
    }

    fn log_received(&self, text: &str) {
        tracing::trace!(target: TARGET, server = %self.peer, direction = "received", "{text}");
    }
}

fn event_text(event: &TransportEvent) -> String {
    match event {
        TransportEvent::Message(message) => message_text(message),
        TransportEvent::Malformed(problem) => format!("malformed input: {problem}"),
        TransportEvent::RequestFailed { id, error } => format!("request {id:?} failed: {error}"),
        TransportEvent::UnreadableResponse { error } => format!("unreadable response: {error}"),
        TransportEvent::Skipped => "malformed input".to_owned(),
        TransportEvent::EndOfInput => "end of input".to_owned(),
        TransportEvent::Closed(error) => format!("connection closed: {error}"),
    }
}

fn message_text(message: &Message) -> String {
    clipped_text(&message.encode())
}

fn clipped_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_LOGGED_BYTES)]).into_owned();
    if bytes.len() > MAX_LOGGED_BYTES { format!("{text}… ({} bytes in total)", bytes.len()) } else { text }
}
