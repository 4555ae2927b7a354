//! The header of an agent file: the YAML between its two `---` lines.

use std::time::Duration;

use pegboard_core::duration::{HumanDuration, Ttl};
use pegboard_core::id::ToolName;
use pegboard_core::model::{Delivery, ModelName, PromptCaching, ReasoningEffort};
use pegboard_core::settings::agent::{AgentSettings, AgentToolOutputSettings, ReportFormat};
use serde::{Deserialize, Deserializer};
use serde_json::Value as Json;

use crate::path::KeyPath;
use crate::read::ConfigReader;
use crate::tree::{Node, TreeEntry, Value};

/// Settings that accept a single string in place of a list.
const LIST_SETTINGS: [&str; 3] = ["models", "tools", "agents"];

/// Settings of other programs that are not supported, with the reason and an alternative.
const UNSUPPORTED_SETTINGS: [(&str, &str, &str); 5] = [
    (
        "advisors",
        "advisors are not consulted before a run",
        "list them under agents, so that it can call them",
    ),
    ("plugins", "agents load no plugin code", "use a tool instead"),
    ("repeatPenalty", "model requests do not include it", "use temperature and topP"),
    (
        "toolsAllowed",
        "tool filters belong to the server's configuration",
        "set it on the server in the configuration",
    ),
    (
        "toolsDenied",
        "tool filters belong to the server's configuration",
        "set it on the server in the configuration",
    ),
];

/// The header as written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct AgentHeader {
    pub(super) description: String,
    pub(super) usage: String,
    pub(super) tool_name: Option<String>,
    pub(super) models: Vec<ModelName>,
    pub(super) tools: Vec<String>,
    /// Paths of other agent files. They are resolved through the tree, which knows their spans.
    pub(super) agents: Vec<String>,
    pub(super) router: RouterHeader,
    pub(super) handoff: Option<String>,
    max_turns: u32,
    max_tool_calls_per_turn: usize,
    max_retries: u32,
    max_output_tokens: u32,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<u32>,
    reasoning: Option<HeaderReasoning>,
    reasoning_tokens: Option<u32>,
    caching: HeaderCaching,
    cache: Option<Ttl>,
    llm_timeout: HumanDuration,
    tool_timeout: HumanDuration,
    tool_response_max_bytes: usize,
    tool_output: ToolOutputHeader,
    context_window: Option<u64>,
    stream: bool,
    pub(super) input: InputHeader,
    pub(super) output: OutputHeader,
}

impl Default for AgentHeader {
    fn default() -> Self {
        let defaults = AgentSettings::new(ToolName::new("agent").expect("the name is valid"));
        Self {
            description: String::new(),
            usage: String::new(),
            tool_name: None,
            models: Vec::new(),
            tools: Vec::new(),
            agents: Vec::new(),
            router: RouterHeader::default(),
            handoff: None,
            max_turns: defaults.max_turns,
            max_tool_calls_per_turn: defaults.max_tool_calls_per_turn,
            max_retries: defaults.max_retries,
            max_output_tokens: defaults.max_output_tokens,
            temperature: None,
            top_p: None,
            top_k: None,
            reasoning: None,
            reasoning_tokens: None,
            caching: HeaderCaching::Full,
            cache: None,
            llm_timeout: defaults.llm_timeout.into(),
            tool_timeout: defaults.tool_timeout.into(),
            tool_response_max_bytes: defaults.tool_response_max_bytes,
            tool_output: ToolOutputHeader::default(),
            context_window: None,
            stream: true,
            input: InputHeader::default(),
            output: OutputHeader::default(),
        }
    }
}

/// Agents that a session may be routed to.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RouterHeader {
    /// Paths of other agent files.
    pub(super) destinations: Vec<String>,
}

/// Reasoning effort of the model.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HeaderReasoning {
    None,
    Minimal,
    Low,
    Medium,
    High,
}

/// Prompt caching by the model provider.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum HeaderCaching {
    None,
    Full,
}

/// Settings for querying stored tool outputs.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct ToolOutputHeader {
    enabled: Option<bool>,
    max_chunks: Option<usize>,
    overlap_percent: Option<u8>,
    avg_line_bytes_threshold: Option<usize>,
    models: Vec<ModelName>,
}

/// Input of an agent.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct InputHeader {
    pub(super) format: HeaderInputFormat,
    pub(super) schema: Option<Json>,
    pub(super) schema_ref: Option<String>,
}

/// Input format of an agent.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum HeaderInputFormat {
    #[default]
    Text,
    Json,
}

/// Output of an agent.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct OutputHeader {
    #[serde(deserialize_with = "report_format")]
    pub(super) format: Option<ReportFormat>,
    pub(super) schema: Option<Json>,
    pub(super) schema_ref: Option<String>,
}

fn report_format<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ReportFormat>, D::Error> {
    let word = Option::<String>::deserialize(deserializer)?;
    word.map(|word| word.parse().map_err(serde::de::Error::custom)).transpose()
}

