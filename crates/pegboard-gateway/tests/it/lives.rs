//! How long things last: sessions, what they opened, and what was stored for them.

use std::sync::Arc;

use pegboard_core::chain::ChainSpec;
use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_runtime::{Builder, Runtime};
use pegboard_stores::limits::OutputLimits;
use pegboard_stores::memory;
use pegboard_wire::client::Era;
use serde_json::{Value, json};
use tokio::time::{self, Duration};

use crate::stage::{ERAS, call, connect, gateway, listed, mcp, said, scripted, tells, text, until, use_tool};

fn storing(settings: Value) -> Builder {
    let settings: RuntimeSettings = serde_json::from_value(settings).unwrap();
    let big = scripted("big", |_| Ok(said(&"a line of a large text\n".repeat(100))));
    Runtime::builder()
        .settings(settings)
        .outputs(Arc::new(memory::Outputs::new(OutputLimits::default())))
        .toolbox("t", "")
        .provide("s", mcp([big, tells("s", "small")]))
}

#[tokio::test]
async fn the_caller_of_a_session_is_gone_when_the_session_is() {
    let runtime = storing(json!({})).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let (client, _) = connect(&gateway, None, Era::Session).await;
    assert_eq!(runtime.callers().len(), 0, "nothing is kept for a client that has not asked for anything");
    call(&client, "open_toolbox", json!({"toolbox": "t"})).await;
    assert_eq!(runtime.callers().len(), 1);
    drop(client);
    until(|| runtime.callers().is_empty()).await;
    let (client, _) = connect(&gateway, None, Era::Session).await;
    let refused = text(&use_tool(&client, ["t", "s", "small"], json!({})).await);
    assert!(refused.contains("is not open"), "{refused}");
}

#[tokio::test]
async fn many_sessions_come_and_go_and_leave_nothing() {
    let runtime = storing(json!({})).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let mut clients = Vec::new();
    for _ in 0..100 {
        let (client, _) = connect(&gateway, None, Era::Session).await;
        listed(&client).await;
        clients.push(client);
    }
    assert_eq!(runtime.callers().len(), 100);
    clients.clear();
    until(|| runtime.callers().is_empty()).await;
}

#[tokio::test]
async fn a_stateless_request_keeps_nobody() {
    let runtime = storing(json!({})).start().await.unwrap();
    let (client, _) = connect(&gateway(&runtime, json!({})), None, Era::Stateless).await;
    assert_eq!(text(&use_tool(&client, ["t", "s", "small"], json!({})).await), "s/small {}");
    until(|| runtime.callers().is_empty()).await;
}

#[tokio::test]
async fn the_tool_that_reads_back_is_listed_once_there_is_something_to_read() {
    for profile in ["meta", "flat", "hybrid"] {
        let runtime = storing(json!({"toolResponseMaxBytes": 300})).start().await.unwrap();
        let gateway = gateway(&runtime, json!({}));
        let (client, heard) = connect(&gateway, Some(profile), Era::Session).await;
        let is_listed = async || listed(&client).await.contains(&"tool_output".to_owned());
        assert!(!is_listed().await, "{profile}");
        call(&client, "open_toolbox", json!({"toolbox": "t"})).await;
        heard.take();
        let stored = use_tool(&client, ["t", "s", "big"], json!({})).await;
        let said = text(&stored);
        assert_eq!(
            time::timeout(Duration::from_secs(10), heard.next()).await.unwrap(),
            "notifications/tools/list_changed"
        );
        assert!(is_listed().await, "{profile}");
        let handle = said.split('"').find(|part| part.starts_with("session-")).unwrap_or_default();
        let read = call(&client, "tool_output", json!({"handle": handle, "mode": "head", "lines": 1})).await;
        assert!(text(&read).contains("a line of a large text"), "{said}\n{read}");
    }
}

#[tokio::test]
async fn stateless_clients_see_the_same_list_before_and_after() {
    for (settings, is_listed) in [(json!({"toolResponseMaxBytes": 300}), true), (json!({}), false)] {
        let runtime = storing(settings).start().await.unwrap();
        let (client, _) = connect(&gateway(&runtime, json!({})), None, Era::Stateless).await;
        let before = listed(&client).await;
        use_tool(&client, ["t", "s", "big"], json!({})).await;
        assert_eq!(listed(&client).await, before);
        assert_eq!(before.contains(&"tool_output".to_owned()), is_listed);
    }
}

#[tokio::test]
async fn a_cap_of_one_tool_is_reason_enough_to_list_the_tool_that_reads_back() {
    for (server, is_listed) in [
        (json!({"toolResponseMaxBytes": 300}), true),
        (json!({"tools": {"big": {"toolResponseMaxBytes": 300}}}), true),
        (json!({}), false),
    ] {
        let server: ServerSettings = serde_json::from_value(server).unwrap();
        let builder =
            storing(json!({})).provide_with("capped", Arc::new(mcp([tells("capped", "big")])), server);
        let runtime = builder.start().await.unwrap();
        let (client, _) = connect(&gateway(&runtime, json!({})), None, Era::Stateless).await;
        assert_eq!(listed(&client).await.contains(&"tool_output".to_owned()), is_listed);
    }
}

#[tokio::test]
async fn calls_can_be_batched_and_chained() {
    let chain = json!({"chain": "twice", "steps": [{"tool": "s__small", "with": {"n": "n"}, "as": "out"}], "output": "out"});
    let chain: ChainSpec = serde_json::from_value(chain).unwrap();
    let runtime = storing(json!({})).chain(chain).start().await.unwrap();
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
            insta::assert_snapshot!(refused.join("\n"), @r"
            isError: invalid_chain_input: give the name of a chain, or steps
            isError: Unknown tool: chain__nightly. Did you mean 'chain__twice'?
            isError: Chain has no steps.
            isError: invalid_chain_input: 'more' means nothing here; there are chain, steps, input, output
            ");
        }
    }
}
