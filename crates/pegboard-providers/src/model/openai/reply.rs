//! Assembles a reply from the chunks of a chat completions server.

use pegboard_core::model::{
    ModelError, ModelErrorKind, ModelName, ModelReply, ReplyEvent, ReplyListener, StopReason, TokenUsage,
    ToolCall,
};
use pegboard_core::redact::Redactor;
use pegboard_json::RawJson;
use serde::Deserialize;

use crate::model::endpoint::{EventOutcome, ReplyBuilder};
use crate::model::{api_error, assign_call_ids};

/// Maximum number of tool calls in a reply.
const MAX_TOOL_CALLS: usize = 256;

/// Reply or chunk of one; they differ in one field name.
#[derive(Deserialize)]
struct ChatChunk {
    choices: Option<Vec<ChatChoice>>,
    usage: Option<ChatUsage>,
    error: Option<RawJson>,
}

#[derive(Deserialize)]
struct ChatChoice {
    delta: Option<ReplyMessage>,
    message: Option<ReplyMessage>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ReplyMessage {
    content: Option<RawJson>,
    refusal: Option<String>,
    reasoning_content: Option<RawJson>,
    reasoning: Option<RawJson>,
    tool_calls: Option<Vec<ChatToolCall>>,
}

#[derive(Deserialize)]
struct ChatToolCall {
    index: Option<usize>,
    id: Option<String>,
    function: Option<ChatFunctionCall>,
}

#[derive(Deserialize)]
struct ChatFunctionCall {
    name: Option<String>,
    arguments: Option<RawJson>,
}

#[derive(Deserialize)]
struct ChatUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<ChatUsageDetails>,
}

#[derive(Deserialize)]
struct ChatUsageDetails {
    cached_tokens: Option<u64>,
}

/// Form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageForm {
    Delta,
    Whole,
}

/// Reply under construction.
pub(in crate::model) struct ChatReplyBuilder<'m> {
    model: &'m ModelName,
    redactor: &'m Redactor,
    reply: ModelReply,
    /// Index of each call, as numbered by the server.
    indices: Vec<Option<usize>>,
    finish: Option<String>,
    is_refused: bool,
    /// `true` after the first choice.
    has_choice: bool,
}

impl<'m> ChatReplyBuilder<'m> {
    pub(in crate::model) fn new(model: &'m ModelName, redactor: &'m Redactor) -> Self {
        Self {
            model,
            redactor,
            reply: ModelReply::new(model.clone()),
            indices: Vec::new(),
            finish: None,
            is_refused: false,
            has_choice: false,
        }
    }

    /// Applies a chunk, or a whole reply.
    fn apply_chunk(&mut self, json: &[u8], listener: ReplyListener<'_>) -> Result<EventOutcome, ModelError> {
        let Ok(chunk) = serde_json::from_slice::<ChatChunk>(json) else { return Ok(EventOutcome::Malformed) };
        if let Some(error) = &chunk.error {
            return Err(api_error::from_error_object(self.model, error, self.redactor));
        }
        if let Some(usage) = chunk.usage {
            self.reply.usage = Some(usage.to_usage());
        }
        let Some(choice) = chunk.choices.and_then(|choices| choices.into_iter().next()) else {
            return Ok(EventOutcome::Accepted);
        };
        self.has_choice = true;
        if let Some(message) = choice.delta {
            self.apply_message(message, MessageForm::Delta, listener)?;
        }
        if let Some(message) = choice.message {
            self.apply_message(message, MessageForm::Whole, listener)?;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            if reason == "error" {
                return Err(self.malformed("the model stopped with an error"));
            }
            self.finish = Some(reason);
        }
        Ok(EventOutcome::Accepted)
    }

    fn apply_message(
        &mut self,
        message: ReplyMessage,
        form: MessageForm,
        listener: ReplyListener<'_>,
    ) -> Result<(), ModelError> {
        for thought in [message.reasoning_content, message.reasoning].into_iter().flatten().take(1) {
            if let Some(thought) = thought.text().filter(|thought| !thought.is_empty()) {
                listener(ReplyEvent::Thinking(&thought));
            }
        }
        if let Some(refusal) = message.refusal.filter(|refusal| !refusal.is_empty()) {
            self.is_refused = true;
            self.append_text(&refusal, listener);
        }
        match &message.content {
            None => {}
            Some(content) => match content.text() {
                Some(text) => self.append_text(&text, listener),
                // Some servers send a list of parts.
                None => content.items().filter_map(|part| part.get("text")).for_each(|text| {
                    self.append_text(&text.text().unwrap_or_default(), listener);
                }),
            },
        }
        message
            .tool_calls
            .unwrap_or_default()
            .into_iter()
            .try_for_each(|call| self.apply_tool_call(call, form))
    }

