//! The configuration that results from loading all sources.

use std::fmt;
use std::path::PathBuf;

use indexmap::IndexMap;
use pegboard_core::chain::ChainSpec;
use pegboard_core::id::{ServerName, ToolName, ToolboxName};
use pegboard_core::model::ModelProviderName;
use pegboard_core::secret::Secret;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_core::settings::cache::CacheSettings;
use pegboard_core::settings::gateway::{Expose, GatewaySettings};
use pegboard_core::settings::mcp::{McpTarget, ResolvedMcpServer};
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_core::settings::rest::RestTool;
use pegboard_core::settings::telemetry::TelemetrySettings;
use pegboard_core::settings::{RuntimeSettings, ServerSettings, ToolSettings};

use crate::inputs::MissingInput;
use crate::problem::{ConfigProblem, Severity};
use crate::section::EntrySection;
use crate::source::{ConfigSource, SourceText};
use crate::tree::Node;
use crate::trust::FileAction;

/// A loaded configuration: variables are expanded and names are validated.
#[derive(Default)]
pub struct Configuration {
    /// Settings of the runtime.
    pub settings: RuntimeSettings,
    /// Settings of the gateway: profiles and how tools are exposed.
    pub gateway: GatewaySettings,
    /// Settings of the response cache.
    pub cache: CacheSettings,
    /// Logging and tracing.
    pub telemetry: TelemetrySettings,
    /// Toolboxes, in file order.
    pub toolboxes: IndexMap<ToolboxName, ToolboxConfig>,
    /// Model providers, in file order.
    pub providers: IndexMap<ModelProviderName, ModelProviderEntry>,
    /// Files that the configuration was loaded from.
    pub sources: Vec<ConfigSource>,
    /// Programs that the files start and requests that they send, by file.
    pub actions: Vec<FileAction>,
    /// Errors of single servers, tools, chains, agents and providers, which are left out because of them, and
    /// warnings; in file order, followed by those of referenced files.
    pub problems: Vec<ConfigProblem>,
    /// Values to redact: expanded variables and files, API keys, and the values of `env` and `headers`.
    /// Sorted by length, longest first, so that no value hides a part of another.
    pub secrets: Vec<Secret>,
    /// Every file that the configuration depends on, whether it exists or not: sources, `${file:…}`
    /// references and agent files.
    pub watched: Vec<PathBuf>,
    /// Inputs that only a person can provide and that are not set.
    pub missing_inputs: Vec<MissingInput>,
    /// The merged sources as written; see [`Configuration::effective_settings`].
    pub merged: MergedTree,
}

/// Omits secrets.
impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration")
            .field("toolboxes", &self.toolboxes)
            .field("providers", &self.providers)
            .field("sources", &self.sources)
            .field("problems", &self.problems)
            .finish_non_exhaustive()
    }
}

/// The merged sources of a configuration, before variables are expanded.
#[derive(Default)]
pub struct MergedTree {
    pub(crate) root: Option<Node>,
    pub(crate) texts: Vec<SourceText>,
}

/// Omits the contents, which may include secrets.
impl fmt::Debug for MergedTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergedTree").finish_non_exhaustive()
    }
}

/// A named group of servers, tools, chains and agents.
#[derive(Debug, Default)]
pub struct ToolboxConfig {
    /// Description of the toolbox.
    pub description: String,
    /// Exposure of its tools, unless a profile decides.
    pub expose: Expose,
    /// Servers, in file order.
    pub servers: IndexMap<ServerName, ServerEntry>,
    /// REST tools, in file order.
    pub rest_tools: IndexMap<ToolName, RestEntry>,
    /// Agents by tool name: those listed and those that they reference.
    pub agents: IndexMap<ToolName, AgentEntry>,
    /// Chains by name. Invalid chains are omitted.
    pub chains: IndexMap<String, ChainSpec>,
}

