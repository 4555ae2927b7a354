//! How a person describes an MCP server, and what that comes to.

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
use crate::id::ServerName;
use crate::provider::Transport;

/// Everything that a person writes about one MCP server: how it is reached, and what holds for its tools.
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
    /// How it is reached.
    pub connection: McpServerSettings,
    /// What holds for its tools.
    pub tools: ServerSettings,
}

impl McpServerEntry {
    /// What the entry comes to: how the server is reached, with everything filled in, and what holds for its tools.
    pub fn normalise(self, name: ServerName) -> Result<(Settings, ServerSettings), InvalidSettings> {
        let mut settings = self.connection.normalise(name)?;
        if self.tools.start == Some(StartRule::Lazy) {
            settings.revival = Revival::WhenUsed;
        }
        let mut tools = self.tools;
        if !settings.is_shared && tools.cache_scope == CacheScope::Global {
            // What one session was answered is not for another, or they could share the server.
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

/// An MCP server as a person writes it down.
///
/// ```
/// use pegboard_core::id::ServerName;
/// use pegboard_core::settings::mcp::{McpServerSettings, Target};
///
/// let written: McpServerSettings =
///     serde_json::from_str(r#"{"command": ["npx", "-y"], "args": ["some-server"]}"#).unwrap();
/// let settings = written.normalise(ServerName::new("files").unwrap()).unwrap();
/// let Target::Program(program) = &settings.target else { panic!("no program") };
/// assert_eq!((program.command.as_str(), program.args.len()), ("npx", 2));
/// ```
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct McpServerSettings {
    /// How it is reached; without it, what else is there tells.
    #[serde(rename = "type", alias = "transport")]
    pub kind: Option<Kind>,
    /// The program, or the program and its first arguments.
    #[serde(deserialize_with = "super::words::command")]
    #[schemars(schema_with = "super::words::schema")]
    pub command: Option<Vec<String>>,
    /// The program's arguments, behind those of `command`.
    pub args: Vec<String>,
    /// The address.
    pub url: Option<String>,
    /// Headers of every request.
    pub headers: IndexMap<String, Secret>,
    /// The program's environment, beside what every program needs.
    #[serde(alias = "environment")]
    pub env: IndexMap<String, Secret>,
    /// A file with more of its environment, a `NAME=value` in each line. Whoever reads the configuration puts them
    /// into `env`, where those count that are there already.
    pub env_file: Option<PathBuf>,
    /// Names of variables that the program gets as they are, if they are set. Whoever reads the configuration puts
    /// them into `env`.
    pub pass_env: Vec<String>,
    /// Whether it is used; it is unless this says no.
    pub enabled: Option<bool>,
    /// Whether it is not used.
    pub disabled: Option<bool>,
    /// The folder that the program runs in.
    pub cwd: Option<PathBuf>,
    /// Whether all sessions share one; they do unless this says no.
    pub shared: Option<bool>,
    /// How it is found out whether it still answers; by `ping` unless this says otherwise.
    pub health_probe: HealthProbe,
    /// How long it may take to start; a minute unless this says otherwise.
    pub start_timeout: Option<HumanDuration>,
    /// After how long without a call it is stopped until the next one; without it, never.
    pub idle_stop: Option<HumanDuration>,
    /// How often one that nobody uses is asked whether it still answers: every minute unless this says otherwise, and 0
    /// for never.
    pub health_interval: Option<HumanDuration>,
}

impl McpServerSettings {
    /// What the settings are called where a person writes them.
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

    /// What the settings come to, with everything filled in that was left open.
    pub fn normalise(self, name: ServerName) -> Result<Settings, InvalidSettings> {
        let target = match self.kind_of_target() {
            Place::Program => Target::Program(self.program(&name)?),
            Place::WebSocket => Target::WebSocket(self.address(&name, "WebSocket")?),
            Place::Http => Target::Http(self.address(&name, "HTTP")?),
            Place::Sse => Target::Sse(self.address(&name, "SSE")?),
        };
        Ok(Settings {
            is_enabled: self.enabled.unwrap_or(true) && !self.disabled.unwrap_or(false),
            is_shared: self.shared.unwrap_or(true),
            health_probe: self.health_probe,
            start_timeout: longer_than_none(self.start_timeout).unwrap_or(Settings::START_TIMEOUT),
            idle_stop: longer_than_none(self.idle_stop),
            health_interval: match self.health_interval {
                None => Some(Settings::HEALTH_INTERVAL),
                given => longer_than_none(given),
            },
            ..Settings::new(name, target)
        })
    }

    fn kind_of_target(&self) -> Place {
        let by_address = || match self.url.as_deref() {
            Some(url) if url.starts_with("ws://") || url.starts_with("wss://") => Place::WebSocket,
            Some(url) if url.contains("/sse") => Place::Sse,
            Some(_) | None => Place::Http,
        };
        match self.kind {
            Some(Kind::WebSocket) => Place::WebSocket,
            Some(Kind::Http) => Place::Http,
            Some(Kind::Sse) => Place::Sse,
            Some(Kind::Remote) => by_address(),
            None if self.url.is_some() => by_address(),
            Some(Kind::Stdio) | None => Place::Program,
        }
    }

    fn program(&self, name: &ServerName) -> Result<Program, InvalidSettings> {
        let words = self.command.as_deref().unwrap_or_default();
        let [command, first @ ..] = words else {
            return Err(InvalidSettings::NoCommand { server: name.clone() });
        };
        if command.trim().is_empty() {
            return Err(InvalidSettings::NoCommand { server: name.clone() });
        }
        Ok(Program {
            command: command.clone(),
            args: first.iter().chain(&self.args).cloned().collect(),
            env: self.env.clone(),
            cwd: self.cwd.clone(),
        })
    }

    fn address(&self, name: &ServerName, kind: &'static str) -> Result<Address, InvalidSettings> {
        let url = self.url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let url = url.ok_or_else(|| InvalidSettings::NoUrl { kind, server: name.clone() })?;
        Ok(Address { url: url.to_owned(), headers: self.headers.clone() })
    }
}

/// Why a server cannot be described like this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// A program has no command.
    #[error("Stdio MCP server '{server}' requires a string 'command'")]
    NoCommand {
        /// The server.
        server: ServerName,
    },
    /// A server elsewhere has no address.
    #[error("{kind} MCP server '{server}' requires a 'url'")]
    NoUrl {
        /// How it should be reached.
        kind: &'static str,
        /// The server.
        server: ServerName,
    },
    /// A server in this very program was to be made from settings alone.
    #[error("MCP server '{server}' is part of this program and cannot be made from settings")]
    Embedded {
        /// The server.
        server: ServerName,
    },
    /// The address is none.
    #[error("the address of the server is none: {problem}. Write one like {example}")]
    BadUrl {
        /// What is wrong with it.
        problem: String,
        /// How one looks.
        example: &'static str,
    },
    /// A header cannot be sent.
    #[error(
        "the header '{name}' cannot be sent: its {part} has characters that no header may have. Check it for line \
         breaks"
    )]
    BadHeader {
        /// The header.
        name: String,
        /// Which part of it.
        part: &'static str,
    },
}

