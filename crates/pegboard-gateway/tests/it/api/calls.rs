//! Calls: start, stream, answer, cancel.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_gateway::api::ApiScope;
use pegboard_runtime::Runtime;
use pegboard_stores::limits::CacheLimits;
use pegboard_stores::memory;
use serde_json::{Value, json};
use tokio::time;

use super::api_server::{ApiServer, api, api_for};
use crate::fixture::{echo_tool, mcp_server};

/// An answer without ids and durations.
fn without_ids(mut answer: Value) -> Value {
    for name in ["callId", "traceId", "durationMs"] {
        assert!(!answer[name].take().is_null(), "{name} is missing in {answer}");
    }
    answer
}

#[tokio::test]
async fn a_call_returns_its_result_and_metadata() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    for tool in ["dev/notes/add", "notes/add", "notes__add", "notes_add"] {
        let (status, answer) =
            server.post("/calls", json!({"tool": tool, "arguments": {"text": "hi"}})).await;
        assert_eq!((status, &answer["text"]), (200, &json!(r#"added {"text":"hi"}"#)), "{tool}");
    }
    // A server that has not been started may have a tool of that name, too.
    let (status, answer) = server.post("/calls", json!({"tool": "add", "arguments": {"text": "hi"}})).await;
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("unknown_tool")));
    let (_, answer) = server.post("/calls", json!({"tool": "notes__add", "arguments": {"text": "hi"}})).await;
    insta::assert_snapshot!(without_ids(answer), @r#"{"callId":null,"traceId":null,"result":{"content":[{"type":"text","text":"added {\"text\":\"hi\"}"}]},"text":"added {\"text\":\"hi\"}","isError":false,"bytes":62,"durationMs":null,"cached":false,"warnings":[]}"#);
    let (status, answer) = server.post("/calls", json!({"tool": "notes__fail"})).await;
    assert_eq!((status, &answer["isError"], &answer["text"]), (200, &json!(true), &json!("no")));
    let (_, answer) = server.post("/calls", json!({"tool": "idle__sleepy"})).await;
    assert_eq!(answer["text"], "idle/sleepy {}");
}

#[tokio::test]
async fn the_record_of_a_call_begins_with_the_start_of_its_server() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (_, known) = server.post("/tool", json!({"name": "notes__add"})).await;
    assert_eq!(known["startWaitMs"], 0, "{known}");
    let body = json!({"tool": "notes__add", "arguments": {"text": "hi"}, "startWaitMs": 2_000});
    let (_, answer) = server.post("/calls", body).await;
    let (_, response) = server.get(&format!("/traces/{}", answer["traceId"].as_str().unwrap())).await;
    let operation = &response["trace"]["op"];
    assert_eq!(operation["attributes"]["startWaitMs"], "2000", "{response}");
    assert!(operation["latencyMs"].as_f64().unwrap() >= 2_000.0, "{response}");
}

