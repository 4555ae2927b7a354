//! Sessions: headers, the server's own stream, resumption after a break, and the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use pegboard_wire::http::client;
use pegboard_wire::http::sse::{SseEvent, encode};
use pegboard_wire::transport::TransportError;
use pegboard_wire::{Id, RawJson};
use serde_json::{Value, json};

use super::support::{
    ReceivedRequest, accepted, answer, call, event, events, initialize, open, open_connection,
    open_ended_stream, options, result, serve, stateless, status, transport_error, with_timeout,
};

/// Returns the response to `initialize`.
fn initialize_response(seen: &ReceivedRequest) -> Response {
    let mut response = result(seen, &json!({"protocolVersion": "2025-06-18"}));
    response.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s-1"));
    response
}

/// Returns a notification that the server initiates.
fn notice(text: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": text}})
}

/// Returns an event with an id and a short retry interval.
fn resumable_event(id: &str, value: Option<&Value>) -> Bytes {
    let data = value.map(ToString::to_string).unwrap_or_default();
    let retry = Some(Duration::from_millis(30));
    encode(&SseEvent { id: Some(id.to_owned()), data: data.into(), retry, event: None })
}

#[tokio::test]
async fn the_session_id_is_sent_with_every_request_until_delete() {
    let mut server = serve(|seen| async move {
        match seen.method_name().as_str() {
            "initialize" => initialize_response(&seen),
            "GET" => status(405, ""),
            "tools/list" => result(&seen, &json!({})),
            _ => accepted(),
        }
    })
    .await;
    let connection = open_connection(&server.url);
    let me = HeaderMap::from_iter([("authorization".parse().unwrap(), HeaderValue::from_static("me"))]);
    let params = Some(RawJson::of(&json!({"protocolVersion": "2025-11-25"})));
    let request = connection.request_with("initialize", params, None, me).await.unwrap();
    with_timeout(request.response()).await.unwrap();
    call(&connection, "tools/list", json!({})).await.unwrap();
    call(&connection, "tools/list", stateless()).await.unwrap();
    drop(connection);
    let expected = [
        ("initialize", None, None, Some("me")),
        ("tools/list", Some("s-1"), Some("2025-06-18"), None),
        ("tools/list", None, None, None),
        ("DELETE", Some("s-1"), Some("2025-06-18"), Some("me")),
    ];
    for (what, session, version, who) in expected {
        let seen = server.next().await;
        assert_eq!(seen.method_name(), what);
        assert_eq!(seen.header("mcp-session-id"), session, "{what}");
        assert_eq!(seen.header("mcp-protocol-version"), version, "{what}");
        assert_eq!(seen.header("authorization"), who, "{what}");
    }
}

#[tokio::test]
async fn a_new_session_starts_without_the_old_id() {
    let mut server = serve(|seen| async move {
        if seen.method_name() == "initialize" {
            return initialize_response(&seen);
        }
        let error = json!({"code": -32001, "message": "Session not found"});
        status(404, json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string())
    })
    .await;
    let connection = open_connection(&server.url);
    for _ in 0..2 {
        call(&connection, "initialize", json!({})).await.unwrap();
        assert_eq!(server.next().await.header("mcp-session-id"), None);
        // Whatever the body says: the layer above must see that the session is gone.
        let error = transport_error(&connection, "ping", json!({})).await;
        assert!(matches!(error, TransportError::Status { status: 404, .. }), "{error:?}");
        assert_eq!(server.next().await.header("mcp-session-id"), Some("s-1"));
    }
}

#[tokio::test]
async fn the_server_sends_messages_on_its_own_stream() {
    let mut server = serve(|seen| async move {
        match seen.method_name().as_str() {
            "initialize" => initialize_response(&seen),
            "GET" => {
                let request = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
                open_ended_stream(vec![event(&notice("a")), "data: junk\n\n".into(), event(&request)], ())
            }
            _ => accepted(),
        }
    })
    .await;
    let (connection, mut inbound) = open(client::connect(options(&server.url)).unwrap());
    initialize(&connection).await;
    let message = with_timeout(inbound.recv()).await.unwrap();
    assert_eq!(message, ("notifications/message".into(), json!({"data": "a"}), None));
    assert_eq!(with_timeout(inbound.recv()).await.unwrap().0, "roots/list");
    for what in ["initialize", "notifications/initialized"] {
        assert_eq!(server.next().await.method_name(), what);
    }
    let get = server.next().await;
    assert_eq!((get.method_name().as_str(), get.header("accept")), ("GET", Some("text/event-stream")));
    assert_eq!(get.header("mcp-session-id"), Some("s-1"));
    assert_eq!(get.header("mcp-protocol-version"), Some("2025-06-18"));
    let reply = server.next().await.body;
    assert_eq!(reply, json!({"jsonrpc": "2.0", "id": "q", "result": {"heard": true}}));
}

