//! Deserializes settings from trees and collects all problems.

use std::fmt;
use std::path::PathBuf;

use pegboard_core::redact::{self, Redactor, is_secret_name};
use pegboard_core::secret::{MIN_SECRET_CHARACTERS, Secret};
use serde::de::DeserializeOwned;

use crate::Environment;
use crate::configuration::UnusableEntry;
use crate::did_you_mean;
use crate::path::{KeyPath, KeySegment};
use crate::problem::{ConfigProblem, Severity};
use crate::redact::MASK;
use crate::secret_source::SharedSecretSource;
pub(crate) use crate::source::KeyStrictness;
use crate::source::SourceText;
use crate::tree::{DuplicateKey, Node, Span, TreeEntry, Value, ValueOrigin};
use crate::variables::{
    ExpandedOrigin, ExpandedValue, ValueReference, VariableContext, file_references, value_references,
};

mod deserializer;
mod error;

use deserializer::NodeDeserializer;
pub(crate) use deserializer::field_names;
use error::{DeserializeError, DeserializeErrorKind};

/// Maximum number of reported problems.
const MAX_PROBLEMS: usize = 100;
/// Maximum number of valid names to list.
const MAX_LISTED: usize = 10;
/// Maximum number of watched files.
const MAX_WATCHED: usize = 1_000;
/// Settings with texts and names that models and other users see.
const SHOWN_SETTINGS: [&str; 9] = [
    "aliases",
    "annotations",
    "description",
    "instructions",
    "parametersSchema",
    "rename",
    "tags",
    "title",
    "toolSchemas",
];
/// Settings with entries under names of the user's choice.
const MAPS_BY_NAME: [&str; 13] = [
    "chains",
    "credentials",
    "env",
    "environment",
    "headers",
    "inputs",
    "mcpServers",
    "openapiSpecs",
    "providers",
    "restTools",
    "serverVariables",
    "toolboxes",
    "tools",
];
/// Words of variables that may be secrets, beside those that redaction knows.
const SECRET_VARIABLE_WORDS: [&str; 8] = ["cred", "creds", "key", "pass", "pat", "pwd", "pw", "sk"];
/// Settings with names that are sent or passed to a program.
const SENT_MAPS: [&str; 4] = ["env", "environment", "headers", "serverVariables"];

/// Reads settings from a tree with values from several texts.
pub(crate) struct ConfigReader<'r> {
    texts: &'r [SourceText],
    /// Context for expanding variables, by text.
    variable_context: Vec<VariableContext<'r>>,
    /// Duplicate keys and their paths.
    duplicates: Vec<(DuplicateKey, KeyPath)>,
    /// Problems that reject the whole file, and problems of parts that are left out.
    file_problems: Vec<ConfigProblem>,
    part_problems: Vec<ConfigProblem>,
    /// The part being read.
    part: Option<PartReport>,
    secrets: Vec<String>,
    /// Files that the configuration depends on.
    watched: Vec<PathBuf>,
    env_files: Vec<EnvFile>,
    /// Missing inputs: ID and variable.
    missing_inputs: Vec<(String, String)>,
}

/// Problems of a part of a file that can be left out, such as a server.
#[derive(Default)]
pub(crate) struct PartReport {
    pub(crate) problems: Vec<ConfigProblem>,
    /// Unset variables.
    pub(crate) needs: Vec<String>,
    /// `true` if the part must be left out. Set even if the limit of reported problems is reached.
    pub(crate) is_invalid: bool,
}

impl PartReport {
    /// Returns the entry that was read, unless the part must be left out.
    pub(crate) fn entry<T>(self, read: Option<T>) -> Result<T, UnusableEntry> {
        let Self { problems, needs, is_invalid } = self;
        read.filter(|_| !is_invalid).ok_or(UnusableEntry { needs, problems })
    }
}

/// Description of a problem.
struct ProblemText {
    message: String,
    help: Option<String>,
    /// The unset variable, if that is the problem.
    needs: Option<String>,
}

/// Handling of unset variables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnUnsetVariable {
    /// Report an error.
    Report,
    /// Ignore them, since the part is disabled.
    Ignore,
}

/// An env file that was read.
pub(crate) struct EnvFile {
    /// Location of its name.
    pub(crate) span: Span,
    pub(crate) digest: String,
    /// Names and values, in the order of the file.
    pub(crate) variables: Vec<(String, String)>,
}

