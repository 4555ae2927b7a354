//! A file as a tree of values with spans.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Number;

use crate::source::ConfigFormat;

pub(crate) mod json;
pub(crate) mod toml;
pub(crate) mod yaml;

/// Maximum nesting depth.
pub(crate) const MAX_DEPTH: usize = 64;
/// Maximum number of values in a file; aliases count each time they are used.
pub(crate) const MAX_NODES: usize = 500_000;

/// Location of a value: the index of its text and a byte range.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) text: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    /// Creates a span in the first text, which is the only one until several are merged.
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { text: 0, start, end: end.max(start) }
    }

    /// Returns another span in the same text.
    pub(crate) fn beside(self, start: usize, end: usize) -> Self {
        Self { text: self.text, ..Self::new(start, end) }
    }

    /// Moves the span to a text with this index, by an offset.
    fn relocate(&mut self, text: usize, offset: usize) {
        *self = Self { text, start: self.start + offset, end: self.end + offset };
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self::new(range.start, range.end)
    }
}

/// A value and its span.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
    pub(crate) origin: ValueOrigin,
}

/// The origin of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueOrigin {
    /// Written in the file.
    Written,
    /// Default of a variable.
    Default,
    /// Expanded from a variable, or secret for another reason.
    Secret,
    /// Written but invalid, and therefore ignored. Its siblings keep their indexes.
    LeftOut,
}

/// A value of any type.
#[derive(Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<TreeEntry>),
}

/// A key and its value.
#[derive(Clone)]
pub(crate) struct TreeEntry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn new(span: impl Into<Span>, value: Value) -> Self {
        Self { span: span.into(), value, origin: ValueOrigin::Written }
    }

    /// Moves this value and its descendants to a text with this index, by an offset.
    pub(crate) fn relocate(&mut self, text: usize, offset: usize) {
        self.span.relocate(text, offset);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.relocate(text, offset)),
            Value::Map(entries) => {
                for entry in entries {
                    entry.key_span.relocate(text, offset);
                    entry.value.relocate(text, offset);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        }
    }

    /// Returns the value under a key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&TreeEntry> {
        self.entries()?.iter().find(|entry| entry.key == key)
    }

    pub(crate) fn entries(&self) -> Option<&[TreeEntry]> {
        if let Value::Map(entries) = &self.value { Some(entries) } else { None }
    }

    /// Returns a description of the type.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "null",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::Text(_) => "a string",
            Value::List(_) => "a list",
            Value::Map(_) => "an object",
        }
    }
}

/// A parsed file.
pub(crate) struct ParsedTree {
    pub(crate) root: Node,
    /// Keys that occurred before in the same object.
    pub(crate) duplicates: Vec<DuplicateKey>,
}

impl ParsedTree {
    /// Moves all spans to a text with this index.
    pub(crate) fn relocate(&mut self, text: usize) {
        self.root.relocate(text, 0);
        for duplicate in &mut self.duplicates {
            duplicate.span.relocate(text, 0);
            duplicate.first.relocate(text, 0);
        }
    }
}

/// A key that occurred before in the same object.
#[derive(Clone)]
pub(crate) struct DuplicateKey {
    pub(crate) key: String,
    pub(crate) span: Span,
    pub(crate) first: Span,
}

/// A syntax error.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) span: Span,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

impl SyntaxError {
    fn new(span: impl Into<Span>, message: impl Into<String>) -> Self {
        Self { span: span.into(), message: message.into(), help: None }
    }

    fn too_deep(span: impl Into<Span>) -> Self {
        Self::new(span, format!("values are nested deeper than {MAX_DEPTH} levels here"))
    }

    fn too_many(span: impl Into<Span>) -> Self {
        Self::new(span, format!("the file has more than {MAX_NODES} values"))
    }
}

/// Parses a text. Returns `None` if it is empty.
pub(crate) fn parse(text: &str, format: ConfigFormat) -> Result<Option<ParsedTree>, SyntaxError> {
    match format {
        ConfigFormat::Json => json::parse(text),
        ConfigFormat::Yaml => yaml::parse(text),
        ConfigFormat::Toml => toml::parse(text),
    }
}

/// A map under construction.
#[derive(Default)]
struct EntryMap {
    entries: Vec<TreeEntry>,
    spans_by_key: HashMap<String, Span>,
}

impl EntryMap {
    /// Adds an entry. Of duplicate keys the first is kept, and the second is returned.
    fn add(&mut self, entry: TreeEntry) -> Option<DuplicateKey> {
        if let Some(&first) = self.spans_by_key.get(&entry.key) {
            return Some(DuplicateKey { key: entry.key, span: entry.key_span, first });
        }
        self.spans_by_key.insert(entry.key.clone(), entry.key_span);
        self.entries.push(entry);
        None
    }
}
