//! A scripted model server, models of each kind that ask it, and what came of it in a few words.

use std::sync::{Arc, Mutex};

use indexmap::IndexMap;
use pegboard_core::client::{Client, NoClient};
use pegboard_core::model::{
    Delivery, Message, Model, ModelError, ModelProviderName, ModelReply, ModelRequest, Piece, ToolOffer,
};
use pegboard_core::settings::mcp::Secret;
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
use pegboard_json::RawJson;
use pegboard_providers::model::Models;
use pegboard_testkit::model_server::{Act, ModelServer, Script};
use serde_json::json;

/// The key of every provider.
pub(crate) const KEY: &str = "sk-nobody-should-see-this";

/// Both kinds of providers that have a server.
pub(crate) const KINDS: [ModelProviderKind; 2] =
    [ModelProviderKind::OpenAiCompatible, ModelProviderKind::Anthropic];

/// Both ways that a reply comes.
pub(crate) const DELIVERIES: [Delivery; 2] = [Delivery::Streamed, Delivery::Whole];

/// Settings of a provider that is this server.
pub(crate) fn settings(kind: ModelProviderKind, server: &ModelServer) -> ModelProviderSettings {
    let base_url = match kind {
        ModelProviderKind::OpenAiCompatible => Some(server.chat_url()),
        ModelProviderKind::Anthropic => Some(server.messages_url()),
        ModelProviderKind::Sampling => None,
    };
    let api_key = Some(Secret::new(KEY));
    ModelProviderSettings { base_url, api_key, ..ModelProviderSettings::new(kind) }
}

/// The model `p/m` of a provider.
pub(crate) fn model(settings: ModelProviderSettings) -> Arc<dyn Model> {
    let models = Models::new(&IndexMap::from([(ModelProviderName::new("p").unwrap(), settings)]));
    let nobody: Arc<dyn Client> = Arc::new(NoClient);
    models.find(&"p/m".parse().unwrap(), &nobody).unwrap()
}

/// A server with a script, and a model of it.
pub(crate) async fn scene(
    kind: ModelProviderKind,
    acts: impl IntoIterator<Item = Act>,
) -> (ModelServer, Arc<dyn Model>) {
    let server = ModelServer::start(Script::of(acts)).await.unwrap();
    let model = model(settings(kind, &server));
    (server, model)
}

/// What every model is asked.
pub(crate) fn request(delivery: Delivery) -> ModelRequest {
    ModelRequest {
        system: "You add.".to_owned(),
        messages: vec![Message::user("What is 1 + 2?")],
        tools: vec![tool("add"), tool("subtract")],
        delivery,
        max_output_tokens: Some(2_000),
        ..ModelRequest::default()
    }
}

/// A tool that is offered.
pub(crate) fn tool(name: &str) -> ToolOffer {
    ToolOffer {
        name: name.to_owned(),
        description: format!("To {name}."),
        input_schema: RawJson::from(json!({"type": "object", "properties": {"a": {"type": "number"}}})),
    }
}

/// Asks a model, and gives what was heard of the reply's text beside it.
pub(crate) async fn ask(
    model: &dyn Model,
    request: &ModelRequest,
) -> (Result<ModelReply, ModelError>, String, String) {
    let heard = Mutex::new((String::new(), String::new()));
    let reply = model
        .answer(request, &|piece| {
            let mut heard = heard.lock().unwrap();
            match piece {
                Piece::Text(text) => heard.0.push_str(text),
                Piece::Thought(thought) => heard.1.push_str(thought),
                Piece::Again => *heard = Default::default(),
            }
        })
        .await;
    let (text, thoughts) = heard.into_inner().unwrap();
    (reply, text, thoughts)
}

/// A reply, or why there is none, in one line.
pub(crate) fn told(reply: &Result<ModelReply, ModelError>) -> String {
    let reply = match reply {
        Ok(reply) => reply,
        Err(error) => return format!("{:?}: {}", error.kind, error.reason),
    };
    let calls = reply.tool_calls.iter().map(|call| format!("{}({})", call.name, call.arguments));
    let calls: Vec<String> = calls.collect();
    format!("{:?} [{}] {:?}", reply.text, calls.join(", "), reply.stop)
}

/// Does the same for every kind and both deliveries, and checks that all say the same.
pub(crate) async fn check(act: Act, expected: &str) {
    let runs = || KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery)));
    let server = ModelServer::start(Script::of(runs().map(|_| act.clone()))).await.unwrap();
    // One set of models, since setting up HTTP takes longest.
    let name = |kind: ModelProviderKind| ModelProviderName::new(&format!("{kind:?}")).unwrap();
    let models = Models::new(&KINDS.map(|kind| (name(kind), settings(kind, &server))).into());
    let nobody: Arc<dyn Client> = Arc::new(NoClient);
    for (kind, delivery) in runs() {
        let model = models.find(&format!("{kind:?}/m").parse().unwrap(), &nobody).unwrap();
        verify(&server, &*model, delivery, expected).await;
    }
}

/// Does it for one kind and one delivery.
pub(crate) async fn check_one(kind: ModelProviderKind, delivery: Delivery, act: Act, expected: &str) {
    let (server, model) = scene(kind, [act]).await;
    verify(&server, &*model, delivery, expected).await;
}

/// Checks what comes of one request, and that nothing was wrong with it.
async fn verify(server: &ModelServer, model: &dyn Model, delivery: Delivery, expected: &str) {
    let (reply, heard, _) = ask(model, &request(delivery)).await;
    assert_eq!(told(&reply), expected, "{model:?} {delivery:?}");
    assert_eq!(server.violations(), Vec::<String>::new());
    if let Ok(reply) = reply {
        assert_eq!(heard, reply.text, "{model:?} {delivery:?}");
        let mut ids: Vec<&str> = reply.tool_calls.iter().map(|call| call.id.as_str()).collect();
        assert!(!ids.contains(&""), "{ids:?}");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), reply.tool_calls.len(), "ids are there once");
    }
}
