//! Request bodies and headers.

use insta::assert_snapshot;
use pegboard_core::model::{
    ChatMessage, ContentPart, Delivery, ModelRequest, PromptCaching, ReasoningEffort, ToolChoice,
};
use pegboard_core::secret::Secret;
use pegboard_core::settings::model::ModelProviderKind::{Anthropic, OpenAiCompatible};
use pegboard_core::settings::model::{ModelProviderKind, ModelProviderSettings};
use pegboard_testkit::model_server::{ModelServer, Script, ScriptAction};

use crate::model::harness::{KEY, ask, model, request, settings, start_server, tool};

async fn sent(kind: ModelProviderKind, request: &ModelRequest) -> String {
    let (server, model) = start_server(kind, [ScriptAction::text("3")]).await;
    ask(&*model, request).await.0.unwrap();
    assert_eq!(server.violations(), Vec::<String>::new());
    server.requests()[0].body.to_string()
}

/// Creates a request with every field set.
fn full() -> ModelRequest {
    let image = ContentPart::Image { media_type: "image/png".to_owned(), base64: "iVBORw0KGgo=".to_owned() };
    ModelRequest {
        messages: vec![ChatMessage::User(vec![ContentPart::Text("What is it?".to_owned()), image])],
        tools: vec![tool("add")],
        tool_choice: ToolChoice::Required,
        temperature: Some(0.5),
        top_p: Some(0.9),
        top_k: Some(40),
        stop: vec!["END".to_owned()],
        caching: PromptCaching::Requested,
        ..request(Delivery::Whole)
    }
}

#[tokio::test]
async fn all_set_fields_are_sent() {
    assert_snapshot!(sent(OpenAiCompatible, &full()).await, @r#"{"model":"m","messages":[{"role":"system","content":"You add."},{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}],"tools":[{"type":"function","function":{"name":"add","description":"To add.","parameters":{"type":"object","properties":{"a":{"type":"number"}}}}}],"tool_choice":"required","max_tokens":2000,"temperature":0.5,"top_p":0.9,"top_k":40,"stop":["END"],"stream":false}"#);
    assert_snapshot!(sent(Anthropic, &full()).await, @r#"{"model":"m","max_tokens":2000,"system":[{"type":"text","text":"You add.","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="},"cache_control":{"type":"ephemeral"}}]}],"tools":[{"name":"add","description":"To add.","input_schema":{"type":"object","properties":{"a":{"type":"number"}}}}],"tool_choice":{"type":"any"},"temperature":0.5,"top_p":0.9,"top_k":40,"stop_sequences":["END"],"stream":false}"#);
}

#[tokio::test]
async fn unset_fields_are_omitted() {
    let bare = ModelRequest { messages: vec![ChatMessage::user("Hello?")], ..ModelRequest::default() };
    assert_snapshot!(sent(OpenAiCompatible, &bare).await, @r#"{"model":"m","messages":[{"role":"user","content":"Hello?"}],"stream":true,"stream_options":{"include_usage":true}}"#);
    assert_snapshot!(sent(Anthropic, &bare).await, @r#"{"model":"m","max_tokens":4096,"messages":[{"role":"user","content":[{"type":"text","text":"Hello?"}]}],"stream":true}"#);
}

#[tokio::test]
async fn reasoning_is_translated_for_each_api() {
    let mut lines = Vec::new();
    for reasoning in [
        ReasoningEffort::Minimal,
        ReasoningEffort::Low,
        ReasoningEffort::Medium,
        ReasoningEffort::High,
        ReasoningEffort::Tokens(1_800),
    ] {
        let thinking =
            ModelRequest { reasoning: Some(reasoning), temperature: Some(0.5), ..request(Delivery::Whole) };
        for kind in [OpenAiCompatible, Anthropic] {
            let body: serde_json::Value = serde_json::from_str(&sent(kind, &thinking).await).unwrap();
            assert!(body["temperature"].is_null());
            let words = ["reasoning_effort", "thinking", "output_config"].map(|name| body[name].to_string());
            lines.push(format!("{reasoning:?}: {}", words.join(" ")));
        }
    }
    assert_snapshot!(lines.join("\n"), @r#"
    Minimal: "minimal" null null
    Minimal: null {"type":"adaptive"} {"effort":"low"}
    Low: "low" null null
    Low: null {"type":"adaptive"} {"effort":"low"}
    Medium: "medium" null null
    Medium: null {"type":"adaptive"} {"effort":"medium"}
    High: "high" null null
    High: null {"type":"adaptive"} {"effort":"high"}
    Tokens(1800): "low" null null
    Tokens(1800): null {"type":"enabled","budget_tokens":1800} null
    "#);
}

#[tokio::test]
async fn the_key_and_custom_headers_are_sent() {
    let server =
        ModelServer::start(Script::of([ScriptAction::text("3"), ScriptAction::text("3")])).await.unwrap();
    for kind in [OpenAiCompatible, Anthropic] {
        let mut settings = settings(kind, &server);
        settings.headers.insert("X-Team".to_owned(), Secret::new("blue"));
        ask(&*model(settings), &request(Delivery::Streamed)).await.0.unwrap();
    }
    let [chat, messages] = &server.requests()[..] else { panic!("two requests") };
    assert_eq!(chat.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(messages.headers["x-api-key"], KEY);
    assert!(!messages.headers.contains_key("authorization"));
    assert_eq!((&*chat.headers["x-team"], &*messages.headers["x-team"]), ("blue", "blue"));
}

#[tokio::test]
async fn without_a_key_no_authorization_is_sent() {
    let server =
        ModelServer::start(Script::of([ScriptAction::text("3"), ScriptAction::text("3")])).await.unwrap();
    for api_key in [None, Some(Secret::new(" "))] {
        let settings = ModelProviderSettings { api_key, ..settings(OpenAiCompatible, &server) };
        ask(&*model(settings), &request(Delivery::Streamed)).await.0.unwrap();
    }
    assert!(server.requests().iter().all(|request| !request.headers.contains_key("authorization")));
}

#[tokio::test]
async fn base_urls_may_end_in_any_common_form() {
    let server = ModelServer::start(Script::of((0..6).map(|_| ScriptAction::text("3")))).await.unwrap();
    let (chat, messages) = (server.chat_url(), server.messages_url());
    let cases = [
        (OpenAiCompatible, format!("{chat}/")),
        (OpenAiCompatible, format!(" {chat}/chat/completions")),
        (Anthropic, format!("{messages}/")),
        (Anthropic, format!("{messages}/v1")),
        (Anthropic, format!("{messages}/v1/")),
        (Anthropic, format!("{messages}/v1/messages")),
    ];
    for (kind, base_url) in cases {
        let settings = ModelProviderSettings { base_url: Some(base_url), ..settings(kind, &server) };
        ask(&*model(settings), &request(Delivery::Whole)).await.0.unwrap();
    }
    assert_eq!((server.requests().len(), server.violations()), (6, Vec::new()));
}
