//! Sessions: their headers, the server's own stream, streams that go on after a break, and the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use pegboard_wire::http::client;
use pegboard_wire::http::sse::{SseEvent, encode};
use pegboard_wire::link::TransportError;
use pegboard_wire::{Id, RawJson};
use serde_json::{Value, json};

use super::scene::{
    Seen, accepted, answer, ask, begin, dial, endless, event, events, loss, open, options, result, serve,
    soon, stateless, status,
};

/// The answer to `initialize`.
fn welcome(seen: &Seen) -> Response {
    let mut response = result(seen, &json!({"protocolVersion": "2025-06-18"}));
    response.headers_mut().insert("mcp-session-id", HeaderValue::from_static("s-1"));
    response
}

/// What a server says on its own account.
fn notice(text: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": text}})
}

/// An event with an id that asks the reader back soon.
fn marked(id: &str, value: Option<&Value>) -> Bytes {
    let data = value.map(ToString::to_string).unwrap_or_default();
    let retry = Some(Duration::from_millis(30));
    encode(&SseEvent { id: Some(id.to_owned()), data: data.into(), retry, event: None })
}

#[tokio::test]
async fn a_session_is_named_in_everything_after_its_beginning_until_it_is_ended() {
    let mut site = serve(|seen| async move {
        match seen.what().as_str() {
            "initialize" => welcome(&seen),
            "GET" => status(405, ""),
            "tools/list" => result(&seen, &json!({})),
            _ => accepted(),
        }
    })
    .await;
    let connection = dial(&site.url);
    let me = HeaderMap::from_iter([("authorization".parse().unwrap(), HeaderValue::from_static("me"))]);
    let params = Some(RawJson::of(&json!({"protocolVersion": "2025-11-25"})));
    let exchange = connection.request_with("initialize", params, None, me).await.unwrap();
    soon(exchange.answer()).await.unwrap();
    ask(&connection, "tools/list", json!({})).await.unwrap();
    ask(&connection, "tools/list", stateless()).await.unwrap();
    drop(connection);
    let expected = [
        ("initialize", None, None, Some("me")),
        ("tools/list", Some("s-1"), Some("2025-06-18"), None),
        ("tools/list", None, None, None),
        ("DELETE", Some("s-1"), Some("2025-06-18"), Some("me")),
    ];
    for (what, session, version, who) in expected {
        let seen = site.next().await;
        assert_eq!(seen.what(), what);
        assert_eq!(seen.header("mcp-session-id"), session, "{what}");
        assert_eq!(seen.header("mcp-protocol-version"), version, "{what}");
        assert_eq!(seen.header("authorization"), who, "{what}");
    }
}

#[tokio::test]
async fn a_new_session_begins_without_the_old_one() {
    let mut site = serve(|seen| async move {
        if seen.what() == "initialize" {
            return welcome(&seen);
        }
        let error = json!({"code": -32001, "message": "Session not found"});
        status(404, json!({"jsonrpc": "2.0", "id": null, "error": error}).to_string())
    })
    .await;
    let connection = dial(&site.url);
    for _ in 0..2 {
        ask(&connection, "initialize", json!({})).await.unwrap();
        assert_eq!(site.next().await.header("mcp-session-id"), None);
        // Whatever its body says: the layer above has to see that the session is gone.
        let error = loss(&connection, "ping", json!({})).await;
        assert!(matches!(error, TransportError::Status { status: 404, .. }), "{error:?}");
        assert_eq!(site.next().await.header("mcp-session-id"), Some("s-1"));
    }
}

#[tokio::test]
async fn the_server_speaks_and_asks_on_its_own_stream() {
    let mut site = serve(|seen| async move {
        match seen.what().as_str() {
            "initialize" => welcome(&seen),
            "GET" => {
                let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
                endless(vec![event(&notice("a")), "data: junk\n\n".into(), event(&question)], ())
            }
            _ => accepted(),
        }
    })
    .await;
    let (connection, mut told) = open(client::connect(options(&site.url)).unwrap());
    begin(&connection).await;
    let said = soon(told.recv()).await.unwrap();
    assert_eq!(said, ("notifications/message".into(), json!({"data": "a"}), None));
    assert_eq!(soon(told.recv()).await.unwrap().0, "roots/list");
    for what in ["initialize", "notifications/initialized"] {
        assert_eq!(site.next().await.what(), what);
    }
    let get = site.next().await;
    assert_eq!((get.what().as_str(), get.header("accept")), ("GET", Some("text/event-stream")));
    assert_eq!(get.header("mcp-session-id"), Some("s-1"));
    assert_eq!(get.header("mcp-protocol-version"), Some("2025-06-18"));
    let reply = site.next().await.body;
    assert_eq!(reply, json!({"jsonrpc": "2.0", "id": "q", "result": {"heard": true}}));
}

