//! The configuration that results from loading all sources.

use std::fmt;
use std::path::PathBuf;

use indexmap::IndexMap;
use pegboard_core::chain::ChainSpec;
use pegboard_core::id::{ServerName, ToolName, ToolboxName};
use pegboard_core::model::ModelProviderName;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_core::settings::cache::CacheSettings;
use pegboard_core::settings::gateway::{Expose, GatewaySettings};
use pegboard_core::settings::mcp::{McpTarget, ResolvedMcpServer, Secret};
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_core::settings::rest::RestTool;
use pegboard_core::settings::telemetry::TelemetrySettings;
use pegboard_core::settings::{RuntimeSettings, ServerSettings, ToolSettings};

use crate::inputs::MissingInput;
use crate::problem::{ConfigProblem, Severity};
use crate::source::{ConfigSource, SourceText};
use crate::tree::Node;

/// A loaded configuration: variables are expanded and names are validated.
#[derive(Debug, Default)]
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
    Unusable {
        /// Variables that must be set.
        needs: Vec<String>,
        /// All problems of the entry.
        problems: Vec<ConfigProblem>,
    },
}

impl ServerEntry {
    /// Returns a short reason if the server is unusable, such as `needs: GITHUB_TOKEN`.
    pub fn unusable_reason(&self) -> Option<String> {
        match self {
            Self::Mcp { .. } | Self::OpenApi { .. } => None,
            Self::Unusable { needs, problems } => Some(unusable_reason(needs, problems)),
        }
    }
}

/// An entry of `providers`.
#[derive(Clone)]
pub enum ModelProviderEntry {
    /// The provider is usable.
    Usable(Box<ModelProviderSettings>),
    /// The entry is invalid.
    Unusable {
        /// Variables that must be set.
        needs: Vec<String>,
        /// All problems of the entry.
        problems: Vec<ConfigProblem>,
    },
}

impl ModelProviderEntry {
    /// Returns a short reason if the provider is unusable, such as `needs: OPENAI_API_KEY`.
    pub fn unusable_reason(&self) -> Option<String> {
        match self {
            Self::Usable(_) => None,
            Self::Unusable { needs, problems } => Some(unusable_reason(needs, problems)),
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
            Self::Unusable { needs, problems } => {
                f.debug_struct("Unusable").field("needs", needs).field("problems", problems).finish()
            }
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
    Unusable {
        /// Variables that must be set.
        needs: Vec<String>,
        /// All problems of the entry.
        problems: Vec<ConfigProblem>,
    },
}

impl RestEntry {
    /// Returns a short reason if the tool is unusable, such as `needs: API_KEY`.
    pub fn unusable_reason(&self) -> Option<String> {
        match self {
            Self::Usable { .. } => None,
            Self::Unusable { needs, problems } => Some(unusable_reason(needs, problems)),
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

/// Returns a short reason from missing variables or the first error.
fn unusable_reason(needs: &[String], problems: &[ConfigProblem]) -> String {
    if !needs.is_empty() {
        return format!("needs: {}", needs.join(", "));
    }
    let is_error = |problem: &&ConfigProblem| problem.severity == Severity::Error;
    let reason = problems.iter().find(is_error).map(|first| format!("{}: {}", first.path, first.message));
    reason.unwrap_or_else(|| "its entry is invalid".to_owned())
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
            Self::Unusable { needs, problems } => {
                f.debug_struct("Unusable").field("needs", needs).field("problems", problems).finish()
            }
        }
    }
}
