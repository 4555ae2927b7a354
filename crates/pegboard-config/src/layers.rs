//! Merges the sources of a configuration; later layers override earlier ones.
//!
//! From the lowest: built-in defaults, the user's file, the project's file or named files, the environment,
//! and single settings of the command line. Every source is first translated to the native format. The merged
//! tree is then read once, so that every value is reported with its own location.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::Environment;
use crate::configuration::{Configuration, MergedTree};
use crate::dialect::{self, ConfigDialect, FileContext, TranslationNotes, native};
use crate::error::ConfigurationError;
use crate::inputs::MissingInput;
use crate::problem::{ConfigProblem, Severity};
use crate::read::{self, ConfigReader};
use crate::secret_source::{AssumedSecrets, SecretSource, SharedSecretSource};
use crate::section::SECTIONS;
use crate::source::{ConfigFormat, ConfigSource, SourceKind, SourceText};
use crate::tree::{self, DuplicateKey, Node, ParsedTree, Span, Value};
use crate::trust::{self, FileActions, FileOrigin, FileOwner};

mod merge;
mod selection;
mod setting;

pub use selection::SourceSelection;
use setting::SettingText;

/// Sections of the user's file, beside the tools, that do not apply if files are named.
const USER_ONLY_SECTIONS: [&str; 3] = ["toolboxes", "profiles", "inputs"];

/// The sources of a configuration. They may be added in any order: the kind of a source decides its priority.
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
    /// Base directory of paths that are in no file.
    folder: PathBuf,
    sources: Vec<SourceLayer>,
    /// Required owner of files that are not named; not checked if `None`.
    owner: Option<FileOwner>,
    /// Source of `${keyring:…}` and `${cmd:…}`.
    secrets: Option<SharedSecretSource>,
}

#[derive(Clone, Debug)]
struct SourceLayer {
    priority: SourcePriority,
    input: SourceInput,
}

impl SourceLayer {
    /// Returns the path of a file with this priority.
    fn file(&self, priority: SourcePriority) -> Option<&Path> {
        match &self.input {
            SourceInput::File { path, .. } if self.priority == priority => Some(path),
            _ => None,
        }
    }
}

/// Priority of a source, from the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SourcePriority {
    User,
    Project,
    Named,
    Environment,
    Setting,
}

#[derive(Clone, Debug)]
enum SourceInput {
    File { path: PathBuf, selection: SourceSelection, origin: FileOrigin },
    Text { path: PathBuf, text: String },
    Value { name: String, value: Json },
    Variable { name: String, value: String },
    Setting(String),
}

