//! Models of clients.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, ready};
use insta::assert_snapshot;
use pegboard_core::client::{AskError, Client, InputRequests, InputResponses, Notice, SamplingSupport};
use pegboard_core::model::{
    ChatMessage, ContentPart, Delivery, ModelInfo, ModelRequest, ToolChoice, ToolResult, ToolResultStatus,
};
use pegboard_json::RawJson;
use pegboard_providers::model::SamplingModel;
use serde_json::{Value, json};

use crate::model::harness::{ask, describe, request};

/// Client that supports sampling and answers one request.
struct SamplingClient {
    support: SamplingSupport,
    answer: Mutex<Option<Result<Value, AskError>>>,
    asked: Mutex<Vec<(String, Value)>>,
}

impl SamplingClient {
    fn new(support: SamplingSupport, answer: Result<Value, AskError>) -> Arc<Self> {
        Arc::new(Self { support, answer: Mutex::new(Some(answer)), asked: Mutex::default() })
    }
}

impl Client for SamplingClient {
    fn notify(&self, _notice: Notice) {}

    fn ask(&self, questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        let answer = self.answer.lock().unwrap().take().unwrap();
        let asked = questions.values().map(|question| (question.method.clone(), question.params.to_value()));
        self.asked.lock().unwrap().extend(asked);
        let name = questions.keys().next().unwrap().clone();
        ready(answer.map(|answer| InputResponses::from([(name, RawJson::from(answer))]))).boxed()
    }

    fn sampling_support(&self) -> SamplingSupport {
        self.support
    }
}

fn model(name: &str, client: &Arc<SamplingClient>) -> SamplingModel {
    SamplingModel::new(ModelInfo::new(name.parse().unwrap()), client.clone())
}

#[tokio::test]
async fn sampling_requests_carry_tools() {
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
    let client = SamplingClient::new(SamplingSupport::Tools, Ok(answer));
    let mut asked = ModelRequest {
        temperature: Some(0.5),
        stop: vec!["END".to_owned()],
        tool_choice: ToolChoice::Tool("add".to_owned()),
        ..request(Delivery::Streamed)
    };
    let (reply, streamed, _) = ask(&model("client/small", &client), &asked).await;
    assert_eq!(describe(&reply), r#""Let me see." [add({"a":1}), add({"a":2})] ToolCalls"#);
    assert_eq!(streamed, "Let me see.");
    let reply = reply.unwrap();
    assert_ne!(reply.tool_calls[0].id, reply.tool_calls[1].id);

    let second =
        json!({"role": "assistant", "content": {"type": "text", "text": "3"}, "model": "some-model"});
    *client.answer.lock().unwrap() = Some(Ok(second));
    asked.tool_choice = ToolChoice::None;
    asked.messages.push(reply.to_message());
    asked.messages.push(ChatMessage::ToolResults(
        reply
            .tool_calls
            .iter()
            .map(|call| ToolResult {
                call_id: call.id.clone(),
                text: "3".to_owned(),
                status: ToolResultStatus::Failed,
            })
            .collect(),
    ));
    let (reply, ..) = ask(&model("client/default", &client), &asked).await;
    assert_eq!(describe(&reply), r#""3" [] EndOfTurn"#);
    let asked = client.asked.lock().unwrap();
    let lines: Vec<String> = asked.iter().map(|(method, params)| format!("{method} {params}")).collect();
    assert_snapshot!(lines.join("\n"), @r#"
    sampling/createMessage {"messages":[{"role":"user","content":{"type":"text","text":"What is 1 + 2?"}}],"modelPreferences":{"hints":[{"name":"small"}]},"systemPrompt":"You add.","temperature":0.5,"maxTokens":2000,"stopSequences":["END"],"tools":[{"name":"add","description":"To add.","inputSchema":{"type":"object","properties":{"a":{"type":"number"}}}}],"toolChoice":{"mode":"required"}}
    sampling/createMessage {"messages":[{"role":"user","content":{"type":"text","text":"What is 1 + 2?"}},{"role":"assistant","content":[{"type":"text","text":"Let me see."},{"type":"tool_use","id":"t1","name":"add","input":{"a":1}},{"type":"tool_use","id":"call_2","name":"add","input":{"a":2}}]},{"role":"user","content":[{"type":"tool_result","toolUseId":"t1","content":[{"type":"text","text":"3"}],"isError":true},{"type":"tool_result","toolUseId":"call_2","content":[{"type":"text","text":"3"}],"isError":true}]}],"systemPrompt":"You add.","temperature":0.5,"maxTokens":2000,"stopSequences":["END"],"tools":[{"name":"add","description":"To add.","inputSchema":{"type":"object","properties":{"a":{"type":"number"}}}},{"name":"subtract","description":"To subtract.","inputSchema":{"type":"object","properties":{"a":{"type":"number"}}}}],"toolChoice":{"mode":"none"}}
    "#);
}

#[tokio::test]
async fn a_client_without_tool_support_gets_single_blocks() {
    let answer = || {
        Ok(
            json!({"role": "assistant", "content": {"type": "text", "text": "3"}, "model": "m", "stopReason": "maxTokens"}),
        )
    };
    let client = SamplingClient::new(SamplingSupport::Text, answer());
    let parts = ["One", "two."].map(|text| ContentPart::Text(text.to_owned())).to_vec();
    let messages = vec![ChatMessage::User(parts)];
    let plain = ModelRequest { tools: Vec::new(), messages, ..request(Delivery::Whole) };
    assert_eq!(describe(&ask(&model("client/default", &client), &plain).await.0), r#""3" [] MaxTokens"#);
    let asked = client.asked.lock().unwrap()[0].1["messages"].clone();
    let alone = |text: &str| json!({"role": "user", "content": {"type": "text", "text": text}});
    assert_eq!(asked, json!([alone("One"), alone("two.")]));

    let client = SamplingClient::new(SamplingSupport::Text, answer());
    let error = ask(&model("client/default", &client), &request(Delivery::Whole)).await.0.unwrap_err();
    assert_snapshot!(error, @"model 'client/default' rejected the request: the calling client does not support tools in sampling: it does not declare sampling.tools. Change the request or the model");
    assert!(client.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn sampling_errors_map_to_error_kinds() {
    let cases = [
        (SamplingSupport::None, Ok(json!({})), "Refused: the calling client does not support sampling"),
        (
            SamplingSupport::Tools,
            Err(AskError::Unsupported),
            "Refused: the caller does not support input requests",
        ),
        (SamplingSupport::Tools, Err(AskError::refused("no")), "Refused: the caller declined: no"),
        (SamplingSupport::Tools, Err(AskError::Gone), "Unreachable: the caller has disconnected"),
        (
            SamplingSupport::Tools,
            Err(AskError::TimedOut(Duration::from_secs(5))),
            "TimedOut { limit: 5s }: the caller did not respond within 5s",
        ),
        (
            SamplingSupport::Tools,
            Ok(json!({"role": "assistant"})),
            "MalformedReply: the response has no content",
        ),
        (
            SamplingSupport::Tools,
            Ok(json!({"content": {"type": "tool_use", "id": "1", "input": {}}})),
            "MalformedReply: a tool call has no name",
        ),
    ];
    for (support, answer, expected) in cases {
        let client = SamplingClient::new(support, answer);
        let (reply, ..) = ask(&model("client/default", &client), &request(Delivery::Whole)).await;
        assert_eq!(describe(&reply), expected);
    }
}
