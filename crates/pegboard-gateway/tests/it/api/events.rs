//! What happens, as it happens.

use pegboard_gateway::api::Principal;
use serde_json::json;

use super::site::{Site, api};

#[tokio::test]
async fn whoever_listens_hears_of_every_call() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let mut events = site.listen("/events?kinds=tool_started,tool_finished").await;
    site.post("/calls", json!({"tool": "notes__fail", "arguments": {"secret": "hunter2"}})).await;
    let mut started = events.expect("tool_started").await;
    assert!(started["call"]["session"].take().as_str().unwrap().starts_with("session-"));
    insta::assert_snapshot!(started, @r#"{"call":{"session":null,"operation":"1-1","tool":"notes__fail","server":"notes","kind":"mcp","nBytesIn":20}}"#);
    let mut finished = events.expect("tool_finished").await;
    assert!(finished["call"]["session"].take().is_string() && finished["end"]["durationMs"].take().is_f64());
    insta::assert_snapshot!(finished, @r#"{"call":{"session":null,"operation":"1-1","tool":"notes__fail","server":"notes","kind":"mcp","nBytesIn":20},"end":{"error":"execution_error","message":"the tool answered that it failed","durationMs":null,"nBytesOut":56,"isCached":false}}"#);
}

#[tokio::test]
async fn nobody_hears_of_the_calls_of_another() {
    let (api, _runtime, _) = api().await;
    let ann = Site::of(&api, Principal::One("ann".to_owned())).await;
    let bob = Site::of(&api, Principal::One("bob".to_owned())).await;
    let mut heard = bob.listen("/events").await;
    ann.post("/calls", json!({"tool": "notes__list"})).await;
    bob.post("/calls", json!({"tool": "notes__fail"})).await;
    assert_eq!(heard.expect("tool_started").await["call"]["tool"], "notes__fail");
}

#[tokio::test]
async fn an_event_that_there_is_not_cannot_be_waited_for() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let (status, problem) = site.get("/events?kinds=tool_begun").await;
    assert_eq!((status, &problem["error"]["code"]), (400, &json!("bad_request")));
}
