//! Several calls in one request.

use pegboard_gateway::api::Principal;
use serde_json::{Value, json};

use super::site::{Site, api};

fn batch() -> Value {
    json!({"calls": [
        {"tool": "notes__add", "arguments": {"text": "a"}},
        {"tool": "notes__ad"},
        {"tool": "dev/notes/list"},
    ]})
}

#[tokio::test]
async fn each_call_is_answered_on_a_line_as_it_ends() {
    let (api, runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let mut lines = site.lines("/batch", batch()).await;
    lines.sort_by_key(|line| line["index"].as_u64());
    let told: Vec<String> = lines
        .iter()
        .map(|line| {
            let end = line.get("text").or(line["error"].get("code")).unwrap();
            assert!(line["durationMs"].is_f64());
            format!("{} {} {end}", line["index"], line["tool"])
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r#"
0 "notes__add" "added {\"text\":\"a\"}"
1 "notes__ad" "unknown_tool"
2 "dev/notes/list" "notes/list {}"
"#);
    let (status, all) = site.post("/batch", batch()).await;
    assert_eq!((status, all["answers"].as_array().unwrap().len()), (200, 3));
    assert_eq!(all["answers"][1]["error"]["code"], "unknown_tool");
    let mut events = site.stream("/batch", batch()).await;
    for _ in 0..3 {
        events.expect("answer").await;
    }
    assert!(events.next().await.is_none());
    assert!(runtime.calls().is_empty());
}

#[tokio::test]
async fn calls_wait_for_each_other_if_only_one_may_run() {
    let (api, _runtime, gone) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let calls = json!([{"tool": "notes__hang"}, {"tool": "notes__list"}]);
    let mut both = site.stream("/batch", json!({"calls": calls, "parallel": 2})).await;
    assert_eq!(both.expect("answer").await["index"], 1);
    drop(both);
    gone.notified().await;
    let one = site.stream("/batch", json!({"calls": calls, "parallel": 1})).await;
    let under_way = loop {
        let (_, calls) = site.get("/calls").await;
        if calls["calls"][0].is_object() {
            break calls;
        }
    };
    let under_way = under_way["calls"].as_array().unwrap();
    assert_eq!(under_way.iter().map(|call| &call["tool"]).collect::<Vec<_>>(), ["notes__hang"]);
    drop(one);
    gone.notified().await;
}

#[tokio::test]
async fn what_is_no_batch_says_where() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    for (body, path) in [
        (json!({}), "$.calls"),
        (json!({"calls": {}}), "$.calls"),
        (json!({"calls": [{"tool": "x"}, 3]}), "$.calls[1]"),
        (json!({"calls": [{}]}), "$.calls[0]"),
        (json!({"calls": [{"tool": "x", "arguments": []}]}), "$.calls[0]"),
        (json!({"calls": [{"tool": "x", "parameters": {}}]}), "$.calls[0]"),
        (json!({"calls": [], "parallel": 0}), "$.parallel"),
        (json!({"calls": [], "parallel": 33}), "$.parallel"),
        (json!({"calls": (0..1_001).map(|_| json!({"tool": "x"})).collect::<Vec<_>>()}), "$.calls"),
    ] {
        let (status, problem) = site.post("/batch", body).await;
        assert_eq!((status, &problem["error"]["path"]), (400, &json!(path)));
    }
}
