//! What a file comes to.

use std::fmt;
use std::path::PathBuf;

use indexmap::IndexMap;
use pegboard_core::chain::ChainSpec;
use pegboard_core::id::{ServerName, ToolName, ToolboxName};
use pegboard_core::model::ModelProviderName;
use pegboard_core::settings::agent::AgentSettings;
use pegboard_core::settings::cache::CacheSettings;
use pegboard_core::settings::gateway::{Expose, GatewaySettings};
use pegboard_core::settings::mcp::{Secret, Settings, Target};
use pegboard_core::settings::model::ModelProviderSettings;
use pegboard_core::settings::openapi::OpenApiSettings;
use pegboard_core::settings::rest::RestTool;
use pegboard_core::settings::telemetry::TelemetrySettings;
use pegboard_core::settings::{RuntimeSettings, ServerSettings, ToolSettings};

use crate::inputs::WantedInput;
use crate::problem::{Problem, Severity};
use crate::source::{Source, Text};
use crate::tree::Node;

/// What somebody wrote, with nothing left open: variables are filled in, and names are checked.
#[derive(Debug, Default)]
pub struct Configuration {
    /// What holds for every call.
    pub settings: RuntimeSettings,
    /// How clients see the tools.
    pub gateway: GatewaySettings,
    /// Where answers are kept that may be given again.
    pub cache: CacheSettings,
    /// What is logged, and what is sent to a collector.
    pub telemetry: TelemetrySettings,
    /// The toolboxes, in the order of the file.
    pub toolboxes: IndexMap<ToolboxName, Toolbox>,
    /// The providers of models, in the order of the file.
    pub providers: IndexMap<ModelProviderName, ModelProvider>,
    /// The files it comes from.
    pub sources: Vec<Source>,
    /// What is wrong with single servers, tools, chains, agents and providers, which are left out for it, and what is worth
    /// a warning; in the order of the file, and then of the files that it names.
    pub problems: Vec<Problem>,
    /// What nobody should see: what came from variables and files, keys, and the values of `env` and `headers`. The longest
    /// come first, so that none hides a part of another.
    pub secrets: Vec<Secret>,
    /// Every file that it depends on, whether it is there or not: its sources, those that `${file:…}` names, and those of
    /// agents.
    pub watched: Vec<PathBuf>,
    /// What it needs and only a person can tell, as far as nobody has.
    pub wants_inputs: Vec<WantedInput>,
    /// What all of its sources come to, as they were written; see [`Configuration::origins`].
    pub effective: Effective,
}

/// What the sources of a configuration come to, before variables are filled in.
#[derive(Default)]
pub struct Effective {
    pub(crate) root: Option<Node>,
    pub(crate) texts: Vec<Text>,
}

/// Says nothing of what may be secret.
impl fmt::Debug for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effective").finish_non_exhaustive()
    }
}

/// Servers, tools, chains and agents that belong together.
#[derive(Debug, Default)]
pub struct Toolbox {
    /// What it is for.
    pub description: String,
    /// Whether its tools are listed by themselves or behind the few, where a profile leaves that open.
    pub expose: Expose,
    /// Its servers, in the order of the file.
    pub servers: IndexMap<ServerName, Server>,
    /// Its tools that are requests to web services, in the order of the file.
    pub rest_tools: IndexMap<ToolName, RestEntry>,
    /// Its agents, by the names of their tools: those that are named, and those that these name.
    pub agents: IndexMap<ToolName, AgentEntry>,
    /// Its chains, by name. One whose description is wrong is not among them.
    pub chains: IndexMap<String, ChainSpec>,
}

/// A server that somebody described.
#[derive(Clone)]
pub enum Server {
    /// It can be used, unless it is switched off.
    Mcp {
        /// How it is reached.
        connection: Box<Settings>,
        /// What holds for its tools.
        tools: Box<ServerSettings>,
    },
    /// A web service with an OpenAPI document, which can be used unless it is switched off.
    OpenApi {
        /// Where its document is, and what becomes of it.
        service: Box<OpenApiSettings>,
        /// What holds for its tools.
        tools: Box<ServerSettings>,
    },
    /// Its description is wrong.
    Unusable {
        /// Variables that must be set before it can be used.
        needs: Vec<String>,
        /// All that is wrong with it.
        problems: Vec<Problem>,
    },
}

