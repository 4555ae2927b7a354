//! Agents: each a file of its own, with a header that says what it is and a prompt that says what it does.
//!
//! Agents may name others, which are read with them. Whatever is wrong with one leaves out that one and those that need
//! it; all of it is told at once, with its place.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

use indexmap::IndexMap;
use pegboard_core::id::ToolName;
use pegboard_core::settings::agent::AgentSettings;

use crate::configuration::AgentEntry;
use crate::error::ConfigurationError;
use crate::path::{Path as Way, Step};
use crate::problem::{Problem, Severity};
use crate::read::Reader;
use crate::source::{Format, Text};
use crate::tree::{self, Node, Parsed, Span, Value};

mod header;
pub(crate) mod pattern;
mod prompt;
mod schemas;

use header::Header;
use prompt::{Inclusion, Parts, name_of};
use schemas::Schemas;

/// How many agents are read together.
const MAX_AGENTS: usize = 1_000;
/// How deep agents may name one another.
const MAX_DEPTH: usize = 32;
/// How long the name of an agent may be.
const MAX_NAME: usize = 200;
/// Names that tools of the same server have already.
const TAKEN: [&str; 3] = ["batch", "final_report", "task_status"];

/// One agent with all those that it names, and that those name.
#[derive(Clone, Debug)]
pub struct AgentFile {
    /// The agent itself.
    pub name: ToolName,
    /// All of them, by name.
    pub agents: IndexMap<ToolName, AgentSettings>,
    /// What is worth a warning.
    pub warnings: Vec<Problem>,
}

/// Reads an agent from a file, with all those that it names.
///
/// What it puts into its prompt must be in `project`, or in its own folder if that is elsewhere.
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
    // What is wrong with the file as a file is told as for any other.
    Text::read(path)?;
    let mut agents = Agents::new(project);
    let loaded = agents.load(path, Edge::Agent);
    let (entries, problems) = agents.finish();
    let Ok(name) = loaded else { return Err(ConfigurationError::Invalid { problems }) };
    let usable = entries.into_iter().filter_map(|(name, entry)| match entry {
        AgentEntry::Usable(settings) => Some((name, *settings)),
        AgentEntry::Unusable { .. } => None,
    });
    Ok(AgentFile { name, agents: usable.collect(), warnings: problems })
}

/// All agents that are read together, so that no name is there twice.
pub(crate) struct Agents {
    project: PathBuf,
    /// By where they are, with all links followed.
    loaded: IndexMap<PathBuf, Loaded>,
    names: HashMap<ToolName, PathBuf>,
    /// Those that are being read, each named by the one before it.
    trail: Vec<Stop>,
    problems: Vec<Problem>,
    /// Every file that was looked for, whether it is there or not.
    files: Vec<PathBuf>,
}

struct Loaded {
    name: ToolName,
    entry: AgentEntry,
}

struct Stop {
    path: PathBuf,
    name: ToolName,
    /// How the one before it names it.
    edge: Edge,
    /// Those that it names and that cannot be used.
    unusable: Vec<ToolName>,
}

/// How an agent names another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edge {
    /// As one that it calls like a tool.
    Agent,
    /// As one that takes over from it.
    Successor,
}

/// Why an agent that somebody names cannot be had.
pub(crate) enum Refusal {
    /// Something is wrong with it, which is told with its own file.
    Unusable(ToolName),
    /// It cannot be named here.
    Wrong { message: String, help: String },
}

impl Refusal {
    fn wrong(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Wrong { message: message.into(), help: help.into() }
    }

    /// What is wrong, and what to do.
    fn words(self) -> (String, String) {
        match self {
            Self::Unusable(name) => (
                format!("the agent '{name}' cannot be used"),
                "correct it; what is wrong is told of its file".to_owned(),
            ),
            Self::Wrong { message, help } => (message, help),
        }
    }
}

