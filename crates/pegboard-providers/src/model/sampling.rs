//! The model of the calling client, used through MCP sampling.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use indexmap::IndexMap;
use pegboard_core::client::{AskError, Client, InputRequest, SamplingSupport};
use pegboard_core::model::{
    AssistantTurn, ChatMessage, ContentPart, Model, ModelError, ModelErrorKind, ModelInfo, ModelReply,
    ModelRequest, ReplyEvent, ReplyListener, StopReason, ToolCall, ToolChoice, ToolResult, ToolResultStatus,
};
use pegboard_core::text::clipped;
use pegboard_json::RawJson;
use serde::Serialize;
use serde_json::{Value, json};

use super::assign_call_ids;

/// Key of the sampling request.
const REQUEST_KEY: &str = "model";
/// Default token limit: the protocol requires one.
const DEFAULT_MAX_TOKENS: u32 = 4_096;
/// Model name that leaves the choice to the client.
const ANY_MODEL: &str = "default";
/// Maximum length of a quoted client error.
const MAX_MESSAGE_BYTES: usize = 500;

/// The model of a client. The client may ask its user to review requests and replies, so a reply can take
/// long.
///
/// The model name is a hint to the client, unless it is `default`. The client reports no token usage, and its
/// reply is not streamed.
///
/// ```
/// use std::sync::Arc;
///
/// use pegboard_core::client::NoClient;
/// use pegboard_core::model::{ChatMessage, Model, ModelInfo, ModelRequest};
/// use pegboard_providers::model::SamplingModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let info = ModelInfo::new("client/default".parse().unwrap());
/// let model = SamplingModel::new(info, Arc::new(NoClient));
/// let request = ModelRequest { messages: vec![ChatMessage::user("Hello?")], ..ModelRequest::default() };
/// let error = model.answer(&request, &|_| {}).await.unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "model 'client/default' rejected the request: the calling client does not support sampling. Change the \
///      request or the model"
/// );
/// # }
/// ```
pub struct SamplingModel {
    info: ModelInfo,
    client: Arc<dyn Client>,
}

impl SamplingModel {
    /// Creates a model that sends its requests to the client.
    pub fn new(info: ModelInfo, client: Arc<dyn Client>) -> Self {
        Self { info, client }
    }

    async fn query(
        &self,
        request: &ModelRequest,
        listener: ReplyListener<'_>,
    ) -> Result<ModelReply, ModelError> {
        let needs_tools = !request.tools.is_empty()
            || request.messages.iter().any(|message| matches!(message, ChatMessage::ToolResults(_)));
        let support = self.client.sampling_support();
        match support {
            SamplingSupport::None => {
                return Err(
                    self.error(ModelErrorKind::Refused, "the calling client does not support sampling")
                );
            }
            SamplingSupport::Text if needs_tools => {
                let reason = "the calling client does not support tools in sampling: it does not declare \
                              sampling.tools";
                return Err(self.error(ModelErrorKind::Refused, reason));
            }
            SamplingSupport::Text | SamplingSupport::Tools => {}
        }
        let question = InputRequest {
            method: "sampling/createMessage".to_owned(),
            params: params(&self.info, request, support),
        };
        let answers = self.client.ask(IndexMap::from([(REQUEST_KEY.to_owned(), question)])).await;
        let answers = answers.map_err(|error| self.request_error(&error))?;
        let answer = answers
            .get(REQUEST_KEY)
            .ok_or_else(|| self.malformed("the client did not answer the sampling request"))?;
        let reply = self.read_reply(answer)?;
        if !reply.text.is_empty() {
            listener(ReplyEvent::Text(&reply.text));
        }
        Ok(reply)
    }

