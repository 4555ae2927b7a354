//! Agents, read from a file and validated.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::duration::Ttl;
use crate::id::ToolName;
use crate::model::{Delivery, ModelName, PromptCaching, ReasoningEffort};

/// Resolved settings of an agent. Only run-time variables such as `${DATETIME}` are left in its prompt.
///
/// ```
/// use pegboard_core::id::ToolName;
/// use pegboard_core::settings::agent::AgentSettings;
///
/// let agent = AgentSettings {
///     models: vec!["local/llama-4".parse()?],
///     prompt: "Answer in one sentence.".to_owned(),
///     ..AgentSettings::new(ToolName::new("terse")?)
/// };
/// assert_eq!((agent.max_turns, agent.max_output_tokens), (10, 4096));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSettings {
    /// Name of its tool, behind `agent__`.
    pub name: ToolName,
    /// Source file, which also identifies the agent.
    pub path: PathBuf,
    /// Description, which models choose by.
    pub description: String,
    /// Usage instructions for callers; may be empty.
    pub usage: String,
    /// Models in order: the first is used, the others are fallbacks.
    pub models: Vec<ModelName>,
    /// Tool selectors as written: servers, single tools, names of REST tools, `openapi:NAME`.
    pub tools: Vec<String>,
    /// Agents that it may call as tools.
    pub agents: Vec<ToolName>,
    /// Agents that it may hand its session over to.
    pub destinations: Vec<ToolName>,
    /// Agent that always continues with its answer.
    pub handoff: Option<ToolName>,
    /// Maximum number of turns per run.
    pub max_turns: u32,
    /// Maximum number of tool calls per turn.
    pub max_tool_calls_per_turn: usize,
    /// Maximum number of retries of a failed turn.
    pub max_retries: u32,
    /// Maximum number of output tokens per turn.
    pub max_output_tokens: u32,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling probability.
    pub top_p: Option<f64>,
    /// Number of candidate tokens.
    pub top_k: Option<u32>,
    /// Reasoning effort.
    pub reasoning: Option<ReasoningEffort>,
    /// Prompt caching.
    pub caching: PromptCaching,
    /// Cache lifetime of its answers.
    pub cache: Option<Ttl>,
    /// Timeout of a model request.
    pub llm_timeout: Duration,
    /// Timeout of a tool call.
    pub tool_timeout: Duration,
    /// Maximum size of a tool output in bytes; larger outputs are stored and read by handle.
    pub tool_response_max_bytes: usize,
    /// Reading of stored outputs.
    pub tool_output: AgentToolOutputSettings,
    /// Size of the context window in tokens, if the providers do not define it.
    pub context_window: Option<u64>,
    /// Delivery of replies.
    pub delivery: Delivery,
    /// Input of the agent.
    pub input: AgentInputSettings,
    /// Output of the agent.
    pub output: AgentOutputSettings,
    /// Prompt, with includes resolved.
    pub prompt: String,
}

impl AgentSettings {
    /// Creates an agent without prompt and models.
    pub fn new(name: ToolName) -> Self {
        Self {
            name,
            path: PathBuf::new(),
            description: String::new(),
            usage: String::new(),
            models: Vec::new(),
            tools: Vec::new(),
            agents: Vec::new(),
            destinations: Vec::new(),
            handoff: None,
            max_turns: 10,
            max_tool_calls_per_turn: 10,
            max_retries: 5,
            max_output_tokens: 4_096,
            temperature: None,
            top_p: None,
            top_k: None,
            reasoning: None,
            caching: PromptCaching::Requested,
            cache: None,
            llm_timeout: Duration::from_mins(10),
            tool_timeout: Duration::from_mins(5),
            tool_response_max_bytes: 12_288,
            tool_output: AgentToolOutputSettings::default(),
            context_window: None,
            delivery: Delivery::Streamed,
            input: AgentInputSettings::default(),
            output: AgentOutputSettings::default(),
            prompt: String::new(),
        }
    }
}

/// Reading of stored outputs by an agent. Fields left open use the global settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentToolOutputSettings {
    /// Stores large outputs; otherwise they are truncated.
    pub is_enabled: Option<bool>,
    /// Maximum number of chunks passed to a model whole.
    pub max_chunks: Option<usize>,
    /// Overlap of consecutive chunks, in percent.
    pub overlap_percent: Option<u8>,
    /// Average line length above which a text is read in chunks rather than searched.
    pub avg_line_bytes_threshold: Option<usize>,
    /// Models that read them; the agent's own by default.
    pub models: Vec<ModelName>,
}

/// Input of an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentInputSettings {
    /// Text or JSON.
    pub format: InputFormat,
    /// JSON Schema of the input, for JSON.
    pub schema: Option<Value>,
}

/// Format of an agent's input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputFormat {
    /// Free text.
    #[default]
    Text,
    /// An object that matches the schema.
    Json,
}

/// Output of an agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgentOutputSettings {
    /// Format; chosen by the caller if absent.
    pub format: Option<ReportFormat>,
    /// JSON Schema of the output, for JSON.
    pub schema: Option<Value>,
}

/// Format of an agent's output.
///
/// ```
/// use pegboard_core::settings::agent::ReportFormat;
///
/// assert_eq!("slack-block-kit".parse(), Ok(ReportFormat::SlackBlockKit));
/// assert_eq!(ReportFormat::SubAgent.as_str(), "sub-agent");
/// assert!("html".parse::<ReportFormat>().unwrap_err().to_string().contains("markdown"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportFormat {
    /// An object that matches the schema.
    Json,
    /// Markdown.
    Markdown,
    /// Slack messages with blocks.
    SlackBlockKit,
    /// Text for a terminal, with colours.
    Tty,
    /// Text for another program.
    Pipe,
    /// Plain text.
    Text,
    /// Free form, for a calling agent.
    SubAgent,
}

impl ReportFormat {
    /// All formats.
    pub const ALL: [Self; 7] =
        [Self::Json, Self::Markdown, Self::SlackBlockKit, Self::Tty, Self::Pipe, Self::Text, Self::SubAgent];

    /// Returns the format as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Markdown => "markdown",
            Self::SlackBlockKit => "slack-block-kit",
            Self::Tty => "tty",
            Self::Pipe => "pipe",
            Self::Text => "text",
            Self::SubAgent => "sub-agent",
        }
    }
}

impl std::str::FromStr for ReportFormat {
    type Err = InvalidReportFormat;

    fn from_str(name: &str) -> Result<Self, InvalidReportFormat> {
        let found = Self::ALL.into_iter().find(|format| format.as_str() == name);
        found.ok_or_else(|| InvalidReportFormat { name: name.chars().take(40).collect() })
    }
}

/// A text that is not a valid format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid format '{name}': expected one of {}", ReportFormat::ALL.map(ReportFormat::as_str).join(", "))]
pub struct InvalidReportFormat {
    name: String,
}
