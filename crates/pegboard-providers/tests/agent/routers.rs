//! Agents that hand over to others.

use insta::assert_snapshot;
use pegboard_core::id::ToolName;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_testkit::model_server::Act;
use serde_json::json;

use crate::stage::{Stage, agent, names, prompt, report, then};

fn routed() -> Vec<AgentSettings> {
    let router = AgentSettings { destinations: names(["sales", "support"]), ..agent("router") };
    vec![router, agent("sales"), agent("support")]
}

#[tokio::test]
async fn a_hand_off_ends_the_session_and_the_destination_answers() {
    let handoff = json!({"agent": "support", "message": "It is urgent."});
    let script = vec![
        then("router", Act::calls([("router__handoff-to", handoff)])),
        then("support", report("sub-agent", "Turn it off and on.")),
    ];
    let stage = Stage::new(routed(), script).await;
    assert_eq!(stage.run("router", prompt("It is broken.")).await, "Turn it off and on.");
    assert_eq!(stage.requests("router").len(), 1);
    assert_snapshot!(stage.requests("support")[0]["messages"][1]["content"].as_str().unwrap(), @"
    It is broken.

    The agent 'router' says: It is urgent.
    ");
    assert_snapshot!(stage.tree(), @"
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
async fn a_hand_off_to_nobody_is_explained() {
    let calls = [
        ("router__handoff-to", json!({})),
        ("router__handoff-to", json!({"agent": "nobody"})),
        ("router__handoff-to", json!({"agent": "sales", "message": 1})),
    ];
    let script = vec![
        then("router", Act::calls(calls)),
        then("router", Act::calls([("router__handoff-to", json!({"agent": "sales", "message": " "}))])),
        then("sales", report("sub-agent", "Buy one.")),
    ];
    let stage = Stage::new(routed(), script).await;
    assert_eq!(stage.run("router", prompt("I want one.")).await, "Buy one.");
    assert_eq!(
        stage.heard("router"),
        ["agent must be a string", "Unknown agent: nobody", "message must be a string when provided"]
    );
    assert_eq!(stage.requests("sales")[0]["messages"][1]["content"], "I want one.");
    assert!(stage.tree().contains("router/router__handoff-to"), "{}", stage.tree());
}

#[tokio::test]
async fn without_destinations_there_is_nothing_to_hand_over_with() {
    let script =
        vec![then("sales", report("sub-agent", "Buy one.")), then("router", report("sub-agent", "No."))];
    let stage = Stage::new(routed(), script).await;
    stage.run("sales", prompt("I want one.")).await;
    stage.run("router", prompt("I want one.")).await;
    assert_eq!(stage.offered("sales"), Vec::<String>::new());
    assert_eq!(stage.offered("router"), ["router__handoff-to"]);
}

#[tokio::test]
async fn an_answer_is_gone_on_with_where_the_file_says_so() {
    let writer = AgentSettings { handoff: Some(ToolName::new("editor").unwrap()), ..agent("writer") };
    let script =
        vec![then("writer", report("sub-agent", "a drafft")), then("editor", report("sub-agent", "a draft"))];
    let stage = Stage::new(vec![writer, agent("editor")], script).await;
    assert_eq!(stage.run("writer", prompt("Write.")).await, "a draft");
    assert_eq!(stage.requests("editor")[0]["messages"][1]["content"], "a drafft");
}
