//! Hand-offs between agents.

use insta::assert_snapshot;
use pegboard_core::id::ToolName;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_testkit::model_server::ScriptAction;
use serde_json::json;

use crate::agent::harness::{AgentHarness, agent, names, on_turn, prompt, report};

fn routed() -> Vec<AgentSettings> {
    let router = AgentSettings { destinations: names(["sales", "support"]), ..agent("router") };
    vec![router, agent("sales"), agent("support")]
}

#[tokio::test]
async fn a_handoff_ends_the_session_and_the_destination_answers() {
    let handoff = json!({"agent": "support", "message": "It is urgent."});
    let script = vec![
        on_turn("router", ScriptAction::calls([("router__handoff-to", handoff)])),
        on_turn("support", report("sub-agent", "Turn it off and on.")),
    ];
    let harness = AgentHarness::new(routed(), script).await;
    assert_eq!(harness.run("router", prompt("It is broken.")).await, "Turn it off and on.");
    assert_eq!(harness.requests("router").len(), 1);
    assert_snapshot!(harness.requests("support")[0]["messages"][1]["content"].as_str().unwrap(), @"
    It is broken.

    The agent 'router' says: It is urgent.
    ");
    assert_snapshot!(harness.tree(), @"
    … session *
    └─ 1-1 ✓ agent agent/agent__router, 66 in, 148 out
       └─ ✓ session * “to know” (agent__router), support takes over
          ├─ 1-1.1-1 ✓ llm p/router, 1.1k in, 63 out
          ├─ 1-1.1-2 ✓ tool router/router__handoff-to, 45 in, 24 out
          └─ 1-1.1-3 ✓ agent agent/agent__support, 87 in, 148 out
             └─ ✓ session * “to know” (agent__router:agent__support)
                └─ 1-1.1-3.1-1 ✓ llm p/support, 764 in, 108 out
    1 tool, 2 agents, 20 tokens in, 10 tokens out, $0.0400
    ");
}

#[tokio::test]
async fn an_invalid_handoff_is_rejected_with_a_reason() {
    let calls = [
        ("router__handoff-to", json!({})),
        ("router__handoff-to", json!({"agent": "nobody"})),
        ("router__handoff-to", json!({"agent": "sales", "message": 1})),
    ];
    let script = vec![
        on_turn("router", ScriptAction::calls(calls)),
        on_turn(
            "router",
            ScriptAction::calls([("router__handoff-to", json!({"agent": "sales", "message": " "}))]),
        ),
        on_turn("sales", report("sub-agent", "Buy one.")),
    ];
    let harness = AgentHarness::new(routed(), script).await;
    assert_eq!(harness.run("router", prompt("I want one.")).await, "Buy one.");
    assert_eq!(
        harness.tool_and_user_messages("router"),
        ["agent must be a string", "Unknown agent: nobody", "message must be a string when provided"]
    );
    assert_eq!(harness.requests("sales")[0]["messages"][1]["content"], "I want one.");
    assert!(harness.tree().contains("router/router__handoff-to"), "{}", harness.tree());
}

#[tokio::test]
async fn the_handoff_tool_needs_destinations() {
    let script = vec![
        on_turn("sales", report("sub-agent", "Buy one.")),
        on_turn("router", report("sub-agent", "No.")),
    ];
    let harness = AgentHarness::new(routed(), script).await;
    harness.run("sales", prompt("I want one.")).await;
    harness.run("router", prompt("I want one.")).await;
    assert_eq!(harness.offered("sales"), Vec::<String>::new());
    assert_eq!(harness.offered("router"), ["router__handoff-to"]);
}

#[tokio::test]
async fn a_configured_handoff_passes_the_report_on() {
    let writer = AgentSettings { handoff: Some(ToolName::new("editor").unwrap()), ..agent("writer") };
    let script = vec![
        on_turn("writer", report("sub-agent", "a drafft")),
        on_turn("editor", report("sub-agent", "a draft")),
    ];
    let harness = AgentHarness::new(vec![writer, agent("editor")], script).await;
    assert_eq!(harness.run("writer", prompt("Write.")).await, "a draft");
    assert_eq!(harness.requests("editor")[0]["messages"][1]["content"], "a drafft");
}
