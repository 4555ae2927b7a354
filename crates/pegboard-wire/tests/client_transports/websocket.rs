//! WebSocket.

use std::future::Future;

use axum::Router;
use axum::extract::WebSocketUpgrade;
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use axum::routing::get;
use http::{HeaderMap, HeaderValue};
use pegboard_wire::link::InputLimits;
use pegboard_wire::link::TransportError;
use pegboard_wire::websocket::client::connect;
use pegboard_wire::{Connection, Failure};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::scene::{ask, canned, loss, open, soon, start};

/// A server that does with each socket what `script` says.
async fn sockets<S, F>(script: S) -> Url
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

async fn dial(url: &Url) -> Connection {
    open(soon(connect(url, HeaderMap::new(), InputLimits::client())).await.unwrap()).0
}

/// The next message of the client, as JSON.
async fn hear(socket: &mut WebSocket) -> Option<Value> {
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
async fn messages_go_both_ways_as_text_and_come_as_binary_too() {
    let url = sockets(|mut socket| async move {
        assert_eq!(socket.protocol(), Some(&HeaderValue::from_static("mcp")));
        while let Some(request) = hear(&mut socket).await {
            let text = answer(&request);
            let is_even = request["id"].as_i64().unwrap() % 2 == 0;
            let reply = if is_even { Message::text(text) } else { Message::binary(text) };
            for message in [Message::Ping("p".into()), Message::text("junk"), reply] {
                socket.send(message).await.unwrap();
            }
        }
    })
    .await;
    let connection = dial(&url).await;
    let mut exchanges = Vec::new();
    for n in 0..200 {
        exchanges.push(start(&connection, "tools/call", json!({"n": n})).await);
    }
    for (n, exchange) in exchanges.into_iter().enumerate() {
        assert_eq!(soon(exchange.answer()).await.unwrap().to_value(), json!({"n": n}));
    }
}

#[tokio::test]
async fn a_request_is_cancelled_by_a_notification_and_the_end_is_a_close() {
    let (heard, mut said) = mpsc::unbounded_channel();
    let url = sockets(move |mut socket| {
        let heard = heard.clone();
        async move {
            while let Some(Ok(message)) = socket.recv().await {
                heard.send(message).unwrap();
            }
        }
    })
    .await;
    let connection = dial(&url).await;
    let exchange = start(&connection, "tools/call", json!({})).await;
    soon(said.recv()).await.unwrap();
    drop((exchange, connection));
    let cancelled = soon(said.recv()).await.unwrap();
    let cancelled: Value = serde_json::from_str(cancelled.to_text().unwrap()).unwrap();
    assert_eq!(cancelled["method"], "notifications/cancelled");
    assert_eq!(cancelled["params"]["requestId"], 1);
    assert!(matches!(soon(said.recv()).await, Some(Message::Close(_))));
}

#[tokio::test]
async fn the_connection_ends_with_the_socket() {
    let url = sockets(|mut socket| async move {
        hear(&mut socket).await;
        let close = CloseFrame { code: 1000, reason: "bye".into() };
        socket.send(Message::Close(Some(close))).await.unwrap();
    })
    .await;
    let connection = dial(&url).await;
    assert_eq!(loss(&connection, "ping", json!({})).await, TransportError::Closed);
    assert_eq!(soon(connection.closed()).await, TransportError::Closed);
}

#[tokio::test]
async fn a_message_may_not_be_larger_than_the_limit() {
    let url = sockets(|mut socket| async move {
        hear(&mut socket).await;
        let _ = socket.send(Message::text("x".repeat(2000))).await;
    })
    .await;
    let limits = InputLimits { max_bytes: 1000, ..InputLimits::client() };
    let (connection, _told) = open(connect(&url, HeaderMap::new(), limits).await.unwrap());
    let error = loss(&connection, "ping", json!({})).await.to_string();
    assert_eq!(error, "the peer broke the protocol: a message is larger than 1000 bytes");
}

#[tokio::test]
async fn headers_go_with_the_handshake() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("ws://{}/", listener.local_addr().unwrap())).unwrap();
    let upgrade = |headers: HeaderMap, upgrade: WebSocketUpgrade| async move {
        upgrade.protocols(["mcp"]).on_upgrade(move |mut socket| async move {
            let request = hear(&mut socket).await.unwrap();
            let who = headers["authorization"].to_str().unwrap();
            let reply = json!({"jsonrpc": "2.0", "id": request["id"], "result": who});
            socket.send(Message::text(reply.to_string())).await.unwrap();
        })
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/", get(upgrade))).await });
    let me = HeaderMap::from_iter([("authorization".parse().unwrap(), HeaderValue::from_static("me"))]);
    let (connection, _told) = open(connect(&url, me, InputLimits::client()).await.unwrap());
    assert_eq!(ask(&connection, "ping", json!({})).await, Ok::<_, Failure>(json!("me")));
}

#[tokio::test]
async fn a_server_that_does_not_shake_hands_says_why() {
    let mut url =
        canned("HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer\r\ncontent-length: 2\r\n\r\nno").await;
    url.set_scheme("ws").unwrap();
    let error = soon(connect(&url, HeaderMap::new(), InputLimits::client())).await.unwrap_err();
    let authenticate = Some("Bearer".to_owned());
    assert_eq!(error, TransportError::Status { status: 401, body: "no".into(), authenticate });
}

#[tokio::test]
async fn tls_needs_no_preparation() {
    let mut url = canned("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    url.set_scheme("wss").unwrap();
    let error = soon(connect(&url, HeaderMap::new(), InputLimits::client())).await.unwrap_err();
    assert!(matches!(error, TransportError::Failed { .. }), "{error:?}");
}
