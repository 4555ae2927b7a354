//! A request, as chat completions want it.

use pegboard_core::model::{
    Delivery, Message, ModelName, ModelRequest, Part, Reasoning, ToolChoice, ToolOffer, Turn,
};
use pegboard_json::RawJson;
use serde::Serialize;
use serde_json::{Value, json};

/// What the limit of what is written is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    MaxTokens,
    MaxCompletionTokens,
}

#[derive(Serialize)]
struct Body<'r> {
    model: &'r str,
    messages: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'r [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'static str>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream_options: Option<Value>,
}

#[derive(Serialize)]
struct Tool<'r> {
    r#type: &'static str,
    function: Function<'r>,
}

#[derive(Serialize)]
struct Function<'r> {
    name: &'r str,
    description: &'r str,
    parameters: &'r RawJson,
}

/// The request as it is sent.
pub(super) fn body(name: &ModelName, request: &ModelRequest, limit: Limit) -> Vec<u8> {
    let is_streamed = request.delivery == Delivery::Streamed;
    let thinks = request.reasoning.is_some();
    let max = |wanted: Limit| request.max_output_tokens.filter(|_| limit == wanted);
    let body = Body {
        model: name.model(),
        messages: messages(request),
        tools: request.tools.iter().map(tool).collect(),
        tool_choice: tool_choice(request),
        max_tokens: max(Limit::MaxTokens),
        max_completion_tokens: max(Limit::MaxCompletionTokens),
        temperature: request.temperature.filter(|_| !thinks),
        top_p: request.top_p.filter(|_| !thinks),
        top_k: request.top_k.filter(|_| !thinks),
        stop: &request.stop,
        reasoning_effort: request.reasoning.map(effort),
        stream: is_streamed,
        stream_options: is_streamed.then(|| json!({"include_usage": true})),
    };
    RawJson::of(&body).into_bytes().into()
}

fn messages(request: &ModelRequest) -> Vec<Value> {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    for message in &request.messages {
        match message {
            Message::User(parts) => messages.push(json!({"role": "user", "content": content(parts)})),
            Message::Assistant(turn) => messages.push(assistant(turn)),
            Message::ToolResults(results) => messages.extend(results.iter().map(
                |result| json!({"role": "tool", "tool_call_id": result.call_id, "content": result.text}),
            )),
        }
    }
    messages
}

/// A text as it is, which every server takes; a list only where there is an image.
fn content(parts: &[Part]) -> Value {
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Image { .. } => None,
        })
        .collect();
    if let Some(texts) = texts {
        return texts.join("\n\n").into();
    }
    let part = |part: &Part| match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image { media_type, base64 } => {
            let url = format!("data:{media_type};base64,{base64}");
            json!({"type": "image_url", "image_url": {"url": url}})
        }
    };
    parts.iter().map(part).collect()
}

fn assistant(turn: &Turn) -> Value {
    if turn.tool_calls.is_empty() {
        return json!({"role": "assistant", "content": turn.text});
    }
    let calls = turn.tool_calls.iter().map(|call| {
        let function = json!({"name": call.name, "arguments": call.object().as_str()});
        json!({"id": call.id, "type": "function", "function": function})
    });
    let content = if turn.text.is_empty() { Value::Null } else { turn.text.as_str().into() };
    json!({"role": "assistant", "content": content, "tool_calls": calls.collect::<Vec<_>>()})
}

fn tool(offer: &ToolOffer) -> Tool<'_> {
    let ToolOffer { name, description, input_schema } = offer;
    Tool { r#type: "function", function: Function { name, description, parameters: input_schema } }
}

/// Nothing is said where there are no tools, since servers refuse that, and nothing of what is usual.
fn tool_choice(request: &ModelRequest) -> Option<Value> {
    if request.tools.is_empty() {
        return None;
    }
    match &request.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Tool(name) => Some(json!({"type": "function", "function": {"name": name}})),
    }
}

fn effort(reasoning: Reasoning) -> &'static str {
    match reasoning {
        Reasoning::Minimal => "minimal",
        Reasoning::Low | Reasoning::Tokens(..=2_048) => "low",
        Reasoning::Medium | Reasoning::Tokens(..=8_192) => "medium",
        Reasoning::High | Reasoning::Tokens(_) => "high",
    }
}
