//! Answers that are too large for an agent, and the models that read them.

use insta::assert_snapshot;
use pegboard_core::call::Call;
use pegboard_core::settings::agent::{AgentSettings, ToolOutputSettings};
use pegboard_testkit::model_server::{Act, Turn, When};
use serde_json::json;

use crate::stage::{Stage, agent, prompt, report, then};

/// An agent that copies much, and whose stored answers are read by the model `p/helper`.
fn reader(tool_output: &ToolOutputSettings) -> AgentSettings {
    let models = vec!["p/helper".parse().unwrap()];
    let tool_output = ToolOutputSettings { models, ..tool_output.clone() };
    AgentSettings { tools: vec!["library__copy".to_owned()], tool_output, ..agent("reader") }
}

/// What the helper does when the last that it was told has a text in it.
fn helps(text: &str, act: Act) -> Turn {
    Turn { when: When { model: Some("helper".to_owned()), contains: Some(text.to_owned()) }, times: 1, act }
}

/// An agent has stored a large answer; gives its handle.
async fn stored(tool_output: &ToolOutputSettings, lines: u64) -> (Stage, String) {
    let script = vec![
        then("reader", Act::calls([("library__copy", json!({"lines": lines}))])),
        then("reader", report("sub-agent", "Done.")),
    ];
    let stage = Stage::new(vec![reader(tool_output), agent("helper")], script).await;
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Done.");
    let told = stage.heard("reader")[0].clone();
    let handle = told[told.find("session-").unwrap_or(told.len())..].chars();
    let handle =
        handle.take_while(|letter| letter.is_ascii_alphanumeric() || "-/".contains(*letter)).collect();
    (stage, handle)
}

/// What an agent reads when it asks for a large answer that it has stored.
async fn read_back(tool_output: &ToolOutputSettings, lines: u64, mode: &str, helper: Vec<Turn>) -> String {
    let (stage, handle) = stored(tool_output, lines).await;
    let arguments = json!({"handle": handle, "extract": "How many lines?", "mode": mode});
    stage.models.play(helper);
    stage.models.play([
        then("reader", Act::calls([("tool_output", arguments)])),
        then("reader", report("sub-agent", "Read.")),
    ]);
    assert_eq!(stage.run("reader", prompt("Read.")).await, "Read.");
    assert_eq!(stage.models.n_left(), 0);
    assert!(stage.tree().contains("llm p/helper"), "{}", stage.tree());
    stage.heard("reader").pop().unwrap()
}

#[tokio::test]
async fn answers_are_cut_where_the_file_says_that_none_are_stored() {
    let settings = ToolOutputSettings { is_enabled: Some(false), ..ToolOutputSettings::default() };
    let (stage, _) = stored(&settings, 4_000).await;
    let heard = &stage.heard("reader")[0];
    assert!(heard.contains("TRUNCATED") && heard.len() < 12_400, "{} bytes", heard.len());
}

#[tokio::test]
async fn without_a_model_the_ends_are_shown_and_what_to_do() {
    let (stage, handle) = stored(&ToolOutputSettings::default(), 4_000).await;
    let arguments = json!({"handle": handle, "extract": "How many lines?"});
    let outcome = stage.caller.invoke(Call::new("tool_output", arguments)).await;
    assert_snapshot!(outcome.data.as_str().unwrap().lines().next().unwrap(), @"No model is there to carry out mode read-grep, so this is the beginning and the end of the output. To find something in between use mode grep, search, jsonpath or lines.");
}

#[tokio::test]
async fn a_model_reads_every_chunk_and_puts_together_what_it_found() {
    let settings = ToolOutputSettings { max_chunks: Some(2), ..ToolOutputSettings::default() };
    let helper = vec![
        helps("Part 1 of 2", Act::text("1,500 lines")),
        helps("Part 2 of 2", Act::text("1,300 lines")),
        helps("1,500 lines\\n---\\n1,300 lines", Act::text("2,800 lines")),
    ];
    assert_eq!(read_back(&settings, 2_800, "full-chunked", helper.clone()).await, "2,800 lines");
    assert_eq!(read_back(&settings, 2_800, "auto", helper).await, "2,800 lines");

    let nothing =
        vec![helps("Part 1 of 2", Act::text("NOTHING")), helps("Part 2 of 2", Act::text("NOTHING"))];
    let told = read_back(&settings, 2_800, "full-chunked", nothing).await;
    assert_eq!(told, "Nothing in the output is about this: How many lines?");
}

#[tokio::test]
async fn a_model_searches_until_it_knows() {
    let helper = vec![
        helps("How many lines?", Act::calls([("grep", json!({"pattern": "line", "maxMatches": 1}))])),
        helps("a line", Act::calls([("read", json!({"from": 3_999})), ("burn", json!({}))])),
        helps("use grep or read", Act::text("4,000 lines")),
    ];
    assert_eq!(read_back(&ToolOutputSettings::default(), 4_000, "read-grep", helper).await, "4,000 lines");
}

#[tokio::test]
async fn a_model_that_does_not_answer_leaves_the_ends() {
    let helper = vec![helps("How many lines?", Act::refusal(401, "invalid_api_key", "no such key"))];
    let told = read_back(&ToolOutputSettings::default(), 4_000, "read-grep", helper).await;
    assert_snapshot!(told.lines().next().unwrap(), @"The model did not carry out mode read-grep: model 'p/helper' does not take the key: no such key (status 401). Check apiKey of the provider 'p', and that the variable it names is set, so this is the beginning and the end of the output. To find something in between use mode grep, search, jsonpath or lines.");
    assert!(told.contains("TRUNCATED"), "{told}");
}
