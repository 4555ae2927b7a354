//! Tests of closing connections, and of fairness between them.

use foldhash::HashMap;
use futures_util::FutureExt;
use tokio::sync::{mpsc, oneshot};
use tokio::time;

use super::inbound::CROWD;
use super::*;
use crate::http::received_headers::ReceivedHeaders;
use crate::http::server::EventMemory;
use crate::transport::{CLOSE_TIMEOUT, IncomingEvent, TransportEvent, channels};

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
        let (transport, end) = channels();
        let limits = ConnectionLimits {
            role: ConnectionRole::Server { linger: Duration::from_hours(1) },
            ..ConnectionLimits::default()
        };
        let connection = Connection::open(transport, Arc::new(NeverAnswers(started)), limits);
        let request = Request::new(Id::Number(1), "ping", None);
        end.incoming
            .send(IncomingEvent::message(Message::Request(request)))
            .await
            .expect("the transport is open");
        let dropped = starts.recv().await.expect("the request starts");
        if let Some(last) = last {
            end.incoming.send(IncomingEvent::new(last)).await.expect("the transport is open");
            drop(end.incoming);
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
    let (transport, mut end) = channels();
    let role = ConnectionRole::Server { linger: LINGER };
    let limits = ConnectionLimits { role, ..ConnectionLimits::default() };
    let connection = Connection::open(transport, Arc::new(NeverAnswers(started)), limits);
    // More than the transport takes at once.
    let n_requests = 1_000;
    for id in 0..n_requests {
        let request = Request::new(Id::Number(id), "ping", None);
        end.incoming
            .send(IncomingEvent::message(Message::Request(request)))
            .await
            .expect("the transport is open");
    }
    end.incoming.send(IncomingEvent::new(TransportEvent::EndOfInput)).await.expect("the transport is open");
    drop(end.incoming);
    let before = time::Instant::now();
    let mut answered = Vec::new();
    for _ in 0..n_requests {
        let Message::Response(response) = end.outgoing.recv().await.expect("an answer").message else {
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
    let (transport, end) = channels();
    let role = ConnectionRole::Server { linger: Duration::from_secs(5) };
    let limits = ConnectionLimits { role, ..ConnectionLimits::default() };
    let connection = Connection::open(transport, Arc::new(NeverAnswers(started)), limits);
    for id in 0..1_000 {
        let request = Request::new(Id::Number(id), "ping", None);
        end.incoming
            .send(IncomingEvent::message(Message::Request(request)))
            .await
            .expect("the transport is open");
    }
    end.incoming.send(IncomingEvent::new(TransportEvent::EndOfInput)).await.expect("the transport is open");
    drop(end.incoming);
    let before = time::Instant::now();
    connection.closed().await;
    assert_eq!(before.elapsed(), Duration::from_secs(5) + CLOSE_TIMEOUT);
}

/// Records the order in which requests of several connections run.
struct RunOrder(&'static str, mpsc::UnboundedSender<&'static str>);

impl InboundHandler for RunOrder {
    fn request(&self, _inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let (name, ran) = (self.0, self.1.clone());
        async move {
            ran.send(name).expect("the test listens");
            std::future::pending().await
        }
        .boxed()
    }

    fn notification(&self, _notification: Notification, _related_request: Option<Id>) {}
}

/// Returns the number of requests that run before that of the sibling, of 1,000 that arrived earlier.
async fn n_before_sibling(begin: impl AsyncFn(&str, i64, Arc<RunOrder>)) -> usize {
    let (ran, mut order) = mpsc::unbounded_channel();
    let [crowd, sibling] = ["crowd", "sibling"].map(|name| Arc::new(RunOrder(name, ran.clone())));
    for id in 0..1_000 {
        begin("crowd", id, Arc::clone(&crowd)).await;
    }
    begin("sibling", 0, sibling).await;
    let mut n_before = 0;
    while order.recv().await.expect("all run") != "sibling" {
        n_before += 1;
    }
    n_before
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_only_for_the_first_ones_of_a_crowded_session() {
    let connections = Mutex::new(HashMap::<String, Connection>::default());
    let limits = ConnectionLimits::default();
    let n_before = n_before_sibling(async |name, id, handler| {
        let connection = connections
            .lock()
            .entry(name.to_owned())
            .or_insert_with(|| {
                Connection::open_session(
                    Arc::new(SessionStreams::new(EventMemory::default())),
                    handler,
                    limits,
                )
            })
            .clone();
        let call = connection.begin(Request::new(Id::Number(id), "ping", None), ReceivedHeaders::default());
        tokio::spawn(call.expect("it begins"));
    });
    assert_eq!(n_before.await, CROWD);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_only_for_the_first_ones_of_a_crowded_connection() {
    let open = |handler: &Arc<RunOrder>| {
        let (transport, end) = channels();
        (Connection::open(transport, handler.clone(), ConnectionLimits::default()), end)
    };
    let connections = Mutex::new(HashMap::default());
    let n_before = n_before_sibling(async |name, id, handler| {
        let mut connections = connections.lock();
        let (connection, _port) = connections.entry(name.to_owned()).or_insert_with(|| open(&handler));
        let handler: Arc<dyn InboundHandler> = handler;
        let request = Request::new(Id::Number(id), "ping", None);
        assert!(connection.0.serve(request, (None, ReceivedHeaders::default()), &handler).is_none());
    });
    assert_eq!(n_before.await, CROWD);
}

#[test]
fn a_refusal_does_nothing_for_the_request() {
    let (ran, mut order) = mpsc::unbounded_channel();
    let handler = Arc::new(RunOrder("refused", ran));
    let limits = ConnectionLimits { max_inbound: 3, ..ConnectionLimits::default() };
    let streams = Arc::new(SessionStreams::new(EventMemory::default()));
    let connection = Connection::open_session(streams, handler, limits);
    let begin = |id| connection.begin(Request::new(Id::Number(id), "ping", None), ReceivedHeaders::default());
    let admitted: Vec<_> = (0..3).map(|id| begin(id).expect("it is admitted")).collect();
    for id in 3..1_000 {
        assert_eq!(begin(id).err().expect("it is refused").message, "Too many requests in flight");
    }
    assert_eq!(connection.0.table().inbound.values().count(), 3);
    assert!(order.try_recv().is_err());
    drop(admitted);
    assert!(begin(1_000).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_gives_the_reason_of_the_caller() {
    let (transport, mut end) = channels();
    let (started, _starts) = mpsc::unbounded_channel();
    let connection =
        Connection::open(transport, Arc::new(NeverAnswers(started)), ConnectionLimits::default());
    for (reason, expected) in
        [(Some("no need any more"), "no need any more"), (None, "the caller cancelled the request")]
    {
        let mut pending = connection.request("tools/call", None).await.expect("the transport is open");
        if let Some(reason) = reason {
            pending.set_cancel_reason(RawJson::of(reason));
        }
        drop(pending);
        let cancel = end.cancels.recv().await.expect("the request is cancelled");
        let Message::Notification(notification) = cancel_notification(&cancel) else { panic!() };
        let params = notification.params.expect("it has parameters");
        assert_eq!(params.get("reason"), Some(RawJson::of(expected)));
        assert_eq!(params.get("requestId"), Some(RawJson::of(&cancel.id)));
    }
}
