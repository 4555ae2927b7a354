//! Limits of an agent session.

use std::time::Duration;

use insta::assert_snapshot;
use pegboard_core::call::{Call, CallOrigin, Invoker};
use pegboard_core::settings::agent::AgentSettings;
use pegboard_testkit::model_server::{ScriptAction, ScriptedReply};
use serde_json::json;
use tokio::time::Instant;

use crate::agent::harness::{AgentHarness, agent, describe_result, names, on_turn, prompt, report};

fn reader() -> AgentSettings {
    AgentSettings { tools: vec!["library".to_owned()], ..agent("reader") }
}

fn look_up(word: &str) -> (&'static str, serde_json::Value) {
    ("library__look_up", json!({"word": word}))
}

#[tokio::test]
async fn calls_beyond_the_limit_per_turn_are_refused() {
    let script = vec![
        on_turn("reader", ScriptAction::calls([look_up("moss"), look_up("fern")])),
        on_turn("reader", report("sub-agent", "Done.")),
    ];
    let one = AgentSettings { max_tool_calls_per_turn: 1, ..reader() };
    let mut harness = AgentHarness::new(vec![one], script).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Done.");
    assert_snapshot!(harness.tool_and_user_messages("reader").join("\n"), @"
    about moss
    (tool failed: tool_calls_per_turn_limit_exceeded: at most 1 tool calls are made in one turn; call it in the next one)
    ");
    let warned: Vec<String> = harness.events().into_iter().filter(|line| line.contains(" warned ")).collect();
    assert_snapshot!(warned.join("\n"), @"agent__reader warned library__look_up was not called: tool_calls_per_turn_limit_exceeded: at most 1 tool calls are made in one turn; call it in the next one");
    assert_eq!(harness.activity.n_begun(), 1);
}

#[tokio::test]
async fn the_last_turn_runs_no_tools_and_requires_the_report() {
    let script = vec![
        on_turn("reader", ScriptAction::calls([look_up("moss")])),
        on_turn("reader", ScriptAction::calls([look_up("fern")])),
        on_turn("reader", report("sub-agent", "Done.")),
    ];
    let two = AgentSettings { max_turns: 2, ..reader() };
    let harness = AgentHarness::new(vec![two], script).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Done.");
    assert_eq!(harness.activity.n_begun(), 1);
    assert_snapshot!(harness.tool_and_user_messages("reader").join("\n"), @r#"
    about moss
    This is your last turn: no more tools are run. When you are done, write your final report between <final-report-5e55 format="sub-agent" status="success"> and </final-report-5e55>.
    (tool failed: this is your last turn, in which no tools are run; give your final report)
    When you are done, write your final report between <final-report-5e55 format="sub-agent" status="success"> and </final-report-5e55>.
    "#);
}

#[tokio::test]
async fn a_session_without_a_report_fails() {
    let script = vec![on_turn("reader", ScriptAction::text("")), on_turn("reader", ScriptAction::text(" "))];
    let harness = AgentHarness::new(vec![reader()], script).await;
    assert_snapshot!(harness.run("reader", prompt("Read.")).await, @"execution_error: agent 'reader' gave no final report within 10 turns with 1 retries each. Raise maxTurns, or use a model that follows instructions");
}

#[tokio::test]
async fn a_failed_model_request_names_the_model() {
    let script = vec![on_turn("reader", ScriptAction::refusal(401, "invalid_api_key", "no such key"))];
    let mut harness = AgentHarness::new(vec![reader()], script).await;
    assert_snapshot!(harness.run("reader", prompt("Read.")).await, @"execution_error: model 'p/reader' rejected the API key: no such key (status 401). Check apiKey of provider 'p' and the variable it refers to");
    assert_snapshot!(harness.events().join("\n"), @"
    agent__reader turn 1/10
    agent__reader 1-1.1-1 p/reader 0+0 unauthorized
    ");
}

#[tokio::test]
async fn arguments_that_are_not_an_object_are_quoted_back() {
    let script = vec![
        on_turn(
            "reader",
            ScriptAction::calls([("library__look_up", json!("moss")), ("look_up", json!({"word": "fern"}))]),
        ),
        on_turn("reader", ScriptAction::calls([("library__burn", json!({}))])),
        on_turn("reader", report("sub-agent", "Done.")),
    ];
    let harness = AgentHarness::new(vec![reader()], script).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Done.");
    assert_snapshot!(harness.tool_and_user_messages("reader").join("\n"), @"
    (tool failed: invalid tool call payload. parameters must be a JSON object. Original payload: moss)
    about fern
    (tool failed: Unknown tool: library__burn)
    ");
}

#[tokio::test]
async fn a_large_output_is_stored_and_can_be_read_back() {
    let script = vec![
        on_turn("reader", ScriptAction::calls([("library__copy", json!({"lines": 4_000}))])),
        on_turn("reader", report("sub-agent", "Done.")),
    ];
    let harness = AgentHarness::new(vec![reader()], script).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Done.");
    assert!(
        harness.tool_and_user_messages("reader")[0].contains("tool_output"),
        "{:?}",
        harness.tool_and_user_messages("reader")
    );
    let offered = |at: usize| harness.requests("reader")[at]["tools"].to_string().contains("tool_output");
    assert_eq!((offered(0), offered(1)), (false, true));
}

#[tokio::test]
async fn a_small_context_window_gets_smaller_outputs() {
    // 6,000 tokens, half of them reserved for the reply.
    let small = AgentSettings { context_window: Some(6_000), max_output_tokens: 3_000, ..reader() };
    let script = vec![
        on_turn("reader", ScriptAction::calls([("library__copy", json!({"lines": 1_500}))])),
        on_turn("reader", report("sub-agent", "Done.")),
    ];
    let harness = AgentHarness::new(vec![small.clone()], script.clone()).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Done.");
    assert!(
        harness.tool_and_user_messages("reader")[0].contains("tool_output"),
        "it would have been too much"
    );

    let large = AgentSettings { context_window: Some(100_000), ..small };
    let harness = AgentHarness::new(vec![large], script).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Done.");
    assert!(harness.tool_and_user_messages("reader")[0].starts_with("a line\n"), "there was room for it");
}

#[tokio::test]
async fn a_full_context_window_runs_no_tools_and_requires_the_report() {
    let full = AgentSettings { context_window: Some(3_400), max_output_tokens: 3_000, ..reader() };
    let script = vec![
        on_turn("reader", ScriptAction::calls([look_up("moss")])),
        on_turn("reader", report("sub-agent", "Done.")),
    ];
    let harness = AgentHarness::new(vec![full], script).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Done.");
    assert_eq!(harness.tool_and_user_messages("reader")[0], "(tool failed: context window budget exceeded)");
    assert_eq!(harness.activity.n_begun(), 0);
    assert_eq!(harness.requests("reader")[1]["tool_choice"], "none");
}

#[tokio::test]
async fn a_context_overflow_shortens_the_conversation_once() {
    let script = vec![
        on_turn("reader", ScriptAction::calls([("library__copy", json!({"lines": 500}))])),
        on_turn(
            "reader",
            ScriptAction::refusal(400, "context_length_exceeded", "maximum context length is 10 tokens"),
        ),
        on_turn("reader", report("sub-agent", "Done.")),
    ];
    let harness = AgentHarness::new(vec![reader()], script).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Done.");
    assert!(
        harness.tool_and_user_messages("reader")[0].starts_with("(left out:"),
        "{:?}",
        harness.tool_and_user_messages("reader")
    );
}

#[tokio::test]
async fn a_truncated_report_is_requested_again() {
    let cut = ScriptedReply {
        text: format!("<final-report-{} format=\"sub-agent\">It is so lo", crate::agent::harness::NONCE),
        stop: Some("length".to_owned()),
        ..ScriptedReply::default()
    };
    let script =
        vec![on_turn("reader", ScriptAction::Answer(cut)), on_turn("reader", report("sub-agent", "Short."))];
    let harness = AgentHarness::new(vec![reader()], script).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Short.");
    assert_snapshot!(harness.tool_and_user_messages("reader").join("\n"), @"Your final report was not accepted: It was cut off before its end; write a shorter one. Write it again.");
}

#[tokio::test]
async fn cancelling_an_agent_leaves_nothing_running() {
    let first = AgentSettings { agents: names(["reader"]), ..agent("first") };
    let script = vec![
        on_turn("first", ScriptAction::calls([("agent__reader", prompt("Read."))])),
        on_turn("reader", ScriptAction::calls([("library__hang", json!({})), ("library__hang", json!({}))])),
    ];
    let harness = AgentHarness::new(vec![first, reader()], script).await;
    let mut events = harness.runtime.events().subscribe();
    let run = harness.run("first", prompt("Go."));
    let hangs = async {
        while harness.activity.n_running() < 2 {
            events.recv().await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = run => panic!("it ended: {ended}"),
        () = hangs => {}
    }
    while harness.activity.n_running() > 0 || !harness.runtime.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    let is_running = harness.tree().lines().skip(1).any(|line| line.contains('…'));
    assert!(!is_running, "{}", harness.tree());

    let script = vec![on_turn("first", ScriptAction::Hang)];
    let harness = AgentHarness::new(vec![agent("first")], script).await;
    let run = harness.run("first", prompt("Go."));
    tokio::select! {
        ended = run => panic!("it ended: {ended}"),
        () = harness.models.wait_until_hanging(1) => {}
    }
    harness.models.wait_until_hanging(0).await;
    assert_snapshot!(harness.tree(), @"
    … session *
    └─ 1-1 ✗ agent agent/agent__first, 56 in: canceled: the caller dropped the call
       └─ ✗ session * “to know” (agent__first): canceled: the caller dropped the call
          └─ 1-1.1-1 ✗ llm p/first, 712 in: canceled
    0 tools, 1 agent
    ");
}

#[tokio::test]
async fn a_deadline_ends_all_nested_calls() {
    let first = AgentSettings { agents: names(["reader"]), ..agent("first") };
    let script = vec![
        on_turn("first", ScriptAction::calls([("agent__reader", prompt("Read."))])),
        on_turn("reader", ScriptAction::calls([("library__hang", json!({}))])),
    ];
    let harness = AgentHarness::new(vec![first, reader()], script).await;
    let mut call = Call::new("agent__first", prompt("Go."));
    call.context.origin = CallOrigin::Client;
    call.context.deadline = Some(Instant::now() + Duration::from_millis(300));
    let ended = harness.caller.start(call).await;
    assert_eq!(describe_result(&ended), "timeout: The caller's deadline passed before the tool answered");
    while harness.activity.n_running() > 0 || !harness.runtime.calls().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_tool_call_times_out_after_the_tool_timeout() {
    let script = vec![
        on_turn("reader", ScriptAction::calls([("library__hang", json!({}))])),
        on_turn("reader", report("sub-agent", "It took too long.")),
    ];
    let hasty = AgentSettings { tool_timeout: Duration::from_millis(20), ..reader() };
    let harness = AgentHarness::new(vec![hasty], script).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "It took too long.");
    assert_eq!(harness.tool_and_user_messages("reader"), ["(tool failed: Tool execution timed out)"]);
    assert_eq!(harness.activity.n_running(), 0);
}
