//! A file as a tree of values, each with the place where it was written.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Number;

use crate::source::Format;

pub(crate) mod json;
pub(crate) mod toml;
pub(crate) mod yaml;

/// How deep values may be nested.
pub(crate) const MAX_DEPTH: usize = 64;
/// How many values a file may come to; aliases count each time they are used.
pub(crate) const MAX_NODES: usize = 500_000;

/// Where something was written: in which of the texts that are read together, and there from where to where in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) text: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Span {
    /// A place in the first text, which is the only one until several are put together.
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { text: 0, start, end: end.max(start) }
    }

    /// Another place in the same text.
    pub(crate) fn beside(self, start: usize, end: usize) -> Self {
        Self { text: self.text, ..Self::new(start, end) }
    }

    /// The same place where a text is one of several, and the part of it that was read begins further on.
    fn settle(&mut self, text: usize, offset: usize) {
        *self = Self { text, start: self.start + offset, end: self.end + offset };
    }
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self::new(range.start, range.end)
    }
}

/// One value and its place.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// Where a value came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From the file.
    Written,
    /// From the default of a variable.
    Default,
    /// From elsewhere, or nobody should see it for another reason.
    Secret,
    /// From the file, but it is wrong and counts as not being there. Its neighbours keep their places.
    LeftOut,
}

/// What a value is.
#[derive(Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) key_span: Span,
    pub(crate) value: Node,
}

impl Node {
    pub(crate) fn new(span: impl Into<Span>, value: Value) -> Self {
        Self { span: span.into(), value, origin: Origin::Written }
    }

    /// Says of this value and all in it which text it is from, and where in it the part begins that was read.
    pub(crate) fn settle(&mut self, text: usize, offset: usize) {
        self.span.settle(text, offset);
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.settle(text, offset)),
            Value::Map(entries) => {
                for entry in entries {
                    entry.key_span.settle(text, offset);
                    entry.value.settle(text, offset);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        }
    }

    /// The value under a key, if this is a map and has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries()?.iter().find(|entry| entry.key == key)
    }

    pub(crate) fn entries(&self) -> Option<&[Entry]> {
        if let Value::Map(entries) = &self.value { Some(entries) } else { None }
    }

    /// What kind of value it is, in a person's words.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "an object",
        }
    }
}

/// What a file came to.
pub(crate) struct Parsed {
    pub(crate) root: Node,
    /// Keys that were there before in the same object.
    pub(crate) twins: Vec<Twin>,
}

impl Parsed {
    /// Says of all that was read which text it is from.
    pub(crate) fn settle(&mut self, text: usize) {
        self.root.settle(text, 0);
        for twin in &mut self.twins {
            twin.span.settle(text, 0);
            twin.first.settle(text, 0);
        }
    }
}

/// A key that was there before.
#[derive(Clone)]
pub(crate) struct Twin {
    pub(crate) key: String,
    pub(crate) span: Span,
    pub(crate) first: Span,
}

/// Why a text is no tree.
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
        Self::new(span, format!("the file comes to more than {MAX_NODES} values here"))
    }
}

/// Reads a text. `None` if there is nothing in it.
pub(crate) fn parse(text: &str, format: Format) -> Result<Option<Parsed>, SyntaxError> {
    match format {
        Format::Json => json::parse(text),
        Format::Yaml => yaml::parse(text),
        Format::Toml => toml::parse(text),
    }
}

/// A map that is being read.
#[derive(Default)]
struct Entries {
    entries: Vec<Entry>,
    places: HashMap<String, Span>,
}

impl Entries {
    /// Adds an entry. Of two with the same key the first stays, and the second is told.
    fn add(&mut self, entry: Entry) -> Option<Twin> {
        if let Some(&first) = self.places.get(&entry.key) {
            return Some(Twin { key: entry.key, span: entry.key_span, first });
        }
        self.places.insert(entry.key.clone(), entry.key_span);
        self.entries.push(entry);
        None
    }
}