impl Layers {
    /// Creates an empty set. Paths that are in no file are relative to `folder`.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), sources: Vec::new(), owner: None, secrets: None }
    }

    /// Adds the user's file, which applies to all projects. If files are named, only its settings apply and
    /// not its tools.
    #[must_use]
    pub fn user(self, path: &Path) -> Self {
        self.with_file((SourcePriority::User, FileOrigin::User), path, SourceSelection::default())
    }

    /// Adds the project's file under the name that the user gave.
    #[must_use]
    pub fn named_project(self, path: &Path) -> Self {
        self.with_file((SourcePriority::Project, FileOrigin::Named), path, SourceSelection::default())
    }

    /// Adds the project's file.
    #[must_use]
    pub fn project(self, path: &Path) -> Self {
        self.with_file((SourcePriority::Project, FileOrigin::Project), path, SourceSelection::default())
    }

    /// Adds a named file. Later files override earlier ones.
    #[must_use]
    pub fn file(self, path: &Path) -> Self {
        self.part(path, SourceSelection::default())
    }

    /// Adds a text as the contents of a named file. Nothing is read from disk.
    #[must_use]
    pub fn text(self, path: &Path, text: impl Into<String>) -> Self {
        self.with(SourcePriority::Named, SourceInput::Text { path: path.to_owned(), text: text.into() })
    }

    /// Adds a selected part of a named file, or the file as seen from a directory.
    #[must_use]
    pub fn part(self, path: &Path, selection: SourceSelection) -> Self {
        self.part_from(FileOrigin::Named, path, selection)
    }

    /// Same as [`part`](Self::part), for a file that was found through something else that was named, such as
    /// a client or a directory.
    #[must_use]
    pub fn part_from(self, origin: FileOrigin, path: &Path, selection: SourceSelection) -> Self {
        self.with_file((SourcePriority::Named, origin), path, selection)
    }

    /// Rejects files that were not named unless they belong to this user or the administrator, and no other user
    /// can write them.
    #[must_use]
    pub fn owned_by(self, owner: FileOwner) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// Sets the source of `${keyring:…}` and `${cmd:…}`. Without one they are errors.
    #[must_use]
    pub fn secrets(self, source: Arc<dyn SecretSource>) -> Self {
        Self { secrets: Some(SharedSecretSource(source)), ..self }
    }

    /// Assumes that every `${keyring:…}` and `${cmd:…}` has a value, and reads none, for looking at the sources only.
    #[must_use]
    pub fn assuming_secrets(self) -> Self {
        self.secrets(Arc::new(AssumedSecrets))
    }

    /// Adds a native value that is in no file, with the priority of a named file. `name` identifies it in
    /// messages.
    #[must_use]
    pub fn value(self, name: impl Into<String>, value: Json) -> Self {
        self.with(SourcePriority::Named, SourceInput::Value { name: name.into(), value })
    }

    /// Adds the environment variables that start with `PEGBOARD__`.
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
        // The order of the environment is arbitrary.
        named.sort();
        for (name, value) in named {
            self = self.with(SourcePriority::Environment, SourceInput::Variable { name, value });
        }
        self
    }

    /// Adds a single setting: `toolTimeout=30s`, `mcpServers.github.enabled=false`.
    #[must_use]
    pub fn set(self, setting: impl Into<String>) -> Self {
        self.with(SourcePriority::Setting, SourceInput::Setting(setting.into()))
    }

    fn with_file(
        self,
        (priority, origin): (SourcePriority, FileOrigin),
        path: &Path,
        selection: SourceSelection,
    ) -> Self {
        self.with(priority, SourceInput::File { path: path.to_owned(), selection, origin })
    }

    fn with(mut self, priority: SourcePriority, input: SourceInput) -> Self {
        self.sources.push(SourceLayer { priority, input });
        self
    }

    /// Returns all files, from the lowest layer.
    pub fn files(&self) -> Vec<&Path> {
        let files = self.ordered().into_iter().filter_map(|layer| match &layer.input {
            SourceInput::File { path, .. } | SourceInput::Text { path, .. } => Some(path.as_path()),
            SourceInput::Value { .. } | SourceInput::Variable { .. } | SourceInput::Setting(_) => None,
        });
        files.collect()
    }

    /// Returns the files of which only the settings apply, and not the tools: the user's file beside files that are
    /// named, unless it is one of them.
    pub fn files_of_settings(&self) -> Vec<&Path> {
        let user = self.sources.iter().filter_map(|layer| layer.file(SourcePriority::User));
        let is_alone = self.sources.iter().all(|layer| layer.priority != SourcePriority::Named);
        user.filter(|path| !is_alone && !self.is_named(path)).collect()
    }

    /// Returns `true` if a file is one of those that are named.
    fn is_named(&self, path: &Path) -> bool {
        let same = |named: &Path| {
            named == path
                || named.canonicalize().is_ok_and(|named| path.canonicalize().is_ok_and(|path| named == path))
        };
        self.sources.iter().any(|layer| layer.file(SourcePriority::Named).is_some_and(same))
    }

    /// Layers, the lowest first. A file of the user that is named, too, is read once.
    fn ordered(&self) -> Vec<&SourceLayer> {
        let is_again =
            |layer: &&SourceLayer| layer.file(SourcePriority::User).is_some_and(|path| self.is_named(path));
        let mut ordered: Vec<&SourceLayer> = self.sources.iter().filter(|layer| !is_again(layer)).collect();
        ordered.sort_by_key(|layer| layer.priority);
        ordered
    }
}

