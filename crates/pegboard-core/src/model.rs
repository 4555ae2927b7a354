//! Models behind one trait: what they are asked, what they reply, and how that is heard as it comes.
//!
//! A [`Model`] takes a whole [`ModelRequest`] and gives one [`ModelReply`]; it remembers nothing between two of them.
//! Whoever holds a conversation keeps the messages, adds [`ModelReply::to_message`] and the results of the tools that
//! the model wants called, and asks again.
//!
//! ```
//! use futures_util::future::{BoxFuture, FutureExt, ready};
//! use pegboard_core::model::{
//!     Message, Model, ModelError, ModelFacts, ModelReply, ModelRequest, Piece, Listener, StopReason,
//! };
//!
//! /// A model that has one thing to say.
//! struct Parrot(ModelFacts);
//!
//! impl Model for Parrot {
//!     fn facts(&self) -> &ModelFacts {
//!         &self.0
//!     }
//!
//!     fn answer<'a>(
//!         &'a self,
//!         _request: &'a ModelRequest,
//!         listener: Listener<'a>,
//!     ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
//!         listener(Piece::Text("Hello!"));
//!         let reply = ModelReply { text: "Hello!".to_owned(), ..ModelReply::new(self.0.name.clone()) };
//!         ready(Ok(reply)).boxed()
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let parrot = Parrot(ModelFacts::new("birds/parrot".parse()?));
//! let mut request = ModelRequest { system: "Be brief.".to_owned(), ..ModelRequest::default() };
//! request.messages.push(Message::user("Who is there?"));
//! let reply = parrot.answer(&request, &|piece| print!("{piece:?}")).await?;
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
pub use usage::{Pricing, Usage};

/// Something that can be asked to go on with a conversation.
pub trait Model: Send + Sync + 'static {
    /// What is known of it before it is asked.
    fn facts(&self) -> &ModelFacts;

    /// Goes on with a conversation. Dropping the future calls it off.
    ///
    /// The listener hears the reply as it comes: all pieces of text, put together, are the text of the reply, also
    /// where the reply comes as a whole. After a [`Piece::Again`] everything heard before does not count.
    fn answer<'a>(
        &'a self,
        request: &'a ModelRequest,
        listener: Listener<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>>;
}

impl fmt::Debug for dyn Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({})", self.facts().name)
    }
}

/// Whoever hears a reply as it comes. It must not wait.
pub type Listener<'l> = &'l (dyn Fn(Piece<'_>) + Send + Sync);

/// A piece of a reply, as it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'p> {
    /// Text of the reply.
    Text(&'p str),
    /// What the model thinks before it replies.
    Thought(&'p str),
    /// The request is made again, of this model or of another one: what was heard so far does not count.
    Again,
}

/// What is known of a model before it is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFacts {
    /// What it is called.
    pub name: ModelName,
    /// How many tokens it can read and write in one request, if somebody said so.
    pub context_window: Option<u64>,
    /// What its tokens cost, if somebody said so.
    pub pricing: Option<Pricing>,
}

impl ModelFacts {
    /// A model of which nothing but its name is known.
    pub fn new(name: ModelName) -> Self {
        Self { name, context_window: None, pricing: None }
    }
}

/// What a model is asked. What is left open is up to the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRequest {
    /// What it should know before everything else; empty for nothing.
    pub system: String,
    /// The conversation so far. The results of tools follow right after the message that wanted them called.
    pub messages: Vec<Message>,
    /// The tools that it may want called.
    pub tools: Vec<ToolOffer>,
    /// Whether it must want one of them called.
    pub tool_choice: ToolChoice,
    /// How the reply comes.
    pub delivery: Delivery,
    /// How many tokens it may write, its thoughts included.
    pub max_output_tokens: Option<u32>,
    /// How much chance there is in what it writes. Left out where the model thinks first and so takes none.
    pub temperature: Option<f64>,
    /// From how much of what is likely it chooses. Left out where the model thinks first and so takes none.
    pub top_p: Option<f64>,
    /// From how many tokens it chooses, for models that know this. Left out where the model thinks first.
    pub top_k: Option<u32>,
    /// Texts that end the reply.
    pub stop: Vec<String>,
    /// How hard it thinks before it replies.
    pub reasoning: Option<Reasoning>,
    /// Whether the beginning of the conversation is kept by the provider for the next request, where that has to be
    /// asked for.
    pub caching: Caching,
}

impl ModelRequest {
    /// About how many tokens the request has: a fourth of its bytes, and a flat number for every image.
    ///
    /// Models count differently, so it is good for a guess whether a request fits and for nothing else.
    pub fn estimated_tokens(&self) -> u64 {
        let tools = self.tools.iter().map(ToolOffer::estimated_bytes);
        let messages = self.messages.iter().map(Message::estimated_bytes);
        let n_bytes = self.system.len() + tools.chain(messages).sum::<usize>();
        (n_bytes as u64).div_ceil(4)
    }
}

/// How a reply comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Piece by piece, as the model writes it.
    #[default]
    Streamed,
    /// When all of it is there.
    Whole,
}

