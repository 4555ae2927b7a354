//! Agent files: one file per agent, with a settings header and a prompt.
//!
//! An agent may reference other agents, which are loaded with it. A problem in one file makes that agent and
//! its dependents unusable; all problems are reported at once, with their locations.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

use indexmap::IndexMap;
use pegboard_core::id::ToolName;
use pegboard_core::settings::agent::AgentSettings;

use crate::configuration::AgentEntry;
use crate::error::ConfigurationError;
use crate::path::{KeyPath, KeySegment};
use crate::problem::{ConfigProblem, Severity};
use crate::read::ConfigReader;
use crate::source::{ConfigFormat, SourceText};
use crate::tree::{self, Node, ParsedTree, Span, Value};

pub(crate) mod glob;
mod header;
mod prompt;
mod schemas;

use header::AgentHeader;
use prompt::{AgentFileParts, IncludeExpander, file_name};
use schemas::SchemaReader;

/// Maximum number of agents loaded together.
const MAX_AGENTS: usize = 1_000;
/// Maximum nesting depth of agent references.
const MAX_DEPTH: usize = 32;
/// Maximum length of an agent's name.
const MAX_NAME: usize = 200;
/// Tool names reserved by the built-in tools of every agent.
const RESERVED_TOOL_NAMES: [&str; 3] = ["batch", "final_report", "task_status"];

/// An agent with all agents that it references, directly or indirectly.
#[derive(Clone, Debug)]
pub struct AgentFile {
    /// Name of the agent itself.
    pub name: ToolName,
    /// All loaded agents by name.
    pub agents: IndexMap<ToolName, AgentSettings>,
    /// Warnings found while loading.
    pub warnings: Vec<ConfigProblem>,
}

/// Loads an agent from a file, with all agents that it references.
///
/// Files included in its prompt must be inside `project`, or inside its own directory if that is elsewhere.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("Terse Writer.md");
/// std::fs::write(&path, "---
/// description: Says it in one sentence
/// models: [local/llama-4]
/// maxTurns: 3
/// ---
/// Answer in one sentence.
/// ")?;
/// let file = pegboard_config::load_agent(&path, folder.path())?;
/// let agent = &file.agents[&file.name];
/// assert_eq!((file.name.as_str(), agent.max_turns), ("terse_writer", 3));
/// assert_eq!(agent.prompt, "Answer in one sentence.");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn load_agent(path: &Path, project: &Path) -> Result<AgentFile, ConfigurationError> {
    // Errors of the file itself are reported as for any other file.
    SourceText::read(path)?;
    let mut agents = AgentLoader::new(project);
    let loaded = agents.load(path, AgentReference::Agent);
    let (entries, problems) = agents.finish();
    let Ok(name) = loaded else { return Err(ConfigurationError::Invalid { problems }) };
    let usable = entries.into_iter().filter_map(|(name, entry)| match entry {
        AgentEntry::Usable(settings) => Some((name, *settings)),
        AgentEntry::Unusable { .. } => None,
    });
    Ok(AgentFile { name, agents: usable.collect(), warnings: problems })
}

/// Loads agents that share one namespace, so that every name is unique.
pub(crate) struct AgentLoader {
    project: PathBuf,
    /// Loaded agents by canonical path.
    loaded: IndexMap<PathBuf, LoadedAgent>,
    names: HashMap<ToolName, PathBuf>,
    /// Agents being loaded, each referenced by the one before it.
    stack: Vec<LoadFrame>,
    problems: Vec<ConfigProblem>,
    /// Every path that was looked up, whether it exists or not.
    files: Vec<PathBuf>,
}

struct LoadedAgent {
    name: ToolName,
    entry: AgentEntry,
}

struct LoadFrame {
    path: PathBuf,
    name: ToolName,
    /// Kind of reference from the preceding agent.
    reference: AgentReference,
    /// Referenced agents that cannot be used.
    unusable: Vec<ToolName>,
}

/// The kind of reference from one agent to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentReference {
    /// Called like a tool.
    Agent,
    /// Takes over the session.
    Handoff,
}

/// Error of loading a referenced agent.
pub(crate) enum AgentLoadError {
    /// The agent is invalid; the details are reported for its own file.
    Unusable(ToolName),
    /// The reference itself is invalid.
    Invalid { message: String, help: String },
}

impl AgentLoadError {
    fn wrong(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Invalid { message: message.into(), help: help.into() }
    }

