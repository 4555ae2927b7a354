//! What the operator may set, as plain data. Whoever reads a configuration fills this in.

use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::duration::{HumanDuration, Ttl};

pub mod agent;
pub mod cache;
pub mod gateway;
pub mod mcp;
pub mod model;
pub mod openapi;
pub mod rest;
pub mod telemetry;
mod words;

/// What holds for every call unless a server or a tool says otherwise.
///
/// ```
/// use pegboard_core::settings::RuntimeSettings;
///
/// let settings: RuntimeSettings = serde_json::from_str(
///     r#"{"toolTimeout": "30s", "queues": {"slow": {"concurrent": 2}}}"#,
/// ).unwrap();
/// assert_eq!(settings.queues["slow"].max_concurrency, Some(2));
/// assert_eq!(settings.tool_response_max_bytes, None);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RuntimeSettings {
    /// How long a tool may run; 0 for as long as it wants.
    pub tool_timeout: HumanDuration,
    /// What a progress notice does to a tool's time.
    pub progress: ProgressRule,
    /// How long a caller may take to answer a tool's question.
    pub question_timeout: HumanDuration,
    /// How many bytes of an answer a caller is handed. What is set here holds for every caller; otherwise only
    /// agents have a cap.
    pub tool_response_max_bytes: Option<usize>,
    /// What becomes of answers that are too large.
    pub tool_output: OutputSettings,
    /// The queues there are, by name.
    pub queues: IndexMap<String, QueueSettings>,
    /// When a toolbox opens by itself.
    pub auto_open: AutoOpen,
    /// When servers are started that do not say so themselves.
    pub start: StartRule,
    /// How many servers are started at once when many are to be started; without it, all.
    pub mcp_init_concurrency: Option<usize>,
    /// How long the names that clients see may be.
    #[schemars(range(min = 20, max = 200))]
    pub tool_name_max_length: usize,
    /// Whether what tools are given and answer is written to the trace.
    pub trace_payloads: bool,
    /// Whether everything that goes to MCP servers and comes from them is written to the log.
    #[serde(rename = "traceMCP")]
    pub trace_mcp: bool,
    /// Who judges arguments, where neither a server nor a tool says so. Without it, servers judge what clients send to
    /// them, and Pegboard judges everything else.
    pub validate_arguments: Option<Judge>,
}

impl Default for RuntimeSettings {
    fn default() -> Self {
        Self {
            tool_timeout: Duration::from_mins(5).into(),
            progress: ProgressRule::default(),
            question_timeout: Duration::from_mins(5).into(),
            tool_response_max_bytes: None,
            tool_output: OutputSettings::default(),
            queues: IndexMap::new(),
            auto_open: AutoOpen::default(),
            start: StartRule::default(),
            mcp_init_concurrency: None,
            tool_name_max_length: 64,
            trace_payloads: false,
            trace_mcp: false,
            validate_arguments: None,
        }
    }
}

/// What a progress notice does to a tool's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProgressRule {
    /// Up to how long a tool may run in all if every notice gives it its whole time again; without it, a notice
    /// changes nothing.
    pub extends_up_to: Option<HumanDuration>,
}

/// When a toolbox opens by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutoOpen {
    /// Never.
    Never,
    /// For callers that have no session to remember it.
    #[default]
    Stateless,
    /// Always.
    Always,
}

/// When a server is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StartRule {
    /// When somebody uses it.
    #[default]
    Lazy,
    /// With everything else.
    Eager,
}

/// What becomes of answers that are too large.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OutputSettings {
    /// Whether they are stored; otherwise they are cut.
    pub enabled: bool,
    /// How long a stored one is kept.
    pub expires_after: HumanDuration,
    /// How many tokens of answers one session may be handed; more are stored.
    pub session_token_budget: Option<u64>,
    /// How many chunks may be given to a model whole.
    pub max_chunks: usize,
    /// How much of a chunk the next one repeats, in percent.
    #[schemars(range(max = 50))]
    pub overlap_percent: u8,
    /// From which average length of a line on a text is read in chunks rather than searched.
    pub avg_line_bytes_threshold: usize,
}

impl Default for OutputSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            expires_after: Duration::from_hours(24).into(),
            session_token_budget: None,
            max_chunks: 1,
            overlap_percent: 10,
            avg_line_bytes_threshold: 1_000,
        }
    }
}