/// How a server is reached, in a person's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A program that is started, and spoken to over its input and output.
    #[serde(alias = "local")]
    Stdio,
    /// WebSocket.
    #[serde(alias = "ws")]
    WebSocket,
    /// Streamable HTTP, or HTTP+SSE if the server is that old.
    #[serde(alias = "streamable-http", alias = "streamableHttp", alias = "streamable_http")]
    Http,
    /// HTTP+SSE.
    Sse,
    /// Somewhere else; the address tells how.
    Remote,
}

/// The kinds that are left when the address has been looked at.
enum Place {
    Program,
    WebSocket,
    Http,
    Sse,
}

/// How it is found out whether a server still answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum HealthProbe {
    /// By the cheapest question there is.
    #[default]
    Ping,
    /// By asking for its tools.
    ListTools,
}

/// An MCP server with nothing left open.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What it is called.
    pub name: ServerName,
    /// Where it is.
    pub target: Target,
    /// Whether it is used.
    pub is_enabled: bool,
    /// Whether all sessions share one.
    pub is_shared: bool,
    /// How it is found out whether it still answers.
    pub health_probe: HealthProbe,
    /// How long it may take to start.
    pub start_timeout: Duration,
    /// After how long without a call it is stopped until the next one.
    pub idle_stop: Option<Duration>,
    /// How often one that nobody uses is asked whether it still answers.
    pub health_interval: Option<Duration>,
    /// When it is started again after it went away while nobody used it.
    pub revival: Revival,
}

