//! Whose words a file uses, and what they mean. Each dialect has a file of its own.

use std::path::Path;

use crate::path::Path as Way;
use crate::read::{Reader, Strictness};
use crate::tree::{Node, Span};

mod agents;
mod catalogue;
mod environment;
mod file;
mod foreign;
mod gateway;
mod hub;
mod made;
pub(crate) mod native;
mod openapi;
mod providers;
mod recognise;
mod registry;
mod rest;
mod server;
mod single;
mod syntax;
mod words;
mod workbench;

pub(crate) use file::plain_name;
pub(crate) use native::{root_names, toolbox_names};
pub(crate) use single::{agent, is_agent};

/// Whose words a file uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Our own.
    Native,
    /// That of a workbench: toolboxes, each with a description and servers.
    Workbench,
    /// `mcpServers`, as most clients have it, and we.
    McpServers,
    /// Servers by their names, and nothing around them.
    Bare,
    /// The settings of Claude Code, with servers for all folders and for single ones.
    ClaudeCode,
    /// `mcpServers` of Cline or Roo Code, which count in seconds.
    Cline,
    /// The settings of Gemini CLI or of Qwen Code.
    Gemini,
    /// `mcpServers` of mcphub.
    McpHub,
    /// `mcpServers` beside the `mcpProxy` of another proxy.
    McpProxy,
    /// `mcpServers` as a list, as Continue has it.
    Continue,
    /// `servers` and `inputs` of VS Code.
    VsCode,
    /// `context_servers` of Zed.
    Zed,
    /// `mcp_servers` of Codex.
    Codex,
    /// `mcp` of `OpenCode`.
    OpenCode,
    /// `mcp` of Crush.
    Crush,
    /// `extensions` of Goose.
    Goose,
    /// Targets of agentgateway.
    AgentGateway,
    /// One server as a registry describes it.
    Registry,
    /// One server in Python, as fastmcp describes it.
    FastMcp,
    /// A catalogue of servers in containers, as Docker has it.
    DockerCatalog,
    /// The description of a web service.
    OpenApi,
    /// An agent, which is its prompt and a header before it.
    Agent,
    /// One chain.
    Chain,
}

/// What is known about a file beside what is in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    /// Where it is.
    pub(crate) path: &'p Path,
    /// The folder that it is read for, if it is read for one.
    pub(crate) project: Option<&'p Path>,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 23] = [
        Self::Native,
        Self::Workbench,
        Self::McpServers,
        Self::Bare,
        Self::ClaudeCode,
        Self::Cline,
        Self::Gemini,
        Self::McpHub,
        Self::McpProxy,
        Self::Continue,
        Self::VsCode,
        Self::Zed,
        Self::Codex,
        Self::OpenCode,
        Self::Crush,
        Self::Goose,
        Self::AgentGateway,
        Self::Registry,
        Self::FastMcp,
        Self::DockerCatalog,
        Self::OpenApi,
        Self::Agent,
        Self::Chain,
    ];

    /// The dialect of a file: by what is in it, and by its name only where that leaves it open.
    pub(crate) fn of(path: &Path, root: &Node) -> Self {
        if is_ours(path, root) {
            Self::Native
        } else if is_named(path, "workbench") || workbench::is_one(root) {
            Self::Workbench
        } else if root.get("toolboxes").is_some() {
            Self::Native
        } else {
            let known = recognise::recognise(path, root);
            known.or_else(|| recognise::by_place(path)).unwrap_or(Self::Native)
        }
    }

    /// What it is called.
    pub fn title(self) -> &'static str {
        match self {
            Self::Native => "pegboard",
            Self::Workbench => "workbench",
            Self::McpServers => "mcpServers",
            Self::Bare => "servers by name",
            Self::ClaudeCode => "Claude Code",
            Self::Cline => "Cline",
            Self::Gemini => "Gemini CLI",
            Self::McpHub => "mcphub",
            Self::McpProxy => "mcp-proxy",
            Self::Continue => "Continue",
            Self::VsCode => "VS Code",
            Self::Zed => "Zed",
            Self::Codex => "Codex",
            Self::OpenCode => "OpenCode",
            Self::Crush => "Crush",
            Self::Goose => "Goose",
            Self::AgentGateway => "agentgateway",
            Self::Registry => "registry",
            Self::FastMcp => "fastmcp",
            Self::DockerCatalog => "Docker catalogue",
            Self::OpenApi => "OpenAPI",
            Self::Agent => "agent",
            Self::Chain => "chain",
        }
    }

    /// What its root is called in messages.
    pub(crate) fn label(self) -> Way {
        if self == Self::Workbench { Way::default().key("config") } else { Way::default() }
    }

    /// What becomes of a key that nobody knows in a file of it. What only we read is ours, whatever it is called.
    pub(crate) fn strictness(self, path: &Path, root: &Node) -> Strictness {
        if self == Self::Chain || is_ours(path, root) { Strictness::Strict } else { Strictness::Lenient }
    }

    /// Whether its words are others than ours.
    pub(crate) fn is_translated(self) -> bool {
        !matches!(self, Self::Native | Self::Workbench)
    }

    /// The same in our own words. Every value keeps its place.
    pub(crate) fn translate(self, root: Node, place: &Place<'_>, remarks: &mut Remarks) -> Node {
        let words = words::words(self);
        match (self, &words) {
            (Self::Native, _) => root,
            (Self::Workbench, _) => workbench::translate(root, remarks),
            (Self::FastMcp, _) => single::translate_fastmcp(&root, place.path, remarks),
            (Self::OpenApi, _) => single::translate_openapi(&root, place.path),
            (Self::Chain, _) => single::translate_chain(root, place.path),
            (Self::Registry, _) => registry::translate(&root, remarks),
            (Self::AgentGateway, Some(words)) => gateway::translate(words, &root, remarks),
            (Self::DockerCatalog, Some(words)) => catalogue::translate(words, &root, remarks),
            (_, Some(words)) => file::translate(self, words, &root, place, remarks),
            (_, None) => root,
        }
    }
}