    /// Returns the message and the help text.
    fn into_message_and_help(self) -> (String, String) {
        match self {
            Self::Unusable(name) => (
                format!("the agent '{name}' cannot be used"),
                "fix the problems reported for its file".to_owned(),
            ),
            Self::Invalid { message, help } => (message, help),
        }
    }
}

impl AgentLoader {
    pub(crate) fn new(project: &Path) -> Self {
        Self {
            project: project.canonicalize().unwrap_or_else(|_| project.to_owned()),
            loaded: IndexMap::new(),
            names: HashMap::new(),
            stack: Vec::new(),
            problems: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Takes the list of every path that was looked up.
    pub(crate) fn take_files(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.files)
    }

    /// Returns all agents and all problems.
    pub(crate) fn finish(self) -> (IndexMap<ToolName, AgentEntry>, Vec<ConfigProblem>) {
        let mut entries: IndexMap<ToolName, AgentEntry> = IndexMap::new();
        for LoadedAgent { name, entry } in self.loaded.into_values() {
            // Of two agents with the same name at most one is usable.
            let is_better = matches!(entry, AgentEntry::Usable(_));
            if is_better || !entries.contains_key(&name) {
                entries.insert(name, entry);
            }
        }
        (entries, self.problems)
    }

    /// Loads an agent and those that it references, unless it is loaded already. Problems of its file are
    /// recorded; the caller learns only that it cannot be used.
    pub(crate) fn load(
        &mut self,
        display_path: &Path,
        reference: AgentReference,
    ) -> Result<ToolName, AgentLoadError> {
        self.files.push(display_path.to_owned());
        let path = display_path.canonicalize().map_err(|_| {
            let help = "check the path; it is relative to the directory of this file";
            AgentLoadError::wrong(format!("no such agent file: {}", display_path.display()), help)
        })?;
        self.check_cycle(&path, display_path, reference)?;
        if let Some(loaded) = self.loaded.get(&path) {
            return match loaded.entry {
                AgentEntry::Usable(_) => Ok(loaded.name.clone()),
                AgentEntry::Unusable { .. } => Err(AgentLoadError::Unusable(loaded.name.clone())),
            };
        }
        if self.loaded.len() >= MAX_AGENTS || self.stack.len() >= MAX_DEPTH {
            let message =
                format!("more than {MAX_AGENTS} agents, or references nested deeper than {MAX_DEPTH} levels");
            return Err(AgentLoadError::wrong(message, "reference fewer agents"));
        }
        let text = SourceText::read(display_path)
            .map_err(|error| AgentLoadError::wrong(error.to_string(), "use another file"))?;
        let mut source = match AgentSource::open(text) {
            Ok(source) => source,
            Err(problem) => {
                return self.record(
                    path.clone(),
                    tool_name_from_path(&path),
                    Err((vec![*problem], Vec::new())),
                );
            }
        };
        self.read(&mut source, path, display_path, reference)
    }

    fn read(
        &mut self,
        source: &mut AgentSource,
        path: PathBuf,
        display_path: &Path,
        reference: AgentReference,
    ) -> Result<ToolName, AgentLoadError> {
        let mut reader = ConfigReader::new(
            from_ref(&source.text),
            &|_| None,
            &source.parsed.root,
            &source.parsed.duplicates,
        );
        let root = &source.parsed.root;
        let header = AgentHeader::read(&mut reader, root);
        let name = header.as_ref().and_then(|header| tool_name_from_header(&mut reader, root, header));
        let name = name.unwrap_or_else(|| tool_name_from_path(&path));
        if let Some(other) = self.names.get(&name).filter(|other| **other != path) {
            let message = format!("Duplicate sub-agent tool name '{name}' detected during preload.");
            let help = format!("set a toolName that differs from that of {}", other.display());
            return Err(AgentLoadError::wrong(message, help));
        }
        if RESERVED_TOOL_NAMES.contains(&name.as_str()) {
            let key_path = KeyPath::default().key("toolName");
            let span = root.get("toolName").unwrap_or(root).span;
            let message = format!("agent__{name} is reserved for a built-in tool");
            reader.error(span, &key_path, message, Some("choose another toolName".to_owned()));
        }
        self.names.insert(name.clone(), path.clone());
        let project = if path.starts_with(&self.project) { self.project.clone() } else { parent_dir(&path) };
        let mut unusable = Vec::new();
        let settings = header.map(|header| {
            self.stack.push(LoadFrame {
                path: path.clone(),
                name: name.clone(),
                reference,
                unusable: Vec::new(),
            });
            let settings = self.settings(&mut reader, root, (header, &name), (display_path, &project));
            unusable = self.stack.pop().map(|frame| frame.unusable).unwrap_or_default();
            settings
        });
        let mut expander = IncludeExpander::new(&project, &path);
        let prompt = expander.prompt(&source.text, source.prompt);
        self.files.append(&mut expander.files);
        if prompt.is_empty() && expander.problems.is_empty() {
            let end = Span::new(source.text.body.len(), source.text.body.len());
            let help = Some("write the prompt below the header".to_owned());
            reader.error(end, &KeyPath::default(), "the agent has no prompt", help);
        }
        let report = reader.finish();
        self.files.extend(report.watched);
        let is_invalid = !report.file_problems.is_empty() || !expander.problems.is_empty();
        let problems: Vec<ConfigProblem> =
            report.file_problems.into_iter().chain(report.part_problems).chain(expander.problems).collect();
        match settings.filter(|_| !is_invalid) {
            Some(settings) => {
                self.problems.extend(problems);
                let settings = AgentSettings { path: path.clone(), prompt, ..settings };
                self.record(path, name, Ok(settings))
            }
            None => self.record(path, name, Err((problems, unusable))),
        }
    }

    fn record(
        &mut self,
        path: PathBuf,
        name: ToolName,
        agent: Result<AgentSettings, (Vec<ConfigProblem>, Vec<ToolName>)>,
    ) -> Result<ToolName, AgentLoadError> {
        let (entry, answer) = match agent {
            Ok(settings) => (AgentEntry::Usable(Box::new(settings)), Ok(name.clone())),
            Err((problems, needs)) => {
                self.problems.extend(problems.iter().cloned());
                (
                    AgentEntry::Unusable { path: path.clone(), needs, problems },
                    Err(AgentLoadError::Unusable(name.clone())),
                )
            }
        };
        self.loaded.insert(path, LoadedAgent { name, entry });
        answer
    }

    /// Checks that the agent is not being loaded already, which would be a reference cycle.
    fn check_cycle(
        &self,
        path: &Path,
        display_path: &Path,
        reference: AgentReference,
    ) -> Result<(), AgentLoadError> {
        let Some(first) = self.stack.iter().position(|frame| frame.path == path) else { return Ok(()) };
        let cycle = &self.stack[first..];
        let is_handoff_cycle = reference == AgentReference::Handoff
            && cycle[1..].iter().all(|frame| frame.reference == AgentReference::Handoff);
        if !is_handoff_cycle {
            let message = format!("Recursion detected while loading sub-agent: {}", display_path.display());
            return Err(AgentLoadError::wrong(message, "remove the reference that closes the cycle"));
        }
        let names: Vec<&str> = cycle.iter().chain([&cycle[0]]).map(|frame| frame.name.as_str()).collect();
        let message = format!("Orchestration cycle detected: {}.", names.join(" -> "));
        Err(AgentLoadError::wrong(message, "remove one of the handoffs"))
    }

    /// Builds the settings of an agent, including everything its header references in other files.
    fn settings(
        &mut self,
        reader: &mut ConfigReader<'_>,
        root: &Node,
        (header, name): (AgentHeader, &ToolName),
        (display_path, project): (&Path, &Path),
    ) -> AgentSettings {
        let folder = parent_dir(display_path);
        let mut load_referenced = |reader: &mut ConfigReader<'_>, keys: &[&str], reference| {
            self.load_referenced(reader, root, keys, (&folder, reference))
        };
        let agents = load_referenced(reader, &["agents"], AgentReference::Agent);
        let destinations = load_referenced(reader, &["router", "destinations"], AgentReference::Handoff);
        let handoff = load_referenced(reader, &["handoff"], AgentReference::Handoff).into_iter().next();
        let mut schemas = SchemaReader { reader, root, folder: &folder, project };
        let (input, output) = (schemas.input(&header.input), schemas.output(&header.output));
        AgentSettings { agents, destinations, handoff, input, output, ..header.settings(name.clone()) }
    }

