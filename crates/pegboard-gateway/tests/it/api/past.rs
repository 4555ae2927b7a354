//! What was done, by those who are there and those who are gone.

use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_gateway::api::{About, Api, Principal};
use pegboard_runtime::{CallerOptions, Memory};
use pegboard_stores::sqlite::Database;
use serde_json::{Value, json};

use super::site::{Site, Stores, api, builder, told};

fn lines(traces: &Value) -> Vec<String> {
    let line = |trace: &Value| {
        let parts = ["tool", "status", "error"].map(|name| trace[name].as_str().unwrap_or_default());
        parts.join(" ").trim_end().to_owned()
    };
    traces["traces"].as_array().unwrap().iter().map(line).collect()
}

/// Makes a call, and gives what it is found again by.
async fn call(site: &Site, body: Value) -> String {
    let (_, answer) = site.post("/calls", body).await;
    let trace = answer.get("traceId").unwrap_or_else(|| &answer["error"]["traceId"]);
    trace.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_call_leaves_a_trace_that_is_found_by_the_beginning_of_its_id() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let (status, problem) = site.get("/traces/last").await;
    assert_eq!((status, &problem["error"]["message"]), (404, &json!("No call has been made yet")));
    let first = call(&site, json!({"tool": "notes__list"})).await;
    let second = call(&site, json!({"tool": "notes__add"})).await;
    let mut hanging = site.stream("/calls", json!({"tool": "notes__hang"})).await;
    let third = hanging.expect("started").await["traceId"].as_str().unwrap().to_owned();
    let (_, traces) = site.get("/traces").await;
    // They may have begun in the same millisecond.
    let mut seen = lines(&traces);
    seen.sort();
    assert_eq!(seen, ["notes__add failed invalid_parameters", "notes__hang running", "notes__list ok"]);
    assert_eq!(lines(&site.get("/traces?limit=1").await.1).len(), 1);
    for (asked, expected) in [(&first[..8], &first), (&second[..], &second), (&third[..12], &third)] {
        let (status, trace) = site.get(&format!("/traces/{asked}")).await;
        assert_eq!((status, trace["trace"]["traceId"].as_str()), (200, Some(expected.as_str())));
    }
    assert_eq!(site.get("/traces/").await.0, 404);
    assert_eq!(site.get("/traces/zzzz").await.0, 404);
    drop(hanging);
}

#[tokio::test]
async fn a_trace_tells_what_the_call_did() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    call(&site, json!({"tool": "notes__fail"})).await;
    let (_, mut trace) = site.get("/traces/last").await;
    let trace = &mut trace["trace"];
    for (place, name) in
        [("", "traceId"), ("", "session"), ("/op", "startedAt"), ("/op", "endedAt"), ("/op", "latencyMs")]
    {
        assert!(!trace.pointer_mut(place).unwrap()[name].take().is_null(), "{name}");
    }
    assert_eq!(trace["accounting"], trace["op"]["accounting"]);
    trace["accounting"].take();
    trace["op"]["accounting"].take();
    insta::assert_snapshot!(trace, @r#"{"traceId":null,"session":null,"op":{"opId":"1-1","kind":"tool","name":"notes__fail","server":"notes","status":"failed","startedAt":null,"endedAt":null,"latencyMs":null,"error":{"kind":"execution_error","message":"the tool answered that it failed"},"attributes":{},"logs":[],"accounting":null,"request":{"kind":"tool","size":2,"truncated":false},"response":{"size":56,"truncated":false}},"records":[],"accounting":null}"#);
}

#[tokio::test]
async fn a_session_tells_what_is_under_way() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    call(&site, json!({"tool": "notes__list", "session": "work"})).await;
    assert!(site.get("/sessions").await.1["sessions"][0].get("underWay").is_none());
    let mut hanging = site.stream("/calls", json!({"tool": "notes__hang", "session": "work"})).await;
    hanging.expect("started").await;
    assert_eq!(site.get("/sessions").await.1["sessions"][0]["underWay"], 1);
}