/// Loads a configuration from all of its sources.
///
/// Variables come from `environment` alone; the process environment is not used.
pub fn load_layers(
    layers: &Layers,
    environment: Environment<'_>,
) -> Result<Configuration, ConfigurationError> {
    let MergedSources { texts, root, duplicates, notes, sources, actions, syntax_errors, .. } =
        MergedSources::of(layers)?;
    if !syntax_errors.is_empty() {
        return Err(ConfigurationError::Invalid { problems: syntax_errors });
    }
    let mut configuration = Configuration::default();
    let mut reader = ConfigReader::new(&texts, environment, &root, &duplicates);
    reader.use_secrets(layers.secrets.as_ref());
    notes.report_to(&mut reader);
    native::read(&mut reader, &root, &mut configuration);
    let inputs = native::inputs(&mut reader, &root);
    let report = reader.finish();
    if !report.file_problems.is_empty() {
        let mut problems = report.file_problems;
        // A location reported for the file is not reported again for a part of it.
        let place = |problem: &ConfigProblem| {
            (problem.file.clone(), problem.line, problem.column, problem.path.clone())
        };
        let reported: Vec<_> = problems.iter().map(place).collect();
        problems
            .extend(report.part_problems.into_iter().filter(|problem| !reported.contains(&place(problem))));
        read::sort(&mut problems, &texts);
        return Err(ConfigurationError::Invalid { problems });
    }
    configuration.watched = sources.iter().map(|source| source.path.clone()).chain(report.watched).collect();
    configuration.sources = sources;
    configuration.actions = actions.finish(&report.env_files, &root);
    configuration.problems = report.part_problems;
    configuration.secrets = report.secrets;
    let missing_inputs =
        report.missing_inputs.iter().map(|(id, variable)| MissingInput::new(id, variable, inputs.get(id)));
    configuration.missing_inputs = missing_inputs.collect();
    configuration.merged = MergedTree { root: Some(root), texts };
    Ok(configuration)
}

/// The merged sources in the native format, without variables expanded.
pub(crate) struct RawSources {
    pub(crate) root: Node,
    pub(crate) texts: Vec<SourceText>,
    pub(crate) sources: Vec<ConfigSource>,
}

/// Reads and merges the sources without expanding variables.
pub(crate) fn read_layers(layers: &Layers) -> Result<RawSources, ConfigurationError> {
    let MergedSources { root, texts, sources, syntax_errors, .. } = MergedSources::of(layers)?;
    if syntax_errors.is_empty() {
        Ok(RawSources { root, texts, sources })
    } else {
        Err(ConfigurationError::Invalid { problems: syntax_errors })
    }
}

/// The merged sources.
struct MergedSources {
    texts: Vec<SourceText>,
    root: Node,
    duplicates: Vec<DuplicateKey>,
    notes: TranslationNotes,
    sources: Vec<ConfigSource>,
    /// Actions of all files.
    actions: FileActions,
    /// Syntax errors of single files.
    syntax_errors: Vec<ConfigProblem>,
    folder: PathBuf,
}

impl MergedSources {
    fn of(layers: &Layers) -> Result<Self, ConfigurationError> {
        let folder = std::path::absolute(&layers.folder).unwrap_or_else(|_| layers.folder.clone());
        let mut stack = Self {
            texts: Vec::new(),
            root: Node::new(Span::default(), Value::Map(Vec::new())),
            duplicates: Vec::new(),
            notes: TranslationNotes::default(),
            sources: Vec::new(),
            actions: FileActions::default(),
            syntax_errors: Vec::new(),
            folder,
        };
        let ordered = layers.ordered();
        let is_named = ordered.iter().any(|layer| layer.priority == SourcePriority::Named);
        for layer in ordered {
            match &layer.input {
                SourceInput::File { path, selection, origin } => {
                    let owner = layers.owner.filter(|_| *origin != FileOrigin::Named);
                    let text = SourceText::read_owned(path, owner)?;
                    let Some(mut root) = stack.read_text(text, layer.priority, selection)? else { continue };
                    if let (SourcePriority::User, true, Value::Map(entries)) =
                        (layer.priority, is_named, &mut root.value)
                    {
                        let is_tool =
                            |key: &str| USER_ONLY_SECTIONS.contains(&key) || SECTIONS.contains(&key);
                        entries.retain(|entry| !is_tool(&entry.key));
                    }
                    stack.add_file(root, *origin);
                }
                SourceInput::Text { path, text } => {
                    if let Some(root) = stack.read_text(
                        SourceText::new(path, text.clone()),
                        layer.priority,
                        &SourceSelection::default(),
                    )? {
                        stack.add_file(root, FileOrigin::Named);
                    }
                }
                SourceInput::Value { name, value } => stack.add_value(name, value),
                SourceInput::Variable { name, value } => {
                    let index = stack.add_inline_text(name, format!("{name}={value}"));
                    let text = SettingText { body: &stack.texts[index].body, index };
                    if let Some(root) = setting::parse_variable(name, text, &stack.root, &mut stack.notes) {
                        stack.add_setting(root);
                    }
                }
                SourceInput::Setting(written) => {
                    let name = written.split('=').next().unwrap_or_default();
                    let index = stack.add_inline_text(format!("--set {name}").trim_end(), written.clone());
                    let text = SettingText { body: &stack.texts[index].body, index };
                    if let Some(root) = setting::parse_assignment(text, &mut stack.notes) {
                        stack.add_setting(root);
                    }
                }
            }
        }
        merge::drop_nulls(&mut stack.root, &stack.texts);
        Ok(stack)
    }