/// Result of reading a file.
pub(crate) struct ReadReport {
    pub(crate) file_problems: Vec<ConfigProblem>,
    pub(crate) part_problems: Vec<ConfigProblem>,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) watched: Vec<PathBuf>,
    pub(crate) env_files: Vec<EnvFile>,
    pub(crate) missing_inputs: Vec<(String, String)>,
}

impl<'r> ConfigReader<'r> {
    pub(crate) fn new(
        texts: &'r [SourceText],
        environment: Environment<'r>,
        root: &Node,
        duplicates: &[DuplicateKey],
    ) -> Self {
        let with_path = |duplicate: &DuplicateKey| {
            (duplicate.clone(), path_to_key(root, duplicate.first).unwrap_or_default())
        };
        // Finding a path walks the whole tree, so only the first duplicates are located. One more makes the
        // whole file invalid.
        let mut duplicates = duplicates.iter().map(with_path);
        let first_duplicates: Vec<(DuplicateKey, KeyPath)> = duplicates.by_ref().take(MAX_PROBLEMS).collect();
        let one_more = duplicates.next();
        let context_of = |text: &SourceText| {
            let (folder, workspace) = (text.folder.clone(), text.workspace(environment));
            VariableContext { environment, folder, workspace, secrets: None }
        };
        let mut reader = Self {
            texts,
            variable_context: texts.iter().map(context_of).collect(),
            duplicates: first_duplicates,
            file_problems: Vec::new(),
            part_problems: Vec::new(),
            part: None,
            secrets: Vec::new(),
            watched: Vec::new(),
            env_files: Vec::new(),
            missing_inputs: Vec::new(),
        };
        reader.report_duplicates(one_more.into_iter().collect());
        reader
    }

    /// Sets the source of secrets that are in no file and no variable.
    pub(crate) fn use_secrets(&mut self, source: Option<&SharedSecretSource>) {
        for context in &mut self.variable_context {
            context.secrets = source.cloned();
        }
    }

