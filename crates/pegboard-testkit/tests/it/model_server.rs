//! The scripted model reports violations in requests; all tests that use it depend on that.

use pegboard_testkit::model_server::{ModelServer, Script, ScriptAction, ScriptTurn, TurnCondition};
use serde_json::{Value, json};

/// Sends a body and returns its violations.
async fn violations(path: &str, body: &Value) -> Vec<String> {
    let server = ModelServer::start(Script::of([ScriptAction::text("3")])).await.unwrap();
    let request = reqwest::Client::new()
        .post(format!("{}{path}", server.messages_url()))
        .header("content-type", "application/json")
        .header("x-api-key", "key")
        .header("anthropic-version", "2023-06-01")
        .body(body.to_string());
    assert!(request.send().await.unwrap().status().is_success());
    server.violations().iter().map(|line| line.replace("request 1: ", "")).collect()
}

fn chat(messages: &Value) -> Value {
    json!({"model": "m", "messages": messages})
}

fn call(id: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "add", "arguments": "{}"}})
}

#[tokio::test]
async fn a_chat_is_checked_field_by_field() {
    let user = json!({"role": "user", "content": "1 + 2?"});
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [call("a"), call("b")]});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "3"});
    let cases = [
        (chat(&json!([user])), vec![]),
        (chat(&json!([user, calls, result("b"), result("a")])), vec![]),
        (json!({"messages": [user]}), vec!["body: lacks 'model'"]),
        (
            json!({"model": "m", "messages": [user], "max_token": 5}),
            vec!["body: has the unknown field 'max_token'"],
        ),
        (
            json!({"model": "m", "messages": [user], "stream_options": {"include_usage": true}}),
            vec!["body.stream_options: requires streaming"],
        ),
        (
            json!({"model": "m", "messages": [user], "tool_choice": "auto"}),
            vec!["tool_choice: requires tools"],
        ),
        (chat(&json!([user, calls, result("a"), user])), vec!["messages[3]: comes before the results of b"]),
        (chat(&json!([user, calls, result("a")])), vec!["messages: end before the results of all calls"]),
        (chat(&json!([user, result("a")])), vec!["messages[1]: answers an unknown call"]),
        (
            chat(
                &json!([user, {"role": "assistant", "content": "x", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "add", "arguments": {}}}]}, result("a")]),
            ),
            vec!["messages[1].tool_calls[0].function.arguments: expected text of an object"],
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(violations("/v1/chat/completions", &body).await, expected, "{body}");
    }
}

#[tokio::test]
async fn messages_are_checked_field_by_field() {
    let with = |messages: Value| json!({"model": "m", "max_tokens": 2_000, "messages": messages});
    let text = |role: &str, text: &str| json!({"role": role, "content": [{"type": "text", "text": text}]});
    let calls = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "add", "input": {}}]});
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "3"});
    let text_block = json!({"type": "text", "text": "Well?"});
    let thinking = |mut body: Value| {
        body["thinking"] = json!({"type": "enabled", "budget_tokens": 1_024});
        body
    };
    let user = text("user", "1 + 2?");
    let cases = [
        (with(json!([user])), vec![]),
        (with(json!([user, calls, {"role": "user", "content": [result, text_block]}])), vec![]),
        (json!({"model": "m", "messages": [user]}), vec!["body: lacks 'max_tokens'"]),
        (
            with(json!([user, calls, {"role": "user", "content": [text_block, result]}])),
            vec!["messages[2].content[1]: is a tool result after other content"],
        ),
        (with(json!([user, calls, user])), vec!["messages[2]: lacks the results of a"]),
        (with(json!([user, text("assistant", "3")])), vec!["messages: end with an assistant message"]),
        (with(json!([text("user", "")])), vec!["messages[0].content[0].text: expected text"]),
        (
            thinking(with(json!([user, calls, {"role": "user", "content": [result]}]))),
            vec!["messages[1]: does not begin with a thinking block"],
        ),
        (
            json!({"model": "m", "max_tokens": 9, "messages": [user], "temperature": 2}),
            vec!["body.temperature: expected number from 0 to 1"],
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(violations("/v1/messages", &body).await, expected, "{body}");
    }
}

#[tokio::test]
async fn turns_are_matched_by_request_content() {
    let turn = |contains: &str, times: usize, text: &str| ScriptTurn {
        when: TurnCondition { contains: Some(contains.to_owned()), model: None },
        times,
        act: ScriptAction::text(text),
    };
    let turns = vec![turn("weather", 0, "Rain."), turn("time", 1, "Noon.")];
    let server = ModelServer::start(Script { turns }).await.unwrap();
    let ask = async |text: &str| {
        let body = chat(&json!([{"role": "user", "content": text}]));
        let request = reqwest::Client::new()
            .post(format!("{}/chat/completions", server.chat_url()))
            .header("content-type", "application/json")
            .body(body.to_string());
        let answer: Value =
            serde_json::from_slice(&request.send().await.unwrap().bytes().await.unwrap()).unwrap();
        answer["choices"][0]["message"]["content"].as_str().unwrap_or("nothing").to_owned()
    };
    let questions = ["the time?", "the weather?", "the weather?", "the time?"];
    let mut answers = Vec::new();
    for question in questions {
        answers.push(ask(question).await);
    }
    assert_eq!(answers, ["Noon.", "Rain.", "Rain.", "nothing"]);
    assert_eq!(
        (server.violations(), server.n_unused_turns()),
        (vec!["request 4: no matching turn in the script".to_owned()], 0)
    );
}
