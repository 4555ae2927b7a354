//! Traces and sessions of running and finished calls.

use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_gateway::api::{Api, ApiScope, GatewayInfo};
use pegboard_runtime::{CallerOptions, SessionMode};
use pegboard_stores::sqlite::Database;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, USER_AGENT};
use serde_json::{Value, json};

use super::api_server::{ApiServer, Stores, api, api_for, builder};

fn summaries(traces: &Value) -> Vec<String> {
    let line = |trace: &Value| {
        let parts = ["tool", "status", "error"].map(|name| trace[name].as_str().unwrap_or_default());
        parts.join(" ").trim_end().to_owned()
    };
    traces["traces"].as_array().unwrap().iter().map(line).collect()
}

/// Makes a call and returns its trace id.
async fn call(server: &ApiServer, body: Value) -> String {
    let (_, answer) = server.post("/calls", body).await;
    let trace = answer.get("traceId").unwrap_or_else(|| &answer["error"]["traceId"]);
    trace.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn traces_are_found_by_id_prefix() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (status, problem) = server.get("/traces/last").await;
    assert_eq!((status, &problem["error"]["message"]), (404, &json!("no calls yet")));
    let first = call(&server, json!({"tool": "notes__list"})).await;
    let second = call(&server, json!({"tool": "notes__add"})).await;
    let mut hanging = server.stream("/calls", json!({"tool": "notes__hang"})).await;
    let third = hanging.expect("started").await["traceId"].as_str().unwrap().to_owned();
    let (_, traces) = server.get("/traces").await;
    // They may have started in the same millisecond.
    let mut shown = summaries(&traces);
    shown.sort();
    assert_eq!(shown, ["notes__add failed invalid_parameters", "notes__hang running", "notes__list ok"]);
    assert_eq!(summaries(&server.get("/traces?limit=1").await.1).len(), 1);
    for (id_prefix, expected) in [(&first[..8], &first), (&second[..], &second), (&third[..12], &third)] {
        let (status, trace) = server.get(&format!("/traces/{id_prefix}")).await;
        assert_eq!((status, trace["trace"]["traceId"].as_str()), (200, Some(expected.as_str())));
    }
    assert_eq!(server.get("/traces/").await.0, 404);
    assert_eq!(server.get("/traces/zzzz").await.0, 404);
    drop(hanging);
}

#[tokio::test]
async fn a_trace_contains_the_operation() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    call(&server, json!({"tool": "notes__fail"})).await;
    let (_, mut trace) = server.get("/traces/last").await;
    let trace = &mut trace["trace"];
    for (pointer, name) in
        [("", "traceId"), ("", "session"), ("/op", "startedAt"), ("/op", "endedAt"), ("/op", "latencyMs")]
    {
        assert!(!trace.pointer_mut(pointer).unwrap()[name].take().is_null(), "{name}");
    }
    assert_eq!(trace["accounting"], trace["op"]["accounting"]);
    trace["accounting"].take();
    trace["op"]["accounting"].take();
    // Present if the machine is busy.
    trace["op"]["attributes"].as_object_mut().unwrap().shift_remove("overheadMs");
    insta::assert_snapshot!(trace, @r#"{"traceId":null,"session":null,"op":{"opId":"1-1","kind":"tool","name":"notes__fail","server":"notes","status":"failed","startedAt":null,"endedAt":null,"latencyMs":null,"error":{"kind":"execution_error","message":"the tool reported an error"},"attributes":{},"logs":[],"accounting":null,"request":{"kind":"tool","size":2,"truncated":false},"response":{"size":56,"truncated":false}},"records":[],"accounting":null}"#);
}

#[tokio::test]
async fn a_session_counts_running_calls() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    call(&server, json!({"tool": "notes__list", "session": "work"})).await;
    assert!(server.get("/sessions").await.1["sessions"][0].get("inFlight").is_none());
    let mut hanging = server.stream("/calls", json!({"tool": "notes__hang", "session": "work"})).await;
    hanging.expect("started").await;
    assert_eq!(server.get("/sessions").await.1["sessions"][0]["inFlight"], 1);
}

