//! Request body of the Messages API.

use pegboard_core::model::{
    AssistantTurn, ChatMessage, ContentPart, Delivery, ModelName, ModelRequest, PromptCaching,
    ReasoningEffort, ToolChoice, ToolResult, ToolResultStatus, ToolSpec,
};
use pegboard_json::RawJson;
use serde::Serialize;
use serde_json::{Value, json};

/// Default token limit: the API requires one.
const DEFAULT_MAX_TOKENS: u32 = 4_096;
/// Minimum thinking budget that the API accepts.
const MIN_THINKING_BUDGET: u32 = 1_024;

#[derive(Serialize)]
struct MessagesRequestBody<'r> {
    model: &'r str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<Value>,
    messages: Vec<MessageParam>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<AnthropicTool<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'r [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<Value>,
    stream: bool,
}

#[derive(Serialize)]
struct MessageParam {
    role: &'static str,
    /// Content blocks; those from earlier replies are sent back verbatim.
    content: Vec<RawJson>,
}

#[derive(Serialize)]
struct AnthropicTool<'r> {
    name: &'r str,
    description: &'r str,
    input_schema: &'r RawJson,
}

/// Serializes a request.
pub(in crate::model) fn body(name: &ModelName, request: &ModelRequest) -> Vec<u8> {
    let max_tokens = request.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    let thinking = ThinkingMode::of(name, request, max_tokens);
    let is_thinking = thinking != ThinkingMode::None;
    let mut messages = messages(name, request);
    if request.caching == PromptCaching::Requested
        && let Some(last) = messages.last_mut().and_then(|message| message.content.last_mut())
    {
        *last = last.with("cache_control", &ephemeral());
    }
    let body = MessagesRequestBody {
        model: name.model(),
        // Includes the thinking budget, which must leave tokens for the reply.
        max_tokens,
        system: system(request),
        messages,
        tools: request.tools.iter().map(tool).collect(),
        tool_choice: tool_choice(request),
        temperature: request.temperature.filter(|_| !is_thinking),
        top_p: request.top_p.filter(|_| !is_thinking),
        top_k: request.top_k.filter(|_| !is_thinking),
        stop_sequences: &request.stop,
        thinking: thinking.wire(),
        output_config: thinking.output(),
        stream: request.delivery == Delivery::Streamed,
    };
    RawJson::of(&body).into_bytes().into()
}

/// Thinking mode of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThinkingMode {
    None,
    Effort(&'static str),
    Budget(u32),
}

impl ThinkingMode {
    fn of(name: &ModelName, request: &ModelRequest, max_tokens: u32) -> Self {
        let is_forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Tool(_));
        match request.reasoning {
            _ if is_forced => Self::None,
            None => Self::None,
            Some(ReasoningEffort::Minimal | ReasoningEffort::Low) => Self::Effort("low"),
            Some(ReasoningEffort::Medium) => Self::Effort("medium"),
            Some(ReasoningEffort::High) => Self::Effort("high"),
            Some(ReasoningEffort::Tokens(_)) if lacks_own_thoughts(name, request) => Self::None,
            Some(ReasoningEffort::Tokens(budget)) => {
                let budget = budget.max(MIN_THINKING_BUDGET).min(max_tokens.saturating_sub(1));
                if budget < MIN_THINKING_BUDGET { Self::None } else { Self::Budget(budget) }
            }
        }
    }

    fn wire(self) -> Option<Value> {
        match self {
            Self::None => None,
            Self::Effort(_) => Some(json!({"type": "adaptive"})),
            Self::Budget(budget) => Some(json!({"type": "enabled", "budget_tokens": budget})),
        }
    }

    fn output(self) -> Option<Value> {
        match self {
            Self::Effort(effort) => Some(json!({"effort": effort})),
            Self::None | Self::Budget(_) => None,
        }
    }
}

