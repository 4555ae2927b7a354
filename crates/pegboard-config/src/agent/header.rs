//! The header of an agent file: what stands between its two lines of dashes.

use std::time::Duration;

use pegboard_core::duration::{HumanDuration, Ttl};
use pegboard_core::id::ToolName;
use pegboard_core::model::{Caching, Delivery, ModelName, Reasoning};
use pegboard_core::settings::agent::{AgentSettings, ReportFormat, ToolOutputSettings};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

use crate::path::Path;
use crate::read::Reader;
use crate::tree::{Entry, Node, Value};

/// What may be one text where a list is meant.
const LISTS: [&str; 3] = ["models", "tools", "agents"];

/// Settings that other programs have for agents and this one has not, and why.
const REFUSED: [(&str, &str, &str); 5] = [
    ("advisors", "nobody is asked before an agent begins", "name them under agents, so that it can ask them"),
    ("plugins", "no code is loaded into an agent", "give it a tool instead"),
    ("repeatPenalty", "requests to models do not carry it", "use temperature and topP"),
    (
        "toolsAllowed",
        "what may be used of a server is said where the server is",
        "set it in the configuration",
    ),
    (
        "toolsDenied",
        "what may be used of a server is said where the server is",
        "set it in the configuration",
    ),
];

/// The header as somebody writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Header {
    pub(super) description: String,
    pub(super) usage: String,
    pub(super) tool_name: Option<String>,
    pub(super) models: Vec<ModelName>,
    pub(super) tools: Vec<String>,
    /// The files of other agents; they are found through the tree, which knows their places.
    pub(super) agents: Vec<String>,
    pub(super) router: Router,
    pub(super) handoff: Option<String>,
    max_turns: u32,
    max_tool_calls_per_turn: usize,
    max_retries: u32,
    max_output_tokens: u32,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u32>,
    reasoning: Option<Effort>,
    reasoning_tokens: Option<u32>,
    caching: Keeping,
    cache: Option<Ttl>,
    llm_timeout: HumanDuration,
    tool_timeout: HumanDuration,
    tool_response_max_bytes: usize,
    tool_output: Reading,
    context_window: Option<u64>,
    stream: bool,
    pub(super) input: Input,
    pub(super) output: Output,
}

impl Default for Header {
    fn default() -> Self {
        let usual = AgentSettings::new(ToolName::new("agent").expect("it is a short word"));
        Self {
            description: String::new(),
            usage: String::new(),
            tool_name: None,
            models: Vec::new(),
            tools: Vec::new(),
            agents: Vec::new(),
            router: Router::default(),
            handoff: None,
            max_turns: usual.max_turns,
            max_tool_calls_per_turn: usual.max_tool_calls_per_turn,
            max_retries: usual.max_retries,
            max_output_tokens: usual.max_output_tokens,
            temperature: None,
            top_p: None,
            top_k: None,
            reasoning: None,
            reasoning_tokens: None,
            caching: Keeping::Full,
            cache: None,
            llm_timeout: usual.llm_timeout.into(),
            tool_timeout: usual.tool_timeout.into(),
            tool_response_max_bytes: usual.tool_response_max_bytes,
            tool_output: Reading::default(),
            context_window: None,
            stream: true,
            input: Input::default(),
            output: Output::default(),
        }
    }
}

/// Whom a session may be handed over to.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Router {
    /// The files of other agents.
    pub(super) destinations: Vec<String>,
}

/// How hard a model thinks.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
}

/// Whether a provider keeps the beginning of a conversation.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Keeping {
    None,
    Full,
}

/// How stored answers are read.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Reading {
    enabled: Option<bool>,
    max_chunks: Option<usize>,
    overlap_percent: Option<u8>,
    avg_line_bytes_threshold: Option<usize>,
    models: Vec<ModelName>,
}

/// What an agent is asked with.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Input {
    pub(super) format: Asked,
    pub(super) schema: Option<Json>,
    pub(super) schema_ref: Option<String>,
}

/// The format that an agent is asked in.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Asked {
    #[default]
    Text,
    Json,
}

/// What an agent answers with.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct Output {
    #[serde(deserialize_with = "report_format")]
    pub(super) format: Option<ReportFormat>,
    pub(super) schema: Option<Json>,
    pub(super) schema_ref: Option<String>,
}

fn report_format<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ReportFormat>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    word.map(|word| word.parse().map_err(serde::de::Error::custom)).transpose()
}

impl Header {
    /// Reads a header, and tells all that is wrong with it by itself.
    pub(super) fn read(reader: &mut Reader<'_>, root: &Node) -> Option<Self> {
        let way = Path::default();
        let Some(entries) = root.entries() else {
            let message = format!("a header is an object of settings, not {}", root.kind());
            reader.error(root.span, &way, message, None);
            return None;
        };
        let mut kept = Vec::new();
        for entry in entries {
            match REFUSED.iter().find(|(key, ..)| entry.key == *key) {
                Some((key, why, instead)) => {
                    let message = format!("'{key}' is not supported: {why}");
                    reader.error(entry.key_span, &way.key(key), message, Some((*instead).to_owned()));
                }
                None => kept.push(as_list(entry)),
            }
        }
        let root = Node { value: Value::Map(kept), ..root.clone() };
        let header = reader.read::<Self>(&root, &way, &[])?;
        header.check(reader, &root);
        Some(header)
    }

