//! Scripts of a scripted model.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A script: each request gets the first matching turn that is not used up.
///
/// ```
/// use pegboard_testkit::model_server::Script;
///
/// let script = Script::parse(r#"{"turns": [
///     {"act": {"refuse": {"status": 429, "headers": {"retry-after": "1"}, "message": "slow down"}}},
///     {"when": {"contains": "weather"}, "times": 0, "act": {"answer": {"text": "Rain.", "quirks": ["no-usage"]}}},
///     {"act": "hang"}
/// ]}"#).unwrap();
/// assert_eq!(script.turns.len(), 3);
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The turns.
    pub turns: Vec<ScriptTurn>,
}

impl Script {
    /// Creates a script of consecutive turns.
    pub fn of(acts: impl IntoIterator<Item = ScriptAction>) -> Self {
        Self {
            turns: acts
                .into_iter()
                .map(|act| ScriptTurn { when: TurnCondition::default(), times: 1, act })
                .collect(),
        }
    }

    /// Parses a script from JSON.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// A turn of a script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptTurn {
    /// Condition on requests; by default all match.
    #[serde(default)]
    pub when: TurnCondition,
    /// Number of uses; 0 is unlimited.
    #[serde(default = "once")]
    pub times: usize,
    /// The action.
    pub act: ScriptAction,
}

fn once() -> usize {
    1
}

/// Condition on requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TurnCondition {
    /// Matches requests for this model.
    pub model: Option<String>,
    /// Matches requests with this text in the last message.
    pub contains: Option<String>,
}

impl TurnCondition {
    fn matches(&self, body: &Value) -> bool {
        let last = body["messages"].as_array().and_then(|messages| messages.last());
        let last = last.map(Value::to_string).unwrap_or_default();
        self.model.as_ref().is_none_or(|model| body["model"] == **model)
            && self.contains.as_ref().is_none_or(|text| last.contains(text))
    }
}

/// Response of a scripted model to a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScriptAction {
    /// Replies.
    Answer(ScriptedReply),
    /// Answers with an error status.
    Refuse(ScriptedError),
    /// Answers with success, and then reports an error: in the body, or in the middle of the stream.
    RefuseLate(ScriptedError),
    /// Sends an HTML page.
    Page,
    /// Sends JSON that is not a reply, as a body or as an event.
    Nonsense,
    /// Sends a body, or an event, that is not JSON.
    Garbage,
    /// Never starts to answer.
    Hang,
    /// Starts to reply, and never ends.
    Stall(ScriptedReply),
    /// Starts to reply, and cuts the connection in the middle.
    Cut(ScriptedReply),
    /// Ends a stream cleanly before the reply is complete. Without streaming, half of the body is missing.
    EndEarly(ScriptedReply),
    /// Replies with a pause between chunks.
    Slow(ScriptedReply),
    /// Replies with a huge body.
    Huge,
    /// Redirects to another URL.
    Redirect(String),
}

impl ScriptAction {
    /// Creates a text reply.
    pub fn text(text: &str) -> Self {
        Self::Answer(ScriptedReply::text(text))
    }

    /// Creates a reply with tool calls.
    pub fn calls(calls: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        Self::Answer(ScriptedReply {
            tool_calls: calls.into_iter().map(ScriptedCall::of).collect(),
            ..ScriptedReply::default()
        })
    }

    /// Creates an error response.
    pub fn refusal(status: u16, kind: &str, message: &str) -> Self {
        Self::Refuse(ScriptedError {
            status,
            kind: kind.to_owned(),
            message: message.to_owned(),
            headers: BTreeMap::new(),
        })
    }
}

/// A reply.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedReply {
    /// Reply text.
    pub text: String,
    /// Thinking text before the reply.
    pub thoughts: String,
    /// Requested tool calls.
    pub tool_calls: Vec<ScriptedCall>,
    /// Stop reason, in the API's terms; by default the matching one.
    pub stop: Option<String>,
    /// Reported token usage.
    pub usage: ScriptedUsage,
    /// Deviations from the API.
    pub quirks: Vec<Quirk>,
}

impl ScriptedReply {
    /// Creates a text reply.
    pub fn text(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    pub(super) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }
}

/// A tool call requested by the model.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Call id; generated by default.
    pub id: Option<String>,
    /// Tool name.
    pub name: String,
    /// Arguments; a string is sent verbatim, even if it is not JSON.
    #[serde(default)]
    pub arguments: Value,
}

impl ScriptedCall {
    fn of((name, arguments): (&str, Value)) -> Self {
        Self { id: None, name: name.to_owned(), arguments }
    }

    /// Returns the arguments as JSON text.
    pub(super) fn written(&self) -> String {
        match &self.arguments {
            Value::String(text) => text.clone(),
            Value::Null => "{}".to_owned(),
            arguments => arguments.to_string(),
        }
    }
}

/// Token usage of a reply.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedUsage {
    /// Uncached input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
}

impl Default for ScriptedUsage {
    fn default() -> Self {
        Self { input: 10, output: 5, cache_read: 0, cache_write: 0 }
    }
}

/// Deviations of a reply from the API. Those of chat completions were all seen in compatible servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quirk {
    /// Tool calls have no ids.
    NoIds,
    /// All tool calls have the same id.
    SameIds,
    /// All tool calls have the same index.
    SameIndex,
    /// Tool calls have no index.
    NoIndex,
    /// Tool arguments are an object instead of a string.
    ObjectArguments,
    /// Token usage is missing.
    NoUsage,
    /// The final event is missing.
    NoDone,
    /// The connection stays open after the last event.
    KeepsOpen,
    /// The stop reason is `stop` in spite of tool calls.
    StopsForCalls,
    /// The reply is not streamed, although the request asked for it.
    NotStreamed,
    /// The last chunk has `null` in place of choices.
    NullChoices,
    /// The text is a list of parts.
    ListContent,
    /// The text is a refusal: it arrives as `refusal` in place of `content`.
    RefusalField,
}

/// An error response.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedError {
    /// HTTP status.
    pub status: u16,
    /// Extra headers.
    pub headers: BTreeMap<String, String>,
    /// Error type, in the API's terms.
    pub kind: String,
    /// Error message.
    pub message: String,
}

/// A turn and its number of uses.
#[derive(Debug)]
pub(super) struct TurnProgress {
    turn: ScriptTurn,
    n_done: usize,
}

impl TurnProgress {
    pub(super) fn new(turn: ScriptTurn) -> Self {
        Self { turn, n_done: 0 }
    }

    /// Returns the action for a request, if the turn matches and is not used up.
    pub(super) fn take(&mut self, body: &Value) -> Option<ScriptAction> {
        let is_left = self.turn.times == 0 || self.n_done < self.turn.times;
        (is_left && self.turn.when.matches(body)).then(|| {
            self.n_done += 1;
            self.turn.act.clone()
        })
    }

    /// Returns `true` if the turn must be used again.
    pub(super) fn is_pending(&self) -> bool {
        self.n_done < self.turn.times
    }
}
