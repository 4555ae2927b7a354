//! Edits configuration files in place and preserves everything else.
//!
//! A [`ConfigDocument`] is a text and its parsed value. An edit changes only the affected places of the text:
//! comments, key order, indentation and line endings are preserved. The result is parsed again, and if its
//! value is not exactly the expected one, the edit is rejected and nothing changes.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::ConfigurationError;
use crate::path::{KeyPath, KeySegment};
use crate::problem::{ConfigProblem, Severity};
use crate::source::{ConfigFormat, SourceText};
use crate::to_json::to_json;
use crate::tree::{self, ParsedTree, Span, Value as NodeValue};

mod atomic_write;
mod change;
mod cst;
mod cst_edit;
mod diff;
mod flow;
mod json;
mod print;
mod text;
mod toml;
mod yaml;

pub use atomic_write::{WriteError, resolve_links, write};
pub use change::FileChange;
pub use diff::diff;

use cst::CstNode;
use cst_edit::{EditConflict, value_at};
use text::{EditText, Splice, apply};

/// Byte order mark, which some editors write first.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The path from the root of a document to a value.
///
/// ```
/// use pegboard_config::edit::EditPath;
///
/// let path = EditPath::from_keys(["mcpServers", "github"]).key("args").index(0);
/// assert_eq!(path.to_string(), "mcpServers.github.args[0]");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditPath(Vec<EditSegment>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum EditSegment {
    Key(String),
    Index(usize),
    Named(String),
}

impl EditPath {
    /// Creates a path from keys.
    pub fn from_keys<'k>(keys: impl IntoIterator<Item = &'k str>) -> Self {
        Self(keys.into_iter().map(|key| EditSegment::Key(key.to_owned())).collect())
    }

    /// Creates a path from segments.
    pub(crate) fn from_segments(segments: &[KeySegment]) -> Self {
        let segment = |segment: &KeySegment| match segment {
            KeySegment::Key(key) => EditSegment::Key(key.clone()),
            KeySegment::Index(index) => EditSegment::Index(*index),
        };
        Self(segments.iter().map(segment).collect())
    }

    /// Returns `true` if the path starts with these keys and is longer.
    pub fn is_below(&self, keys: &[String]) -> bool {
        let begins = self
            .0
            .iter()
            .zip(keys)
            .all(|(segment, key)| matches!(segment, EditSegment::Key(own) if own == key));
        self.0.len() > keys.len() && begins
    }

    /// Extends the path by a key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.0.push(EditSegment::Key(key.to_owned()));
        self
    }

    /// Extends the path by a list index from 0; the length of the list denotes a new item.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(EditSegment::Index(index));
        self
    }

    /// Extends the path by the list item with this `name`, or a new item if there is none.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.0.push(EditSegment::Named(name.to_owned()));
        self
    }

    /// Resolves the path to keys and indexes in a value.
    fn segments(&self, root: &Value) -> Vec<KeySegment> {
        let mut segments = Vec::new();
        for segment in &self.0 {
            let segment = match segment {
                EditSegment::Key(key) => KeySegment::Key(key.clone()),
                EditSegment::Index(index) => KeySegment::Index(*index),
                EditSegment::Named(name) => {
                    let items = value_at(root, &segments)
                        .and_then(Value::as_array)
                        .map(Vec::as_slice)
                        .unwrap_or_default();
                    let has_name = |item: &Value| item.get("name").and_then(Value::as_str) == Some(name);
                    KeySegment::Index(items.iter().position(has_name).unwrap_or(items.len()))
                }
            };
            segments.push(segment);
        }
        segments
    }
}

impl std::fmt::Display for EditPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let segment = |segment: &EditSegment| match segment {
            EditSegment::Key(key) | EditSegment::Named(key) => KeySegment::Key(key.clone()),
            EditSegment::Index(index) => KeySegment::Index(*index),
        };
        let segments: Vec<KeySegment> = self.0.iter().map(segment).collect();
        KeyPath::default().extended(&segments).fmt(f)
    }
}

/// Error of an edit.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The edit is impossible without changing more than requested.
    #[error("{}", .0.render())]
    Unsafe(Box<ConfigProblem>),
}

/// The text of a configuration file, which can be edited in place.
///
/// ```
/// use pegboard_config::edit::{ConfigDocument, EditPath};
///
/// let text = "# Mine\nmcpServers:\n  files: {command: my-server} # the old one\n";
/// let mut document = ConfigDocument::new("pegboard.yaml".as_ref(), text.to_owned())?;
/// document.set(&EditPath::from_keys(["mcpServers", "github", "url"]), &"https://example.com/mcp".into())?;
/// assert_eq!(
///     document.text(),
///     "# Mine\nmcpServers:\n  files: {command: my-server} # the old one\n  github:\n    url: https://example.com/mcp\n",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ConfigDocument {
    path: PathBuf,
    format: ConfigFormat,
    has_bom: bool,
    body: String,
    value: Value,
    /// Span of a duplicate key, which makes edits ambiguous.
    duplicate: Option<Span>,
}

