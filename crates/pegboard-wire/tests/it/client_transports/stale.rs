//! Servers that close a kept connection just when the next request arrives.

use std::sync::{Arc, Mutex};

use pegboard_wire::RequestError;
use pegboard_wire::transport::TransportError;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::support::{open_connection, send_notification, send_request, stateless, with_timeout};

/// Methods in the order in which the server received them.
type Received = Arc<Mutex<Vec<String>>>;

/// Starts a server that answers the first request on each connection, and closes it when it has read the second.
async fn serve_once_per_connection() -> (Url, Received) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
    let received = Received::default();
    let log = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let log = Arc::clone(&log);
            tokio::spawn(async move {
                if let Some(message) = read(&mut socket, &log).await {
                    answer(&mut socket, &message).await;
                    read(&mut socket, &log).await;
                }
            });
        }
    });
    (url, received)
}

async fn answer(socket: &mut TcpStream, message: &Value) {
    let body = match &message["id"] {
        Value::Null => String::new(),
        id => {
            let result = json!({"supportedVersions": ["2026-07-28"], "capabilities": {}});
            json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
        }
    };
    let status = if body.is_empty() { "202 Accepted" } else { "200 OK" };
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
    socket.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
}

/// Reads a request and returns its message; `None` at the end of the connection.
async fn read(socket: &mut TcpStream, log: &Received) -> Option<Value> {
    let mut text = Vec::new();
    loop {
        socket.read_buf(&mut text).await.ok().filter(|n_read| *n_read > 0)?;
        let end = text.windows(4).position(|window| window == b"\r\n\r\n");
        let body = end.map(|end| &text[end + 4..]).unwrap_or_default();
        let (name, message) = match serde_json::from_slice::<Value>(body) {
            Ok(message) => (message["method"].as_str().unwrap().to_owned(), message),
            Err(_) if end.is_some() && !text.starts_with(b"POST") => {
                (String::from_utf8_lossy(text.split(|byte| *byte == b' ').next().unwrap()).into(), json!({}))
            }
            Err(_) => continue,
        };
        log.lock().unwrap().push(name);
        return Some(message);
    }
}

/// Returns how often the server has received a method.
fn n_received(received: &Received, method: &str) -> usize {
    received.lock().unwrap().iter().filter(|name| *name == method).count()
}

#[tokio::test]
async fn a_safe_request_is_sent_again_on_a_new_connection() {
    let safe = [
        "initialize",
        "server/discover",
        "ping",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "logging/setLevel",
        "tasks/get",
    ];
    for method in safe {
        let (url, received) = serve_once_per_connection().await;
        let connection = open_connection(&url);
        // The first request leaves a connection that is closed with the next one.
        for n_sent in [1, 3] {
            let request = send_request(&connection, method, stateless()).await;
            with_timeout(request.response()).await.unwrap_or_else(|error| panic!("{method}: {error}"));
            assert_eq!(n_received(&received, method), n_sent, "{method}");
        }
    }
}

#[tokio::test]
async fn a_request_that_may_have_run_is_not_sent_again() {
    for method in ["tools/call", "example.org/custom"] {
        let (url, received) = serve_once_per_connection().await;
        let connection = open_connection(&url);
        with_timeout(send_request(&connection, method, stateless()).await.response()).await.unwrap();
        let error = with_timeout(send_request(&connection, method, stateless()).await.response()).await;
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with("the server did not answer"), "{error}");
        assert_eq!(n_received(&received, method), 2);
    }
}

#[tokio::test]
async fn a_notification_is_sent_again() {
    let (url, received) = serve_once_per_connection().await;
    let connection = open_connection(&url);
    with_timeout(send_request(&connection, "ping", stateless()).await.response()).await.unwrap();
    send_notification(&connection, "notifications/roots/list_changed").await;
    // It waits for the notification.
    with_timeout(send_request(&connection, "ping", stateless()).await.response()).await.unwrap();
    assert_eq!(n_received(&received, "notifications/roots/list_changed"), 2);
}

#[tokio::test]
async fn a_request_that_cannot_be_sent_again_may_have_been_received() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}/mcp", listener.local_addr().unwrap())).unwrap();
    let received = Received::default();
    let log = Arc::clone(&received);
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let message = read(&mut socket, &log).await.unwrap();
        answer(&mut socket, &message).await;
        read(&mut socket, &log).await;
        // Before the connection, so that no other one is accepted.
        drop(listener);
        drop(socket);
    });
    let connection = open_connection(&url);
    with_timeout(send_request(&connection, "ping", stateless()).await.response()).await.unwrap();
    let error =
        with_timeout(send_request(&connection, "ping", stateless()).await.response()).await.unwrap_err();
    assert!(matches!(error, RequestError::Transport(TransportError::Failed { .. })), "{error:?}");
    assert!(error.to_string().starts_with("cannot reach the server"), "{error}");
    assert_eq!(n_received(&received, "ping"), 2);
}
