//! Connections that are given up.

use tokio::sync::oneshot;

use super::*;
use crate::link::link;

/// Takes a request, tells whether it is given up, and never answers.
struct Endless(mpsc::UnboundedSender<oneshot::Receiver<()>>);

impl Receiver for Endless {
    fn request(&self, _inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let (guard, given_up) = oneshot::channel::<()>();
        self.0.send(given_up).expect("somebody listens");
        async move {
            let _guard = guard;
            std::future::pending().await
        }
        .boxed()
    }

    fn notification(&self, _notification: Notification, _about: Option<Id>) {}
}

#[tokio::test(start_paused = true)]
async fn with_a_connection_ends_what_it_was_asked_for() {
    // Whether the peer has said all, and answers are still on their way, or not.
    for last in [None, Some(Event::Ended)] {
        let (begun, mut begins) = mpsc::unbounded_channel();
        let (link, port) = link();
        let limits = Limits { linger: Duration::from_hours(1), ..Limits::default() };
        let connection = Connection::open(link, Arc::new(Endless(begun)), limits);
        let request = Request::new(Id::Number(1), "ping", None);
        port.arrivals.send(Arrival::message(Message::Request(request))).await.expect("it is open");
        let given_up = begins.recv().await.expect("it begins");
        if let Some(last) = last {
            port.arrivals.send(Arrival::new(last)).await.expect("it is open");
            drop(port.arrivals);
            tokio::task::yield_now().await;
        }
        let before = time::Instant::now();
        drop(connection);
        assert!(given_up.await.is_err());
        assert_eq!(before.elapsed(), Duration::ZERO);
    }
}
