//! Settings of MCP servers.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hmac_sha256::Hash as Sha256;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::fingerprint::Fingerprint;
use crate::id::ServerName;
use crate::provider::TransportKind;
use crate::secret::Secret;
use crate::settings::messages::MessageLimits;

/// Reason why server settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMcpServer {
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

/// Protocol era that a server is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EraChoice {
    /// The era of the client that uses the server, where the server supports it.
    #[default]
    Auto,
    /// The session era, until revision 2025-11-25.
    Session,
    /// The stateless era, from revision 2026-07-28.
    Stateless,
}

/// Roots that a server gets outside of calls while several clients share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RootsChoice {
    /// None. During a call of one client it gets those of the caller.
    #[default]
    Caller,
    /// The roots of all clients with sessions that use it.
    Union,
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
    /// Roots that a shared instance gets.
    pub roots: RootsChoice,
    /// Protocol era.
    pub era: EraChoice,
    /// Health probe.
    pub health_probe: HealthProbe,
    /// Timeout of the start.
    pub start_timeout: Duration,
    /// Timeout of the first start; `None` for the default.
    pub first_start_timeout: Option<Duration>,
    /// Idle time after which the server is stopped until the next call.
    pub idle_stop: Option<Duration>,
    /// Interval of health probes while idle.
    pub health_interval: Option<Duration>,
    /// Restart policy after a failure while idle.
    pub restart: RestartPolicy,
    /// Limits of its messages.
    pub message_limits: MessageLimits,
}

impl ResolvedMcpServer {
    /// Default timeout of the start.
    pub const START_TIMEOUT: Duration = Duration::from_mins(1);

    /// Default timeout of the first start of a package runner, which may have to install the server.
    pub const INSTALL_TIMEOUT: Duration = Duration::from_mins(5);

    /// Default interval of health probes.
    pub const HEALTH_INTERVAL: Duration = Duration::from_mins(1);

    /// Creates a server with default settings.
    pub fn new(name: ServerName, target: McpTarget) -> Self {
        Self {
            name,
            target,
            is_enabled: true,
            is_shared: true,
            roots: RootsChoice::default(),
            era: EraChoice::default(),
            health_probe: HealthProbe::default(),
            start_timeout: Self::START_TIMEOUT,
            first_start_timeout: None,
            idle_stop: None,
            health_interval: Some(Self::HEALTH_INTERVAL),
            restart: RestartPolicy::default(),
            message_limits: MessageLimits::default(),
        }
    }

    /// Returns the timeout of the first start: that of every start, or more for a package runner.
    pub fn effective_first_start_timeout(&self) -> Duration {
        self.first_start_timeout.unwrap_or_else(|| match self.package_runner() {
            Some(_) => self.start_timeout.max(Self::INSTALL_TIMEOUT),
            None => self.start_timeout,
        })
    }

    /// Returns the program if it is a package runner, which may install the server when it starts.
    pub fn package_runner(&self) -> Option<&ServerProgram> {
        match &self.target {
            McpTarget::Program(program) => program.package_runner().is_some().then_some(program),
            McpTarget::WebSocket(_) | McpTarget::Http(_) | McpTarget::Sse(_) | McpTarget::Embedded => None,
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
#[derive(Clone, PartialEq, Eq)]
pub struct ServerProgram {
    /// The program: a name to find in `PATH`, or a path relative to `cwd`.
    pub command: String,
    /// Arguments, passed without a shell.
    pub args: Vec<String>,
    /// Environment variables, in addition to the inherited ones.
    pub env: IndexMap<String, Secret>,
    /// Working directory; `None` for that of this process.
    pub cwd: Option<PathBuf>,
}

/// Omits secrets.
impl fmt::Debug for ServerProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerProgram").field("command", &self.command).finish_non_exhaustive()
    }
}

impl ServerProgram {
    /// Creates a program without arguments.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), args: Vec::new(), env: IndexMap::new(), cwd: None }
    }
}

/// URL of a remote server, with its headers.
#[derive(Clone, Default)]
pub struct RemoteEndpoint {
    /// URL of the server.
    pub url: String,
    /// HTTP headers sent with every request.
    pub headers: IndexMap<String, Secret>,
}

/// Omits secrets.
impl fmt::Debug for RemoteEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteEndpoint").finish_non_exhaustive()
    }
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
        fingerprint.add(Sha256::hash(secret.reveal().as_bytes()));
    }
}
