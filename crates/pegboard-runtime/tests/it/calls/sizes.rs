//! Answers that are too large: stored, read back, truncated, and passed to other tools.

use std::sync::Arc;

use pegboard_core::call::{Call, CallOrigin, CallResult, Invoker};
use pegboard_core::entry::ToolEntry;
use pegboard_core::output::Output;
use pegboard_core::owner::Owner;
use pegboard_core::provider::LocalProvider;
use pegboard_json::RawJson;
use pegboard_runtime::event::{RuntimeEvent, StoreReason};
use pegboard_runtime::{Caller, CallerOptions, Runtime};
use pegboard_stores::limits::{DatabaseLimits, OutputLimits};
use pegboard_stores::sqlite::Database;
use serde_json::{Value, json};

use crate::calls::fixtures::{ExecutionLog, builder, call, caller, line, test_runtime};

async fn runtime_with_limit(max_bytes: usize) -> Runtime {
    test_runtime(&ExecutionLog::default(), json!({"toolResponseMaxBytes": max_bytes}), json!({})).await
}

fn handle(ended: &CallResult) -> String {
    ended.meta.stored.as_ref().expect("the output is stored").to_string()
}

#[tokio::test]
async fn a_large_answer_is_stored_and_can_be_read_back_whole() {
    let runtime = runtime_with_limit(1_000).await;
    let caller = caller(&runtime);
    let mut events = runtime.events().subscribe();
    let ended = call(&caller, "t__big", json!({"bytes": 2_500})).await;
    let handle = handle(&ended);
    let text = line(&ended).replace(&handle, "session-…/…");
    insta::assert_snapshot!(text, @r#"
    The output is too large to show (2500 bytes, 109 lines, about 625 tokens), so it is stored.
    Read it with the tool `tool_output`: give `handle` = "session-…/…" and say in `extract` what you are looking for, or choose a `mode`: head, tail, lines, grep, search, jsonpath or stats.
    The handle is relative to the root of the store: copy it exactly.
    "#);
    let result = ended.result.unwrap().to_result().to_value();
    assert_eq!(result["content"][1]["type"], "resource_link");
    assert_eq!(result["content"][1]["uri"], format!("pegboard://outputs/{handle}"));
    assert_eq!(result["content"][1]["mimeType"], "text/plain");
    let stored = std::iter::from_fn(|| events.try_recv().ok()).find_map(|event| match event {
        RuntimeEvent::OutputStored { reason, n_bytes, .. } => Some((reason, n_bytes)),
        _ => None,
    });
    assert_eq!(stored, Some((StoreReason::SizeCap, 2_500)));

    let mut read = String::new();
    let mut arguments = json!({"handle": handle, "mode": "lines", "from": 1});
    for _ in 0..10 {
        let page = line(&call(&caller, "tool_output", arguments).await);
        assert!(page.len() <= 1_000);
        let Some((content, note)) = page.split_once('…') else {
            read.push_str(&page);
            break;
        };
        read.push_str(content);
        let cursor = note.split_once("continue with ").unwrap().1.split_once(" and the same").unwrap().0;
        let next: Value = serde_json::from_str(cursor).unwrap();
        arguments = json!({"handle": handle, "mode": next["mode"], "cursor": next["cursor"]});
    }
    let whole = line(
        &call(
            &crate::calls::fixtures::caller(&runtime_with_limit(usize::MAX).await),
            "t__big",
            json!({"bytes": 2_500}),
        )
        .await,
    );
    assert_eq!(read, whole);
}

#[tokio::test]
async fn the_output_limit_depends_on_caller_and_tool() {
    let twenty_k = json!({"bytes": 20_000});
    let cases = [
        (json!({}), json!({}), CallOrigin::Client, false),
        (json!({}), json!({}), CallOrigin::Program, false),
        (json!({}), json!({}), CallOrigin::Agent, true),
        (json!({"toolResponseMaxBytes": 100}), json!({}), CallOrigin::Client, true),
        (
            json!({"toolResponseMaxBytes": 100}),
            json!({"toolResponseMaxBytes": 50_000}),
            CallOrigin::Agent,
            false,
        ),
        (json!({}), json!({"tools": {"big": {"toolResponseMaxBytes": 5}}}), CallOrigin::Client, true),
    ];
    for (settings, server, origin, is_stored) in cases {
        let runtime = test_runtime(&ExecutionLog::default(), settings.clone(), server.clone()).await;
        let mut call = Call::new("t__big", twenty_k.clone());
        call.context.origin = origin;
        let ended = caller(&runtime).start(call).await;
        assert_eq!(ended.meta.stored.is_some(), is_stored, "{settings} {server} {origin:?}");
    }
}

#[tokio::test]
async fn a_handle_is_valid_in_its_session_only() {
    let runtime = runtime_with_limit(100).await;
    let of =
        |name: &str| runtime.caller(CallerOptions { owner: Owner::new(name), ..CallerOptions::default() });
    let (ann, other_ann, eve) = (of("ann"), of("ann"), of("eve"));
    let handle = handle(&call(&ann, "t__big", json!({"bytes": 500})).await);
    for (caller, is_there) in [(&ann, true), (&other_ann, false), (&eve, false)] {
        let text =
            line(&call(caller, "tool_output", json!({"handle": handle, "mode": "head", "lines": 1})).await);
        assert_eq!(text.starts_with("a line"), is_there, "{text}");
        let reference = json!({"x": {"$output": handle}});
        let filled = call(caller, "t__echo", reference).await.result.map_err(|error| error.text());
        assert_eq!(filled.is_ok(), is_there, "{filled:?}");
        assert!(is_there || filled.unwrap_err().contains("No output is stored"));
    }
}

#[tokio::test]
async fn invalid_requests_are_explained() {
    let runtime = runtime_with_limit(100).await;
    let caller = caller(&runtime);
    let handle = handle(&call(&caller, "t__big", json!({"bytes": 500})).await);
    let cases = [
        (
            json!({}),
            "invalid_parameters: Invalid arguments: Invalid tool_output parameters: handle and extract are required.",
        ),
        (
            json!({"handle": handle}),
            "invalid_parameters: Invalid arguments: Invalid tool_output parameters: handle and extract are required.",
        ),
        (
            json!({"handle": "session-1/../../etc/passwd", "mode": "stats"}),
            "No output is stored under the handle 'session-1/../../etc/passwd' for this session; it may have expired.",
        ),
        (json!({"handle": handle, "mode": "jsonpath", "path": "$.a"}), "the output is not a JSON document"),
    ];
    for (arguments, expected) in cases {
        let ended = call(&caller, "tool_output", arguments.clone()).await;
        let text = match &ended.result {
            Ok(_) => line(&ended),
            Err(error) => format!("{}: {}", error.kind().as_str(), error.text()),
        };
        assert!(text.contains(expected), "{arguments}: {text}");
    }
}

#[tokio::test]
async fn modes_that_need_a_model_fall_back_to_beginning_and_end() {
    let runtime = runtime_with_limit(2_000).await;
    let caller = caller(&runtime);
    let handle = handle(&call(&caller, "t__big", json!({"bytes": 50_000})).await);
    for mode in ["auto", "full-chunked", "read-grep"] {
        let text = line(
            &call(&caller, "tool_output", json!({"handle": handle, "mode": mode, "extract": "all"})).await,
        );
        assert!(text.starts_with("No model is configured for mode"), "{text}");
        assert!(text.contains("[···TRUNCATED") && text.len() <= 2_000, "{}", text.len());
    }
}

#[tokio::test]
async fn stored_outputs_expire() {
    // Paused only from here on: the store itself needs no time.
    tokio::time::pause();
    let settings = json!({"toolResponseMaxBytes": 100, "toolOutput": {"expiresAfter": "1h"}});
    let runtime = test_runtime(&ExecutionLog::default(), settings, json!({})).await;
    let caller = caller(&runtime);
    let handle = handle(&call(&caller, "t__big", json!({"bytes": 500})).await);
    let read = || call(&caller, "tool_output", json!({"handle": handle, "mode": "stats"}));
    assert!(!line(&read().await).contains("expired"));
    tokio::time::advance(std::time::Duration::from_mins(61)).await;
    assert!(line(&read().await).contains("it may have expired"));
}

#[tokio::test]
async fn without_storage_the_answer_is_truncated() {
    let off = json!({"toolResponseMaxBytes": 600, "toolOutput": {"enabled": false}});
    let outputs = OutputLimits { max_bytes: 10, ..OutputLimits::default() };
    let full = Arc::new(Database::in_memory_with(DatabaseLimits { outputs, ..DatabaseLimits::default() }));
    let runtimes = [
        test_runtime(&ExecutionLog::default(), off, json!({})).await,
        builder(&ExecutionLog::default(), json!({"toolResponseMaxBytes": 600}), json!({}))
            .outputs(full)
            .start()
            .await
            .unwrap(),
    ];
    for runtime in runtimes {
        let ended = call(&caller(&runtime), "t__big", json!({"bytes": 1_000})).await;
        let text = line(&ended);
        assert!(text.len() <= 600 && text.contains("[···TRUNCATED 450 bytes···]"), "{text}");
        assert!(ended.meta.stored.is_none());
    }
}

#[tokio::test]
async fn a_session_has_a_token_budget() {
    let settings = json!({"toolOutput": {"sessionTokenBudget": 100}});
    let runtime = test_runtime(&ExecutionLog::default(), settings, json!({})).await;
    let caller = caller(&runtime);
    let mut events = runtime.events().subscribe();
    let mut is_stored = Vec::new();
    for bytes in [200, 300, 150] {
        is_stored.push(call(&caller, "t__big", json!({"bytes": bytes})).await.meta.stored.is_some());
    }
    assert_eq!(is_stored, [false, true, false], "50 tokens, 75 are too many, 37 fit");
    let reasons: Vec<StoreReason> = std::iter::from_fn(|| events.try_recv().ok())
        .filter_map(|event| match event {
            RuntimeEvent::OutputStored { reason, .. } => Some(reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, [StoreReason::TokenBudget]);
}

/// A runtime with the server `s` and its tools `result`, which returns a fixed result, and `echo`, which
/// returns its arguments.
async fn runtime_answering(result: Value, max_bytes: usize) -> (Runtime, Caller) {
    struct RawTool(RawJson);
    impl pegboard_core::handler::Handler for RawTool {
        fn call<'a>(
            &'a self,
            _: &'a pegboard_core::call::ValidCall,
        ) -> futures_util::future::BoxFuture<'a, Result<Output, pegboard_core::error::CallError>> {
            let output = Output::result(self.0.clone());
            Box::pin(std::future::ready(Ok(output)))
        }
    }
    let raw = ToolEntry::from_handler("raw", "", Arc::new(RawTool(RawJson::from(result))));
    let echo = ToolEntry::from_fn("echo", "", |value: Value| async move { Ok(value) });
    let runtime = Runtime::builder()
        .outputs(Arc::new(Database::in_memory()))
        .provide("s", LocalProvider::new([raw, echo]))
        .server_settings(
            serde_json::from_value(json!({"tools": {"raw": {"toolResponseMaxBytes": max_bytes}}})).unwrap(),
        )
        .start()
        .await
        .unwrap();
    let caller = caller(&runtime);
    (runtime, caller)
}

#[tokio::test]
async fn a_stored_output_can_be_passed_to_another_tool() {
    let rows: Vec<Value> = (0..100).map(|n| json!({"id": n, "name": format!("row {n}")})).collect();
    let text = serde_json::to_string(&json!({"rows": rows})).unwrap();
    let (_runtime, caller) =
        runtime_answering(json!({"content": [{"type": "text", "text": text}]}), 100).await;
    let handle = handle(&call(&caller, "s__raw", json!({})).await);
    let cases = [
        (json!({"x": {"$output": format!("{handle}#$.rows[3].name")}}), json!({"x": "row 3"})),
        (json!([{"$output": format!("{handle}#rows[0]")}]), json!([{"id": 0, "name": "row 0"}])),
        (json!({"a": {"b": {"$output": format!("{handle}#$.rows[0:2].id")}}}), json!({"a": {"b": [0, 1]}})),
        (json!({"x": {"$output": handle, "other": 1}}), json!({"x": {"$output": handle, "other": 1}})),
    ];
    for (given, expected) in cases {
        let ended = call(&caller, "s__echo", given.clone()).await;
        assert_eq!(ended.result.unwrap().into_data(), expected, "{given}");
    }
    let ended = call(&caller, "s__echo", json!({"x": {"$output": format!("{handle}#$.nowhere")}})).await;
    let text = ended.result.unwrap_err().text();
    assert!(text.contains("#$.nowhere\"}: no match for the path"), "{text}");
}

#[tokio::test]
async fn the_readable_part_of_an_answer_is_stored() {
    let long = "x".repeat(300);
    let structured = json!({"text": long, "n": 1.5});
    let cases = [
        (
            json!({"content": [{"type": "text", "text": long}, {"type": "text", "text": "y"}]}),
            "text/plain",
            301,
        ),
        (
            json!({"content": [{"type": "text", "text": structured.to_string()}], "structuredContent": structured}),
            "application/json",
            structured.to_string().len(),
        ),
        (
            json!({"content": [{"type": "image", "data": long, "mimeType": "image/png"}]}),
            "application/json",
            0,
        ),
    ];
    for (result, content_type, n_bytes) in cases {
        let n_bytes = if n_bytes == 0 { result.to_string().len() } else { n_bytes };
        let (_runtime, caller) = runtime_answering(result, 100).await;
        let ended = call(&caller, "s__raw", json!({})).await;
        let handed = ended.result.unwrap().to_result().to_value();
        assert_eq!(handed["content"][1]["mimeType"], content_type);
        assert_eq!(handed["content"][1]["size"], n_bytes);
        assert!(handed.get("structuredContent").is_none());
    }
}

#[tokio::test]
async fn an_error_answer_keeps_its_error_flag_and_metadata() {
    let result = json!({
        "content": [{"type": "text", "text": "no ".repeat(200)}], "isError": true, "_meta": {"trace": 7}
    });
    let (_runtime, caller) = runtime_answering(result, 100).await;
    let output = call(&caller, "s__raw", json!({})).await.result.unwrap();
    assert!(output.is_error());
    assert_eq!(output.to_result().to_value()["_meta"], json!({"trace": 7}));
}

#[tokio::test]
async fn ending_a_session_removes_its_outputs() {
    let runtime = runtime_with_limit(100).await;
    let caller = caller(&runtime);
    assert!(!caller.has_stored_output());
    call(&caller, "t__big", json!({"bytes": 500})).await;
    assert!(caller.has_stored_output());
    let store_is_empty = |runtime: &Runtime| runtime.callers().is_empty();
    caller.end().await;
    assert!(store_is_empty(&runtime));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_slow_query_blocks_neither_its_caller_nor_others() {
    let one_line = "ab".repeat(1 << 20);
    let (_runtime, caller) =
        runtime_answering(json!({"content": [{"type": "text", "text": one_line}]}), 100).await;
    let handle = handle(&call(&caller, "s__raw", json!({})).await);
    let mut slow = Call::new(
        "tool_output",
        json!({"handle": handle, "mode": "grep", "pattern": "(?:[ab]{1,30}){1,10}c"}),
    );
    slow.context.deadline = Some(tokio::time::Instant::now() + std::time::Duration::from_millis(50));
    let (slow, quick) = tokio::join!(caller.start(slow), call(&caller, "s__echo", json!({"a": 1})));
    assert_eq!(line(&slow), "timeout: The caller's deadline passed before the tool answered");
    assert_eq!(line(&quick), r#"{"a":1}"#);
}
