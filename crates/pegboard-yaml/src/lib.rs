//! YAML documents as trees of values with positions. Anchors, aliases and merge keys are resolved within limits.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Options, Parser, ScalarStyle};
use indexmap::IndexMap;
use indexmap::map::Entry;
use serde_json::Number;

/// Limits of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YamlLimits {
    /// Maximum nesting depth.
    pub max_depth: usize,
    /// Maximum number of values; each use of an alias counts.
    pub max_nodes: usize,
}

/// A parsed document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct YamlDocument {
    /// The value; `None` if the document is empty.
    pub root: Option<YamlNode>,
    /// Keys that occurred before in the same map. The first one counts.
    pub repeated_keys: Vec<RepeatedKey>,
}

/// A value and its byte range.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlNode {
    /// Byte range in the text; that of the anchored value if it comes from an alias.
    pub span: Range<usize>,
    /// The value.
    pub value: YamlValue,
}

/// A value of any type.
#[derive(Clone, Debug, PartialEq)]
pub enum YamlValue {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<YamlNode>),
    /// A map, in the order of the text.
    Map(IndexMap<String, YamlEntry>),
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct YamlEntry {
    /// Byte range of the key.
    pub key_span: Range<usize>,
    /// The value.
    pub value: YamlNode,
}

/// A key that occurred before in the same map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepeatedKey {
    /// The key.
    pub key: String,
    /// Its byte range.
    pub span: Range<usize>,
    /// Byte range of the first occurrence.
    pub first: Range<usize>,
}

/// The reason a text cannot be read, and its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct YamlError {
    /// Byte range in the text.
    pub span: Range<usize>,
    /// The reason.
    pub kind: YamlErrorKind,
}

/// The reason a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YamlErrorKind {
    /// The text is not YAML.
    #[error("{0}")]
    Syntax(String),
    /// There is more than one document.
    #[error("a file must be a single YAML document")]
    SecondDocument,
    /// Values are nested too deeply.
    #[error("values are nested deeper than {0} levels here")]
    TooDeep(usize),
    /// There are too many values.
    #[error("the file has more than {0} values")]
    TooMany(usize),
    /// An alias refers to the value that contains it.
    #[error("this alias is inside its own anchor")]
    RecursiveAlias,
    /// A key is a list or a map.
    #[error("a key must be a string")]
    InvalidKey,
}

/// Parses a single document.
///
/// ```
/// use pegboard_yaml::{YamlLimits, YamlValue};
///
/// let limits = YamlLimits { max_depth: 64, max_nodes: 1_000 };
/// let root = pegboard_yaml::parse("base: &b {a: 1}\nmore: {<<: *b, c: no}", limits).unwrap().root.unwrap();
/// let YamlValue::Map(entries) = root.value else { panic!("it is a map") };
/// let YamlValue::Map(more) = &entries["more"].value.value else { panic!("it is a map") };
/// assert_eq!(more["c"].value.value, YamlValue::Text("no".to_owned()));
/// assert_eq!(more["a"].value.value, YamlValue::Number(1.into()));
/// ```
pub fn parse(text: &str, limits: YamlLimits) -> Result<YamlDocument, YamlError> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = limits.max_depth;
    options.block_nesting_limit = limits.max_depth;
    let mut composer = YamlComposer {
        text,
        limits,
        anchors: HashMap::new(),
        open: Vec::new(),
        n_nodes: 0,
        document: YamlDocument::default(),
    };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker().byte_offset().unwrap_or(text.len()).min(text.len());
            YamlError { span: at..at, kind: YamlErrorKind::Syntax(error.info().clone()) }
        })?;
        let span = span.byte_range().unwrap_or(text.len()..text.len());
        if composer.document.root.is_some() && event.is_node() {
            return Err(YamlError { span, kind: YamlErrorKind::SecondDocument });
        }
        composer.handle(event, span)?;
    }
    Ok(composer.document)
}

/// Resolves an unquoted scalar by the YAML 1.2 core schema: `no`, `010` and dates are strings.
pub fn plain_scalar(text: &str) -> YamlValue {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return YamlValue::Null,
        "true" | "True" | "TRUE" => return YamlValue::Bool(true),
        "false" | "False" | "FALSE" => return YamlValue::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let looks_like_a_number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+'));
    let number = if looks_like_a_number {
        let whole = || text.parse::<u64>().ok().map(Number::from);
        let negative = || text.parse::<i64>().ok().map(Number::from);
        let fraction = || text.parse::<f64>().ok().and_then(Number::from_f64);
        whole().or_else(negative).or_else(fraction)
    } else {
        let digits = text.strip_prefix("0x");
        digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).map(Number::from)
    };
    number.map_or_else(|| YamlValue::Text(text.to_owned()), YamlValue::Number)
}

/// Composes a tree from parser events.
struct YamlComposer<'t> {
    text: &'t str,
    limits: YamlLimits,
    anchors: HashMap<usize, AnchoredNode>,
    open: Vec<OpenNode>,
    n_nodes: usize,
    document: YamlDocument,
}

/// The value of an anchor, with its number of values and its depth.
struct AnchoredNode {
    node: YamlNode,
    n_nodes: usize,
    depth: usize,
}

/// A collection that is not closed yet.
struct OpenNode {
    start: usize,
    anchor: usize,
    content: OpenContent,
}

enum OpenContent {
    List(Vec<YamlNode>),
    Map { entries: IndexMap<String, YamlEntry>, key: Option<(String, Range<usize>)>, merges: Vec<YamlNode> },
}

