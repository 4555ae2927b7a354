//! Source files of a configuration.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pegboard_core::redact::is_secret_name;
use pegboard_files::RegularFile;

use crate::Environment;
use crate::dialect::ConfigDialect;
use crate::error::ConfigurationError;
use crate::path::{KeyPath, KeySegment};
use crate::problem::{ConfigProblem, Severity, Snippet};
use crate::redact::{secret_ranges, takes_secret_value};
use crate::tree::{Node, Span, Value};
use crate::trust::FileOwner;
use crate::variables::FileWorkspace;

/// Maximum size of a file.
pub const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// A source file of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSource {
    /// Path of the file.
    pub path: PathBuf,
    /// Format of the file.
    pub format: ConfigFormat,
    /// Dialect of the file.
    pub dialect: ConfigDialect,
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFormat {
    /// JSON, optionally with comments and trailing commas.
    Json,
    /// YAML.
    Yaml,
    /// TOML.
    Toml,
}

impl ConfigFormat {
    /// Detects the format by the file extension, or else by the first line.
    pub(crate) fn of(path: &Path, text: &str) -> Self {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        match extension.to_ascii_lowercase().as_str() {
            "json" | "jsonc" | "json5" => Self::Json,
            "yaml" | "yml" => Self::Yaml,
            "toml" => Self::Toml,
            _ => Self::guess(text),
        }
    }

    fn guess(text: &str) -> Self {
        let says_something = |line: &&str| !line.is_empty() && !line.starts_with('#');
        let first = text.lines().map(str::trim).find(says_something).unwrap_or_default();
        let before_colon = first.split(':').next().unwrap_or_default();
        if first.starts_with('{') || first.starts_with("//") || first.starts_with("/*") {
            Self::Json
        } else if first.starts_with('[') || before_colon.contains('=') {
            Self::Toml
        } else {
            Self::Yaml
        }
    }
}

/// Handling of unknown keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStrictness {
    /// Unknown keys are errors: the format is native.
    Strict,
    /// Unknown keys are warnings: they may belong to another program.
    Lenient,
}

/// The kind of a source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceKind {
    /// A file with lines and columns.
    File,
    /// A single setting without a location.
    Setting,
}

/// The text of a file or of a single setting, with the spans to redact.
pub(crate) struct SourceText {
    /// Path of the file, or the name of another source.
    pub(crate) path: PathBuf,
    pub(crate) kind: SourceKind,
    pub(crate) body: String,
    /// Base directory of relative paths.
    pub(crate) folder: PathBuf,
    pub(crate) strictness: KeyStrictness,
    /// Label of the root in messages.
    pub(crate) root_label: KeyPath,
    /// The tree before translation, if the file was translated.
    pub(crate) written: Option<Node>,
    /// Start offsets of the lines.
    lines: Vec<usize>,
    /// Spans to redact; `None` if they are unknown, in which case all values are redacted.
    redacted: Option<Vec<Span>>,
}

