//! Tests of closing connections.

use tokio::sync::oneshot;

use super::*;
use crate::link::link;

/// Accepts a request, reports when it is dropped, and never answers.
struct NeverAnswers(mpsc::UnboundedSender<oneshot::Receiver<()>>);

impl InboundHandler for NeverAnswers {
    fn request(&self, _inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let (guard, dropped) = oneshot::channel::<()>();
        self.0.send(dropped).expect("the test listens");
        async move {
            let _guard = guard;
            std::future::pending().await
        }
        .boxed()
    }

    fn notification(&self, _notification: Notification, _related_request: Option<Id>) {}
}

#[tokio::test(start_paused = true)]
async fn dropping_a_connection_aborts_requests_of_the_peer() {
    // Both while the peer still sends and after it has closed its input.
    for last in [None, Some(TransportEvent::EndOfInput)] {
        let (started, mut starts) = mpsc::unbounded_channel();
        let (link, port) = link();
        let limits = ConnectionLimits {
            role: ConnectionRole::Server { linger: Duration::from_hours(1) },
            ..ConnectionLimits::default()
        };
        let connection = Connection::open(link, Arc::new(NeverAnswers(started)), limits);
        let request = Request::new(Id::Number(1), "ping", None);
        port.arrivals.send(Arrival::message(Message::Request(request))).await.expect("the link is open");
        let dropped = starts.recv().await.expect("the request starts");
        if let Some(last) = last {
            port.arrivals.send(Arrival::new(last)).await.expect("the link is open");
            drop(port.arrivals);
            tokio::task::yield_now().await;
        }
        let before = time::Instant::now();
        drop(connection);
        assert!(dropped.await.is_err());
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_outlast_the_end_of_input_are_answered_with_an_error() {
    const LINGER: Duration = Duration::from_secs(5);
    let (started, mut starts) = mpsc::unbounded_channel();
    let (link, mut port) = link();
    let role = ConnectionRole::Server { linger: LINGER };
    let limits = ConnectionLimits { role, ..ConnectionLimits::default() };
    let connection = Connection::open(link, Arc::new(NeverAnswers(started)), limits);
    // More than the transport takes at once.
    let n_requests = 1_000;
    for id in 0..n_requests {
        let request = Request::new(Id::Number(id), "ping", None);
        port.arrivals.send(Arrival::message(Message::Request(request))).await.expect("the link is open");
    }
    port.arrivals.send(Arrival::new(TransportEvent::EndOfInput)).await.expect("the link is open");
    drop(port.arrivals);
    let before = time::Instant::now();
    let mut answered = Vec::new();
    for _ in 0..n_requests {
        let Message::Response(response) = port.letters.recv().await.expect("an answer").message else {
            panic!("only answers are sent");
        };
        let message = response.result.expect_err("the request did not finish").message;
        assert_eq!(
            message,
            "The request was cancelled: it did not finish within 5s after the end of the input"
        );
        answered.push(response.id);
        assert!(starts.recv().await.expect("the request has started").await.is_err());
    }
    assert_eq!(before.elapsed(), LINGER);
    answered.sort_by_key(|id| match id {
        Some(Id::Number(id)) => *id,
        Some(Id::Text(_)) | None => -1,
    });
    assert_eq!(answered, (0..n_requests).map(|id| Some(Id::Number(id))).collect::<Vec<_>>());
    assert_eq!(connection.closed().await, TransportError::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_delays_the_close_only_for_a_while() {
    let (started, _starts) = mpsc::unbounded_channel();
    let (link, port) = link();
    let role = ConnectionRole::Server { linger: Duration::from_secs(5) };
    let limits = ConnectionLimits { role, ..ConnectionLimits::default() };
    let connection = Connection::open(link, Arc::new(NeverAnswers(started)), limits);
    for id in 0..1_000 {
        let request = Request::new(Id::Number(id), "ping", None);
        port.arrivals.send(Arrival::message(Message::Request(request))).await.expect("the link is open");
    }
    port.arrivals.send(Arrival::new(TransportEvent::EndOfInput)).await.expect("the link is open");
    drop(port.arrivals);
    let before = time::Instant::now();
    connection.closed().await;
    assert_eq!(before.elapsed(), Duration::from_secs(5) + CLOSE_TIMEOUT);
}
