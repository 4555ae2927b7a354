//! Several sources of one configuration, put together: each says what is other than in those below it.
//!
//! From the lowest: what is built in, the file of the user, the file of the project or those that somebody names, the
//! environment, and single settings of the command line. Every source is first put into our own words; what comes of
//! that is merged and then read once, so each value is told with the place that it is from.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::configuration::{Configuration, Effective};
use crate::dialect::{self, Dialect, Place, Remarks, native};
use crate::error::ConfigurationError;
use crate::inputs::WantedInput;
use crate::problem::{Problem, Severity};
use crate::read::{self, Reader};
use crate::source::{Format, Medium, Source, Text};
use crate::tree::{self, Node, Parsed, Span, Twin, Value};

mod merge;
mod setting;
mod view;

use setting::Written;
pub use view::View;

/// What a user's file holds beside settings. Whoever names the files that are to be used wants the tools of these alone.
const OF_USER_ALONE: [&str; 3] = ["toolboxes", "profiles", "inputs"];

/// The sources of a configuration. They may be added in any order: what each counts for is in its kind.
///
/// ```
/// use pegboard_config::{Layers, load_layers};
///
/// # let folder = tempfile::tempdir()?;
/// let project = folder.path().join("pegboard.yaml");
/// std::fs::write(&project, "toolTimeout: 30s\nmcpServers: {clock: {command: clock-server}}")?;
/// let layers = Layers::new(folder.path())
///     .project(&project)
///     .environment([("PEGBOARD__TOOL_TIMEOUT", "1m")])
///     .set("mcpServers.clock.queue=slow")
///     .set("queues.slow.concurrent=1");
/// let configuration = load_layers(&layers, &|_| None)?;
/// assert_eq!(configuration.settings.tool_timeout.to_string(), "1m");
/// assert_eq!(configuration.settings.queues["slow"].max_concurrency, Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Layers {
    /// Where paths begin that are in no file.
    folder: PathBuf,
    layers: Vec<Layer>,
}

#[derive(Clone, Debug)]
struct Layer {
    rank: Rank,
    given: Given,
}

/// What a source counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    User,
    Project,
    Named,
    Environment,
    Setting,
}

#[derive(Clone, Debug)]
enum Given {
    File { path: PathBuf, view: View },
    Text { path: PathBuf, text: String },
    Value { name: String, value: Json },
    Variable { name: String, value: String },
    Setting(String),
}

impl Layers {
    /// No sources yet. Paths that are in no file begin in `folder`.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), layers: Vec::new() }
    }

    /// The file of the user, which holds for all projects. If files are named, only its settings count: whoever names
    /// files wants the tools of these.
    #[must_use]
    pub fn user(self, path: &Path) -> Self {
        self.with(Rank::User, Given::File { path: path.to_owned(), view: View::default() })
    }

    /// The file of the project.
    #[must_use]
    pub fn project(self, path: &Path) -> Self {
        self.with(Rank::Project, Given::File { path: path.to_owned(), view: View::default() })
    }

    /// A file that somebody names. Of several the later counts before the earlier.
    #[must_use]
    pub fn file(self, path: &Path) -> Self {
        self.with(Rank::Named, Given::File { path: path.to_owned(), view: View::default() })
    }

    /// What a file that somebody names would say if this were in it. Nothing is read.
    #[must_use]
    pub fn text(self, path: &Path, text: impl Into<String>) -> Self {
        self.with(Rank::Named, Given::Text { path: path.to_owned(), text: text.into() })
    }

    /// A part of a file that somebody names, or the file as it is seen from a folder.
    #[must_use]
    pub fn part(self, path: &Path, view: View) -> Self {
        self.with(Rank::Named, Given::File { path: path.to_owned(), view })
    }

    /// What no file holds, in our own words, as if it were a file that somebody names. `name` is what it is called in
    /// messages.
    #[must_use]
    pub fn value(self, name: impl Into<String>, value: Json) -> Self {
        self.with(Rank::Named, Given::Value { name: name.into(), value })
    }

    /// The variables of the environment, of which those count whose names begin with `PEGBOARD__`.
    #[must_use]
    pub fn environment<N: Into<String>, V: Into<String>>(
        mut self,
        variables: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut named: Vec<(String, String)> = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()))
            .filter(|(name, _)| name.starts_with(setting::PREFIX))
            .collect();
        // The system gives them in any order.
        named.sort();
        for (name, value) in named {
            self = self.with(Rank::Environment, Given::Variable { name, value });
        }
        self
    }

    /// A single setting: `toolTimeout=30s`, `mcpServers.github.enabled=false`.
    #[must_use]
    pub fn set(self, setting: impl Into<String>) -> Self {
        self.with(Rank::Setting, Given::Setting(setting.into()))
    }

    fn with(mut self, rank: Rank, given: Given) -> Self {
        self.layers.push(Layer { rank, given });
        self
    }

    /// All files among them, from the lowest.
    pub fn files(&self) -> Vec<&Path> {
        let files = self.ordered().into_iter().filter_map(|layer| match &layer.given {
            Given::File { path, .. } | Given::Text { path, .. } => Some(path.as_path()),
            Given::Value { .. } | Given::Variable { .. } | Given::Setting(_) => None,
        });
        files.collect()
    }

    fn ordered(&self) -> Vec<&Layer> {
        let mut ordered: Vec<&Layer> = self.layers.iter().collect();
        ordered.sort_by_key(|layer| layer.rank);
        ordered
    }
}

