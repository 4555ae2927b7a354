//! A request, as Anthropic wants it.

use pegboard_core::model::{
    Caching, Delivery, Message, ModelName, ModelRequest, Part, Reasoning, ToolChoice, ToolOffer, ToolResult,
    Turn, Verdict,
};
use pegboard_json::RawJson;
use serde::Serialize;
use serde_json::{Value, json};

/// How many tokens a model may write if nobody says: the interface wants a number.
const MAX_TOKENS: u32 = 4_096;
/// The smallest budget of thoughts that is taken.
const MIN_BUDGET: u32 = 1_024;

#[derive(Serialize)]
struct Body<'r> {
    model: &'r str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<Value>,
    messages: Vec<WireMessage>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'r>>,
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
struct WireMessage {
    role: &'static str,
    /// Blocks, some of which came from there and go back as they came.
    content: Vec<RawJson>,
}

#[derive(Serialize)]
struct Tool<'r> {
    name: &'r str,
    description: &'r str,
    input_schema: &'r RawJson,
}

/// The request as it is sent.
pub(super) fn body(name: &ModelName, request: &ModelRequest) -> Vec<u8> {
    let max_tokens = request.max_output_tokens.unwrap_or(MAX_TOKENS);
    let thinking = Thinking::of(name, request, max_tokens);
    let is_thinking = thinking != Thinking::None;
    let mut messages = messages(name, request);
    if request.caching == Caching::Requested
        && let Some(last) = messages.last_mut().and_then(|message| message.content.last_mut())
    {
        *last = last.with("cache_control", &ephemeral());
    }
    let body = Body {
        model: name.model(),
        // The budget of thoughts is a part of it, and something must be left to reply with.
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

/// How the model is asked to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thinking {
    None,
    Effort(&'static str),
    Budget(u32),
}

impl Thinking {
    fn of(name: &ModelName, request: &ModelRequest, max_tokens: u32) -> Self {
        let is_forced = matches!(request.tool_choice, ToolChoice::Required | ToolChoice::Tool(_));
        match request.reasoning {
            _ if is_forced => Self::None,
            None => Self::None,
            Some(Reasoning::Minimal | Reasoning::Low) => Self::Effort("low"),
            Some(Reasoning::Medium) => Self::Effort("medium"),
            Some(Reasoning::High) => Self::Effort("high"),
            Some(Reasoning::Tokens(_)) if has_lost_thoughts(name, request) => Self::None,
            Some(Reasoning::Tokens(budget)) => {
                let budget = budget.max(MIN_BUDGET).min(max_tokens.saturating_sub(1));
                if budget < MIN_BUDGET { Self::None } else { Self::Budget(budget) }
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

/// Whether a turn that wants tools called goes on without its thoughts, since another model had them. With a budget of
/// thoughts that is refused.
fn has_lost_thoughts(name: &ModelName, request: &ModelRequest) -> bool {
    let turns = request.messages.iter().rev().map_while(|message| match message {
        Message::User(_) => None,
        Message::Assistant(turn) => Some(Some(turn)),
        Message::ToolResults(_) => Some(None),
    });
    let is_lost = |turn: &Turn| {
        !turn.tool_calls.is_empty() && turn.thoughts.as_ref().is_none_or(|thoughts| thoughts.of != *name)
    };
    turns.flatten().any(is_lost)
}

fn system(request: &ModelRequest) -> Option<Value> {
    if request.system.is_empty() {
        return None;
    }
    Some(match request.caching {
        Caching::Automatic => request.system.as_str().into(),
        Caching::Requested => {
            json!([{"type": "text", "text": request.system, "cache_control": ephemeral()}])
        }
    })
}

fn ephemeral() -> RawJson {
    RawJson::of(&json!({"type": "ephemeral"}))
}

/// The conversation, with neighbours of one role put together: results of tools must stand first in the very next
/// message of the user.
fn messages(name: &ModelName, request: &ModelRequest) -> Vec<WireMessage> {
    let mut messages: Vec<WireMessage> = Vec::new();
    for message in &request.messages {
        let (role, blocks) = match message {
            Message::User(parts) => ("user", parts.iter().filter_map(part).collect()),
            Message::Assistant(turn) => ("assistant", assistant(name, turn)),
            Message::ToolResults(results) => ("user", results.iter().map(tool_result).collect()),
        };
        match messages.last_mut() {
            _ if blocks.is_empty() => {}
            Some(last) if last.role == role => last.content.extend(blocks),
            Some(_) | None => messages.push(WireMessage { role, content: blocks }),
        }
    }
    messages
}

/// A part; one without any text is refused, so it is left out.
fn part(part: &Part) -> Option<RawJson> {
    match part {
        Part::Text(text) => text_block(text),
        Part::Image { media_type, base64 } => {
            let source = json!({"type": "base64", "media_type": media_type, "data": base64});
            Some(RawJson::of(&json!({"type": "image", "source": source})))
        }
    }
}

fn text_block(text: &str) -> Option<RawJson> {
    (!text.trim().is_empty()).then(|| RawJson::of(&json!({"type": "text", "text": text})))
}

fn assistant(name: &ModelName, turn: &Turn) -> Vec<RawJson> {
    let own = turn.thoughts.as_ref().filter(|thoughts| thoughts.of == *name);
    let thoughts = own.into_iter().flat_map(|thoughts| thoughts.blocks.items().collect::<Vec<_>>());
    let calls = turn.tool_calls.iter().map(|call| {
        RawJson::of(&json!({"type": "tool_use", "id": plain(&call.id), "name": call.name}))
            .with("input", &call.object())
    });
    thoughts.chain(text_block(turn.text.trim_end())).chain(calls).collect()
}

fn tool_result(result: &ToolResult) -> RawJson {
    let block = json!({"type": "tool_result", "tool_use_id": plain(&result.call_id), "content": result.text});
    match result.verdict {
        Verdict::Done => RawJson::of(&block),
        Verdict::Failed => RawJson::of(&block).with("is_error", &RawJson::of(&true)),
    }
}

/// An id without characters that are refused here: another model may have made it up.
fn plain(id: &str) -> String {
    let is_taken = |each: char| each.is_ascii_alphanumeric() || matches!(each, '-' | '_');
    id.chars().map(|each| if is_taken(each) { each } else { '_' }).collect()
}

fn tool(offer: &ToolOffer) -> Tool<'_> {
    let ToolOffer { name, description, input_schema } = offer;
    Tool { name, description, input_schema }
}

/// Nothing is said where there are no tools, since that is refused, and nothing of what is usual.
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
