//! Agents that use the model of the calling client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt, ready};
use indexmap::IndexMap;
use insta::assert_snapshot;
use pegboard::entry::ToolEntry;
use pegboard::gateway::Gateway;
use pegboard::id::ToolName;
use pegboard::model::ModelProviderName;
use pegboard::provider::LocalProvider;
use pegboard::providers::agent::{AgentEnvironment, AgentRegistry};
use pegboard::providers::model::Models;
use pegboard::runtime::Runtime;
use pegboard::secret::Secret;
use pegboard::settings::agent::AgentSettings;
use pegboard::settings::gateway::GatewaySettings;
use pegboard::settings::model::{ModelProviderKind, ModelProviderSettings};
use pegboard::wire::client::{ClientOptions, Era, McpClient};
use pegboard::wire::stdio::line_transport;
use pegboard::wire::transport::InputLimits;
use pegboard::wire::{Id, InboundHandler, InboundRequest, Notification, RawJson, RpcError};
use pegboard_testkit::model_server::{ModelServer, Script, ScriptAction};
use serde_json::{Value, json};

/// Nonce of every session.
const NONCE: &str = "5e55";

/// Runtime with an agent that has its own model, and a sub-agent that uses the client's.
struct AgentRuntime {
    models: ModelServer,
    runtime: Runtime,
    n_lookups: Arc<AtomicUsize>,
}

impl AgentRuntime {
    async fn start() -> Self {
        let agent = |name: &str, model: &str| AgentSettings {
            path: format!("{name}.ai").into(),
            description: format!("Does {name}."),
            models: vec![model.parse().unwrap()],
            prompt: format!("You are {name}."),
            ..AgentSettings::new(ToolName::new(name).unwrap())
        };
        let first = AgentSettings {
            agents: vec![ToolName::new("second").unwrap()],
            max_retries: 1,
            ..agent("first", "p/first")
        };
        let second = AgentSettings {
            tools: vec!["library__look_up".to_owned()],
            max_retries: 0,
            ..agent("second", "client/default")
        };
        let report = format!(
            "<final-report-{NONCE} format=\"sub-agent\" status=\"success\">\nAs I said.\n</final-report-{NONCE}>"
        );
        let script = Script::of([
            ScriptAction::calls([("agent__second", prompt("What is moss?"))]),
            ScriptAction::text(&report),
        ]);
        let models = ModelServer::start(script).await.unwrap();
        let own = ModelProviderSettings {
            base_url: Some(models.chat_url()),
            api_key: Some(Secret::new("sk-test")),
            ..ModelProviderSettings::new(ModelProviderKind::OpenAiCompatible)
        };
        let sampling = ModelProviderSettings::new(ModelProviderKind::Sampling);
        let named = |(name, settings)| (ModelProviderName::new(name).unwrap(), settings);
        let environment = AgentEnvironment {
            clock: Box::new(|| SystemTime::UNIX_EPOCH),
            nonce: Box::new(|| NONCE.to_owned()),
        };
        let model_clients = Models::new(&IndexMap::from([("p", own), ("client", sampling)].map(named)));
        let agents =
            AgentRegistry::with_environment(vec![first, second], model_clients, environment).unwrap();
        let n_lookups = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&n_lookups);
        let look_up = ToolEntry::from_fn("look_up", "Looks a word up.", move |asked: Value| {
            counter.fetch_add(1, Ordering::SeqCst);
            async move { Ok(format!("about {}", asked["word"].as_str().unwrap_or_default())) }
        })
        .with_input_schema(json!({"type": "object", "properties": {"word": {"type": "string"}}}));
        let runtime = Runtime::builder()
            .provide("library", LocalProvider::new([look_up]))
            .provide("agent", agents.provider())
            .start()
            .await
            .unwrap();
        Self { models, runtime, n_lookups }
    }

    /// Returns the answer of the sub-agent in the last request to the first agent's model.
    fn sub_agent_answer(&self) -> String {
        assert_eq!(self.models.violations(), Vec::<String>::new());
        let request = self.models.requests().pop().unwrap().body;
        let messages = request["messages"].as_array().unwrap();
        let answers: Vec<&str> = messages
            .iter()
            .filter(|message| message["role"] == "tool" || message["role"] == "user")
            .skip(1)
            .map(|message| message["content"].as_str().unwrap())
            .collect();
        answers.join("\n")
    }
}

/// Creates the arguments for an agent.
fn prompt(text: &str) -> Value {
    json!({"prompt": text, "reason": "to know", "format": "sub-agent"})
}

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

async fn connect(agents: &AgentRuntime, era: Era, capabilities: Value) -> (McpClient, Arc<ScriptedClient>) {
    let settings: GatewaySettings = serde_json::from_value(json!({"expose": "flat"})).unwrap();
    let gateway = Gateway::new(&agents.runtime, &settings).unwrap();
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let (transport, _) = line_transport(reader, writer, InputLimits::server());
    let server = gateway.server(None).unwrap();
    tokio::spawn(async move { server.serve(transport).await });
    let (reader, writer) = tokio::io::split(near);
    let (transport, _) = line_transport(reader, writer, InputLimits::client());
    let sampler = Arc::new(ScriptedClient::new());
    let capabilities = RawJson::from(capabilities);
    let options = ClientOptions { era: Some(era), capabilities, ..ClientOptions::new("sampler", "1") };
    (McpClient::connect(transport, sampler.clone(), options).await.unwrap(), sampler)
}

async fn ask(client: &McpClient) -> String {
    let params = RawJson::from(json!({"name": "agent__first", "arguments": prompt("Moss?")}));
    let result = client.call("tools/call", Some(params)).await.unwrap().to_value();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_sub_agent_can_sample_from_a_client_of_either_era() {
    for era in [Era::Session, Era::Stateless] {
        let agents = AgentRuntime::start().await;
        let (client, sampler) = connect(&agents, era, json!({"sampling": {"tools": {}}})).await;
        assert_eq!(ask(&client).await, "As I said.", "{era:?}");
        assert_eq!(agents.sub_agent_answer(), "Moss is a plant.", "{era:?}");
        assert_eq!(agents.n_lookups.load(Ordering::SeqCst), 1, "nothing is done twice, {era:?}");
        let messages = sampler.last_messages();
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(messages[0].contains("What is moss?") && messages[1].contains("about moss"), "{messages:?}");
        let system = sampler.asked.lock().unwrap()[0]["systemPrompt"].as_str().unwrap().to_owned();
        assert!(system.starts_with("You are second."), "{system}");
    }
}

#[tokio::test]
async fn a_client_without_sampling_fails_the_sub_agent() {
    let agents = AgentRuntime::start().await;
    let (client, _) = connect(&agents, Era::Session, json!({})).await;
    assert_eq!(ask(&client).await, "As I said.");
    assert_snapshot!(agents.sub_agent_answer(), @"(tool failed: model 'client/default' rejected the request: the calling client does not support sampling. Change the request or the model)");
}
