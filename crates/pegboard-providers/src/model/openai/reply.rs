//! A reply, put together from whatever a server that speaks chat completions sends.

use pegboard_core::model::{
    Listener, ModelError, ModelErrorKind, ModelName, ModelReply, Piece, StopReason, ToolCall, Usage,
};
use pegboard_core::redact::Redactor;
use pegboard_json::RawJson;
use serde::Deserialize;

use crate::model::{refusal, with_own_ids};

/// How many tools a model may want called at once.
const MAX_TOOL_CALLS: usize = 256;

/// A reply, or a piece of one: they differ in one name.
#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<WireUsage>,
    error: Option<RawJson>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Said>,
    message: Option<Said>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Said {
    content: Option<RawJson>,
    refusal: Option<String>,
    reasoning_content: Option<RawJson>,
    reasoning: Option<RawJson>,
    tool_calls: Option<Vec<WireCall>>,
}

#[derive(Deserialize)]
struct WireCall {
    index: Option<usize>,
    id: Option<String>,
    function: Option<WireFunction>,
}

#[derive(Deserialize)]
struct WireFunction {
    name: Option<String>,
    arguments: Option<RawJson>,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    prompt_tokens_details: Option<WireDetails>,
}

#[derive(Deserialize)]
struct WireDetails {
    cached_tokens: Option<u64>,
}

/// What became of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It was read.
    Read,
    /// It is nothing that a model writes.
    Strange,
}

/// Whether what is said is all, or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Piece,
    Whole,
}

/// A reply on its way.
pub(super) struct Draft<'m> {
    model: &'m ModelName,
    redactor: &'m Redactor,
    reply: ModelReply,
    /// What servers number the calls by.
    indices: Vec<Option<usize>>,
    finish: Option<String>,
    is_refused: bool,
    /// Whether a choice came at all.
    has_said: bool,
}

impl<'m> Draft<'m> {
    pub(super) fn new(model: &'m ModelName, redactor: &'m Redactor) -> Self {
        Self {
            model,
            redactor,
            reply: ModelReply::new(model.clone()),
            indices: Vec::new(),
            finish: None,
            is_refused: false,
            has_said: false,
        }
    }

    /// Whether a choice came at all.
    pub(super) fn has_said(&self) -> bool {
        self.has_said
    }

    /// Whether the model has said why it stopped.
    pub(super) fn is_over(&self) -> bool {
        self.finish.is_some()
    }

    /// Takes a piece, or the whole reply.
    pub(super) fn take(&mut self, json: &[u8], listener: Listener<'_>) -> Result<Taken, ModelError> {
        let Ok(chunk) = serde_json::from_slice::<Chunk>(json) else { return Ok(Taken::Strange) };
        if let Some(error) = &chunk.error {
            return Err(refusal::in_answer(self.model, error, self.redactor));
        }
        if let Some(usage) = chunk.usage {
            self.reply.usage = Some(usage.counted());
        }
        let Some(choice) = chunk.choices.and_then(|choices| choices.into_iter().next()) else {
            return Ok(Taken::Read);
        };
        self.has_said = true;
        if let Some(said) = choice.delta {
            self.hear(said, Form::Piece, listener)?;
        }
        if let Some(said) = choice.message {
            self.hear(said, Form::Whole, listener)?;
        }
        if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
            if reason == "error" {
                return Err(self.garbage("it stopped with an error of its own"));
            }
            self.finish = Some(reason);
        }
        Ok(Taken::Read)
    }

    fn hear(&mut self, said: Said, form: Form, listener: Listener<'_>) -> Result<(), ModelError> {
        for thought in [said.reasoning_content, said.reasoning].into_iter().flatten().take(1) {
            if let Some(thought) = thought.text().filter(|thought| !thought.is_empty()) {
                listener(Piece::Thought(&thought));
            }
        }
        if let Some(refusal) = said.refusal.filter(|refusal| !refusal.is_empty()) {
            self.is_refused = true;
            self.write(&refusal, listener);
        }
        match &said.content {
            None => {}
            Some(content) => match content.text() {
                Some(text) => self.write(&text, listener),
                // A list of parts, as some servers have it.
                None => content.items().filter_map(|part| part.get("text")).for_each(|text| {
                    self.write(&text.text().unwrap_or_default(), listener);
                }),
            },
        }
        said.tool_calls.unwrap_or_default().into_iter().try_for_each(|call| self.call(call, form))
    }

    fn write(&mut self, text: &str, listener: Listener<'_>) {
        if !text.is_empty() {
            self.reply.text.push_str(text);
            listener(Piece::Text(text));
        }
    }

    fn call(&mut self, wire: WireCall, form: Form) -> Result<(), ModelError> {
        let id = wire.id.unwrap_or_default();
        let (name, arguments) = match wire.function {
            Some(function) => (function.name.unwrap_or_default(), function.arguments),
            None => (String::new(), None),
        };
        let known = match form {
            Form::Piece => self.find(wire.index, &id, &name),
            Form::Whole => None,
        };
        let at = match known {
            Some(at) => at,
            None if self.reply.tool_calls.len() == MAX_TOOL_CALLS => {
                return Err(
                    self.garbage(&format!("it wants more than {MAX_TOOL_CALLS} tools called at once"))
                );
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
                // Some servers write an object where a text should be.
                None => call.arguments.push_str(arguments.as_str()),
            }
        }
        Ok(())
    }

    /// The call that a piece belongs to. The number tells, unless the id says otherwise: some servers give every call
    /// the same number, and some give none at all.
    fn find(&self, index: Option<usize>, id: &str, name: &str) -> Option<usize> {
        let calls = &self.reply.tool_calls;
        let is_same = |at: &usize| id.is_empty() || calls[*at].id == id;
        match index {
            Some(_) => self.indices.iter().rposition(|known| *known == index).filter(is_same),
            None if !id.is_empty() => calls.iter().rposition(|call| call.id == id),
            None if !name.is_empty() => None,
            None => calls.len().checked_sub(1),
        }
    }

    /// The reply, if it is one.
    pub(super) fn finish(mut self) -> Result<ModelReply, ModelError> {
        if self.reply.tool_calls.iter().any(|call| call.name.is_empty()) {
            return Err(self.garbage("it wants a tool called without saying which"));
        }
        with_own_ids(&mut self.reply);
        let wants_tools = !self.reply.tool_calls.is_empty();
        self.reply.stop = match self.finish.as_deref() {
            Some("length") => StopReason::MaxTokens,
            Some("content_filter") => StopReason::Refused,
            _ if self.is_refused => StopReason::Refused,
            // What a server calls the end matters less than whether there are calls.
            _ if wants_tools => StopReason::ToolCalls,
            _ => StopReason::EndOfTurn,
        };
        Ok(self.reply)
    }

    fn garbage(&self, reason: &str) -> ModelError {
        ModelError::new(self.model.clone(), ModelErrorKind::Garbage, reason)
    }
}

impl WireUsage {
    fn counted(&self) -> Usage {
        let cached = self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
        let cache_read = cached.unwrap_or(0).min(self.prompt_tokens);
        Usage {
            input: self.prompt_tokens - cache_read,
            output: self.completion_tokens,
            cache_read,
            cache_write: 0,
        }
    }
}
