//! Request body of chat completions.

use pegboard_core::model::{
    AssistantTurn, ChatMessage, ContentPart, Delivery, ModelName, ModelRequest, ReasoningEffort, ToolChoice,
    ToolSpec,
};
use pegboard_json::RawJson;
use serde::Serialize;
use serde_json::{Value, json};

/// Name of the token limit field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenLimitField {
    MaxTokens,
    MaxCompletionTokens,
}

#[derive(Serialize)]
struct ChatRequestBody<'r> {
    model: &'r str,
    messages: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ChatTool<'r>>,
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
struct ChatTool<'r> {
    r#type: &'static str,
    function: ChatFunction<'r>,
}

#[derive(Serialize)]
struct ChatFunction<'r> {
    name: &'r str,
    description: &'r str,
    parameters: &'r RawJson,
}

/// Serializes a request.
pub(super) fn body(name: &ModelName, request: &ModelRequest, limit: TokenLimitField) -> Vec<u8> {
    let is_streamed = request.delivery == Delivery::Streamed;
    let thinks = request.reasoning.is_some();
    let max = |wanted: TokenLimitField| request.max_output_tokens.filter(|_| limit == wanted);
    let body = ChatRequestBody {
        model: name.model(),
        messages: messages(request),
        tools: request.tools.iter().map(tool).collect(),
        tool_choice: tool_choice(request),
        max_tokens: max(TokenLimitField::MaxTokens),
        max_completion_tokens: max(TokenLimitField::MaxCompletionTokens),
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
            ChatMessage::User(parts) => messages.push(json!({"role": "user", "content": content(parts)})),
            ChatMessage::Assistant(turn) => messages.push(assistant(turn)),
            ChatMessage::ToolResults(results) => messages.extend(results.iter().map(
                |result| json!({"role": "tool", "tool_call_id": result.call_id, "content": result.text}),
            )),
        }
    }
    messages
}

/// Returns plain text, which every server accepts; a list of parts only if there is an image.
fn content(parts: &[ContentPart]) -> Value {
    let texts: Option<Vec<&str>> = parts
        .iter()
        .map(|part| match part {
            ContentPart::Text(text) => Some(text.as_str()),
            ContentPart::Image { .. } => None,
        })
        .collect();
    if let Some(texts) = texts {
        return texts.join("\n\n").into();
    }
    let part = |part: &ContentPart| match part {
        ContentPart::Text(text) => json!({"type": "text", "text": text}),
        ContentPart::Image { media_type, base64 } => {
            let url = format!("data:{media_type};base64,{base64}");
            json!({"type": "image_url", "image_url": {"url": url}})
        }
    };
    parts.iter().map(part).collect()
}

fn assistant(turn: &AssistantTurn) -> Value {
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

fn tool(spec: &ToolSpec) -> ChatTool<'_> {
    let ToolSpec { name, description, input_schema } = spec;
    ChatTool { r#type: "function", function: ChatFunction { name, description, parameters: input_schema } }
}

/// Returns the tool choice; `None` for the default one, and without tools, since servers reject a choice
/// then.
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

fn effort(reasoning: ReasoningEffort) -> &'static str {
    match reasoning {
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low | ReasoningEffort::Tokens(..=2_048) => "low",
        ReasoningEffort::Medium | ReasoningEffort::Tokens(..=8_192) => "medium",
        ReasoningEffort::High | ReasoningEffort::Tokens(_) => "high",
    }
}
