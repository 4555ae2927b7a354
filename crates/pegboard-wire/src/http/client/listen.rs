//! The stream on which a server of the session era speaks first, and how any stream goes on after a break.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tokio::time;
use tokio_util::sync::DropGuard;

use crate::http::client::Server;
use crate::http::client::endpoint::{self, Events, Format, NoEvent};
use crate::http::sse::SseEvent;
use crate::link::{Arrival, TransportError};

/// How long to wait after a stream that brought nothing, in seconds.
const BACK_OFF: [u64; 5] = [1, 2, 5, 10, 30];

/// A server may ask us back at once, but not in a circle that burns the processor.
const MIN_PAUSE: Duration = Duration::from_millis(20);

/// Where a stream is, and when to come back to it.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    last: Option<HeaderValue>,
    retry: Option<Duration>,
    n_quiet: usize,
}

impl Cursor {
    /// Takes note of an event.
    pub(super) fn pass(&mut self, event: &SseEvent) {
        self.n_quiet = 0;
        self.retry = event.retry.or(self.retry);
        if let Some(id) = &event.id {
            // An empty id takes the last one back.
            self.last = HeaderValue::from_str(id).ok().filter(|id| !id.is_empty());
        }
    }

    /// The event after which the stream goes on.
    pub(super) fn last(&self) -> Option<&HeaderValue> {
        self.last.as_ref()
    }

    /// How often the stream brought nothing.
    pub(super) fn n_quiet(&self) -> usize {
        self.n_quiet
    }

    /// Waits until it is time to come back: what the server asks for, longer each time nothing comes.
    pub(super) async fn pause(&mut self) {
        let asked = self.retry.unwrap_or(Duration::from_secs(BACK_OFF[0])).max(MIN_PAUSE);
        let pause = match self.n_quiet {
            0 => asked,
            n_quiet => asked.max(Duration::from_secs(BACK_OFF[n_quiet.min(BACK_OFF.len() - 1)])),
        };
        self.n_quiet += 1;
        time::sleep(pause).await;
    }
}

/// How long letters wait for the stream to be there.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Listens to a server for as long as the session lives; whoever began it ends this. Others wait until the stream is
/// there, since some servers lose what they say before.
pub(super) async fn listen(server: Arc<Server>, others_wait: DropGuard) {
    let mut cursor = Cursor::default();
    let mut first = Some(open_at_first(&server, others_wait).await);
    loop {
        let stream = match first.take() {
            Some(stream) => stream,
            None => open(&server, &cursor).await,
        };
        match stream {
            Ok(Some(mut events)) => read(&server, &mut events, &mut cursor).await,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "The server's own stream could not be opened; trying again.");
            }
        }
        cursor.pause().await;
    }
}

async fn open_at_first(server: &Server, others_wait: DropGuard) -> Result<Option<Events>, TransportError> {
    let cursor = Cursor::default();
    let mut opening = Box::pin(open(server, &cursor));
    let opened = time::timeout(OPEN_TIMEOUT, &mut opening).await;
    drop(others_wait);
    match opened {
        Ok(opened) => opened,
        Err(_elapsed) => opening.await,
    }
}

/// Opens the stream; `None` if the server has none.
async fn open(server: &Server, cursor: &Cursor) -> Result<Option<Events>, TransportError> {
    let response = server.endpoint.get(server.session.headers(), cursor.last()).await?;
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        return Ok(None);
    }
    if !response.status().is_success() {
        return Err(server.endpoint.refusal(response).await.into_error());
    }
    match endpoint::format(&response)? {
        Format::Events => Ok(Some(server.endpoint.events(response))),
        Format::Json => Err(TransportError::protocol("the server's own stream is no stream")),
    }
}

async fn read(server: &Server, events: &mut Events, cursor: &mut Cursor) {
    loop {
        match events.next().await {
            Ok(event) => {
                cursor.pass(&event);
                if event.is_message() {
                    hand_on(server, event).await;
                }
            }
            Err(NoEvent::TooLarge(problem)) => tracing::warn!(%problem, "An event was passed over."),
            Err(NoEvent::End) => return,
            Err(NoEvent::Broken(error)) => {
                tracing::debug!(%error, "The server's own stream broke off; going on.");
                return;
            }
        }
    }
}

async fn hand_on(server: &Server, event: SseEvent) {
    for message in server.endpoint.messages(event.data) {
        match message {
            Ok(message) => server.arrive(Arrival::message(message)).await,
            Err(problem) => tracing::debug!(%problem, "An event that is no message was passed over."),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    async fn pause(cursor: &mut Cursor) -> Duration {
        let before = Instant::now();
        cursor.pause().await;
        before.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn the_less_comes_the_longer_the_pause() {
        let mut cursor = Cursor::default();
        for seconds in [1, 2, 5, 10, 30, 30] {
            assert_eq!(pause(&mut cursor).await.as_secs(), seconds);
        }
        cursor.pass(&SseEvent::message("x"));
        assert_eq!(pause(&mut cursor).await.as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_may_ask_for_a_pause() {
        let mut cursor = Cursor::default();
        cursor.pass(&SseEvent { retry: Some(Duration::from_secs(3)), ..SseEvent::default() });
        for seconds in [3, 3, 5] {
            assert_eq!(pause(&mut cursor).await.as_secs(), seconds);
        }
    }

    #[test]
    fn an_empty_id_takes_the_last_one_back() {
        let mut cursor = Cursor::default();
        for (id, expected) in [("a", true), ("b", true), ("", false)] {
            cursor.pass(&SseEvent { id: Some(id.into()), ..SseEvent::default() });
            assert_eq!(cursor.last().is_some(), expected);
        }
    }
}