impl Server {
    /// Why it cannot be used, in a few words: `needs: GITHUB_TOKEN`. `None` if it can.
    pub fn obstacle(&self) -> Option<String> {
        match self {
            Self::Mcp { .. } | Self::OpenApi { .. } => None,
            Self::Unusable { needs, problems } => Some(obstacle(needs, problems)),
        }
    }
}

/// A provider of models that somebody described.
#[derive(Clone)]
pub enum ModelProvider {
    /// It can be used.
    Usable(Box<ModelProviderSettings>),
    /// Its description is wrong.
    Unusable {
        /// Variables that must be set before it can be used.
        needs: Vec<String>,
        /// All that is wrong with it.
        problems: Vec<Problem>,
    },
}

impl ModelProvider {
    /// Why it cannot be used, in a few words: `needs: OPENAI_API_KEY`. `None` if it can.
    pub fn obstacle(&self) -> Option<String> {
        match self {
            Self::Usable(_) => None,
            Self::Unusable { needs, problems } => Some(obstacle(needs, problems)),
        }
    }
}

/// Says what kind it is and nothing that may hold a secret: addresses may.
impl fmt::Debug for ModelProvider {
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

/// A tool that is a request to a web service, as somebody described it.
#[derive(Clone, Debug)]
pub enum RestEntry {
    /// It can be used, unless it is switched off.
    Usable {
        /// Whether it is used.
        is_enabled: bool,
        /// What is sent.
        request: Box<RestTool>,
        /// What holds for its calls.
        settings: Box<ToolSettings>,
    },
    /// Its description is wrong.
    Unusable {
        /// Variables that must be set before it can be used.
        needs: Vec<String>,
        /// All that is wrong with it.
        problems: Vec<Problem>,
    },
}

impl RestEntry {
    /// Why it cannot be used, in a few words: `needs: API_KEY`. `None` if it can.
    pub fn obstacle(&self) -> Option<String> {
        match self {
            Self::Usable { .. } => None,
            Self::Unusable { needs, problems } => Some(obstacle(needs, problems)),
        }
    }
}

/// An agent that somebody described in a file of its own.
#[derive(Clone, Debug)]
pub enum AgentEntry {
    /// It can be used.
    Usable(Box<AgentSettings>),
    /// Its file is wrong, or one that it needs.
    Unusable {
        /// The file.
        path: PathBuf,
        /// The agents that it names and that cannot be used either.
        needs: Vec<ToolName>,
        /// All that is wrong with it.
        problems: Vec<Problem>,
    },
}

impl AgentEntry {
    /// Where it is, with all links followed.
    pub fn path(&self) -> &std::path::Path {
        match self {
            Self::Usable(settings) => &settings.path,
            Self::Unusable { path, .. } => path,
        }
    }

    /// Why it cannot be used, in a few words. `None` if it can.
    pub fn obstacle(&self) -> Option<String> {
        match self {
            Self::Usable(_) => None,
            Self::Unusable { problems, .. } => {
                let is_error = |problem: &&Problem| problem.severity == Severity::Error;
                let told =
                    |first: &Problem| format!("{}:{}: {}", first.file.display(), first.line, first.message);
                let first = problems.iter().find(is_error).map(told);
                Some(first.unwrap_or_else(|| "its file is wrong".to_owned()))
            }
        }
    }
}

/// Why something cannot be used, in a few words.
fn obstacle(needs: &[String], problems: &[Problem]) -> String {
    if !needs.is_empty() {
        return format!("needs: {}", needs.join(", "));
    }
    let is_error = |problem: &&Problem| problem.severity == Severity::Error;
    let told = problems.iter().find(is_error).map(|first| format!("{}: {}", first.path, first.message));
    told.unwrap_or_else(|| "its description is wrong".to_owned())
}

/// Says what kind it is and nothing that may hold a secret: arguments and addresses may.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mcp { connection, .. } => {
                let kind = match connection.target {
                    Target::Program(_) => "program",
                    Target::WebSocket(_) => "websocket",
                    Target::Http(_) => "http",
                    Target::Sse(_) => "sse",
                    Target::Embedded => "embedded",
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
