//! Multi-turn conversations.

use pegboard_core::model::{
    AssistantTurn, ChatMessage, ContentPart, Delivery, ModelRequest, PromptCaching, ReasoningEffort,
    ToolCall, ToolChoice, ToolResult, ToolResultStatus,
};
use pegboard_core::settings::model::ModelProviderKind::Anthropic;
use pegboard_testkit::model_server::{ScriptAction, ScriptedCall, ScriptedReply};
use serde_json::json;

use crate::model::harness::{DELIVERIES, KINDS, ask, request, start_server, tool};

fn result(call_id: &str, text: &str, verdict: ToolResultStatus) -> ToolResult {
    ToolResult { call_id: call_id.to_owned(), text: text.to_owned(), status: verdict }
}

/// Creates results for all calls of the last message; the second one failed.
fn results(request: &ModelRequest) -> ChatMessage {
    let Some(ChatMessage::Assistant(turn)) = request.messages.last() else { panic!("no turn of the model") };
    let results = turn.tool_calls.iter().enumerate().map(|(at, call)| {
        let verdict = if at == 1 { ToolResultStatus::Failed } else { ToolResultStatus::Done };
        result(&call.id, "3", verdict)
    });
    ChatMessage::ToolResults(results.collect())
}

#[tokio::test]
async fn tool_results_are_sent_back() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let two = ScriptAction::calls([("add", json!({"a": 1})), ("subtract", json!({"a": 2}))]);
        let (server, model) =
            start_server(kind, [two.clone(), two, ScriptAction::text("3"), ScriptAction::text("Bye.")]).await;
        let mut request = request(delivery);
        for _ in 0..2 {
            let reply = ask(&*model, &request).await.0.unwrap();
            request.messages.push(reply.to_message());
            request.messages.push(results(&request));
        }
        request.messages.push(ChatMessage::user("And hurry."));
        let reply = ask(&*model, &request).await.0.unwrap();
        assert_eq!(reply.text, "3");
        request.messages.extend([reply.to_message(), ChatMessage::user("Thanks.")]);
        assert_eq!(ask(&*model, &request).await.0.unwrap().text, "Bye.");
        assert_eq!((server.violations(), server.n_unused_turns()), (Vec::new(), 0), "{kind:?} {delivery:?}");
    }
}

#[tokio::test]
async fn a_conversation_of_another_model_can_be_continued() {
    let call = |id: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        name: "add".to_owned(),
        arguments: arguments.to_owned(),
    };
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let (server, model) = start_server(kind, [ScriptAction::text("3")]).await;
        let image =
            ContentPart::Image { media_type: "image/png".to_owned(), base64: "iVBORw0KGgo=".to_owned() };
        let turn = AssistantTurn {
            text: "  ".to_owned(),
            tool_calls: vec![call("functions.add:0", "{\"a\": "), call("call 2", ""), call("3", "[1]")],
            thinking: None,
        };
        let conversation = vec![
            ChatMessage::User(vec![
                ContentPart::Text("Look:".to_owned()),
                image,
                ContentPart::Text(String::new()),
            ]),
            ChatMessage::Assistant(turn),
            ChatMessage::ToolResults(vec![
                result("functions.add:0", "that is no JSON", ToolResultStatus::Failed),
                result("call 2", "", ToolResultStatus::Done),
                result("3", "that is no object", ToolResultStatus::Failed),
            ]),
            ChatMessage::user("Well?"),
        ];
        let request = ModelRequest { messages: conversation, ..request(delivery) };
        assert_eq!(ask(&*model, &request).await.0.unwrap().text, "3");
        assert_eq!(server.violations(), Vec::<String>::new(), "{kind:?} {delivery:?}");
    }
}

#[tokio::test]
async fn a_model_receives_only_its_own_thoughts() {
    let thinking = ScriptedReply {
        thoughts: "Adding helps.".to_owned(),
        tool_calls: vec![ScriptedCall { id: None, name: "add".to_owned(), arguments: json!({"a": 1}) }],
        ..ScriptedReply::default()
    };
    for delivery in DELIVERIES {
        let acts = [ScriptAction::Answer(thinking.clone()), ScriptAction::text("3")];
        let (server, model) = start_server(Anthropic, acts).await;
        let mut request =
            ModelRequest { reasoning: Some(ReasoningEffort::Tokens(1_500)), ..request(delivery) };
        let reply = ask(&*model, &request).await.0.unwrap();
        request.messages.push(reply.to_message());
        request.messages.push(results(&request));
        ask(&*model, &request).await.0.unwrap();
        assert_eq!(server.violations(), Vec::<String>::new(), "{delivery:?}");
        let second = &server.requests()[1].body;
        assert_eq!(
            second["messages"][1]["content"].as_array().unwrap()[..2],
            [
                json!({"type": "thinking", "thinking": "Adding helps.", "signature": "signed-by-the-model"}),
                json!({"type": "redacted_thinking", "data": "c2VjcmV0"}),
            ]
        );
        assert_eq!(second["thinking"], json!({"type": "enabled", "budget_tokens": 1_500}));

        let (server, other) = start_server(Anthropic, [ScriptAction::text("3")]).await;
        for message in &mut request.messages {
            if let ChatMessage::Assistant(AssistantTurn { thinking: Some(thoughts), .. }) = message {
                thoughts.model = "p/another".parse().unwrap();
            }
        }
        ask(&*other, &request).await.0.unwrap();
        assert_eq!(server.violations(), Vec::<String>::new(), "{delivery:?}");
        assert_eq!(server.requests()[0].body["thinking"], json!(null));
    }
}

#[tokio::test]
async fn a_forced_tool_disables_thinking() {
    for kind in KINDS {
        let (server, model) = start_server(kind, [ScriptAction::text("3")]).await;
        let request = ModelRequest {
            reasoning: Some(ReasoningEffort::High),
            tool_choice: ToolChoice::Tool("add".to_owned()),
            caching: PromptCaching::Requested,
            temperature: Some(0.5),
            ..request(Delivery::Whole)
        };
        ask(&*model, &request).await.0.unwrap();
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

#[test]
fn tokens_are_estimated_as_a_quarter_of_the_bytes() {
    let mut request = ModelRequest { system: "x".repeat(400), ..ModelRequest::default() };
    assert_eq!(request.estimated_tokens(), 100);
    request.messages.push(ChatMessage::ToolResults(vec![result(
        "1",
        &"y".repeat(4_000),
        ToolResultStatus::Done,
    )]));
    request.tools.push(tool("add"));
    let n_tokens = request.estimated_tokens();
    assert!((1_100..1_200).contains(&n_tokens), "{n_tokens}");
}