impl ConfigDocument {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigurationError> {
        Self::new(path, SourceText::read_body(path)?)
    }

    /// Parses a text as the contents of a file with this name. Nothing is read from disk.
    pub fn new(path: &Path, text: String) -> Result<Self, ConfigurationError> {
        let has_bom = text.starts_with(BYTE_ORDER_MARK);
        let text = SourceText::new(path, text);
        let format = ConfigFormat::of(&text.path, &text.body);
        let parsed = tree::parse(&text.body, format).map_err(|error| {
            let span_at = (error.span, String::new());
            let problem = text.problem(Severity::Error, span_at, error.message, error.help);
            ConfigurationError::Invalid { problems: vec![problem] }
        })?;
        let duplicate = parsed.as_ref().and_then(|parsed| Some(parsed.duplicates.first()?.span));
        let value = to_json_value(parsed.as_ref());
        Ok(Self { path: text.path, format, has_bom, body: text.body, value, duplicate })
    }

    /// Returns the current text.
    pub fn text(&self) -> String {
        let mark = if self.has_bom { BYTE_ORDER_MARK.to_string() } else { String::new() };
        mark + &self.body
    }

    /// Format of the text.
    pub fn format(&self) -> ConfigFormat {
        self.format
    }

    /// Parsed value of the text.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the value at a path.
    pub fn get(&self, key_path: &EditPath) -> Option<&Value> {
        value_at(&self.value, &key_path.segments(&self.value))
    }

    /// Sets the value at a path. Replaces the existing value and creates missing objects.
    pub fn set(&mut self, key_path: &EditPath, value: &Value) -> Result<(), EditError> {
        let segments = key_path.segments(&self.value);
        if value_at(&self.value, &segments) == Some(value) {
            return Ok(());
        }
        let mut expected = self.value.clone();
        if !set_at(&mut expected, &segments, value) {
            return Err(self
                .conflict(key_path, EditConflict::new(self.span_at(&segments), "expected an object here")));
        }
        let splices = self.set_at(&segments, value).map_err(|conflict| self.conflict(key_path, conflict))?;
        self.apply_splices(key_path, splices, &expected)
    }

    /// Appends a value to the list at a path, which is created if it does not exist.
    pub fn append(&mut self, key_path: &EditPath, value: &Value) -> Result<(), EditError> {
        let n_items = self.get(key_path).and_then(Value::as_array).map_or(0, Vec::len);
        self.set(&key_path.clone().index(n_items), value)
    }

    /// Removes the value at a path and returns it.
    pub fn remove(&mut self, key_path: &EditPath) -> Result<Option<Value>, EditError> {
        let segments = key_path.segments(&self.value);
        let Some(removed) = value_at(&self.value, &segments).cloned() else { return Ok(None) };
        let mut expected = self.value.clone();
        remove_at(&mut expected, &segments);
        let splices = match self.format {
            ConfigFormat::Toml => toml::remove(self.edit_text(), &segments),
            ConfigFormat::Json | ConfigFormat::Yaml => match self.root() {
                Some(root) => cst_edit::remove(self.edit_text(), &root, &segments),
                None => Ok(Vec::new()),
            },
        };
        let splices = splices.map_err(|conflict| self.conflict(key_path, conflict))?;
        self.apply_splices(key_path, splices, &expected)?;
        Ok(Some(removed))
    }

