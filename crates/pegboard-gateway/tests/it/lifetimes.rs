//! Lifetimes of sessions, open toolboxes and stored outputs.

use std::sync::Arc;

use pegboard_core::chain::ChainSpec;
use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_runtime::{Runtime, RuntimeBuilder};
use pegboard_stores::sqlite::Database;
use pegboard_wire::client::Era;
use serde_json::{Value, json};
use tokio::time::{self, Duration};

use crate::fixture::{
    ERAS, call, connect, echo_tool, gateway, mcp_server, scripted_tool, text, text_output, tool_names,
    use_tool, wait_until,
};

fn runtime_builder(settings: Value) -> RuntimeBuilder {
    let settings: RuntimeSettings = serde_json::from_value(settings).unwrap();
    let big = scripted_tool("big", |_| Ok(text_output(&"a line of a large text\n".repeat(100))));
    Runtime::builder()
        .settings(settings)
        .outputs(Arc::new(Database::in_memory()))
        .toolbox("t", "")
        .provide("s", mcp_server([big, echo_tool("s", "small")]))
}

#[tokio::test]
async fn a_caller_ends_with_its_session() {
    let runtime = runtime_builder(json!({})).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let (client, _) = connect(&gateway, None, Era::Session).await;
    assert_eq!(runtime.callers().len(), 0, "an idle client has no caller");
    call(&client, "open_toolbox", json!({"toolbox": "t"})).await;
    assert_eq!(runtime.callers().len(), 1);
    drop(client);
    wait_until(|| runtime.callers().is_empty()).await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    let refused = text(&use_tool(&client, ["t", "s", "small"], json!({})).await);
    assert!(refused.contains("is not open"), "{refused}");
}

#[tokio::test]
async fn many_sessions_leave_no_callers_behind() {
    let runtime = runtime_builder(json!({})).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let mut clients = Vec::new();
    for _ in 0..100 {
        let (client, _) = connect(&gateway, None, Era::Session).await;
        tool_names(&client).await;
        clients.push(client);
    }
    assert_eq!(runtime.callers().len(), 100);
    clients.clear();
    wait_until(|| runtime.callers().is_empty()).await;
}

#[tokio::test]
async fn a_stateless_request_keeps_no_caller() {
    let runtime = runtime_builder(json!({})).start().await.unwrap();
    let (client, _) = connect(&gateway(&runtime, json!({})), None, Era::Stateless).await;
    assert_eq!(text(&use_tool(&client, ["t", "s", "small"], json!({})).await), "s/small {}");
    wait_until(|| runtime.callers().is_empty()).await;
}

#[tokio::test]
async fn tool_output_is_listed_once_an_output_is_stored() {
    for profile in ["meta", "flat", "hybrid"] {
        let runtime = runtime_builder(json!({"toolResponseMaxBytes": 300})).start().await.unwrap();
        let gateway = gateway(&runtime, json!({}));
        let (client, notifications) = connect(&gateway, Some(profile), Era::Session).await;
        let is_listed = async || tool_names(&client).await.contains(&"tool_output".to_owned());
        assert!(!is_listed().await, "{profile}");
        call(&client, "open_toolbox", json!({"toolbox": "t"})).await;
        notifications.take();
        let stored = use_tool(&client, ["t", "s", "big"], json!({})).await;
        let stored_text = text(&stored);
        assert_eq!(
            time::timeout(Duration::from_secs(10), notifications.next()).await.unwrap(),
            "notifications/tools/list_changed"
        );
        assert!(is_listed().await, "{profile}");
        let (other, _) = connect(&gateway, Some(profile), Era::Session).await;
        assert!(!tool_names(&other).await.contains(&"tool_output".to_owned()), "{profile}");
        let handle = stored_text.split('"').find(|part| part.starts_with("session-")).unwrap_or_default();
        let read = call(&client, "tool_output", json!({"handle": handle, "mode": "head", "lines": 1})).await;
        assert!(text(&read).contains("a line of a large text"), "{stored_text}\n{read}");
    }
}

