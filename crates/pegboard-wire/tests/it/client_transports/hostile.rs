//! Servers that violate the protocol cause one clear error each, at once.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use pegboard_wire::http::client::{self, HttpOptions};
use reqwest::Url;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::support::{
    accepted, answer, event, events, json, open, open_connection, open_ended_stream, options,
    response_of_type, send_request, serve, serve_bytes, serve_socket, start_request, stateless, status,
    transport_error, with_timeout,
};

/// `{"jsonrpc":"2.0","id":1,"result":{"x":"…"}}` with 100,000 spaces, compressed to 176 bytes.
const BOMB: &str = "\
    H4sIAAAAAAACA+3JsQmDUAAFwFXCq0WSlH8dTREJKl8FQdw9jmFx196RYZnGOncpebfPNPn2Ka8m9bNs\
    vzXlyH7VAwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\
    AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAALitnOcfHHBEK8qGAQA=";

async fn check(url: &Url, expected: &str) {
    let error = transport_error(&open_connection(url), "tools/call", stateless()).await.to_string();
    assert_eq!(error, expected);
}

async fn check_small(url: &Url, expected: &str) {
    let transport = client::connect(HttpOptions { max_body: 10_000, ..options(url) }).unwrap();
    let (connection, _inbound) = open(transport);
    assert_eq!(transport_error(&connection, "tools/call", stateless()).await.to_string(), expected);
}

#[tokio::test]
async fn a_request_that_is_only_accepted_fails() {
    let server = serve(|_| async { accepted() }).await;
    let expected = "protocol violation: \
        the server answered a request with HTTP status 202 Accepted and no response";
    check(&server.url, expected).await;
    let server = serve(|_| async { status(204, "") }).await;
    check(&server.url, &expected.replace("202 Accepted", "204 No Content")).await;
}

#[tokio::test]
async fn an_unexpected_content_type_fails() {
    let server = serve(|_| async { response_of_type("text/html", "<p>hello") }).await;
    check(&server.url, "protocol violation: unexpected content type text/html").await;
    let server = serve(|_| async { status(200, "") }).await;
    check(&server.url, "protocol violation: the response has no content type").await;
}

#[tokio::test]
async fn a_response_to_another_request_fails() {
    let server = serve(|_| async { json(&json!({"jsonrpc": "2.0", "id": 77, "result": {}})) }).await;
    let expected = "protocol violation: the response has the id of another request";
    check(&server.url, expected).await;
}

#[tokio::test]
async fn a_stream_without_a_response_fails() {
    let foreign = || event(&json!({"jsonrpc": "2.0", "id": 77, "result": {}}));
    for n_events in 0..2 {
        let server = serve(move |_| async move { events(&vec![foreign(); n_events]) }).await;
        check(&server.url, "protocol violation: the event stream ended without a response").await;
    }
}

#[tokio::test]
async fn malformed_messages_fail_at_once() {
    for body in ["", "{", "hello", "{\"jsonrpc\":\"2.0\",\"id\":1}", "\u{0}"] {
        let server = serve(move |_| async move { response_of_type("application/json", body) }).await;
        let error = transport_error(&open_connection(&server.url), "ping", stateless()).await.to_string();
        assert!(error.starts_with("protocol violation: "), "{body}: {error}");
    }
    // The stream stays open, but the request still ends.
    let server = serve(|_| async { open_ended_stream(vec!["data: {\"half\n\n".into()], ()) }).await;
    let error = transport_error(&open_connection(&server.url), "ping", stateless()).await.to_string();
    assert!(error.starts_with("protocol violation: Parse error"), "{error}");
}

