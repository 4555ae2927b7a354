//! Harness for models: a scripted server, clients of each kind, and summaries of replies.

use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use pegboard_core::client::{Client, NoClient};
use pegboard_core::model::{
    ChatMessage, Delivery, Model, ModelError, ModelProviderName, ModelReply, ModelRequest, ReplyEvent,
    ToolSpec,
};
use pegboard_core::secret::Secret;
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
use pegboard_json::RawJson;
use pegboard_providers::model::Models;
use pegboard_testkit::model_server::{ModelServer, Script, ScriptAction};
use serde_json::json;

/// API key of every provider.
pub(crate) const KEY: &str = "sk-nobody-should-see-this";

/// Provider kinds with a server.
pub(crate) const KINDS: [ModelProviderKind; 2] =
    [ModelProviderKind::OpenAiCompatible, ModelProviderKind::Anthropic];

/// Both deliveries of a reply.
pub(crate) const DELIVERIES: [Delivery; 2] = [Delivery::Streamed, Delivery::Whole];

/// Returns settings for a provider at this server.
pub(crate) fn settings(kind: ModelProviderKind, server: &ModelServer) -> ModelProviderSettings {
    let base_url = match kind {
        ModelProviderKind::OpenAiCompatible => Some(server.chat_url()),
        ModelProviderKind::Anthropic => Some(server.messages_url()),
        ModelProviderKind::Sampling => None,
    };
    let api_key = Some(Secret::new(KEY));
    ModelProviderSettings { base_url, api_key, ..ModelProviderSettings::new(kind) }
}

/// Creates the model `p/m` of a provider.
pub(crate) fn model(settings: ModelProviderSettings) -> Arc<dyn Model> {
    let models = Models::new(&IndexMap::from([(ModelProviderName::new("p").unwrap(), settings)]));
    let client: Arc<dyn Client> = Arc::new(NoClient);
    models.find(&"p/m".parse().unwrap(), &client).unwrap()
}

/// Starts a scripted server and creates a model for it.
pub(crate) async fn start_server(
    kind: ModelProviderKind,
    acts: impl IntoIterator<Item = ScriptAction>,
) -> (ModelServer, Arc<dyn Model>) {
    let server = ModelServer::start(Script::of(acts)).await.unwrap();
    let model = model(settings(kind, &server));
    (server, model)
}

/// Creates the request that most tests send.
pub(crate) fn request(delivery: Delivery) -> ModelRequest {
    ModelRequest {
        system: "You add.".to_owned(),
        messages: vec![ChatMessage::user("What is 1 + 2?")],
        tools: vec![tool("add"), tool("subtract")],
        delivery,
        max_output_tokens: Some(2_000),
        ..ModelRequest::default()
    }
}

/// Creates a tool offer.
pub(crate) fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: format!("To {name}."),
        input_schema: RawJson::from(json!({"type": "object", "properties": {"a": {"type": "number"}}})),
    }
}

/// Queries a model; returns the reply with the streamed text and thoughts.
pub(crate) async fn ask(
    model: &dyn Model,
    request: &ModelRequest,
) -> (Result<ModelReply, ModelError>, String, String) {
    let streamed = Mutex::new((String::new(), String::new()));
    let reply = model
        .answer(request, &|piece| {
            let mut streamed = streamed.lock().unwrap();
            match piece {
                ReplyEvent::Text(text) => streamed.0.push_str(text),
                ReplyEvent::Thinking(thought) => streamed.1.push_str(thought),
                ReplyEvent::Restarted => *streamed = Default::default(),
            }
        })
        .await;
    let (text, thoughts) = streamed.into_inner().unwrap();
    (reply, text, thoughts)
}

/// Describes a reply or error in one line.
pub(crate) fn describe(reply: &Result<ModelReply, ModelError>) -> String {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return format!("{:?}: {}", error.kind, error.reason),
    };
    let calls = reply.tool_calls.iter().map(|call| format!("{}({})", call.name, call.arguments));
    let calls: Vec<String> = calls.collect();
    format!("{:?} [{}] {:?}", reply.text, calls.join(", "), reply.stop)
}

/// Checks the result for every kind and both deliveries.
pub(crate) async fn check(act: ScriptAction, expected: &str) {
    let runs = || KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery)));
    let server = ModelServer::start(Script::of(runs().map(|_| act.clone()))).await.unwrap();
    // Models are created once, since setting up HTTP is slow.
    let name = |kind: ModelProviderKind| ModelProviderName::new(&format!("{kind:?}")).unwrap();
    let models = Models::new(&KINDS.map(|kind| (name(kind), settings(kind, &server))).into());
    let client: Arc<dyn Client> = Arc::new(NoClient);
    for (kind, delivery) in runs() {
        let model = models.find(&format!("{kind:?}/m").parse().unwrap(), &client).unwrap();
        verify(&server, &*model, delivery, expected).await;
    }
}

/// Checks the result for one kind and one delivery.
pub(crate) async fn check_single(
    kind: ModelProviderKind,
    delivery: Delivery,
    act: ScriptAction,
    expected: &str,
) {
    let (server, model) = start_server(kind, [act]).await;
    verify(&server, &*model, delivery, expected).await;
}

/// Checks the result of one request, and that the request was valid.
async fn verify(server: &ModelServer, model: &dyn Model, delivery: Delivery, expected: &str) {
    let (reply, streamed, _) = ask(model, &request(delivery)).await;
    assert_eq!(describe(&reply), expected, "{model:?} {delivery:?}");
    assert_eq!(server.violations(), Vec::<String>::new());
    if let Ok(reply) = reply {
        assert_eq!(streamed, reply.text, "{model:?} {delivery:?}");
        let mut ids: Vec<&str> = reply.tool_calls.iter().map(|call| call.id.as_str()).collect();
        assert!(!ids.contains(&""), "{ids:?}");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), reply.tool_calls.len(), "ids are unique");
    }
}
