//! Calls with arguments that name their session and workspace.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, CallResult, Invoker, ValidCall};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::owner::OwnerScope;
use pegboard_core::provider::LocalProvider;
use pegboard_core::store::{CallLog, TraceQuery};
use pegboard_json::RawJson;
use pegboard_runtime::{Caller, Runtime};
use pegboard_stores::sqlite::Database;
use serde_json::{Value, json};

use crate::calls::fixtures::{ExecutionLog, builder, caller, line};

async fn with_sessions() -> (Runtime, Arc<Database>) {
    with_settings(json!({})).await
}

async fn with_settings(settings: Value) -> (Runtime, Arc<Database>) {
    let traces = Arc::new(Database::in_memory());
    let runtime = builder(&ExecutionLog::default(), settings, json!({}))
        .sessions(Arc::new(Database::in_memory()))
        .call_log(Arc::clone(&traces) as _)
        .start()
        .await
        .unwrap();
    (runtime, traces)
}

async fn in_context(caller: &Caller, tool: &str, arguments: Value) -> CallResult {
    let mut call = Call::new(tool, arguments);
    call.context.options.reads_context = true;
    caller.start(call).await
}

#[tokio::test]
async fn a_call_without_a_session_gets_one_without_a_notice() {
    let (runtime, _) = with_sessions().await;
    let caller = caller(&runtime);
    let first = in_context(&caller, "t__echo", json!({"a": 1})).await.meta.session.unwrap();
    let second = in_context(&caller, "t__echo", json!({"a": 1})).await.meta.session.unwrap();
    assert_eq!(first.id, second.id);
    assert!(first.id.starts_with("s-") && first.workspace == "default");
    assert_eq!((first.notice, second.notice), (None, None));
}