impl Agents {
    pub(crate) fn new(project: &Path) -> Self {
        Self {
            project: project.canonicalize().unwrap_or_else(|_| project.to_owned()),
            loaded: IndexMap::new(),
            names: HashMap::new(),
            trail: Vec::new(),
            problems: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Every file that was looked for.
    pub(crate) fn take_files(&mut self) -> Vec<PathBuf> {
        std::mem::take(&mut self.files)
    }

    /// All agents, and all that is wrong with them.
    pub(crate) fn finish(self) -> (IndexMap<ToolName, AgentEntry>, Vec<Problem>) {
        let mut entries: IndexMap<ToolName, AgentEntry> = IndexMap::new();
        for Loaded { name, entry } in self.loaded.into_values() {
            // Of two with one name at most one can be used.
            let is_better = matches!(entry, AgentEntry::Usable(_));
            if is_better || !entries.contains_key(&name) {
                entries.insert(name, entry);
            }
        }
        (entries, self.problems)
    }

    /// Reads an agent and those that it names, unless it is there already. What is wrong with its file is kept; whoever
    /// names it is told that it cannot be used.
    pub(crate) fn load(&mut self, shown: &Path, edge: Edge) -> Result<ToolName, Refusal> {
        self.files.push(shown.to_owned());
        let path = shown.canonicalize().map_err(|_| {
            let help = "check the path; it begins in the folder of this file";
            Refusal::wrong(format!("there is no agent {}", shown.display()), help)
        })?;
        self.check_round(&path, shown, edge)?;
        if let Some(loaded) = self.loaded.get(&path) {
            return match loaded.entry {
                AgentEntry::Usable(_) => Ok(loaded.name.clone()),
                AgentEntry::Unusable { .. } => Err(Refusal::Unusable(loaded.name.clone())),
            };
        }
        if self.loaded.len() >= MAX_AGENTS || self.trail.len() >= MAX_DEPTH {
            let message = format!(
                "there are more than {MAX_AGENTS} agents, or more than {MAX_DEPTH} that name one another in a row"
            );
            return Err(Refusal::wrong(message, "name fewer"));
        }
        let text =
            Text::read(shown).map_err(|error| Refusal::wrong(error.to_string(), "name another file"))?;
        let mut page = match Page::open(text) {
            Ok(page) => page,
            Err(problem) => {
                return self.keep(path.clone(), base_name(&path), Err((vec![*problem], Vec::new())));
            }
        };
        self.read(&mut page, path, shown, edge)
    }

    fn read(
        &mut self,
        page: &mut Page,
        path: PathBuf,
        shown: &Path,
        edge: Edge,
    ) -> Result<ToolName, Refusal> {
        let mut reader = Reader::new(from_ref(&page.text), &|_| None, &page.parsed.root, &page.parsed.twins);
        let root = &page.parsed.root;
        let header = Header::read(&mut reader, root);
        let name = header.as_ref().and_then(|header| name_from(&mut reader, root, header));
        let name = name.unwrap_or_else(|| base_name(&path));
        if let Some(other) = self.names.get(&name).filter(|other| **other != path) {
            let message = format!("Duplicate sub-agent tool name '{name}' detected during preload.");
            let help = format!("give it another toolName than {} has", other.display());
            return Err(Refusal::wrong(message, help));
        }
        if TAKEN.contains(&name.as_str()) {
            let way = Way::default().key("toolName");
            let span = root.get("toolName").unwrap_or(root).span;
            let message = format!("agent__{name} is a tool that every agent has");
            reader.error(span, &way, message, Some("give it another toolName".to_owned()));
        }
        self.names.insert(name.clone(), path.clone());
        let project = if path.starts_with(&self.project) { self.project.clone() } else { folder_of(&path) };
        let mut unusable = Vec::new();
        let settings = header.map(|header| {
            self.trail.push(Stop { path: path.clone(), name: name.clone(), edge, unusable: Vec::new() });
            let settings = self.settings(&mut reader, root, (header, &name), (shown, &project));
            unusable = self.trail.pop().map(|stop| stop.unusable).unwrap_or_default();
            settings
        });
        let mut inclusion = Inclusion::new(&project, &path);
        let prompt = inclusion.prompt(&page.text, page.prompt);
        self.files.append(&mut inclusion.files);
        if prompt.is_empty() && inclusion.problems.is_empty() {
            let end = Span::new(page.text.body.len(), page.text.body.len());
            let help = Some("say below the header what it should do".to_owned());
            reader.error(end, &Way::default(), "the agent has no prompt", help);
        }
        let findings = reader.finish();
        self.files.extend(findings.watched);
        let is_wrong = !findings.of_file.is_empty() || !inclusion.problems.is_empty();
        let problems: Vec<Problem> =
            findings.of_file.into_iter().chain(findings.of_parts).chain(inclusion.problems).collect();
        match settings.filter(|_| !is_wrong) {
            Some(settings) => {
                self.problems.extend(problems);
                let settings = AgentSettings { path: path.clone(), prompt, ..settings };
                self.keep(path, name, Ok(settings))
            }
            None => self.keep(path, name, Err((problems, unusable))),
        }
    }

    fn keep(
        &mut self,
        path: PathBuf,
        name: ToolName,
        agent: Result<AgentSettings, (Vec<Problem>, Vec<ToolName>)>,
    ) -> Result<ToolName, Refusal> {
        let (entry, answer) = match agent {
            Ok(settings) => (AgentEntry::Usable(Box::new(settings)), Ok(name.clone())),
            Err((problems, needs)) => {
                self.problems.extend(problems.iter().cloned());
                (
                    AgentEntry::Unusable { path: path.clone(), needs, problems },
                    Err(Refusal::Unusable(name.clone())),
                )
            }
        };
        self.loaded.insert(path, Loaded { name, entry });
        answer
    }

    /// Whether an agent is named by one that it names itself.
    fn check_round(&self, path: &Path, shown: &Path, edge: Edge) -> Result<(), Refusal> {
        let Some(first) = self.trail.iter().position(|stop| stop.path == path) else { return Ok(()) };
        let round = &self.trail[first..];
        let is_handed_on =
            edge == Edge::Successor && round[1..].iter().all(|stop| stop.edge == Edge::Successor);
        if !is_handed_on {
            let message = format!("Recursion detected while loading sub-agent: {}", shown.display());
            return Err(Refusal::wrong(message, "let no agent call one that calls it"));
        }
        let names: Vec<&str> = round.iter().chain([&round[0]]).map(|stop| stop.name.as_str()).collect();
        let message = format!("Orchestration cycle detected: {}.", names.join(" -> "));
        Err(Refusal::wrong(message, "let the last of them hand over to nobody"))
    }

    /// The settings of an agent, with all that its header names in other files.
    fn settings(
        &mut self,
        reader: &mut Reader<'_>,
        root: &Node,
        (header, name): (Header, &ToolName),
        (shown, project): (&Path, &Path),
    ) -> AgentSettings {
        let folder = folder_of(shown);
        let mut named =
            |reader: &mut Reader<'_>, keys: &[&str], edge| self.named(reader, root, keys, (&folder, edge));
        let agents = named(reader, &["agents"], Edge::Agent);
        let destinations = named(reader, &["router", "destinations"], Edge::Successor);
        let handoff = named(reader, &["handoff"], Edge::Successor).into_iter().next();
        let mut schemas = Schemas { reader, root, folder: &folder, project };
        let (input, output) = (schemas.input(&header.input), schemas.output(&header.output));
        AgentSettings { agents, destinations, handoff, input, output, ..header.settings(name.clone()) }
    }

    /// Reads the agents that a header names at one place.
    fn named(
        &mut self,
        reader: &mut Reader<'_>,
        root: &Node,
        keys: &[&str],
        (folder, edge): (&Path, Edge),
    ) -> Vec<ToolName> {
        let (mut found, mut way) = (root, Way::default());
        for key in keys {
            let Some(inner) = found.get(key) else { return Vec::new() };
            (found, way) = (inner, way.key(key));
        }
        let items: Vec<(&Node, Way)> = match &found.value {
            Value::List(items) => {
                items.iter().enumerate().map(|(index, item)| (item, way.step(Step::Index(index)))).collect()
            }
            _ => vec![(found, way)],
        };
        let mut names = Vec::new();
        for (item, way) in items {
            // What is no text was told already.
            let Value::Text(written) = &item.value else { continue };
            match self.load(&folder.join(written), edge) {
                Ok(name) if names.contains(&name) => {
                    let help = Some("take one of them away".to_owned());
                    reader.error(item.span, &way, format!("the agent '{name}' is here twice"), help);
                }
                Ok(name) => names.push(name),
                Err(refusal) => {
                    if let (Refusal::Unusable(name), Some(stop)) = (&refusal, self.trail.last_mut()) {
                        stop.unusable.push(name.clone());
                    }
                    let (message, help) = refusal.words();
                    reader.error(item.span, &way, message, Some(help));
                }
            }
        }
        names
    }
}

/// A file that has the parts of an agent file.
struct Page {
    text: Text,
    parsed: Parsed,
    prompt: usize,
}

impl Page {
    fn open(mut text: Text) -> Result<Self, Box<Problem>> {
        let wrong = |text: &Text, span, message: String, help| {
            Box::new(text.problem(Severity::Error, (span, String::new()), message, help))
        };
        let parts = match Parts::of(&text.body) {
            Ok(parts) => parts,
            Err((span, message)) => {
                // There are no values in what is no header.
                text.veil(&Node::new(Span::default(), Value::Null));
                let help = "write a line of three dashes, settings such as models, and another such line";
                return Err(wrong(&text, span, message.to_owned(), Some(help.to_owned())));
            }
        };
        let parsed = match tree::parse(&text.body[..parts.header_end], Format::Yaml) {
            Ok(parsed) => parsed,
            Err(error) => return Err(wrong(&text, error.span, error.message, error.help)),
        };
        let empty = || Parsed { root: Node::new(Span::new(0, 0), Value::Map(Vec::new())), twins: Vec::new() };
        let parsed = parsed.unwrap_or_else(empty);
        text.veil(&parsed.root);
        Ok(Self { text, parsed, prompt: parts.prompt })
    }
}

/// The folder of a file.
fn folder_of(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).to_owned()
}

/// The name that the header gives, if it gives one that can be used.
fn name_from(reader: &mut Reader<'_>, root: &Node, header: &Header) -> Option<ToolName> {
    let written = header.tool_name.as_deref()?;
    let name = plain(written);
    if name.is_none() {
        let way = Way::default().key("toolName");
        let span = root.get("toolName").unwrap_or(root).span;
        let help = Some("use letters, digits, '-' and '_'".to_owned());
        reader.error(span, &way, "this has no character that a name can have", help);
    }
    name
}

/// The name of an agent that has none but that of its file.
fn base_name(path: &Path) -> ToolName {
    let name = name_of(path);
    let base = name.rsplit_once('.').map_or(name.as_str(), |(base, _)| base);
    plain(base).unwrap_or_else(|| ToolName::new("agent").expect("it is a short word"))
}

/// A text as a name: in lower case, with only letters, digits, `-` and `_`.
fn plain(text: &str) -> Option<ToolName> {
    let is_plain = |each: char| each.is_ascii_alphanumeric() || matches!(each, '-' | '_');
    let parts: Vec<&str> = text.split(|each| !is_plain(each)).filter(|part| !part.is_empty()).collect();
    let name: String = parts.join("_").to_lowercase().chars().take(MAX_NAME).collect();
    ToolName::new(name.trim_start_matches(['-', '_'])).ok()
}
