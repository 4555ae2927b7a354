//! Configuration as plain data, filled in by the configuration loader.

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
pub mod messages;
pub mod model;
pub mod openapi;
pub mod package_runner;
pub mod rest;
pub mod string_or_list;
pub mod telemetry;

/// Maximum number of threads that serve HTTP clients.
pub const MAX_THREADS: u16 = 256;

/// Defaults for all calls, unless a server or tool overrides them.
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
    /// Timeout of a tool call; 0 for none.
    pub tool_timeout: HumanDuration,
    /// Effect of progress notifications on the timeout.
    pub progress: ProgressRule,
    /// Timeout for a caller's answer to an input request.
    pub question_timeout: HumanDuration,
    /// Maximum size of an output in bytes. A value set here applies to every caller; by default only agents
    /// have a limit.
    pub tool_response_max_bytes: Option<usize>,
    /// Handling of outputs beyond the limit.
    pub tool_output: OutputSettings,
    /// Queues by name.
    pub queues: IndexMap<String, QueueSettings>,
    /// Automatic opening of toolboxes.
    pub auto_open: AutoOpen,
    /// Maximum size in bytes of the tool definitions that `open_toolbox` returns. A larger toolbox is summarized: names
    /// and one line per tool, within the same size.
    #[schemars(range(min = 1_000, max = 10_000_000))]
    pub open_toolbox_max_bytes: usize,
    /// Default start policy of servers.
    pub start: StartRule,
    /// Maximum wait of a client's first list for servers that are still starting and have no last known tools;
    /// 0 for none. A server that hangs delays a list once.
    pub list_timeout: HumanDuration,
    /// Number of servers started concurrently; unlimited by default.
    pub mcp_init_concurrency: Option<usize>,
    /// Number of threads that serve HTTP clients; as many as there are cores by default. It takes effect when the
    /// gateway starts.
    #[schemars(range(min = 1, max = MAX_THREADS))]
    pub threads: Option<u16>,
    /// Sharing of one background gateway by the clients that start `pegboard serve --stdio`.
    pub daemon: DaemonMode,
    /// Time after which a background gateway without clients exits; 0 for never. It takes effect when the gateway
    /// starts.
    pub daemon_idle_timeout: HumanDuration,
    /// Maximum length of tool names shown to clients.
    #[schemars(range(min = 20, max = 200))]
    pub tool_name_max_length: usize,
    /// Writes arguments and outputs to the trace.
    pub trace_payloads: bool,
    /// Logs all messages exchanged with MCP servers.
    #[serde(rename = "traceMCP")]
    pub trace_mcp: bool,
    /// Default for argument validation. By default, servers validate what clients send to them, and Pegboard
    /// validates everything else.
    pub validate_arguments: Option<ValidatedBy>,
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
            open_toolbox_max_bytes: 20_000,
            start: StartRule::default(),
            list_timeout: Duration::from_secs(10).into(),
            mcp_init_concurrency: None,
            threads: None,
            daemon: DaemonMode::default(),
            daemon_idle_timeout: Duration::from_mins(10).into(),
            tool_name_max_length: 64,
            trace_payloads: false,
            trace_mcp: false,
            validate_arguments: None,
        }
    }
}

/// Sharing of one background gateway by clients over stdio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DaemonMode {
    /// Clients of one configuration share a gateway, which the first of them starts in the background.
    #[default]
    Auto,
    /// Every `serve` is a gateway of its own.
    Off,
}

/// Effect of progress notifications on the timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProgressRule {
    /// Maximum total run time if every progress notification resets the timeout; without it, notifications
    /// have no effect.
    pub extends_up_to: Option<HumanDuration>,
}

/// Automatic opening of toolboxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutoOpen {
    /// Never.
    Never,
    /// For stateless callers, which have no session.
    #[default]
    Stateless,
    /// Always.
    Always,
}

/// Start policy of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StartRule {
    /// Start on first use.
    #[default]
    Lazy,
    /// Start with the gateway.
    Eager,
}

/// Handling of outputs beyond the size limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OutputSettings {
    /// Stores large outputs; otherwise they are truncated.
    pub enabled: bool,
    /// Lifetime of a stored output.
    pub expires_after: HumanDuration,
    /// Maximum number of output tokens per session; outputs beyond it are stored.
    pub session_token_budget: Option<u64>,
    /// Maximum number of chunks passed to a model whole.
    pub max_chunks: usize,
    /// Overlap of consecutive chunks, in percent.
    #[schemars(range(max = 50))]
    pub overlap_percent: u8,
    /// Average line length above which a text is read in chunks rather than searched.
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

