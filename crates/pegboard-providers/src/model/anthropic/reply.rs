//! A reply, put together from blocks and pieces of them.

use pegboard_core::model::{
    Listener, ModelError, ModelErrorKind, ModelName, ModelReply, Piece, StopReason, Thoughts, ToolCall, Usage,
};
use pegboard_core::redact::Redactor;
use pegboard_json::RawJson;
use serde::Deserialize;
use serde_json::json;

use crate::model::{refusal, with_own_ids};

/// How many blocks a reply may have.
const MAX_BLOCKS: usize = 1_024;

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    index: Option<usize>,
    message: Option<WireReply>,
    content_block: Option<RawJson>,
    delta: Option<Delta>,
    usage: Option<WireUsage>,
    error: Option<RawJson>,
}

#[derive(Deserialize)]
struct WireReply {
    content: Option<Vec<RawJson>>,
    stop_reason: Option<String>,
    usage: Option<WireUsage>,
    error: Option<RawJson>,
}

/// A piece of a block, or what is said at the end.
#[derive(Deserialize)]
struct Delta {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    partial_json: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    stop_reason: Option<String>,
}

/// Numbers that were counted, each once or again with a newer value.
#[derive(Deserialize)]
struct WireUsage {
    #[serde(rename = "input_tokens")]
    input: Option<u64>,
    #[serde(rename = "output_tokens")]
    output: Option<u64>,
    #[serde(rename = "cache_read_input_tokens")]
    cache_read: Option<u64>,
    #[serde(rename = "cache_creation_input_tokens")]
    cache_write: Option<u64>,
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It was read.
    Read,
    /// It is nothing that a model writes.
    Strange,
}

/// A block on its way.
enum Block {
    Text(String),
    ToolUse(ToolCall),
    Thinking {
        text: String,
        signature: String,
    },
    /// Thoughts that nobody can read, as they came.
    Hidden(RawJson),
    /// Something that is not for us.
    Other,
}

/// A reply on its way.
pub(super) struct Draft<'m> {
    model: &'m ModelName,
    redactor: &'m Redactor,
    blocks: Vec<Block>,
    usage: Option<Usage>,
    stop_reason: Option<String>,
    is_over: bool,
}

impl<'m> Draft<'m> {
    pub(super) fn new(model: &'m ModelName, redactor: &'m Redactor) -> Self {
        Self { model, redactor, blocks: Vec::new(), usage: None, stop_reason: None, is_over: false }
    }

    /// Whether the last event came.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes a reply that came as a whole.
    pub(super) fn take_whole(&mut self, json: &[u8], listener: Listener<'_>) -> Result<Taken, ModelError> {
        let Ok(reply) = serde_json::from_slice::<WireReply>(json) else { return Ok(Taken::Strange) };
        if let Some(error) = &reply.error {
            return Err(refusal::in_answer(self.model, error, self.redactor));
        }
        let Some(content) = reply.content else { return Ok(Taken::Strange) };
        for block in content {
            self.begin(self.blocks.len(), &block, listener)?;
        }
        self.count(reply.usage);
        self.stop_reason = reply.stop_reason;
        Ok(Taken::Read)
    }

    /// Takes an event of a stream.
    pub(super) fn take(&mut self, json: &[u8], listener: Listener<'_>) -> Result<Taken, ModelError> {
        let Ok(event) = serde_json::from_slice::<Event>(json) else { return Ok(Taken::Strange) };
        match event.kind.as_str() {
            "message_start" => self.count(event.message.and_then(|message| message.usage)),
            "content_block_start" => {
                let (Some(at), Some(block)) = (event.index, event.content_block) else {
                    return Ok(Taken::Strange);
                };
                self.begin(at, &block, listener)?;
            }
            "content_block_delta" => {
                let (Some(at), Some(delta)) = (event.index, event.delta) else { return Ok(Taken::Strange) };
                return Ok(self.go_on(at, &delta, listener));
            }
            "message_delta" => {
                self.count(event.usage);
                self.stop_reason =
                    event.delta.and_then(|delta| delta.stop_reason).or(self.stop_reason.take());
            }
            "message_stop" => self.is_over = true,
            "error" => {
                let error = event.error.unwrap_or_else(RawJson::empty_object);
                return Err(refusal::in_answer(self.model, &error, self.redactor));
            }
            // `ping`, the end of a block, and what may be added one day.
            _ => {}
        }
        Ok(Taken::Read)
    }

