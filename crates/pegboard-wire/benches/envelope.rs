//! Cost of decoding and encoding a message: as raw bytes, and as a tree of values.

use std::hint::black_box;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pegboard_wire::{Frame, MAX_DEPTH, Message};
use serde_json::{Value, json};

criterion_group!(benches, envelope);
criterion_main!(benches);

fn envelope(criterion: &mut Criterion) {
    let messages = [
        ("request_150_b", request()),
        ("result_2_kb", small_result()),
        ("result_215_kb", source_code_result()),
        ("result_4_mb", image_result()),
        ("list_200_tools", tool_list()),
    ];
    for (name, message) in messages {
        let bytes = Bytes::from(serde_json::to_vec(&message).expect("plain data can be written as JSON"));
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function("bytes", |bencher| bencher.iter(|| through_bytes(bytes.clone())));
        group.bench_function("line", |bencher| bencher.iter(|| through_line(bytes.clone())));
        group.bench_function("tree", |bencher| bencher.iter(|| through_tree(&bytes)));
        group.finish();
    }
}

fn through_bytes(input: Bytes) -> Bytes {
    decode(input).encode()
}

fn through_line(input: Bytes) -> Vec<u8> {
    let mut line = Vec::new();
    decode(input).encode_line(&mut line);
    line
}

fn through_tree(input: &[u8]) -> Vec<u8> {
    let value: Value = serde_json::from_slice(black_box(input)).expect("the input is JSON");
    serde_json::to_vec(&value).expect("plain data can be written as JSON")
}

fn decode(input: Bytes) -> Message {
    match Message::decode(black_box(input), MAX_DEPTH) {
        Ok(Frame::Single(message)) => message,
        other => panic!("not one message: {other:?}"),
    }
}

fn request() -> Value {
    json!({"jsonrpc": "2.0", "id": 4711, "method": "tools/call", "params": {
        "name": "weather", "arguments": {"city": "Zürich", "days": 3, "units": "metric"},
        "_meta": {"progressToken": 17}}})
}

/// Several short text items, as a search returns.
fn small_result() -> Value {
    let items: Vec<Value> = (0..8)
        .map(|n| {
            let text = format!(
                "{n}. “Café Zürich” — open Mon–Fri, 8:00 to 18:30 (kitchen until 17:45).\nRating: 4.{n}/5, \
                 1,0{n}2 reviews. \"Good coffee, slow service\" — see https://example.org/places/{n}?ref=search"
            );
            json!({"type": "text", "text": text, "annotations": {"audience": ["user"], "priority": 0.5}})
        })
        .collect();
    result(&items)
}

/// A source file, with the escapes that its lines and quotes need.
fn source_code_result() -> Value {
    let function = r#"
/// Greets “someone”, politely.
fn greet(name: &str, times: usize) -> Result<(), Error> {
    for n in 0..times {
        if name.is_empty() {
            return Err(Error::new("no name given", n));
        }
        println!("Hello, {name}! (n° {n} of {times})\t\"{}\"", name.len());
	}
    Ok(())
}
"#;
    result(&[json!({"type": "text", "text": function.repeat(660)})])
}

/// An image in base64 and its description.
fn image_result() -> Value {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = 1_u32;
    let pixels: String = (0..4_200_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(alphabet[(state >> 26) as usize])
        })
        .collect();
    let text = "A screenshot of the “Settings” page — dark theme, 2560×1440.\nThe \"Save\" button is off. "
        .repeat(900);
    result(&[
        json!({"type": "image", "data": pixels, "mimeType": "image/png"}),
        json!({"type": "text", "text": text}),
    ])
}

fn result(content: &[Value]) -> Value {
    json!({"jsonrpc": "2.0", "id": 4711, "result": {"content": content, "isError": false}})
}

/// 200 tools with schemas as generators write them.
fn tool_list() -> Value {
    let tools: Vec<Value> = (0..200)
        .map(|n| {
            json!({
                "name": format!("search_issues_{n}"),
                "title": format!("Search issues ({n})"),
                "description": "Searches issues by text and state — newest first.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string", "minLength": 1},
                        "state": {"type": "string", "enum": ["open", "closed", "all"]},
                        "labels": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
                        "limit": {"type": "integer", "minimum": 1, "maximum": 100}
                    },
                    "required": ["query"],
                    "additionalProperties": false
                }
            })
        })
        .collect();
    json!({"jsonrpc": "2.0", "id": 4711, "result": {"tools": tools}})
}
