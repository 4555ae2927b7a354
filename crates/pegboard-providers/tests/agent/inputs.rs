//! What agents are asked with, and who may ask.

use insta::assert_snapshot;
use pegboard_core::call::Origin;
use pegboard_core::settings::agent::{AgentSettings, InputFormat, InputSettings};
use pegboard_testkit::model_server::Act;
use serde_json::{Value, json};

use crate::stage::{Stage, agent, names, prompt, report, then, told};

fn schema_of(stage: &Stage, name: &str) -> Value {
    let catalogue = stage.runtime.catalogue();
    let tool = catalogue.tools().iter().find(|tool| tool.id.name.as_str() == name).unwrap();
    tool.entry.input_schema().as_json().clone()
}

fn by_json() -> AgentSettings {
    let schema = json!({
        "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": false
    });
    let input = InputSettings { format: InputFormat::Json, schema: Some(schema) };
    AgentSettings { input, ..agent("guide") }
}

#[tokio::test]
async fn an_agent_takes_a_prompt_a_reason_and_a_format() {
    let stage = Stage::new(vec![agent("guide")], Vec::new()).await;
    let schema = schema_of(&stage, "guide");
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
        assert_eq!(stage.run("guide", arguments).await, expected);
    }
    assert!(stage.models.requests().is_empty());
}

#[tokio::test]
async fn an_agents_own_schema_gets_a_reason_that_its_model_does_not_read() {
    let script = vec![then("guide", report("sub-agent", "Go by tram."))];
    let stage = Stage::new(vec![by_json()], script).await;
    let schema = schema_of(&stage, "guide");
    assert_eq!(schema["required"], json!(["city", "reason"]));
    assert_eq!(schema["properties"]["reason"]["minLength"], 1);

    let missing = stage.run("guide", json!({"city": "Graz"})).await;
    assert_eq!(missing, "failed: invalid_parameters: reason (string) is required");
    let wrong = stage.run("guide", json!({"city": 1, "reason": "r"})).await;
    assert_snapshot!(wrong, @"failed: invalid_parameters: $.city: expected type string, got integer");
    assert_eq!(stage.run("guide", json!({"city": "Graz", "reason": "to see it"})).await, "Go by tram.");
    assert_eq!(stage.requests("guide")[0]["messages"][1]["content"], r#"{"city":"Graz"}"#);
    assert!(stage.tree().contains("“to see it”"), "{}", stage.tree());
}

#[tokio::test]
async fn an_agent_among_its_own_callers_is_refused_before_it_starts() {
    let first = AgentSettings { agents: names(["second"]), ..agent("first") };
    let second = AgentSettings { tools: vec!["agent__first".to_owned()], ..agent("second") };
    let script = vec![
        then("first", Act::calls([("agent__second", prompt("Go on."))])),
        then("second", Act::calls([("agent__first", prompt("Go on."))])),
        then("second", report("sub-agent", "I could not.")),
        then("first", report("sub-agent", "Neither could I.")),
    ];
    let stage = Stage::new(vec![first, second], script).await;
    assert_eq!(stage.run("first", prompt("Go.")).await, "Neither could I.");
    let heard = stage.heard("second");
    assert_eq!(heard, ["(tool failed: Recursion detected while loading sub-agent: first.ai)"]);
    assert_eq!(stage.requests("first").len(), 2);
}

#[tokio::test]
async fn the_program_itself_chooses_the_format() {
    let script = vec![then("guide", report("tty", "Go by tram."))];
    let stage = Stage::new(vec![agent("guide")], script).await;
    let asked = json!({"prompt": "How?", "reason": "run", "format": "tty"});
    assert_eq!(told(&stage.ended("guide", asked, Origin::Program).await), "Go by tram.");
    let asked = json!({"prompt": "How?", "reason": "run", "format": "html"});
    assert_snapshot!(told(&stage.ended("guide", asked, Origin::Program).await), @"failed: invalid_parameters: format: 'html' is none of json, markdown, slack-block-kit, tty, pipe, text, sub-agent");
}

#[tokio::test]
async fn calls_of_an_agent_know_who_called_whom() {
    let script = vec![
        then("guide", Act::calls([("library__look_up", json!({"word": "tram"}))])),
        then("guide", report("sub-agent", "Go by tram.")),
    ];
    let guide = AgentSettings { tools: vec!["library".to_owned()], ..agent("guide") };
    let stage = Stage::new(vec![guide], script).await;
    stage.run("guide", prompt("How?")).await;
    let entries = stage.caller.tree().accounting(pegboard_runtime::optree::Scope::Tree);
    let told: Vec<String> = entries
        .iter()
        .map(|entry| {
            let is_nested = entry.parent_txn_id.as_deref() == Some(stage.caller.id());
            let has_origin = &*entry.origin_txn_id == stage.caller.id();
            format!("{} {} {is_nested} {has_origin}", entry.command, entry.call_path.as_str())
        })
        .collect();
    assert_eq!(told, ["library__look_up agent__guide true true"]);
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_named_before_a_model_is_asked() {
    let guide = AgentSettings { tools: vec!["libary".to_owned()], ..agent("guide") };
    let stage = Stage::new(vec![guide], Vec::new()).await;
    assert_snapshot!(stage.run("guide", prompt("How?")).await, @"execution_error: the agent 'guide' names 'libary' among its tools, which is not there: Unknown tool: libary");
}

#[tokio::test]
async fn servers_tools_and_web_services_are_selected_by_their_names() {
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
        let script = vec![then("guide", report("sub-agent", "Done."))];
        let stage = Stage::new(vec![AgentSettings { tools, ..agent("guide") }], script).await;
        assert_eq!(stage.run("guide", prompt("How?")).await, "Done.");
        assert_eq!(stage.offered("guide"), expected, "{words:?}");
    }
}
