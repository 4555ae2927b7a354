//! Settings of MCP servers: as written, and resolved.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::de;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{CacheScope, ServerSettings, StartRule};
use crate::duration::HumanDuration;
use crate::fingerprint::Fingerprint;
use crate::id::ServerName;
use crate::provider::TransportKind;

/// Configuration entry of an MCP server: connection and tool settings.
///
/// ```
/// use pegboard_core::settings::mcp::McpServerEntry;
///
/// let entry: McpServerEntry =
///     serde_json::from_str(r#"{"command": "some-server", "toolsDenied": ["delete"]}"#).unwrap();
/// assert_eq!(entry.connection.command.unwrap(), ["some-server"]);
/// assert_eq!(entry.tools.tools_denied, ["delete"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct McpServerEntry {
    /// Connection settings.
    pub connection: McpServerSettings,
    /// Tool settings.
    pub tools: ServerSettings,
}

impl McpServerEntry {
    /// Resolves the entry into connection and tool settings, with defaults filled in.
    pub fn normalise(
        self,
        name: ServerName,
    ) -> Result<(ResolvedMcpServer, ServerSettings), InvalidMcpServer> {
        let mut settings = self.connection.normalise(name)?;
        if self.tools.start == Some(StartRule::Lazy) {
            settings.restart = RestartPolicy::OnDemand;
        }
        let mut tools = self.tools;
        if !settings.is_shared && tools.cache_scope == CacheScope::Global {
            // Sessions with their own instances must not share results.
            tools.cache_scope = CacheScope::Session;
        }
        Ok((settings, tools))
    }
}

impl<'de> Deserialize<'de> for McpServerEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Map::<String, Value>::deserialize(deserializer)?;
        let (connection, tools): (Map<_, _>, Map<_, _>) =
            written.into_iter().partition(|(name, _)| McpServerSettings::FIELDS.contains(&name.as_str()));
        Ok(Self {
            connection: McpServerSettings::deserialize(Value::Object(connection))
                .map_err(de::Error::custom)?,
            tools: ServerSettings::deserialize(Value::Object(tools)).map_err(de::Error::custom)?,
        })
    }
}

/// Connection settings of an MCP server, as written.
///
/// ```
/// use pegboard_core::id::ServerName;
/// use pegboard_core::settings::mcp::{McpServerSettings, McpTarget};
///
/// let written: McpServerSettings =
///     serde_json::from_str(r#"{"command": ["npx", "-y"], "args": ["some-server"]}"#).unwrap();
/// let settings = written.normalise(ServerName::new("files").unwrap()).unwrap();
/// let McpTarget::Program(program) = &settings.target else { panic!("no program") };
/// assert_eq!((program.command.as_str(), program.args.len()), ("npx", 2));
/// ```
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct McpServerSettings {
    /// Transport; inferred from the other fields by default.
    #[serde(rename = "type", alias = "transport")]
    pub kind: Option<ServerType>,
    /// Command, or command and first arguments.
    #[serde(deserialize_with = "super::string_or_list::command")]
    #[schemars(schema_with = "super::string_or_list::schema")]
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
    /// Health probe; `ping` by default.
    pub health_probe: HealthProbe,
    /// Timeout of the start; one minute by default.
    pub start_timeout: Option<HumanDuration>,
    /// Idle time after which the server is stopped until the next call; never by default.
    pub idle_stop: Option<HumanDuration>,
    /// Interval of health probes while idle; one minute by default, 0 for never.
    pub health_interval: Option<HumanDuration>,
}

impl McpServerSettings {
    /// Names of the fields as written.
    pub const FIELDS: [&str; 18] = [
        "type",
        "command",
        "args",
        "url",
        "headers",
        "env",
        "environment",
        "envFile",
        "passEnv",
        "enabled",
        "disabled",
        "cwd",
        "shared",
        "healthProbe",
        "healthInterval",
        "startTimeout",
        "idleStop",
        "transport",
    ];

