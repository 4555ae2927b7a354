//! Tests of dropped connections.

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
