//! Forms of responses, and error responses.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use pegboard_wire::http::client::{self, HttpOptions};
use pegboard_wire::transport::TransportError;
use pegboard_wire::{RawJson, RequestError, ResponseEvent};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::Barrier;

use super::support::{
    accepted, answer, call, event, events, initialize, json, open, open_connection, options,
    response_of_type, result, send_notification, send_request, serve, serve_socket, start_request, stateless,
    status, transport_error, with_timeout,
};

#[tokio::test]
async fn a_json_response_reaches_its_request() {
    let server = serve(|seen| async move { result(&seen, &json!({"you": seen.body["params"]})) }).await;
    let answer = call(&open_connection(&server.url), "tools/call", json!({"a": 1})).await;
    assert_eq!(answer, Ok(json!({"you": {"a": 1}})));
}

#[tokio::test]
async fn progress_arrives_in_order_before_the_response() {
    let server = serve(|seen| async move {
        let token = &seen.body["params"]["_meta"]["progressToken"];
        let progress = |n: usize| {
            let params = json!({"progressToken": token, "progress": n});
            event(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        };
        let log =
            event(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}}));
        let last = event(&answer(&seen, &json!({"done": true})));
        events(&[": hello\n\n".into(), progress(1), progress(2), log, progress(3), last])
    })
    .await;
    let connection = open_connection(&server.url);
    let mut request =
        send_request(&connection, "tools/call", json!({"_meta": {"progressToken": "mine"}})).await;
    let mut notifications = Vec::new();
    loop {
        match with_timeout(request.next_event()).await {
            ResponseEvent::Notification(notification) => {
                notifications.push(notification.params.unwrap().to_value());
            }
            ResponseEvent::End(end) => break assert_eq!(end.unwrap().to_value(), json!({"done": true})),
        }
    }
    let progress = |n: usize| json!({"progressToken": "mine", "progress": n});
    assert_eq!(notifications, [progress(1), progress(2), json!({"data": "x"}), progress(3)]);
}

#[tokio::test]
async fn a_batch_is_split_into_messages() {
    let server = serve(|seen| async move {
        json(&json!([
            {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}},
            answer(&seen, &json!({"n": 2})),
        ]))
    })
    .await;
    let connection = open_connection(&server.url);
    let mut request = send_request(&connection, "ping", json!({})).await;
    assert!(matches!(with_timeout(request.next_event()).await, ResponseEvent::Notification(_)));
    assert!(matches!(with_timeout(request.next_event()).await, ResponseEvent::End(Ok(_))));
}

#[tokio::test]
async fn request_headers_override_the_fixed_ones() {
    let mut server = serve(|seen| async move { result(&seen, &json!({})) }).await;
    let fixed = HeaderMap::from_iter([
        ("authorization".parse().unwrap(), HeaderValue::from_static("everybody")),
        ("x-fixed".parse().unwrap(), HeaderValue::from_static("yes")),
    ]);
    let transport = client::connect(HttpOptions { headers: fixed, ..options(&server.url) }).unwrap();
    let (connection, _inbound) = open(transport);
    let own = HeaderMap::from_iter([
        ("authorization".parse().unwrap(), HeaderValue::from_static("me")),
        ("mcp-protocol-version".parse().unwrap(), HeaderValue::from_static("2026-07-28")),
        ("mcp-method".parse().unwrap(), HeaderValue::from_static("tools/call")),
    ]);
    let params = Some(RawJson::of(&stateless()));
    let request = connection.request_with("tools/call", params, None, own).await.unwrap();
    with_timeout(request.response()).await.unwrap();
    let seen = server.next().await;
    let expected = [
        ("content-type", Some("application/json")),
        ("accept", Some("application/json, text/event-stream")),
        ("authorization", Some("me")),
        ("x-fixed", Some("yes")),
        ("mcp-protocol-version", Some("2026-07-28")),
        ("mcp-method", Some("tools/call")),
        ("mcp-session-id", None),
    ];
    for (name, value) in expected {
        assert_eq!(seen.header(name), value, "{name}");
    }
}

#[tokio::test]
async fn two_hundred_requests_run_concurrently() {
    let barrier = Arc::new(Barrier::new(200));
    let server = serve(move |seen| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            result(&seen, &seen.body["params"])
        }
    })
    .await;
    let connection = open_connection(&server.url);
    let mut pending = Vec::new();
    for n in 0..200 {
        pending.push(start_request(&connection, "tools/call", json!({"n": n})).await);
    }
    for (n, request) in pending.into_iter().enumerate() {
        assert_eq!(with_timeout(request).await.unwrap().unwrap().to_value(), json!({"n": n}));
    }
    assert_eq!(connection.n_pending(), 0);
}

