//! What a scripted model does, turn by turn.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// What a scripted model does: for every request the first turn that suits it and is not used up.
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
    pub turns: Vec<Turn>,
}

impl Script {
    /// A script whose turns follow one another.
    pub fn of(acts: impl IntoIterator<Item = Act>) -> Self {
        Self { turns: acts.into_iter().map(|act| Turn { when: When::default(), times: 1, act }).collect() }
    }

    /// A script as it is written in a file.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// One thing that a scripted model does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// Which requests it is for; without it, all.
    #[serde(default)]
    pub when: When,
    /// How often it does it; 0 for ever.
    #[serde(default = "once")]
    pub times: usize,
    /// What it does.
    pub act: Act,
}

fn once() -> usize {
    1
}

/// Which requests a turn is for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Those of this model.
    pub model: Option<String>,
    /// Those whose last message has this text in it.
    pub contains: Option<String>,
}

impl When {
    fn suits(&self, body: &Value) -> bool {
        let last = body["messages"].as_array().and_then(|messages| messages.last());
        let last = last.map(Value::to_string).unwrap_or_default();
        self.model.as_ref().is_none_or(|model| body["model"] == **model)
            && self.contains.as_ref().is_none_or(|text| last.contains(text))
    }
}

/// What a scripted model does with a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Act {
    /// It replies.
    Answer(Answer),
    /// It refuses.
    Refuse(Refusal),
    /// It claims success, and then says that there is none: in the answer, or in the middle of the stream.
    RefuseLate(Refusal),
    /// It sends a page for people.
    Page,
    /// It sends JSON that is no reply, as a whole or as an event.
    Nonsense,
    /// It sends an answer, or an event, that is no JSON at all.
    Garbage,
    /// It never begins to answer.
    Hang,
    /// It begins to reply, and never ends.
    Stall(Answer),
    /// It begins to reply, and hangs up in the middle.
    Cut(Answer),
    /// It ends a stream as if it were over, before it is. As a whole, half of the answer is missing.
    EndEarly(Answer),
    /// It replies with a pause between pieces.
    Slow(Answer),
    /// It replies with more than anybody reads.
    Huge,
    /// It sends whoever asks elsewhere.
    Redirect(String),
}

impl Act {
    /// It replies with a text.
    pub fn text(text: &str) -> Self {
        Self::Answer(Answer::text(text))
    }

    /// It wants tools called.
    pub fn calls(calls: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        Self::Answer(Answer { tool_calls: calls.into_iter().map(Call::of).collect(), ..Answer::default() })
    }

    /// It refuses with a status.
    pub fn refusal(status: u16, kind: &str, message: &str) -> Self {
        Self::Refuse(Refusal {
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
pub struct Answer {
    /// Its text.
    pub text: String,
    /// What the model thinks first.
    pub thoughts: String,
    /// The tools that it wants called.
    pub tool_calls: Vec<Call>,
    /// Why it stops, in the words of the interface; without it, what fits.
    pub stop: Option<String>,
    /// How many tokens it says that took.
    pub usage: Tokens,
    /// What is odd about it.
    pub quirks: Vec<Quirk>,
}

impl Answer {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }

    pub(super) fn has(&self, quirk: Quirk) -> bool {
        self.quirks.contains(&quirk)
    }
}

/// A tool that the model wants called.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Its id; without it, one is made up.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// The arguments; a text is sent as it is, whether it is JSON or not.
    #[serde(default)]
    pub arguments: Value,
}

impl Call {
    fn of((name, arguments): (&str, Value)) -> Self {
        Self { id: None, name: name.to_owned(), arguments }
    }

    /// The arguments as a model writes them.
    pub(super) fn written(&self) -> String {
        match &self.arguments {
            Value::String(text) => text.clone(),
            Value::Null => "{}".to_owned(),
            arguments => arguments.to_string(),
        }
    }
}

/// How many tokens a reply took.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tokens {
    /// Tokens that were read anew.
    pub input: u64,
    /// Tokens that were written.
    pub output: u64,
    /// Tokens that were kept from before.
    pub cache_read: u64,
    /// Tokens that are kept for later.
    pub cache_write: u64,
}

impl Default for Tokens {
    fn default() -> Self {
        Self { input: 10, output: 5, cache_read: 0, cache_write: 0 }
    }
}

/// What is odd about a reply. Those of chat completions were all seen in servers that claim to speak them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quirk {
    /// Calls of tools have no ids.
    NoIds,
    /// All calls of tools have the same id.
    SameIds,
    /// All calls of tools have the same number.
    SameIndex,
    /// Calls of tools have no number.
    NoIndex,
    /// The arguments of tools are an object instead of a text.
    ObjectArguments,
    /// Nobody counts tokens.
    NoUsage,
    /// The last event is missing.
    NoDone,
    /// It keeps the line open after the last event.
    KeepsOpen,
    /// It says that it stops, though it wants tools called.
    StopsForCalls,
    /// It replies as a whole, though it was asked for a stream.
    NotStreamed,
    /// The last piece has `null` where choices should be.
    NullChoices,
    /// Its text comes as a list of parts.
    ListContent,
}

/// A refusal.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Refusal {
    /// The status.
    pub status: u16,
    /// Headers beside the usual ones.
    pub headers: BTreeMap<String, String>,
    /// What the interface calls it.
    pub kind: String,
    /// What it says.
    pub message: String,
}

/// A turn, and how often it was had.
#[derive(Debug)]
pub(super) struct Progress {
    turn: Turn,
    n_done: usize,
}

impl Progress {
    pub(super) fn new(turn: Turn) -> Self {
        Self { turn, n_done: 0 }
    }

    /// What to do with a request, if the turn is for it.
    pub(super) fn take(&mut self, body: &Value) -> Option<Act> {
        let is_left = self.turn.times == 0 || self.n_done < self.turn.times;
        (is_left && self.turn.when.suits(body)).then(|| {
            self.n_done += 1;
            self.turn.act.clone()
        })
    }

    /// Whether it must be had more often.
    pub(super) fn is_waited_for(&self) -> bool {
        self.n_done < self.turn.times
    }
}