impl ToolboxConfig {
    /// Returns the name of a service beside an MCP server of its name: `rest__NAME`.
    pub(crate) fn service_name(name: &str) -> String {
        format!("rest__{name}")
    }

    /// Returns `true` if there is an MCP server of this name, usable or not.
    pub(crate) fn has_server(&self, name: &str) -> bool {
        match self.servers.get(name) {
            Some(ServerEntry::Mcp { .. } | ServerEntry::Unusable(_)) => true,
            Some(ServerEntry::OpenApi { .. }) | None => false,
        }
    }

    /// Makes room for an MCP server with the name of a service.
    pub(crate) fn rename_service(&mut self, name: &str) {
        let Some(ServerEntry::OpenApi { .. }) = self.servers.get(name) else { return };
        let Ok(renamed) = ServerName::new(Self::service_name(name)) else { return };
        if !self.servers.contains_key(&renamed)
            && let Some(service) = self.servers.shift_remove(name)
        {
            self.servers.insert(renamed, service);
        }
    }
}

impl Configuration {
    /// Returns the unusable servers, REST tools and model providers: the toolbox and section, unless it is a
    /// model provider, and the name.
    pub fn unusable_entries(
        &self,
    ) -> impl Iterator<Item = (Option<(&ToolboxName, EntrySection)>, &str, &UnusableEntry)> {
        let of_toolboxes = self.toolboxes.iter().flat_map(|(toolbox, described)| {
            let servers = described.servers.iter().filter_map(move |(name, server)| {
                Some((Some((toolbox, EntrySection::Servers)), name.as_str(), server.unusable()?))
            });
            let rest_tools = described.rest_tools.iter().filter_map(move |(name, tool)| {
                Some((Some((toolbox, EntrySection::RestTools)), name.as_str(), tool.unusable()?))
            });
            servers.chain(rest_tools)
        });
        let providers = self.providers.iter();
        let providers =
            providers.filter_map(|(name, provider)| Some((None, name.as_str(), provider.unusable()?)));
        of_toolboxes.chain(providers)
    }
}

/// Problems of an entry that cannot be used.
#[derive(Clone, Debug)]
pub struct UnusableEntry {
    /// Variables that must be set.
    pub needs: Vec<String>,
    /// All problems of the entry.
    pub problems: Vec<ConfigProblem>,
}

impl UnusableEntry {
    /// Returns what to do: the lines to type if only variables are missing.
    pub fn fix(&self) -> String {
        if self.needs.is_empty() {
            return "Correct its configuration.".to_owned();
        }
        let lines: Vec<String> = self.needs.iter().map(|name| format!("export {name}=…")).collect();
        lines.join("; ")
    }

    /// Returns a short reason, such as `needs: GITHUB_TOKEN`.
    pub fn reason(&self) -> String {
        if !self.needs.is_empty() {
            return format!("needs: {}", self.needs.join(", "));
        }
        let is_error = |problem: &&ConfigProblem| problem.severity == Severity::Error;
        let first = self.problems.iter().find(is_error);
        first.map_or_else(
            || "its entry is invalid".to_owned(),
            |first| format!("{}: {}", first.path, first.message),
        )
    }
}

/// An entry of `mcpServers` or `openapiSpecs`.
#[derive(Clone)]
pub enum ServerEntry {
    /// A usable MCP server, possibly disabled.
    Mcp {
        /// Connection settings.
        connection: Box<ResolvedMcpServer>,
        /// Settings of its tools.
        tools: Box<ServerSettings>,
    },
    /// A usable web service with an OpenAPI document, possibly disabled.
    OpenApi {
        /// Location of the document and how to turn it into tools.
        service: Box<OpenApiSettings>,
        /// Settings of its tools.
        tools: Box<ServerSettings>,
    },
    /// The entry is invalid.
    Unusable(UnusableEntry),
}

