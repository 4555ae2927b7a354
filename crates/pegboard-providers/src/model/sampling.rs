//! The model of the client that made the call, which it lends by MCP's sampling.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use indexmap::IndexMap;
use pegboard_core::client::{AskError, Client, Lending, Question};
use pegboard_core::model::{
    Listener, Message, Model, ModelError, ModelErrorKind, ModelFacts, ModelReply, ModelRequest, Part, Piece,
    StopReason, ToolCall, ToolChoice, ToolResult, Turn, Verdict,
};
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use serde::Serialize;
use serde_json::{Value, json};

use super::with_own_ids;

/// What the question is asked under.
const QUESTION: &str = "model";
/// How many tokens a model may write if nobody says: the protocol wants a number.
const MAX_TOKENS: u32 = 4_096;
/// A model that stands for whichever the client likes.
const ANY: &str = "default";
/// How much of what a client says is told.
const MAX_SAID_BYTES: usize = 500;

/// The model of a client. A person may look at what it is asked and at what it replies, so it can take long.
///
/// What the model is called is a hint to the client, unless it is called `default`. The client counts no tokens, and
/// its reply comes as a whole.
///
/// ```
/// use std::sync::Arc;
///
/// use pegboard_core::client::NoClient;
/// use pegboard_core::model::{Message, Model, ModelFacts, ModelRequest};
/// use pegboard_providers::model::Sampling;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let facts = ModelFacts::new("client/default".parse().unwrap());
/// let model = Sampling::new(facts, Arc::new(NoClient));
/// let request = ModelRequest { messages: vec![Message::user("Hello?")], ..ModelRequest::default() };
/// let error = model.answer(&request, &|_| {}).await.unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "model 'client/default' refuses the request: the client that made the call lends no model. Change what it is \
///      asked, or the model"
/// );
/// # }
/// ```
pub struct Sampling {
    facts: ModelFacts,
    client: Arc<dyn Client>,
}

impl Sampling {
    /// The model of a client.
    pub fn new(facts: ModelFacts, client: Arc<dyn Client>) -> Self {
        Self { facts, client }
    }

    async fn ask(&self, request: &ModelRequest, listener: Listener<'_>) -> Result<ModelReply, ModelError> {
        let needs_tools = !request.tools.is_empty()
            || request.messages.iter().any(|message| matches!(message, Message::ToolResults(_)));
        let lending = self.client.lends();
        match lending {
            Lending::Nothing => {
                return Err(
                    self.error(ModelErrorKind::Refused, "the client that made the call lends no model")
                );
            }
            Lending::Text if needs_tools => {
                let reason = "the client that made the call lends a model without tools: it does not declare \
                              sampling.tools";
                return Err(self.error(ModelErrorKind::Refused, reason));
            }
            Lending::Text | Lending::Tools => {}
        }
        let question = Question {
            method: "sampling/createMessage".to_owned(),
            params: params(&self.facts, request, lending),
        };
        let answers = self.client.ask(IndexMap::from([(QUESTION.to_owned(), question)])).await;
        let answers = answers.map_err(|error| self.unanswered(&error))?;
        let answer =
            answers.get(QUESTION).ok_or_else(|| self.garbage("the client answered something else"))?;
        let reply = self.read(answer)?;
        if !reply.text.is_empty() {
            listener(Piece::Text(&reply.text));
        }
        Ok(reply)
    }

    fn read(&self, answer: &RawJson) -> Result<ModelReply, ModelError> {
        let content = answer.get("content").ok_or_else(|| self.garbage("its answer has no content"))?;
        let blocks: Vec<RawJson> =
            if content.is_object() { vec![content] } else { content.items().collect() };
        let mut reply = ModelReply::new(self.facts.name.clone());
        for block in &blocks {
            let text = |name: &str| {
                let value = block.get(name);
                value.as_ref().and_then(RawJson::text).map(std::borrow::Cow::into_owned).unwrap_or_default()
            };
            match text("type").as_str() {
                "text" => reply.text.push_str(&text("text")),
                "tool_use" if text("name").is_empty() => {
                    return Err(self.garbage("it wants a tool called without saying which"));
                }
                "tool_use" => {
                    let input = block.get("input").unwrap_or_else(RawJson::empty_object);
                    let arguments = input.as_str().to_owned();
                    reply.tool_calls.push(ToolCall { id: text("id"), name: text("name"), arguments });
                }
                // Images and sounds are nothing that a conversation goes on with.
                _ => {}
            }
        }
        with_own_ids(&mut reply);
        let stop = answer.get("stopReason");
        let stop = stop.as_ref().and_then(RawJson::text);
        reply.stop = match stop.as_deref() {
            Some("maxTokens") => StopReason::MaxTokens,
            Some("stopSequence") => StopReason::StopText,
            Some("refusal") => StopReason::Refused,
            _ if !reply.tool_calls.is_empty() => StopReason::ToolCalls,
            _ => StopReason::EndOfTurn,
        };
        Ok(reply)
    }

