//! Assembles a reply from content blocks and their deltas.

use pegboard_core::model::{
    ModelError, ModelErrorKind, ModelName, ModelReply, ReplyEvent, ReplyListener, StopReason, ThinkingBlocks,
    TokenUsage, ToolCall,
};
use pegboard_core::redact::Redactor;
use pegboard_json::RawJson;
use serde::Deserialize;
use serde_json::json;

use crate::model::endpoint::{EventOutcome, ReplyBuilder};
use crate::model::{api_error, assign_call_ids};

/// Maximum number of content blocks in a reply.
const MAX_BLOCKS: usize = 1_024;

#[derive(Deserialize)]
struct MessageEvent {
    #[serde(rename = "type")]
    kind: String,
    index: Option<usize>,
    message: Option<MessageReply>,
    content_block: Option<RawJson>,
    delta: Option<BlockDelta>,
    usage: Option<MessageUsage>,
    error: Option<RawJson>,
}

#[derive(Deserialize)]
struct MessageReply {
    content: Option<Vec<RawJson>>,
    stop_reason: Option<String>,
    usage: Option<MessageUsage>,
    error: Option<RawJson>,
}

/// Delta of a block, or of the message at its end.
#[derive(Deserialize)]
struct BlockDelta {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    stop_reason: Option<String>,
}

/// Token counts; later values replace earlier ones.
#[derive(Deserialize)]
struct MessageUsage {
    #[serde(rename = "input_tokens")]
    input: Option<u64>,
    #[serde(rename = "output_tokens")]
    output: Option<u64>,
    #[serde(rename = "cache_read_input_tokens")]
    cache_read: Option<u64>,
    #[serde(rename = "cache_creation_input_tokens")]
    cache_write: Option<u64>,
}

/// Content block under construction.
enum ContentBlock {
    Text(String),
    ToolUse(ToolCall),
    Thinking {
        text: String,
        signature: String,
    },
    /// Redacted thinking, kept verbatim.
    Redacted(RawJson),
    /// A block of another type.
    Other,
}

/// Reply under construction.
pub(in crate::model) struct MessageReplyBuilder<'m> {
    model: &'m ModelName,
    redactor: &'m Redactor,
    blocks: Vec<ContentBlock>,
    usage: Option<TokenUsage>,
    stop_reason: Option<String>,
}

impl<'m> MessageReplyBuilder<'m> {
    pub(in crate::model) fn new(model: &'m ModelName, redactor: &'m Redactor) -> Self {
        Self { model, redactor, blocks: Vec::new(), usage: None, stop_reason: None }
    }

    fn start_block(
        &mut self,
        at: usize,
        block: &RawJson,
        listener: ReplyListener<'_>,
    ) -> Result<(), ModelError> {
        if at != self.blocks.len() || at == MAX_BLOCKS {
            return Err(self.malformed("content blocks are out of order, or too many"));
        }
        let text = |name: &str| {
            block
                .get(name)
                .and_then(|value| value.text().map(std::borrow::Cow::into_owned))
                .unwrap_or_default()
        };
        let begun = match text("type").as_str() {
            "text" => {
                let text = text("text");
                emit(ReplyEvent::Text(&text), listener);
                ContentBlock::Text(text)
            }
            "tool_use" => {
                // A stream starts with an empty object, followed by deltas.
                let input = block.get("input").filter(|input| input.as_str() != "{}");
                let arguments = input.map(|input| input.as_str().to_owned()).unwrap_or_default();
                ContentBlock::ToolUse(ToolCall { id: text("id"), name: text("name"), arguments })
            }
            "thinking" => {
                let thought = text("thinking");
                emit(ReplyEvent::Thinking(&thought), listener);
                ContentBlock::Thinking { text: thought, signature: text("signature") }
            }
            "redacted_thinking" => ContentBlock::Redacted(block.clone()),
            _ => ContentBlock::Other,
        };
        self.blocks.push(begun);
        Ok(())
    }

    fn apply_delta(&mut self, at: usize, delta: &BlockDelta, listener: ReplyListener<'_>) -> EventOutcome {
        let Some(block) = self.blocks.get_mut(at) else { return EventOutcome::Malformed };
        let piece = |piece: &Option<String>| piece.clone().unwrap_or_default();
        match (block, delta.kind.as_deref()) {
            (ContentBlock::Text(text), Some("text_delta")) => {
                let piece = piece(&delta.text);
                emit(ReplyEvent::Text(&piece), listener);
                text.push_str(&piece);
            }
            (ContentBlock::ToolUse(call), Some("input_json_delta")) => {
                call.arguments.push_str(&piece(&delta.partial_json));
            }
            (ContentBlock::Thinking { text, .. }, Some("thinking_delta")) => {
                let piece = piece(&delta.thinking);
                emit(ReplyEvent::Thinking(&piece), listener);
                text.push_str(&piece);
            }
            (ContentBlock::Thinking { signature, .. }, Some("signature_delta")) => {
                signature.push_str(&piece(&delta.signature));
            }
            // Citations and future delta types.
            _ => {}
        }
        EventOutcome::Accepted
    }

