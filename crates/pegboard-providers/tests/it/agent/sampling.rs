//! Agents that use the model of the calling client.

use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt, ready};
use insta::assert_snapshot;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_testkit::model_server::ScriptAction;
use pegboard_wire::client::{ClientOptions, Era, McpClient};
use pegboard_wire::link::InputLimits;
use pegboard_wire::stdio::line_transport;
use pegboard_wire::{Id, InboundHandler, InboundRequest, Notification, RpcError};
use serde_json::{Value, json};

use crate::agent::harness::{AgentHarness, NONCE, agent, names, on_turn, prompt, report};

/// Client with a scripted model.
struct ScriptedClient {
    script: Mutex<Vec<Value>>,
    asked: Mutex<Vec<Value>>,
}

impl ScriptedClient {
    fn new() -> Self {
        let report = format!("<final-report-{NONCE}>Moss is a plant.</final-report-{NONCE}>");
        let call =
            json!({"type": "tool_use", "id": "t1", "name": "library__look_up", "input": {"word": "moss"}});
        let reply = |content: Value| json!({"role": "assistant", "model": "own", "content": content});
        let script = vec![reply(json!([call])), reply(json!({"type": "text", "text": report}))];
        Self { script: Mutex::new(script), asked: Mutex::default() }
    }

    /// Describes the last message of each request.
    fn last_messages(&self) -> Vec<String> {
        let last = |asked: &Value| {
            let message = asked["messages"].as_array().unwrap().last().unwrap();
            format!("{} {}", message["role"], message["content"])
        };
        self.asked.lock().unwrap().iter().map(last).collect()
    }
}

impl InboundHandler for ScriptedClient {
    fn request(&self, inbound: InboundRequest) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let method = &*inbound.request.method;
        let answer = if method == "sampling/createMessage" {
            let params = inbound.request.params.as_ref().unwrap().to_value();
            self.asked.lock().unwrap().push(params);
            Ok(RawJson::from(self.script.lock().unwrap().remove(0)))
        } else {
            Err(RpcError::method_not_found(method))
        };
        ready(answer).boxed()
    }

    fn notification(&self, _notification: Notification, _related_request: Option<Id>) {}
}

async fn connect(harness: &AgentHarness, era: Era, capabilities: Value) -> (McpClient, Arc<ScriptedClient>) {
    let settings: GatewaySettings = serde_json::from_value(json!({"expose": "flat"})).unwrap();
    let gateway = Gateway::new(&harness.runtime, &settings).unwrap();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let (link, _) = line_transport(reader, writer, InputLimits::server());
    let server = gateway.server(None).unwrap();
    tokio::spawn(async move { server.serve(link).await });
    let (reader, writer) = tokio::io::split(near);
    let (link, _) = line_transport(reader, writer, InputLimits::client());
    let sampler = Arc::new(ScriptedClient::new());
    let capabilities = RawJson::from(capabilities);
    let options = ClientOptions { era: Some(era), capabilities, ..ClientOptions::new("sampler", "1") };
    (McpClient::connect(link, sampler.clone(), options).await.unwrap(), sampler)
}

/// Creates an agent with its own model, and a sub-agent that uses the client's.
async fn harness() -> AgentHarness {
    let first = AgentSettings { agents: names(["second"]), ..agent("first") };
    let second = AgentSettings {
        models: vec!["client/default".parse().unwrap()],
        tools: vec!["library__look_up".to_owned()],
        max_retries: 0,
        ..agent("second")
    };
    let script = vec![
        on_turn("first", ScriptAction::calls([("agent__second", prompt("What is moss?"))])),
        on_turn("first", report("sub-agent", "As I said.")),
    ];
    AgentHarness::new(vec![first, second], script).await
}

async fn ask(client: &McpClient) -> String {
    let params = RawJson::from(json!({"name": "agent__first", "arguments": prompt("Moss?")}));
    let result = client.call("tools/call", Some(params)).await.unwrap().to_value();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_sub_agent_can_sample_from_a_client_of_either_era() {
    for era in [Era::Session, Era::Stateless] {
        let harness = harness().await;
        let (client, sampler) = connect(&harness, era, json!({"sampling": {"tools": {}}})).await;
        assert_eq!(ask(&client).await, "As I said.", "{era:?}");
        assert_eq!(harness.tool_and_user_messages("first"), ["Moss is a plant."], "{era:?}");
        assert_eq!(harness.activity.n_begun(), 1, "nothing is done twice, {era:?}");
        let messages = sampler.last_messages();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].contains("What is moss?") && messages[1].contains("about moss"), "{messages:?}");
        let system = sampler.asked.lock().unwrap()[0]["systemPrompt"].as_str().unwrap().to_owned();
        assert!(system.starts_with("You are second."), "{system}");
    }
}

#[tokio::test]
async fn a_client_without_sampling_fails_the_sub_agent() {
    let harness = harness().await;
    let (client, _) = connect(&harness, Era::Session, json!({})).await;
    assert_eq!(ask(&client).await, "As I said.");
    assert_snapshot!(harness.tool_and_user_messages("first").join("\n"), @"(tool failed: model 'client/default' rejected the request: the calling client does not support sampling. Change the request or the model)");
}
