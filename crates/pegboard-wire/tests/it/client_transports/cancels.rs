//! Cancelled requests and closed transports, as seen by the server.

use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::support::{
    accepted, event, initialize, open_connection, open_ended_stream, result, send_request, serve,
    start_request, stateless, status, transport_error, with_timeout,
};

/// Receives, for each stream, a channel end that closes when the stream is dropped.
type Guards = mpsc::UnboundedReceiver<oneshot::Receiver<()>>;

/// A server that never answers a call, but opens a stream and reports when that is closed.
async fn serve_silence() -> (super::support::ScriptedServer, Guards) {
    let (opened, guards) = mpsc::unbounded_channel();
    let server = serve(move |seen| {
        let opened = opened.clone();
        async move {
            match seen.method_name().as_str() {
                "initialize" => result(&seen, &json!({"protocolVersion": "2025-11-25"})),
                "GET" => status(405, ""),
                "tools/call" => {
                    let (guard, dropped) = oneshot::channel::<()>();
                    let _ = opened.send(dropped);
                    let notice = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}});
                    open_ended_stream(vec![event(&notice)], guard)
                }
                "slow" => {
                    let (_guard, dropped) = oneshot::channel::<()>();
                    let _ = opened.send(dropped);
                    std::future::pending().await
                }
                _ => accepted(),
            }
        }
    })
    .await;
    (server, guards)
}

#[tokio::test]
async fn a_stateless_request_is_cancelled_by_closing_its_stream() {
    for method in ["tools/call", "slow"] {
        let (mut server, mut guards) = serve_silence().await;
        let connection = open_connection(&server.url);
        let request = start_request(&connection, method, stateless()).await;
        let dropped = with_timeout(guards.recv()).await.unwrap();
        assert_eq!(server.next().await.method_name(), method);
        drop(request);
        assert!(with_timeout(dropped).await.is_err());
        assert!(server.seen.try_recv().is_err());
    }
}

#[tokio::test]
async fn a_request_of_a_session_is_cancelled_by_a_notification() {
    let (mut server, mut guards) = serve_silence().await;
    let connection = open_connection(&server.url);
    initialize(&connection).await;
    let mut request = send_request(&connection, "tools/call", json!({})).await;
    let id = request.id();
    with_timeout(request.next_event()).await;
    let dropped = with_timeout(guards.recv()).await.unwrap();
    drop(request);
    let cancelled = loop {
        let seen = server.next().await;
        if seen.method_name() == "notifications/cancelled" {
            break seen;
        }
    };
    assert_eq!(cancelled.body["params"]["requestId"], json!(id));
    assert_eq!(cancelled.header("mcp-protocol-version"), Some("2025-11-25"));
    assert!(with_timeout(dropped).await.is_err());
}

#[tokio::test]
async fn initialize_is_not_cancelled() {
    let mut server = serve(|_| std::future::pending()).await;
    let connection = open_connection(&server.url);
    let request = start_request(&connection, "initialize", json!({})).await;
    server.next().await;
    drop(request);
    // What comes next is the next request, not a cancellation.
    let _pending = start_request(&connection, "ping", stateless()).await;
    assert_eq!(server.next().await.method_name(), "ping");
}

#[tokio::test]
async fn dropping_the_connection_cancels_its_requests() {
    let (mut server, mut guards) = serve_silence().await;
    let connection = open_connection(&server.url);
    let request = start_request(&connection, "tools/call", json!({})).await;
    let dropped = with_timeout(guards.recv()).await.unwrap();
    assert_eq!(server.next().await.method_name(), "tools/call");
    drop((connection, request));
    assert_eq!(server.next().await.method_name(), "notifications/cancelled");
    assert!(with_timeout(dropped).await.is_err());
}

#[tokio::test]
async fn an_unreachable_server_fails_the_request_but_not_the_link() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/?key=secret", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let connection = open_connection(&url);
    for _ in 0..2 {
        let error = transport_error(&connection, "ping", json!({})).await.to_string();
        assert!(error.starts_with("cannot reach the server: "), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    assert!(!connection.is_closed());
}
