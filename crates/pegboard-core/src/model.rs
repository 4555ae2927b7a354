//! Language models behind one trait: requests, replies and streaming.
//!
//! A [`Model`] takes a complete [`ModelRequest`] and returns one [`ModelReply`]; it is stateless between
//! requests. The caller keeps the messages of a conversation, appends [`ModelReply::to_message`] and the
//! results of requested tool calls, and sends the next request.
//!
//! ```
//! use futures_util::future::{BoxFuture, FutureExt, ready};
//! use pegboard_core::model::{
//!     ChatMessage, Model, ModelError, ModelInfo, ModelReply, ModelRequest, ReplyEvent, ReplyListener, StopReason,
//! };
//!
//! /// Model that always replies the same.
//! struct Parrot(ModelInfo);
//!
//! impl Model for Parrot {
//!     fn info(&self) -> &ModelInfo {
//!         &self.0
//!     }
//!
//!     fn answer<'a>(
//!         &'a self,
//!         _request: &'a ModelRequest,
//!         listener: ReplyListener<'a>,
//!     ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
//!         listener(ReplyEvent::Text("Hello!"));
//!         let reply = ModelReply { text: "Hello!".to_owned(), ..ModelReply::new(self.0.name.clone()) };
//!         ready(Ok(reply)).boxed()
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let parrot = Parrot(ModelInfo::new("birds/parrot".parse()?));
//! let mut request = ModelRequest { system: "Be brief.".to_owned(), ..ModelRequest::default() };
//! request.messages.push(ChatMessage::user("Who is there?"));
//! let reply = parrot.answer(&request, &|event| print!("{event:?}")).await?;
//! assert_eq!((reply.text.as_str(), reply.stop), ("Hello!", StopReason::EndOfTurn));
//! request.messages.push(reply.to_message());
//! # Ok(())
//! # }
//! ```

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use pegboard_json::{Malformed, RawJson};

mod error;
mod name;
mod reader;
mod usage;

pub use error::{ModelError, ModelErrorKind};
pub use name::{InvalidModelName, ModelName, ModelProviderName};
pub use reader::OutputReader;
pub use usage::{Pricing, TokenUsage};

/// A language model.
pub trait Model: Send + Sync + 'static {
    /// Returns static information about the model.
    fn info(&self) -> &ModelInfo;

    /// Sends a request. Dropping the future cancels it.
    ///
    /// The listener receives the reply as it is generated: the concatenated text events are the text of the
    /// reply, even if it is delivered whole. A [`ReplyEvent::Restarted`] invalidates all previous events.
    fn answer<'a>(
        &'a self,
        request: &'a ModelRequest,
        listener: ReplyListener<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>>;
}

impl fmt::Debug for dyn Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({})", self.info().name)
    }
}

/// Callback for the events of a reply. It must not block.
pub type ReplyListener<'l> = &'l (dyn Fn(ReplyEvent<'_>) + Send + Sync);

/// Event of a streamed reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyEvent<'p> {
    /// Text of the reply.
    Text(&'p str),
    /// Thinking that precedes the reply.
    Thinking(&'p str),
    /// The request is retried, with this model or another one: previous events are void.
    Restarted,
}

/// Static information about a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// Name of the model.
    pub name: ModelName,
    /// Size of the context window in tokens, if configured.
    pub context_window: Option<u64>,
    /// Token prices, if configured.
    pub pricing: Option<Pricing>,
}

impl ModelInfo {
    /// Creates the information about a model with just a name.
    pub fn new(name: ModelName) -> Self {
        Self { name, context_window: None, pricing: None }
    }
}

/// Request to a model. Fields left open use the model's default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRequest {
    /// System prompt; may be empty.
    pub system: String,
    /// Conversation so far. Tool results directly follow the message that requested the calls.
    pub messages: Vec<ChatMessage>,
    /// Tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// Constraint on tool calls.
    pub tool_choice: ToolChoice,
    /// Delivery of the reply.
    pub delivery: Delivery,
    /// Maximum number of output tokens, thinking included.
    pub max_output_tokens: Option<u32>,
    /// Sampling temperature. Omitted for models that think first and do not accept it.
    pub temperature: Option<f64>,
    /// Nucleus sampling probability. Omitted for models that think first and do not accept it.
    pub top_p: Option<f64>,
    /// Number of candidate tokens, for models that support it. Omitted for models that think first.
    pub top_k: Option<u32>,
    /// Stop sequences.
    pub stop: Vec<String>,
    /// Reasoning effort.
    pub reasoning: Option<ReasoningEffort>,
    /// Prompt caching, for providers that require an explicit request.
    pub caching: PromptCaching,
}

impl ModelRequest {
    /// Estimates the number of tokens of the request: a quarter of its bytes, and a flat number for every
    /// image.
    ///
    /// Tokenizers differ, so use it only to guess if a request fits.
    pub fn estimated_tokens(&self) -> u64 {
        let tools = self.tools.iter().map(ToolSpec::estimated_bytes);
        let messages = self.messages.iter().map(ChatMessage::estimated_bytes);
        let n_bytes = self.system.len() + tools.chain(messages).sum::<usize>();
        (n_bytes as u64).div_ceil(4)
    }
}

/// Delivery of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Streamed, as it is generated.
    #[default]
    Streamed,
    /// As a whole, once complete.
    Whole,
}

/// Constraint on tool calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No tool calls.
    None,
    /// At least one tool call.
    Required,
    /// A call of this tool.
    Tool(String),
}

/// Reasoning effort of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReasoningEffort {
    /// Minimal effort.
    Minimal,
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
    /// Token budget for thinking, for models that take a number. Others use the nearest level.
    Tokens(u32),
}

