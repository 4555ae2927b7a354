//! Agents served to clients.

use pegboard_testkit::model_server::{ModelServer, Script, ScriptAction};
use serde_json::{Value, json};

use crate::harness::{CLIENT_KINDS, ConnectedClient, TestEnvironment, call, listed, text};

/// Arguments of an agent.
fn question(prompt: &str) -> Value {
    json!({"prompt": prompt, "reason": "to know", "format": "sub-agent"})
}

/// A model that always returns a final report.
async fn model() -> ModelServer {
    let report = json!({"status": "success", "format": "sub-agent", "content": "42"});
    let acts = [
        ScriptAction::calls([("agent__final_report", report.clone())]),
        ScriptAction::calls([("agent__final_report", report)]),
    ];
    ModelServer::start(Script::of(acts)).await.unwrap()
}

/// Connects a client to a gateway with agents in two toolboxes.
async fn connected(model: &ModelServer, kind: usize) -> ConnectedClient {
    let environment = TestEnvironment::new();
    let agent =
        |models: &str, rest: &str| format!("---\ndescription: Counts\nmodels: {models}\n{rest}---\nCount.\n");
    environment.write("counter.md", &agent("[local/small]", "usage: Ask it for numbers\n"));
    environment.write("fallback.md", &agent("[cloud/large, local/small]", ""));
    environment.write("thoughtless.md", &agent("cloud/large", ""));
    environment.write("needy.md", &agent("local/small", "agents: [thoughtless.md]\n"));
    environment.write("bad.md", &agent("small", ""));
    let configuration = json!({
        "pegboard": 1,
        "expose": "flat",
        "agents": ["*.md"],
        "providers": {
            "local": {"type": "openai-compatible", "baseUrl": model.chat_url(), "apiKey": "${LOCAL_KEY}"},
            "cloud": {"type": "anthropic", "apiKey": "${NOT_SET}"},
        },
    });
    let file = environment.write("pegboard.json", &configuration.to_string());
    ConnectedClient::connect_with(environment, &file, None, CLIENT_KINDS[kind], &[("LOCAL_KEY", "sk-local")])
        .await
}

#[tokio::test]
async fn a_configured_agent_is_listed_as_a_tool() {
    for kind in 0..CLIENT_KINDS.len() {
        let model = model().await;
        let connected = connected(&model, kind).await;
        let names = listed(&connected.client).await;
        let names: Vec<&str> = names.iter().filter_map(|tool| tool["name"].as_str()).collect();
        let agents: Vec<&&str> = names.iter().filter(|name| name.starts_with("agent__")).collect();
        // Only agents without a model, and those that depend on them, are missing.
        assert_eq!(agents, [&"agent__counter", &"agent__fallback"], "{names:?}");

        for agent in ["agent__counter", "agent__fallback"] {
            let answer = call(&connected.client, agent, question("6*7?")).await;
            assert_eq!((text(&answer).as_str(), &answer["isError"]), ("42", &Value::Null), "{answer}");
        }
        let requests = model.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0].headers["authorization"], "Bearer sk-local");
        assert_eq!((model.violations(), model.n_unused_turns()), (Vec::new(), 0));
    }
}