#[tokio::test]
async fn requests_on_a_response_stream_carry_their_related_request() {
    let server = serve(|seen| async move {
        let request = json!({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create"});
        match seen.method_name().as_str() {
            "tools/call" => events(&[event(&request), event(&answer(&seen, &json!({})))]),
            _ => accepted(),
        }
    })
    .await;
    let (connection, mut inbound) = open(client::connect(options(&server.url)).unwrap());
    call(&connection, "tools/call", json!({})).await.unwrap();
    let message = with_timeout(inbound.recv()).await.unwrap();
    assert_eq!(message, ("elicitation/create".into(), Value::Null, Some(Id::Number(1))));
}

#[tokio::test]
async fn the_servers_own_stream_resumes_after_a_break() {
    let n_streams = Arc::new(AtomicUsize::new(0));
    let mut server = serve(move |seen| {
        let n_streams = Arc::clone(&n_streams);
        async move {
            match seen.method_name().as_str() {
                "initialize" => initialize_response(&seen),
                "GET" => match n_streams.fetch_add(1, Ordering::SeqCst) {
                    0 => events(&[resumable_event("e-1", Some(&notice("a")))]),
                    1 => events(&[resumable_event("e-2", None)]),
                    2 => open_ended_stream(vec![event(&notice("b"))], ()),
                    _ => panic!("one stream too many"),
                },
                _ => accepted(),
            }
        }
    })
    .await;
    let (connection, mut inbound) = open(client::connect(options(&server.url)).unwrap());
    initialize(&connection).await;
    for text in ["a", "b"] {
        assert_eq!(with_timeout(inbound.recv()).await.unwrap().1, json!({"data": text}));
    }
    server.next().await;
    server.next().await;
    for last in [None, Some("e-1"), Some("e-2")] {
        assert_eq!(server.next().await.header("last-event-id"), last);
    }
}

#[tokio::test]
async fn a_server_without_its_own_stream_is_not_polled() {
    let mut server = serve(|seen| async move {
        match seen.method_name().as_str() {
            "initialize" => initialize_response(&seen),
            "GET" => status(405, ""),
            _ => accepted(),
        }
    })
    .await;
    let connection = open_connection(&server.url);
    initialize(&connection).await;
    for what in ["initialize", "notifications/initialized", "GET"] {
        assert_eq!(server.next().await.method_name(), what);
    }
    assert!(tokio::time::timeout(Duration::from_millis(50), server.seen.recv()).await.is_err());
}

/// A server whose call streams break off: GETs are answered by `later`.
async fn serve_breaking_streams(
    later: impl Fn(usize, &ReceivedRequest) -> Response + Send + Sync + 'static,
) -> super::support::ScriptedServer {
    let (later, n_streams) = (Arc::new(later), Arc::new(AtomicUsize::new(0)));
    serve(move |seen| {
        let (later, n_streams) = (Arc::clone(&later), Arc::clone(&n_streams));
        async move {
            match seen.method_name().as_str() {
                "initialize" => initialize_response(&seen),
                "tools/call" => events(&[resumable_event("e-1", None), event(&notice("a"))]),
                "GET" => later(n_streams.fetch_add(1, Ordering::SeqCst), &seen),
                _ => accepted(),
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_broken_stream_resumes_until_the_response() {
    let mut server = serve_breaking_streams(|nth, _| match nth {
        0 => events(&[resumable_event("e-2", Some(&notice("b")))]),
        1 => events(&[resumable_event("e-3", None)]),
        _ => events(&[event(&json!({"jsonrpc": "2.0", "id": 2, "result": {"done": true}}))]),
    })
    .await;
    let connection = open_connection(&server.url);
    call(&connection, "initialize", json!({})).await.unwrap();
    assert_eq!(call(&connection, "tools/call", json!({})).await, Ok(json!({"done": true})));
    server.next().await;
    server.next().await;
    for last in ["e-1", "e-2", "e-3"] {
        let seen = server.next().await;
        assert_eq!(seen.header("last-event-id"), Some(last));
        assert_eq!(seen.header("mcp-session-id"), Some("s-1"));
    }
}

#[tokio::test]
async fn a_stream_that_cannot_resume_fails_the_request() {
    for code in [400, 401, 403, 404, 405, 410, 429] {
        let server = serve_breaking_streams(move |_, _| status(code, "gone")).await;
        let error = transport_error(&open_connection(&server.url), "tools/call", json!({})).await;
        // Not the status of the request, which was accepted and may have run.
        let what = format!("the event stream broke, and resuming it was answered with HTTP status {code}");
        assert_eq!(error, TransportError::Failed { what });
    }
}

#[tokio::test]
async fn a_stateless_stream_does_not_resume() {
    let mut server = serve_breaking_streams(|_, _| panic!("a stateless stream is not resumed")).await;
    let error = transport_error(&open_connection(&server.url), "tools/call", stateless()).await.to_string();
    assert_eq!(error, "protocol violation: the event stream ended without a response");
    server.next().await;
    assert!(server.seen.try_recv().is_err());
}