#[tokio::test]
async fn runtime_keys_do_not_reach_the_tool() {
    let (runtime, _) = with_sessions().await;
    let arguments =
        json!({"a": 1, "sessionId": "x", "context": {"sessionId": "budget work", "workspaceId": "w"}});
    let ended = in_context(&caller(&runtime), "t__echo", arguments.clone()).await;
    assert_eq!(line(&ended), r#"{"a":1}"#);
    // Without `reads_context` the keys belong to the tool.
    let ended = caller(&runtime).start(Call::new("t__echo", arguments.clone())).await;
    assert_eq!(ended.result.unwrap().into_data(), arguments);
    assert_eq!(ended.meta.session, None);
}

#[tokio::test]
async fn a_workspace_is_bound_to_its_session_after_a_successful_call() {
    let (runtime, _) = with_sessions().await;
    let caller = caller(&runtime);
    let cases = [
        ("t__fail", Some("lost"), "lost"),
        ("t__echo", None, "default"),
        ("t__echo", Some("kept"), "kept"),
        ("t__echo", None, "kept"),
    ];
    for (tool, requested, expected) in cases {
        let mut context = json!({"primaryGoal": "save"});
        if let Some(workspace) = requested {
            context["workspaceId"] = workspace.into();
        }
        let ended = in_context(&caller, tool, json!({"context": context})).await;
        assert_eq!(ended.meta.session.unwrap().workspace, expected, "{tool} {requested:?}");
    }
}

#[tokio::test]
async fn calls_are_recorded() {
    let (runtime, traces) = with_settings(json!({"tracePayloads": true})).await;
    let caller = caller(&runtime);
    let context = json!({"sessionId": "budget work", "primaryGoal": "save", "workspaceId": "w"});
    in_context(&caller, "t__echo", json!({"filePath": "a.md", "token": "s3cr3t-value", "context": context}))
        .await;
    in_context(&caller, "t__fail", json!({"query": "x", "context": context})).await;
    runtime.shut_down(std::time::Duration::from_secs(1)).await;
    let query =
        TraceQuery { scope: OwnerScope::All, workspace: Some("w".to_owned()), session: None, limit: 10 };
    let records = traces.traces(query).await.unwrap();
    let contents: Vec<&str> = records.iter().map(|record| record.content.as_str()).collect();
    assert_eq!(
        contents,
        [r#"Failed to execute t.fail with query: "x""#, "Successfully executed t.echo on file: a.md"]
    );
    let metadata = &records[1].metadata;
    assert_eq!(metadata["tool"], json!({"id": "t.echo", "agent": "t", "mode": "echo"}));
    assert_eq!(metadata["context"]["primaryGoal"], "save");
    assert_eq!(metadata["input"]["arguments"], json!({"filePath": "a.md", "token": "[redacted]"}));
    assert_eq!(records[0].metadata["outcome"]["error"]["message"], "boom");
}

#[tokio::test]
async fn arguments_are_recorded_only_with_payloads() {
    for (settings, trace, is_there) in
        [(json!({}), false, false), (json!({}), true, true), (json!({"tracePayloads": true}), false, true)]
    {
        let (runtime, traces) = with_settings(settings).await;
        let mut call =
            Call::new("t__echo", json!({"filePath": "hidden", "query": "hidden", "other": "hidden"}));
        call.context.options.reads_context = true;
        call.context.options.trace = trace;
        caller(&runtime).start(call).await;
        runtime.shut_down(std::time::Duration::from_secs(1)).await;
        let query = TraceQuery { scope: OwnerScope::All, workspace: None, session: None, limit: 10 };
        let record = serde_json::to_string(&traces.traces(query).await.unwrap()[0]).unwrap();
        assert_eq!(record.contains("hidden"), is_there, "{record}");
    }
}

#[tokio::test]
async fn an_invalid_session_name_is_refused() {
    let (runtime, _) = with_sessions().await;
    let ended =
        in_context(&caller(&runtime), "t__echo", json!({"context": {"sessionId": "x".repeat(200)}})).await;
    let text = ended.result.unwrap_err().text();
    assert!(text.starts_with("Invalid arguments: $.context.sessionId:"), "{text}");
}

#[tokio::test]
async fn runtime_keys_do_not_reach_the_tool_without_a_session_store() {
    let runtime = builder(&ExecutionLog::default(), json!({}), json!({})).start().await.unwrap();
    let ended =
        in_context(&caller(&runtime), "t__echo", json!({"a": 1, "context": {"sessionId": "x"}})).await;
    assert_eq!((line(&ended).as_str(), ended.meta.session), (r#"{"a":1}"#, None));
}

#[tokio::test]
async fn the_source_of_the_workspace_is_reported() {
    let (runtime, _) = with_sessions().await;
    let caller = caller(&runtime);
    let cases = [
        (json!({}), "Default"),
        (json!({"context": {"workspaceId": "w"}}), "Context"),
        (
            json!({"workspaceContext": {"workspaceId": "v"}, "context": {"workspaceId": "w"}}),
            "WorkspaceContext",
        ),
        (json!({}), "Session"),
    ];
    for (arguments, expected) in cases {
        let session = in_context(&caller, "t__echo", arguments).await.meta.session.unwrap();
        assert_eq!(format!("{:?}", session.workspace_source), expected);
    }
}

/// A tool that fails without a message.
struct FailsWithoutMessage;

impl Handler for FailsWithoutMessage {
    fn call<'a>(&'a self, _call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        let result = RawJson::from(json!({"content": [], "isError": true}));
        std::future::ready(Ok(Output::result(result))).boxed()
    }
}

#[tokio::test]
async fn a_failure_without_a_message_is_recorded_as_unknown() {
    let traces = Arc::new(Database::in_memory());
    let wordless = ToolEntry::from_handler("wordless", "", Arc::new(FailsWithoutMessage));
    let runtime = Runtime::builder()
        .sessions(Arc::new(Database::in_memory()))
        .call_log(Arc::clone(&traces) as _)
        .provide("t", LocalProvider::new([wordless]))
        .start()
        .await
        .unwrap();
    in_context(&caller(&runtime), "t__wordless", json!({})).await;
    runtime.shut_down(std::time::Duration::from_secs(1)).await;
    let query = TraceQuery { scope: OwnerScope::All, workspace: None, session: None, limit: 10 };
    let records = traces.traces(query).await.unwrap();
    assert_eq!(records[0].metadata["outcome"]["error"]["message"], "Unknown error");
}
