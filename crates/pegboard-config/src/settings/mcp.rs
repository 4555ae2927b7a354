//! Settings of MCP servers, as written.

use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use pegboard_core::duration::HumanDuration;
use pegboard_core::id::ServerName;
use pegboard_core::secret::Secret;
use pegboard_core::settings::mcp::{
    EraChoice, HealthProbe, McpTarget, RemoteEndpoint, ResolvedMcpServer, RestartPolicy, RootsChoice,
    ServerProgram,
};
use pegboard_core::settings::messages::MessageLimits;
use pegboard_core::settings::{CacheScope, ServerSettings, StartRule};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::configuration::ServerEntry;

/// Connection settings of an MCP server, as written.
///
/// ```
/// use pegboard_config::ServerEntry;
/// use pegboard_config::settings::McpServerSettings;
/// use pegboard_core::id::ServerName;
/// use pegboard_core::settings::ServerSettings;
/// use pegboard_core::settings::mcp::McpTarget;
///
/// let written: McpServerSettings =
///     serde_json::from_str(r#"{"command": ["npx", "-y"], "args": ["some-server"]}"#).unwrap();
/// let entry = written.resolve(ServerName::new("files").unwrap(), ServerSettings::default()).unwrap();
/// let ServerEntry::Mcp { connection, .. } = entry else { panic!("no MCP server") };
/// let McpTarget::Program(program) = &connection.target else { panic!("no program") };
/// assert_eq!((program.command.as_str(), program.args.len()), ("npx", 2));
/// ```
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct McpServerSettings {
    /// Transport; inferred from the other fields by default.
    #[serde(rename = "type", alias = "transport")]
    pub kind: Option<ServerType>,
    /// Command, or command and first arguments.
    #[serde(deserialize_with = "pegboard_core::settings::string_or_list::command")]
    #[schemars(schema_with = "pegboard_core::settings::string_or_list::schema")]
    pub command: Option<Vec<String>>,
    /// Further arguments of the command.
    pub args: Vec<String>,
    /// URL of a remote server.
    pub url: Option<String>,
    /// HTTP headers sent with every request.
    pub headers: IndexMap<String, Secret>,
    /// Environment variables of the process, in addition to the basic ones.
    #[serde(alias = "environment")]
    pub env: IndexMap<String, Secret>,
    /// File with further environment variables, one `NAME=value` per line. The configuration loader merges
    /// them into `env`, which takes precedence.
    pub env_file: Option<PathBuf>,
    /// Names of environment variables to pass through, if they are set. The configuration loader merges them
    /// into `env`.
    pub pass_env: Vec<String>,
    /// Enables the server; `true` by default.
    pub enabled: Option<bool>,
    /// Disables the server.
    pub disabled: Option<bool>,
    /// Working directory of the process.
    pub cwd: Option<PathBuf>,
    /// Shares one instance among all sessions; `true` by default.
    pub shared: Option<bool>,
    /// Roots that a shared instance gets outside of calls: none (`caller`, the default), or those of all clients with
    /// sessions that use it (`union`).
    pub roots: RootsChoice,
    /// Protocol era; `auto`, the era of the client that uses the server, by default.
    pub era: EraChoice,
    /// Health probe; `ping` by default.
    pub health_probe: HealthProbe,
    /// Timeout of the start; one minute by default.
    pub start_timeout: Option<HumanDuration>,
    /// Timeout of the first start after Pegboard itself has started; five minutes by default if the command is a
    /// package runner such as `npx`, `uvx` or `docker run`, which may have to install the server, or else that of
    /// every start.
    pub first_start_timeout: Option<HumanDuration>,
    /// Idle time after which the server is stopped until the next call; never by default.
    pub idle_stop: Option<HumanDuration>,
    /// Interval of health probes while idle; one minute by default, 0 for never.
    pub health_interval: Option<HumanDuration>,
    /// Limits of messages from the server.
    pub message_limits: MessageLimits,
}

