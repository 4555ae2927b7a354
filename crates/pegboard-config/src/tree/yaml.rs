//! YAML, with anchors, aliases and merge keys.

use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span as Place};
use serde_json::Number;

use super::{Entries, Entry, MAX_DEPTH, MAX_NODES, Node, Parsed, Span, SyntaxError, Twin, Value};

pub(crate) fn parse(text: &str) -> Result<Option<Parsed>, SyntaxError> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    let mut builder =
        Builder { text, anchors: HashMap::new(), open: Vec::new(), n_nodes: 0, twins: Vec::new() };
    let mut root = None;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, place) = event.map_err(|error| syntax(&error, text))?;
        if root.is_some() && event.is_node() {
            let message = "a second document begins here, and a configuration is one";
            return Err(SyntaxError::new(builder.span(place), message));
        }
        if let Some(node) = builder.take(event, place)? {
            root = Some(node);
        }
    }
    let is_something = |node: &Node| !matches!(node.value, Value::Null);
    Ok(root.filter(is_something).map(|root| Parsed { root, twins: builder.twins }))
}

struct Builder<'t> {
    text: &'t str,
    anchors: HashMap<usize, Node>,
    open: Vec<Open>,
    n_nodes: usize,
    twins: Vec<Twin>,
}

/// A list or map whose end has not come.
struct Open {
    start: Span,
    anchor: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<Node>),
    Map { entries: Entries, key: Option<(String, Span)>, merges: Vec<Node> },
}

impl Builder<'_> {
    /// Takes the next event. Gives back the whole once it is there.
    fn take(&mut self, event: Event<'_>, place: Place) -> Result<Option<Node>, SyntaxError> {
        let span = self.span(place);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
                let value = match style {
                    ScalarStyle::Plain if !is_text => plain(&text),
                    _ => Value::Text(text.into_owned()),
                };
                self.add(Node::new(trimmed(span, self.text), value), anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(span, anchor, Inside::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let inside = Inside::Map { entries: Entries::default(), key: None, merges: Vec::new() };
                self.begin(span, anchor, inside)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(anchor) => self.repeat(anchor, span),
            _ => Ok(None),
        }
    }

    fn begin(&mut self, start: Span, anchor: usize, inside: Inside) -> Result<Option<Node>, SyntaxError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(SyntaxError::too_deep(start));
        }
        self.open.push(Open { start, anchor, inside });
        Ok(None)
    }

    fn end(&mut self, end: Span) -> Result<Option<Node>, SyntaxError> {
        let Some(open) = self.open.pop() else { return Ok(None) };
        let value = match open.inside {
            Inside::List(items) => Value::List(items),
            Inside::Map { mut entries, merges, .. } => {
                for merge in merges {
                    merge_into(&mut entries, merge);
                }
                Value::Map(entries.entries)
            }
        };
        let span = trimmed(Span::new(open.start.start, end.end), self.text);
        self.add(Node::new(span, value), open.anchor)
    }

    /// Puts a new value where it belongs, and under its anchor.
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

    /// Puts a value where it belongs. Gives it back if it is the whole.
    fn put(&mut self, node: Node) -> Result<Option<Node>, SyntaxError> {
        let Some(open) = self.open.last_mut() else { return Ok(Some(node)) };
        match &mut open.inside {
            Inside::List(items) => items.push(node),
            Inside::Map { entries, key, merges } => match key.take() {
                None => *key = Some((key_text(&node, self.text)?, node.span)),
                Some((name, _)) if name == "<<" => merges.push(node),
                Some((name, key_span)) => {
                    self.twins.extend(entries.add(Entry { key: name, key_span, value: node }));
                }
            },
        }
        Ok(None)
    }

    /// Puts a copy of what an alias names. It counts as if it had been written out.
    fn repeat(&mut self, anchor: usize, span: Span) -> Result<Option<Node>, SyntaxError> {
        let node = self.anchors.get(&anchor).cloned();
        let node = node.ok_or_else(|| SyntaxError::new(span, "this alias stands inside what it names"))?;
        let (n_nodes, depth) = measure(&node);
        if self.open.len() + depth > MAX_DEPTH {
            return Err(SyntaxError::too_deep(span));
        }
        self.count(n_nodes, span)?;
        self.put(node)
    }

    fn span(&self, place: Place) -> Span {
        place.byte_range().map_or_else(|| Span::new(self.text.len(), self.text.len()), Span::from)
    }
}

/// How many values there are in one, and how deep they are nested.
fn measure(node: &Node) -> (usize, usize) {
    let of_all = |inside: &mut dyn Iterator<Item = &Node>| {
        inside
            .map(measure)
            .fold((1, 1), |(n_nodes, depth), (more, deep)| (n_nodes + more, depth.max(deep + 1)))
    };
    match &node.value {
        Value::List(items) => of_all(&mut items.iter()),
        Value::Map(entries) => of_all(&mut entries.iter().map(|entry| &entry.value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => (1, 0),
    }
}

/// A key is a text; numbers and words are the texts that they are written as.
fn key_text(node: &Node, text: &str) -> Result<String, SyntaxError> {
    match &node.value {
        Value::Text(key) => Ok(key.clone()),
        Value::List(_) | Value::Map(_) => Err(SyntaxError::new(node.span, "a key must be a text")),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            Ok(text.get(node.span.start..node.span.end).unwrap_or_default().to_owned())
        }
    }
}

/// Adds what a merge key brings; what is there already stays.
fn merge_into(entries: &mut Entries, merge: Node) {
    match merge.value {
        Value::Map(merged) => {
            for entry in merged {
                // A twin here is what somebody changes about what is merged.
                let _ = entries.add(entry);
            }
        }
        Value::List(items) => items.into_iter().for_each(|item| merge_into(entries, item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
    }
}

/// What a text without quotes means, by the core schema of YAML 1.2: `no` and `010` mean what they say.
pub(crate) fn plain(text: &str) -> Value {
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

/// A place without the white space behind it, which the parser counts in.
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
        help: uses_tab.then(|| "indent with spaces, not with tabs".to_owned()),
    }
}