impl ServerEntry {
    /// Returns the problems of the server, if it is unusable.
    pub fn unusable(&self) -> Option<&UnusableEntry> {
        match self {
            Self::Mcp { .. } | Self::OpenApi { .. } => None,
            Self::Unusable(entry) => Some(entry),
        }
    }
}

/// An entry of `providers`.
#[derive(Clone)]
pub enum ModelProviderEntry {
    /// The provider is usable.
    Usable(Box<ModelProviderSettings>),
    /// The entry is invalid.
    Unusable(UnusableEntry),
}

impl ModelProviderEntry {
    /// Returns the problems of the provider, if it is unusable.
    pub fn unusable(&self) -> Option<&UnusableEntry> {
        match self {
            Self::Usable(_) => None,
            Self::Unusable(entry) => Some(entry),
        }
    }
}

/// Shows the kind only: URLs may contain secrets.
impl fmt::Debug for ModelProviderEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usable(settings) => {
                f.debug_struct("Usable").field("kind", &settings.kind).finish_non_exhaustive()
            }
            Self::Unusable(entry) => f.debug_tuple("Unusable").field(entry).finish(),
        }
    }
}

/// An entry of `restTools`.
#[derive(Clone, Debug)]
pub enum RestEntry {
    /// The tool is usable, possibly disabled.
    Usable {
        /// `false` if the tool is disabled.
        is_enabled: bool,
        /// Request template.
        request: Box<RestTool>,
        /// Settings of the tool's calls.
        settings: Box<ToolSettings>,
    },
    /// The entry is invalid.
    Unusable(UnusableEntry),
}

impl RestEntry {
    /// Returns the problems of the tool, if it is unusable.
    pub fn unusable(&self) -> Option<&UnusableEntry> {
        match self {
            Self::Usable { .. } => None,
            Self::Unusable(entry) => Some(entry),
        }
    }
}

/// An agent, described in a file of its own.
#[derive(Clone, Debug)]
pub enum AgentEntry {
    /// The agent is usable.
    Usable(Box<AgentSettings>),
    /// Its file, or one that it depends on, is invalid.
    Unusable {
        /// Path of the file.
        path: PathBuf,
        /// Referenced agents that are unusable, too.
        needs: Vec<ToolName>,
        /// All problems of the file.
        problems: Vec<ConfigProblem>,
    },
}

impl AgentEntry {
    /// Returns the canonical path of the file.
    pub fn path(&self) -> &std::path::Path {
        match self {
            Self::Usable(settings) => &settings.path,
            Self::Unusable { path, .. } => path,
        }
    }

    /// Returns a short reason if the agent is unusable.
    pub fn unusable_reason(&self) -> Option<String> {
        match self {
            Self::Usable(_) => None,
            Self::Unusable { problems, .. } => {
                let is_error = |problem: &&ConfigProblem| problem.severity == Severity::Error;
                let reason = |first: &ConfigProblem| {
                    format!("{}:{}: {}", first.file.display(), first.line, first.message)
                };
                let first = problems.iter().find(is_error).map(reason);
                Some(first.unwrap_or_else(|| "its file is invalid".to_owned()))
            }
        }
    }
}

/// Shows the kind only: arguments and URLs may contain secrets.
impl fmt::Debug for ServerEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mcp { connection, .. } => {
                let kind = match connection.target {
                    McpTarget::Program(_) => "program",
                    McpTarget::WebSocket(_) => "websocket",
                    McpTarget::Http(_) => "http",
                    McpTarget::Sse(_) => "sse",
                    McpTarget::Embedded => "embedded",
                };
                f.debug_struct("Mcp")
                    .field("kind", &kind)
                    .field("is_enabled", &connection.is_enabled)
                    .finish_non_exhaustive()
            }
            Self::OpenApi { service, .. } => {
                f.debug_struct("OpenApi").field("enabled", &service.enabled).finish_non_exhaustive()
            }
            Self::Unusable(entry) => f.debug_tuple("Unusable").field(entry).finish(),
        }
    }
}
