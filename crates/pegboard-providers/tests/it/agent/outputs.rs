//! Tool outputs that are too large for an agent, and the models that read them.

use insta::assert_snapshot;
use pegboard_core::call::Call;
use pegboard_core::settings::agent::{AgentSettings, AgentToolOutputSettings};
use pegboard_testkit::model_server::{ScriptAction, ScriptTurn, TurnCondition};
use serde_json::json;

use crate::agent::harness::{AgentHarness, agent, on_turn, prompt, report};

/// Creates an agent that copies large outputs; the model `p/helper` reads the stored ones.
fn reader(tool_output: &AgentToolOutputSettings) -> AgentSettings {
    let models = vec!["p/helper".parse().unwrap()];
    let tool_output = AgentToolOutputSettings { models, ..tool_output.clone() };
    AgentSettings { tools: vec!["library__copy".to_owned()], tool_output, ..agent("reader") }
}

/// Scripts the helper's reply to a request that contains `text`.
fn on_helper_turn(text: &str, act: ScriptAction) -> ScriptTurn {
    ScriptTurn {
        when: TurnCondition { model: Some("helper".to_owned()), contains: Some(text.to_owned()) },
        times: 1,
        act,
    }
}

/// Lets an agent store a large output and returns the handle.
async fn stored(tool_output: &AgentToolOutputSettings, lines: u64) -> (AgentHarness, String) {
    let script = vec![
        on_turn("reader", ScriptAction::calls([("library__copy", json!({"lines": lines}))])),
        on_turn("reader", report("sub-agent", "Done.")),
    ];
    let harness = AgentHarness::new(vec![reader(tool_output), agent("helper")], script).await;
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Done.");
    let text = harness.tool_and_user_messages("reader")[0].clone();
    let handle = text[text.find("session-").unwrap_or(text.len())..].chars();
    let handle =
        handle.take_while(|letter| letter.is_ascii_alphanumeric() || "-/".contains(*letter)).collect();
    (harness, handle)
}

/// Lets an agent query a stored output and returns the result.
async fn read_back(
    tool_output: &AgentToolOutputSettings,
    lines: u64,
    mode: &str,
    helper: Vec<ScriptTurn>,
) -> String {
    let (harness, handle) = stored(tool_output, lines).await;
    let arguments = json!({"handle": handle, "extract": "How many lines?", "mode": mode});
    harness.models.append_turns(helper);
    harness.models.append_turns([
        on_turn("reader", ScriptAction::calls([("tool_output", arguments)])),
        on_turn("reader", report("sub-agent", "Read.")),
    ]);
    assert_eq!(harness.run("reader", prompt("Read.")).await, "Read.");
    assert_eq!(harness.models.n_unused_turns(), 0);
    assert!(harness.tree().contains("llm p/helper"), "{}", harness.tree());
    harness.tool_and_user_messages("reader").pop().unwrap()
}

#[tokio::test]
async fn outputs_are_truncated_if_storing_is_disabled() {
    let settings = AgentToolOutputSettings { is_enabled: Some(false), ..AgentToolOutputSettings::default() };
    let (harness, _) = stored(&settings, 4_000).await;
    let message = &harness.tool_and_user_messages("reader")[0];
    assert!(message.contains("TRUNCATED") && message.len() < 12_400, "{} bytes", message.len());
}

#[tokio::test]
async fn without_a_model_head_and_tail_are_returned_with_a_hint() {
    let (harness, handle) = stored(&AgentToolOutputSettings::default(), 4_000).await;
    let arguments = json!({"handle": handle, "extract": "How many lines?"});
    let outcome = harness.caller.invoke(Call::new("tool_output", arguments)).await;
    assert_snapshot!(outcome.data.as_str().unwrap().lines().next().unwrap(), @"No model is configured for mode read-grep, so this is the beginning and the end of the output. To find something in between use mode grep, search, jsonpath or lines.");
}

#[tokio::test]
async fn a_model_reads_every_chunk_and_combines_the_findings() {
    let settings = AgentToolOutputSettings { max_chunks: Some(2), ..AgentToolOutputSettings::default() };
    let helper = vec![
        on_helper_turn("Part 1 of 2", ScriptAction::text("1,500 lines")),
        on_helper_turn("Part 2 of 2", ScriptAction::text("1,300 lines")),
        on_helper_turn("1,500 lines\\n---\\n1,300 lines", ScriptAction::text("2,800 lines")),
    ];
    assert_eq!(read_back(&settings, 2_800, "full-chunked", helper.clone()).await, "2,800 lines");
    assert_eq!(read_back(&settings, 2_800, "auto", helper).await, "2,800 lines");

    let nothing = vec![
        on_helper_turn("Part 1 of 2", ScriptAction::text("NOTHING")),
        on_helper_turn("Part 2 of 2", ScriptAction::text("NOTHING")),
    ];
    let text = read_back(&settings, 2_800, "full-chunked", nothing).await;
    assert_eq!(text, "Nothing in the output is about this: How many lines?");
}

#[tokio::test]
async fn a_model_searches_with_grep_and_read() {
    let helper = vec![
        on_helper_turn(
            "How many lines?",
            ScriptAction::calls([("grep", json!({"pattern": "line", "maxMatches": 1}))]),
        ),
        on_helper_turn(
            "a line",
            ScriptAction::calls([("read", json!({"from": 3_999})), ("burn", json!({}))]),
        ),
        on_helper_turn("use grep or read", ScriptAction::text("4,000 lines")),
    ];
    assert_eq!(
        read_back(&AgentToolOutputSettings::default(), 4_000, "read-grep", helper).await,
        "4,000 lines"
    );
}

#[tokio::test]
async fn a_failed_model_falls_back_to_head_and_tail() {
    let helper =
        vec![on_helper_turn("How many lines?", ScriptAction::refusal(401, "invalid_api_key", "no such key"))];
    let text = read_back(&AgentToolOutputSettings::default(), 4_000, "read-grep", helper).await;
    assert_snapshot!(text.lines().next().unwrap(), @"The model failed in mode read-grep: model 'p/helper' rejected the API key: no such key (status 401). Check apiKey of provider 'p' and the variable it refers to, so this is the beginning and the end of the output. To find something in between use mode grep, search, jsonpath or lines.");
    assert!(text.contains("TRUNCATED"), "{text}");
}