/// Prompt caching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptCaching {
    /// Provider default.
    #[default]
    Automatic,
    /// Requested explicitly, at a small extra cost for the first request.
    Requested,
}

/// Description of a tool for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolSpec {
    /// Name of the tool.
    pub name: String,
    /// Description of the tool.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: RawJson,
}

impl ToolSpec {
    fn estimated_bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.input_schema.as_bytes().len()
    }
}

/// Message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChatMessage {
    /// User message.
    User(Vec<ContentPart>),
    /// Reply of the model.
    Assistant(AssistantTurn),
    /// Results of all tool calls of the previous reply.
    ToolResults(Vec<ToolResult>),
}

impl ChatMessage {
    /// Creates a user message from text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(vec![ContentPart::Text(text.into())])
    }

    fn estimated_bytes(&self) -> usize {
        match self {
            Self::User(parts) => parts.iter().map(ContentPart::estimated_bytes).sum(),
            Self::Assistant(turn) => {
                let calls = turn.tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
                turn.text.len() + calls.sum::<usize>()
            }
            Self::ToolResults(results) => results.iter().map(|result| result.text.len()).sum(),
        }
    }
}

/// Part of a user message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentPart {
    /// Text.
    Text(String),
    /// Image.
    Image {
        /// MIME type: `image/png`.
        media_type: String,
        /// Image data in base64.
        base64: String,
    },
}

impl ContentPart {
    /// Size that an image counts for: about 1500 tokens, regardless of its bytes.
    const IMAGE_BYTES: usize = 6_000;

    fn estimated_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Image { .. } => Self::IMAGE_BYTES,
        }
    }
}

/// Reply of a model as a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssistantTurn {
    /// Text of the reply.
    pub text: String,
    /// Requested tool calls.
    pub tool_calls: Vec<ToolCall>,
    /// Thinking, readable only by the same model.
    pub thinking: Option<ThinkingBlocks>,
}

/// Opaque thinking blocks, to be returned to the model that produced them. No other model can read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinkingBlocks {
    /// Model that produced them.
    pub model: ModelName,
    /// JSON list of blocks, as received.
    pub blocks: RawJson,
}

/// Tool call requested by a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// Id that the result refers to.
    pub id: String,
    /// Tool name as used by the model.
    pub name: String,
    /// Arguments as the model wrote them, which may be invalid JSON.
    pub arguments: String,
}

impl ToolCall {
    /// Parses the arguments. Empty arguments are an empty object.
    ///
    /// ```
    /// use pegboard_core::model::ToolCall;
    ///
    /// let call = |arguments: &str| ToolCall { id: "1".into(), name: "add".into(), arguments: arguments.into() };
    /// assert_eq!(call(" {\"a\": 1} ").json().unwrap().as_str(), "{\"a\": 1}");
    /// assert_eq!(call("").json().unwrap().as_str(), "{}");
    /// assert!(call("{\"a\": ").json().is_err());
    /// ```
    pub fn json(&self) -> Result<RawJson, Malformed> {
        if self.arguments.trim().is_empty() {
            return Ok(RawJson::empty_object());
        }
        RawJson::parse(Bytes::copy_from_slice(self.arguments.as_bytes()))
    }

    /// Returns the arguments as an object, for the conversation history: anything else is quoted in one,
    /// since providers accept only objects.
    ///
    /// ```
    /// use pegboard_core::model::ToolCall;
    ///
    /// let call = ToolCall { id: "1".into(), name: "add".into(), arguments: "{\"a\": ".into() };
    /// assert_eq!(call.object().as_str(), r#"{"malformed":"{\"a\": "}"#);
    /// ```
    pub fn object(&self) -> RawJson {
        match self.json() {
            Ok(json) if json.is_object() => json,
            Ok(_) | Err(_) => RawJson::empty_object().with("malformed", &RawJson::of(&self.arguments)),
        }
    }
}

/// Result of a tool call, for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// Id of the call.
    pub call_id: String,
    /// Text for the model.
    pub text: String,
    /// Success or failure.
    pub status: ToolResultStatus,
}

/// Status of a tool result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolResultStatus {
    /// The tool succeeded.
    #[default]
    Done,
    /// The tool failed; the text explains it.
    Failed,
}

/// Reply of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// Model that replied, if several were tried.
    pub model: ModelName,
    /// Text of the reply.
    pub text: String,
    /// Requested tool calls, in order. Ids are unique.
    pub tool_calls: Vec<ToolCall>,
    /// Thinking, readable only by the same model.
    pub thinking: Option<ThinkingBlocks>,
    /// Stop reason.
    pub stop: StopReason,
    /// Token usage, if the provider reported it.
    pub usage: Option<TokenUsage>,
    /// Cost in US dollars, if the prices are known.
    pub cost_usd: Option<f64>,
}

impl ModelReply {
    /// Creates an empty reply.
    pub fn new(model: ModelName) -> Self {
        Self {
            model,
            text: String::new(),
            tool_calls: Vec::new(),
            thinking: None,
            stop: StopReason::EndOfTurn,
            usage: None,
            cost_usd: None,
        }
    }

    /// Returns the reply as a message of the conversation.
    pub fn to_message(&self) -> ChatMessage {
        ChatMessage::Assistant(AssistantTurn {
            text: self.text.clone(),
            tool_calls: self.tool_calls.clone(),
            thinking: self.thinking.clone(),
        })
    }
}

/// Reason why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The reply is complete.
    EndOfTurn,
    /// The model requested tool calls.
    ToolCalls,
    /// The token limit was reached; the reply is truncated.
    MaxTokens,
    /// A stop sequence was generated.
    StopText,
    /// The model refused to continue.
    Refused,
}