    fn append_text(&mut self, text: &str, listener: ReplyListener<'_>) {
        if !text.is_empty() {
            self.reply.text.push_str(text);
            listener(ReplyEvent::Text(text));
        }
    }

    fn apply_tool_call(&mut self, wire: ChatToolCall, form: MessageForm) -> Result<(), ModelError> {
        let id = wire.id.unwrap_or_default();
        let (name, arguments) = match wire.function {
            Some(function) => (function.name.unwrap_or_default(), function.arguments),
            None => (String::new(), None),
        };
        let known = match form {
            MessageForm::Delta => self.find_call(wire.index, &id, &name),
            MessageForm::Whole => None,
        };
        let at = match known {
            Some(at) => at,
            None if self.reply.tool_calls.len() == MAX_TOOL_CALLS => {
                return Err(self.malformed(&format!("more than {MAX_TOOL_CALLS} tool calls in one reply")));
            }
            None => {
                self.indices.push(wire.index);
                self.reply.tool_calls.push(ToolCall { id, name, arguments: String::new() });
                self.indices.len() - 1
            }
        };
        if let Some(arguments) = arguments {
            let call = &mut self.reply.tool_calls[at];
            match arguments.text() {
                Some(text) => call.arguments.push_str(&text),
                // Some servers send an object instead of a string.
                None => call.arguments.push_str(arguments.as_str()),
            }
        }
        Ok(())
    }

    /// Finds the call a delta belongs to, by index unless the id differs: some servers use the same index for
    /// every call, others send none.
    fn find_call(&self, index: Option<usize>, id: &str, name: &str) -> Option<usize> {
        let calls = &self.reply.tool_calls;
        let is_same = |at: &usize| id.is_empty() || calls[*at].id == id;
        match index {
            Some(_) => self.indices.iter().rposition(|known| *known == index).filter(is_same),
            None if !id.is_empty() => calls.iter().rposition(|call| call.id == id),
            None if !name.is_empty() => None,
            None => calls.len().checked_sub(1),
        }
    }

    fn malformed(&self, reason: &str) -> ModelError {
        ModelError::new(self.model.clone(), ModelErrorKind::MalformedReply, reason)
    }
}

impl ReplyBuilder for ChatReplyBuilder<'_> {
    fn apply_whole(&mut self, json: &[u8], listener: ReplyListener<'_>) -> Result<EventOutcome, ModelError> {
        let outcome = self.apply_chunk(json, listener)?;
        Ok(if self.has_choice && outcome == EventOutcome::Accepted {
            EventOutcome::Complete
        } else {
            EventOutcome::Malformed
        })
    }

    fn apply_event(&mut self, json: &[u8], listener: ReplyListener<'_>) -> Result<EventOutcome, ModelError> {
        if json.trim_ascii() != b"[DONE]" {
            return self.apply_chunk(json, listener);
        }
        Ok(if self.has_choice { EventOutcome::Complete } else { EventOutcome::Truncated })
    }

    /// Returns `true` after the finish reason. Token usage may follow.
    fn is_complete(&self) -> bool {
        self.finish.is_some()
    }

    fn finish(mut self) -> Result<ModelReply, ModelError> {
        if self.reply.tool_calls.iter().any(|call| call.name.is_empty()) {
            return Err(self.malformed("a tool call has no name"));
        }
        assign_call_ids(&mut self.reply);
        let wants_tools = !self.reply.tool_calls.is_empty();
        self.reply.stop = match self.finish.as_deref() {
            Some("length") => StopReason::MaxTokens,
            Some("content_filter") => StopReason::Refused,
            _ if self.is_refused => StopReason::Refused,
            // Some servers send another finish reason with tool calls.
            _ if wants_tools => StopReason::ToolCalls,
            _ => StopReason::EndOfTurn,
        };
        Ok(self.reply)
    }
}

impl ChatUsage {
    fn to_usage(&self) -> TokenUsage {
        let cached = self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
        let cache_read = cached.unwrap_or(0).min(self.prompt_tokens);
        TokenUsage {
            input: self.prompt_tokens - cache_read,
            output: self.completion_tokens,
            cache_read,
            cache_write: 0,
        }
    }
}