#[tokio::test]
async fn a_session_contains_all_calls_of_its_caller() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    for tool in ["notes__list", "notes__fail", "notes__list"] {
        call(&server, json!({"tool": tool, "session": "work"})).await;
    }
    call(&server, json!({"tool": "notes__list"})).await;
    let (_, sessions) = server.get("/sessions").await;
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
        for id_prefix in [id, &short[..8], &id[..16]] {
            let (status, found) = server.get(&format!("/sessions/{id_prefix}")).await;
            assert_eq!((status, &found["session"]["id"]), (200, &json!(id)));
            let operations = found["session"]["tree"]["turns"][0]["ops"].as_array().unwrap();
            assert_eq!(operations.iter().map(|one| &one["name"]).collect::<Vec<_>>(), names);
            assert_eq!(found["session"]["accounting"].as_array().unwrap().len(), names.len());
        }
    }
    let (status, problem) = server.get("/sessions/session-").await;
    assert_eq!((status, &problem["error"]["hint"]), (404, &json!("give more characters of the id")));
    assert_eq!(server.get("/sessions/nobody").await.0, 404);
    assert_eq!(server.get("/sessions?limit=1").await.1["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_named_session_contains_its_trace_records() {
    let (api, runtime, _) = api().await;
    let caller =
        runtime.caller(CallerOptions { session_mode: SessionMode::AllOpen, ..CallerOptions::default() });
    let mut named = Call::new("notes__list", json!({"context": {"sessionId": "budget work"}}));
    named.context.options.reads_context = true;
    let id = caller.start(named).await.meta.session.unwrap().id;
    runtime.shut_down(Duration::from_secs(1)).await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (status, session) = server.get(&format!("/sessions/{id}")).await;
    assert_eq!((status, &session["session"]["name"]), (200, &json!("budget work")));
    let content = json!("Successfully executed notes.list");
    assert_eq!(session["session"]["records"][0]["content"], content);
    let (_, trace) = server.get("/traces/last").await;
    assert_eq!(trace["trace"]["records"][0]["content"], content);
}

#[tokio::test]
async fn history_is_private_to_its_principal() {
    let (api, _runtime, _) = api().await;
    let ann = ApiServer::start(&api, ApiScope::Principal("ann".to_owned())).await;
    let bob = ApiServer::start(&api, ApiScope::Principal("bob".to_owned())).await;
    let all = ApiServer::start(&api, ApiScope::All).await;
    let trace = call(&ann, json!({"tool": "notes__list", "session": "x"})).await;
    call(&bob, json!({"tool": "notes__list", "session": "x"})).await;
    let (_, sessions) = ann.get("/sessions").await;
    let session = sessions["sessions"][0]["id"].as_str().unwrap();
    assert_eq!(sessions["sessions"][0]["principal"], "ann");
    for (server, n_visible, status) in [(&ann, 1, 200), (&bob, 1, 404), (&all, 2, 200)] {
        assert_eq!(server.get("/traces").await.1["traces"].as_array().unwrap().len(), n_visible);
        assert_eq!(server.get("/sessions").await.1["sessions"].as_array().unwrap().len(), n_visible);
        assert_eq!(server.get(&format!("/traces/{trace}")).await.0, status);
        assert_eq!(server.get(&format!("/sessions/{session}")).await.0, status);
    }
}

#[tokio::test]
async fn history_survives_a_restart_and_needs_no_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("board.db");
    let trace = {
        let stores = Stores::in_database(&Database::open(&path).unwrap());
        let runtime = stores.apply_to_builder(builder(&std::sync::Arc::default())).start().await.unwrap();
        let server = ApiServer::start(&stores.apply_to_api(api_for(&runtime)), ApiScope::All).await;
        let body = json!({"tool": "notes__list"}).to_string();
        let request =
            server.request(Method::POST, "/calls").header(CONTENT_TYPE, "application/json").body(body);
        let answer = request.header(USER_AGENT, "curl/8.5.0").send().await.unwrap().text().await.unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let trace = answer["traceId"].as_str().unwrap().to_owned();
        assert_eq!(server.get("/sessions").await.1["sessions"][0]["client"], "curl");
        runtime.shut_down(Duration::from_secs(5)).await;
        trace
    };
    let stores = Stores::in_database(&Database::open(&path).unwrap());
    let server =
        ApiServer::start(&stores.apply_to_api(Api::new(GatewayInfo::default())), ApiScope::All).await;
    assert_eq!(summaries(&server.get("/traces").await.1), ["notes__list ok"]);
    let (_, found) = server.get(&format!("/traces/{}", &trace[..6])).await;
    assert_eq!(found["trace"]["op"]["name"], "notes__list");
    let (_, sessions) = server.get("/sessions").await;
    let session = &sessions["sessions"][0];
    assert_eq!((&session["calls"], &session["live"]), (&json!(1), &json!(false)));
    assert_eq!(session["client"], "curl");
    assert_eq!(server.get("/outputs").await, (200, json!({"outputs": []})));
    assert_eq!(server.get("/events").await.0, 503);
}
