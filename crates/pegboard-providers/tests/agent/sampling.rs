//! Clients that lend their model to an agent.

use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt, ready};
use insta::assert_snapshot;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_testkit::model_server::Act;
use pegboard_wire::client::{Client, ClientOptions, Era};
use pegboard_wire::link::InputLimits;
use pegboard_wire::stdio::lines;
use pegboard_wire::{Id, Inbound, Notification, Receiver, RpcError};
use serde_json::{Value, json};

use crate::stage::{NONCE, Stage, agent, names, prompt, report, then};

/// A client with a model that follows a script.
struct Lender {
    script: Mutex<Vec<Value>>,
    asked: Mutex<Vec<Value>>,
}

impl Lender {
    fn new() -> Self {
        let report = format!("<final-report-{NONCE}>Moss is a plant.</final-report-{NONCE}>");
        let call =
            json!({"type": "tool_use", "id": "t1", "name": "library__look_up", "input": {"word": "moss"}});
        let reply = |content: Value| json!({"role": "assistant", "model": "own", "content": content});
        let script = vec![reply(json!([call])), reply(json!({"type": "text", "text": report}))];
        Self { script: Mutex::new(script), asked: Mutex::default() }
    }

    /// The last message of each request, in a few words.
    fn heard(&self) -> Vec<String> {
        let last = |asked: &Value| {
            let message = asked["messages"].as_array().unwrap().last().unwrap();
            format!("{} {}", message["role"], message["content"])
        };
        self.asked.lock().unwrap().iter().map(last).collect()
    }
}

impl Receiver for Lender {
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>> {
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

    fn notification(&self, _notification: Notification, _about: Option<Id>) {}
}

async fn connect(stage: &Stage, era: Era, capabilities: Value) -> (Client, Arc<Lender>) {
    let settings: GatewaySettings = serde_json::from_value(json!({"expose": "flat"})).unwrap();
    let gateway = Gateway::new(&stage.runtime, &settings).unwrap();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let (link, _) = lines(reader, writer, InputLimits::server());
    let server = gateway.server(None).unwrap();
    tokio::spawn(async move { server.serve(link).await });
    let (reader, writer) = tokio::io::split(near);
    let (link, _) = lines(reader, writer, InputLimits::client());
    let lender = Arc::new(Lender::new());
    let capabilities = RawJson::from(capabilities);
    let options = ClientOptions { era: Some(era), capabilities, ..ClientOptions::new("lender", "1") };
    (Client::connect(link, lender.clone(), options).await.unwrap(), lender)
}

/// An agent with a model of its own, and one under it that uses the client's.
async fn stage() -> Stage {
    let first = AgentSettings { agents: names(["second"]), ..agent("first") };
    let second = AgentSettings {
        models: vec!["client/default".parse().unwrap()],
        tools: vec!["library__look_up".to_owned()],
        max_retries: 0,
        ..agent("second")
    };
    let script = vec![
        then("first", Act::calls([("agent__second", prompt("What is moss?"))])),
        then("first", report("sub-agent", "As I said.")),
    ];
    Stage::new(vec![first, second], script).await
}

async fn ask(client: &Client) -> String {
    let params = RawJson::from(json!({"name": "agent__first", "arguments": prompt("Moss?")}));
    let result = client.call("tools/call", Some(params)).await.unwrap().to_value();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_client_of_either_era_lends_its_model_to_a_sub_agent() {
    for era in [Era::Session, Era::Stateless] {
        let stage = stage().await;
        let (client, lender) = connect(&stage, era, json!({"sampling": {"tools": {}}})).await;
        assert_eq!(ask(&client).await, "As I said.", "{era:?}");
        assert_eq!(stage.heard("first"), ["Moss is a plant."], "{era:?}");
        assert_eq!(stage.work.n_begun(), 1, "nothing is done twice, {era:?}");
        let heard = lender.heard();
        assert_eq!(heard.len(), 2, "{heard:?}");
        assert!(heard[0].contains("What is moss?") && heard[1].contains("about moss"), "{heard:?}");
        let system = lender.asked.lock().unwrap()[0]["systemPrompt"].as_str().unwrap().to_owned();
        assert!(system.starts_with("You are second."), "{system}");
    }
}

#[tokio::test]
async fn a_client_without_a_model_is_told_to_the_agent_above() {
    let stage = stage().await;
    let (client, _) = connect(&stage, Era::Session, json!({})).await;
    assert_eq!(ask(&client).await, "As I said.");
    assert_snapshot!(stage.heard("first").join("\n"), @"(tool failed: model 'client/default' refuses the request: the client that made the call lends no model. Change what it is asked, or the model)");
}