    /// Resolves the settings, with defaults filled in.
    pub fn normalise(self, name: ServerName) -> Result<ResolvedMcpServer, InvalidMcpServer> {
        let target = match self.target_kind() {
            TargetKind::Program => McpTarget::Program(self.program(&name)?),
            TargetKind::WebSocket => McpTarget::WebSocket(self.endpoint(&name, "WebSocket")?),
            TargetKind::Http => McpTarget::Http(self.endpoint(&name, "HTTP")?),
            TargetKind::Sse => McpTarget::Sse(self.endpoint(&name, "SSE")?),
        };
        Ok(ResolvedMcpServer {
            is_enabled: self.enabled.unwrap_or(true) && !self.disabled.unwrap_or(false),
            is_shared: self.shared.unwrap_or(true),
            health_probe: self.health_probe,
            start_timeout: non_zero(self.start_timeout).unwrap_or(ResolvedMcpServer::START_TIMEOUT),
            idle_stop: non_zero(self.idle_stop),
            health_interval: match self.health_interval {
                None => Some(ResolvedMcpServer::HEALTH_INTERVAL),
                given => non_zero(given),
            },
            ..ResolvedMcpServer::new(name, target)
        })
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

    fn program(&self, name: &ServerName) -> Result<ServerProgram, InvalidMcpServer> {
        let command_line = self.command.as_deref().unwrap_or_default();
        let [command, first @ ..] = command_line else {
            return Err(InvalidMcpServer::NoCommand { server: name.clone() });
        };
        if command.trim().is_empty() {
            return Err(InvalidMcpServer::NoCommand { server: name.clone() });
        }
        Ok(ServerProgram {
            command: command.clone(),
            args: first.iter().chain(&self.args).cloned().collect(),
            env: self.env.clone(),
            cwd: self.cwd.clone(),
        })
    }

    fn endpoint(&self, name: &ServerName, kind: &'static str) -> Result<RemoteEndpoint, InvalidMcpServer> {
        let url = self.url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let url = url.ok_or_else(|| InvalidMcpServer::NoUrl { kind, server: name.clone() })?;
        Ok(RemoteEndpoint { url: url.to_owned(), headers: self.headers.clone() })
    }
}

/// Reason why server settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMcpServer {
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
    /// An embedded server cannot be created from settings.
    #[error("MCP server '{server}' is embedded in this program and cannot be created from settings")]
    Embedded {
        /// Name of the server.
        server: ServerName,
    },
    /// The URL is invalid.
    #[error("invalid server URL: {problem}. Use a URL such as {example}")]
    BadUrl {
        /// Cause.
        problem: String,
        /// Example of a valid URL.
        example: &'static str,
    },
    /// A header is invalid.
    #[error(
        "invalid header '{name}': its {part} has characters that are not allowed in a header. Check it for line \
         breaks"
    )]
    BadHeader {
        /// Name of the header.
        name: String,
        /// Invalid part of the header.
        part: &'static str,
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

/// Health probe of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HealthProbe {
    /// The `ping` request.
    #[default]
    Ping,
    /// The `tools/list` request.
    ListTools,
}

/// Resolved settings of an MCP server.
#[derive(Clone, Debug)]
pub struct ResolvedMcpServer {
    /// Name of the server.
    pub name: ServerName,
    /// Location of the server.
    pub target: McpTarget,
    /// `true` if the server is used.
    pub is_enabled: bool,
    /// `true` if all sessions share one instance.
    pub is_shared: bool,
    /// Health probe.
    pub health_probe: HealthProbe,
    /// Timeout of the start.
    pub start_timeout: Duration,
    /// Idle time after which the server is stopped until the next call.
    pub idle_stop: Option<Duration>,
    /// Interval of health probes while idle.
    pub health_interval: Option<Duration>,
    /// Restart policy after a failure while idle.
    pub restart: RestartPolicy,
}

impl ResolvedMcpServer {
    /// Default timeout of the start.
    pub const START_TIMEOUT: Duration = Duration::from_mins(1);

    /// Default interval of health probes.
    pub const HEALTH_INTERVAL: Duration = Duration::from_mins(1);

