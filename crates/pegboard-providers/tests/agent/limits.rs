//! What bounds the session of an agent.

use std::time::Duration;

use insta::assert_snapshot;
use pegboard_core::call::{Call, Invoker, Origin};
use pegboard_core::settings::agent::AgentSettings;
use pegboard_testkit::model_server::{Act, Answer};
use serde_json::json;
use tokio::time::Instant;

use crate::stage::{Stage, agent, names, prompt, report, then, told};

fn reader() -> AgentSettings {
    AgentSettings { tools: vec!["library".to_owned()], ..agent("reader") }
}

fn look_up(word: &str) -> (&'static str, serde_json::Value) {
    ("library__look_up", json!({"word": word}))
}

#[tokio::test]
async fn more_calls_than_a_turn_may_make_are_refused() {
    let script = vec![
        then("reader", Act::calls([look_up("moss"), look_up("fern")])),
        then("reader", report("sub-agent", "Done.")),
    ];
    let one = AgentSettings { max_tool_calls_per_turn: 1, ..reader() };
    let mut stage = Stage::new(vec![one], script).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Done.");
    assert_snapshot!(stage.heard("reader").join("\n"), @"
    about moss
    (tool failed: tool_calls_per_turn_limit_exceeded: at most 1 tool calls are made in one turn; call it in the next one)
    ");
    let warned: Vec<String> = stage.happened().into_iter().filter(|line| line.contains(" warned ")).collect();
    assert_snapshot!(warned.join("\n"), @"agent__reader warned library__look_up was not called: tool_calls_per_turn_limit_exceeded: at most 1 tool calls are made in one turn; call it in the next one");
    assert_eq!(stage.work.n_begun(), 1);
}

#[tokio::test]
async fn the_last_turn_runs_no_tools_and_wants_the_report() {
    let script = vec![
        then("reader", Act::calls([look_up("moss")])),
        then("reader", Act::calls([look_up("fern")])),
        then("reader", report("sub-agent", "Done.")),
    ];
    let two = AgentSettings { max_turns: 2, ..reader() };
    let stage = Stage::new(vec![two], script).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Done.");
    assert_eq!(stage.work.n_begun(), 1);
    assert_snapshot!(stage.heard("reader").join("\n"), @r#"
    about moss
    This is your last turn: no more tools are run. When you are done, write your final report between <final-report-5e55 format="sub-agent" status="success"> and </final-report-5e55>.
    (tool failed: this is your last turn, in which no tools are run; give your final report)
    When you are done, write your final report between <final-report-5e55 format="sub-agent" status="success"> and </final-report-5e55>.
    "#);
}

#[tokio::test]
async fn a_session_without_a_report_comes_to_an_end() {
    let script = vec![then("reader", Act::text("")), then("reader", Act::text(" "))];
    let stage = Stage::new(vec![reader()], script).await;
    assert_snapshot!(stage.run("reader", prompt("Read.")).await, @"execution_error: the agent 'reader' gave no final report within 10 turns and 1 retries of one. Raise maxTurns, or give it a model that follows its instructions");
}

#[tokio::test]
async fn a_model_that_does_not_answer_is_named() {
    let script = vec![then("reader", Act::refusal(401, "invalid_api_key", "no such key"))];
    let mut stage = Stage::new(vec![reader()], script).await;
    assert_snapshot!(stage.run("reader", prompt("Read.")).await, @"execution_error: model 'p/reader' does not take the key: no such key (status 401). Check apiKey of the provider 'p', and that the variable it names is set");
    assert_snapshot!(stage.happened().join("\n"), @"
    agent__reader turn 1/10
    agent__reader 1-1.1-1 p/reader 0+0 unauthorized
    ");
}

#[tokio::test]
async fn arguments_that_are_no_object_are_shown_again() {
    let script = vec![
        then(
            "reader",
            Act::calls([("library__look_up", json!("moss")), ("look_up", json!({"word": "fern"}))]),
        ),
        then("reader", Act::calls([("library__burn", json!({}))])),
        then("reader", report("sub-agent", "Done.")),
    ];
    let stage = Stage::new(vec![reader()], script).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Done.");
    assert_snapshot!(stage.heard("reader").join("\n"), @"
    (tool failed: invalid tool call payload. parameters must be a JSON object. Original payload: moss)
    about fern
    (tool failed: Unknown tool: library__burn)
    ");
}

#[tokio::test]
async fn a_large_answer_is_stored_and_can_be_read_back() {
    let script = vec![
        then("reader", Act::calls([("library__copy", json!({"lines": 4_000}))])),
        then("reader", report("sub-agent", "Done.")),
    ];
    let stage = Stage::new(vec![reader()], script).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Done.");
    assert!(stage.heard("reader")[0].contains("tool_output"), "{:?}", stage.heard("reader"));
    let offered = |at: usize| stage.requests("reader")[at]["tools"].to_string().contains("tool_output");
    assert_eq!((offered(0), offered(1)), (false, true));
}

#[tokio::test]
async fn a_small_context_window_gets_smaller_answers() {
    // 6,000 tokens, of which half are for what the model writes.
    let small = AgentSettings { context_window: Some(6_000), max_output_tokens: 3_000, ..reader() };
    let script = vec![
        then("reader", Act::calls([("library__copy", json!({"lines": 1_500}))])),
        then("reader", report("sub-agent", "Done.")),
    ];
    let stage = Stage::new(vec![small.clone()], script.clone()).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Done.");
    assert!(stage.heard("reader")[0].contains("tool_output"), "it would have been too much");

    let large = AgentSettings { context_window: Some(100_000), ..small };
    let stage = Stage::new(vec![large], script).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Done.");
    assert!(stage.heard("reader")[0].starts_with("a line\n"), "there was room for it");
}

#[tokio::test]
async fn without_room_nothing_is_called_and_the_report_is_due() {
    let full = AgentSettings { context_window: Some(3_400), max_output_tokens: 3_000, ..reader() };
    let script =
        vec![then("reader", Act::calls([look_up("moss")])), then("reader", report("sub-agent", "Done."))];
    let stage = Stage::new(vec![full], script).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Done.");
    assert_eq!(stage.heard("reader")[0], "(tool failed: context window budget exceeded)");
    assert_eq!(stage.work.n_begun(), 0);
    assert_eq!(stage.requests("reader")[1]["tool_choice"], "none");
}

#[tokio::test]
async fn a_conversation_that_turns_out_too_long_is_shortened_once() {
    let script = vec![
        then("reader", Act::calls([("library__copy", json!({"lines": 500}))])),
        then("reader", Act::refusal(400, "context_length_exceeded", "maximum context length is 10 tokens")),
        then("reader", report("sub-agent", "Done.")),
    ];
    let stage = Stage::new(vec![reader()], script).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Done.");
    assert!(stage.heard("reader")[0].starts_with("(left out:"), "{:?}", stage.heard("reader"));
}

#[tokio::test]
async fn a_report_that_was_cut_off_is_written_again() {
    let cut = Answer {
        text: format!("<final-report-{} format=\"sub-agent\">It is so lo", crate::stage::NONCE),
        stop: Some("length".to_owned()),
        ..Answer::default()
    };
    let script = vec![then("reader", Act::Answer(cut)), then("reader", report("sub-agent", "Short."))];
    let stage = Stage::new(vec![reader()], script).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Short.");
    assert_snapshot!(stage.heard("reader").join("\n"), @"Your final report was not taken: It was cut off before its end; write a shorter one. Write it again.");
}

#[tokio::test]
async fn calling_off_an_agent_leaves_nothing_running() {
    let first = AgentSettings { agents: names(["reader"]), ..agent("first") };
    let script = vec![
        then("first", Act::calls([("agent__reader", prompt("Read."))])),
        then("reader", Act::calls([("library__hang", json!({})), ("library__hang", json!({}))])),
    ];
    let stage = Stage::new(vec![first, reader()], script).await;
    let mut events = stage.runtime.events().subscribe();
    let run = stage.run("first", prompt("Go."));
    let hangs = async {
        while stage.work.n_running() < 2 {
            events.recv().await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = run => panic!("it ended: {ended}"),
        () = hangs => {}
    }
    while stage.work.n_running() > 0 || !stage.runtime.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    let is_running = stage.tree().lines().skip(1).any(|line| line.contains('…'));
    assert!(!is_running, "{}", stage.tree());

    let script = vec![then("first", Act::Hang)];
    let stage = Stage::new(vec![agent("first")], script).await;
    let run = stage.run("first", prompt("Go."));
    tokio::select! {
        ended = run => panic!("it ended: {ended}"),
        () = stage.models.until_hanging(1) => {}
    }
    stage.models.until_hanging(0).await;
    assert_snapshot!(stage.tree(), @"
    … session *
    └─ 1-1 ✗ agent agent/agent__first, 56 in: canceled: the caller gave up
       └─ ✗ session * “to know” (agent__first): canceled: the caller gave up
          └─ 1-1.1-1 ✗ llm p/first, 712 in: canceled
    0 tools, 1 agent
    ");
}

#[tokio::test]
async fn the_deadline_of_a_call_ends_everything_under_it() {
    let first = AgentSettings { agents: names(["reader"]), ..agent("first") };
    let script = vec![
        then("first", Act::calls([("agent__reader", prompt("Read."))])),
        then("reader", Act::calls([("library__hang", json!({}))])),
    ];
    let stage = Stage::new(vec![first, reader()], script).await;
    let mut call = Call::new("agent__first", prompt("Go."));
    call.context.origin = Origin::Client;
    call.context.deadline = Some(Instant::now() + Duration::from_millis(300));
    let ended = stage.caller.start(call).await;
    assert_eq!(told(&ended), "timeout: The caller's deadline passed before the tool answered");
    while stage.work.n_running() > 0 || !stage.runtime.calls().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_tool_that_takes_longer_than_the_agent_waits_is_given_up() {
    let script = vec![
        then("reader", Act::calls([("library__hang", json!({}))])),
        then("reader", report("sub-agent", "It took too long.")),
    ];
    let hasty = AgentSettings { tool_timeout: Duration::from_millis(20), ..reader() };
    let stage = Stage::new(vec![hasty], script).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "It took too long.");
    assert_eq!(stage.heard("reader"), ["(tool failed: Tool execution timed out)"]);
    assert_eq!(stage.work.n_running(), 0);
}