/// How a queue behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct QueueSettings {
    /// How many calls run at once; without it, as many as come.
    #[serde(alias = "concurrent", deserialize_with = "slots")]
    #[schemars(with = "Option<f64>", range(min = 0))]
    pub max_concurrency: Option<usize>,
    /// How many may wait; more are refused at once.
    pub max_waiting: usize,
    /// How long one may wait.
    #[serde(alias = "waitTimeout")]
    pub wait_timeout_ms: Option<HumanDuration>,
    /// How long a call in this queue may run.
    #[serde(alias = "defaultTimeout")]
    pub default_timeout_ms: Option<HumanDuration>,
    /// Whether its slots are shared by all processes that have the same store.
    pub shared: bool,
    /// After how long a call that waits counts as one priority higher; 0 for never.
    pub ageing: HumanDuration,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            max_concurrency: None,
            max_waiting: 10_000,
            wait_timeout_ms: None,
            default_timeout_ms: None,
            shared: false,
            ageing: Duration::from_secs(5).into(),
        }
    }
}

/// A number of slots: whole, and at least one.
fn slots<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let Some(number) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    if !number.is_finite() || number <= 0.0 {
        return Err(serde::de::Error::custom("a queue has at least one slot: give a number above 0"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is positive; huge is huge"
    )]
    Ok(Some((number as usize).max(1)))
}

/// What holds for the tools of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServerSettings {
    /// Which tools there are: names and globs. Without it, or empty, all.
    pub tools_allowed: Option<Vec<String>>,
    /// The same, but none if it is empty.
    pub tool_filters: Option<Vec<String>>,
    /// Which tools there are not, whatever else says otherwise.
    pub tools_denied: Vec<String>,
    /// The queue their calls go through.
    pub queue: Option<String>,
    /// How urgent their calls are, from −10 to 10.
    #[schemars(range(min = -10, max = 10))]
    pub priority: i8,
    /// How long their answers may be given again.
    pub cache: Option<Ttl>,
    /// The same, by tool.
    pub tools_cache: IndexMap<String, Ttl>,
    /// Who may be given an answer again.
    pub cache_scope: CacheScope,
    /// How long a tool may run; 0 for as long as it wants.
    pub request_timeout_ms: Option<HumanDuration>,
    /// How many bytes of an answer a caller is handed.
    pub tool_response_max_bytes: Option<usize>,
    /// Who judges arguments.
    pub validate_arguments: Option<Judge>,
    /// What an answer that breaks the output schema is.
    pub output: OutputRule,
    /// When it is started, if not like the others.
    pub start: Option<StartRule>,
    /// Schemas that stand in for the tools' own.
    pub tool_schemas: IndexMap<String, Value>,
    /// What holds for single tools.
    pub tools: IndexMap<String, ToolSettings>,
}

/// What holds for one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ToolSettings {
    /// Other names it can be called by.
    pub aliases: Vec<String>,
    /// The queue its calls go through.
    pub queue: Option<String>,
    /// How urgent its calls are, from −10 to 10.
    #[schemars(range(min = -10, max = 10))]
    pub priority: Option<i8>,
    /// How long its answers may be given again.
    pub cache: Option<Ttl>,
    /// How long it may run; 0 for as long as it wants.
    pub timeout: Option<HumanDuration>,
    /// How many bytes of an answer a caller is handed.
    pub tool_response_max_bytes: Option<usize>,
    /// Who judges arguments.
    pub validate_arguments: Option<Judge>,
    /// What a model should know about using it.
    pub instructions: Option<String>,
    /// Words to find it by, beside its own.
    pub tags: Vec<String>,
}

/// Who may be given an answer again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Everybody.
    #[default]
    Global,
    /// Whoever it was given to, and others of the same tenant.
    Tenant,
    /// The session it was given to.
    Session,
}

/// Who judges arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Judge {
    /// The server: what is no object is refused, everything else is passed on.
    Server,
    /// Pegboard: what breaks the schema is refused before anything runs.
    Pegboard,
}

/// What an answer that breaks its tool's output schema is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputRule {
    /// An answer with a warning.
    #[default]
    Warn,
    /// No answer.
    Strict,
}
