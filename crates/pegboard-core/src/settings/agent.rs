//! An agent that was read from a file and checked: a prompt, the models that may follow it, and what bounds them.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use crate::duration::Ttl;
use crate::id::ToolName;
use crate::model::{Caching, Delivery, ModelName, Reasoning};

/// One agent, with nothing left open but what only a run can know: `${DATETIME}` and the like are still in its prompt.
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
    /// What its tool is called, after `agent__`.
    pub name: ToolName,
    /// The file it came from. No two agents have the same, so it is also what an agent is known by.
    pub path: PathBuf,
    /// What it is for. Models choose by it.
    pub description: String,
    /// How to use it, for whoever calls it; empty for nothing.
    pub usage: String,
    /// Its models: the first is asked, and each next one when those before it cannot answer.
    pub models: Vec<ModelName>,
    /// Its tools as they were written: servers, single tools, names of REST tools, `openapi:NAME`.
    pub tools: Vec<String>,
    /// The agents that it may call as tools.
    pub agents: Vec<ToolName>,
    /// The agents that it may hand its session over to.
    pub destinations: Vec<ToolName>,
    /// The agent that goes on with its answer, whatever it is.
    pub handoff: Option<ToolName>,
    /// How many times its model is asked in one run, at most.
    pub max_turns: u32,
    /// How many tools its model may call in one turn.
    pub max_tool_calls_per_turn: usize,
    /// How many times a turn is tried again that came to nothing.
    pub max_retries: u32,
    /// How many tokens its model may write in one turn.
    pub max_output_tokens: u32,
    /// How much chance there is in what its model writes.
    pub temperature: Option<f64>,
    /// From how much of what is likely its model chooses.
    pub top_p: Option<f64>,
    /// From how many tokens its model chooses.
    pub top_k: Option<u32>,
    /// How hard its model thinks before it replies.
    pub reasoning: Option<Reasoning>,
    /// Whether the provider of the model is asked to keep the beginning of the conversation.
    pub caching: Caching,
    /// How long its answer may be given again to the same question.
    pub cache: Option<Ttl>,
    /// How long its model may take to reply.
    pub llm_timeout: Duration,
    /// How long a tool may take that it calls.
    pub tool_timeout: Duration,
    /// How many bytes of a tool's answer it is handed; more are stored, and it reads them by a handle.
    pub tool_response_max_bytes: usize,
    /// How it reads answers that were stored.
    pub tool_output: ToolOutputSettings,
    /// How many tokens its models can read and write, where the providers do not say so.
    pub context_window: Option<u64>,
    /// How its model's replies come.
    pub delivery: Delivery,
    /// What it is asked with.
    pub input: InputSettings,
    /// What it answers with.
    pub output: ReportSettings,
    /// What it is told to do, with other files put in already.
    pub prompt: String,
}

impl AgentSettings {
    /// An agent that has a name, no prompt and no model yet.
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
            caching: Caching::Requested,
            cache: None,
            llm_timeout: Duration::from_mins(10),
            tool_timeout: Duration::from_mins(5),
            tool_response_max_bytes: 12_288,
            tool_output: ToolOutputSettings::default(),
            context_window: None,
            delivery: Delivery::Streamed,
            input: InputSettings::default(),
            output: ReportSettings::default(),
            prompt: String::new(),
        }
    }
}

/// How an agent reads answers that were stored. What it leaves open is as for everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolOutputSettings {
    /// Whether large answers are stored for it; otherwise they are cut.
    pub is_enabled: Option<bool>,
    /// How many chunks may be given to a model whole.
    pub max_chunks: Option<usize>,
    /// How much of a chunk the next one repeats, in percent.
    pub overlap_percent: Option<u8>,
    /// From which average length of a line on a text is read in chunks rather than searched.
    pub avg_line_bytes_threshold: Option<usize>,
    /// The models that read them; without any, the agent's own.
    pub models: Vec<ModelName>,
}

/// What an agent is asked with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputSettings {
    /// Text or JSON.
    pub format: InputFormat,
    /// The JSON Schema of what is asked, for JSON.
    pub schema: Option<Value>,
}

/// Whether an agent is asked with text or with JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InputFormat {
    /// A text, as a person would write it.
    #[default]
    Text,
    /// An object, as its schema says.
    Json,
}

/// What an agent answers with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportSettings {
    /// The format; without it, what suits whoever asks.
    pub format: Option<ReportFormat>,
    /// The JSON Schema of the answer, for JSON.
    pub schema: Option<Value>,
}

/// The format of an agent's answer.
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
    /// An object, as its schema says.
    Json,
    /// Markdown.
    Markdown,
    /// A list of messages with blocks, as Slack has them.
    SlackBlockKit,
    /// Text for a terminal, with colours.
    Tty,
    /// Text for another program.
    Pipe,
    /// Text without any marks.
    Text,
    /// Whatever serves the agent that asked.
    SubAgent,
}

impl ReportFormat {
    /// All there are.
    pub const ALL: [Self; 7] =
        [Self::Json, Self::Markdown, Self::SlackBlockKit, Self::Tty, Self::Pipe, Self::Text, Self::SubAgent];

    /// The word for it.
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

    fn from_str(word: &str) -> Result<Self, InvalidReportFormat> {
        let found = Self::ALL.into_iter().find(|format| format.as_str() == word);
        found.ok_or_else(|| InvalidReportFormat { word: word.chars().take(40).collect() })
    }
}

/// A word that is no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is none of {}", ReportFormat::ALL.map(ReportFormat::as_str).join(", "))]
pub struct InvalidReportFormat {
    word: String,
}
