//! Agents that call agents that call agents.

use insta::assert_snapshot;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_core::settings::model::ModelProviderKind;
use pegboard_testkit::model_server::{Act, Turn};
use serde_json::json;

use crate::stage::{Stage, agent, names, prompt, report, then};

fn agents() -> Vec<AgentSettings> {
    let router = AgentSettings { destinations: names(["researcher"]), ..agent("router") };
    let researcher = AgentSettings { agents: names(["reader", "watcher"]), ..agent("researcher") };
    let reader = AgentSettings { tools: vec!["library__look_up".to_owned()], ..agent("reader") };
    let watcher = AgentSettings { tools: vec!["weather".to_owned()], ..agent("watcher") };
    vec![router, researcher, reader, watcher]
}

fn script() -> Vec<Turn> {
    let asked = [("agent__reader", prompt("What is moss?")), ("agent__watcher", prompt("Is it wet?"))];
    vec![
        then("router", Act::calls([("router__handoff-to", json!({"agent": "researcher"}))])),
        then("researcher", Act::calls(asked)),
        then("reader", Act::calls([("library__look_up", json!({"word": "moss"}))])),
        then("reader", report("sub-agent", "Moss is a plant.")),
        then("watcher", Act::calls([("rest__weather", json!({}))])),
        then("watcher", report("sub-agent", "It is grey.")),
        then("researcher", report("sub-agent", "Moss is a plant, and it is grey.")),
    ]
}

#[tokio::test]
async fn three_levels_of_agents_are_one_tree() {
    let mut drawn = Vec::new();
    for kind in [ModelProviderKind::OpenAiCompatible, ModelProviderKind::Anthropic] {
        let stage = Stage::with(kind, agents(), script()).await;
        let answer = stage.run("router", prompt("Tell me of moss and weather.")).await;
        assert_eq!(answer, "Moss is a plant, and it is grey.");
        assert_eq!(stage.models.n_left(), 0);
        drawn.push(stage.tree());
    }
    let sizes = |drawn: &str| {
        let without = |line: &str| {
            line.split(", ")
                .filter(|part| !part.ends_with(" in") || part.contains("token"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        drawn.lines().map(without).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(sizes(&drawn[0]), sizes(&drawn[1]));
    assert_snapshot!(drawn[0], @"
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
async fn every_model_has_a_span_under_its_agents() {
    let first = AgentSettings { agents: names(["reader"]), ..agent("first") };
    let reader = AgentSettings { tools: vec!["library".to_owned()], ..agent("reader") };
    let script = vec![
        then("first", Act::calls([("agent__reader", prompt("What is moss?"))])),
        then("reader", Act::calls([("library__look_up", json!({"word": "moss"}))])),
        then("reader", report("sub-agent", "Moss is a plant.")),
        then("first", report("sub-agent", "A plant.")),
    ];
    let stage = Stage::new(vec![first, reader], script).await;
    assert_eq!(stage.run("first", prompt("Moss?")).await, "A plant.");
    assert_snapshot!(stage.spans.drawn(), @"
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
async fn an_answer_is_given_again_where_the_file_says_so() {
    let keeper = AgentSettings { cache: Some("5m".parse().unwrap()), ..agent("keeper") };
    let script = vec![
        then("keeper", report("sub-agent", "Once.")),
        then("keeper", report("sub-agent", "Another.")),
        then("other", report("sub-agent", "Once.")),
        then("other", report("sub-agent", "Twice.")),
    ];
    let stage = Stage::new(vec![keeper, agent("other")], script).await;
    assert_eq!(stage.run("keeper", prompt("Say.")).await, "Once.");
    assert_eq!(stage.run("keeper", prompt("Say.")).await, "Once.");
    assert_eq!(stage.run("keeper", prompt("Say more.")).await, "Another.");
    assert_eq!(stage.run("other", prompt("Say.")).await, "Once.");
    assert_eq!(stage.run("other", prompt("Say.")).await, "Twice.");
}
