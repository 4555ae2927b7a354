//! Models that clients lend.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use insta::assert_snapshot;
use pegboard_core::client::{Answers, AskError, Client, Lending, Notice, Questions};
use pegboard_core::model::{
    Delivery, Message, ModelFacts, ModelRequest, Part, ToolChoice, ToolResult, Verdict,
};
use pegboard_json::RawJson;
use pegboard_providers::model::Sampling;
use serde_json::{Value, json};

use crate::stage::{ask, request, told};

/// A client that lends its model, and answers one question.
struct Lender {
    lending: Lending,
    answer: Mutex<Option<Result<Value, AskError>>>,
    asked: Mutex<Vec<(String, Value)>>,
}

impl Lender {
    fn new(lending: Lending, answer: Result<Value, AskError>) -> Arc<Self> {
        Arc::new(Self { lending, answer: Mutex::new(Some(answer)), asked: Mutex::default() })
    }
}

impl Client for Lender {
    fn notify(&self, _notice: Notice) {}

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        let answer = self.answer.lock().unwrap().take().unwrap();
        let asked = questions.values().map(|question| (question.method.clone(), question.params.to_value()));
        self.asked.lock().unwrap().extend(asked);
        let name = questions.keys().next().unwrap().clone();
        ready(answer.map(|answer| Answers::from([(name, RawJson::from(answer))]))).boxed()
    }

    fn lends(&self) -> Lending {
        self.lending
    }
}

fn model(name: &str, client: &Arc<Lender>) -> Sampling {
    Sampling::new(ModelFacts::new(name.parse().unwrap()), client.clone())
}

#[tokio::test]
async fn a_client_is_asked_for_a_message_with_tools() {
    let answer = json!({
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
            {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 2}},
        ],
        "model": "some-model",
        "stopReason": "toolUse",
    });
    let client = Lender::new(Lending::Tools, Ok(answer));
    let mut asked = ModelRequest {
        temperature: Some(0.5),
        stop: vec!["END".to_owned()],
        tool_choice: ToolChoice::Tool("add".to_owned()),
        ..request(Delivery::Streamed)
    };
    let (reply, heard, _) = ask(&model("client/small", &client), &asked).await;
    assert_eq!(told(&reply), r#""Let me see." [add({"a":1}), add({"a":2})] ToolCalls"#);
    assert_eq!(heard, "Let me see.");
    let reply = reply.unwrap();
    assert_ne!(reply.tool_calls[0].id, reply.tool_calls[1].id);

    let second =
        json!({"role": "assistant", "content": {"type": "text", "text": "3"}, "model": "some-model"});
    *client.answer.lock().unwrap() = Some(Ok(second));
    asked.tool_choice = ToolChoice::None;
    asked.messages.push(reply.to_message());
    asked.messages.push(Message::ToolResults(
        reply
            .tool_calls
            .iter()
            .map(|call| ToolResult {
                call_id: call.id.clone(),
                text: "3".to_owned(),
                verdict: Verdict::Failed,
            })
            .collect(),
    ));
    let (reply, ..) = ask(&model("client/default", &client), &asked).await;
    assert_eq!(told(&reply), r#""3" [] EndOfTurn"#);
    let asked = client.asked.lock().unwrap();
    let lines: Vec<String> = asked.iter().map(|(method, params)| format!("{method} {params}")).collect();
    assert_snapshot!(lines.join("\n"), @r#"
    sampling/createMessage {"messages":[{"role":"user","content":{"type":"text","text":"What is 1 + 2?"}}],"modelPreferences":{"hints":[{"name":"small"}]},"systemPrompt":"You add.","temperature":0.5,"maxTokens":2000,"stopSequences":["END"],"tools":[{"name":"add","description":"To add.","inputSchema":{"type":"object","properties":{"a":{"type":"number"}}}}],"toolChoice":{"mode":"required"}}
    sampling/createMessage {"messages":[{"role":"user","content":{"type":"text","text":"What is 1 + 2?"}},{"role":"assistant","content":[{"type":"text","text":"Let me see."},{"type":"tool_use","id":"t1","name":"add","input":{"a":1}},{"type":"tool_use","id":"call_2","name":"add","input":{"a":2}}]},{"role":"user","content":[{"type":"tool_result","toolUseId":"t1","content":[{"type":"text","text":"3"}],"isError":true},{"type":"tool_result","toolUseId":"call_2","content":[{"type":"text","text":"3"}],"isError":true}]}],"systemPrompt":"You add.","temperature":0.5,"maxTokens":2000,"stopSequences":["END"],"tools":[{"name":"add","description":"To add.","inputSchema":{"type":"object","properties":{"a":{"type":"number"}}}},{"name":"subtract","description":"To subtract.","inputSchema":{"type":"object","properties":{"a":{"type":"number"}}}}],"toolChoice":{"mode":"none"}}
    "#);
}

#[tokio::test]
async fn a_client_without_tools_is_asked_for_text_alone() {
    let answer = || {
        Ok(
            json!({"role": "assistant", "content": {"type": "text", "text": "3"}, "model": "m", "stopReason": "maxTokens"}),
        )
    };
    let client = Lender::new(Lending::Text, answer());
    let parts = ["One", "two."].map(|text| Part::Text(text.to_owned())).to_vec();
    let messages = vec![Message::User(parts)];
    let plain = ModelRequest { tools: Vec::new(), messages, ..request(Delivery::Whole) };
    assert_eq!(told(&ask(&model("client/default", &client), &plain).await.0), r#""3" [] MaxTokens"#);
    let asked = client.asked.lock().unwrap()[0].1["messages"].clone();
    let alone = |text: &str| json!({"role": "user", "content": {"type": "text", "text": text}});
    assert_eq!(asked, json!([alone("One"), alone("two.")]));

    let client = Lender::new(Lending::Text, answer());
    let error = ask(&model("client/default", &client), &request(Delivery::Whole)).await.0.unwrap_err();
    assert_snapshot!(error, @"model 'client/default' refuses the request: the client that made the call lends a model without tools: it does not declare sampling.tools. Change what it is asked, or the model");
    assert!(client.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn why_a_client_did_not_answer_is_told() {
    let cases = [
        (Lending::Nothing, Ok(json!({})), "Refused: the client that made the call lends no model"),
        (Lending::Tools, Err(AskError::Nobody), "Refused: the caller cannot be asked"),
        (Lending::Tools, Err(AskError::Refused("no".into())), "Refused: the caller refused: no"),
        (Lending::Tools, Err(AskError::Gone), "Unreachable: the caller is gone"),
        (
            Lending::Tools,
            Err(AskError::TimedOut(Duration::from_secs(5))),
            "TimedOut { limit: 5s }: the caller did not answer within 5s",
        ),
        (Lending::Tools, Ok(json!({"role": "assistant"})), "Garbage: its answer has no content"),
        (
            Lending::Tools,
            Ok(json!({"content": {"type": "tool_use", "id": "1", "input": {}}})),
            "Garbage: it wants a tool called without saying which",
        ),
    ];
    for (lending, answer, expected) in cases {
        let client = Lender::new(lending, answer);
        let (reply, ..) = ask(&model("client/default", &client), &request(Delivery::Whole)).await;
        assert_eq!(told(&reply), expected);
    }
}