#[tokio::test]
async fn a_truncated_response_fails_at_once() {
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let halves = [
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"jsonrpc\"",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n20\r\n{\"json",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n{\"json",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n20\r\ndata: {",
    ];
    for half in halves {
        let error = transport_error(&open_connection(&serve_bytes(half).await), "ping", stateless())
            .await
            .to_string();
        assert!(error.starts_with("the response was cut off: "), "{half}: {error}");
    }
    for nothing in ["", "HTTP/1.1 200", "SSH-2.0-OpenSSH_9\r\n", json] {
        let error = transport_error(&open_connection(&serve_bytes(nothing).await), "ping", stateless())
            .await
            .to_string();
        assert!(error.starts_with("the server did not answer: "), "{nothing}: {error}");
    }
}

#[tokio::test]
async fn an_oversized_response_fails() {
    let large = || json!({"x": "x".repeat(20_000)});
    let expected = "protocol violation: the response exceeds 10000 bytes";
    let promised = serve(move |seen| async move { json(&answer(&seen, &large())) }).await;
    check_small(&promised.url, expected).await;
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let endless_body = serve_socket(move |mut socket| async move {
        socket.write_all(chunked.as_bytes()).await.unwrap();
        while socket.write_all(b"5\r\nxxxxx\r\n").await.is_ok() {}
    })
    .await;
    check_small(&endless_body, expected).await;
    let zipped = serve(|_| async {
        let mut response = response_of_type("application/json", BASE64_STANDARD.decode(BOMB).unwrap());
        response.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
        response
    })
    .await;
    check_small(&zipped.url, expected).await;
    assert!(
        with_timeout(send_request(&open_connection(&zipped.url), "ping", json!({})).await.response())
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn an_oversized_event_fails() {
    let expected = "protocol violation: the response exceeds 10000 bytes";
    let server =
        serve(|seen| async move { events(&[event(&answer(&seen, &json!("x".repeat(20_000))))]) }).await;
    check_small(&server.url, expected).await;
    let endless_line = serve_socket(|mut socket| async move {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ";
        socket.write_all(head.as_bytes()).await.unwrap();
        while socket.write_all(b"xxxxxxxx").await.is_ok() {}
    })
    .await;
    check_small(&endless_line, expected).await;
}

#[tokio::test]
async fn an_oversized_notification_does_not_fail_the_request() {
    let large = "x".repeat(20_000);
    let messages = [
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": large}}),
        // Members in another order.
        json!({"params": {"progressToken": 1, "progress": 1, "message": large}, "method": "notifications/progress"}),
    ];
    for message in messages {
        let server = serve(move |seen| {
            let stream = [event(&message), event(&answer(&seen, &json!("small")))];
            async move { events(&stream) }
        })
        .await;
        let small = HttpOptions { max_body: 10_000, ..options(&server.url) };
        let (connection, _inbound) = open(client::connect(small).unwrap());
        let response =
            with_timeout(send_request(&connection, "tools/call", json!({})).await.response()).await;
        assert_eq!(response.unwrap().as_str(), "\"small\"");
    }
    // A request that cannot be answered fails the call, which would wait for it.
    let server = serve(|_| async {
        let params = json!({"messages": ["x".repeat(20_000)]});
        let request =
            json!({"id": 1, "jsonrpc": "2.0", "method": "sampling/createMessage", "params": params});
        open_ended_stream(vec![event(&request)], ())
    })
    .await;
    check_small(&server.url, "protocol violation: the response exceeds 10000 bytes").await;
}

#[tokio::test]
async fn a_slow_stream_is_closed_when_the_request_is_dropped() {
    let (closed, mut is_closed) = mpsc::channel(1);
    let url = serve_socket(move |mut socket| {
        let closed = closed.clone();
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: drip\n\ndata: ";
            socket.write_all(head.as_bytes()).await.unwrap();
            let mut nothing = [0];
            // The loop ends when the client closes the connection.
            while let Err(_elapsed) =
                tokio::time::timeout(Duration::from_millis(2), socket.read(&mut nothing)).await
            {
                if socket.write_all(b"x").await.is_err() {
                    break;
                }
            }
            closed.send(()).await.unwrap();
        }
    })
    .await;
    let connection = open_connection(&url);
    let request = start_request(&connection, "tools/call", stateless()).await;
    assert!(tokio::time::timeout(Duration::from_millis(50), is_closed.recv()).await.is_err());
    drop(request);
    with_timeout(is_closed.recv()).await.unwrap();
}