    fn merge_usage(&mut self, usage: Option<MessageUsage>) {
        let Some(newer) = usage else { return };
        let known = self.usage.unwrap_or_default();
        self.usage = Some(TokenUsage {
            input: newer.input.unwrap_or(known.input),
            output: newer.output.unwrap_or(known.output),
            cache_read: newer.cache_read.unwrap_or(known.cache_read),
            cache_write: newer.cache_write.unwrap_or(known.cache_write),
        });
    }

    fn malformed(&self, reason: &str) -> ModelError {
        ModelError::new(self.model.clone(), ModelErrorKind::MalformedReply, reason)
    }
}

impl ReplyBuilder for MessageReplyBuilder<'_> {
    fn apply_whole(&mut self, json: &[u8], listener: ReplyListener<'_>) -> Result<EventOutcome, ModelError> {
        let Ok(reply) = serde_json::from_slice::<MessageReply>(json) else {
            return Ok(EventOutcome::Malformed);
        };
        if let Some(error) = &reply.error {
            return Err(api_error::from_error_object(self.model, error, self.redactor));
        }
        let Some(content) = reply.content else { return Ok(EventOutcome::Malformed) };
        for block in content {
            self.start_block(self.blocks.len(), &block, listener)?;
        }
        self.merge_usage(reply.usage);
        self.stop_reason = reply.stop_reason;
        Ok(EventOutcome::Complete)
    }

    fn apply_event(&mut self, json: &[u8], listener: ReplyListener<'_>) -> Result<EventOutcome, ModelError> {
        let Ok(event) = serde_json::from_slice::<MessageEvent>(json) else {
            return Ok(EventOutcome::Malformed);
        };
        match event.kind.as_str() {
            "message_start" => self.merge_usage(event.message.and_then(|message| message.usage)),
            "content_block_start" => {
                let (Some(at), Some(block)) = (event.index, event.content_block) else {
                    return Ok(EventOutcome::Malformed);
                };
                self.start_block(at, &block, listener)?;
            }
            "content_block_delta" => {
                let (Some(at), Some(delta)) = (event.index, event.delta) else {
                    return Ok(EventOutcome::Malformed);
                };
                return Ok(self.apply_delta(at, &delta, listener));
            }
            "message_delta" => {
                self.merge_usage(event.usage);
                self.stop_reason =
                    event.delta.and_then(|delta| delta.stop_reason).or(self.stop_reason.take());
            }
            "message_stop" => return Ok(EventOutcome::Complete),
            "error" => {
                let error = event.error.unwrap_or_else(RawJson::empty_object);
                return Err(api_error::from_error_object(self.model, &error, self.redactor));
            }
            // `ping`, the end of a block, and future event types.
            _ => {}
        }
        Ok(EventOutcome::Accepted)
    }

    /// Returns `false`: an event says that the reply is complete.
    fn is_complete(&self) -> bool {
        false
    }

    fn finish(self) -> Result<ModelReply, ModelError> {
        let mut reply = ModelReply { usage: self.usage, ..ModelReply::new(self.model.clone()) };
        let mut thoughts: Vec<RawJson> = Vec::new();
        for block in self.blocks {
            match block {
                ContentBlock::Text(text) => reply.text.push_str(&text),
                ContentBlock::ToolUse(call) if call.name.is_empty() => {
                    let reason = "a tool call has no name";
                    return Err(ModelError::new(self.model.clone(), ModelErrorKind::MalformedReply, reason));
                }
                ContentBlock::ToolUse(call) => reply.tool_calls.push(call),
                ContentBlock::Thinking { text, signature } => thoughts.push(RawJson::of(
                    &json!({"type": "thinking", "thinking": text, "signature": signature}),
                )),
                ContentBlock::Redacted(block) => thoughts.push(block),
                ContentBlock::Other => {}
            }
        }
        if !thoughts.is_empty() {
            reply.thinking =
                Some(ThinkingBlocks { model: self.model.clone(), blocks: RawJson::of(&thoughts) });
        }
        assign_call_ids(&mut reply);
        reply.stop = match self.stop_reason.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
            Some("refusal") => StopReason::Refused,
            Some("stop_sequence") => StopReason::StopText,
            _ if !reply.tool_calls.is_empty() => StopReason::ToolCalls,
            _ => StopReason::EndOfTurn,
        };
        Ok(reply)
    }
}

fn emit(piece: ReplyEvent<'_>, listener: ReplyListener<'_>) {
    if !matches!(piece, ReplyEvent::Text("") | ReplyEvent::Thinking("")) {
        listener(piece);
    }
}
