//! Servers that break the rules: one clear error each, at once.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use pegboard_wire::http::client::{self, HttpOptions};
use reqwest::Url;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::scene::{
    accepted, answer, canned, dial, endless, event, events, json, loss, open, options, raw, serve, soon,
    start, stateless, status, typed,
};

/// `{"jsonrpc":"2.0","id":1,"result":{"x":"…"}}` with 100,000 spaces, compressed to 176 bytes.
const BOMB: &str = "\
    H4sIAAAAAAACA+3JsQmDUAAFwFXCq0WSlH8dTREJKl8FQdw9jmFx196RYZnGOncpebfPNPn2Ka8m9bNs\
    vzXlyH7VAwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\
    AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAALitnOcfHHBEK8qGAQA=";

async fn check(url: &Url, expected: &str) {
    let error = loss(&dial(url), "tools/call", stateless()).await.to_string();
    assert_eq!(error, expected);
}

async fn check_small(url: &Url, expected: &str) {
    let link = client::connect(HttpOptions { max_body: 10_000, ..options(url) }).unwrap();
    let (connection, _told) = open(link);
    assert_eq!(loss(&connection, "tools/call", stateless()).await.to_string(), expected);
}

#[tokio::test]
async fn a_request_that_is_only_accepted_has_no_answer() {
    let site = serve(|_| async { accepted() }).await;
    let expected = "the peer broke the protocol: \
        the server took a request with HTTP status 202 Accepted instead of an answer";
    check(&site.url, expected).await;
    let site = serve(|_| async { status(204, "") }).await;
    check(&site.url, &expected.replace("202 Accepted", "204 No Content")).await;
}

#[tokio::test]
async fn an_answer_of_another_type_is_refused() {
    let site = serve(|_| async { typed("text/html", "<p>hello") }).await;
    check(&site.url, "the peer broke the protocol: an answer has the content type text/html").await;
    let site = serve(|_| async { status(200, "") }).await;
    check(&site.url, "the peer broke the protocol: an answer has no content type").await;
}

#[tokio::test]
async fn an_answer_to_another_request_is_no_answer() {
    let site = serve(|_| async { json(&json!({"jsonrpc": "2.0", "id": 77, "result": {}})) }).await;
    let expected =
        "the peer broke the protocol: the server answered another request than the one it was asked";
    check(&site.url, expected).await;
}

#[tokio::test]
async fn a_stream_without_an_answer_is_no_answer() {
    let foreign = || event(&json!({"jsonrpc": "2.0", "id": 77, "result": {}}));
    for n_events in 0..2 {
        let site = serve(move |_| async move { events(&vec![foreign(); n_events]) }).await;
        check(&site.url, "the peer broke the protocol: a stream ended without an answer").await;
    }
}

#[tokio::test]
async fn what_is_no_message_is_an_error_at_once() {
    for body in ["", "{", "hello", "{\"jsonrpc\":\"2.0\",\"id\":1}", "\u{0}"] {
        let site = serve(move |_| async move { typed("application/json", body) }).await;
        let error = loss(&dial(&site.url), "ping", stateless()).await.to_string();
        assert!(error.starts_with("the peer broke the protocol: "), "{body}: {error}");
    }
    // The stream stays open, and still the request ends.
    let site = serve(|_| async { endless(vec!["data: {\"half\n\n".into()], ()) }).await;
    let error = loss(&dial(&site.url), "ping", stateless()).await.to_string();
    assert!(error.starts_with("the peer broke the protocol: Parse error"), "{error}");
}

#[tokio::test]
async fn half_an_answer_is_an_error_at_once() {
    let json = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let halves = [
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{\"jsonrpc\"",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n20\r\n{\"json",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n{\"json",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n20\r\ndata: {",
    ];
    for half in halves {
        let error = loss(&dial(&canned(half).await), "ping", stateless()).await.to_string();
        assert!(error.starts_with("the answer broke off: "), "{half}: {error}");
    }
    for nothing in ["", "HTTP/1.1 200", "SSH-2.0-OpenSSH_9\r\n", json] {
        let error = loss(&dial(&canned(nothing).await), "ping", stateless()).await.to_string();
        assert!(error.starts_with("the server did not answer: "), "{nothing}: {error}");
    }
}

#[tokio::test]
async fn an_answer_may_not_be_larger_than_the_limit() {
    let large = || json!({"x": "x".repeat(20_000)});
    let expected = "the peer broke the protocol: an answer is larger than 10000 bytes";
    let promised = serve(move |seen| async move { json(&answer(&seen, &large())) }).await;
    check_small(&promised.url, expected).await;
    let chunked = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let endless_body = raw(move |mut socket| async move {
        socket.write_all(chunked.as_bytes()).await.unwrap();
        while socket.write_all(b"5\r\nxxxxx\r\n").await.is_ok() {}
    })
    .await;
    check_small(&endless_body, expected).await;
    let zipped = serve(|_| async {
        let mut response = typed("application/json", BASE64_STANDARD.decode(BOMB).unwrap());
        response.headers_mut().insert("content-encoding", HeaderValue::from_static("gzip"));
        response
    })
    .await;
    check_small(&zipped.url, expected).await;
    assert!(soon(start(&dial(&zipped.url), "ping", json!({})).await.answer()).await.is_ok());
}

#[tokio::test]
async fn an_event_may_not_be_larger_than_the_limit() {
    let expected = "the peer broke the protocol: an event is larger than 10000 bytes";
    let site =
        serve(|seen| async move { events(&[event(&answer(&seen, &json!("x".repeat(20_000))))]) }).await;
    check_small(&site.url, expected).await;
    let endless_line = raw(|mut socket| async move {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ";
        socket.write_all(head.as_bytes()).await.unwrap();
        while socket.write_all(b"xxxxxxxx").await.is_ok() {}
    })
    .await;
    check_small(&endless_line, expected).await;
}

#[tokio::test]
async fn a_slow_drip_is_let_go_of_when_nobody_waits_any_more() {
    let (closed, mut is_closed) = mpsc::channel(1);
    let url = raw(move |mut socket| {
        let closed = closed.clone();
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: drip\n\ndata: ";
            socket.write_all(head.as_bytes()).await.unwrap();
            let mut nothing = [0];
            // It ends when the client hangs up.
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
    let connection = dial(&url);
    let exchange = start(&connection, "tools/call", stateless()).await;
    assert!(tokio::time::timeout(Duration::from_millis(50), is_closed.recv()).await.is_err());
    drop(exchange);
    soon(is_closed.recv()).await.unwrap();
}
