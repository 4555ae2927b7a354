//! Configuration dialects of MCP clients and gateways, and their translation to the native format. Each
//! dialect has a module of its own.

use std::path::Path;

use crate::path::KeyPath;
use crate::read::{ConfigReader, KeyStrictness};
use crate::tree::{Node, Span};

mod agentgateway;
mod agents;
mod client_file;
mod docker_catalogue;
mod environment;
mod field_rules;
mod mcphub;
pub(crate) mod native;
mod openapi;
mod providers;
mod recognise;
mod registry;
mod rest;
mod server;
mod single_entity;
mod synthetic;
mod translate;
mod variable_syntax;
mod workbench;

pub(crate) use client_file::{PEGBOARD_ITSELF, sanitize_name};
pub(crate) use native::{root_names, toolbox_names};
pub(crate) use single_entity::{agent_root, is_agent};

/// The configuration dialect of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigDialect {
    /// The native format of Pegboard.
    Native,
    /// Toolboxes, each with a description and servers.
    Workbench,
    /// `mcpServers`, used by most clients and by the native format.
    McpServers,
    /// Servers by name at the root of the file.
    Bare,
    /// Claude Code's settings, with global and per-directory servers.
    ClaudeCode,
    /// `mcpServers` of Cline or Roo Code, with timeouts in seconds.
    Cline,
    /// Settings of Gemini CLI or Qwen Code.
    Gemini,
    /// `mcpServers` of mcphub.
    McpHub,
    /// `mcpServers` beside the `mcpProxy` section of mcp-proxy.
    McpProxy,
    /// `mcpServers` as a list, used by Continue.
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
    /// A single server of the MCP registry.
    Registry,
    /// A single Python server, described by fastmcp.
    FastMcp,
    /// Docker's catalogue of servers in containers.
    DockerCatalog,
    /// An OpenAPI document.
    OpenApi,
    /// An agent file: a header and a prompt.
    Agent,
    /// A single chain.
    Chain,
}

/// Facts about a file beside its contents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileContext<'p> {
    /// Path of the file.
    pub(crate) path: &'p Path,
    /// Directory that the file is read for, if any.
    pub(crate) project: Option<&'p Path>,
}

impl ConfigDialect {
    /// All dialects.
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

    /// Detects the dialect by the file's contents, and by its name only where the contents are ambiguous.
    pub(crate) fn of(path: &Path, root: &Node) -> Self {
        if is_native(path, root) {
            Self::Native
        } else if has_name_prefix(path, "workbench") || workbench::is_workbench(root) {
            Self::Workbench
        } else if root.get("toolboxes").is_some() {
            Self::Native
        } else {
            let known = recognise::recognise(path, root);
            known.or_else(|| recognise::by_path(path)).unwrap_or(Self::Native)
        }
    }

    /// Display name.
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

    /// Label of the root in messages.
    pub(crate) fn root_label(self) -> KeyPath {
        if self == Self::Workbench { KeyPath::default().key("config") } else { KeyPath::default() }
    }

    /// Returns the handling of unknown keys in a file of this dialect. Formats that only Pegboard reads are
    /// strict, whatever the file is called.
    pub(crate) fn strictness(self, path: &Path, root: &Node) -> KeyStrictness {
        if self == Self::Chain || is_native(path, root) {
            KeyStrictness::Strict
        } else {
            KeyStrictness::Lenient
        }
    }

    /// Returns `true` if the keys of this dialect are translated.
    pub(crate) fn is_translated(self) -> bool {
        !matches!(self, Self::Native | Self::Workbench)
    }

    /// Translates a tree to the native format. Every value keeps its span.
    pub(crate) fn translate(self, root: Node, file: &FileContext<'_>, notes: &mut TranslationNotes) -> Node {
        let rules = field_rules::rules_for(self);
        match (self, &rules) {
            (Self::Native, _) => root,
            (Self::Workbench, _) => workbench::translate(root, notes),
            (Self::FastMcp, _) => single_entity::translate_fastmcp(&root, file.path, notes),
            (Self::OpenApi, _) => single_entity::translate_openapi(&root, file.path),
            (Self::Chain, _) => single_entity::translate_chain(root, file.path),
            (Self::Registry, _) => registry::translate(&root, notes),
            (Self::AgentGateway, Some(rules)) => agentgateway::translate(rules, &root, notes),
            (Self::DockerCatalog, Some(rules)) => docker_catalogue::translate(rules, &root, notes),
            (_, Some(rules)) => client_file::translate(self, rules, &root, file, notes),
            (_, None) => root,
        }
    }
}

/// Returns `true` if the file is marked as native by its name or by a `pegboard` key.
fn is_native(path: &Path, root: &Node) -> bool {
    has_name_prefix(path, "pegboard") || root.get("pegboard").is_some()
}

pub(crate) fn has_name_prefix(path: &Path, beginning: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
    name.strip_prefix(beginning).is_some_and(|rest| rest.starts_with(['.', '-']))
}

/// Errors and warnings found during translation, in the order of discovery.
#[derive(Default)]
pub(crate) struct TranslationNotes(Vec<TranslationNote>);

/// An error or a warning found during translation.
pub(crate) struct TranslationNote {
    pub(crate) kind: NoteKind,
    pub(crate) span: Span,
    /// Path of the affected value.
    pub(crate) key_path: KeyPath,
}

/// The kind of a translation note.
pub(crate) enum NoteKind {
    /// An error that makes the whole configuration unusable.
    Error { message: String, help: Option<String> },
    /// A warning.
    Warning { message: String, help: Option<String> },
    /// An unknown key, with the keys that are valid there.
    Unknown { key: String, known: Vec<String> },
}

impl TranslationNotes {
    /// Adds an error that makes the whole configuration unusable.
    pub(crate) fn error(
        &mut self,
        span: Span,
        key_path: &KeyPath,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        let kind = NoteKind::Error { message: message.into(), help };
        self.0.push(TranslationNote { kind, span, key_path: key_path.clone() });
    }

    /// Adds a warning.
    pub(crate) fn warn(
        &mut self,
        span: Span,
        key_path: &KeyPath,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        let kind = NoteKind::Warning { message: message.into(), help };
        self.0.push(TranslationNote { kind, span, key_path: key_path.clone() });
    }

    /// Adds an unknown key.
    pub(crate) fn unknown(&mut self, key: &str, span: Span, key_path: &KeyPath, known: &[&str]) {
        let known = known.iter().map(|&name| name.to_owned()).collect();
        self.0.push(TranslationNote {
            kind: NoteKind::Unknown { key: key.to_owned(), known },
            span,
            key_path: key_path.clone(),
        });
    }

    /// Reports all notes to the reader.
    pub(crate) fn report_to(self, reader: &mut ConfigReader<'_>) {
        for TranslationNote { kind, span, key_path } in self.0 {
            match kind {
                NoteKind::Error { message, help } => reader.error(span, &key_path, message, help),
                NoteKind::Warning { message, help } => reader.warn(span, &key_path, message, help),
                NoteKind::Unknown { key, known } => {
                    let known: Vec<&str> = known.iter().map(String::as_str).collect();
                    reader.unknown_key(&key, span, &key_path, &known);
                }
            }
        }
    }
}
