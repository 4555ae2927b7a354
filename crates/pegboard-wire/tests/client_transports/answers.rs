//! What an answer may look like, and what a refusal is.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use pegboard_wire::http::client::{self, HttpOptions};
use pegboard_wire::link::TransportError;
use pegboard_wire::{Failure, Happening, RawJson};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::scene::{
    accepted, answer, ask, begin, dial, event, events, json, loss, open, options, result, serve, soon, start,
    stateless, status, tell, typed,
};

#[tokio::test]
async fn a_json_answer_reaches_its_request() {
    let site = serve(|seen| async move { result(&seen, &json!({"you": seen.body["params"]})) }).await;
    let answer = ask(&dial(&site.url), "tools/call", json!({"a": 1})).await;
    assert_eq!(answer, Ok(json!({"you": {"a": 1}})));
}

#[tokio::test]
async fn progress_comes_in_order_before_the_answer() {
    let site = serve(|seen| async move {
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
    let connection = dial(&site.url);
    let mut exchange = start(&connection, "tools/call", json!({"_meta": {"progressToken": "mine"}})).await;
    let mut said = Vec::new();
    loop {
        match soon(exchange.next()).await {
            Happening::Notice(notice) => said.push(notice.params.unwrap().to_value()),
            Happening::End(end) => break assert_eq!(end.unwrap().to_value(), json!({"done": true})),
        }
    }
    let progress = |n: usize| json!({"progressToken": "mine", "progress": n});
    assert_eq!(said, [progress(1), progress(2), json!({"data": "x"}), progress(3)]);
}

#[tokio::test]
async fn a_batch_is_taken_apart() {
    let site = serve(|seen| async move {
        json(&json!([
            {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": 1}},
            answer(&seen, &json!({"n": 2})),
        ]))
    })
    .await;
    let connection = dial(&site.url);
    let mut exchange = start(&connection, "ping", json!({})).await;
    assert!(matches!(soon(exchange.next()).await, Happening::Notice(_)));
    assert!(matches!(soon(exchange.next()).await, Happening::End(Ok(_))));
}

#[tokio::test]
async fn the_headers_of_a_letter_win_over_the_fixed_ones() {
    let mut site = serve(|seen| async move { result(&seen, &json!({})) }).await;
    let fixed = HeaderMap::from_iter([
        ("authorization".parse().unwrap(), HeaderValue::from_static("everybody")),
        ("x-fixed".parse().unwrap(), HeaderValue::from_static("yes")),
    ]);
    let link = client::connect(HttpOptions { headers: fixed, ..options(&site.url) }).unwrap();
    let (connection, _told) = open(link);
    let own = HeaderMap::from_iter([
        ("authorization".parse().unwrap(), HeaderValue::from_static("me")),
        ("mcp-protocol-version".parse().unwrap(), HeaderValue::from_static("2026-07-28")),
        ("mcp-method".parse().unwrap(), HeaderValue::from_static("tools/call")),
    ]);
    let params = Some(RawJson::of(&stateless()));
    let exchange = connection.request_with("tools/call", params, None, own).await.unwrap();
    soon(exchange.answer()).await.unwrap();
    let seen = site.next().await;
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
async fn two_hundred_requests_are_under_way_at_the_same_time() {
    let barrier = Arc::new(Barrier::new(200));
    let site = serve(move |seen| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
            result(&seen, &seen.body["params"])
        }
    })
    .await;
    let connection = dial(&site.url);
    let mut exchanges = Vec::new();
    for n in 0..200 {
        exchanges.push(start(&connection, "tools/call", json!({"n": n})).await);
    }
    for (n, exchange) in exchanges.into_iter().enumerate() {
        assert_eq!(soon(exchange.answer()).await.unwrap().to_value(), json!({"n": n}));
    }
    assert_eq!(connection.n_pending(), 0);
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_stream() {
    let mut site = serve(|seen| async move { events(&[event(&answer(&seen, &json!({})))]) }).await;
    let connection = dial(&site.url);
    let mut last = None;
    for _ in 0..100 {
        ask(&connection, "ping", json!({})).await.unwrap();
        let peer = Some(site.next().await.peer);
        if peer == last {
            return;
        }
        last = peer;
        // The stream ends right after its answer, and then its connection is free.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("every request had a connection of its own");
}

#[tokio::test]
async fn a_refusal_with_a_json_rpc_error_is_an_answer() {
    let error = json!({"code": -32022, "message": "no", "data": {"supported": ["2026-07-28"]}});
    for id in [json!(1), Value::Null] {
        let body = json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
        let site = serve(move |_| {
            let response = status(400, body.clone());
            async { response }
        })
        .await;
        match ask(&dial(&site.url), "server/discover", stateless()).await {
            Err(Failure::Refused(error)) => assert_eq!(error.code, -32022),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_with_anything_else_is_its_status() {
    let other_id = r#"{"jsonrpc":"2.0","id":77,"error":{"code":-1,"message":"no"}}"#;
    for (code, body) in [(404, "not here"), (405, ""), (500, "{}"), (400, other_id), (429, "[]")] {
        let site = serve(move |_| async move { status(code, body) }).await;
        let expected = TransportError::Status { status: code, body: body.into(), authenticate: None };
        assert_eq!(loss(&dial(&site.url), "ping", json!({})).await, expected);
    }
}

#[tokio::test]
async fn the_beginning_of_a_long_refusal_is_kept() {
    let site = serve(|_| async { status(500, "x".repeat(100_000)) }).await;
    match loss(&dial(&site.url), "ping", json!({})).await {
        TransportError::Status { body, .. } => assert_eq!(body.len(), 64 * 1024),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_server_that_asks_for_credentials_says_how_whatever_its_body() {
    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"who are you"}}"#;
    for code in [401, 403] {
        let site = serve(move |_| async move {
            let mut response = status(code, body);
            response.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer scope=\"a\""));
            response
        })
        .await;
        let authenticate = Some("Bearer scope=\"a\"".to_owned());
        let expected = TransportError::Status { status: code, body: body.into(), authenticate };
        assert_eq!(loss(&dial(&site.url), "ping", json!({})).await, expected);
    }
}

#[tokio::test]
async fn a_redirect_is_followed_once_and_only_to_the_same_server() {
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
        let site = serve(move |seen| {
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
        let got = match ask(&dial(&site.url), "ping", json!({})).await {
            Err(Failure::Lost(TransportError::Status { status, .. })) => Err(status),
            other => Ok(other.unwrap()),
        };
        assert_eq!(got, expected);
    }
}

#[tokio::test]
async fn a_notification_is_taken_before_the_next_letter_is_sent() {
    let (release, held) = tokio::sync::watch::channel(false);
    let mut site = serve(move |seen| {
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
    let connection = dial(&site.url);
    tell(&connection, "notifications/first").await;
    tell(&connection, "notifications/second").await;
    let exchange = start(&connection, "tools/list", json!({})).await;
    assert_eq!(site.next().await.what(), "notifications/first");
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(site.seen.try_recv().is_err());
    release.send_replace(true);
    soon(exchange.answer()).await.unwrap();
    assert_eq!(site.next().await.what(), "notifications/second");
    assert_eq!(site.next().await.what(), "tools/list");
}

#[tokio::test]
async fn a_notification_that_is_refused_holds_nothing_up() {
    let site = serve(|seen| async move {
        if seen.body["id"].is_null() { status(500, "") } else { result(&seen, &json!({})) }
    })
    .await;
    let connection = dial(&site.url);
    tell(&connection, "notifications/initialized").await;
    ask(&connection, "ping", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_stream_for_a_notification_holds_nothing_up() {
    let site = serve(|seen| async move {
        match seen.what().as_str() {
            "GET" => status(405, ""),
            "initialize" | "ping" => result(&seen, &json!({})),
            _ => super::scene::endless(vec![": hello\n\n".into()], ()),
        }
    })
    .await;
    let connection = dial(&site.url);
    begin(&connection).await;
    ask(&connection, "ping", json!({})).await.unwrap();
}

#[tokio::test]
async fn a_content_type_may_have_parameters() {
    let site = serve(|seen| async move {
        typed("Application/JSON; charset=utf-8", answer(&seen, &json!({})).to_string())
    })
    .await;
    ask(&dial(&site.url), "ping", json!({})).await.unwrap();
}