#[tokio::test]
async fn a_stream_of_a_request_says_which_request_its_questions_are_about() {
    let site = serve(|seen| async move {
        let question = json!({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create"});
        match seen.what().as_str() {
            "tools/call" => events(&[event(&question), event(&answer(&seen, &json!({})))]),
            _ => accepted(),
        }
    })
    .await;
    let (connection, mut told) = open(client::connect(options(&site.url)).unwrap());
    ask(&connection, "tools/call", json!({})).await.unwrap();
    let said = soon(told.recv()).await.unwrap();
    assert_eq!(said, ("elicitation/create".into(), Value::Null, Some(Id::Number(1))));
}

#[tokio::test]
async fn the_servers_own_stream_is_taken_up_again_where_it_broke_off() {
    let n_streams = Arc::new(AtomicUsize::new(0));
    let mut site = serve(move |seen| {
        let n_streams = Arc::clone(&n_streams);
        async move {
            match seen.what().as_str() {
                "initialize" => welcome(&seen),
                "GET" => match n_streams.fetch_add(1, Ordering::SeqCst) {
                    0 => events(&[marked("e-1", Some(&notice("a")))]),
                    1 => events(&[marked("e-2", None)]),
                    2 => endless(vec![event(&notice("b"))], ()),
                    _ => panic!("one stream too many"),
                },
                _ => accepted(),
            }
        }
    })
    .await;
    let (connection, mut told) = open(client::connect(options(&site.url)).unwrap());
    begin(&connection).await;
    for text in ["a", "b"] {
        assert_eq!(soon(told.recv()).await.unwrap().1, json!({"data": text}));
    }
    site.next().await;
    site.next().await;
    for last in [None, Some("e-1"), Some("e-2")] {
        assert_eq!(site.next().await.header("last-event-id"), last);
    }
}

#[tokio::test]
async fn a_server_without_a_stream_of_its_own_is_asked_once() {
    let mut site = serve(|seen| async move {
        match seen.what().as_str() {
            "initialize" => welcome(&seen),
            "GET" => status(405, ""),
            _ => accepted(),
        }
    })
    .await;
    let connection = dial(&site.url);
    begin(&connection).await;
    for what in ["initialize", "notifications/initialized", "GET"] {
        assert_eq!(site.next().await.what(), what);
    }
    assert!(tokio::time::timeout(Duration::from_millis(50), site.seen.recv()).await.is_err());
}

/// A server whose streams of a call break off: the GETs are answered by `later`.
async fn breaking(later: fn(usize, &Seen) -> Response) -> super::scene::Site {
    let n_streams = Arc::new(AtomicUsize::new(0));
    serve(move |seen| {
        let n_streams = Arc::clone(&n_streams);
        async move {
            match seen.what().as_str() {
                "initialize" => welcome(&seen),
                "tools/call" => events(&[marked("e-1", None), event(&notice("a"))]),
                "GET" => later(n_streams.fetch_add(1, Ordering::SeqCst), &seen),
                _ => accepted(),
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_stream_goes_on_after_a_break_until_the_answer() {
    let mut site = breaking(|nth, _| match nth {
        0 => events(&[marked("e-2", Some(&notice("b")))]),
        1 => events(&[marked("e-3", None)]),
        _ => events(&[event(&json!({"jsonrpc": "2.0", "id": 2, "result": {"done": true}}))]),
    })
    .await;
    let connection = dial(&site.url);
    ask(&connection, "initialize", json!({})).await.unwrap();
    assert_eq!(ask(&connection, "tools/call", json!({})).await, Ok(json!({"done": true})));
    site.next().await;
    site.next().await;
    for last in ["e-1", "e-2", "e-3"] {
        let seen = site.next().await;
        assert_eq!(seen.header("last-event-id"), Some(last));
        assert_eq!(seen.header("mcp-session-id"), Some("s-1"));
    }
}

#[tokio::test]
async fn a_break_that_the_server_cannot_mend_loses_the_request() {
    let site = breaking(|_, _| status(404, "gone")).await;
    let error = loss(&dial(&site.url), "tools/call", json!({})).await;
    assert_eq!(error, TransportError::Status { status: 404, body: "gone".into(), authenticate: None });
}

#[tokio::test]
async fn a_stateless_stream_does_not_go_on_after_a_break() {
    let mut site = breaking(|_, _| panic!("there is nothing to go on with")).await;
    let error = loss(&dial(&site.url), "tools/call", stateless()).await.to_string();
    assert_eq!(error, "the peer broke the protocol: a stream ended without an answer");
    site.next().await;
    assert!(site.seen.try_recv().is_err());
}