    fn read_reply(&self, answer: &RawJson) -> Result<ModelReply, ModelError> {
        let content = answer.get("content").ok_or_else(|| self.malformed("the response has no content"))?;
        let blocks: Vec<RawJson> =
            if content.is_object() { vec![content] } else { content.items().collect() };
        let mut reply = ModelReply::new(self.info.name.clone());
        for block in &blocks {
            let text = |name: &str| {
                let value = block.get(name);
                value.as_ref().and_then(RawJson::text).map(std::borrow::Cow::into_owned).unwrap_or_default()
            };
            match text("type").as_str() {
                "text" => reply.text.push_str(&text("text")),
                "tool_use" if text("name").is_empty() => {
                    return Err(self.malformed("a tool call has no name"));
                }
                "tool_use" => {
                    let input = block.get("input").unwrap_or_else(RawJson::empty_object);
                    let arguments = input.as_str().to_owned();
                    reply.tool_calls.push(ToolCall { id: text("id"), name: text("name"), arguments });
                }
                // Images and audio are ignored.
                _ => {}
            }
        }
        assign_call_ids(&mut reply);
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

    fn request_error(&self, error: &AskError) -> ModelError {
        let kind = match error {
            AskError::Unsupported | AskError::Refused(_) => ModelErrorKind::Refused,
            AskError::TimedOut(limit) => ModelErrorKind::TimedOut { limit: *limit },
            AskError::Gone => ModelErrorKind::Unreachable,
        };
        self.error(kind, &clipped(&error.to_string(), MAX_MESSAGE_BYTES))
    }

    fn malformed(&self, reason: &str) -> ModelError {
        self.error(ModelErrorKind::MalformedReply, reason)
    }

    fn error(&self, kind: ModelErrorKind, reason: &str) -> ModelError {
        ModelError::new(self.info.name.clone(), kind, reason)
    }
}

impl Model for SamplingModel {
    fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn answer<'a>(
        &'a self,
        request: &'a ModelRequest,
        listener: ReplyListener<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        self.query(request, listener).boxed()
    }
}

impl fmt::Debug for SamplingModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SamplingModel({})", self.info.name)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SamplingParams<'r> {
    messages: Vec<SamplingMessage>,
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
    tools: Vec<SamplingTool<'r>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<Value>,
}

#[derive(Serialize)]
struct SamplingMessage {
    role: &'static str,
    content: RawJson,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SamplingTool<'r> {
    name: &'r str,
    description: &'r str,
    input_schema: &'r RawJson,
}

fn params(info: &ModelInfo, request: &ModelRequest, support: SamplingSupport) -> RawJson {
    let model = info.name.model();
    RawJson::of(&SamplingParams {
        messages: request.messages.iter().flat_map(|message| messages(message, support)).collect(),
        model_preferences: (model != ANY_MODEL).then(|| json!({"hints": [{"name": model}]})),
        system_prompt: &request.system,
        temperature: request.temperature,
        max_tokens: request.max_output_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
        stop_sequences: &request.stop,
        tools: tools(request),
        tool_choice: tool_choice(request),
    })
}

/// Returns the tools offered to the model. Sampling cannot force one tool, so a forced tool is offered alone.
fn tools(request: &ModelRequest) -> Vec<SamplingTool<'_>> {
    let is_offered = |name: &str| match &request.tool_choice {
        ToolChoice::Tool(only) => only == name,
        ToolChoice::Auto | ToolChoice::None | ToolChoice::Required => true,
    };
    let tools = request.tools.iter().filter(|spec| is_offered(&spec.name));
    tools
        .map(|spec| SamplingTool {
            name: &spec.name,
            description: &spec.description,
            input_schema: &spec.input_schema,
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

/// Converts a message; an empty one is dropped. Clients without tool support accept no lists of blocks, so
/// each block becomes a message.
fn messages(message: &ChatMessage, support: SamplingSupport) -> Vec<SamplingMessage> {
    let (role, mut blocks): (_, Vec<RawJson>) = match message {
        ChatMessage::User(parts) => ("user", parts.iter().map(part).collect()),
        ChatMessage::Assistant(turn) => ("assistant", assistant(turn)),
        ChatMessage::ToolResults(results) => ("user", results.iter().map(tool_result).collect()),
    };
    if support == SamplingSupport::Tools && blocks.len() > 1 {
        blocks = vec![RawJson::of(&blocks)];
    }
    blocks.into_iter().map(|content| SamplingMessage { role, content }).collect()
}

fn part(part: &ContentPart) -> RawJson {
    RawJson::of(&match part {
        ContentPart::Text(text) => json!({"type": "text", "text": text}),
        ContentPart::Image { media_type, base64 } => {
            json!({"type": "image", "data": base64, "mimeType": media_type})
        }
    })
}

fn assistant(turn: &AssistantTurn) -> Vec<RawJson> {
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
    match result.status {
        ToolResultStatus::Done => RawJson::of(&block),
        ToolResultStatus::Failed => RawJson::of(&block).with("isError", &RawJson::of(&true)),
    }
}
