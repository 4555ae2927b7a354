//! Several calls in one request.

use std::sync::Arc;

use pegboard_gateway::api::ApiScope;
use serde_json::{Value, json};

use super::api_server::{ApiServer, api, api_for, builder};
use crate::fixture::{mcp_server, scripted_tool, text_output};

fn batch() -> Value {
    json!({"calls": [
        {"tool": "notes__add", "arguments": {"text": "a"}},
        {"tool": "notes__ad"},
        {"tool": "dev/notes/list"},
    ]})
}

#[tokio::test]
async fn each_call_is_answered_on_its_own_line_as_it_finishes() {
    let (api, runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let mut lines = server.lines("/batch", batch()).await;
    lines.sort_by_key(|line| line["index"].as_u64());
    let summaries: Vec<String> = lines
        .iter()
        .map(|line| {
            let end = line.get("text").or(line["error"].get("code")).unwrap();
            assert!(line["durationMs"].is_f64());
            format!("{} {} {end}", line["index"], line["tool"])
        })
        .collect();
    insta::assert_snapshot!(summaries.join("\n"), @r#"
0 "notes__add" "added {\"text\":\"a\"}"
1 "notes__ad" "unknown_tool"
2 "dev/notes/list" "notes/list {}"
"#);
    let (status, all) = server.post("/batch", batch()).await;
    assert_eq!((status, all["answers"].as_array().unwrap().len()), (200, 3));
    assert_eq!(all["answers"][1]["error"]["code"], "unknown_tool");
    let mut events = server.stream("/batch", batch()).await;
    for _ in 0..3 {
        events.expect("answer").await;
    }
    assert!(events.next().await.is_none());
    assert!(runtime.calls().is_empty());
}

#[tokio::test]
async fn parallel_limits_concurrent_calls() {
    let (api, _runtime, cancelled) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let calls = json!([{"tool": "notes__hang"}, {"tool": "notes__list"}]);
    let mut events = server.stream("/batch", json!({"calls": calls, "parallel": 2})).await;
    assert_eq!(events.expect("answer").await["index"], 1);
    drop(events);
    cancelled.notified().await;
    let one = server.stream("/batch", json!({"calls": calls, "parallel": 1})).await;
    let running = loop {
        let (_, calls) = server.get("/calls").await;
        if calls["calls"][0].is_object() {
            break calls;
        }
    };
    let running = running["calls"].as_array().unwrap();
    assert_eq!(running.iter().map(|call| &call["tool"]).collect::<Vec<_>>(), ["notes__hang"]);
    drop(one);
    cancelled.notified().await;
}

#[tokio::test]
async fn a_batch_takes_what_the_batch_tool_takes() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let id = json!({"toolbox": "dev", "server": "notes", "name": "add"});
    let calls = json!([
        {"tool": "notes__add", "arguments": {"text": "a"}},
        {"id": 7, "name": "notes__add", "params": {"text": "b"}},
        {"id": "c", "tool": id, "parameters": {"text": "c"}},
        {"tool": "dev/notes/add", "parameters": "{\"text\": \"d\"}"},
    ]);
    let (status, answer) = server.post("/batch", json!({"calls": calls})).await;
    let answers = answer["answers"].as_array().unwrap().iter();
    let answers = answers.map(|answer| format!("{} {} {}", answer["id"], answer["tool"], answer["text"]));
    assert_eq!(status, 200);
    insta::assert_snapshot!(answers.collect::<Vec<_>>().join("\n"), @r#"
    null "notes__add" "added {\"text\":\"a\"}"
    7 "notes__add" "added {\"text\":\"b\"}"
    "c" "dev/notes/add" "added {\"text\":\"c\"}"
    null "dev/notes/add" "added {\"text\": \"d\"}"
    "#);
}

#[tokio::test]
async fn an_invalid_batch_reports_the_path() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    for (body, path) in [
        (json!({}), "$.calls"),
        (json!({"calls": {}}), "$.calls"),
        (json!({"calls": [{"tool": "x"}, 3]}), "$.calls[1]"),
        (json!({"calls": [{}]}), "$.calls[0]"),
        (json!({"calls": [{"tool": "x", "arguments": []}]}), "$.calls[0]"),
        (json!({"calls": [{"tool": "x", "args": {}}]}), "$.calls[0]"),
        (json!({"calls": [{"tool": {"server": "x"}}]}), "$.calls[0]"),
        (json!({"calls": [{"tool": "x", "name": "y"}]}), "$.calls[0]"),
        (json!({"calls": [], "parallel": 0}), "$.parallel"),
        (json!({"calls": [], "parallel": 33}), "$.parallel"),
        (json!({"calls": (0..1_001).map(|_| json!({"tool": "x"})).collect::<Vec<_>>()}), "$.calls"),
    ] {
        let (status, problem) = server.post("/batch", body).await;
        assert_eq!((status, &problem["error"]["path"]), (400, &json!(path)));
    }
}

#[tokio::test]
async fn the_size_of_all_answers_of_a_document_is_limited() {
    let fill = scripted_tool("fill", |_| Ok(text_output(&"x".repeat(1 << 20))));
    let runtime = builder(&Arc::default()).provide("big", mcp_server([fill])).start().await.unwrap();
    let server = ApiServer::start(&api_for(&runtime), ApiScope::All).await;
    let calls = json!({"calls": vec![json!({"id": "i", "tool": "big__fill"}); 40]});
    let (status, document) = server.post("/batch", calls.clone()).await;
    let answers = document["answers"].as_array().unwrap();
    let n_ok = answers.iter().filter(|answer| answer["isError"] == false).count();
    // Each has the result and its text.
    assert_eq!((status, answers.len(), n_ok), (200, 40, 31));
    let discarded = answers.iter().find(|answer| answer["error"].is_object()).unwrap();
    assert_eq!((&discarded["error"]["code"], &discarded["id"]), (&json!("limit_exceeded"), &json!("i")));
    let message = discarded["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("the result was discarded: ") && message.contains("request a stream"),
        "{message}"
    );
    let lines = server.lines("/batch", calls).await;
    assert!(lines.iter().all(|line| line["isError"] == false), "each line is sent as it comes");
}