impl SourceText {
    /// Reads a regular file, up to the maximum size.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigurationError> {
        Ok(Self::new(path, Self::read_body(path)?))
    }

    /// Reads a file, up to the maximum size. If `owner` is given, it must be a regular file of that user. A file that the
    /// user named may be a pipe.
    pub(crate) fn read_owned(path: &Path, owner: Option<FileOwner>) -> Result<Self, ConfigurationError> {
        let unreadable = |error: io::Error| ConfigurationError::unreadable(path, error);
        let Some(owner) = owner else {
            let file = File::open(path).map_err(unreadable)?;
            if file.metadata().map_err(unreadable)?.is_dir() {
                return Err(ConfigurationError::IsDirectory { path: path.to_owned() });
            }
            let mut bytes = Vec::new();
            // Special files report no size, so the read itself is limited.
            file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
            let bytes = (bytes.len() as u64 <= MAX_BYTES).then_some(bytes);
            return Ok(Self::new(path, Self::body(path, bytes)?));
        };
        let file = Self::open(path)?;
        let checked = owner.check(path, file.as_file()).map_err(unreadable)?;
        checked.map_err(|reason| ConfigurationError::UnsafeFile { path: path.to_owned(), reason })?;
        Ok(Self::new(path, Self::body(path, file.read(MAX_BYTES).map_err(unreadable)?)?))
    }

    /// Reads the contents of a regular file, up to the maximum size.
    pub(crate) fn read_body(path: &Path) -> Result<String, ConfigurationError> {
        let bytes = Self::open(path)?.read(MAX_BYTES);
        Self::body(path, bytes.map_err(|error| ConfigurationError::unreadable(path, error))?)
    }

    fn open(path: &Path) -> Result<RegularFile, ConfigurationError> {
        RegularFile::open(path).map_err(|error| ConfigurationError::unreadable(path, error))
    }

    /// Returns the text of a file; `None` is too large.
    fn body(path: &Path, bytes: Option<Vec<u8>>) -> Result<String, ConfigurationError> {
        let bytes = bytes.ok_or_else(|| ConfigurationError::TooLarge { path: path.to_owned() })?;
        String::from_utf8(bytes).map_err(|error| ConfigurationError::NotUtf8 {
            path: path.to_owned(),
            offset: error.utf8_error().valid_up_to(),
        })
    }

    pub(crate) fn new(path: &Path, body: String) -> Self {
        // The byte order mark is not part of the text.
        let body = body.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(body);
        let ends = body.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        Self {
            path: path.to_owned(),
            kind: SourceKind::File,
            body,
            folder,
            strictness: KeyStrictness::Strict,
            root_label: KeyPath::default(),
            written: None,
            lines,
            redacted: None,
        }
    }

    /// Adds the secrets of a tree to the redacted spans: keys, and the values of `env` and `headers`.
    pub(crate) fn redact(&mut self, root: &Node) {
        find_secrets(root, self.redacted.get_or_insert_default());
    }

    /// Returns the path of a span in the original file, if the file was translated.
    pub(crate) fn original_path(&self, span: Span) -> Option<KeyPath> {
        let mut search = SpanSearch { span, found: (usize::MAX, KeyPath::default()) };
        search.walk(self.written.as_ref()?, &KeyPath::default());
        Some(search.found.1)
    }

    /// Returns the directory that the programs of this source run in.
    pub(crate) fn workspace(&self, environment: Environment<'_>) -> FileWorkspace {
        match self.kind {
            SourceKind::File => {
                let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
                FileWorkspace::of_file(&path, &self.folder, environment)
            }
            SourceKind::Setting => FileWorkspace::Project(self.folder.clone()),
        }
    }

    /// Returns the text of a span.
    pub(crate) fn slice(&self, span: Span) -> &str {
        self.body.get(span.start..span.end).unwrap_or_default()
    }

    /// Returns the line number of a span, from 1.
    pub(crate) fn line(&self, span: Span) -> usize {
        self.lines.partition_point(|start| *start <= span.start)
    }

    /// Creates a problem at a span. `path` is the path of the value there.
    pub(crate) fn problem(
        &self,
        severity: Severity,
        (span, path): (Span, String),
        message: String,
        help: Option<String>,
    ) -> ConfigProblem {
        let snippet = self.snippet(span);
        let (line, column) = match self.kind {
            SourceKind::File => (snippet.line, snippet.column),
            SourceKind::Setting => (0, 0),
        };
        ConfigProblem {
            severity,
            file: self.path.clone(),
            line,
            column,
            path,
            message,
            help,
            needs: None,
            snippet,
        }
    }

    /// Returns the redacted line of a span.
    pub(crate) fn snippet(&self, span: Span) -> Snippet {
        let start = floor_char_boundary(&self.body, span.start);
        let line_start = self.body[..start].rfind('\n').map_or(0, |end| end + 1);
        let line_end = self.body[start..].find('\n').map_or(self.body.len(), |end| start + end);
        // A line may be as long as the file, but only this much of it is shown.
        let from = floor_char_boundary(&self.body, start.saturating_sub(1024)).max(line_start);
        let to = floor_char_boundary(&self.body, start + 1024).min(line_end);
        let shown = match &self.redacted {
            Some(redacted) => {
                let is_near = |secret: &&Span| secret.start < to && from < secret.end;
                let redacted: Vec<Span> = redacted.iter().filter(is_near).copied().collect();
                redact_spans(&self.body[from..to], from, &redacted)
            }
            None => redact_all_values(&self.body[from..to]),
        };
        let end = floor_char_boundary(&self.body, span.end).clamp(start, to.max(start));
        let mut snippet = Snippet::new(
            shown.trim_end_matches('\r'),
            self.body[from..start].chars().count(),
            self.body[start..end].chars().count(),
        );
        snippet.line = self.line(span);
        snippet.column = self.body[line_start..start].chars().count() + 1;
        snippet
    }
}

/// Finds the smallest value around a span. In TOML a table's span may not cover its contents.
struct SpanSearch {
    span: Span,
    /// Length and path of the smallest match.
    found: (usize, KeyPath),
}