impl McpServerSettings {
    /// Resolves the settings of a server and its tools, with defaults filled in.
    pub fn resolve(
        self,
        name: ServerName,
        mut tools: ServerSettings,
    ) -> Result<ServerEntry, IncompleteServer> {
        let target = match self.target_kind() {
            TargetKind::Program => McpTarget::Program(self.program(&name)?),
            TargetKind::WebSocket => McpTarget::WebSocket(self.endpoint(&name, "WebSocket")?),
            TargetKind::Http => McpTarget::Http(self.endpoint(&name, "HTTP")?),
            TargetKind::Sse => McpTarget::Sse(self.endpoint(&name, "SSE")?),
        };
        let connection = ResolvedMcpServer {
            is_enabled: self.enabled.unwrap_or(true) && !self.disabled.unwrap_or(false),
            is_shared: self.shared.unwrap_or(true),
            roots: self.roots,
            era: self.era,
            health_probe: self.health_probe,
            start_timeout: non_zero(self.start_timeout).unwrap_or(ResolvedMcpServer::START_TIMEOUT),
            first_start_timeout: non_zero(self.first_start_timeout),
            idle_stop: non_zero(self.idle_stop),
            health_interval: match self.health_interval {
                None => Some(ResolvedMcpServer::HEALTH_INTERVAL),
                given => non_zero(given),
            },
            message_limits: self.message_limits,
            restart: match tools.start {
                Some(StartRule::Lazy) => RestartPolicy::OnDemand,
                Some(StartRule::Eager) | None => RestartPolicy::Immediate,
            },
            ..ResolvedMcpServer::new(name, target)
        };
        let is_private = matches!(tools.cache_scope, CacheScope::Tenant | CacheScope::Session);
        if !connection.is_shared && !is_private {
            // Sessions with their own instances must not share results.
            tools.cache_scope = CacheScope::Session;
        }
        Ok(ServerEntry::Mcp { connection: Box::new(connection), tools: Box::new(tools) })
    }

    fn target_kind(&self) -> TargetKind {
        let by_url = || match self.url.as_deref() {
            Some(url) if url.starts_with("ws://") || url.starts_with("wss://") => TargetKind::WebSocket,
            Some(url) if url.contains("/sse") => TargetKind::Sse,
            Some(_) | None => TargetKind::Http,
        };
        match self.kind {
            Some(ServerType::WebSocket) => TargetKind::WebSocket,
            Some(ServerType::Http) => TargetKind::Http,
            Some(ServerType::Sse) => TargetKind::Sse,
            Some(ServerType::Remote) => by_url(),
            None if self.url.is_some() => by_url(),
            Some(ServerType::Stdio) | None => TargetKind::Program,
        }
    }

    fn program(&self, name: &ServerName) -> Result<ServerProgram, IncompleteServer> {
        let command_line = self.command.as_deref().unwrap_or_default();
        let [command, first @ ..] = command_line else {
            return Err(IncompleteServer::NoCommand { server: name.clone() });
        };
        if command.trim().is_empty() {
            return Err(IncompleteServer::NoCommand { server: name.clone() });
        }
        Ok(ServerProgram {
            command: command.clone(),
            args: first.iter().chain(&self.args).cloned().collect(),
            env: self.env.clone(),
            cwd: self.cwd.clone(),
        })
    }

    fn endpoint(&self, name: &ServerName, kind: &'static str) -> Result<RemoteEndpoint, IncompleteServer> {
        let url = self.url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let url = url.ok_or_else(|| IncompleteServer::NoUrl { kind, server: name.clone() })?;
        Ok(RemoteEndpoint { url: url.to_owned(), headers: self.headers.clone() })
    }
}

/// Reason why the settings of a server cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IncompleteServer {
    /// A stdio server has no command.
    #[error("Stdio MCP server '{server}' requires a string 'command'")]
    NoCommand {
        /// Name of the server.
        server: ServerName,
    },
    /// A remote server has no URL.
    #[error("{kind} MCP server '{server}' requires a 'url'")]
    NoUrl {
        /// Transport of the server.
        kind: &'static str,
        /// Name of the server.
        server: ServerName,
    },
}

/// Transport of a server, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ServerType {
    /// Child process, over its standard input and output.
    #[serde(alias = "local")]
    Stdio,
    /// WebSocket.
    #[serde(alias = "ws")]
    WebSocket,
    /// Streamable HTTP, with fallback to HTTP+SSE.
    #[serde(alias = "streamable-http", alias = "streamableHttp", alias = "streamable_http")]
    Http,
    /// HTTP+SSE.
    Sse,
    /// Remote server; the transport is inferred from the URL.
    Remote,
}

/// Transport after inference.
enum TargetKind {
    Program,
    WebSocket,
    Http,
    Sse,
}

/// Returns the duration; `None` if unset or zero.
fn non_zero(time: Option<HumanDuration>) -> Option<Duration> {
    time.map(Duration::from).filter(|time| !time.is_zero())
}
