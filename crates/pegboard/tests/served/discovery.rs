//! `get_tools` through the program.

use pegboard::wire::client::{Era, McpClient};
use serde_json::{Value, json};

use crate::harness::{TestEnvironment, call, open, text, with_every_client};

/// Two servers, one with context parameters.
fn library(environment: &TestEnvironment) -> Value {
    let servers = json!({
        "contentManager": environment.server("contentManager", &["readContent", "listContent"]),
        "my_git": environment.server("my_git", &["log", "diff"]),
    });
    json!({"toolboxes": {"vault": {"description": "Notes and their history", "mcpServers": servers}}})
}

async fn get_tools(client: &McpClient, arguments: Value) -> Value {
    let result = call(client, "get_tools", arguments).await;
    serde_json::from_str(text(&result).trim_start_matches("isError: ")).unwrap()
}

#[tokio::test]
async fn without_a_request_there_is_an_overview_without_schemas() {
    with_every_client(library, None, async |connected| {
        open(&connected.client, "vault").await;
        // D6
        for arguments in [json!({}), json!({"tools": []})] {
            let overview = get_tools(&connected.client, arguments).await;
            insta::allow_duplicates! {
                insta::assert_snapshot!(overview, @r#"{"success":true,"overview":{"contentManager":{"toolbox":"vault","description":"Notes and their history","modes":["readContent","listContent"]},"my_git":{"toolbox":"vault","description":"Notes and their history","modes":["log","diff"]}},"workspaceId":"default","instruction":"Ask for the schemas of the tools you need, several at once: get_tools {\"tools\": {SERVER: [MODE, …]}}. Do not ask for the overview again."}"#);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn grouped_and_flat_requests_are_the_same_and_schemas_are_without_context() {
    with_every_client(library, None, async |connected| {
        open(&connected.client, "vault").await;
        let grouped = json!({"tools": {"contentManager": ["readContent", "listContent"], "my_git": ["log"]}});
        let flat =
            json!({"tools": ["contentManager_readContent", "contentManager_listContent", "my_git_log"]});
        let (grouped, flat) = (get_tools(&connected.client, grouped).await, get_tools(&connected.client, flat).await);
        // D7
        assert_eq!(grouped, flat);
        // D8, D28
        let tools: Vec<String> =
            grouped["tools"].as_array().unwrap().iter().map(ToString::to_string).collect();
        insta::allow_duplicates! {
            insta::assert_snapshot!(tools.join("\n"), @r#"
            {"name":"contentManager_readContent","title":"Read Content","description":"The tool readContent","inputSchema":{"type":"object","properties":{"filePath":{"type":"string"}},"required":["filePath"]},"tool":{"toolbox":"vault","server":"contentManager","name":"readContent"}}
            {"name":"contentManager_listContent","title":"List Content","description":"The tool listContent","inputSchema":{"type":"object","properties":{}},"tool":{"toolbox":"vault","server":"contentManager","name":"listContent"}}
            {"name":"my_git_log","title":"Log","description":"The tool log","inputSchema":{"type":"object"},"tool":{"toolbox":"vault","server":"my_git","name":"log"}}
            "#);
        }
        let used = json!({"tool": grouped["tools"][2]["tool"], "arguments": {"n": 1}});
        assert_eq!(text(&call(&connected.client, "use_tool", used).await), r#"my_git/log {"n":1}"#);
    })
    .await;
}

#[tokio::test]
async fn unknown_names_get_suggestions() {
    with_every_client(library, None, async |connected| {
        open(&connected.client, "vault").await;
        // D9
        let some = get_tools(&connected.client, json!({"tools": ["my_git_log", "my_git_lug"]})).await;
        assert_eq!((&some["success"], &some["toolCount"]), (&json!(true), &json!(1)));
        assert_eq!(some["notFound"][0]["name"], "my_git_lug");
        assert_eq!(some["notFound"][0]["nearest"][0], "my_git_log");
        let none = call(&connected.client, "get_tools", json!({"tools": ["my_git_lug", "x"]})).await;
        insta::allow_duplicates! {
            insta::assert_snapshot!(text(&none), @r#"isError: {"success":false,"error":"No valid tools found for: my_git_lug, x","notFound":[{"name":"my_git_lug","nearest":["my_git_log","my_git_diff"]},{"name":"x"}]}"#);
        }
    })
    .await;
}

#[tokio::test]
async fn the_third_identical_request_gets_a_hint() {
    with_every_client(library, None, async |connected| {
        open(&connected.client, "vault").await;
        // D26: without a session callers cannot be distinguished.
        let mut hints = Vec::new();
        for _ in 0..3 {
            let answer = get_tools(&connected.client, json!({"tools": ["my_git_log"]})).await;
            assert_eq!((&answer["success"], &answer["toolCount"]), (&json!(true), &json!(1)));
            hints.push(answer["hint"].is_string());
        }
        assert_eq!(hints, [false, false, connected.era == Era::Session]);
    })
    .await;
}