    fn edit_text(&self) -> EditText<'_> {
        EditText { text: &self.body, format: self.format }
    }

    /// Returns the concrete syntax tree, for formats that have one.
    fn root(&self) -> Option<CstNode> {
        match self.format {
            ConfigFormat::Json => Some(CstNode::of_json(&tree::parse(&self.body, self.format).ok()??.root)),
            ConfigFormat::Yaml => yaml::parse_cst(&self.body),
            ConfigFormat::Toml => None,
        }
    }

    fn set_at(&self, segments: &[KeySegment], value: &Value) -> Result<Vec<Splice>, EditConflict> {
        let edit_text = self.edit_text();
        match (self.format, self.root()) {
            (ConfigFormat::Toml, _) => toml::put(edit_text, segments, (&self.value, value)),
            (ConfigFormat::Json | ConfigFormat::Yaml, Some(root)) if !self.is_empty() => {
                cst_edit::put(edit_text, &root, segments, (&self.value, value))
            }
            (ConfigFormat::Yaml, _) => {
                Ok(vec![yaml::first_value(edit_text, &cst_edit::nest(segments, value))])
            }
            (ConfigFormat::Json, _) => {
                let whole = cst_edit::nest(segments, value);
                let layout = print::PrintLayout::lines(edit_text, "");
                let is_line = edit_text.text.is_empty() || edit_text.text.ends_with('\n');
                let before = if is_line { "" } else { edit_text.newline() };
                let text = format!("{before}{}{}", json::value(&whole, &layout), edit_text.newline());
                Ok(vec![Splice::insert(edit_text.text.len(), text)])
            }
        }
    }

    /// Returns `true` if the text holds nothing but comments.
    fn is_empty(&self) -> bool {
        matches!(tree::parse(&self.body, self.format), Ok(None))
    }

    /// Applies an edit if the result has the expected value.
    fn apply_splices(
        &mut self,
        key_path: &EditPath,
        splices: Vec<Splice>,
        expected: &Value,
    ) -> Result<(), EditError> {
        let span = splices.first().map_or(Span::default(), |splice| splice.span);
        if let Some(duplicate) = self.duplicate {
            let message = "duplicate key: remove one of the two first";
            return Err(self.conflict(key_path, EditConflict::new(duplicate, message)));
        }
        let body = apply(&self.body, splices);
        let changed = tree::parse(&body, self.format).ok().map(|parsed| to_json_value(parsed.as_ref()));
        let is_right = |changed: &Value| {
            changed == expected
                || (self.format == ConfigFormat::Toml
                    && without_empty_objects(changed) == without_empty_objects(expected))
        };
        match changed.filter(is_right) {
            Some(changed) => {
                self.body = body;
                self.value = changed;
                Ok(())
            }
            None => {
                Err(self.conflict(key_path, EditConflict::new(span, "this edit would change other values")))
            }
        }
    }

    /// Returns the span of the value at a path, or of its closest existing ancestor.
    fn span_at(&self, segments: &[KeySegment]) -> Span {
        let Ok(Some(parsed)) = tree::parse(&self.body, self.format) else { return Span::default() };
        let mut node = &parsed.root;
        for segment in segments {
            let next = match (segment, &node.value) {
                (KeySegment::Key(key), _) => node.get(key),
                (KeySegment::Index(index), NodeValue::List(items)) => items.get(*index),
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
        }
        node.span
    }

    fn conflict(&self, key_path: &EditPath, conflict: EditConflict) -> EditError {
        let mut text = SourceText::new(&self.path, self.body.clone());
        if let Ok(Some(parsed)) = tree::parse(&self.body, self.format) {
            text.redact(&parsed.root);
        }
        let help = format!("the file was not changed; edit {key_path} by hand");
        let span_at = (conflict.span, key_path.to_string());
        EditError::Unsafe(Box::new(text.problem(Severity::Error, span_at, conflict.message, Some(help))))
    }
}

/// Converts a tree to plain JSON.
fn to_json_value(parsed: Option<&ParsedTree>) -> Value {
    parsed.map_or_else(|| Value::Object(Map::new()), |parsed| to_json(&parsed.root))
}

/// Sets the value at a path. Returns `false` if the path leads through a scalar.
fn set_at(root: &mut Value, segments: &[KeySegment], value: &Value) -> bool {
    let Some((first, rest)) = segments.split_first() else {
        *root = value.clone();
        return true;
    };
    if root.is_null() {
        *root = cst_edit::nest(segments, value);
        return true;
    }
    match (first, root) {
        (KeySegment::Key(key), Value::Object(entries)) => {
            if let Some(inner) = entries.get_mut(key) {
                return set_at(inner, rest, value);
            }
            entries.insert(key.clone(), cst_edit::nest(rest, value));
            true
        }
        (KeySegment::Index(index), Value::Array(items)) if *index < items.len() => {
            set_at(&mut items[*index], rest, value)
        }
        (KeySegment::Index(index), Value::Array(items)) if *index == items.len() => {
            items.push(cst_edit::nest(rest, value));
            true
        }
        _ => false,
    }
}

/// Removes the value at a path.
fn remove_at(root: &mut Value, segments: &[KeySegment]) {
    let Some((first, rest)) = segments.split_first() else { return };
    match (first, root) {
        (KeySegment::Key(key), Value::Object(entries)) if rest.is_empty() => {
            entries.shift_remove(key);
        }
        (KeySegment::Key(key), Value::Object(entries)) => {
            if let Some(inner) = entries.get_mut(key) {
                remove_at(inner, rest);
            }
        }
        (KeySegment::Index(index), Value::Array(items)) if *index < items.len() => {
            if rest.is_empty() {
                items.remove(*index);
            } else {
                remove_at(&mut items[*index], rest);
            }
        }
        _ => {}
    }
}

/// Returns a value without empty objects: TOML cannot express implicit empty tables.
fn without_empty_objects(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let inner = entries.iter().map(|(key, value)| (key.clone(), without_empty_objects(value)));
            Value::Object(inner.filter(|(_, value)| !value.as_object().is_some_and(Map::is_empty)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => value.clone(),
    }
}
