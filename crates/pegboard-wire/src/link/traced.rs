//! A link whose letters and arrivals are written to the log.

use std::sync::Arc;

use tokio::sync::mpsc;
use tracing::Level;

use super::{Arrival, CAPACITY, Event, Link};
use crate::message::Message;

/// The target of what goes to and fro, at the level of traces.
pub const TARGET: &str = "pegboard::mcp";
/// How much of a message is written.
const MAX_BYTES: usize = 64 * 1024;

impl Link {
    /// The same link, with everything that goes over it written to the log as that of `peer`, if anybody reads that.
    pub(crate) fn traced(self, peer: Option<&Arc<str>>) -> Self {
        match peer {
            Some(peer) if tracing::enabled!(target: TARGET, Level::TRACE) => self.tapped(Arc::clone(peer)),
            _ => self,
        }
    }

    fn tapped(self, peer: Arc<str>) -> Self {
        let Self { letters, cancels, arrivals } = self;
        let (tapped_letters, mut outgoing) = mpsc::channel(CAPACITY);
        let (incoming, tapped_arrivals) = mpsc::channel(CAPACITY);
        let name = Arc::clone(&peer);
        // Each ends when either of its ends does.
        tokio::spawn(async move {
            while let Some(letter) = outgoing.recv().await {
                let super::Letter { message, .. } = &letter;
                tracing::trace!(target: TARGET, server = %name, direction = "sent", "{}", words(message));
                if letters.send(letter).await.is_err() {
                    return;
                }
            }
        });
        let mut arrivals = arrivals;
        tokio::spawn(async move {
            while let Some(arrival) = arrivals.recv().await {
                tracing::trace!(target: TARGET, server = %peer, direction = "received", "{}", told(&arrival));
                if incoming.send(arrival).await.is_err() {
                    return;
                }
            }
        });
        Self { letters: tapped_letters, cancels, arrivals: tapped_arrivals }
    }
}

fn told(arrival: &Arrival) -> String {
    match &arrival.event {
        Event::Message(message) => words(message),
        Event::Garbage(problem) => format!("input that is no message: {problem}"),
        Event::Lost { id, error } => format!("the answer to {id:?} will not come: {error}"),
        Event::Skipped => "input that is no message".to_owned(),
        Event::Ended => "the server has said all".to_owned(),
        Event::Closed(error) => format!("the connection has ended: {error}"),
    }
}

fn words(message: &Message) -> String {
    let bytes = message.encode();
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_BYTES)]).into_owned();
    if bytes.len() > MAX_BYTES { format!("{text}… {} bytes in all", bytes.len()) } else { text }
}
