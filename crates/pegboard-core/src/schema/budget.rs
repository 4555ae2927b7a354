//! What a schema may cost: hostile ones are refused before they are compiled.

use std::collections::HashMap;
use std::ptr;

use serde_json::{Map, Value};

/// Nesting of the schema itself.
const MAX_DEPTH: usize = 128;
/// Objects in the schema.
const MAX_NODES: usize = 100_000;
/// Patterns, each of which may take a megabyte when compiled.
const MAX_PATTERNS: usize = 200;
/// Subschemas that apply to one place of the value, references followed.
const MAX_APPLIED: u64 = 10_000;
/// References that lead to references, at one place of the value.
const MAX_HOPS: usize = 100;
/// Steps that one validation may take, as an order of magnitude.
const MAX_STEPS: f64 = 1e8;
/// Nesting of a value under a schema that may call itself; beyond it the stack is at risk.
const MAX_VALUE_DEPTH: usize = 256;

/// What is known of a schema's cost before it meets a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// How deep a value may nest. `None` where the schema's own shape bounds the work.
    pub(super) max_value_depth: Option<usize>,
}

/// Looks a schema over, or says why it is too costly.
pub(super) fn examine(schema: &Value) -> Result<Budget, String> {
    let mut survey = Survey::of(schema);
    survey.walk(schema, 0)?;
    let mut branching = 0;
    for node in std::mem::take(&mut survey.nodes) {
        branching = branching.max(survey.cost(node, 0)?.branching);
    }
    Ok(Budget { max_value_depth: survey.has_references.then(|| depth_that_bounds(branching)) })
}

/// The depth at which work that grows by `branching` per level is still bounded.
fn depth_that_bounds(branching: u64) -> usize {
    (1..MAX_VALUE_DEPTH)
        .take_while(|&depth| {
            let depth = i32::try_from(depth).unwrap_or(i32::MAX);
            f64::from(u32::try_from(branching).unwrap_or(u32::MAX)).powi(depth) <= MAX_STEPS
        })
        .last()
        .unwrap_or(1)
}

/// Whether a value nests deeper than `limit` levels.
pub(super) fn is_deeper_than(value: &Value, limit: usize) -> bool {
    let Some(rest) = limit.checked_sub(1) else { return value.is_array() || value.is_object() };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper_than(item, rest)),
        Value::Object(members) => members.values().any(|member| is_deeper_than(member, rest)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

struct Survey<'s> {
    root: &'s Value,
    nodes: Vec<&'s Value>,
    /// Subschemas by `$anchor`, `$dynamicAnchor` and `$id`.
    named: HashMap<&'s str, &'s Value>,
    patterns: usize,
    has_references: bool,
    costs: HashMap<*const Value, State>,
}

#[derive(Clone, Copy)]
enum State {
    Open,
    Known(Cost),
}

/// What one place of the value costs.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// Subschemas applied to that place.
    applied: u64,
    /// Those of them that look further into the value: the factor by which work may grow per level.
    branching: u64,
}

impl<'s> Survey<'s> {
    fn of(root: &'s Value) -> Self {
        Self {
            root,
            nodes: Vec::new(),
            named: HashMap::new(),
            patterns: 0,
            has_references: false,
            costs: HashMap::new(),
        }
    }

    fn walk(&mut self, value: &'s Value, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("it nests deeper than {MAX_DEPTH} levels"));
        }
        match value {
            Value::Object(keywords) => {
                self.note(value, keywords)?;
                keywords.values().try_for_each(|inner| self.walk(inner, depth + 1))
            }
            Value::Array(items) => items.iter().try_for_each(|inner| self.walk(inner, depth + 1)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }

    fn note(&mut self, node: &'s Value, keywords: &'s Map<String, Value>) -> Result<(), String> {
        self.nodes.push(node);
        if self.nodes.len() > MAX_NODES {
            return Err(format!("it has more than {MAX_NODES} parts"));
        }
        self.patterns += usize::from(keywords.contains_key("pattern"));
        self.patterns += keywords.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        if self.patterns > MAX_PATTERNS {
            return Err(format!("it has more than {MAX_PATTERNS} patterns"));
        }
        for naming in ["$anchor", "$dynamicAnchor", "$id"] {
            if let Some(name) = keywords.get(naming).and_then(Value::as_str) {
                self.named.entry(name).or_insert(node);
            }
        }
        Ok(())
    }

    fn cost(&mut self, node: &'s Value, hops: usize) -> Result<Cost, String> {
        let Some(keywords) = node.as_object() else { return Ok(Cost { applied: 1, branching: 0 }) };
        match self.costs.get(&ptr::from_ref(node)) {
            Some(State::Known(cost)) => return Ok(*cost),
            Some(State::Open) => return Err("it refers to itself without an end".to_owned()),
            None => {}
        }
        if hops > MAX_HOPS {
            return Err(format!("more than {MAX_HOPS} references lead to one another"));
        }
        self.costs.insert(node, State::Open);
        let looks_inside = keywords.keys().any(|keyword| LOOK_INSIDE.contains(&keyword.as_str()));
        let mut cost = Cost { applied: 1, branching: u64::from(looks_inside) };
        for (keyword, value) in keywords {
            for applied in self.applied_in_place(keyword, value) {
                let inner = self.cost(applied, hops + 1)?;
                cost.applied = cost.applied.saturating_add(inner.applied);
                cost.branching = cost.branching.saturating_add(inner.branching);
            }
        }
        if cost.applied > MAX_APPLIED {
            return Err(format!("more than {MAX_APPLIED} of its parts apply to one value"));
        }
        self.costs.insert(node, State::Known(cost));
        Ok(cost)
    }

    /// The subschemas that a keyword applies to the same value, not to a part of it.
    fn applied_in_place(&mut self, keyword: &str, value: &'s Value) -> Vec<&'s Value> {
        match keyword {
            "allOf" | "anyOf" | "oneOf" => value.as_array().into_iter().flatten().collect(),
            "not" | "if" | "then" | "else" => vec![value],
            "dependentSchemas" | "dependencies" => {
                value.as_object().into_iter().flat_map(Map::values).collect()
            }
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                self.has_references = true;
                value.as_str().and_then(|reference| self.target(reference)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Where a reference leads inside this schema. One that leads elsewhere is left to the compiler.
    fn target(&self, reference: &str) -> Option<&'s Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let document = if base.is_empty() { self.root } else { self.named.get(base).copied()? };
        if fragment.is_empty() || fragment.starts_with('/') {
            return document.pointer(&percent_decoded(fragment));
        }
        self.named.get(fragment).copied()
    }
}

/// The keywords whose subschemas apply to parts of the value.
const LOOK_INSIDE: [&str; 10] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
];

/// A URI fragment as the JSON pointer it stands for.
pub(super) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = match after.get(..2) {
            Some(hex) if byte == b'%' => {
                std::str::from_utf8(hex).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok())
            }
            _ => None,
        };
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}
