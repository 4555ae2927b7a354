//! Operation tree, accounting, events, and argument validation.

use pegboard_core::call::{Call, CallOrigin, Invoker};
use pegboard_core::entry::ToolEntry;
use pegboard_core::provider::{LocalProvider, ToolKind};
use pegboard_core::settings::{RuntimeSettings, ServerSettings};
use pegboard_runtime::Runtime;
use pegboard_runtime::event::RuntimeEvent;
use pegboard_runtime::optree::AccountingScope;
use serde_json::{Value, json};

use crate::calls::fixtures::{ExecutionLog, call, caller, line, test_runtime};

#[tokio::test(start_paused = true)]
async fn the_tree_shows_all_that_happened() {
    let runtime = test_runtime(
        &ExecutionLog::default(),
        json!({"toolTimeout": 100}),
        json!({"toolsCache": {"echo": "1m"}}),
    )
    .await;
    let caller = caller(&runtime);
    call(&caller, "t__nap", json!({"ms": 40})).await;
    call(&caller, "t__echo", json!({})).await;
    caller.next_turn();
    call(&caller, "t__echo", json!({})).await;
    call(&caller, "t__nap", json!({"ms": 400})).await;
    call(&caller, "t__nothing", json!({})).await;
    call(&caller, "batch", json!({"calls": [{"tool": "t__echo"}, {"tool": "t__fail"}]})).await;
    let ids = regex::Regex::new("[0-9a-f]{8}-[0-9a-f-]{27}").unwrap();
    let drawn = ids.replace_all(&caller.tree().snapshot().to_string(), "…").into_owned();
    insta::assert_snapshot!(drawn, @r"
    … session session-…
    ├─ 1-1 ✓ tool t/t__nap, 40ms, 9 in, 6 out
    ├─ 1-2 ✓ tool t/t__echo, 0s, 2 in, 2 out
    ├─ 2-1 ✓ tool t/t__echo, 0s, 2 in, 2 out, cached
    ├─ 2-2 ✗ tool t/t__nap, 100ms, 10 in: timeout: Tool execution timed out
    ├─ 2-3 ✗ tool t__nothing, 0s, 2 in: unknown_tool: Unknown tool: t__nothing. Did you mean 't__big'?
    └─ 2-4 ✓ tool agent/agent__batch, 0s, 49 in, 536 out
       └─ ✓ session … (agent__batch)
          ├─ 2-4.1-1 ✓ tool t/t__echo, 0s, 2 in, 2 out, cached
          └─ 2-4.1-2 ✗ tool t/t__fail, 0s, 2 in: execution_error: boom
    8 tools, 0 agents
    ");
}

#[tokio::test(start_paused = true)]
async fn every_call_has_an_accounting_entry() {
    let runtime = test_runtime(&ExecutionLog::default(), json!({}), json!({})).await;
    let caller = caller(&runtime);
    call(&caller, "t__echo", json!({"a": 1})).await;
    call(&caller, "t__fail", json!({})).await;
    let entries = serde_json::to_value(caller.tree().accounting(AccountingScope::Own)).unwrap();
    let brief: Vec<Value> = entries
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            json!([
                entry["type"],
                entry["status"],
                entry["mcpServer"],
                entry["command"],
                entry["charactersIn"],
                entry["charactersOut"],
                entry["error"]
            ])
        })
        .collect();
    assert_eq!(
        brief,
        [
            json!(["tool", "ok", "t", "t__echo", 7, 7, null]),
            json!(["tool", "failed", "t", "t__fail", 2, 0, "boom"]),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn every_call_has_a_start_and_an_end_event() {
    let runtime = test_runtime(&ExecutionLog::default(), json!({"toolTimeout": 10}), json!({})).await;
    let caller = caller(&runtime);
    let mut events = runtime.events().subscribe();
    for (tool, arguments) in [
        ("t__echo", json!({})),
        ("t__fail", json!({})),
        ("t__panic", json!({})),
        ("t__nap", json!({"ms": 50})),
        ("t__nap", json!({})),
        ("t__nothing", json!({})),
    ] {
        call(&caller, tool, arguments).await;
    }
    drop(caller.start(Call::new("t__gate", json!({}))));
    let dropped = tokio::spawn(caller.start(Call::new("t__gate", json!({}))));
    crate::calls::fixtures::settle().await;
    dropped.abort();
    crate::calls::fixtures::settle().await;
    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        match event {
            RuntimeEvent::ToolStarted { call } => seen.push(format!("{} {}", call.operation, call.tool)),
            RuntimeEvent::ToolFinished { call, end } => {
                let kind = end.error.map_or("ok", pegboard_core::error::ErrorKind::as_str);
                seen.push(format!("{} {kind}", call.operation));
            }
            _ => {}
        }
    }
    assert_eq!(
        seen,
        [
            "1-1 t__echo",
            "1-1 ok",
            "1-2 t__fail",
            "1-2 execution_error",
            "1-3 t__panic",
            "1-3 internal_error",
            "1-4 t__nap",
            "1-4 timeout",
            "1-5 t__nap",
            "1-5 invalid_parameters",
            "1-6 t__nothing",
            "1-6 unknown_tool",
            "1-7 t__gate",
            "1-7 canceled",
        ]
    );
}

#[tokio::test]
async fn a_short_name_is_reported_and_a_wrong_one_is_refused() {
    let runtime = test_runtime(&ExecutionLog::default(), json!({}), json!({})).await;
    let caller = caller(&runtime);
    let cases = [
        ("t__echo", "{}", None),
        ("t_echo", "{}", None),
        ("t/echo", "{}", None),
        ("<|channel|>t__echo", "unknown_tool: Unknown tool: <|channel|>t__echo", None),
        ("echo", "{}", Some("echo")),
        ("t__eco", "unknown_tool: Unknown tool: t__eco. Did you mean one of: t__echo, t__nap, t__big?", None),
        (
            "agent__nobody",
            "unknown_tool: unknown_subagent_tool: 'agent__nobody' is not registered in this session's agent registry",
            None,
        ),
    ];
    for (name, expected, corrected) in cases {
        let ended = call(&caller, name, json!({})).await;
        assert_eq!(
            (line(&ended).as_str(), ended.meta.corrected_from.as_deref()),
            (expected, corrected),
            "{name}"
        );
    }
}

#[tokio::test]
async fn the_argument_validator_depends_on_tool_and_caller() {
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let wrong = json!({"n": "three"});
    let cases = [
        (ToolKind::Mcp, CallOrigin::Client, json!({}), true),
        (ToolKind::Mcp, CallOrigin::Client, json!({"validateArguments": "pegboard"}), false),
        (ToolKind::Mcp, CallOrigin::Agent, json!({}), false),
        (ToolKind::Mcp, CallOrigin::Program, json!({}), false),
        (ToolKind::Rest, CallOrigin::Client, json!({}), false),
        (ToolKind::Rest, CallOrigin::Client, json!({"validateArguments": "server"}), true),
        (
            ToolKind::Rest,
            CallOrigin::Client,
            json!({"tools": {"tool": {"validateArguments": "server"}}}),
            true,
        ),
        (ToolKind::Mcp, CallOrigin::Client, json!({"for all": "pegboard"}), false),
        (ToolKind::Mcp, CallOrigin::Agent, json!({"for all": "server"}), true),
        (ToolKind::Rest, CallOrigin::Client, json!({"for all": "server"}), true),
        (
            ToolKind::Rest,
            CallOrigin::Client,
            json!({"for all": "server", "validateArguments": "pegboard"}),
            false,
        ),
        (ToolKind::Agent, CallOrigin::Client, json!({"for all": "server"}), false),
    ];
    for (kind, origin, mut server, is_admitted) in cases {
        let for_all = server.as_object_mut().unwrap().shift_remove("for all").unwrap_or_default();
        let for_all: RuntimeSettings = serde_json::from_value(json!({"validateArguments": for_all})).unwrap();
        let entry = ToolEntry::from_fn("tool", "", |value: Value| async move { Ok(value) })
            .with_input_schema(schema.clone());
        let settings: ServerSettings = serde_json::from_value(server.clone()).unwrap();
        let runtime = Runtime::builder()
            .settings(for_all)
            .provide("s", LocalProvider::new([entry]).of_kind(kind))
            .server_settings(settings)
            .start()
            .await
            .unwrap();
        let start = |arguments: Value| {
            let mut call = Call::new("s__tool", arguments);
            call.context.origin = origin;
            caller(&runtime).start(call)
        };
        let ended = start(wrong.clone()).await;
        assert_eq!(ended.result.is_ok(), is_admitted, "{kind:?} {origin:?} {server}");
        let ended = start(json!("no object")).await;
        assert_eq!(ended.result.map_err(|error| error.kind().as_str()).err(), Some("invalid_parameters"));
    }
}

#[tokio::test]
async fn an_output_schema_violation_is_partial_a_warning_or_an_error() {
    use pegboard_core::outcome::{Outcome, OutcomeStatus};
    let cases = [(json!({}), OutcomeStatus::Partial), (json!({"output": "strict"}), OutcomeStatus::Failure)];
    for (server, expected) in cases {
        let entry = ToolEntry::from_fn("tool", "", |_: Value| async move { Ok(json!(42)) })
            .with_output_schema(json!({"type": "object"}));
        let settings: ServerSettings = serde_json::from_value(server).unwrap();
        let runtime = Runtime::builder()
            .provide("s", LocalProvider::new([entry]))
            .server_settings(settings)
            .start()
            .await
            .unwrap();
        let outcome = Outcome::of("s__tool", call(&caller(&runtime), "s__tool", json!({})).await);
        assert_eq!(outcome.status, expected);
    }
}

#[tokio::test]
async fn payloads_are_recorded_only_on_request_and_redacted() {
    for (settings, is_there) in [(json!({}), false), (json!({"tracePayloads": true}), true)] {
        let runtime = crate::calls::fixtures::builder(&ExecutionLog::default(), settings, json!({}))
            .secrets(["hunter2-the-second".to_owned()])
            .start()
            .await
            .unwrap();
        let caller = caller(&runtime);
        call(
            &caller,
            "t__echo",
            json!({"note": "my key is hunter2-the-second", "api_key": "abcdefgh", "plain": "visible"}),
        )
        .await;
        let tree = serde_json::to_string(&caller.tree().snapshot()).unwrap();
        assert_eq!(tree.contains("visible"), is_there, "{tree}");
        assert!(!tree.contains("hunter2") && !tree.contains("abcdefgh"), "{tree}");
    }
}

#[tokio::test]
async fn unreadable_arguments_are_refused_where_they_are_validated() {
    let runtime = test_runtime(&ExecutionLog::default(), json!({}), json!({})).await;
    let raw = pegboard_json::RawJson::parse(r#"{"n": 1e999, "keep": 1}"#.into()).unwrap();
    let ended = caller(&runtime).start(Call::new("t__echo", raw)).await;
    insta::assert_snapshot!(line(&ended), @"invalid_parameters: Invalid arguments: $: the arguments contain a number or string that cannot be represented, such as 1e999");
}

#[tokio::test]
async fn an_unusable_schema_is_a_warning_and_the_tool_is_called() {
    let entry = ToolEntry::from_fn("tool", "", |value: Value| async move { Ok(value) })
        .with_input_schema(json!({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}));
    let runtime = Runtime::builder().provide("s", LocalProvider::new([entry])).start().await.unwrap();
    let ended = call(&caller(&runtime), "s__tool", json!({"a": 1})).await;
    assert_eq!(line(&ended), r#"{"a":1}"#);
    assert_eq!(ended.warnings.len(), 1, "{:?}", ended.warnings);
}