    /// Creates a server with default settings.
    pub fn new(name: ServerName, target: McpTarget) -> Self {
        Self {
            name,
            target,
            is_enabled: true,
            is_shared: true,
            health_probe: HealthProbe::default(),
            start_timeout: Self::START_TIMEOUT,
            idle_stop: None,
            health_interval: Some(Self::HEALTH_INTERVAL),
            restart: RestartPolicy::default(),
        }
    }

    /// Returns a hash of the settings that identify the server. Reveals no secrets.
    pub fn fingerprint(&self) -> String {
        let mut fingerprint = Fingerprint::default();
        match &self.target {
            McpTarget::Program(program) => {
                fingerprint.add("stdio");
                fingerprint.add(&program.command);
                fingerprint.add_all(&program.args);
                fingerprint
                    .add(program.cwd.as_deref().map_or(&[][..], |cwd| cwd.as_os_str().as_encoded_bytes()));
                add_secrets(&program.env, &mut fingerprint);
            }
            McpTarget::WebSocket(endpoint) => endpoint.add_to(&mut fingerprint, "websocket"),
            McpTarget::Http(endpoint) => endpoint.add_to(&mut fingerprint, "http"),
            McpTarget::Sse(endpoint) => endpoint.add_to(&mut fingerprint, "sse"),
            McpTarget::Embedded => {
                fingerprint.add("embedded");
                fingerprint.add(self.name.as_str());
            }
        }
        fingerprint.finish()
    }
}

/// Restart policy of a server that failed while idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Restart immediately.
    #[default]
    Immediate,
    /// Restart on next use.
    OnDemand,
}

/// Location of a server.
#[derive(Clone, Debug)]
pub enum McpTarget {
    /// Child process.
    Program(ServerProgram),
    /// Remote server over WebSocket.
    WebSocket(RemoteEndpoint),
    /// Remote server over streamable HTTP.
    Http(RemoteEndpoint),
    /// Remote server over HTTP+SSE.
    Sse(RemoteEndpoint),
    /// Embedded in this program.
    Embedded,
}

impl McpTarget {
    /// Returns the transport; `None` if embedded.
    pub fn transport(&self) -> Option<TransportKind> {
        match self {
            Self::Program(_) => Some(TransportKind::Stdio),
            Self::WebSocket(_) => Some(TransportKind::WebSocket),
            Self::Http(_) => Some(TransportKind::Http),
            Self::Sse(_) => Some(TransportKind::Sse),
            Self::Embedded => None,
        }
    }
}

/// Child process that runs a server.
#[derive(Clone, Debug)]
pub struct ServerProgram {
    /// Command to run.
    pub command: String,
    /// Arguments of the command.
    pub args: Vec<String>,
    /// Environment variables, in addition to the basic ones.
    pub env: IndexMap<String, Secret>,
    /// Working directory.
    pub cwd: Option<PathBuf>,
}

impl ServerProgram {
    /// Creates a program without arguments.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), args: Vec::new(), env: IndexMap::new(), cwd: None }
    }
}

/// URL of a remote server, with its headers.
#[derive(Clone, Debug, Default)]
pub struct RemoteEndpoint {
    /// URL of the server.
    pub url: String,
    /// HTTP headers sent with every request.
    pub headers: IndexMap<String, Secret>,
}

impl RemoteEndpoint {
    /// Creates an endpoint without headers.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), headers: IndexMap::new() }
    }

    fn add_to(&self, fingerprint: &mut Fingerprint, kind: &str) {
        fingerprint.add(kind);
        fingerprint.add(&self.url);
        add_secrets(&self.headers, fingerprint);
    }
}

/// Adds names and values, independent of their order.
fn add_secrets(secrets: &IndexMap<String, Secret>, fingerprint: &mut Fingerprint) {
    let sorted: BTreeMap<&String, &Secret> = secrets.iter().collect();
    for (name, secret) in sorted {
        fingerprint.add(name);
        fingerprint.add(Sha256::digest(secret.reveal()));
    }
}

/// A secret string. Cannot be printed, only revealed.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a string.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Returns the duration; `None` if unset or zero.
fn non_zero(time: Option<HumanDuration>) -> Option<Duration> {
    time.map(Duration::from).filter(|time| !time.is_zero())
}
