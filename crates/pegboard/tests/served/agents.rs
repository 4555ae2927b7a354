//! Agents, from their files to the client.

use pegboard_testkit::model_server::{Act, ModelServer, Script};
use serde_json::{Value, json};

use crate::stage::{Seat, Stage, WAYS, call, listed, text};

/// What an agent is asked with.
fn question(prompt: &str) -> Value {
    json!({"prompt": prompt, "reason": "to know", "format": "sub-agent"})
}

/// A model that gives a final report, over and over.
async fn model() -> ModelServer {
    let report = json!({"status": "success", "format": "sub-agent", "content": "42"});
    let acts = [
        Act::calls([("agent__final_report", report.clone())]),
        Act::calls([("agent__final_report", report)]),
    ];
    ModelServer::start(Script::of(acts)).await.unwrap()
}

/// A client of a gateway that serves agents of two toolboxes.
async fn seat(model: &ModelServer, way: usize) -> Seat {
    let stage = Stage::new();
    let agent =
        |models: &str, rest: &str| format!("---\ndescription: Counts\nmodels: {models}\n{rest}---\nCount.\n");
    stage.write("counter.md", &agent("[local/small]", "usage: Ask it for numbers\n"));
    stage.write("fallback.md", &agent("[cloud/large, local/small]", ""));
    stage.write("thoughtless.md", &agent("cloud/large", ""));
    stage.write("needy.md", &agent("local/small", "agents: [thoughtless.md]\n"));
    stage.write("bad.md", &agent("small", ""));
    let configuration = json!({
        "pegboard": 1,
        "expose": "flat",
        "agents": ["*.md"],
        "providers": {
            "local": {"type": "openai-compatible", "baseUrl": model.chat_url(), "apiKey": "${LOCAL_KEY}"},
            "cloud": {"type": "anthropic", "apiKey": "${NOT_SET}"},
        },
    });
    let file = stage.write("pegboard.json", &configuration.to_string());
    Seat::take_with(stage, &file, None, WAYS[way], &[("LOCAL_KEY", "sk-local")]).await
}

#[tokio::test]
async fn an_agent_of_the_file_is_a_tool_of_clients() {
    for way in 0..WAYS.len() {
        let model = model().await;
        let seat = seat(&model, way).await;
        let names = listed(&seat.client).await;
        let names: Vec<&str> = names.iter().filter_map(|tool| tool["name"].as_str()).collect();
        let agents: Vec<&&str> = names.iter().filter(|name| name.starts_with("agent__")).collect();
        // Those that have no model, or need one that has none, are left out alone.
        assert_eq!(agents, [&"agent__counter", &"agent__fallback"], "{names:?}");

        for agent in ["agent__counter", "agent__fallback"] {
            let answer = call(&seat.client, agent, question("6*7?")).await;
            assert_eq!((text(&answer).as_str(), &answer["isError"]), ("42", &Value::Null), "{answer}");
        }
        let requests = model.requests();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[0].headers["authorization"], "Bearer sk-local");
        assert_eq!((model.violations(), model.n_left()), (Vec::new(), 0));
    }
}
