//! Nested agents.

use insta::assert_snapshot;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_core::settings::model::ModelProviderKind;
use pegboard_testkit::model_server::{ScriptAction, ScriptTurn};
use serde_json::json;

use crate::agent::harness::{AgentHarness, agent, names, on_turn, prompt, report};

fn agents() -> Vec<AgentSettings> {
    let router = AgentSettings { destinations: names(["researcher"]), ..agent("router") };
    let researcher = AgentSettings { agents: names(["reader", "watcher"]), ..agent("researcher") };
    let reader = AgentSettings { tools: vec!["library__look_up".to_owned()], ..agent("reader") };
    let watcher = AgentSettings { tools: vec!["weather".to_owned()], ..agent("watcher") };
    vec![router, researcher, reader, watcher]
}

fn script() -> Vec<ScriptTurn> {
    let asked = [("agent__reader", prompt("What is moss?")), ("agent__watcher", prompt("Is it wet?"))];
    vec![
        on_turn("router", ScriptAction::calls([("router__handoff-to", json!({"agent": "researcher"}))])),
        on_turn("researcher", ScriptAction::calls(asked)),
        on_turn("reader", ScriptAction::calls([("library__look_up", json!({"word": "moss"}))])),
        on_turn("reader", report("sub-agent", "Moss is a plant.")),
        on_turn("watcher", ScriptAction::calls([("rest__weather", json!({}))])),
        on_turn("watcher", report("sub-agent", "It is grey.")),
        on_turn("researcher", report("sub-agent", "Moss is a plant, and it is grey.")),
    ]
}

#[tokio::test]
async fn three_levels_of_agents_form_one_tree() {
    let mut trees = Vec::new();
    for kind in [ModelProviderKind::OpenAiCompatible, ModelProviderKind::Anthropic] {
        let harness = AgentHarness::with(kind, agents(), script()).await;
        let answer = harness.run("router", prompt("Tell me of moss and weather.")).await;
        assert_eq!(answer, "Moss is a plant, and it is grey.");
        assert_eq!(harness.models.n_unused_turns(), 0);
        trees.push(harness.tree());
    }
    let sizes = |trees: &str| {
        let without = |line: &str| {
            line.split(", ")
                .filter(|part| !part.ends_with(" in") || part.contains("token"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        trees.lines().map(without).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(sizes(&trees[0]), sizes(&trees[1]));
    assert_snapshot!(trees[0], @"
    … session *
    └─ 1-1 ✓ agent agent/agent__router, 81 in, 161 out
       └─ ✓ session * “to know” (agent__router), researcher takes over
          ├─ 1-1.1-1 ✓ llm p/router, 1.1k in, 40 out
          ├─ 1-1.1-2 ✓ tool router/router__handoff-to, 22 in, 27 out
          └─ 1-1.1-3 ✓ agent agent/agent__researcher, 60 in, 161 out
             └─ ✓ session * “to know” (agent__router:agent__researcher)
                ├─ 1-1.1-3.1-1 ✓ llm p/researcher, 1.5k in, 156 out
                ├─ 1-1.1-3.1-2 ✓ agent agent/agent__reader, 66 in, 145 out
                │  └─ ✓ session * “to know” (agent__router:agent__researcher:agent__reader)
                │     ├─ 1-1.1-3.1-2.1-1 ✓ llm p/reader, 812 in, 31 out
                │     ├─ 1-1.1-3.1-2.1-2 ✓ tool library/library__look_up, 15 in, 10 out
                │     └─ 1-1.1-3.1-2.2-1 ✓ llm p/reader, 852 in, 105 out
                ├─ 1-1.1-3.1-3 ✓ agent agent/agent__watcher, 63 in, 140 out
                │  └─ ✓ session * “to know” (agent__router:agent__researcher:agent__watcher)
                │     ├─ 1-1.1-3.1-3.1-1 ✓ llm p/watcher, 760 in, 15 out
                │     ├─ 1-1.1-3.1-3.1-2 ✓ tool rest/rest__weather, 2 in, 14 out
                │     └─ 1-1.1-3.1-3.2-1 ✓ llm p/watcher, 792 in, 100 out
                └─ 1-1.1-3.2-1 ✓ llm p/researcher, 1.7k in, 121 out
    3 tools, 4 agents, 70 tokens in, 35 tokens out, $0.1400
    ");
}

#[tokio::test]
async fn every_model_request_has_a_span_under_its_agent() {
    let first = AgentSettings { agents: names(["reader"]), ..agent("first") };
    let reader = AgentSettings { tools: vec!["library".to_owned()], ..agent("reader") };
    let script = vec![
        on_turn("first", ScriptAction::calls([("agent__reader", prompt("What is moss?"))])),
        on_turn("reader", ScriptAction::calls([("library__look_up", json!({"word": "moss"}))])),
        on_turn("reader", report("sub-agent", "Moss is a plant.")),
        on_turn("first", report("sub-agent", "A plant.")),
    ];
    let harness = AgentHarness::new(vec![first, reader], script).await;
    assert_eq!(harness.run("first", prompt("Moss?")).await, "A plant.");
    assert_snapshot!(harness.spans.render(), @"
    execute_tool
      chat
      execute_tool
        chat
        execute_tool
        chat
      chat
    ");
}

#[tokio::test]
async fn a_report_is_cached_if_configured() {
    let keeper = AgentSettings { cache: Some("5m".parse().unwrap()), ..agent("keeper") };
    let script = vec![
        on_turn("keeper", report("sub-agent", "Once.")),
        on_turn("keeper", report("sub-agent", "Another.")),
        on_turn("other", report("sub-agent", "Once.")),
        on_turn("other", report("sub-agent", "Twice.")),
    ];
    let harness = AgentHarness::new(vec![keeper, agent("other")], script).await;
    assert_eq!(harness.run("keeper", prompt("Say.")).await, "Once.");
    assert_eq!(harness.run("keeper", prompt("Say.")).await, "Once.");
    assert_eq!(harness.run("keeper", prompt("Say more.")).await, "Another.");
    assert_eq!(harness.run("other", prompt("Say.")).await, "Once.");
    assert_eq!(harness.run("other", prompt("Say.")).await, "Twice.");
}