    /// Returns the text that a span is in.
    pub(crate) fn text(&self, span: Span) -> &'r SourceText {
        &self.texts[span.text]
    }

    /// Returns the context for expanding variables at a span.
    pub(crate) fn variable_context(&self, span: Span) -> &VariableContext<'r> {
        &self.variable_context[span.text]
    }

    /// Reports an error.
    pub(crate) fn error(
        &mut self,
        span: Span,
        path: &KeyPath,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.report_error((span, path), ProblemText { message: message.into(), help, needs: None });
    }

    fn report_error(&mut self, at: (Span, &KeyPath), text: ProblemText) {
        if let Some(part) = &mut self.part {
            part.is_invalid = true;
            // An unset variable is a fault of the environment, not of the file.
            let severity = if text.needs.is_some() { Severity::Warning } else { Severity::Error };
            self.report_in_part(severity, at, text);
        } else {
            self.report_file_error(at, text);
        }
    }

    /// Reports an error that rejects the whole file.
    pub(crate) fn file_error(&mut self, span: Span, path: &KeyPath, message: String, help: Option<String>) {
        self.report_file_error((span, path), ProblemText { message, help, needs: None });
    }

    fn report_file_error(&mut self, at: (Span, &KeyPath), text: ProblemText) {
        if self.file_problems.len() < MAX_PROBLEMS {
            let problem = self.problem(Severity::Error, at, text);
            self.file_problems.push(problem);
        }
    }

    /// Reports a warning.
    pub(crate) fn warn(
        &mut self,
        span: Span,
        path: &KeyPath,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        let text = ProblemText { message: message.into(), help, needs: None };
        self.report_in_part(Severity::Warning, (span, path), text);
    }

    /// Returns a name, or reports that it is invalid.
    pub(crate) fn valid_name<N>(
        &mut self,
        name: Result<N, impl fmt::Display>,
        span: Span,
        path: &KeyPath,
    ) -> Option<N> {
        let choose = || Some("choose another name".to_owned());
        name.map_err(|invalid| self.error(span, path, invalid.to_string(), choose())).ok()
    }

    /// Returns the entries of an object, or reports that `what` is none.
    pub(crate) fn object<'n>(
        &mut self,
        node: &'n Node,
        path: &KeyPath,
        what: &str,
        help: Option<&str>,
    ) -> Option<&'n [TreeEntry]> {
        if node.entries().is_none() {
            let message = format!("{what} must be an object, not {}", node.kind());
            self.error(node.span, path, message, help.map(str::to_owned));
        }
        node.entries()
    }

    /// Reports an unknown key, with the most similar valid one. Comment keys are valid everywhere.
    pub(crate) fn unknown_key(&mut self, key: &str, span: Span, path: &KeyPath, known: &[&str]) {
        if key.starts_with('_') || key == "$schema" {
            return;
        }
        let strictness = self.text(span).strictness;
        if self.is_full(strictness) {
            // Finding suggestions takes longest, and they would not be shown.
            return self.mark_unknown_key(strictness);
        }
        let valid = || (known.len() <= MAX_LISTED).then(|| format!("valid settings: {}", known.join(", ")));
        let help = did_you_mean(key, known.iter().copied()).or_else(valid);
        match strictness {
            KeyStrictness::Strict => self.error(span, path, "unknown setting", help),
            KeyStrictness::Lenient => self.warn(span, path, "unknown setting, ignored", help),
        }
    }

    /// Begins a part that can be left out.
    pub(crate) fn begin_part(&mut self) {
        self.part = Some(PartReport::default());
    }

    /// Returns `true` if the current part has an error.
    pub(crate) fn is_part_invalid(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.is_invalid)
    }

    /// Ends the current part and returns its problems, including its duplicate keys.
    pub(crate) fn end_part(&mut self, key_path: &KeyPath) -> PartReport {
        let is_inside = |(_, duplicate): &(DuplicateKey, KeyPath)| duplicate.is_inside(key_path);
        let (inside, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.duplicates).into_iter().partition(is_inside);
        self.duplicates = others;
        self.report_duplicates(inside);
        let mut part = self.part.take().unwrap_or_default();
        redact_problems(&mut part.problems, &self.secrets);
        self.part_problems.extend(part.problems.iter().cloned());
        part
    }

    /// Returns all problems, in file order.
    pub(crate) fn finish(mut self) -> ReadReport {
        let duplicates = std::mem::take(&mut self.duplicates);
        self.report_duplicates(duplicates);
        self.secrets.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        self.secrets.dedup();
        for problems in [&mut self.file_problems, &mut self.part_problems] {
            redact_problems(problems, &self.secrets);
            sort(problems, self.texts);
        }
        let secrets = std::mem::take(&mut self.secrets).into_iter().map(Secret::new).collect();
        let Self { file_problems, part_problems, watched, env_files, missing_inputs, .. } = self;
        ReadReport { file_problems, part_problems, secrets, watched, env_files, missing_inputs }
    }

    /// Adds the problems of referenced files.
    pub(crate) fn add_problems_of_other_files(&mut self, problems: Vec<ConfigProblem>) {
        for problem in problems {
            // A file that is referenced twice is read twice.
            if self.part_problems.len() < MAX_PROBLEMS && !self.part_problems.contains(&problem) {
                self.part_problems.push(problem);
            }
        }
    }

    /// Adds a file that the configuration depends on.
    pub(crate) fn watch(&mut self, path: PathBuf) {
        if self.watched.len() < MAX_WATCHED && !self.watched.contains(&path) {
            self.watched.push(path);
        }
    }

    /// Records an env file.
    pub(crate) fn record_env_file(&mut self, file: EnvFile) {
        self.env_files.push(file);
    }

    /// Adds a text to redact.
    pub(crate) fn add_secret(&mut self, text: &str) {
        if redact::is_redactable(text) {
            self.secrets.push(text.to_owned());
        }
    }

    /// Adds a text to redact under a name, which tells if a short one is secret.
    pub(crate) fn add_named_secret(&mut self, name: &str, text: &str) {
        if redact::is_redactable_under(name, text) {
            self.secrets.push(text.to_owned());
        }
    }

    /// Adds a value that is secret by its place. One that is too short to be redacted is an error.
    pub(crate) fn add_certain_secret(&mut self, text: &str, span: Span, path: &KeyPath) {
        let n_characters = text.chars().count();
        self.add_secret(text);
        if (1..MIN_SECRET_CHARACTERS).contains(&n_characters) {
            let message = format!(
                "the secret has fewer than {MIN_SECRET_CHARACTERS} characters, so it cannot be kept out of logs: it \
                 occurs in innocent text"
            );
            self.error(span, path, message, Some("use a longer one".to_owned()));
        }
    }

    /// Expands all variables of a value, including its keys.
    pub(crate) fn expand(&mut self, node: &mut Node, path: &KeyPath, on_unset: OnUnsetVariable) {
        let span = node.span;
        match &mut node.value {
            Value::Text(text) => {
                let (filled, origin) = self.expand_text(text, span, path, on_unset);
                *text = filled;
                node.origin = origin;
            }
            Value::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.expand(item, &path.segment(KeySegment::Index(index)), on_unset);
                }
            }
            Value::Map(entries) => {
                let is_sent = path.last_key().is_some_and(|name| SENT_MAPS.contains(&name));
                for entry in entries {
                    let path = path.key(&entry.key);
                    entry.key = if is_sent {
                        self.expand_text(&entry.key, entry.key_span, &path, on_unset).0
                    } else {
                        self.expand_name(&entry.key, entry.key_span, &path, on_unset)
                    };
                    self.expand(&mut entry.value, &path, on_unset);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Expands the variables of a name, which models and other users see. Secrets are not replaced.
    pub(crate) fn expand_name(
        &mut self,
        name: &str,
        span: Span,
        path: &KeyPath,
        on_unset: OnUnsetVariable,
    ) -> String {
        if self.keeps_references(name, (span, path)) {
            return name.to_owned();
        }
        self.expand_text(name, span, path, on_unset).0
    }

    /// Returns `true` if a text that models and other users see refers to secrets, and warns. Its references stay as they
    /// are.
    fn keeps_references(&mut self, text: &str, (span, path): (Span, &KeyPath)) -> bool {
        let is_secret = |value: &ValueReference<'_>| value.variable.is_none_or(may_be_secret);
        let Some(first) = value_references(text).into_iter().find(is_secret).map(|value| value.written)
        else {
            return false;
        };
        let message = format!("{first} is not replaced here: models and other users see this text");
        self.warn(span, path, message, Some("write the text itself".to_owned()));
        true
    }

    /// Expands all variables of a text. Also returns the origin of the result.
    pub(crate) fn expand_text(
        &mut self,
        text: &str,
        span: Span,
        path: &KeyPath,
        on_unset: OnUnsetVariable,
    ) -> (String, ValueOrigin) {
        if is_shown(path) && self.keeps_references(text, (span, path)) {
            return (text.to_owned(), ValueOrigin::Written);
        }
        let filled = self.variable_context[span.text].expand(text);
        let origin = match (filled.secrets.is_empty(), filled.text == text) {
            (false, _) => ValueOrigin::Secret,
            (true, false) => ValueOrigin::Default,
            (true, true) => ValueOrigin::Written,
        };
        for ExpandedValue { text, origin } in &filled.secrets {
            let name = path.last_key().unwrap_or_default();
            match origin {
                ExpandedOrigin::Variable(_) if is_secret_name(name) => self.add_secret(text),
                ExpandedOrigin::Variable(variable) => self.add_named_secret(variable, text),
                ExpandedOrigin::Given => self.add_secret(text),
                ExpandedOrigin::Stored => self.add_certain_secret(text, span, path),
            }
        }
        for path in file_references(text) {
            self.watch(self.text(span).folder.join(path));
        }
        for reference in filled.unresolved {
            if on_unset == OnUnsetVariable::Ignore && reference.needs.is_some() {
                continue;
            }
            if let (Some(id), Some(name)) =
                (reference_names(&text[reference.range.clone()], "${input:").next(), &reference.needs)
                && !self.missing_inputs.iter().any(|(_, variable)| variable == name)
            {
                self.missing_inputs.push((id.to_owned(), name.clone()));
            }
            if let (Some(part), Some(name)) = (&mut self.part, &reference.needs)
                && !part.needs.contains(name)
            {
                part.needs.push(name.clone());
            }
            // The span of the reference itself, unless it is written with an escape.
            let written = self.text(span).slice(span);
            let location = written
                .find(&text[reference.range.clone()])
                .map_or(span, |at| span.beside(span.start + at, span.start + at + reference.range.len()));
            let text = ProblemText {
                message: reference.message,
                help: Some(reference.help),
                needs: reference.needs,
            };
            self.report_error((location, path), text);
        }
        (filled.text, origin)
    }

    /// Deserializes a value. Invalid parts are reported and removed, so that all problems are reported at
    /// once.
    ///
    /// `beside` lists further keys that are valid here.
    pub(crate) fn read<T: DeserializeOwned>(
        &mut self,
        node: &Node,
        path: &KeyPath,
        beside: &[&str],
    ) -> Option<T> {
        let mut node = node.clone();
        let mut pruned: Vec<Vec<KeySegment>> = Vec::new();
        for _ in 0..MAX_PROBLEMS {
            let error = match T::deserialize(NodeDeserializer(&node)) {
                Ok(read) => return Some(read),
                Err(error) => error,
            };
            let segments = error.segments();
            // A missing key is probably one that was removed.
            let is_known =
                matches!(error.kind, DeserializeErrorKind::MissingField { .. }) && pruned.contains(&segments);
            if !is_known {
                self.report_deserialize_error(&error, &node, path, beside);
            }
            if !remove_node(&mut node, &segments) {
                return None;
            }
            pruned.push(segments[..segments.len() - 1].to_vec());
        }
        None
    }

    fn report_deserialize_error(
        &mut self,
        error: &DeserializeError,
        node: &Node,
        path: &KeyPath,
        beside: &[&str],
    ) {
        let segments = error.segments();
        let location = path.extended(&segments);
        let (value, key_span) = find_node(node, &segments);
        let span = if error.is_of_key() { key_span.unwrap_or(value.span) } else { value.span };
        let help = match &error.kind {
            DeserializeErrorKind::UnknownKey { key, known } => {
                let known: Vec<&str> = known.iter().copied().chain(beside.iter().copied()).collect();
                return self.unknown_key(key, span, &location, &known);
            }
            DeserializeErrorKind::UnknownVariant { word, known } => did_you_mean(word, known.iter().copied()),
            DeserializeErrorKind::MissingField { .. }
            | DeserializeErrorKind::DuplicateField { .. }
            | DeserializeErrorKind::Custom { .. } => None,
        };
        let mut message = match &error.kind {
            // The word may be truncated, so that it would not be recognized as a part of a secret.
            DeserializeErrorKind::UnknownVariant { known, .. } if value.origin == ValueOrigin::Secret => {
                format!("unknown value '***', expected one of {}", known.join(", "))
            }
            DeserializeErrorKind::UnknownVariant { .. }
            | DeserializeErrorKind::UnknownKey { .. }
            | DeserializeErrorKind::MissingField { .. }
            | DeserializeErrorKind::DuplicateField { .. }
            | DeserializeErrorKind::Custom { .. } => error.to_string(),
        };
        if let (Value::Text(text), ValueOrigin::Secret) = (&value.value, value.origin)
            && !text.is_empty()
        {
            message = message.replace(text.as_str(), "***");
        }
        self.error(span, &location, message, help);
    }

    fn report_duplicates(&mut self, duplicates: Vec<(DuplicateKey, KeyPath)>) {
        for (duplicate, key_path) in duplicates {
            let first = self.text(duplicate.first).line(duplicate.first);
            let message = format!("duplicate key '{}', first defined in line {first}", duplicate.key);
            self.error(duplicate.span, &key_path, message, Some("remove one of them".to_owned()));
        }
    }

    /// Returns `true` if the limit of reported problems is reached.
    fn is_full(&self, strictness: KeyStrictness) -> bool {
        let n_of_part = self.part.as_ref().map_or(0, |part| part.problems.len());
        match self.part {
            None if strictness == KeyStrictness::Strict => self.file_problems.len() >= MAX_PROBLEMS,
            None | Some(_) => self.part_problems.len() + n_of_part >= MAX_PROBLEMS,
        }
    }

    /// Marks the current part as invalid because of an unknown key, if the text is strict.
    fn mark_unknown_key(&mut self, strictness: KeyStrictness) {
        if let (Some(part), KeyStrictness::Strict) = (&mut self.part, strictness) {
            part.is_invalid = true;
        }
    }

    fn report_in_part(&mut self, severity: Severity, at: (Span, &KeyPath), text: ProblemText) {
        let n_reported = self.part_problems.len() + self.part.as_ref().map_or(0, |part| part.problems.len());
        if n_reported < MAX_PROBLEMS {
            let problem = self.problem(severity, at, text);
            self.part.as_mut().map_or(&mut self.part_problems, |part| &mut part.problems).push(problem);
        }
    }

    fn problem(
        &self,
        severity: Severity,
        (span, path): (Span, &KeyPath),
        description: ProblemText,
    ) -> ConfigProblem {
        let text = self.text(span);
        let path = text.original_path(span).unwrap_or_else(|| text.root_label.join(path));
        let ProblemText { message, help, needs } = description;
        ConfigProblem { needs, ..text.problem(severity, (span, path.to_string()), message, help) }
    }
}

/// Sorts problems in the order of the texts, followed by those of other files.
pub(crate) fn sort(problems: &mut [ConfigProblem], texts: &[SourceText]) {
    let location = |problem: &ConfigProblem| {
        let text = texts.iter().position(|text| text.path == problem.file).unwrap_or(texts.len());
        (text, problem.file.clone(), problem.line, problem.column)
    };
    problems.sort_by_cached_key(location);
}

/// Returns the names of all references with this prefix.
fn reference_names<'t>(text: &'t str, beginning: &'t str) -> impl Iterator<Item = &'t str> {
    let references = text.match_indices(beginning).map(move |(at, _)| &text[at + beginning.len()..]);
    references.filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).filter(|name| !name.is_empty())
}

