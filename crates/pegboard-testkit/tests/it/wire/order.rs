//! Notifications of a request arrive before its result, in order, and dropping a request cancels it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use pegboard_wire::client::{Era, McpClient, RequestOptions};
use pegboard_wire::era::Revision;
use pegboard_wire::server::{McpService, ServerRequest, ServiceDescription, ServiceReply, ServiceServer};
use pegboard_wire::{RawJson, ResponseEvent, RpcError};
use serde_json::json;
use tokio::sync::Notify;

use crate::wire::support::{connect, http, legacy, pipe, pipe_to, websocket};

/// Returns the progress that a call reports before its result.
async fn progress_of(client: &McpClient, token: String) -> Vec<f64> {
    let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": token}});
    let mut request =
        client.request("tools/call", Some(RawJson::from(params)), RequestOptions::default()).await.unwrap();
    let mut reported = Vec::new();
    loop {
        match request.next_event().await {
            ResponseEvent::Notification(notice) => {
                let params = notice.params.unwrap().to_value();
                assert_eq!(params["progressToken"], token, "the caller's own token comes back");
                reported.push(params["progress"].as_f64().unwrap());
            }
            ResponseEvent::End(result) => {
                result.unwrap();
                return reported;
            }
        }
    }
}

#[tokio::test]
async fn progress_arrives_in_order_and_before_the_result() {
    for (transport, era) in [
        (pipe(), Era::Session),
        (pipe(), Era::Stateless),
        (http().await, Era::Session),
        (http().await, Era::Stateless),
        (websocket().await, Era::Session),
        (websocket().await, Era::Stateless),
        (legacy().await, Era::Session),
    ] {
        let (client, _) = connect(transport, Some(era)).await;
        let reported = join_all((0..30).map(|n| progress_of(&client, format!("token {}", n % 3)))).await;
        assert_eq!(reported, vec![vec![0.0, 50.0, 100.0]; 30]);
        assert_eq!(client.connection().stats().stray_notifications, 0);
    }
}

/// A service whose calls never end and report when they are dropped.
#[derive(Default)]
struct NeverEnding {
    begun: Arc<Notify>,
    dropped: Arc<Notify>,
    n_begun: AtomicUsize,
}

struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl McpService for NeverEnding {
    fn describe(&self, _revision: Revision) -> ServiceDescription {
        ServiceDescription {
            info: RawJson::from(json!({"name": "w", "version": "1"})),
            capabilities: RawJson::empty_object(),
            instructions: None,
        }
    }

    fn call(&self, _request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        self.n_begun.fetch_add(1, Ordering::SeqCst);
        let guard = NotifyOnDrop(Arc::clone(&self.dropped));
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
        let service = Arc::new(NeverEnding::default());
        let (client, _) = connect(pipe_to(ServiceServer::new(service.clone())), Some(era)).await;
        let request = client.request("tools/call", None, RequestOptions::default()).await.unwrap();
        service.begun.notified().await;
        drop(request);
        service.dropped.notified().await;
        assert_eq!(client.connection().n_pending(), 0);
    }
}

#[tokio::test]
async fn closing_a_connection_fails_every_request() {
    let service = Arc::new(NeverEnding::default());
    let (near, far) = tokio::io::duplex(1024);
    let (reader, writer) = tokio::io::split(near);
    let transport =
        pegboard_wire::stdio::line_transport(reader, writer, pegboard_wire::transport::InputLimits::client())
            .0;
    let (far_reader, far_writer) = tokio::io::split(far);
    let (far_link, pump) = pegboard_wire::stdio::line_transport(
        far_reader,
        far_writer,
        pegboard_wire::transport::InputLimits::server(),
    );
    let server = ServiceServer::new(service.clone());
    let serving = tokio::spawn(async move { server.serve(far_link).await });
    let (client, _) = connect(transport, Some(Era::Session)).await;
    let pending =
        join_all((0..5).map(|_| client.request("tools/call", None, RequestOptions::default()))).await;
    service.begun.notified().await;
    serving.abort();
    pump.abort();
    for request in pending {
        request.unwrap().response().await.unwrap_err();
    }
    assert!(client.connection().is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_does_not_block_closing() {
    let (near, _far_that_never_reads) = tokio::io::duplex(16);
    let (reader, writer) = tokio::io::split(near);
    let (transport, pump) =
        pegboard_wire::stdio::line_transport(reader, writer, pegboard_wire::transport::InputLimits::client());
    let handler = Arc::new(crate::wire::support::AnsweringHandler::default());
    let connection =
        pegboard_wire::Connection::open(transport, handler, pegboard_wire::ConnectionLimits::default());
    let request = connection.request("tools/call", Some(RawJson::of(&"x".repeat(1_000)))).await.unwrap();
    drop((request, connection));
    pump.await.unwrap();
}

#[tokio::test]
async fn the_close_reason_is_reported_to_later_requests() {
    for _ in 0..50 {
        let (transport, end) = pegboard_wire::transport::channels();
        let handler = Arc::new(crate::wire::support::AnsweringHandler::default());
        let connection =
            pegboard_wire::Connection::open(transport, handler, pegboard_wire::ConnectionLimits::default());
        let reason = pegboard_wire::transport::TransportError::failed("cannot reach the server");
        let closed = pegboard_wire::transport::IncomingEvent::new(
            pegboard_wire::transport::TransportEvent::Closed(reason.clone()),
        );
        end.incoming.send(closed).await.unwrap();
        drop(end);
        let failure = connection.request("ping", None).await.unwrap_err();
        assert_eq!(failure, pegboard_wire::RequestError::Transport(reason));
    }
}