#[tokio::test]
async fn stateless_tool_lists_do_not_change_after_a_call() {
    for (settings, is_listed) in [(json!({"toolResponseMaxBytes": 300}), true), (json!({}), false)] {
        let runtime = runtime_builder(settings).start().await.unwrap();
        let (client, _) = connect(&gateway(&runtime, json!({})), None, Era::Stateless).await;
        let before = tool_names(&client).await;
        use_tool(&client, ["t", "s", "big"], json!({})).await;
        assert_eq!(tool_names(&client).await, before);
        assert_eq!(before.contains(&"tool_output".to_owned()), is_listed);
    }
}

#[tokio::test]
async fn an_output_limit_of_one_tool_lists_tool_output() {
    for (server, is_listed) in [
        (json!({"toolResponseMaxBytes": 300}), true),
        (json!({"tools": {"big": {"toolResponseMaxBytes": 300}}}), true),
        (json!({}), false),
    ] {
        let server: ServerSettings = serde_json::from_value(server).unwrap();
        let builder = runtime_builder(json!({}))
            .provide("capped", mcp_server([echo_tool("capped", "big")]))
            .server_settings(server);
        let runtime = builder.start().await.unwrap();
        let (client, _) = connect(&gateway(&runtime, json!({})), None, Era::Stateless).await;
        assert_eq!(tool_names(&client).await.contains(&"tool_output".to_owned()), is_listed);
    }
}

#[tokio::test]
async fn calls_can_be_batched_and_chained() {
    let chain = json!({"chain": "twice", "steps": [{"tool": "s__small", "with": {"n": "n"}, "as": "out"}], "output": "out"});
    let chain: ChainSpec = serde_json::from_value(chain).unwrap();
    let runtime = runtime_builder(json!({})).chain(chain).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    for era in ERAS {
        let (client, _) = connect(&gateway, None, era).await;
        call(&client, "open_toolbox", json!({"toolbox": "t"})).await;
        let calls = json!([{"tool": "s__small", "arguments": {"n": 1}}, {"tool": {"toolbox": "t", "server": "s", "name": "nope"}}]);
        let batch = call(&client, "batch", json!({"calls": calls})).await;
        let results = &batch["structuredContent"]["results"];
        assert_eq!(
            (&results[0]["output"], &results[1]["error"]["code"]),
            (&json!(r#"s/small {"n":1}"#), &json!("UNKNOWN_TOOL"))
        );
        let steps = json!([{"tool": "s__small", "with": {"x": "start"}, "as": "first"}, {"tool": "s__small", "with": {"y": "first"}, "as": "second"}]);
        let chain =
            call(&client, "run_chain", json!({"steps": steps, "input": {"start": 7}, "output": "second"}))
                .await;
        assert_eq!(text(&chain), r#"s/small {"y":"s/small {\"x\":7}"}"#);
        let chain = call(&client, "run_chain", json!({"chain": "twice", "input": {"n": 2}})).await;
        assert_eq!(text(&chain), r#"s/small {"n":2}"#);
        let mut refused = Vec::new();
        for arguments in
            [json!({}), json!({"chain": "nightly"}), json!({"steps": []}), json!({"steps": [], "more": 1})]
        {
            refused.push(text(&call(&client, "run_chain", arguments).await));
        }
        insta::allow_duplicates! {
            insta::assert_snapshot!(refused.join("\n"), @"
            isError: Invalid arguments: invalid_chain_input: missing 'chain' or 'steps'
            isError: Unknown tool: chain__nightly. Did you mean 'chain__twice'?
            isError: Invalid arguments: Chain has no steps.
            isError: Invalid arguments: invalid_chain_input: unknown key 'more': expected one of chain, steps, input, output
            ");
        }
    }
}