    /// Parses a file and translates it to the native format. A user's file may be empty.
    fn read_text(
        &mut self,
        mut text: SourceText,
        priority: SourcePriority,
        selection: &SourceSelection,
    ) -> Result<Option<Node>, ConfigurationError> {
        let path = &text.path.clone();
        let format = ConfigFormat::of(path, &text.body);
        if dialect::is_agent(path, &text.body) {
            let root = dialect::agent_root(path, Span { text: self.texts.len(), ..Span::default() });
            text.redact(&root);
            self.sources.push(ConfigSource { path: path.to_owned(), format, dialect: ConfigDialect::Agent });
            self.texts.push(text);
            return Ok(Some(selection.of(root)));
        }
        let mut parsed = match tree::parse(&text.body, format) {
            Ok(Some(parsed)) => parsed,
            Ok(None) if priority == SourcePriority::User || selection.project.is_some() => return Ok(None),
            Ok(None) => return Err(ConfigurationError::Empty { path: path.to_owned() }),
            Err(error) => {
                let at = (error.span, String::new());
                self.syntax_errors.push(text.problem(Severity::Error, at, error.message, error.help));
                return Ok(None);
            }
        };
        parsed.relocate(self.texts.len());
        let ParsedTree { root, duplicates } = parsed;
        self.duplicates.extend(duplicates);
        text.redact(&root);
        let dialect = ConfigDialect::of(path, &root);
        text.strictness = dialect.strictness(path, &root);
        text.root_label = dialect.root_label();
        self.sources.push(ConfigSource { path: path.to_owned(), format, dialect });
        if root.entries().is_none() {
            let message = format!("a configuration must be an object of settings, not {}", root.kind());
            self.notes.error(root.span, &crate::path::KeyPath::default(), message, None);
            self.texts.push(text);
            return Ok(None);
        }
        let context = FileContext { path, project: selection.project.as_deref() };
        text.written = dialect.is_translated().then(|| root.clone());
        let root = dialect.translate(root, &context, &mut self.notes);
        text.redact(&root);
        let is_one = dialect != ConfigDialect::Native
            || native::is_configuration(&root, text.strictness, &mut self.notes);
        self.texts.push(text);
        Ok(is_one.then(|| selection.of(root)))
    }

    fn add_value(&mut self, name: &str, value: &Json) {
        let body = serde_json::to_string_pretty(value).unwrap_or_default();
        let index = self.add_inline_text(name, body);
        let text = &mut self.texts[index];
        match tree::parse(&text.body, ConfigFormat::Json) {
            Ok(Some(mut parsed)) => {
                parsed.relocate(index);
                text.redact(&parsed.root);
                self.add(parsed.root);
            }
            Ok(None) => {}
            Err(error) => {
                let at = (error.span, String::new());
                self.syntax_errors.push(text.problem(Severity::Error, at, error.message, error.help));
            }
        }
    }

    /// Adds a text that is in no file and returns its index.
    fn add_inline_text(&mut self, name: &str, body: String) -> usize {
        let mut text = SourceText::new(Path::new(name), body);
        text.kind = SourceKind::Setting;
        text.folder.clone_from(&self.folder);
        self.texts.push(text);
        self.texts.len() - 1
    }

    fn add_setting(&mut self, root: Node) {
        self.texts[root.span.text].redact(&root);
        self.add(root);
    }

    /// Merges the tree of a file on top of the current one.
    fn add_file(&mut self, root: Node, origin: FileOrigin) {
        let actions = trust::actions_of(&root, &self.texts[root.span.text], origin);
        self.actions.extend(actions);
        self.add(root);
    }

    /// Merges a tree on top of the current one.
    fn add(&mut self, mut root: Node) {
        native::move_defaults(&mut root);
        let below = std::mem::replace(&mut self.root, Node::new(root.span, Value::Null));
        let is_first = matches!(&below.value, Value::Map(entries) if entries.is_empty());
        let is_file = self.texts[root.span.text].kind == SourceKind::File;
        self.root = if is_first && is_file { root } else { merge::merge(below, root, &self.texts) };
    }
}