/// Whether a model must want a tool called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// It must not.
    None,
    /// It must, whichever it likes.
    Required,
    /// It must, and this one.
    Tool(String),
}

/// How hard a model thinks before it replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// More.
    Medium,
    /// Much.
    High,
    /// So many tokens of its own, for models that take a number. Others take the nearest word.
    Tokens(u32),
}

/// Whether the beginning of a conversation is kept for the next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// As the provider does by itself.
    #[default]
    Automatic,
    /// It is asked to keep it, which costs a little now and saves much later.
    Requested,
}

/// A tool that a model may want called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOffer {
    /// What the model calls it.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: RawJson,
}

impl ToolOffer {
    fn estimated_bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.input_schema.as_bytes().len()
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// What the model is told or asked.
    User(Vec<Part>),
    /// What the model said.
    Assistant(Turn),
    /// What came of the tools that it wanted called, all of them.
    ToolResults(Vec<ToolResult>),
}

impl Message {
    /// A text for the model.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User(vec![Part::Text(text.into())])
    }

    fn estimated_bytes(&self) -> usize {
        match self {
            Self::User(parts) => parts.iter().map(Part::estimated_bytes).sum(),
            Self::Assistant(turn) => {
                let calls = turn.tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
                turn.text.len() + calls.sum::<usize>()
            }
            Self::ToolResults(results) => results.iter().map(|result| result.text.len()).sum(),
        }
    }
}

/// A part of what a model is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A text.
    Text(String),
    /// An image.
    Image {
        /// What it is written in: `image/png`.
        media_type: String,
        /// Its bytes in base64.
        base64: String,
    },
}

impl Part {
    /// What an image counts as: about 1500 tokens, whatever its bytes are.
    const IMAGE_BYTES: usize = 6_000;

    fn estimated_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Image { .. } => Self::IMAGE_BYTES,
        }
    }
}

/// What a model said in one message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Its text.
    pub text: String,
    /// The tools that it wants called.
    pub tool_calls: Vec<ToolCall>,
    /// What it thought, for itself alone.
    pub thoughts: Option<Thoughts>,
}

/// What a model thought, as it must be given back to it. No other model can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thoughts {
    /// Whose they are.
    pub of: ModelName,
    /// A list of what it thought, as it came.
    pub blocks: RawJson,
}

/// A tool that a model wants called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    /// What the result is given back under.
    pub id: String,
    /// What the model calls the tool.
    pub name: String,
    /// The arguments as the model wrote them. Not every model writes JSON.
    pub arguments: String,
}

impl ToolCall {
    /// The arguments as JSON. A model that wrote nothing means an empty object.
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

    /// The arguments as an object, for a conversation that goes on: what was none is quoted in one, since providers
    /// refuse to read anything else.
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

/// What came of a tool that a model wanted called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: String,
    /// What the model reads.
    pub text: String,
    /// Whether the tool did what it was asked.
    pub verdict: Verdict,
}

/// Whether a tool did what it was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    #[default]
    Done,
    /// It did not; the text says why.
    Failed,
}

/// What a model replied.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReply {
    /// Who replied: of several models that were tried, the one that did.
    pub model: ModelName,
    /// Its text.
    pub text: String,
    /// The tools that it wants called, in its order. Each id is there once.
    pub tool_calls: Vec<ToolCall>,
    /// What it thought, for itself alone.
    pub thoughts: Option<Thoughts>,
    /// Why it stopped.
    pub stop: StopReason,
    /// How many tokens that took, if the provider said so.
    pub usage: Option<Usage>,
    /// What that cost in US dollars, if it is known what tokens cost.
    pub cost_usd: Option<f64>,
}

impl ModelReply {
    /// A reply that says nothing yet.
    pub fn new(model: ModelName) -> Self {
        Self {
            model,
            text: String::new(),
            tool_calls: Vec::new(),
            thoughts: None,
            stop: StopReason::EndOfTurn,
            usage: None,
            cost_usd: None,
        }
    }

    /// The reply as a message of the conversation that goes on.
    pub fn to_message(&self) -> Message {
        Message::Assistant(Turn {
            text: self.text.clone(),
            tool_calls: self.tool_calls.clone(),
            thoughts: self.thoughts.clone(),
        })
    }
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It has said what it had to say.
    EndOfTurn,
    /// It wants tools called.
    ToolCalls,
    /// It has written as much as it may; the reply is cut.
    MaxTokens,
    /// It wrote one of the texts that end a reply.
    StopText,
    /// It will not say more, on account of what it was asked.
    Refused,
}