    /// The settings of the header alone: other files are left open.
    pub(super) fn settings(self, name: ToolName) -> AgentSettings {
        let effort = self.reasoning.and_then(|effort| match effort {
            Effort::None => None,
            Effort::Minimal => Some(Reasoning::Minimal),
            Effort::Low => Some(Reasoning::Low),
            Effort::Medium => Some(Reasoning::Medium),
            Effort::High => Some(Reasoning::High),
        });
        AgentSettings {
            description: self.description,
            usage: self.usage,
            models: self.models,
            tools: self.tools,
            max_turns: self.max_turns,
            max_tool_calls_per_turn: self.max_tool_calls_per_turn,
            max_retries: self.max_retries,
            max_output_tokens: self.max_output_tokens,
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
            reasoning: self.reasoning_tokens.filter(|n| *n > 0).map(Reasoning::Tokens).or(effort),
            caching: match self.caching {
                Keeping::None => Caching::Automatic,
                Keeping::Full => Caching::Requested,
            },
            cache: self.cache,
            llm_timeout: self.llm_timeout.into(),
            tool_timeout: self.tool_timeout.into(),
            tool_response_max_bytes: self.tool_response_max_bytes,
            tool_output: ToolOutputSettings {
                is_enabled: self.tool_output.enabled,
                max_chunks: self.tool_output.max_chunks,
                overlap_percent: self.tool_output.overlap_percent,
                avg_line_bytes_threshold: self.tool_output.avg_line_bytes_threshold,
                models: self.tool_output.models,
            },
            context_window: self.context_window,
            delivery: if self.stream { Delivery::Streamed } else { Delivery::Whole },
            ..AgentSettings::new(name)
        }
    }

    fn check(&self, reader: &mut Reader<'_>, root: &Node) {
        let mut check = Checks { reader, root };
        if self.models.is_empty() && root.get("models").is_none_or(|models| is_empty_list(&models.value)) {
            let help = "write models: [PROVIDER/model], with a provider of the configuration".to_owned();
            check.error(&["models"], "the agent has no model", Some(help));
        }
        check.at_least_one("maxTurns", u64::from(self.max_turns));
        check.at_least_one("maxToolCallsPerTurn", self.max_tool_calls_per_turn as u64);
        check.at_least_one("maxOutputTokens", u64::from(self.max_output_tokens));
        check.at_least_one("toolResponseMaxBytes", self.tool_response_max_bytes as u64);
        check.at_least_one("topK", self.top_k.map_or(1, u64::from));
        check.at_least_one("contextWindow", self.context_window.unwrap_or(1));
        check.between("temperature", self.temperature, 2.0);
        check.between("topP", self.top_p, 1.0);
        for (key, limit) in [("llmTimeout", self.llm_timeout), ("toolTimeout", self.tool_timeout)] {
            if Duration::from(limit).is_zero() {
                check.error(&[key], "nobody is waited for without an end", Some("give a time".to_owned()));
            }
        }
        if self.tool_output.max_chunks == Some(0) {
            check.error(&["toolOutput", "maxChunks"], "expected a number from 1 on, not 0", None);
        }
        if let Some(percent) = self.tool_output.overlap_percent.filter(|percent| *percent > 50) {
            let message = format!("expected a number from 0 to 50, not {percent}");
            check.error(&["toolOutput", "overlapPercent"], &message, None);
        }
        if self.reasoning.is_some() && self.reasoning_tokens.is_some() {
            let help = Some("take it away, or reasoning".to_owned());
            check.error(&["reasoningTokens"], "how hard it thinks is said twice", help);
        }
        if self.tools.iter().any(|tool| tool.trim().is_empty()) {
            check.error(&["tools"], "a tool without a name", Some("name a server or a tool".to_owned()));
        }
    }
}

/// Checks of single settings, told where they were written.
struct Checks<'c, 'r> {
    reader: &'c mut Reader<'r>,
    root: &'c Node,
}

impl Checks<'_, '_> {
    fn at_least_one(&mut self, key: &str, number: u64) {
        if number == 0 {
            self.error(&[key], "expected a number from 1 on, not 0", None);
        }
    }

    fn between(&mut self, key: &str, number: Option<f64>, most: f64) {
        if let Some(number) = number.filter(|number| !(0.0..=most).contains(number)) {
            self.error(&[key], &format!("expected a number from 0 to {most}, not {number}"), None);
        }
    }

    fn error(&mut self, keys: &[&str], message: &str, help: Option<String>) {
        let (mut found, mut way) = (self.root, Path::default());
        for key in keys {
            found = found.get(key).unwrap_or(found);
            way = way.key(key);
        }
        self.reader.error(found.span, &way, message, help);
    }
}

fn is_empty_list(value: &Value) -> bool {
    matches!(value, Value::Null) || matches!(value, Value::List(items) if items.is_empty())
}

/// An entry whose text is a list of one, where lists are meant. One with nothing in it is not there.
fn as_list(entry: &Entry) -> Entry {
    let mut entry = entry.clone();
    if LISTS.contains(&entry.key.as_str()) {
        match &entry.value.value {
            Value::Text(_) => entry.value = Node::new(entry.value.span, Value::List(vec![entry.value])),
            Value::Null => entry.value.value = Value::List(Vec::new()),
            Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {}
        }
    }
    entry
}
