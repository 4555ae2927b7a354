//! Runtime events.

use pegboard_gateway::api::ApiScope;
use serde_json::json;

use super::api_server::{ApiServer, api};

#[tokio::test]
async fn subscribers_receive_call_events() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let mut events = server.listen("/events?kinds=tool_started,tool_finished").await;
    server.post("/calls", json!({"tool": "notes__fail", "arguments": {"secret": "hunter2"}})).await;
    let mut started = events.expect("tool_started").await;
    assert!(started["call"]["session"].take().as_str().unwrap().starts_with("session-"));
    insta::assert_snapshot!(started, @r#"{"call":{"session":null,"operation":"1-1","tool":"notes__fail","server":"notes","kind":"mcp","nBytesIn":20}}"#);
    let mut finished = events.expect("tool_finished").await;
    assert!(finished["call"]["session"].take().is_string() && finished["end"]["durationMs"].take().is_f64());
    insta::assert_snapshot!(finished, @r#"{"call":{"session":null,"operation":"1-1","tool":"notes__fail","server":"notes","kind":"mcp","nBytesIn":20},"end":{"error":"execution_error","message":"the tool reported an error","durationMs":null,"nBytesOut":56,"isCached":false}}"#);
}

#[tokio::test]
async fn events_are_private_to_their_principal() {
    let (api, _runtime, _) = api().await;
    let ann = ApiServer::start(&api, ApiScope::Principal("ann".to_owned())).await;
    let bob = ApiServer::start(&api, ApiScope::Principal("bob".to_owned())).await;
    let mut events = bob.listen("/events").await;
    ann.post("/calls", json!({"tool": "notes__list"})).await;
    bob.post("/calls", json!({"tool": "notes__fail"})).await;
    assert_eq!(events.expect("tool_started").await["call"]["tool"], "notes__fail");
}

#[tokio::test]
async fn an_unknown_event_kind_is_rejected() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (status, problem) = server.get("/events?kinds=tool_begun").await;
    assert_eq!((status, &problem["error"]["code"]), (400, &json!("bad_request")));
}