    fn begin(&mut self, at: usize, block: &RawJson, listener: Listener<'_>) -> Result<(), ModelError> {
        if at != self.blocks.len() || at == MAX_BLOCKS {
            return Err(self.garbage("its blocks are out of order, or too many"));
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
                tell(Piece::Text(&text), listener);
                Block::Text(text)
            }
            "tool_use" => {
                // A stream begins with an empty object, and the pieces follow.
                let input = block.get("input").filter(|input| input.as_str() != "{}");
                let arguments = input.map(|input| input.as_str().to_owned()).unwrap_or_default();
                Block::ToolUse(ToolCall { id: text("id"), name: text("name"), arguments })
            }
            "thinking" => {
                let thought = text("thinking");
                tell(Piece::Thought(&thought), listener);
                Block::Thinking { text: thought, signature: text("signature") }
            }
            "redacted_thinking" => Block::Hidden(block.clone()),
            _ => Block::Other,
        };
        self.blocks.push(begun);
        Ok(())
    }

    fn go_on(&mut self, at: usize, delta: &Delta, listener: Listener<'_>) -> Taken {
        let Some(block) = self.blocks.get_mut(at) else { return Taken::Strange };
        let piece = |piece: &Option<String>| piece.clone().unwrap_or_default();
        match (block, delta.kind.as_deref()) {
            (Block::Text(text), Some("text_delta")) => {
                let piece = piece(&delta.text);
                tell(Piece::Text(&piece), listener);
                text.push_str(&piece);
            }
            (Block::ToolUse(call), Some("input_json_delta")) => {
                call.arguments.push_str(&piece(&delta.partial_json));
            }
            (Block::Thinking { text, .. }, Some("thinking_delta")) => {
                let piece = piece(&delta.thinking);
                tell(Piece::Thought(&piece), listener);
                text.push_str(&piece);
            }
            (Block::Thinking { signature, .. }, Some("signature_delta")) => {
                signature.push_str(&piece(&delta.signature));
            }
            // Citations, and what may be added one day.
            _ => {}
        }
        Taken::Read
    }

    fn count(&mut self, usage: Option<WireUsage>) {
        let Some(newer) = usage else { return };
        let known = self.usage.unwrap_or_default();
        self.usage = Some(Usage {
            input: newer.input.unwrap_or(known.input),
            output: newer.output.unwrap_or(known.output),
            cache_read: newer.cache_read.unwrap_or(known.cache_read),
            cache_write: newer.cache_write.unwrap_or(known.cache_write),
        });
    }

    /// The reply, if it is one.
    pub(super) fn finish(self) -> Result<ModelReply, ModelError> {
        let mut reply = ModelReply { usage: self.usage, ..ModelReply::new(self.model.clone()) };
        let mut thoughts: Vec<RawJson> = Vec::new();
        for block in self.blocks {
            match block {
                Block::Text(text) => reply.text.push_str(&text),
                Block::ToolUse(call) if call.name.is_empty() => {
                    let reason = "it wants a tool called without saying which";
                    return Err(ModelError::new(self.model.clone(), ModelErrorKind::Garbage, reason));
                }
                Block::ToolUse(call) => reply.tool_calls.push(call),
                Block::Thinking { text, signature } => thoughts.push(RawJson::of(
                    &json!({"type": "thinking", "thinking": text, "signature": signature}),
                )),
                Block::Hidden(block) => thoughts.push(block),
                Block::Other => {}
            }
        }
        if !thoughts.is_empty() {
            reply.thoughts = Some(Thoughts { of: self.model.clone(), blocks: RawJson::of(&thoughts) });
        }
        with_own_ids(&mut reply);
        reply.stop = match self.stop_reason.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
            Some("refusal") => StopReason::Refused,
            Some("stop_sequence") => StopReason::StopText,
            _ if !reply.tool_calls.is_empty() => StopReason::ToolCalls,
            _ => StopReason::EndOfTurn,
        };
        Ok(reply)
    }

    fn garbage(&self, reason: &str) -> ModelError {
        ModelError::new(self.model.clone(), ModelErrorKind::Garbage, reason)
    }
}

fn tell(piece: Piece<'_>, listener: Listener<'_>) {
    if !matches!(piece, Piece::Text("") | Piece::Thought("")) {
        listener(piece);
    }
}
