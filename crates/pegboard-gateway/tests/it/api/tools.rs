//! Tools, found by words or by name.

use pegboard_gateway::api::Principal;
use serde_json::{Value, json};

use super::site::{Site, api};

fn names(answer: &Value) -> Vec<&str> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["address"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn tools_are_listed_in_order_and_found_by_words() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let cases: [(&str, &[&str]); 7] = [
        ("?limit=2", &["dev/notes/list", "dev/notes/add"]),
        ("?query=add+note", &["dev/notes/add", "dev/chain/report"]),
        ("?query=note&tag=Reading", &["dev/notes/list"]),
        ("?tag=reading", &["dev/notes/list"]),
        ("?toolbox=ops", &[]),
        ("?server=idle", &[]),
        ("?server=idle&open=true", &["dev/idle/sleepy"]),
    ];
    for (query, expected) in cases {
        let (status, answer) = site.get(&format!("/tools{query}")).await;
        let found = names(&answer);
        assert_eq!((status, &found[..expected.len().min(found.len())]), (200, expected), "{query}");
    }
    let (_, answer) = site.get("/tools?limit=1").await;
    assert_eq!(answer["total"], 9);
}

#[tokio::test]
async fn one_tool_is_told_with_all_that_a_call_needs() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let (_, tool) = site.get("/tool?name=notes__add").await;
    insta::assert_snapshot!(tool, @r#"{"tool":{"address":"dev/notes/add","toolbox":"dev","server":"notes","name":"add","kind":"mcp","description":"Adds a note to the board.","signature":"add(text:str, [priority:int 1..5])","annotations":{},"tags":[],"listedAs":"notes__add","title":"Add a note","inputSchema":{"type":"object","properties":{"text":{"type":"string"},"priority":{"type":"integer","minimum":1,"maximum":5}},"required":["text"]}}}"#);
    for name in ["dev/notes/add", "add", "notes_add"] {
        assert_eq!(site.get(&format!("/tool?name={name}")).await.1, tool, "{name}");
    }
}

#[tokio::test]
async fn a_name_starts_the_server_that_it_speaks_of() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    for name in ["dev/idle/sleepy", "idle__sleepy"] {
        let (status, tool) = site.get(&format!("/tool?name={name}")).await;
        assert_eq!((status, &tool["tool"]["listedAs"]), (200, &json!("idle__sleepy")), "{name}");
    }
}

#[tokio::test]
async fn a_tool_that_is_not_there_has_others_near_it() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let (status, problem) = site.get("/tool?name=notes__ad").await;
    assert_eq!(status, 404);
    insta::assert_snapshot!(problem, @r#"{"error":{"code":"unknown_tool","message":"Unknown tool: notes__ad","hint":"did you mean one of: notes__add, notes__ask, notes__fail?"}}"#);
    let (_, problem) = site.get("/tool?name=dev/notes/ad").await;
    insta::assert_snapshot!(problem, @r#"{"error":{"code":"unknown_tool","message":"Tool 'ad' not found in server 'notes' (toolbox 'dev')","hint":"did you mean add?"}}"#);
    let (status, problem) = site.get("/tool?name=broken__x").await;
    assert_eq!(status, 503);
    insta::assert_snapshot!(problem, @r#"{"error":{"code":"server_unavailable","message":"uvx: not found"}}"#);
}

#[tokio::test]
async fn what_cannot_be_asked_for_is_said() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    for path in ["/tools?limit=x", "/tools?nothing=1", "/tool"] {
        let (status, problem) = site.get(path).await;
        assert_eq!((status, &problem["error"]["code"]), (400, &json!("bad_request")), "{path}");
    }
}