    /// Loads the agents that the header references under one key.
    fn load_referenced(
        &mut self,
        reader: &mut ConfigReader<'_>,
        root: &Node,
        keys: &[&str],
        (folder, reference): (&Path, AgentReference),
    ) -> Vec<ToolName> {
        let (mut found, mut key_path) = (root, KeyPath::default());
        for key in keys {
            let Some(inner) = found.get(key) else { return Vec::new() };
            (found, key_path) = (inner, key_path.key(key));
        }
        let items: Vec<(&Node, KeyPath)> = match &found.value {
            Value::List(items) => items
                .iter()
                .enumerate()
                .map(|(index, item)| (item, key_path.segment(KeySegment::Index(index))))
                .collect(),
            _ => vec![(found, key_path)],
        };
        let mut names = Vec::new();
        for (item, key_path) in items {
            // A value of another type was reported already.
            let Value::Text(written) = &item.value else { continue };
            match self.load(&folder.join(written), reference) {
                Ok(name) if names.contains(&name) => {
                    let help = Some("remove one of them".to_owned());
                    reader.error(item.span, &key_path, format!("duplicate agent '{name}'"), help);
                }
                Ok(name) => names.push(name),
                Err(error) => {
                    if let (AgentLoadError::Unusable(name), Some(frame)) = (&error, self.stack.last_mut()) {
                        frame.unusable.push(name.clone());
                    }
                    let (message, help) = error.into_message_and_help();
                    reader.error(item.span, &key_path, message, Some(help));
                }
            }
        }
        names
    }
}

