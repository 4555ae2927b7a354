//! The files that a configuration comes from.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::dialect::Dialect;
use crate::error::ConfigurationError;
use crate::mask::{hidden_in, is_before_secret};
use crate::path::{Path as Way, Step};
use crate::problem::{Problem, Severity, Snippet};
use crate::tree::{Node, Span, Value};

/// How large a file may be.
pub(crate) const MAX_BYTES: u64 = 32 * 1024 * 1024;

/// A file that a configuration came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// The notation that it is written in.
    pub format: Format,
    /// Whose words it uses.
    pub dialect: Dialect,
}

/// The notation of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, with comments and trailing commas if somebody wrote them.
    Json,
    /// YAML.
    Yaml,
    /// TOML.
    Toml,
}

impl Format {
    /// The notation of a file: by the end of its name, or else by how it begins.
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

/// What becomes of a key that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// It is an error: the text is ours.
    Strict,
    /// It is a warning: somebody else may know it.
    Lenient,
}

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A file, whose places have lines and columns.
    File,
    /// A single setting that somebody gave by other means, which has none.
    Setting,
}

/// The text of a file or of a single setting, and what of it nobody should see.
pub(crate) struct Text {
    /// Where the file is, or what a text that is none is called.
    pub(crate) path: PathBuf,
    pub(crate) medium: Medium,
    pub(crate) body: String,
    /// Where the paths in it begin.
    pub(crate) folder: PathBuf,
    pub(crate) strictness: Strictness,
    /// What its root is called.
    pub(crate) label: Way,
    /// What was written, where what is read is in other words.
    pub(crate) written: Option<Node>,
    /// Where the lines begin.
    lines: Vec<usize>,
    /// Values that nobody should see. `None` if it is not known which they are: then all are.
    veils: Option<Vec<Span>>,
}

