//! The GET stream on which a server of the session era sends its own messages, and resumption of any stream.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tokio::task::coop;
use tokio::time;
use tokio_util::sync::DropGuard;

use crate::connection::ConnectionShared;
use crate::http::client::HttpTransport;
use crate::http::client::endpoint::{self, ResponseBodyKind, SseStream, SseStreamError};
use crate::http::received_headers::ReceivedHeaders;
use crate::http::sse::SseEvent;
use crate::transport::TransportError;

/// Backoff after streams without events, in seconds.
const BACKOFF_SECONDS: [u64; 5] = [1, 2, 5, 10, 30];

/// A server may ask for an immediate reconnect, but not for a busy loop.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(20);

/// Position in an event stream, and reconnect backoff.
#[derive(Debug, Default)]
pub(super) struct StreamCursor {
    last: Option<HeaderValue>,
    retry: Option<Duration>,
    n_empty: usize,
}

impl StreamCursor {
    /// Records an event.
    pub(super) fn record(&mut self, event: &SseEvent) {
        self.n_empty = 0;
        self.retry = event.retry.or(self.retry);
        if let Some(id) = &event.id {
            // An empty id clears the last one.
            self.last = HeaderValue::from_str(id).ok().filter(|id| !id.is_empty());
        }
    }

    /// Returns the id of the last event, after which the stream resumes.
    pub(super) fn last_event_id(&self) -> Option<&HeaderValue> {
        self.last.as_ref()
    }

    /// Returns the number of consecutive connections without events.
    pub(super) fn n_empty(&self) -> usize {
        self.n_empty
    }

    /// Waits before reconnecting: the server's `retry` interval, with backoff while no events arrive.
    pub(super) async fn backoff(&mut self) {
        let interval = self.retry.unwrap_or(Duration::from_secs(BACKOFF_SECONDS[0])).max(MIN_RETRY_DELAY);
        let pause = match self.n_empty {
            0 => interval,
            n_empty => {
                interval.max(Duration::from_secs(BACKOFF_SECONDS[n_empty.min(BACKOFF_SECONDS.len() - 1)]))
            }
        };
        self.n_empty += 1;
        time::sleep(pause).await;
    }
}

/// Maximum time that other messages wait for the stream to open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Listens to the server until the session ends, when the caller aborts this task. Other messages wait until
/// the stream is open, since some servers lose what they send before.
pub(super) async fn listen(
    server: Arc<HttpTransport>,
    connection: Weak<ConnectionShared>,
    send_barrier: Option<DropGuard>,
) {
    let mut cursor = StreamCursor::default();
    let mut first = Some(open_first(&server, send_barrier).await);
    loop {
        let stream = match first.take() {
            Some(stream) => stream,
            None => open(&server, &cursor).await,
        };
        match stream {
            Ok(Some(mut events)) => read(&server, &connection, &mut events, &mut cursor).await,
            Ok(None) => return,
            Err(error) => {
                tracing::debug!(%error, "Cannot open the server's event stream; retrying.");
            }
        }
        cursor.backoff().await;
    }
}

async fn open_first(
    server: &HttpTransport,
    send_barrier: Option<DropGuard>,
) -> Result<Option<SseStream>, TransportError> {
    let cursor = StreamCursor::default();
    let mut opening = Box::pin(open(server, &cursor));
    let opened = time::timeout(OPEN_TIMEOUT, &mut opening).await;
    drop(send_barrier);
    match opened {
        Ok(opened) => opened,
        Err(_elapsed) => opening.await,
    }
}

/// Opens the stream; `None` if the server has none.
async fn open(server: &HttpTransport, cursor: &StreamCursor) -> Result<Option<SseStream>, TransportError> {
    let response = server.endpoint.get(&server.session.headers(), cursor.last_event_id()).await?;
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        return Ok(None);
    }
    if !response.status().is_success() {
        return Err(server.endpoint.error_response(response).await.into_error());
    }
    match endpoint::response_body_kind(&response)? {
        ResponseBodyKind::Events => Ok(Some(server.endpoint.events(response))),
        ResponseBodyKind::Json => {
            Err(TransportError::protocol("the server did not answer with an event stream"))
        }
    }
}

async fn read(
    server: &HttpTransport,
    connection: &Weak<ConnectionShared>,
    events: &mut SseStream,
    cursor: &mut StreamCursor,
) {
    loop {
        // A flood of events must not keep other tasks of the thread waiting.
        coop::consume_budget().await;
        match events.next().await {
            Ok(event) => {
                cursor.record(&event);
                if event.is_message() {
                    deliver_messages(server, connection, event).await;
                }
            }
            // Reported again if it turns out to be a response, which this stream does not have.
            Err(SseStreamError::TooLarge(problem)) if problem.answered.is_empty() => {
                tracing::warn!(%problem, "Skipping an oversized event.");
            }
            Err(SseStreamError::TooLarge(_)) => {}
            Err(SseStreamError::End) => return,
            Err(SseStreamError::Broken(error)) => {
                tracing::debug!(%error, "The server's event stream broke; resuming.");
                return;
            }
        }
    }
}

async fn deliver_messages(server: &HttpTransport, connection: &Weak<ConnectionShared>, event: SseEvent) {
    for message in server.endpoint.messages(event.data) {
        // The stream does not keep the connection alive; without it, there is no receiver.
        let Some(connection) = connection.upgrade() else { return };
        match message {
            Ok(message) => connection.receive(message, None, ReceivedHeaders::default()).await,
            Err(problem) => tracing::debug!(%problem, "Skipping a malformed event."),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    async fn pause(cursor: &mut StreamCursor) -> Duration {
        let before = Instant::now();
        cursor.backoff().await;
        before.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn backoff_grows_while_no_events_arrive() {
        let mut cursor = StreamCursor::default();
        for seconds in [1, 2, 5, 10, 30, 30] {
            assert_eq!(pause(&mut cursor).await.as_secs(), seconds);
        }
        cursor.record(&SseEvent::message("x"));
        assert_eq!(pause(&mut cursor).await.as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_can_set_the_retry_interval() {
        let mut cursor = StreamCursor::default();
        cursor.record(&SseEvent { retry: Some(Duration::from_secs(3)), ..SseEvent::default() });
        for seconds in [3, 3, 5] {
            assert_eq!(pause(&mut cursor).await.as_secs(), seconds);
        }
    }

    #[test]
    fn an_empty_id_clears_the_last_one() {
        let mut cursor = StreamCursor::default();
        for (id, expected) in [("a", true), ("b", true), ("", false)] {
            cursor.record(&SseEvent { id: Some(id.into()), ..SseEvent::default() });
            assert_eq!(cursor.last_event_id().is_some(), expected);
        }
    }
}