/// The parsed text of an agent file.
struct AgentSource {
    text: SourceText,
    parsed: ParsedTree,
    prompt: usize,
}

impl AgentSource {
    fn open(mut text: SourceText) -> Result<Self, Box<ConfigProblem>> {
        let wrong = |text: &SourceText, span, message: String, help| {
            Box::new(text.problem(Severity::Error, (span, String::new()), message, help))
        };
        let parts = match AgentFileParts::of(&text.body) {
            Ok(parts) => parts,
            Err((span, message)) => {
                // Without a header there are no values to redact.
                text.redact(&Node::new(Span::default(), Value::Null));
                let help = "start the file with ---, settings such as models, and another ---";
                return Err(wrong(&text, span, message.to_owned(), Some(help.to_owned())));
            }
        };
        let parsed = match tree::parse(&text.body[..parts.header_end], ConfigFormat::Yaml) {
            Ok(parsed) => parsed,
            Err(error) => return Err(wrong(&text, error.span, error.message, error.help)),
        };
        let empty = || ParsedTree {
            root: Node::new(Span::new(0, 0), Value::Map(Vec::new())),
            duplicates: Vec::new(),
        };
        let parsed = parsed.unwrap_or_else(empty);
        text.redact(&parsed.root);
        Ok(Self { text, parsed, prompt: parts.prompt })
    }
}

/// Returns the directory of a file.
fn parent_dir(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_owned()
}

/// Returns the tool name given in the header, if it is valid.
fn tool_name_from_header(
    reader: &mut ConfigReader<'_>,
    root: &Node,
    header: &AgentHeader,
) -> Option<ToolName> {
    let written = header.tool_name.as_deref()?;
    let name = to_tool_name(written);
    if name.is_none() {
        let key_path = KeyPath::default().key("toolName");
        let span = root.get("toolName").unwrap_or(root).span;
        let help = Some("use letters, digits, '-' and '_'".to_owned());
        reader.error(span, &key_path, "invalid name: it has no letters or digits", help);
    }
    name
}

/// Returns the tool name derived from the file name.
fn tool_name_from_path(path: &Path) -> ToolName {
    let name = file_name(path);
    let base = name.rsplit_once('.').map_or(name.as_str(), |(base, _)| base);
    to_tool_name(base).unwrap_or_else(|| ToolName::new("agent").expect("the name is valid"))
}

/// Converts a text to a tool name: lower case, with only letters, digits, `-` and `_`.
fn to_tool_name(text: &str) -> Option<ToolName> {
    let is_plain = |each: char| each.is_ascii_alphanumeric() || matches!(each, '-' | '_');
    let parts: Vec<&str> = text.split(|each| !is_plain(each)).filter(|part| !part.is_empty()).collect();
    let name: String = parts.join("_").to_lowercase().chars().take(MAX_NAME).collect();
    ToolName::new(name.trim_start_matches(['-', '_'])).ok()
}