/// Settings of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct QueueSettings {
    /// Number of concurrent calls; unlimited by default.
    #[serde(alias = "concurrent", deserialize_with = "slots")]
    #[schemars(with = "Option<f64>", extend("exclusiveMinimum" = 0))]
    pub max_concurrency: Option<usize>,
    /// Maximum number of waiting calls; further calls are rejected.
    pub max_waiting: usize,
    /// Maximum waiting time.
    #[serde(alias = "waitTimeout")]
    pub wait_timeout_ms: Option<HumanDuration>,
    /// Timeout of calls in this queue.
    #[serde(alias = "defaultTimeout")]
    pub default_timeout_ms: Option<HumanDuration>,
    /// Shares the slots among all processes with the same store.
    pub shared: bool,
    /// Waiting time after which a call gains one level of priority; 0 for never.
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

/// Deserializes a number of slots: whole, and at least one.
fn slots<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let Some(number) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    if !number.is_finite() || number <= 0.0 {
        return Err(serde::de::Error::custom("a queue needs at least one slot: use a number above 0"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive, and the cast saturates"
    )]
    Ok(Some((number as usize).max(1)))
}

/// Settings of a server's tools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServerSettings {
    /// Allowed tools: names and globs. All if absent or empty.
    pub tools_allowed: Option<Vec<String>>,
    /// Allowed tools: names and globs. All if absent, none if empty.
    pub tool_filters: Option<Vec<String>>,
    /// Denied tools; takes precedence over all other filters.
    pub tools_denied: Vec<String>,
    /// Queue for calls.
    pub queue: Option<String>,
    /// Priority of calls, from −10 to 10.
    #[schemars(range(min = -10, max = 10))]
    pub priority: i8,
    /// Cache lifetime of results.
    pub cache: Option<Ttl>,
    /// Cache lifetime of results by tool.
    pub tools_cache: IndexMap<String, Ttl>,
    /// Scope of cached results.
    pub cache_scope: CacheScope,
    /// Timeout of a call; 0 for none.
    pub request_timeout_ms: Option<HumanDuration>,
    /// Maximum size of an output in bytes.
    pub tool_response_max_bytes: Option<usize>,
    /// Argument validation.
    pub validate_arguments: Option<ValidatedBy>,
    /// Treatment of an output that violates the output schema.
    pub output: OutputRule,
    /// Start policy, if different from the default.
    pub start: Option<StartRule>,
    /// Schemas that replace the tools' own.
    pub tool_schemas: IndexMap<String, Value>,
    /// Settings of single tools.
    pub tools: IndexMap<String, ToolSettings>,
}

/// Settings of one tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ToolSettings {
    /// Alternative names.
    pub aliases: Vec<String>,
    /// Queue for calls.
    pub queue: Option<String>,
    /// Priority of calls, from −10 to 10.
    #[schemars(range(min = -10, max = 10))]
    pub priority: Option<i8>,
    /// Cache lifetime of results.
    pub cache: Option<Ttl>,
    /// Timeout of a call; 0 for none.
    pub timeout: Option<HumanDuration>,
    /// Maximum size of an output in bytes.
    pub tool_response_max_bytes: Option<usize>,
    /// Argument validation.
    pub validate_arguments: Option<ValidatedBy>,
    /// Usage instructions for models.
    pub instructions: Option<String>,
    /// Additional search tags.
    pub tags: Vec<String>,
}

/// Scope of cached results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Private to a principal.
    #[default]
    Principal,
    /// Shared by all principals.
    Global,
    /// Shared within a tenant.
    Tenant,
    /// Private to a session.
    Session,
}

/// Party that validates arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ValidatedBy {
    /// The server: anything but an object is rejected, everything else is passed on.
    Server,
    /// Pegboard: arguments that violate the schema are rejected before the tool runs.
    Pegboard,
}

/// Treatment of an output that violates the tool's output schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputRule {
    /// Returned with a warning.
    #[default]
    Warn,
    /// Rejected.
    Strict,
}
