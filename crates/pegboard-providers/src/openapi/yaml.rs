//! YAML to JSON, with anchors, aliases and merge keys.

use std::collections::HashMap;

use granit_parser::{Event, Options, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

/// Maximum nesting depth, the same as for JSON.
const MAX_DEPTH: usize = 127;
/// Maximum number of values; each use of an alias counts.
const MAX_NODES: usize = 4_000_000;

/// Parses one document.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    let mut builder = YamlBuilder::default();
    let mut root = None;
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, _) =
            event.map_err(|error| format!("line {}: {}", error.marker().line(), error.info()))?;
        if root.is_some() && event.is_node() {
            return Err("it contains a second document".to_owned());
        }
        if let Some(value) = builder.push_event(event)? {
            root = Some(value);
        }
    }
    root.ok_or_else(|| "it is empty".to_owned())
}

#[derive(Default)]
struct YamlBuilder {
    /// Anchored values with their number of nodes and depth.
    anchors: HashMap<usize, (Value, usize, usize)>,
    open: Vec<OpenContainer>,
    n_nodes: usize,
}

/// List or map that is not closed yet.
struct OpenContainer {
    anchor: usize,
    items: CollectionItems,
}

enum CollectionItems {
    List(Vec<Value>),
    Map { members: Map<String, Value>, key: Option<String>, merges: Vec<Value> },
}

impl YamlBuilder {
    /// Processes an event. Returns the document once it is complete.
    fn push_event(&mut self, event: Event<'_>) -> Result<Option<Value>, String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = tag.is_some_and(|tag| tag.core_suffix() == Some("str"));
                // A key is the text as written, whatever else it could mean.
                let value = match style {
                    ScalarStyle::Plain if !is_text && !self.expects_key() => resolve_scalar(&text),
                    _ => Value::String(text.into_owned()),
                };
                self.add(value, anchor)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(anchor, CollectionItems::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => self
                .begin(anchor, CollectionItems::Map { members: Map::new(), key: None, merges: Vec::new() }),
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.insert_alias(anchor),
            _ => Ok(None),
        }
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(OpenContainer { items: CollectionItems::Map { key: None, .. }, .. }))
    }

    fn begin(&mut self, anchor: usize, items: CollectionItems) -> Result<Option<Value>, String> {
        if self.open.len() >= MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
        }
        self.open.push(OpenContainer { anchor, items });
        Ok(None)
    }

    fn end(&mut self) -> Result<Option<Value>, String> {
        let Some(open) = self.open.pop() else { return Ok(None) };
        let value = match open.items {
            CollectionItems::List(items) => Value::Array(items),
            CollectionItems::Map { mut members, merges, .. } => {
                for merge in merges {
                    merge_into(&mut members, merge);
                }
                Value::Object(members)
            }
        };
        self.add(value, open.anchor)
    }

    /// Adds a value to the open collection, and stores it under its anchor.
    fn add(&mut self, value: Value, anchor: usize) -> Result<Option<Value>, String> {
        if anchor > 0 {
            let (n_nodes, depth) = measure(&value);
            self.count(n_nodes)?;
            self.anchors.insert(anchor, (value.clone(), n_nodes, depth));
        }
        self.count(1)?;
        self.put(value)
    }

    fn count(&mut self, n_nodes: usize) -> Result<(), String> {
        self.n_nodes += n_nodes;
        if self.n_nodes > MAX_NODES { Err(format!("it has more than {MAX_NODES} values")) } else { Ok(()) }
    }

    /// Adds a value to the open collection. Returns it if it is the whole document.
    fn put(&mut self, value: Value) -> Result<Option<Value>, String> {
        let Some(open) = self.open.last_mut() else { return Ok(Some(value)) };
        match &mut open.items {
            CollectionItems::List(items) => items.push(value),
            CollectionItems::Map { members, key, merges } => match key.take() {
                None => match value {
                    Value::String(name) => *key = Some(name),
                    Value::Null | Value::Bool(_) | Value::Number(_) => *key = Some(value.to_string()),
                    Value::Array(_) | Value::Object(_) => return Err("a key must be a string".to_owned()),
                },
                Some(name) if name == "<<" => merges.push(value),
                Some(name) if members.contains_key(&name) => {
                    return Err(format!("duplicate key '{name}'"));
                }
                Some(name) => drop(members.insert(name, value)),
            },
        }
        Ok(None)
    }

    /// Adds a copy of an anchored value, which counts as if written out.
    fn insert_alias(&mut self, anchor: usize) -> Result<Option<Value>, String> {
        let Some((_, n_nodes, depth)) = self.anchors.get(&anchor) else {
            return Err("an alias refers to the value that contains it".to_owned());
        };
        let (n_nodes, depth) = (*n_nodes, *depth);
        if self.open.len() + depth > MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
        }
        self.count(n_nodes)?;
        let value = self.anchors[&anchor].0.clone();
        self.put(value)
    }
}

/// Returns the number of nodes and the depth of a value.
fn measure(value: &Value) -> (usize, usize) {
    let of_all = |items: &mut dyn Iterator<Item = &Value>| {
        items
            .map(measure)
            .fold((1, 1), |(n_nodes, depth), (more, deep)| (n_nodes + more, depth.max(deep + 1)))
    };
    match value {
        Value::Array(items) => of_all(&mut items.iter()),
        Value::Object(members) => of_all(&mut members.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (1, 0),
    }
}

/// Applies a merge key; existing members take precedence.
fn merge_into(members: &mut Map<String, Value>, merge: Value) {
    match merge {
        Value::Object(merged) => {
            for (name, value) in merged {
                members.entry(name).or_insert(value);
            }
        }
        Value::Array(items) => items.into_iter().for_each(|item| merge_into(members, item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Resolves a plain scalar by the YAML 1.2 core schema: `no` and dates are strings.
fn resolve_scalar(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let looks_like_a_number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'-' | b'+'));
    if !looks_like_a_number {
        return Value::String(text.to_owned());
    }
    let whole = || text.parse::<u64>().ok().map(Number::from);
    let negative = || text.parse::<i64>().ok().map(Number::from);
    let fraction = || text.parse::<f64>().ok().and_then(Number::from_f64);
    whole().or_else(negative).or_else(fraction).map_or_else(|| text.into(), Value::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_verbatim_and_no_is_a_string() {
        let text =
            "responses: {200: {x: no}, 1.10: 1.10, null: ~}\nbase: &b {a: 1, c: 2}\nmore: {<<: *b, a: 3}";
        assert_eq!(
            parse(text),
            Ok(json!({
                "responses": {"200": {"x": "no"}, "1.10": 1.10, "null": null},
                "base": {"a": 1, "c": 2},
                "more": {"a": 3, "c": 2},
            }))
        );
    }

    #[test]
    fn alias_bombs_are_rejected() {
        let laughs: String = (1..30).fold("l0: &l0 [x, x]\n".to_owned(), |text, at| {
            format!("{text}l{at}: &l{at} [{}]\n", vec![format!("*l{}", at - 1); 10].join(", "))
        });
        assert_eq!(parse(&laughs), Err("it has more than 4000000 values".to_owned()));
        assert!(parse(&"[".repeat(10_000)).is_err());
        assert!(parse(&"{a: ".repeat(10_000)).is_err());
        assert!(parse("a: &a [*a]").is_err());
        assert!(parse("a: 1\na: 2").is_err());
    }
}
