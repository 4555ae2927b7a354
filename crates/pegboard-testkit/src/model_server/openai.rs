//! Encoding of replies for OpenAI's chat completions API.

use pegboard_wire::http::sse::SseEvent;
use serde_json::{Map, Value, json};

use super::script::{Quirk, ScriptedCall, ScriptedError, ScriptedReply};

/// Returns the reply as one JSON object.
pub(super) fn whole(answer: &ScriptedReply, model: &str, number: usize) -> Value {
    let mut message = json!({"role": "assistant", text_key(answer): content(answer)});
    if !answer.thoughts.is_empty() {
        message["reasoning_content"] = answer.thoughts.as_str().into();
    }
    if !answer.tool_calls.is_empty() {
        let calls = answer.tool_calls.iter().enumerate();
        message["tool_calls"] = calls.map(|(at, call)| whole_call(answer, call, number, at)).collect();
    }
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": stop(answer)});
    let mut reply = json!({
        "id": format!("chatcmpl-{number}"),
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": model,
        "choices": [choice],
    });
    if !answer.has(Quirk::NoUsage) {
        reply["usage"] = usage(answer);
    }
    reply
}

/// Returns the reply as stream events.
pub(super) fn events(answer: &ScriptedReply, model: &str, number: usize) -> Vec<SseEvent> {
    let chunk = |delta: &Value, finish: Value| {
        json!({
            "id": format!("chatcmpl-{number}"),
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        })
    };
    let mut chunks = vec![chunk(&json!({"role": "assistant", "content": ""}), Value::Null)];
    for thought in halves(&answer.thoughts) {
        chunks.push(chunk(&json!({"reasoning_content": thought}), Value::Null));
    }
    for text in halves(&answer.text) {
        let content = if answer.has(Quirk::ListContent) {
            json!([{"type": "text", "text": text}])
        } else {
            text.into()
        };
        chunks.push(chunk(&json!({text_key(answer): content}), Value::Null));
    }
    for (at, call) in answer.tool_calls.iter().enumerate() {
        for delta in call_deltas(answer, call, number, at) {
            chunks.push(chunk(&json!({"tool_calls": [delta]}), Value::Null));
        }
    }
    chunks.push(chunk(&json!({}), stop(answer)));
    if !answer.has(Quirk::NoUsage) {
        let mut last = chunk(&Value::Null, Value::Null);
        last["choices"] = if answer.has(Quirk::NullChoices) { Value::Null } else { json!([]) };
        last["usage"] = usage(answer);
        chunks.push(last);
    }
    let mut events: Vec<SseEvent> = chunks.iter().map(|chunk| SseEvent::message(chunk.to_string())).collect();
    if !answer.has(Quirk::NoDone) && !answer.has(Quirk::KeepsOpen) {
        events.push(SseEvent::message("[DONE]"));
    }
    events
}

/// Returns an error response.
pub(super) fn error(refusal: &ScriptedError) -> Value {
    let ScriptedError { kind, message, .. } = refusal;
    json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
}

/// Returns the key of a message that holds the text.
fn text_key(answer: &ScriptedReply) -> &'static str {
    if answer.has(Quirk::RefusalField) { "refusal" } else { "content" }
}

fn content(answer: &ScriptedReply) -> Value {
    match answer.text.as_str() {
        "" => Value::Null,
        text if answer.has(Quirk::ListContent) => json!([{"type": "text", "text": text}]),
        text => text.into(),
    }
}

fn whole_call(answer: &ScriptedReply, call: &ScriptedCall, number: usize, at: usize) -> Value {
    let mut written = json!({
        "type": "function",
        "function": {"name": call.name, "arguments": arguments(answer, call)},
    });
    if let Some(id) = id(answer, call, number, at) {
        written["id"] = id.into();
    }
    written
}

/// Returns the deltas of a call: the first has everything but the arguments, which follow in two.
fn call_deltas(answer: &ScriptedReply, call: &ScriptedCall, number: usize, at: usize) -> Vec<Value> {
    let numbered = |mut delta: Value| {
        if answer.has(Quirk::SameIndex) {
            delta["index"] = 0.into();
        } else if !answer.has(Quirk::NoIndex) {
            delta["index"] = at.into();
        }
        delta
    };
    let mut first = whole_call(answer, call, number, at);
    if answer.has(Quirk::ObjectArguments) {
        return vec![numbered(first)];
    }
    first["function"]["arguments"] = "".into();
    let written = call.written();
    let pieces = halves(&written).into_iter().map(|piece| json!({"function": {"arguments": piece}}));
    [first].into_iter().chain(pieces).map(numbered).collect()
}

fn arguments(answer: &ScriptedReply, call: &ScriptedCall) -> Value {
    if answer.has(Quirk::ObjectArguments) { call.arguments.clone() } else { call.written().into() }
}

fn id(answer: &ScriptedReply, call: &ScriptedCall, number: usize, at: usize) -> Option<String> {
    if answer.has(Quirk::NoIds) {
        None
    } else if answer.has(Quirk::SameIds) {
        Some("call_same".to_owned())
    } else {
        Some(call.id.clone().unwrap_or_else(|| format!("call_{number}_{at}")))
    }
}

fn stop(answer: &ScriptedReply) -> Value {
    let usual =
        if answer.tool_calls.is_empty() || answer.has(Quirk::StopsForCalls) { "stop" } else { "tool_calls" };
    answer.stop.as_deref().unwrap_or(usual).into()
}

fn usage(answer: &ScriptedReply) -> Value {
    let tokens = answer.usage;
    let prompt = tokens.input + tokens.cache_read + tokens.cache_write;
    let mut usage = Map::new();
    usage.insert("prompt_tokens".into(), prompt.into());
    usage.insert("completion_tokens".into(), tokens.output.into());
    usage.insert("total_tokens".into(), (prompt + tokens.output).into());
    usage.insert("prompt_tokens_details".into(), json!({"cached_tokens": tokens.cache_read}));
    usage.into()
}

/// Splits a text into two non-empty pieces, if possible.
pub(super) fn halves(text: &str) -> Vec<&str> {
    let (first, second) = text.split_at(text.floor_char_boundary(text.len().div_ceil(2)));
    [first, second].into_iter().filter(|piece| !piece.is_empty()).collect()
}