/// Redacts secrets that got into messages, literally or escaped.
fn redact_problems(problems: &mut [ConfigProblem], secrets: &[String]) {
    if problems.is_empty() || secrets.is_empty() {
        return;
    }
    let redactor = Redactor::with_escapes(secrets);
    for problem in problems {
        let texts = [Some(&mut problem.message), problem.help.as_mut(), Some(&mut problem.path)];
        for text in texts.into_iter().flatten() {
            *text = redactor.marked_text(text, MASK).into_owned();
        }
    }
}

/// Returns the node at a path, or its closest existing ancestor, and the span of its key.
fn find_node<'n>(node: &'n Node, segments: &[KeySegment]) -> (&'n Node, Option<Span>) {
    let mut found = (node, None);
    for segment in segments {
        found = match (segment, &found.0.value) {
            (KeySegment::Key(key), Value::Map(entries)) => {
                match entries.iter().find(|entry| entry.key == *key) {
                    Some(entry) => (&entry.value, Some(entry.key_span)),
                    None => return found,
                }
            }
            (KeySegment::Index(index), Value::List(items)) => match items.get(*index) {
                Some(item) => (item, None),
                None => return found,
            },
            _ => return found,
        };
    }
    found
}

/// Returns `true` if models and other users see a text: a setting on its path is shown. Names of entries, which may be any
/// word, are no settings.
fn is_shown(path: &KeyPath) -> bool {
    let mut is_name = false;
    path.segments().iter().any(|segment| {
        let KeySegment::Key(key) = segment else { return false };
        if std::mem::take(&mut is_name) {
            return false;
        }
        is_name = MAPS_BY_NAME.contains(&key.as_str());
        SHOWN_SETTINGS.contains(&key.as_str())
    })
}

