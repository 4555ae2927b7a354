//! What is said about a request comes before its end, in order, and a request that is dropped is cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use pegboard_wire::client::{Client, Era, RequestOptions};
use pegboard_wire::era::Revision;
use pegboard_wire::server::{Description, Reply, Server, ServerRequest, Service};
use pegboard_wire::{Happening, RawJson, RpcError};
use serde_json::json;
use tokio::sync::Notify;

use crate::support::{connect, http, legacy, pipe, pipe_to, websocket};

/// The progress that one call hears of before its end.
async fn progress_of(client: &Client, token: String) -> Vec<f64> {
    let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": token}});
    let mut exchange =
        client.request("tools/call", Some(RawJson::from(params)), RequestOptions::default()).await.unwrap();
    let mut heard = Vec::new();
    loop {
        match exchange.next().await {
            Happening::Notice(notice) => {
                let params = notice.params.unwrap().to_value();
                assert_eq!(params["progressToken"], token, "the caller's own token comes back");
                heard.push(params["progress"].as_f64().unwrap());
            }
            Happening::End(result) => {
                result.unwrap();
                return heard;
            }
        }
    }
}

#[tokio::test]
async fn thirty_calls_hear_all_their_progress_in_order_and_before_their_results() {
    for (link, era) in [
        (pipe(), Era::Session),
        (pipe(), Era::Stateless),
        (http().await, Era::Session),
        (http().await, Era::Stateless),
        (websocket().await, Era::Session),
        (websocket().await, Era::Stateless),
        (legacy().await, Era::Session),
    ] {
        let (client, _) = connect(link, Some(era)).await;
        let heard = join_all((0..30).map(|n| progress_of(&client, format!("token {}", n % 3)))).await;
        assert_eq!(heard, vec![vec![0.0, 50.0, 100.0]; 30]);
        assert_eq!(client.connection().oddities().stray_notices, 0);
    }
}

/// A service whose every call waits for ever and tells when it is dropped.
#[derive(Default)]
struct Waiting {
    begun: Arc<Notify>,
    dropped: Arc<Notify>,
    n_begun: AtomicUsize,
}

struct TellWhenDropped(Arc<Notify>);

impl Drop for TellWhenDropped {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Service for Waiting {
    fn describe(&self, _revision: Revision) -> Description {
        Description {
            info: RawJson::from(json!({"name": "w", "version": "1"})),
            capabilities: RawJson::empty_object(),
            instructions: None,
        }
    }

    fn call(&self, _request: ServerRequest) -> BoxFuture<'static, Result<Reply, RpcError>> {
        self.n_begun.fetch_add(1, Ordering::SeqCst);
        let guard = TellWhenDropped(Arc::clone(&self.dropped));
        let begun = Arc::clone(&self.begun);
        async move {
            let _guard = guard;
            begun.notify_one();
            std::future::pending().await
        }
        .boxed()
    }
}

#[tokio::test]
async fn dropping_a_request_cancels_it_on_the_server() {
    for era in [Era::Session, Era::Stateless] {
        let service = Arc::new(Waiting::default());
        let (client, _) = connect(pipe_to(Server::new(service.clone())), Some(era)).await;
        let exchange = client.request("tools/call", None, RequestOptions::default()).await.unwrap();
        service.begun.notified().await;
        drop(exchange);
        service.dropped.notified().await;
        assert_eq!(client.connection().n_pending(), 0);
    }
}

#[tokio::test]
async fn a_connection_that_ends_ends_every_request() {
    let service = Arc::new(Waiting::default());
    let (near, far) = tokio::io::duplex(1024);
    let (reader, writer) = tokio::io::split(near);
    let link = pegboard_wire::stdio::lines(reader, writer, pegboard_wire::link::InputLimits::client()).0;
    let (far_reader, far_writer) = tokio::io::split(far);
    let (far_link, pump) =
        pegboard_wire::stdio::lines(far_reader, far_writer, pegboard_wire::link::InputLimits::server());
    let server = Server::new(service.clone());
    let serving = tokio::spawn(async move { server.serve(far_link).await });
    let (client, _) = connect(link, Some(Era::Session)).await;
    let exchanges =
        join_all((0..5).map(|_| client.request("tools/call", None, RequestOptions::default()))).await;
    service.begun.notified().await;
    serving.abort();
    pump.abort();
    for exchange in exchanges {
        exchange.unwrap().answer().await.unwrap_err();
    }
    assert!(client.connection().is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_left_all_the_same() {
    let (near, _far_that_never_reads) = tokio::io::duplex(16);
    let (reader, writer) = tokio::io::split(near);
    let (link, pump) =
        pegboard_wire::stdio::lines(reader, writer, pegboard_wire::link::InputLimits::client());
    let receiver = Arc::new(crate::support::Answering::default());
    let connection = pegboard_wire::Connection::open(link, receiver, pegboard_wire::Limits::default());
    let exchange = connection.request("tools/call", Some(RawJson::of(&"x".repeat(1_000)))).await.unwrap();
    drop((exchange, connection));
    pump.await.unwrap();
}

#[tokio::test]
async fn the_reason_why_a_connection_failed_is_not_lost() {
    for _ in 0..50 {
        let (link, port) = pegboard_wire::link::link();
        let receiver = Arc::new(crate::support::Answering::default());
        let connection = pegboard_wire::Connection::open(link, receiver, pegboard_wire::Limits::default());
        let reason = pegboard_wire::link::TransportError::failed("the server cannot be reached");
        let closed = pegboard_wire::link::Arrival::new(pegboard_wire::link::Event::Closed(reason.clone()));
        port.arrivals.send(closed).await.unwrap();
        drop(port);
        let failure = connection.request("ping", None).await.unwrap_err();
        assert_eq!(failure, pegboard_wire::Failure::Lost(reason));
    }
}
