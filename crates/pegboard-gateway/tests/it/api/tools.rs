//! Tools: list, search and lookup.

use pegboard_gateway::api::ApiScope;
use serde_json::{Value, json};

use super::api_server::{ApiServer, api};

fn names(answer: &Value) -> Vec<&str> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["address"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_are_listed_in_order_and_searchable() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let cases: [(&str, &[&str]); 6] = [
        ("?limit=2", &["dev/notes/list", "dev/notes/add"]),
        ("?query=add+note", &["dev/notes/add", "dev/chain/report"]),
        ("?query=note&tag=Reading", &["dev/notes/list"]),
        ("?tag=reading", &["dev/notes/list"]),
        ("?toolbox=ops", &[]),
        ("?server=idle", &[]),
    ];
    for (query, expected) in cases {
        let (status, answer) = server.get(&format!("/tools{query}")).await;
        let found = names(&answer);
        assert_eq!((status, &found[..expected.len().min(found.len())]), (200, expected), "{query}");
    }
    let (_, answer) = server.get("/tools?limit=1").await;
    assert_eq!(answer["total"], 8);
}

#[tokio::test]
async fn a_single_tool_includes_its_schema() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (_, tool) = server.get("/tool?name=notes__add").await;
    insta::assert_snapshot!(tool, @r#"{"tool":{"address":"dev/notes/add","toolbox":"dev","server":"notes","name":"add","kind":"mcp","description":"Adds a note to the board.","signature":"add(text:str, [priority:int 1..5])","annotations":{},"tags":[],"listedAs":"notes__add","title":"Add a note","inputSchema":{"type":"object","properties":{"text":{"type":"string"},"priority":{"type":"integer","minimum":1,"maximum":5}},"required":["text"]}}}"#);
    for name in ["dev/notes/add", "notes/add", "notes_add"] {
        assert_eq!(server.get(&format!("/tool?name={name}")).await.1, tool, "{name}");
    }
}

#[tokio::test]
async fn only_a_post_starts_a_server() {
    let (api, _runtime, _) = api().await;
    for (path, body) in [
        ("/tool", json!({"name": "dev/idle/sleepy"})),
        ("/tool", json!({"name": "idle__sleepy"})),
        ("/toolboxes/open", json!({"toolbox": "dev"})),
        ("/toolboxes/open", json!({})),
        ("/servers/open", json!({"servers": ["dev/idle"]})),
        ("/servers/open", json!({})),
    ] {
        let (api, _runtime, _) = super::api_server::api().await;
        let server = ApiServer::start(&api, ApiScope::All).await;
        let (status, problem) = server.get("/tool?name=dev/idle/sleepy").await;
        assert_eq!((status, &problem["error"]["code"]), (404, &json!("unknown_tool")), "{path} {body}");
        assert_eq!(names(&server.get("/tools?server=idle").await.1), [""; 0], "{path} {body}");
        assert_eq!(server.post(path, body.clone()).await.0, 200, "{path} {body}");
        let (status, tool) = server.get("/tool?name=dev/idle/sleepy").await;
        assert_eq!((status, &tool["tool"]["listedAs"]), (200, &json!("idle__sleepy")), "{path} {body}");
    }
    let server = ApiServer::start(&api, ApiScope::All).await;
    assert_eq!(server.post("/toolboxes/open", json!({"toolbox": "nope"})).await.0, 404);
    let (status, problem) = server.post("/servers/open", json!({"servers": ["dev/idle", "dev/nope"]})).await;
    assert_eq!((status, &problem["error"]["message"]), (404, &json!("no server 'dev/nope'")));
    assert_eq!(server.get("/tools?open=true").await.0, 400);
}

#[tokio::test]
async fn an_unknown_tool_gets_suggestions() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let (status, problem) = server.get("/tool?name=notes__ad").await;
    assert_eq!(status, 404);
    insta::assert_snapshot!(problem, @r#"{"error":{"code":"unknown_tool","message":"Unknown tool: notes__ad","hint":"did you mean one of: notes__add, notes__ask, notes__fail?"}}"#);
    let (_, problem) = server.get("/tool?name=dev/notes/ad").await;
    insta::assert_snapshot!(problem, @r#"{"error":{"code":"unknown_tool","message":"Tool 'ad' not found in server 'notes' (toolbox 'dev')","hint":"did you mean add?"}}"#);
    let (status, problem) = server.post("/tool", json!({"name": "broken__x"})).await;
    assert_eq!(status, 503);
    insta::assert_snapshot!(problem, @r#"{"error":{"code":"server_unavailable","message":"uvx: not found"}}"#);
}

#[tokio::test]
async fn invalid_query_parameters_are_rejected() {
    let (api, _runtime, _) = api().await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    for path in ["/tools?limit=x", "/tools?nothing=1", "/tool"] {
        let (status, problem) = server.get(path).await;
        assert_eq!((status, &problem["error"]["code"]), (400, &json!("bad_request")), "{path}");
    }
}