/// Reads a configuration from all of its sources.
///
/// Variables come from `environment` alone; the process's own is not looked at.
pub fn load_layers(
    layers: &Layers,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Configuration, ConfigurationError> {
    let Stack { texts, root, twins, remarks, sources, refusals, .. } = Stack::of(layers)?;
    if !refusals.is_empty() {
        return Err(ConfigurationError::Invalid { problems: refusals });
    }
    let mut configuration = Configuration::default();
    let mut reader = Reader::new(&texts, environment, &root, &twins);
    remarks.tell(&mut reader);
    native::read(&mut reader, &root, &mut configuration);
    let inputs = native::inputs(&mut reader, &root);
    let findings = reader.finish();
    if !findings.of_file.is_empty() {
        let mut problems = findings.of_file;
        // What was said of a place for the file is not said again for a part of it.
        let place =
            |problem: &Problem| (problem.file.clone(), problem.line, problem.column, problem.path.clone());
        let said: Vec<_> = problems.iter().map(place).collect();
        problems.extend(findings.of_parts.into_iter().filter(|problem| !said.contains(&place(problem))));
        read::sort(&mut problems, &texts);
        return Err(ConfigurationError::Invalid { problems });
    }
    configuration.watched =
        sources.iter().map(|source| source.path.clone()).chain(findings.watched).collect();
    configuration.sources = sources;
    configuration.problems = findings.of_parts;
    configuration.secrets = findings.secrets;
    let wanted = findings.wanted.iter().map(|(id, variable)| WantedInput::new(id, variable, inputs.get(id)));
    configuration.wants_inputs = wanted.collect();
    configuration.effective = Effective { root: Some(root), texts };
    Ok(configuration)
}

/// What the sources say, in our own words and with nothing filled in.
pub(crate) struct Read {
    pub(crate) root: Node,
    pub(crate) texts: Vec<Text>,
    pub(crate) sources: Vec<Source>,
}

/// Reads what the sources say, and fills in nothing.
pub(crate) fn read_layers(layers: &Layers) -> Result<Read, ConfigurationError> {
    let Stack { root, texts, sources, refusals, .. } = Stack::of(layers)?;
    if refusals.is_empty() {
        Ok(Read { root, texts, sources })
    } else {
        Err(ConfigurationError::Invalid { problems: refusals })
    }
}

/// What the sources come to, one upon the other.
struct Stack {
    texts: Vec<Text>,
    root: Node,
    twins: Vec<Twin>,
    remarks: Remarks,
    sources: Vec<Source>,
    /// Why single files are no trees.
    refusals: Vec<Problem>,
    folder: PathBuf,
}

impl Stack {
    fn of(layers: &Layers) -> Result<Self, ConfigurationError> {
        let folder = std::path::absolute(&layers.folder).unwrap_or_else(|_| layers.folder.clone());
        let mut stack = Self {
            texts: Vec::new(),
            root: Node::new(Span::default(), Value::Map(Vec::new())),
            twins: Vec::new(),
            remarks: Remarks::default(),
            sources: Vec::new(),
            refusals: Vec::new(),
            folder,
        };
        let ordered = layers.ordered();
        let is_named = ordered.iter().any(|layer| layer.rank == Rank::Named);
        for layer in ordered {
            match &layer.given {
                Given::File { path, view } => {
                    let text = Text::read(path)?;
                    let Some(mut root) = stack.read_text(text, layer.rank, view)? else { continue };
                    if let (Rank::User, true, Value::Map(entries)) = (layer.rank, is_named, &mut root.value) {
                        let is_tool =
                            |key: &str| OF_USER_ALONE.contains(&key) || native::SECTIONS.contains(&key);
                        entries.retain(|entry| !is_tool(&entry.key));
                    }
                    stack.add(root);
                }
                Given::Text { path, text } => {
                    if let Some(root) =
                        stack.read_text(Text::new(path, text.clone()), layer.rank, &View::default())?
                    {
                        stack.add(root);
                    }
                }
                Given::Value { name, value } => stack.add_value(name, value),
                Given::Variable { name, value } => {
                    let index = stack.setting_text(name, format!("{name}={value}"));
                    let text = Written { body: &stack.texts[index].body, index };
                    if let Some(root) = setting::of_variable(name, text, &stack.root, &mut stack.remarks) {
                        stack.add_setting(root);
                    }
                }
                Given::Setting(written) => {
                    let name = written.split('=').next().unwrap_or_default();
                    let index = stack.setting_text(format!("--set {name}").trim_end(), written.clone());
                    let text = Written { body: &stack.texts[index].body, index };
                    if let Some(root) = setting::of_text(text, &mut stack.remarks) {
                        stack.add_setting(root);
                    }
                }
            }
        }
        merge::drop_nothing(&mut stack.root, &stack.texts);
        Ok(stack)
    }

    /// Reads what is in a file, and gives what it says in our own words. A user's file may have nothing in it.
    fn read_text(
        &mut self,
        mut text: Text,
        rank: Rank,
        view: &View,
    ) -> Result<Option<Node>, ConfigurationError> {
        let path = &text.path.clone();
        let format = Format::of(path, &text.body);
        if dialect::is_agent(path, &text.body) {
            let root = dialect::agent(path, Span { text: self.texts.len(), ..Span::default() });
            text.veil(&root);
            self.sources.push(Source { path: path.to_owned(), format, dialect: Dialect::Agent });
            self.texts.push(text);
            return Ok(Some(view.of(root)));
        }
        let mut parsed = match tree::parse(&text.body, format) {
            Ok(Some(parsed)) => parsed,
            Ok(None) if rank == Rank::User || view.project.is_some() => return Ok(None),
            Ok(None) => return Err(ConfigurationError::Empty { path: path.to_owned() }),
            Err(error) => {
                let at = (error.span, String::new());
                self.refusals.push(text.problem(Severity::Error, at, error.message, error.help));
                return Ok(None);
            }
        };
        parsed.settle(self.texts.len());
        let Parsed { root, twins } = parsed;
        self.twins.extend(twins);
        text.veil(&root);
        let dialect = Dialect::of(path, &root);
        text.strictness = dialect.strictness(path, &root);
        text.label = dialect.label();
        self.sources.push(Source { path: path.to_owned(), format, dialect });
        if root.entries().is_none() {
            let message = format!("a configuration is an object of settings, not {}", root.kind());
            self.remarks.error(root.span, &crate::path::Path::default(), message, None);
            self.texts.push(text);
            return Ok(None);
        }
        let place = Place { path, project: view.project.as_deref() };
        text.written = dialect.is_translated().then(|| root.clone());
        let root = dialect.translate(root, &place, &mut self.remarks);
        text.veil(&root);
        let is_one =
            dialect != Dialect::Native || native::is_configuration(&root, text.strictness, &mut self.remarks);
        self.texts.push(text);
        Ok(is_one.then(|| view.of(root)))
    }

    fn add_value(&mut self, name: &str, value: &Json) {
        let body = serde_json::to_string_pretty(value).unwrap_or_default();
        let index = self.setting_text(name, body);
        let text = &mut self.texts[index];
        match tree::parse(&text.body, Format::Json) {
            Ok(Some(mut parsed)) => {
                parsed.settle(index);
                text.veil(&parsed.root);
                self.add(parsed.root);
            }
            Ok(None) => {}
            Err(error) => {
                let at = (error.span, String::new());
                self.refusals.push(text.problem(Severity::Error, at, error.message, error.help));
            }
        }
    }

    /// A text that is in no file.
    fn setting_text(&mut self, name: &str, body: String) -> usize {
        let mut text = Text::new(Path::new(name), body);
        text.medium = Medium::Setting;
        text.folder.clone_from(&self.folder);
        self.texts.push(text);
        self.texts.len() - 1
    }

    fn add_setting(&mut self, root: Node) {
        self.texts[root.span.text].veil(&root);
        self.add(root);
    }

    /// Puts a tree upon those before it.
    fn add(&mut self, mut root: Node) {
        native::move_defaults(&mut root);
        let below = std::mem::replace(&mut self.root, Node::new(root.span, Value::Null));
        let is_first = matches!(&below.value, Value::Map(entries) if entries.is_empty());
        let is_file = self.texts[root.span.text].medium == Medium::File;
        self.root = if is_first && is_file { root } else { merge::merge(below, root, &self.texts) };
    }
}