    fn unanswered(&self, error: &AskError) -> ModelError {
        let kind = match error {
            AskError::Nobody | AskError::Refused(_) => ModelErrorKind::Refused,
            AskError::TimedOut(limit) => ModelErrorKind::TimedOut { limit: *limit },
            AskError::Gone => ModelErrorKind::Unreachable,
        };
        self.error(kind, &clipped(&error.to_string(), MAX_SAID_BYTES))
    }

    fn garbage(&self, reason: &str) -> ModelError {
        self.error(ModelErrorKind::Garbage, reason)
    }

    fn error(&self, kind: ModelErrorKind, reason: &str) -> ModelError {
        ModelError::new(self.facts.name.clone(), kind, reason)
    }
}

impl Model for Sampling {
    fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    fn answer<'a>(
        &'a self,
        request: &'a ModelRequest,
        listener: Listener<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        self.ask(request, listener).boxed()
    }
}

impl fmt::Debug for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sampling({})", self.facts.name)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'r> {
    messages: Vec<WireMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_preferences: Option<Value>,
    #[serde(skip_serializing_if = "str::is_empty")]
    system_prompt: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    max_tokens: u32,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop_sequences: &'r [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
}

#[derive(Serialize)]
struct WireMessage {
    role: &'static str,
    content: RawJson,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'r> {
    name: &'r str,
    description: &'r str,
    input_schema: &'r RawJson,
}

fn params(facts: &ModelFacts, request: &ModelRequest, lending: Lending) -> RawJson {
    let model = facts.name.model();
    RawJson::of(&Params {
        messages: request.messages.iter().flat_map(|said| messages(said, lending)).collect(),
        model_preferences: (model != ANY).then(|| json!({"hints": [{"name": model}]})),
        system_prompt: &request.system,
        temperature: request.temperature,
        max_tokens: request.max_output_tokens.unwrap_or(MAX_TOKENS),
        stop_sequences: &request.stop,
        tools: tools(request),
        tool_choice: tool_choice(request),
    })
}

/// The tools that the model may use: of one that it must use there is no other way to say it than to offer no other.
fn tools(request: &ModelRequest) -> Vec<Tool<'_>> {
    let is_offered = |name: &str| match &request.tool_choice {
        ToolChoice::Tool(only) => only == name,
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => true,
    };
    let tools = request.tools.iter().filter(|offer| is_offered(&offer.name));
    tools
        .map(|offer| Tool {
            name: &offer.name,
            description: &offer.description,
            input_schema: &offer.input_schema,
        })
        .collect()
}

fn tool_choice(request: &ModelRequest) -> Option<Value> {
    if request.tools.is_empty() {
        return None;
    }
    match request.tool_choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!({"mode": "none"})),
        ToolChoice::Required | ToolChoice::Tool(_) => Some(json!({"mode": "required"})),
    }
}

/// A message; one with nothing in it is left out. Clients that know no tools know no lists of blocks either, so that
/// each block is a message for them.
fn messages(message: &Message, lending: Lending) -> Vec<WireMessage> {
    let (role, mut blocks): (_, Vec<RawJson>) = match message {
        Message::User(parts) => ("user", parts.iter().map(part).collect()),
        Message::Assistant(turn) => ("assistant", assistant(turn)),
        Message::ToolResults(results) => ("user", results.iter().map(tool_result).collect()),
    };
    if lending == Lending::Tools && blocks.len() > 1 {
        blocks = vec![RawJson::of(&blocks)];
    }
    blocks.into_iter().map(|content| WireMessage { role, content }).collect()
}

fn part(part: &Part) -> RawJson {
    RawJson::of(&match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::Image { media_type, base64 } => {
            json!({"type": "image", "data": base64, "mimeType": media_type})
        }
    })
}

fn assistant(turn: &Turn) -> Vec<RawJson> {
    let text = (!turn.text.is_empty()).then(|| RawJson::of(&json!({"type": "text", "text": turn.text})));
    let calls = turn.tool_calls.iter().map(|call| {
        RawJson::of(&json!({"type": "tool_use", "id": call.id, "name": call.name}))
            .with("input", &call.object())
    });
    text.into_iter().chain(calls).collect()
}

fn tool_result(result: &ToolResult) -> RawJson {
    let content = json!([{"type": "text", "text": result.text}]);
    let block = json!({"type": "tool_result", "toolUseId": result.call_id, "content": content});
    match result.verdict {
        Verdict::Done => RawJson::of(&block),
        Verdict::Failed => RawJson::of(&block).with("isError", &RawJson::of(&true)),
    }
}