/// Returns `true` if a variable may be a secret by its name. Where others see the value, a doubt is enough.
fn may_be_secret(variable: &str) -> bool {
    let is_secret_word = |word: &str| SECRET_VARIABLE_WORDS.contains(&word.to_ascii_lowercase().as_str());
    is_secret_name(variable) || variable.split('_').any(is_secret_word)
}

/// Returns the path of the key at a span.
fn path_to_key(node: &Node, key_span: Span) -> Option<KeyPath> {
    match &node.value {
        Value::List(items) => items.iter().enumerate().find_map(|(index, item)| {
            path_to_key(item, key_span)
                .map(|key_path| KeyPath::default().segment(KeySegment::Index(index)).join(&key_path))
        }),
        Value::Map(entries) => entries.iter().find_map(|entry| {
            let here = KeyPath::default().key(&entry.key);
            if entry.key_span == key_span {
                return Some(here);
            }
            path_to_key(&entry.value, key_span).map(|key_path| here.join(&key_path))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => None,
    }
}

/// Removes the value at a path. Returns `false` if it does not exist.
fn remove_node(node: &mut Node, segments: &[KeySegment]) -> bool {
    match (segments, &mut node.value) {
        ([KeySegment::Key(key)], Value::Map(entries)) => {
            let n_before = entries.len();
            entries.retain(|entry| entry.key != *key);
            entries.len() < n_before
        }
        ([KeySegment::Index(index)], Value::List(items)) => items.get_mut(*index).is_some_and(|item| {
            std::mem::replace(&mut item.origin, ValueOrigin::LeftOut) != ValueOrigin::LeftOut
        }),
        ([KeySegment::Key(key), rest @ ..], Value::Map(entries)) => entries
            .iter_mut()
            .find(|entry| entry.key == *key)
            .is_some_and(|entry| remove_node(&mut entry.value, rest)),
        ([KeySegment::Index(index), rest @ ..], Value::List(items)) => {
            items.get_mut(*index).is_some_and(|item| remove_node(item, rest))
        }
        _ => false,
    }
}