impl AgentHeader {
    /// Reads and validates a header on its own.
    pub(super) fn read(reader: &mut ConfigReader<'_>, root: &Node) -> Option<Self> {
        let key_path = KeyPath::default();
        let Some(entries) = root.entries() else {
            let message = format!("a header must be an object of settings, not {}", root.kind());
            reader.error(root.span, &key_path, message, None);
            return None;
        };
        let mut supported = Vec::new();
        for entry in entries {
            match UNSUPPORTED_SETTINGS.iter().find(|(key, ..)| entry.key == *key) {
                Some((key, why, instead)) => {
                    let message = format!("'{key}' is not supported: {why}");
                    reader.error(entry.key_span, &key_path.key(key), message, Some((*instead).to_owned()));
                }
                None => supported.push(wrap_in_list(entry)),
            }
        }
        let root = Node { value: Value::Map(supported), ..root.clone() };
        let header = reader.read::<Self>(&root, &key_path, &[])?;
        header.check(reader, &root);
        Some(header)
    }

    /// Converts the header to settings; everything that lives in other files is left at its default.
    pub(super) fn settings(self, name: ToolName) -> AgentSettings {
        let effort = self.reasoning.and_then(|effort| match effort {
            HeaderReasoning::None => None,
            HeaderReasoning::Minimal => Some(ReasoningEffort::Minimal),
            HeaderReasoning::Low => Some(ReasoningEffort::Low),
            HeaderReasoning::Medium => Some(ReasoningEffort::Medium),
            HeaderReasoning::High => Some(ReasoningEffort::High),
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
            reasoning: self.reasoning_tokens.filter(|n| *n > 0).map(ReasoningEffort::Tokens).or(effort),
            caching: match self.caching {
                HeaderCaching::None => PromptCaching::Automatic,
                HeaderCaching::Full => PromptCaching::Requested,
            },
            cache: self.cache,
            llm_timeout: self.llm_timeout.into(),
            tool_timeout: self.tool_timeout.into(),
            tool_response_max_bytes: self.tool_response_max_bytes,
            tool_output: AgentToolOutputSettings {
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

    fn check(&self, reader: &mut ConfigReader<'_>, root: &Node) {
        let mut check = HeaderChecks { reader, root };
        if self.models.is_empty() && root.get("models").is_none_or(|models| is_empty_list(&models.value)) {
            let help = "set models: [PROVIDER/model], with a provider from the configuration".to_owned();
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
                check.error(
                    &[key],
                    "a timeout must be greater than 0",
                    Some("set a duration such as 60s".to_owned()),
                );
            }
        }
        if self.tool_output.max_chunks == Some(0) {
            check.error(&["toolOutput", "maxChunks"], "expected a number of at least 1, not 0", None);
        }
        if let Some(percent) = self.tool_output.overlap_percent.filter(|percent| *percent > 50) {
            let message = format!("expected a number from 0 to 50, not {percent}");
            check.error(&["toolOutput", "overlapPercent"], &message, None);
        }
        if self.reasoning.is_some() && self.reasoning_tokens.is_some() {
            let help = Some("remove one of them".to_owned());
            check.error(&["reasoningTokens"], "reasoning and reasoningTokens are mutually exclusive", help);
        }
        if self.tools.iter().any(|tool| tool.trim().is_empty()) {
            check.error(&["tools"], "empty tool name", Some("use the name of a server or a tool".to_owned()));
        }
    }
}

/// Validation of single settings, reported at their spans.
struct HeaderChecks<'c, 'r> {
    reader: &'c mut ConfigReader<'r>,
    root: &'c Node,
}

impl HeaderChecks<'_, '_> {
    fn at_least_one(&mut self, key: &str, number: u64) {
        if number == 0 {
            self.error(&[key], "expected a number of at least 1, not 0", None);
        }
    }

    fn between(&mut self, key: &str, number: Option<f64>, most: f64) {
        if let Some(number) = number.filter(|number| !(0.0..=most).contains(number)) {
            self.error(&[key], &format!("expected a number from 0 to {most}, not {number}"), None);
        }
    }

    fn error(&mut self, keys: &[&str], message: &str, help: Option<String>) {
        let (mut found, mut key_path) = (self.root, KeyPath::default());
        for key in keys {
            found = found.get(key).unwrap_or(found);
            key_path = key_path.key(key);
        }
        self.reader.error(found.span, &key_path, message, help);
    }
}

fn is_empty_list(value: &Value) -> bool {
    matches!(value, Value::Null) || matches!(value, Value::List(items) if items.is_empty())
}

/// Wraps a string in a list where a list is expected, and turns null into an empty list.
fn wrap_in_list(entry: &TreeEntry) -> TreeEntry {
    let mut entry = entry.clone();
    if LIST_SETTINGS.contains(&entry.key.as_str()) {
        match &entry.value.value {
            Value::Text(_) => entry.value = Node::new(entry.value.span, Value::List(vec![entry.value])),
            Value::Null => entry.value.value = Value::List(Vec::new()),
            Value::Bool(_) | Value::Number(_) | Value::List(_) | Value::Map(_) => {}
        }
    }
    entry
}
