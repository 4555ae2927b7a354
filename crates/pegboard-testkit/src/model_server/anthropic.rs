//! Encoding of replies for Anthropic's messages API.

use pegboard_wire::http::sse::SseEvent;
use serde_json::{Value, json};

use super::openai::halves;
use super::script::{Quirk, ScriptedError, ScriptedReply};

/// Signature of thinking blocks.
const SIGNATURE: &str = "signed-by-the-model";

/// Returns the reply as one JSON object.
pub(super) fn whole(answer: &ScriptedReply, model: &str, number: usize) -> Value {
    let mut reply = json!({
        "id": format!("msg_{number}"),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks(answer, number),
        "stop_reason": stop(answer),
        "stop_sequence": null,
    });
    if !answer.has(Quirk::NoUsage) {
        reply["usage"] = usage(answer);
    }
    reply
}

/// Returns the reply as stream events.
pub(super) fn events(answer: &ScriptedReply, model: &str, number: usize) -> Vec<SseEvent> {
    let mut begun = whole(answer, model, number);
    begun["content"] = json!([]);
    begun["stop_reason"] = Value::Null;
    if !answer.has(Quirk::NoUsage) {
        begun["usage"]["output_tokens"] = 1.into();
    }
    let mut events = vec![json!({"type": "message_start", "message": begun}), json!({"type": "ping"})];
    for (index, block) in blocks(answer, number).into_iter().enumerate() {
        let (first, deltas) = in_pieces(block);
        events.push(json!({"type": "content_block_start", "index": index, "content_block": first}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let mut end = json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop(answer), "stop_sequence": null},
    });
    if !answer.has(Quirk::NoUsage) {
        end["usage"] = json!({"output_tokens": answer.usage.output});
    }
    events.push(end);
    if !answer.has(Quirk::NoDone) {
        events.push(json!({"type": "message_stop"}));
    }
    let event = |event: &Value| SseEvent {
        event: event["type"].as_str().map(str::to_owned),
        ..SseEvent::message(event.to_string())
    };
    events.iter().map(event).collect()
}

/// Returns an error response.
pub(super) fn error(refusal: &ScriptedError) -> Value {
    let ScriptedError { kind, message, .. } = refusal;
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn blocks(answer: &ScriptedReply, number: usize) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !answer.thoughts.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": answer.thoughts, "signature": SIGNATURE}));
        blocks.push(json!({"type": "redacted_thinking", "data": "c2VjcmV0"}));
    }
    if !answer.text.is_empty() {
        blocks.push(json!({"type": "text", "text": answer.text}));
    }
    for (at, call) in answer.tool_calls.iter().enumerate() {
        let id = match &call.id {
            _ if answer.has(Quirk::NoIds) => String::new(),
            Some(id) => id.clone(),
            None => format!("toolu_{number}_{at}"),
        };
        let input = if call.arguments.is_null() { json!({}) } else { call.arguments.clone() };
        blocks.push(json!({"type": "tool_use", "id": id, "name": call.name, "input": input}));
    }
    blocks
}

/// Splits a block into its start and deltas.
fn in_pieces(mut block: Value) -> (Value, Vec<Value>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let deltas = match block["type"].as_str() {
        Some("text") => {
            let whole = text(&block["text"]);
            block["text"] = "".into();
            halves(&whole).iter().map(|piece| json!({"type": "text_delta", "text": piece})).collect()
        }
        Some("tool_use") => {
            let whole = match block["input"].take() {
                Value::String(written) => written,
                input => input.to_string(),
            };
            block["input"] = json!({});
            let pieces = [""].into_iter().chain(halves(&whole));
            pieces.map(|piece| json!({"type": "input_json_delta", "partial_json": piece})).collect()
        }
        Some("thinking") => {
            let whole = text(&block["thinking"]);
            block["thinking"] = "".into();
            block["signature"] = "".into();
            let pieces = halves(&whole);
            let pieces = pieces.iter().map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
            pieces.chain([json!({"type": "signature_delta", "signature": SIGNATURE})]).collect()
        }
        _ => Vec::new(),
    };
    (block, deltas)
}

fn stop(answer: &ScriptedReply) -> Value {
    let usual = if answer.tool_calls.is_empty() { "end_turn" } else { "tool_use" };
    answer.stop.as_deref().unwrap_or(usual).into()
}

fn usage(answer: &ScriptedReply) -> Value {
    let tokens = answer.usage;
    json!({
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation_input_tokens": tokens.cache_write,
    })
}