impl SpanSearch {
    fn walk(&mut self, node: &Node, key_path: &KeyPath) {
        self.consider(node.span, key_path);
        match &node.value {
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.walk(item, &key_path.segment(KeySegment::Index(index)));
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    let key_path = key_path.key(&entry.key);
                    self.consider(entry.key_span, &key_path);
                    self.walk(&entry.value, &key_path);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        }
    }

    fn consider(&mut self, outer: Span, key_path: &KeyPath) {
        let n_bytes = outer.end - outer.start;
        if outer.start <= self.span.start && self.span.end <= outer.end && n_bytes < self.found.0 {
            self.found = (n_bytes, key_path.clone());
        }
    }
}

/// Returns the closest character boundary at or before an offset.
fn floor_char_boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Returns `true` if the values under this key are secrets by default.
pub(crate) fn holds_secrets(key: &str) -> bool {
    matches!(key, "apiKey" | "credentials" | "env" | "environment" | "headers")
}

/// Returns `true` if the values under this key are secrets in files of other programs.
fn holds_secrets_in_client_files(key: &str) -> bool {
    const NAMES: [&str; 9] = [
        "auth",
        "authTokens",
        "environmentVariables",
        "envs",
        "http_headers",
        "inputs",
        "oauth",
        "requestOptions",
        "settings",
    ];
    NAMES.contains(&key)
}

fn find_secrets(node: &Node, redacted: &mut Vec<Span>) {
    match &node.value {
        Value::List(items) => {
            let mut is_next_secret = false;
            for item in items {
                let text = if let Value::Text(text) = &item.value { text } else { "" };
                if is_next_secret && !text.starts_with('-') {
                    add_scalars(item, redacted);
                } else {
                    find_secrets(item, redacted);
                }
                is_next_secret = takes_secret_value(text);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                let is_text = matches!(entry.value.value, Value::Text(_));
                if holds_secrets(&entry.key)
                    || holds_secrets_in_client_files(&entry.key)
                    || (is_text && is_secret_name(&entry.key))
                {
                    add_scalars(&entry.value, redacted);
                } else {
                    find_secrets(&entry.value, redacted);
                }
            }
        }
        Value::Text(text) if !secret_ranges(text).is_empty() => redacted.push(node.span),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
    }
}

fn add_scalars(node: &Node, redacted: &mut Vec<Span>) {
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| add_scalars(item, redacted)),
        Value::Map(entries) => entries.iter().for_each(|entry| add_scalars(&entry.value, redacted)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => redacted.push(node.span),
    }
}

/// Replaces the redacted spans of a line with stars. Names of variables are kept.
pub(crate) fn redact_spans(line: &str, from: usize, redacted: &[Span]) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut name = 0;
    for (at, character) in line.char_indices() {
        let place = from + at;
        let is_redacted = redacted.iter().any(|secret| secret.start <= place && place < secret.end);
        if let Some(behind) = line[at..].strip_prefix("${") {
            // Names of variables are not secrets; defaults may be.
            let named = ["env:", "input:"].iter().find(|kind| behind.starts_with(*kind));
            let begin = at + 2 + named.map_or(0, |kind| kind.len());
            name = line[begin..].find([':', '}']).map_or(0, |end| begin + end);
        }
        let is_shown = !is_redacted || at < name || !character.is_alphanumeric();
        shown.push(if is_shown { character } else { '*' });
    }
    shown
}

/// Replaces everything in a line that may be a value with stars: all but keys before `:` or `=`.
pub(crate) fn redact_all_values(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let n_bytes = word_length(rest, first);
        let (word, after) = rest.split_at(n_bytes);
        let next = after.trim_start();
        let is_key = next.starts_with('=')
            || next.strip_prefix(':').is_some_and(|value| {
                matches!(first, '"' | '\'') || value.is_empty() || value.starts_with(char::is_whitespace)
            });
        if is_key {
            shown.push_str(word);
        } else {
            shown.extend(word.chars().map(|each| if each.is_alphanumeric() { '*' } else { each }));
        }
        rest = after;
    }
    shown
}

/// Returns the length of the first word: a quoted string, a run of word characters, or one character.
fn word_length(text: &str, first: char) -> usize {
    let is_part = |each: char| each.is_alphanumeric() || matches!(each, '-' | '_' | '.' | '$');
    match first {
        '"' | '\'' => {
            let mut is_escaped = false;
            for (at, each) in text.char_indices().skip(1) {
                if each == first && !is_escaped {
                    return at + each.len_utf8();
                }
                is_escaped = each == '\\' && !is_escaped;
            }
            text.len()
        }
        first if is_part(first) => text.find(|each| !is_part(each)).unwrap_or(text.len()),
        first => first.len_utf8(),
    }
}
