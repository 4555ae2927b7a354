//! The WebSocket transport.

use std::future::Future;

use axum::Router;
use axum::extract::WebSocketUpgrade;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use axum::routing::get;
use http::{HeaderMap, HeaderValue};
use pegboard_wire::transport::InputLimits;
use pegboard_wire::transport::TransportError;
use pegboard_wire::websocket::client::connect;
use pegboard_wire::{Connection, RequestError};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::support::{call, open, send_request, serve_bytes, transport_error, with_timeout};

/// Starts a server that passes each socket to `script`.
async fn serve_websocket<S, F>(script: S) -> Url
where
    S: Fn(WebSocket) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("ws://{}/", listener.local_addr().unwrap())).unwrap();
    let upgrade = |upgrade: WebSocketUpgrade| async { upgrade.protocols(["mcp"]).on_upgrade(script) };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", get(upgrade))).await });
    url
}

async fn open_connection(url: &Url) -> Connection {
    open(with_timeout(connect(url, HeaderMap::new(), InputLimits::client())).await.unwrap()).0
}

/// Returns the next message of the client, as JSON.
async fn next_message(socket: &mut WebSocket) -> Option<Value> {
    loop {
        match socket.recv().await?.ok()? {
            Message::Text(text) => return serde_json::from_str(&text).ok(),
            Message::Pong(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn answer(request: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": request["params"]}).to_string()
}

#[tokio::test]
async fn text_and_binary_messages_are_received() {
    let url = serve_websocket(|mut socket| async move {
        assert_eq!(socket.protocol(), Some(&HeaderValue::from_static("mcp")));
        while let Some(request) = next_message(&mut socket).await {
            let text = answer(&request);
            let is_even = request["id"].as_i64().unwrap() % 2 == 0;
            let reply = if is_even { Message::text(text) } else { Message::binary(text) };
            for message in [Message::Ping("p".into()), Message::text("junk"), reply] {
                socket.send(message).await.unwrap();
            }
        }
    })
    .await;
    let connection = open_connection(&url).await;
    let mut pending = Vec::new();
    for n in 0..200 {
        pending.push(send_request(&connection, "tools/call", json!({"n": n})).await);
    }
    for (n, request) in pending.into_iter().enumerate() {
        assert_eq!(with_timeout(request.response()).await.unwrap().to_value(), json!({"n": n}));
    }
}

#[tokio::test]
async fn dropping_sends_a_cancellation_and_a_close_frame() {
    let (sender, mut received) = mpsc::unbounded_channel();
    let url = serve_websocket(move |mut socket| {
        let sender = sender.clone();
        async move {
            while let Some(Ok(message)) = socket.recv().await {
                sender.send(message).unwrap();
            }
        }
    })
    .await;
    let connection = open_connection(&url).await;
    let request = send_request(&connection, "tools/call", json!({})).await;
    with_timeout(received.recv()).await.unwrap();
    drop((request, connection));
    let cancelled = with_timeout(received.recv()).await.unwrap();
    let cancelled: Value = serde_json::from_str(cancelled.to_text().unwrap()).unwrap();
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], 1);
    assert!(matches!(with_timeout(received.recv()).await, Some(Message::Close(_))));
}

#[tokio::test]
async fn the_connection_ends_with_the_socket() {
    let url = serve_websocket(|mut socket| async move {
        next_message(&mut socket).await;
        let close = CloseFrame { code: 1000, reason: "bye".into() };
        socket.send(Message::Close(Some(close))).await.unwrap();
    })
    .await;
    let connection = open_connection(&url).await;
    assert_eq!(transport_error(&connection, "ping", json!({})).await, TransportError::Closed);
    assert_eq!(with_timeout(connection.closed()).await, TransportError::Closed);
}

#[tokio::test]
async fn an_oversized_message_fails() {
    let url = serve_websocket(|mut socket| async move {
        next_message(&mut socket).await;
        let _ = socket.send(Message::text("x".repeat(2000))).await;
    })
    .await;
    let limits = InputLimits { max_bytes: 1000, ..InputLimits::client() };
    let (connection, _inbound) = open(connect(&url, HeaderMap::new(), limits).await.unwrap());
    let error = transport_error(&connection, "ping", json!({})).await.to_string();
    assert_eq!(error, "protocol violation: a message exceeds 1000 bytes");
}

#[tokio::test]
async fn headers_are_sent_with_the_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("ws://{}/", listener.local_addr().unwrap())).unwrap();
    let upgrade = |headers: HeaderMap, upgrade: WebSocketUpgrade| async move {
        upgrade.protocols(["mcp"]).on_upgrade(move |mut socket| async move {
            let request = next_message(&mut socket).await.unwrap();
            let who = headers["authorization"].to_str().unwrap();
            let reply = json!({"jsonrpc": "2.0", "id": request["id"], "result": who});
            socket.send(Message::text(reply.to_string())).await.unwrap();
        })
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", get(upgrade))).await });
    let me = HeaderMap::from_iter([("authorization".parse().unwrap(), HeaderValue::from_static("me"))]);
    let (connection, _inbound) = open(connect(&url, me, InputLimits::client()).await.unwrap());
    assert_eq!(call(&connection, "ping", json!({})).await, Ok::<_, RequestError>(json!("me")));
}

#[tokio::test]
async fn a_failed_handshake_reports_the_status() {
    let mut url =
        serve_bytes("HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer\r\ncontent-length: 2\r\n\r\nno")
            .await;
    url.set_scheme("ws").unwrap();
    let error = with_timeout(connect(&url, HeaderMap::new(), InputLimits::client())).await.unwrap_err();
    let authenticate = Some("Bearer".to_owned());
    assert_eq!(error, TransportError::Status { status: 401, body: "no".into(), authenticate });
}

#[tokio::test]
async fn tls_needs_no_preparation() {
    let mut url = serve_bytes("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    url.set_scheme("wss").unwrap();
    let error = with_timeout(connect(&url, HeaderMap::new(), InputLimits::client())).await.unwrap_err();
    assert!(matches!(error, TransportError::Failed { .. }), "{error:?}");
}
