//! Conversations that go on.

use pegboard_core::model::{
    Caching, Delivery, Message, ModelRequest, Part, Reasoning, ToolCall, ToolChoice, ToolResult, Turn,
    Verdict,
};
use pegboard_core::settings::model::ModelProviderKind::Anthropic;
use pegboard_testkit::model_server::{Act, Answer, Call};
use serde_json::json;

use crate::stage::{DELIVERIES, KINDS, ask, request, scene, tool};

fn result(call_id: &str, text: &str, verdict: Verdict) -> ToolResult {
    ToolResult { call_id: call_id.to_owned(), text: text.to_owned(), verdict }
}

/// Results of all calls of the last message, the second of which failed.
fn results(request: &ModelRequest) -> Message {
    let Some(Message::Assistant(turn)) = request.messages.last() else { panic!("no turn of the model") };
    let results = turn.tool_calls.iter().enumerate().map(|(at, call)| {
        let verdict = if at == 1 { Verdict::Failed } else { Verdict::Done };
        result(&call.id, "3", verdict)
    });
    Message::ToolResults(results.collect())
}

#[tokio::test]
async fn results_go_back_and_the_model_goes_on() {
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let two = Act::calls([("add", json!({"a": 1})), ("subtract", json!({"a": 2}))]);
        let (server, model) = scene(kind, [two.clone(), two, Act::text("3"), Act::text("Bye.")]).await;
        let mut request = request(delivery);
        for _ in 0..2 {
            let reply = ask(&*model, &request).await.0.unwrap();
            request.messages.push(reply.to_message());
            request.messages.push(results(&request));
        }
        request.messages.push(Message::user("And hurry."));
        let reply = ask(&*model, &request).await.0.unwrap();
        assert_eq!(reply.text, "3");
        request.messages.extend([reply.to_message(), Message::user("Thanks.")]);
        assert_eq!(ask(&*model, &request).await.0.unwrap().text, "Bye.");
        assert_eq!((server.violations(), server.n_left()), (Vec::new(), 0), "{kind:?} {delivery:?}");
    }
}

#[tokio::test]
async fn a_conversation_with_another_model_is_gone_on_with() {
    let call = |id: &str, arguments: &str| ToolCall {
        id: id.to_owned(),
        name: "add".to_owned(),
        arguments: arguments.to_owned(),
    };
    for (kind, delivery) in KINDS.into_iter().flat_map(|kind| DELIVERIES.map(|delivery| (kind, delivery))) {
        let (server, model) = scene(kind, [Act::text("3")]).await;
        let image = Part::Image { media_type: "image/png".to_owned(), base64: "iVBORw0KGgo=".to_owned() };
        let turn = Turn {
            text: "  ".to_owned(),
            tool_calls: vec![call("functions.add:0", "{\"a\": "), call("call 2", ""), call("3", "[1]")],
            thoughts: None,
        };
        let conversation = vec![
            Message::User(vec![Part::Text("Look:".to_owned()), image, Part::Text(String::new())]),
            Message::Assistant(turn),
            Message::ToolResults(vec![
                result("functions.add:0", "that is no JSON", Verdict::Failed),
                result("call 2", "", Verdict::Done),
                result("3", "that is no object", Verdict::Failed),
            ]),
            Message::user("Well?"),
        ];
        let request = ModelRequest { messages: conversation, ..request(delivery) };
        assert_eq!(ask(&*model, &request).await.0.unwrap().text, "3");
        assert_eq!(server.violations(), Vec::<String>::new(), "{kind:?} {delivery:?}");
    }
}

#[tokio::test]
async fn a_model_gets_its_own_thoughts_back_and_no_other() {
    let thinking = Answer {
        thoughts: "Adding helps.".to_owned(),
        tool_calls: vec![Call { id: None, name: "add".to_owned(), arguments: json!({"a": 1}) }],
        ..Answer::default()
    };
    for delivery in DELIVERIES {
        let acts = [Act::Answer(thinking.clone()), Act::text("3")];
        let (server, model) = scene(Anthropic, acts).await;
        let mut request = ModelRequest { reasoning: Some(Reasoning::Tokens(1_500)), ..request(delivery) };
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

        let (server, other) = scene(Anthropic, [Act::text("3")]).await;
        for message in &mut request.messages {
            if let Message::Assistant(Turn { thoughts: Some(thoughts), .. }) = message {
                thoughts.of = "p/another".parse().unwrap();
            }
        }
        ask(&*other, &request).await.0.unwrap();
        assert_eq!(server.violations(), Vec::<String>::new(), "{delivery:?}");
        assert_eq!(server.requests()[0].body["thinking"], json!(null));
    }
}

#[tokio::test]
async fn a_forced_tool_comes_before_thinking() {
    for kind in KINDS {
        let (server, model) = scene(kind, [Act::text("3")]).await;
        let request = ModelRequest {
            reasoning: Some(Reasoning::High),
            tool_choice: ToolChoice::Tool("add".to_owned()),
            caching: Caching::Requested,
            temperature: Some(0.5),
            ..request(Delivery::Whole)
        };
        ask(&*model, &request).await.0.unwrap();
        assert_eq!(server.violations(), Vec::<String>::new());
    }
}

#[test]
fn a_request_is_guessed_to_be_as_long_as_a_fourth_of_its_bytes() {
    let mut request = ModelRequest { system: "x".repeat(400), ..ModelRequest::default() };
    assert_eq!(request.estimated_tokens(), 100);
    request.messages.push(Message::ToolResults(vec![result("1", &"y".repeat(4_000), Verdict::Done)]));
    request.tools.push(tool("add"));
    let n_tokens = request.estimated_tokens();
    assert!((1_100..1_200).contains(&n_tokens), "{n_tokens}");
}
