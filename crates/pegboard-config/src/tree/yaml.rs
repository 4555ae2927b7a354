//! YAML, with anchors, aliases and merge keys.

use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span as ParserSpan};
use serde_json::Number;

use super::{
    DuplicateKey, EntryMap, MAX_DEPTH, MAX_NODES, Node, ParsedTree, Span, SyntaxError, TreeEntry, Value,
};

pub(crate) fn parse(text: &str) -> Result<Option<ParsedTree>, SyntaxError> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    let mut builder = YamlTreeBuilder {
        text,
        anchors: HashMap::new(),
        open: Vec::new(),
        n_nodes: 0,
        duplicates: Vec::new(),
    };
    let mut root = None;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, parser_span) = event.map_err(|error| syntax(&error, text))?;
        if root.is_some() && event.is_node() {
            let message = "a configuration must be a single YAML document";
            return Err(SyntaxError::new(builder.span(parser_span), message));
        }
        if let Some(node) = builder.handle(event, parser_span)? {
            root = Some(node);
        }
    }
    let is_something = |node: &Node| !matches!(node.value, Value::Null);
    Ok(root.filter(is_something).map(|root| ParsedTree { root, duplicates: builder.duplicates }))
}

struct YamlTreeBuilder<'t> {
    text: &'t str,
    anchors: HashMap<usize, Node>,
    open: Vec<OpenNode>,
    n_nodes: usize,
    duplicates: Vec<DuplicateKey>,
}

/// A collection that is not closed yet.
struct OpenNode {
    start: Span,
    anchor: usize,
    content: OpenContent,
}

enum OpenContent {
    List(Vec<Node>),
    Map { entries: EntryMap, key: Option<(String, Span)>, merges: Vec<Node> },
}

impl YamlTreeBuilder<'_> {
    /// Handles the next event. Returns the root once it is complete.
    fn handle(&mut self, event: Event<'_>, parser_span: ParserSpan) -> Result<Option<Node>, SyntaxError> {
        let span = self.span(parser_span);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
                let value = match style {
                    ScalarStyle::Plain if !is_text => plain_scalar(&text),
                    _ => Value::Text(text.into_owned()),
                };
                self.add(Node::new(trimmed(span, self.text), value), anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(span, anchor, OpenContent::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let content =
                    OpenContent::Map { entries: EntryMap::default(), key: None, merges: Vec::new() };
                self.begin(span, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(anchor) => self.repeat(anchor, span),
            _ => Ok(None),
        }
    }

    fn begin(
        &mut self,
        start: Span,
        anchor: usize,
        content: OpenContent,
    ) -> Result<Option<Node>, SyntaxError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(SyntaxError::too_deep(start));
        }
        self.open.push(OpenNode { start, anchor, content });
        Ok(None)
    }

    fn end(&mut self, end: Span) -> Result<Option<Node>, SyntaxError> {
        let Some(open) = self.open.pop() else { return Ok(None) };
        let value = match open.content {
            OpenContent::List(items) => Value::List(items),
            OpenContent::Map { mut entries, merges, .. } => {
                for merge in merges {
                    merge_into(&mut entries, merge);
                }
                Value::Map(entries.entries)
            }
        };
        let span = trimmed(Span::new(open.start.start, end.end), self.text);
        self.add(Node::new(span, value), open.anchor)
    }

    /// Adds a new value to its parent, and registers its anchor.
    fn add(&mut self, node: Node, anchor: usize) -> Result<Option<Node>, SyntaxError> {
        if anchor > 0 {
            self.count(measure(&node).0, node.span)?;
            self.anchors.insert(anchor, node.clone());
        }
        self.count(1, node.span)?;
        self.put(node)
    }

    fn count(&mut self, n_nodes: usize, span: Span) -> Result<(), SyntaxError> {
        self.n_nodes += n_nodes;
        if self.n_nodes > MAX_NODES { Err(SyntaxError::too_many(span)) } else { Ok(()) }
    }

    /// Adds a value to its parent. Returns it if it is the root.
    fn put(&mut self, node: Node) -> Result<Option<Node>, SyntaxError> {
        let Some(open) = self.open.last_mut() else { return Ok(Some(node)) };
        match &mut open.content {
            OpenContent::List(items) => items.push(node),
            OpenContent::Map { entries, key, merges } => match key.take() {
                None => *key = Some((key_text(&node, self.text)?, node.span)),
                Some((name, _)) if name == "<<" => merges.push(node),
                Some((name, key_span)) => {
                    self.duplicates.extend(entries.add(TreeEntry { key: name, key_span, value: node }));
                }
            },
        }
        Ok(None)
    }

    /// Adds a copy of an alias' target. It counts as if it were written out.
    fn repeat(&mut self, anchor: usize, span: Span) -> Result<Option<Node>, SyntaxError> {
        let node = self.anchors.get(&anchor).cloned();
        let node = node.ok_or_else(|| SyntaxError::new(span, "this alias is inside its own anchor"))?;
        let (n_nodes, depth) = measure(&node);
        if self.open.len() + depth > MAX_DEPTH {
            return Err(SyntaxError::too_deep(span));
        }
        self.count(n_nodes, span)?;
        self.put(node)
    }

    fn span(&self, parser_span: ParserSpan) -> Span {
        parser_span.byte_range().map_or_else(|| Span::new(self.text.len(), self.text.len()), Span::from)
    }
}