/// Returns `true` if a turn with tool calls lacks thinking blocks of this model, since another model wrote
/// it. The API rejects such a turn if a thinking budget is set.
fn lacks_own_thoughts(name: &ModelName, request: &ModelRequest) -> bool {
    let turns = request.messages.iter().rev().map_while(|message| match message {
        ChatMessage::User(_) => None,
        ChatMessage::Assistant(turn) => Some(Some(turn)),
        ChatMessage::ToolResults(_) => Some(None),
    });
    let is_lost = |turn: &AssistantTurn| {
        !turn.tool_calls.is_empty() && turn.thinking.as_ref().is_none_or(|thoughts| thoughts.model != *name)
    };
    turns.flatten().any(is_lost)
}

fn system(request: &ModelRequest) -> Option<Value> {
    if request.system.is_empty() {
        return None;
    }
    Some(match request.caching {
        PromptCaching::Automatic => request.system.as_str().into(),
        PromptCaching::Requested => {
            json!([{"type": "text", "text": request.system, "cache_control": ephemeral()}])
        }
    })
}

fn ephemeral() -> RawJson {
    RawJson::of(&json!({"type": "ephemeral"}))
}

/// Converts the conversation and merges adjacent messages of one role: tool results must come first in the
/// next user message.
fn messages(name: &ModelName, request: &ModelRequest) -> Vec<MessageParam> {
    let mut messages: Vec<MessageParam> = Vec::new();
    for message in &request.messages {
        let (role, blocks) = match message {
            ChatMessage::User(parts) => ("user", parts.iter().filter_map(part).collect()),
            ChatMessage::Assistant(turn) => ("assistant", assistant(name, turn)),
            ChatMessage::ToolResults(results) => ("user", results.iter().map(tool_result).collect()),
        };
        match messages.last_mut() {
            _ if blocks.is_empty() => {}
            Some(last) if last.role == role => last.content.extend(blocks),
            Some(_) | None => messages.push(MessageParam { role, content: blocks }),
        }
    }
    messages
}

/// Converts a part; empty text is dropped, since the API rejects it.
fn part(part: &ContentPart) -> Option<RawJson> {
    match part {
        ContentPart::Text(text) => text_block(text),
        ContentPart::Image { media_type, base64 } => {
            let source = json!({"type": "base64", "media_type": media_type, "data": base64});
            Some(RawJson::of(&json!({"type": "image", "source": source})))
        }
    }
}

fn text_block(text: &str) -> Option<RawJson> {
    (!text.trim().is_empty()).then(|| RawJson::of(&json!({"type": "text", "text": text})))
}

fn assistant(name: &ModelName, turn: &AssistantTurn) -> Vec<RawJson> {
    let own = turn.thinking.as_ref().filter(|thoughts| thoughts.model == *name);
    let thoughts = own.into_iter().flat_map(|thoughts| thoughts.blocks.items().collect::<Vec<_>>());
    let calls = turn.tool_calls.iter().map(|call| {
        RawJson::of(&json!({"type": "tool_use", "id": sanitize_id(&call.id), "name": call.name}))
            .with("input", &call.object())
    });
    thoughts.chain(text_block(turn.text.trim_end())).chain(calls).collect()
}

fn tool_result(result: &ToolResult) -> RawJson {
    let block =
        json!({"type": "tool_result", "tool_use_id": sanitize_id(&result.call_id), "content": result.text});
    match result.status {
        ToolResultStatus::Done => RawJson::of(&block),
        ToolResultStatus::Failed => RawJson::of(&block).with("is_error", &RawJson::of(&true)),
    }
}

/// Replaces characters that the API rejects in ids; another model may have generated the id.
fn sanitize_id(id: &str) -> String {
    let is_allowed = |each: char| each.is_ascii_alphanumeric() || matches!(each, '-' | '_');
    id.chars().map(|each| if is_allowed(each) { each } else { '_' }).collect()
}

fn tool(spec: &ToolSpec) -> AnthropicTool<'_> {
    let ToolSpec { name, description, input_schema } = spec;
    AnthropicTool { name, description, input_schema }
}

/// Returns the tool choice; `None` for the default one, and without tools, since the API rejects a choice
/// then.
fn tool_choice(request: &ModelRequest) -> Option<Value> {
    if request.tools.is_empty() {
        return None;
    }
    match &request.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!({"type": "none"})),
        ToolChoice::Required => Some(json!({"type": "any"})),
        ToolChoice::Tool(name) => Some(json!({"type": "tool", "name": name})),
    }
}