impl YamlComposer<'_> {
    fn handle(&mut self, event: Event<'_>, span: Range<usize>) -> Result<(), YamlError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
                let value = match style {
                    ScalarStyle::Plain if !is_text => plain_scalar(&text),
                    _ => YamlValue::Text(text.into_owned()),
                };
                self.add(YamlNode { span: self.trimmed(span), value }, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(&span, anchor, OpenContent::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let content = OpenContent::Map { entries: IndexMap::new(), key: None, merges: Vec::new() };
                self.begin(&span, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(&span),
            Event::Alias(anchor) => self.repeat(anchor, span),
            _ => Ok(()),
        }
    }

    fn begin(&mut self, span: &Range<usize>, anchor: usize, content: OpenContent) -> Result<(), YamlError> {
        self.check_depth(1, span)?;
        self.open.push(OpenNode { start: span.start, anchor, content });
        Ok(())
    }

    fn end(&mut self, span: &Range<usize>) -> Result<(), YamlError> {
        let Some(OpenNode { start, anchor, content }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            OpenContent::List(items) => YamlValue::List(items),
            OpenContent::Map { mut entries, merges, .. } => {
                for merge in merges {
                    merge_into(&mut entries, merge);
                }
                YamlValue::Map(entries)
            }
        };
        self.add(YamlNode { span: self.trimmed(start..span.end.max(start)), value }, anchor)
    }

    /// Adds a value to its parent, and registers its anchor.
    fn add(&mut self, node: YamlNode, anchor: usize) -> Result<(), YamlError> {
        if anchor > 0 {
            let (n_nodes, depth) = measure(&node);
            self.count(n_nodes, &node.span)?;
            self.anchors.insert(anchor, AnchoredNode { node: node.clone(), n_nodes, depth });
        }
        self.count(1, &node.span)?;
        self.put(node)
    }

    /// Adds a copy of an anchored value, which counts as if it were written out.
    fn repeat(&mut self, anchor: usize, span: Range<usize>) -> Result<(), YamlError> {
        let Some(&AnchoredNode { n_nodes, depth, .. }) = self.anchors.get(&anchor) else {
            return Err(YamlError { span, kind: YamlErrorKind::RecursiveAlias });
        };
        self.check_depth(depth, &span)?;
        self.count(n_nodes, &span)?;
        self.put(self.anchors[&anchor].node.clone())
    }

    /// Adds a value to its parent, or makes it the root.
    fn put(&mut self, node: YamlNode) -> Result<(), YamlError> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.document.root = Some(node),
            Some(OpenContent::List(items)) => items.push(node),
            Some(OpenContent::Map { entries, key, merges }) => match key.take() {
                None => {
                    let text = match node.value {
                        YamlValue::Text(text) => text,
                        // Numbers and booleans are taken as written.
                        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) => {
                            self.text.get(node.span.clone()).unwrap_or_default().to_owned()
                        }
                        YamlValue::List(_) | YamlValue::Map(_) => {
                            return Err(YamlError { span: node.span, kind: YamlErrorKind::InvalidKey });
                        }
                    };
                    *key = Some((text, node.span));
                }
                Some((name, _)) if name == "<<" => merges.push(node),
                Some((name, key_span)) => match entries.entry(name) {
                    Entry::Vacant(entry) => {
                        entry.insert(YamlEntry { key_span, value: node });
                    }
                    Entry::Occupied(entry) => {
                        let (key, first) = (entry.key().clone(), entry.get().key_span.clone());
                        self.document.repeated_keys.push(RepeatedKey { key, span: key_span, first });
                    }
                },
            },
        }
        Ok(())
    }

    fn count(&mut self, n_nodes: usize, span: &Range<usize>) -> Result<(), YamlError> {
        self.n_nodes += n_nodes;
        if self.n_nodes <= self.limits.max_nodes {
            return Ok(());
        }
        Err(YamlError { span: span.clone(), kind: YamlErrorKind::TooMany(self.limits.max_nodes) })
    }

    fn check_depth(&self, n_more: usize, span: &Range<usize>) -> Result<(), YamlError> {
        if self.open.len() + n_more <= self.limits.max_depth {
            return Ok(());
        }
        Err(YamlError { span: span.clone(), kind: YamlErrorKind::TooDeep(self.limits.max_depth) })
    }

    /// Returns a range without trailing white space, which the parser includes.
    fn trimmed(&self, span: Range<usize>) -> Range<usize> {
        let written = self.text.get(span.clone()).unwrap_or_default();
        span.start..span.start + written.trim_end().len()
    }
}

/// Returns the number of values in a node and their nesting depth.
fn measure(node: &YamlNode) -> (usize, usize) {
    let of_all = |content: &mut dyn Iterator<Item = &YamlNode>| {
        content
            .map(measure)
            .fold((1, 1), |(n_nodes, depth), (more, deep)| (n_nodes + more, depth.max(deep + 1)))
    };
    match &node.value {
        YamlValue::List(items) => of_all(&mut items.iter()),
        YamlValue::Map(entries) => of_all(&mut entries.values().map(|entry| &entry.value)),
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => (1, 0),
    }
}

/// Adds the entries of a merge key; existing entries take precedence.
fn merge_into(entries: &mut IndexMap<String, YamlEntry>, merge: YamlNode) {
    match merge.value {
        YamlValue::Map(merged) => {
            for (key, entry) in merged {
                entries.entry(key).or_insert(entry);
            }
        }
        YamlValue::List(items) => items.into_iter().for_each(|item| merge_into(entries, item)),
        YamlValue::Null | YamlValue::Bool(_) | YamlValue::Number(_) | YamlValue::Text(_) => {}
    }
}
