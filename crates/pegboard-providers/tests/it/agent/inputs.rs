//! Arguments of agents, and recursion.

use insta::assert_snapshot;
use pegboard_core::call::CallOrigin;
use pegboard_core::settings::agent::{AgentInputSettings, AgentSettings, InputFormat};
use pegboard_testkit::model_server::ScriptAction;
use serde_json::{Value, json};

use crate::agent::harness::{AgentHarness, agent, describe_result, names, on_turn, prompt, report};

fn schema_of(harness: &AgentHarness, name: &str) -> Value {
    let catalogue = harness.runtime.catalogue();
    let tool = catalogue.tools().iter().find(|tool| tool.id.name.as_str() == name).unwrap();
    tool.entry.input_schema().as_json().clone()
}

fn by_json() -> AgentSettings {
    let schema = json!({
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false
    });
    let input = AgentInputSettings { format: InputFormat::Json, schema: Some(schema) };
    AgentSettings { input, ..agent("guide") }
}

#[tokio::test]
async fn an_agent_takes_a_prompt_a_reason_and_a_format() {
    let harness = AgentHarness::new(vec![agent("guide")], Vec::new()).await;
    let schema = schema_of(&harness, "guide");
    assert_eq!(schema["required"], json!(["prompt", "reason", "format"]));
    assert_eq!(schema["properties"]["format"]["const"], "sub-agent");
    assert_eq!(schema["additionalProperties"], false);
    let cases = [
        (json!({"prompt": "p", "reason": "r"}), r#"format must be "sub-agent""#),
        (json!({"prompt": "p", "reason": "r", "format": "json"}), r#"format must be "sub-agent""#),
        (json!({"reason": "r", "format": "sub-agent"}), "prompt (string) is required"),
        (json!({"prompt": 1, "reason": "r", "format": "sub-agent"}), "prompt (string) is required"),
        (json!({"prompt": "p", "format": "sub-agent"}), "reason (string) is required"),
        (
            json!({"prompt": "p", "reason": "r", "format": "sub-agent", "x": 1}),
            "there is no 'x'; use prompt, reason and format",
        ),
    ];
    for (arguments, expected) in cases {
        let expected = format!("failed: invalid_parameters: {expected}");
        assert_eq!(harness.run("guide", arguments).await, expected);
    }
    assert!(harness.models.requests().is_empty());
}

#[tokio::test]
async fn a_custom_schema_gets_a_reason_that_the_model_does_not_see() {
    let script = vec![on_turn("guide", report("sub-agent", "Go by tram."))];
    let harness = AgentHarness::new(vec![by_json()], script).await;
    let schema = schema_of(&harness, "guide");
    assert_eq!(schema["required"], json!(["city", "reason"]));
    assert_eq!(schema["properties"]["reason"]["minLength"], 1);

    let missing = harness.run("guide", json!({"city": "Graz"})).await;
    assert_eq!(missing, "failed: invalid_parameters: reason (string) is required");
    let wrong = harness.run("guide", json!({"city": 1, "reason": "r"})).await;
    assert_snapshot!(wrong, @"failed: invalid_parameters: $.city: expected type string, got integer");
    assert_eq!(harness.run("guide", json!({"city": "Graz", "reason": "to see it"})).await, "Go by tram.");
    assert_eq!(harness.requests("guide")[0]["messages"][1]["content"], r#"{"city":"Graz"}"#);
    assert!(harness.tree().contains("“to see it”"), "{}", harness.tree());
}

#[tokio::test]
async fn a_recursive_agent_call_is_refused() {
    let first = AgentSettings { agents: names(["second"]), ..agent("first") };
    let second = AgentSettings { tools: vec!["agent__first".to_owned()], ..agent("second") };
    let script = vec![
        on_turn("first", ScriptAction::calls([("agent__second", prompt("Go on."))])),
        on_turn("second", ScriptAction::calls([("agent__first", prompt("Go on."))])),
        on_turn("second", report("sub-agent", "I could not.")),
        on_turn("first", report("sub-agent", "Neither could I.")),
    ];
    let harness = AgentHarness::new(vec![first, second], script).await;
    assert_eq!(harness.run("first", prompt("Go.")).await, "Neither could I.");
    let messages = harness.tool_and_user_messages("second");
    assert_eq!(messages, ["(tool failed: Recursion detected while loading sub-agent: first.ai)"]);
    assert_eq!(harness.requests("first").len(), 2);
}

#[tokio::test]
async fn the_program_chooses_the_report_format() {
    let script = vec![on_turn("guide", report("tty", "Go by tram."))];
    let harness = AgentHarness::new(vec![agent("guide")], script).await;
    let asked = json!({"prompt": "How?", "reason": "run", "format": "tty"});
    assert_eq!(
        describe_result(&harness.call_agent("guide", asked, CallOrigin::Program).await),
        "Go by tram."
    );
    let asked = json!({"prompt": "How?", "reason": "run", "format": "html"});
    assert_snapshot!(describe_result(&harness.call_agent("guide", asked, CallOrigin::Program).await), @"failed: invalid_parameters: format: invalid format 'html': expected one of json, markdown, slack-block-kit, tty, pipe, text, sub-agent");
}

#[tokio::test]
async fn calls_of_an_agent_carry_their_parent_and_origin() {
    let script = vec![
        on_turn("guide", ScriptAction::calls([("library__look_up", json!({"word": "tram"}))])),
        on_turn("guide", report("sub-agent", "Go by tram.")),
    ];
    let guide = AgentSettings { tools: vec!["library".to_owned()], ..agent("guide") };
    let harness = AgentHarness::new(vec![guide], script).await;
    harness.run("guide", prompt("How?")).await;
    let entries = harness.caller.tree().accounting(pegboard_runtime::optree::AccountingScope::Tree);
    let lines: Vec<String> = entries
        .iter()
        .map(|entry| {
            let is_nested = entry.parent_txn_id.as_deref() == Some(harness.caller.id());
            let has_origin = &*entry.origin_txn_id == harness.caller.id();
            format!("{} {} {is_nested} {has_origin}", entry.command, entry.call_path.as_str())
        })
        .collect();
    assert_eq!(lines, ["library__look_up agent__guide true true"]);
}

#[tokio::test]
async fn an_unknown_tool_fails_before_the_model_is_queried() {
    let guide = AgentSettings { tools: vec!["libary".to_owned()], ..agent("guide") };
    let harness = AgentHarness::new(vec![guide], Vec::new()).await;
    assert_snapshot!(harness.run("guide", prompt("How?")).await, @"execution_error: agent 'guide' lists an unknown tool 'libary': Unknown tool: libary");
}

#[tokio::test]
async fn servers_tools_and_rest_services_are_selected_by_name() {
    let cases: [(&[&str], &[&str]); 4] = [
        (&["library"], &["library__look_up", "library__copy", "library__hang"]),
        (&["weather"], &["rest__weather"]),
        (&["openapi:rest", "rest__weather"], &["rest__weather"]),
        (
            &["library__copy", "batch", "task_status"],
            &["agent__task_status", "library__copy", "agent__batch"],
        ),
    ];
    for (words, expected) in cases {
        let tools = words.iter().map(ToString::to_string).collect();
        let script = vec![on_turn("guide", report("sub-agent", "Done."))];
        let harness = AgentHarness::new(vec![AgentSettings { tools, ..agent("guide") }], script).await;
        assert_eq!(harness.run("guide", prompt("How?")).await, "Done.");
        assert_eq!(harness.offered("guide"), expected, "{words:?}");
    }
}
