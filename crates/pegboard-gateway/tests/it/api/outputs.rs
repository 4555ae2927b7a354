//! Stored outputs.

use pegboard_gateway::api::ApiScope;
use serde_json::{Value, json};

use super::api_server::{ApiServer, api_with};

/// A text of 200 lines.
fn text() -> String {
    (1..=200).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat()
}

/// Stores an output and returns its handle.
async fn store(server: &ApiServer) -> String {
    let text = text();
    let (_, answer) = server.post("/calls", json!({"tool": "notes__add", "arguments": {"text": text}})).await;
    answer["storedAs"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_stored_output_can_be_listed_read_and_deleted() {
    let (api, _runtime, _) = api_with(json!({"toolResponseMaxBytes": 500})).await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let handle = store(&server).await;
    let (_, mut outputs) = server.get("/outputs").await;
    let output = &mut outputs["outputs"][0];
    for name in ["handle", "session", "createdAt", "expiresAt"] {
        assert!(!output[name].take().is_null(), "{name}");
    }
    insta::assert_snapshot!(output, @r#"{"handle":null,"tool":"notes__add","session":null,"bytes":1909,"contentType":"text/plain","createdAt":null,"expiresAt":null}"#);
    let path = format!("/outputs/{handle}");
    let response = server.request(reqwest::Method::GET, &path).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let response = response.text().await.unwrap();
    assert!(response.starts_with("added {\"text\":\"line 1\\nline 2\\n"), "{response}");
    assert_eq!(server.delete(&path).await.0, 204);
    assert_eq!(server.delete(&path).await.0, 404);
    let (status, problem) = server.get(&path).await;
    assert_eq!((status, &problem["error"]["code"]), (404, &json!("not_found")));
    assert_eq!(server.get("/outputs").await.1, json!({"outputs": []}));
}

#[tokio::test]
async fn parts_of_an_output_are_selected_like_tool_output() {
    let (api, _runtime, _) = api_with(json!({"toolResponseMaxBytes": 500})).await;
    let server = ApiServer::start(&api, ApiScope::All).await;
    let text = text();
    let list = json!({"tool": "notes__lines", "arguments": {"text": text}});
    let (_, answer) = server.post("/calls", list).await;
    let handle = answer["storedAs"].as_str().unwrap().to_owned();
    let read = async |query: &str| {
        let (status, answer) = server.get(&format!("/outputs/{handle}?{query}")).await;
        format!("{status} {}", answer.get("error").unwrap_or(&answer))
    };
    insta::assert_snapshot!(read("lines=10-12").await, @r#"200 {"content":"line 10\nline 11\nline 12\n"}"#);
    insta::assert_snapshot!(read("lines=199-").await, @r#"200 {"content":"line 199\nline 200\n"}"#);
    insta::assert_snapshot!(read("lines=7").await, @r#"200 {"content":"line 7\n"}"#);
    insta::assert_snapshot!(read("grep=line+1[0-9]%24&context=1").await, @r#"200 {"content":"9- line 9\n10: line 10\n11: line 11\n12: line 12\n13: line 13\n14: line 14\n15: line 15\n16: line 16\n17: line 17\n18: line 18\n19: line 19\n20- line 20\n"}"#);
    insta::assert_snapshot!(read("grep=nothing").await, @r#"200 {"content":"","note":"No line matches the pattern."}"#);
    insta::assert_snapshot!(read("jsonPath=$.a").await, @r#"400 {"code":"bad_request","message":"the output is not a JSON document: expected value at line 1 column 1; read it with lines, grep or search"}"#);
    insta::assert_snapshot!(read("lines=0").await, @r#"400 {"code":"bad_request","message":"lines must be like 10-20, 10- or 10"}"#);
    insta::assert_snapshot!(read("grep=(").await, @r#"400 {"code":"bad_request","message":"the pattern is not a valid regular expression: unclosed group"}"#);
    insta::assert_snapshot!(read("lines=5-3").await, @r#"400 {"code":"bad_request","message":"invalid range: line 3 is before line 5"}"#);
    insta::assert_snapshot!(read("lins=5").await, @r#"400 {"code":"bad_request","message":"lins: unknown field `lins`, expected one of `grep`, `ignoreCase`, `context`, `lines`, `jsonPath`, `cursor`"}"#);
    insta::assert_snapshot!(read("lines=1&grep=x").await, @r#"400 {"code":"bad_request","message":"give only one of grep, lines, jsonPath and cursor"}"#);
    insta::assert_snapshot!(read("context=1").await, @r#"400 {"code":"bad_request","message":"ignoreCase and context require grep"}"#);
}

#[tokio::test]
async fn outputs_are_private_to_their_principal() {
    let (api, _runtime, _) = api_with(json!({"toolResponseMaxBytes": 500})).await;
    let ann = ApiServer::start(&api, ApiScope::Principal("ann".to_owned())).await;
    let bob = ApiServer::start(&api, ApiScope::Principal("bob".to_owned())).await;
    let handle = store(&ann).await;
    let path = format!("/outputs/{handle}");
    assert_eq!(bob.get("/outputs").await.1, json!({"outputs": Value::Array(Vec::new())}));
    assert_eq!((bob.get(&path).await.0, bob.delete(&path).await.0), (404, 404));
    assert_eq!((ann.get(&path).await.0, ann.delete(&path).await.0), (200, 204));
}