#[tokio::test]
async fn a_session_tells_all_that_its_caller_did() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    for tool in ["notes__list", "notes__fail", "notes__list"] {
        call(&site, json!({"tool": tool, "session": "work"})).await;
    }
    call(&site, json!({"tool": "notes__list"})).await;
    let (_, sessions) = site.get("/sessions").await;
    let all = sessions["sessions"].as_array().unwrap();
    let counts: Vec<_> =
        all.iter().map(|one| (one["calls"].as_u64(), one["failed"].as_u64(), &one["live"])).collect();
    assert_eq!(counts.len(), 2);
    assert!(counts.contains(&(Some(3), Some(1), &json!(true))), "{counts:?}");
    assert!(counts.contains(&(Some(1), Some(0), &json!(false))), "{counts:?}");
    for (session, names) in all.iter().map(|one| {
        let names: &[&str] =
            if one["calls"] == 3 { &["notes__list", "notes__fail", "notes__list"] } else { &["notes__list"] };
        (one, names)
    }) {
        let id = session["id"].as_str().unwrap();
        let short = id.strip_prefix("session-").unwrap();
        for asked in [id, &short[..8], &id[..16]] {
            let (status, found) = site.get(&format!("/sessions/{asked}")).await;
            assert_eq!((status, &found["session"]["id"]), (200, &json!(id)));
            let operations = found["session"]["tree"]["turns"][0]["ops"].as_array().unwrap();
            assert_eq!(operations.iter().map(|one| &one["name"]).collect::<Vec<_>>(), names);
            assert_eq!(found["session"]["accounting"].as_array().unwrap().len(), names.len());
        }
    }
    let (status, problem) = site.get("/sessions/session-").await;
    assert_eq!((status, &problem["error"]["hint"]), (404, &json!("give more of its id")));
    assert_eq!(site.get("/sessions/nobody").await.0, 404);
    assert_eq!(site.get("/sessions?limit=1").await.1["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_session_that_a_caller_named_is_there_with_what_was_written_down() {
    let (api, runtime, _) = api().await;
    let caller = runtime.caller(CallerOptions { memory: Memory::Everything, ..CallerOptions::default() });
    let mut named = Call::new("notes__list", json!({"context": {"sessionId": "budget work"}}));
    named.context.options.reads_context = true;
    let id = caller.start(named).await.journey.session.unwrap().id;
    runtime.shut_down(Duration::from_secs(1)).await;
    let site = Site::of(&api, Principal::Everybody).await;
    let (status, session) = site.get(&format!("/sessions/{id}")).await;
    assert_eq!((status, &session["session"]["name"]), (200, &json!("budget work")));
    let content = json!("Successfully executed notes.list");
    assert_eq!(session["session"]["records"][0]["content"], content);
    let (_, trace) = site.get("/traces/last").await;
    assert_eq!(trace["trace"]["records"][0]["content"], content);
}

#[tokio::test]
async fn nobody_finds_what_another_did() {
    let (api, _runtime, _) = api().await;
    let ann = Site::of(&api, Principal::One("ann".to_owned())).await;
    let bob = Site::of(&api, Principal::One("bob".to_owned())).await;
    let all = Site::of(&api, Principal::Everybody).await;
    let trace = call(&ann, json!({"tool": "notes__list", "session": "x"})).await;
    call(&bob, json!({"tool": "notes__list", "session": "x"})).await;
    let (_, sessions) = ann.get("/sessions").await;
    let session = sessions["sessions"][0]["id"].as_str().unwrap();
    assert_eq!(sessions["sessions"][0]["principal"], "ann");
    for (site, n_seen, status) in [(&ann, 1, 200), (&bob, 1, 404), (&all, 2, 200)] {
        assert_eq!(site.get("/traces").await.1["traces"].as_array().unwrap().len(), n_seen);
        assert_eq!(site.get("/sessions").await.1["sessions"].as_array().unwrap().len(), n_seen);
        assert_eq!(site.get(&format!("/traces/{trace}")).await.0, status);
        assert_eq!(site.get(&format!("/sessions/{session}")).await.0, status);
    }
}

#[tokio::test]
async fn what_is_past_is_told_after_a_restart_and_without_a_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("board.db");
    let trace = {
        let stores = Stores::in_database(&Database::open(&path).unwrap());
        let runtime = stores.give_to(builder(&std::sync::Arc::default())).start().await.unwrap();
        let site = Site::of(&stores.show(told(&runtime)), Principal::Everybody).await;
        let trace = call(&site, json!({"tool": "notes__list"})).await;
        runtime.shut_down(Duration::from_secs(5)).await;
        trace
    };
    let stores = Stores::in_database(&Database::open(&path).unwrap());
    let site = Site::of(&stores.show(Api::new(About::default())), Principal::Everybody).await;
    assert_eq!(lines(&site.get("/traces").await.1), ["notes__list ok"]);
    let (_, found) = site.get(&format!("/traces/{}", &trace[..6])).await;
    assert_eq!(found["trace"]["op"]["name"], "notes__list");
    let (_, sessions) = site.get("/sessions").await;
    assert_eq!(
        (&sessions["sessions"][0]["calls"], &sessions["sessions"][0]["live"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(site.get("/outputs").await, (200, json!({"outputs": []})));
    assert_eq!(site.get("/events").await.0, 503);
}