#[tokio::test]
async fn a_connection_is_reused_after_a_stream() {
    let mut server = serve(|seen| async move { events(&[event(&answer(&seen, &json!({})))]) }).await;
    let connection = open_connection(&server.url);
    let mut last = None;
    for _ in 0..100 {
        call(&connection, "ping", json!({})).await.unwrap();
        let peer = Some(server.next().await.peer);
        if peer == last {
            return;
        }
        last = peer;
        // The stream ends right after its response, which frees its connection.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("every request had a connection of its own");
}

#[tokio::test]
async fn an_error_status_with_a_json_rpc_error_is_a_response() {
    let error = json!({"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}});
    for id in [json!(1), Value::Null] {
        let body = json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
        let server = serve(move |_| {
            let response = status(400, body.clone());
            async { response }
        })
        .await;
        match call(&open_connection(&server.url), "server/discover", stateless()).await {
            Err(RequestError::Rpc(error)) => assert_eq!(error.code, -32022),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn an_error_status_with_another_body_is_a_transport_error() {
    let other_id = r#"{"jsonrpc":"2.0","id":77,"error":{"code":-1,"message":"no"}}"#;
    for (code, body) in [(404, "not here"), (405, ""), (500, "{}"), (400, other_id), (429, "[]")] {
        let server = serve(move |_| async move { status(code, body) }).await;
        let expected = TransportError::Status { status: code, body: body.into(), authenticate: None };
        assert_eq!(transport_error(&open_connection(&server.url), "ping", json!({})).await, expected);
    }
}

#[tokio::test]
async fn the_body_of_a_long_error_response_is_truncated() {
    let server = serve(|_| async { status(500, "x".repeat(100_000)) }).await;
    match transport_error(&open_connection(&server.url), "ping", json!({})).await {
        TransportError::Status { body, .. } => assert_eq!(body.len(), 64 * 1024),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_authentication_challenge_is_reported_for_any_body() {
    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"who are you"}}"#;
    for code in [401, 403] {
        let server = serve(move |_| async move {
            let mut response = status(code, body);
            response.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer scope=\"a\""));
            response
        })
        .await;
        let authenticate = Some("Bearer scope=\"a\"".to_owned());
        let expected = TransportError::Status { status: code, body: body.into(), authenticate };
        assert_eq!(transport_error(&open_connection(&server.url), "ping", json!({})).await, expected);
    }
}

#[tokio::test]
async fn a_redirect_is_followed_once_and_only_within_the_origin() {
    let elsewhere = serve(|seen| async move { result(&seen, &json!({"at": "elsewhere"})) }).await;
    let away = elsewhere.url.to_string();
    for (code, to, expected) in [
        (307, "/there", Ok(json!({"at": "/there"}))),
        (308, "/there", Ok(json!({"at": "/there"}))),
        (307, "/mcp", Err(307)),
        (302, "/there", Err(302)),
        (307, away.as_str(), Err(307)),
    ] {
        let to: HeaderValue = to.parse().unwrap();
        let server = serve(move |seen| {
            let to = to.clone();
            async move {
                if seen.path == "/there" {
                    return result(&seen, &json!({"at": seen.path}));
                }
                let mut response = status(code, "");
                response.headers_mut().insert("location", to);
                response
            }
        })
        .await;
        let got = match call(&open_connection(&server.url), "ping", json!({})).await {
            Err(RequestError::Transport(TransportError::Status { status, .. })) => Err(status),
            other => Ok(other.unwrap()),
        };
        assert_eq!(got, expected);
    }
}

#[tokio::test]
async fn a_notification_is_accepted_before_the_next_message_is_sent() {
    let (release, held) = tokio::sync::watch::channel(false);
    let mut server = serve(move |seen| {
        let mut held = held.clone();
        async move {
            if seen.body["id"].is_null() {
                held.wait_for(|is_released| *is_released).await.unwrap();
                return accepted();
            }
            result(&seen, &json!({}))
        }
    })
    .await;
    let connection = open_connection(&server.url);
    send_notification(&connection, "notifications/first").await;
    send_notification(&connection, "notifications/second").await;
    let request = send_request(&connection, "tools/list", json!({})).await;
    assert_eq!(server.next().await.method_name(), "notifications/first");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(server.seen.try_recv().is_err());
    release.send_replace(true);
    with_timeout(request.response()).await.unwrap();
    assert_eq!(server.next().await.method_name(), "notifications/second");
    assert_eq!(server.next().await.method_name(), "tools/list");
}

#[tokio::test]
async fn a_rejected_notification_does_not_block_later_messages() {
    let server = serve(|seen| async move {
        if seen.body["id"].is_null() { status(500, "") } else { result(&seen, &json!({})) }
    })
    .await;
    let connection = open_connection(&server.url);
    send_notification(&connection, "notifications/initialized").await;
    call(&connection, "ping", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_stream_in_response_to_a_notification_does_not_block_later_messages() {
    let server = serve(|seen| async move {
        match seen.method_name().as_str() {
            "GET" => status(405, ""),
            "initialize" | "ping" => result(&seen, &json!({})),
            _ => super::support::open_ended_stream(vec![": hello\n\n".into()], ()),
        }
    })
    .await;
    let connection = open_connection(&server.url);
    initialize(&connection).await;
    call(&connection, "ping", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_content_type_may_have_parameters() {
    let server = serve(|seen| async move {
        response_of_type("Application/JSON; charset=utf-8", answer(&seen, &json!({})).to_string())
    })
    .await;
    call(&open_connection(&server.url), "ping", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_replaced() {
    for after in ["", "connection: close\r\n"] {
        let url = serve_socket(move |mut socket| async move {
            let body = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-1,"message":"no"}}"#;
            let head = format!(
                "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n{after}content-length: {}\r\n\r\n",
                body.len()
            );
            socket.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        })
        .await;
        let connection = open_connection(&url);
        for _ in 0..20 {
            // Every call has a connection of its own, whether the server announces the end of the last or not.
            let error = transport_error(&connection, "tools/call", json!({})).await;
            assert!(matches!(error, TransportError::Status { status: 400, .. }), "{error}");
        }
    }
}