impl Settings {
    /// How long a server may take to start if nobody says otherwise.
    pub const START_TIMEOUT: Duration = Duration::from_mins(1);

    /// How often a server is asked whether it still answers if nobody says otherwise.
    pub const HEALTH_INTERVAL: Duration = Duration::from_mins(1);

    /// A server with the usual settings.
    pub fn new(name: ServerName, target: Target) -> Self {
        Self {
            name,
            target,
            is_enabled: true,
            is_shared: true,
            health_probe: HealthProbe::default(),
            start_timeout: Self::START_TIMEOUT,
            idle_stop: None,
            health_interval: Some(Self::HEALTH_INTERVAL),
            revival: Revival::default(),
        }
    }

    /// Tells these settings from all others that lead to another server. It says nothing of the secrets in them.
    pub fn fingerprint(&self) -> String {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            // With its length, so that no two lists of parts are written alike.
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        };
        match &self.target {
            Target::Program(program) => {
                add(b"stdio");
                add(program.command.as_bytes());
                add(&program.args.len().to_be_bytes());
                program.args.iter().for_each(|argument| add(argument.as_bytes()));
                add(program.cwd.as_deref().map_or(&[][..], |cwd| cwd.as_os_str().as_encoded_bytes()));
                add_secrets(&program.env, &mut add);
            }
            Target::WebSocket(address) => address.add_to(b"websocket", &mut add),
            Target::Http(address) => address.add_to(b"http", &mut add),
            Target::Sse(address) => address.add_to(b"sse", &mut add),
            Target::Embedded => {
                add(b"embedded");
                add(self.name.as_str().as_bytes());
            }
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
    }
}

/// When a server is started again after it went away while nobody used it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Revival {
    /// Right away.
    #[default]
    AtOnce,
    /// When somebody uses it.
    WhenUsed,
}

/// Where a server is.
#[derive(Clone, Debug)]
pub enum Target {
    /// A program that is started.
    Program(Program),
    /// At the other end of a WebSocket.
    WebSocket(Address),
    /// Behind HTTP.
    Http(Address),
    /// Behind HTTP+SSE.
    Sse(Address),
    /// In this very program.
    Embedded,
}

impl Target {
    /// How a server that is there is spoken to.
    pub fn transport(&self) -> Option<Transport> {
        match self {
            Self::Program(_) => Some(Transport::Stdio),
            Self::WebSocket(_) => Some(Transport::WebSocket),
            Self::Http(_) => Some(Transport::Http),
            Self::Sse(_) => Some(Transport::Sse),
            Self::Embedded => None,
        }
    }
}

/// A program that is a server.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment, beside what every program needs.
    pub env: IndexMap<String, Secret>,
    /// The folder that it runs in.
    pub cwd: Option<PathBuf>,
}

impl Program {
    /// A program without arguments.
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), args: Vec::new(), env: IndexMap::new(), cwd: None }
    }
}

/// The address of a server, and what to show at the door.
#[derive(Clone, Debug, Default)]
pub struct Address {
    /// The address.
    pub url: String,
    /// Headers of every request.
    pub headers: IndexMap<String, Secret>,
}

impl Address {
    /// An address without headers.
    pub fn new(url: impl Into<String>) -> Self {
        Self { url: url.into(), headers: IndexMap::new() }
    }

    fn add_to(&self, kind: &[u8], add: &mut impl FnMut(&[u8])) {
        add(kind);
        add(self.url.as_bytes());
        add_secrets(&self.headers, add);
    }
}

/// Names and the digests of their values, in one order however they were written.
fn add_secrets(secrets: &IndexMap<String, Secret>, add: &mut impl FnMut(&[u8])) {
    let sorted: BTreeMap<&String, &Secret> = secrets.iter().collect();
    for (name, secret) in sorted {
        add(name.as_bytes());
        add(&Sha256::digest(secret.reveal()));
    }
}

/// A text that must not be seen. It cannot be printed, only revealed.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// A text as a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A time, if it is one: 0 means that nobody said.
fn longer_than_none(time: Option<HumanDuration>) -> Option<Duration> {
    time.map(Duration::from).filter(|time| !time.is_zero())
}