/// Returns the number of values in a node and their nesting depth.
fn measure(node: &Node) -> (usize, usize) {
    let of_all = |content: &mut dyn Iterator<Item = &Node>| {
        content
            .map(measure)
            .fold((1, 1), |(n_nodes, depth), (more, deep)| (n_nodes + more, depth.max(deep + 1)))
    };
    match &node.value {
        Value::List(items) => of_all(&mut items.iter()),
        Value::Map(entries) => of_all(&mut entries.iter().map(|entry| &entry.value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => (1, 0),
    }
}

/// Returns the text of a key; numbers and booleans are taken as written.
fn key_text(node: &Node, text: &str) -> Result<String, SyntaxError> {
    match &node.value {
        Value::Text(key) => Ok(key.clone()),
        Value::List(_) | Value::Map(_) => Err(SyntaxError::new(node.span, "a key must be a string")),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            Ok(text.get(node.span.start..node.span.end).unwrap_or_default().to_owned())
        }
    }
}

/// Adds the entries of a merge key; existing entries win.
fn merge_into(entries: &mut EntryMap, merge: Node) {
    match merge.value {
        Value::Map(merged) => {
            for entry in merged {
                // A duplicate overrides the merged entry.
                let _ = entries.add(entry);
            }
        }
        Value::List(items) => items.into_iter().for_each(|item| merge_into(entries, item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
    }
}

/// Parses an unquoted scalar by the YAML 1.2 core schema: `no` and `010` are not special.
pub(crate) fn plain_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let looks_like_a_number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'-' | b'+'));
    let hexadecimal = || text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let number = if looks_like_a_number {
        let whole = || text.parse::<u64>().ok().map(Number::from);
        let negative = || text.parse::<i64>().ok().map(Number::from);
        let fraction = || text.parse::<f64>().ok().and_then(Number::from_f64);
        whole().or_else(negative).or_else(fraction)
    } else {
        hexadecimal().map(Number::from)
    };
    number.map_or_else(|| Value::Text(text.to_owned()), Value::Number)
}

/// Returns a span without trailing white space, which the parser includes.
fn trimmed(span: Span, text: &str) -> Span {
    let written = text.get(span.start..span.end).unwrap_or_default();
    Span::new(span.start, span.start + written.trim_end().len())
}

fn syntax(error: &ScanError, text: &str) -> SyntaxError {
    let at = error.marker().byte_offset().unwrap_or(text.len()).min(text.len());
    let message = format!("Invalid YAML in config file: {}", error.info());
    let uses_tab = text[..at].rsplit('\n').next().is_some_and(|line| line.contains('\t'))
        || text[at..].starts_with('\t');
    SyntaxError {
        span: Span::new(at, at),
        message,
        help: uses_tab.then(|| "indent with spaces, not tabs".to_owned()),
    }
}