#[tokio::test]
async fn an_invalid_call_reports_the_reason_and_path() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let call = async |body: Value| {
        let (status, mut problem) = server.post("/calls", body).await;
        if let Some(trace) = problem["error"].get_mut("traceId") {
            assert_eq!(trace.take().as_str().unwrap().len(), 32);
        }
        format!("{status} {}", problem["error"])
    };
    insta::assert_snapshot!(call(json!({"tool": "notes__ad"})).await, @r#"404 {"code":"unknown_tool","message":"Unknown tool: notes__ad","hint":"did you mean one of: notes__add, notes__ask, notes__fail?"}"#);
    insta::assert_snapshot!(call(json!({"tool": "notes__add", "arguments": {"priority": 9}})).await, @r#"422 {"code":"invalid_parameters","message":"Invalid arguments: $.text: required field missing; $.priority: value 9 > maximum 5","path":"$.text","violations":["$.text: required field missing","$.priority: value 9 > maximum 5"],"traceId":null}"#);
    insta::assert_snapshot!(call(json!({"tool": "broken__x"})).await, @r#"503 {"code":"server_unavailable","message":"uvx: not found"}"#);
    insta::assert_snapshot!(call(json!({"tool": "notes__hang", "timeoutMs": 20})).await, @r#"504 {"code":"timeout","message":"The caller's deadline passed before the tool answered","traceId":null}"#);
    insta::assert_snapshot!(call(json!({"tool": "x", "arguments": 3})).await, @r#"400 {"code":"bad_request","message":"arguments must be an object","path":"$.arguments"}"#);
    insta::assert_snapshot!(call(json!({"tool": 3})).await, @r#"400 {"code":"bad_request","message":"tool must be the name of a tool","path":"$.tool"}"#);
    insta::assert_snapshot!(call(json!({"arguments": {}})).await, @r#"400 {"code":"bad_request","message":"missing tool: it must be the name of a tool","path":"$.tool"}"#);
    insta::assert_snapshot!(call(json!({"tool": "x", "argumnts": {}})).await, @r#"400 {"code":"bad_request","message":"unknown key 'argumnts': expected one of tool, arguments, timeoutMs, noCache, session, startWaitMs","hint":"did you mean arguments?"}"#);
    insta::assert_snapshot!(call(json!({"tool": "x", "session": ""})).await, @r#"400 {"code":"bad_request","message":"session must be a name of 1 to 128 bytes","path":"$.session"}"#);
    insta::assert_snapshot!(call(json!([])).await, @r#"400 {"code":"bad_request","message":"the body must be an object","path":"$"}"#);
}

#[tokio::test]
async fn event_streams_are_ordered() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let mut stream = server.stream("/calls", json!({"tool": "notes__talk"})).await;
    let started = stream.expect("started").await;
    assert_eq!(stream.expect("progress").await, json!({"done": 1.0, "total": 2.0, "message": "half way"}));
    assert_eq!(stream.expect("log").await, json!({"level": "info", "data": "well"}));
    let result = stream.expect("result").await;
    assert_eq!((&result["callId"], &result["traceId"]), (&started["callId"], &started["traceId"]));
    assert_eq!(result["text"], "done");
    assert!(stream.next().await.is_none());
    let mut stream = server.stream("/calls", json!({"tool": "notes__fail"})).await;
    stream.expect("started").await;
    assert_eq!(stream.next().await.map(|(name, _)| name).as_deref(), Some("result"));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_question_waits_for_its_answer() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let mut stream = server.stream("/calls", json!({"tool": "notes__ask"})).await;
    let call = stream.expect("started").await["callId"].as_str().unwrap().to_owned();
    let question = stream.expect("question").await;
    insta::assert_snapshot!(question, @r#"{"id":"1","questions":{"who":{"method":"elicitation/create","params":{"mode":"form","message":"Who?","requestedSchema":{}}}}}"#);
    let (_, calls) = server.get("/calls").await;
    assert_eq!(
        (&calls["calls"][0]["callId"], &calls["calls"][0]["state"]),
        (&json!(call), &json!("waiting"))
    );
    let path = format!("/calls/{call}/answers");
    let answers = json!({"who": {"action": "accept", "content": {"name": "Ada"}}});
    for (body, status) in [
        (json!({"id": "7", "answers": answers}), 404),
        (json!({"id": "1", "answers": {}}), 400),
        (json!({"id": "1", "answers": answers}), 204),
        (json!({"id": "1", "answers": answers}), 404),
    ] {
        assert_eq!(server.post(&path, body).await.0, status);
    }
    assert_eq!(stream.expect("result").await["text"], "\"Ada\"");
    assert_eq!(server.post(&path, json!({"id": "1", "answers": answers})).await.0, 404);
    // A client waiting for a single document cannot be asked.
    let (_, answer) = server.post("/calls", json!({"tool": "notes__ask"})).await;
    assert_eq!(answer["text"], "the caller does not support input requests");
}

#[tokio::test]
async fn a_call_is_cancelled_when_the_client_disconnects() {
    let (api, runtime, cancelled) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let mut stream = server.stream("/calls", json!({"tool": "notes__hang"})).await;
    stream.expect("started").await;
    drop(stream);
    time::timeout(Duration::from_secs(10), cancelled.notified()).await.unwrap();
    let response = server.request(reqwest::Method::POST, "/calls").header("content-type", "application/json");
    let response =
        response.body(r#"{"tool": "notes__hang"}"#).timeout(Duration::from_millis(300)).send().await;
    assert!(response.unwrap_err().is_timeout());
    time::timeout(Duration::from_secs(10), cancelled.notified()).await.unwrap();
    assert!(runtime.calls().is_empty());
}

#[tokio::test]
async fn a_call_can_be_cancelled_by_id() {
    let (api, _runtime, cancelled) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let mut stream = server.stream("/calls", json!({"tool": "notes__hang"})).await;
    let call = stream.expect("started").await["callId"].as_str().unwrap().to_owned();
    assert_eq!(server.delete(&format!("/calls/{call}")).await.0, 204);
    assert_eq!(stream.expect("error").await["error"]["code"], "canceled");
    cancelled.notified().await;
    for call in [&*call, "x", "999"] {
        assert_eq!(server.delete(&format!("/calls/{call}")).await.0, 404);
    }
}

#[tokio::test]
async fn no_cache_bypasses_a_cached_result() {
    let settings: ServerSettings = serde_json::from_value(json!({"cache": "1h"})).unwrap();
    let runtime = Runtime::builder()
        .settings(RuntimeSettings::default())
        .cache(Arc::new(memory::MemoryCache::new(CacheLimits::default())))
        .provide("s", mcp_server([echo_tool("s", "x")]))
        .server_settings(settings)
        .start()
        .await
        .unwrap();
    let server = ApiServer::start(&api_for(&runtime), ApiScope::All).await;
    for (body, cached) in [
        (json!({"tool": "s__x"}), false),
        (json!({"tool": "s__x"}), true),
        (json!({"tool": "s__x", "noCache": true}), false),
        (json!({"tool": "s__x", "noCache": false}), true),
    ] {
        assert_eq!(server.post("/calls", body.clone()).await.1["cached"], cached, "{body}");
    }
}