/// Whether a file says that it is ours, by its name or in its first words.
fn is_ours(path: &Path, root: &Node) -> bool {
    is_named(path, "pegboard") || root.get("pegboard").is_some()
}

fn is_named(path: &Path, beginning: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
    name.strip_prefix(beginning).is_some_and(|rest| rest.starts_with(['.', '-']))
}

/// What is worth saying about a file before anything of it is read, in the order in which it was found.
#[derive(Default)]
pub(crate) struct Remarks(Vec<Remark>);

/// One thing that is worth saying.
pub(crate) struct Remark {
    pub(crate) kind: RemarkKind,
    pub(crate) span: Span,
    /// The way to what it is about.
    pub(crate) way: Way,
}

/// What is said.
pub(crate) enum RemarkKind {
    /// Something for which nothing of the configuration can be used.
    Error { message: String, help: Option<String> },
    /// Something that changes nothing.
    Warning { message: String, help: Option<String> },
    /// A key that nobody knows, and those that may stand there.
    Unknown { key: String, known: Vec<String> },
}

impl Remarks {
    /// Says what nothing of the configuration can be used for.
    pub(crate) fn error(&mut self, span: Span, way: &Way, message: impl Into<String>, help: Option<String>) {
        let kind = RemarkKind::Error { message: message.into(), help };
        self.0.push(Remark { kind, span, way: way.clone() });
    }

    /// Says what changes nothing.
    pub(crate) fn warn(&mut self, span: Span, way: &Way, message: impl Into<String>, help: Option<String>) {
        let kind = RemarkKind::Warning { message: message.into(), help };
        self.0.push(Remark { kind, span, way: way.clone() });
    }

    /// Says of a key that nobody knows it.
    pub(crate) fn unknown(&mut self, key: &str, span: Span, way: &Way, known: &[&str]) {
        let known = known.iter().map(|&name| name.to_owned()).collect();
        self.0.push(Remark {
            kind: RemarkKind::Unknown { key: key.to_owned(), known },
            span,
            way: way.clone(),
        });
    }

    /// Hands all of it to whoever reads on.
    pub(crate) fn tell(self, reader: &mut Reader<'_>) {
        for Remark { kind, span, way } in self.0 {
            match kind {
                RemarkKind::Error { message, help } => reader.error(span, &way, message, help),
                RemarkKind::Warning { message, help } => reader.warn(span, &way, message, help),
                RemarkKind::Unknown { key, known } => {
                    let known: Vec<&str> = known.iter().map(String::as_str).collect();
                    reader.unknown_key(&key, span, &way, &known);
                }
            }
        }
    }
}
