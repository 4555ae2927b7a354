//! How messages are written.

use pegboard_wire::http::sse::SseEvent;
use serde_json::{Value, json};

use super::openai::halves;
use super::script::{Answer, Quirk, Refusal};

/// What thoughts are signed with.
const SIGNATURE: &str = "signed-by-the-model";

/// A reply as a whole.
pub(super) fn whole(answer: &Answer, model: &str, number: usize) -> Value {
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

/// The same in events.
pub(super) fn events(answer: &Answer, model: &str, number: usize) -> Vec<SseEvent> {
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

/// A refusal.
pub(super) fn error(refusal: &Refusal) -> Value {
    let Refusal { kind, message, .. } = refusal;
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

fn blocks(answer: &Answer, number: usize) -> Vec<Value> {
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

/// How a block begins, and the pieces that follow.
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

fn stop(answer: &Answer) -> Value {
    let usual = if answer.tool_calls.is_empty() { "end_turn" } else { "tool_use" };
    answer.stop.as_deref().unwrap_or(usual).into()
}

fn usage(answer: &Answer) -> Value {
    let tokens = answer.usage;
    json!({
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_input_tokens": tokens.cache_read,
        "cache_creation_input_tokens": tokens.cache_write,
    })
}