impl Text {
    /// Reads a file, as long as it can be a configuration at all.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigurationError> {
        Ok(Self::new(path, Self::read_body(path)?))
    }

    /// All that is in a file, as long as it can be a configuration at all.
    pub(crate) fn read_body(path: &Path) -> Result<String, ConfigurationError> {
        let unreadable = |error: io::Error| ConfigurationError::unreadable(path, error);
        let file = File::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(ConfigurationError::Folder { path: path.to_owned() });
        }
        let mut bytes = Vec::new();
        // What is no plain file has no size, so the reading itself has the limit.
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(ConfigurationError::TooLarge { path: path.to_owned() });
        }
        String::from_utf8(bytes).map_err(|error| ConfigurationError::NotText {
            path: path.to_owned(),
            offset: error.utf8_error().valid_up_to(),
        })
    }

    pub(crate) fn new(path: &Path, body: String) -> Self {
        // The mark that some editors put first is no part of what somebody wrote.
        let body = body.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(body);
        let ends = body.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let lines = std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect();
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        Self {
            path: path.to_owned(),
            medium: Medium::File,
            body,
            folder,
            strictness: Strictness::Strict,
            label: Way::default(),
            written: None,
            lines,
            veils: None,
        }
    }

    /// Learns from a tree of it what nobody should see: keys, and the values of `env` and `headers`, wherever they are.
    pub(crate) fn veil(&mut self, root: &Node) {
        find_veiled(root, self.veils.get_or_insert_default());
    }

    /// The way to what was written at a place, if that is in other words than what is read.
    pub(crate) fn written_way(&self, span: Span) -> Option<Way> {
        let mut search = Search { span, found: (usize::MAX, Way::default()) };
        search.walk(self.written.as_ref()?, &Way::default());
        Some(search.found.1)
    }

    /// What was written at a place.
    pub(crate) fn slice(&self, span: Span) -> &str {
        self.body.get(span.start..span.end).unwrap_or_default()
    }

    /// The number of the line of a place, from 1.
    pub(crate) fn line(&self, span: Span) -> usize {
        self.lines.partition_point(|start| *start <= span.start)
    }

    /// What is wrong at a place. `path` is the way to the value there.
    pub(crate) fn problem(
        &self,
        severity: Severity,
        (span, path): (Span, String),
        message: String,
        help: Option<String>,
    ) -> Problem {
        let snippet = self.snippet(span);
        let (line, column) = match self.medium {
            Medium::File => (snippet.line, snippet.column),
            Medium::Setting => (0, 0),
        };
        Problem { severity, file: self.path.clone(), line, column, path, message, help, needs: None, snippet }
    }

    /// The line of a place, to be shown.
    pub(crate) fn snippet(&self, span: Span) -> Snippet {
        let start = floor(&self.body, span.start);
        let line_start = self.body[..start].rfind('\n').map_or(0, |end| end + 1);
        let line_end = self.body[start..].find('\n').map_or(self.body.len(), |end| start + end);
        // A line may be as long as the file, and no more than this of it is ever shown.
        let from = floor(&self.body, start.saturating_sub(1024)).max(line_start);
        let to = floor(&self.body, start + 1024).min(line_end);
        let shown = match &self.veils {
            Some(veils) => {
                let is_near = |veil: &&Span| veil.start < to && from < veil.end;
                let veils: Vec<Span> = veils.iter().filter(is_near).copied().collect();
                veiled(&self.body[from..to], from, &veils)
            }
            None => without_values(&self.body[from..to]),
        };
        let end = floor(&self.body, span.end).clamp(start, to.max(start));
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

/// Looks for the smallest value around a place. An object of TOML may be around less than what is in it.
struct Search {
    span: Span,
    /// How long the smallest one is, and the way to it.
    found: (usize, Way),
}

impl Search {
    fn walk(&mut self, node: &Node, way: &Way) {
        self.look_at(node.span, way);
        match &node.value {
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.walk(item, &way.step(Step::Index(index)));
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    let way = way.key(&entry.key);
                    self.look_at(entry.key_span, &way);
                    self.walk(&entry.value, &way);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        }
    }

    fn look_at(&mut self, around: Span, way: &Way) {
        let n_bytes = around.end - around.start;
        if around.start <= self.span.start && self.span.end <= around.end && n_bytes < self.found.0 {
            self.found = (n_bytes, way.clone());
        }
    }
}

/// The nearest place before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Whether the values under this key are secret until somebody says otherwise.
pub(crate) fn is_veiling(key: &str) -> bool {
    matches!(key, "apiKey" | "credentials" | "env" | "environment" | "headers")
}

/// Whether the values under this key are secret in a file of another program.
fn is_veiling_elsewhere(key: &str) -> bool {
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

/// Whether a text under this key is a secret, whoever's file it is in.
fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase().replace(['-', '_'], "");
    ["token", "secret", "password", "apikey", "credential"].iter().any(|word| key.contains(word))
}

fn find_veiled(node: &Node, veils: &mut Vec<Span>) {
    match &node.value {
        Value::List(items) => {
            let mut is_next_secret = false;
            for item in items {
                let text = if let Value::Text(text) = &item.value { text } else { "" };
                if is_next_secret && !text.starts_with('-') {
                    add_scalars(item, veils);
                } else {
                    find_veiled(item, veils);
                }
                is_next_secret = is_before_secret(text);
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                let is_text = matches!(entry.value.value, Value::Text(_));
                if is_veiling(&entry.key)
                    || is_veiling_elsewhere(&entry.key)
                    || (is_text && is_secret(&entry.key))
                {
                    add_scalars(&entry.value, veils);
                } else {
                    find_veiled(&entry.value, veils);
                }
            }
        }
        Value::Text(text) if !hidden_in(text).is_empty() => veils.push(node.span),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
    }
}

fn add_scalars(node: &Node, veils: &mut Vec<Span>) {
    match &node.value {
        Value::List(items) => items.iter().for_each(|item| add_scalars(item, veils)),
        Value::Map(entries) => entries.iter().for_each(|entry| add_scalars(&entry.value, veils)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => veils.push(node.span),
    }
}

/// A line with stars for what nobody should see. The names of variables stay.
pub(crate) fn veiled(line: &str, from: usize, veils: &[Span]) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut name = 0;
    for (at, character) in line.char_indices() {
        let place = from + at;
        let is_veiled = veils.iter().any(|veil| veil.start <= place && place < veil.end);
        if let Some(behind) = line[at..].strip_prefix("${") {
            // Names of variables are no secrets; what may stand behind them is.
            let named = ["env:", "input:"].iter().find(|kind| behind.starts_with(*kind));
            let begin = at + 2 + named.map_or(0, |kind| kind.len());
            name = line[begin..].find([':', '}']).map_or(0, |end| begin + end);
        }
        let is_shown = !is_veiled || at < name || !character.is_alphanumeric();
        shown.push(if is_shown { character } else { '*' });
    }
    shown
}

/// A line with stars for all that may be a value: what is no key, before a `:` or `=`.
pub(crate) fn without_values(line: &str) -> String {
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

/// How long the word is that a text begins with: one in quotes, a run of letters and the like, or one character.
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
