//! Cost limits: rejects schema bombs before compilation, and costly combinations of schema and value before
//! validation.

use std::collections::HashMap;
use std::ptr;

use serde_json::{Map, Value};

use super::vocabulary;

/// Maximum nesting of the schema.
const MAX_DEPTH: usize = 128;
/// Maximum number of subschemas.
const MAX_NODES: usize = 100_000;
/// Maximum number of patterns, each of which may take a megabyte when compiled.
const MAX_PATTERNS: usize = 200;
/// Maximum number of subschemas that apply to one location of the value, references followed.
const MAX_APPLIED: u64 = 10_000;
/// Maximum length of a chain of references at one location of the value.
const MAX_HOPS: usize = 100;
/// Maximum number of steps of a validation that need not leave the thread of its caller: a few milliseconds.
const CHEAP_STEPS: u64 = 20_000;
/// Cost multiplier of `unevaluated…`, which evaluates its neighbours repeatedly.
const UNEVALUATED_FACTOR: u64 = 3;

/// Static cost information of a schema.
#[derive(Clone, Debug, Default)]
pub(super) struct SchemaBudget {
    /// `true` if the cost depends on the value, so that a dry run is needed.
    pub(super) needs_dry_run: bool,
    /// Maximum number of subschemas that apply to one location of the value.
    max_applied: u64,
    /// JSON pointers of the anchors that references use.
    names: HashMap<String, String>,
}

/// Analyzes the cost of a schema; fails if it is too high or a reference cannot be resolved.
pub(super) fn analyze(schema: &Value) -> Result<SchemaBudget, String> {
    if is_deeper_than(schema, MAX_DEPTH) {
        return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
    }
    let mut analysis = CostAnalysis::of(schema);
    analysis.walk(schema, &mut String::new(), true)?;
    while let Some(node) = analysis.pending.pop() {
        analysis.cost(node)?;
    }
    Ok(analysis.budget)
}

/// Returns `true` if a value nests deeper than `limit` levels.
fn is_deeper_than(value: &Value, limit: usize) -> bool {
    let Some(rest) = limit.checked_sub(1) else { return value.is_array() || value.is_object() };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper_than(item, rest)),
        Value::Object(members) => members.values().any(|member| is_deeper_than(member, rest)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

impl SchemaBudget {
    /// Returns `true` if validation may take more than [`CHEAP_STEPS`].
    pub(super) fn is_costly(&self, root: &Value, value: &Value) -> bool {
        if self.needs_dry_run {
            return DryRun::run_with(root, self, value, CheckPurpose::Verdict, CHEAP_STEPS).is_err();
        }
        let max_values = CHEAP_STEPS / self.max_applied.max(1);
        count_values(value, max_values).is_none()
    }

    /// Resolves a reference inside the schema; `None` for the meta-schemas.
    pub(super) fn target<'s>(&self, root: &'s Value, reference: &str) -> Option<&'s Value> {
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let is_here = base.is_empty()
            || root.get("$id").and_then(Value::as_str).is_some_and(|id| id.trim_end_matches('#') == base);
        match fragment {
            _ if !is_here => None,
            "" => Some(root),
            pointer if pointer.starts_with('/') => root.pointer(&percent_decoded(pointer)),
            name => root.pointer(self.names.get(name)?),
        }
    }
}

/// Counts the values in a value; `None` if there are more than `limit`.
fn count_values(value: &Value, limit: u64) -> Option<u64> {
    let rest = limit.checked_sub(1)?;
    let add = |n_values: u64, inner: &Value| Some(n_values + count_values(inner, rest - n_values.min(rest))?);
    let n_inner = match value {
        Value::Array(items) => items.iter().try_fold(0, add)?,
        Value::Object(members) => members.values().try_fold(0, add)?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    Some(n_inner + 1)
}

struct CostAnalysis<'s> {
    root: &'s Value,
    budget: SchemaBudget,
    n_nodes: usize,
    n_patterns: usize,
    /// Subschemas without a computed cost.
    pending: Vec<&'s Value>,
    costs: HashMap<*const Value, CostState>,
    /// Current recursion depth.
    n_open: usize,
}

#[derive(Clone, Copy)]
enum CostState {
    InProgress,
    Known(Cost),
}

/// Cost of validating one location of the value.
#[derive(Clone, Copy)]
struct Cost {
    /// Number of subschemas applied to that location.
    applied: u64,
    /// Length of the longest chain of them.
    height: usize,
}

impl<'s> CostAnalysis<'s> {
    fn of(root: &'s Value) -> Self {
        Self {
            root,
            budget: SchemaBudget::default(),
            n_nodes: 0,
            n_patterns: 0,
            pending: vec![root],
            costs: HashMap::new(),
            n_open: 0,
        }
    }

    /// Counts the subschemas below a node and records their anchors.
    fn walk(&mut self, node: &'s Value, pointer: &mut String, is_root: bool) -> Result<(), String> {
        let Some(keywords) = node.as_object() else { return Ok(()) };
        self.n_nodes += 1;
        if self.n_nodes > MAX_NODES {
            return Err(format!("it has more than {MAX_NODES} subschemas"));
        }
        self.record(keywords, pointer, is_root)?;
        for (keyword, value) in keywords {
            for (name, inner) in vocabulary::subschemas(keyword, value) {
                let length = pointer.len();
                for part in [Some(keyword.as_str()), name.as_deref()].into_iter().flatten() {
                    pointer.push('/');
                    pointer.push_str(&part.replace('~', "~0").replace('/', "~1"));
                }
                self.walk(inner, pointer, false)?;
                pointer.truncate(length);
            }
        }
        Ok(())
    }

    fn record(&mut self, keywords: &Map<String, Value>, pointer: &str, is_root: bool) -> Result<(), String> {
        self.n_patterns += usize::from(keywords.contains_key("pattern"));
        self.n_patterns += keywords.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        if self.n_patterns > MAX_PATTERNS {
            return Err(format!("it has more than {MAX_PATTERNS} patterns"));
        }
        for naming in ["$anchor", "$dynamicAnchor", "$id"] {
            let Some(name) = keywords.get(naming).and_then(Value::as_str) else { continue };
            let anchor = match (naming, name.strip_prefix('#')) {
                ("$id", Some(anchor)) => anchor,
                ("$id", None) if is_root => continue,
                ("$id", None) => return Err(format!("it has a subschema with its own '$id' (at {pointer})")),
                (_, _) => name,
            };
            self.budget.names.insert(anchor.to_owned(), pointer.to_owned());
        }
        self.budget.needs_dry_run |= is_unevaluated(keywords);
        Ok(())
    }

    fn cost(&mut self, node: &'s Value) -> Result<Cost, String> {
        let Some(keywords) = node.as_object() else { return Ok(Cost { applied: 1, height: 0 }) };
        match self.costs.get(&ptr::from_ref(node)) {
            Some(CostState::Known(cost)) => return Ok(*cost),
            Some(CostState::InProgress) => return Err("it refers to itself endlessly".to_owned()),
            None => {}
        }
        self.costs.insert(node, CostState::InProgress);
        self.n_open += 1;
        if self.n_open > MAX_DEPTH + MAX_HOPS {
            return Err(too_long());
        }
        let mut cost = Cost { applied: 1, height: 0 };
        for (keyword, value) in keywords {
            for applied in self.applied_in_place(keyword, value)? {
                let inner = self.cost(applied)?;
                cost.applied = cost.applied.saturating_add(inner.applied);
                cost.height = cost.height.max(inner.height + 1);
            }
            self.pending.extend(vocabulary::subschemas(keyword, value).into_iter().map(|(_, inner)| inner));
        }
        if is_unevaluated(keywords) {
            cost.applied = cost.applied.saturating_mul(UNEVALUATED_FACTOR);
        }
        if cost.applied > MAX_APPLIED {
            return Err(format!("more than {MAX_APPLIED} subschemas apply to one value"));
        }
        if cost.height > MAX_HOPS {
            return Err(too_long());
        }
        self.n_open -= 1;
        self.budget.max_applied = self.budget.max_applied.max(cost.applied);
        self.costs.insert(node, CostState::Known(cost));
        Ok(cost)
    }

    /// Returns the subschemas that a keyword applies to the value itself, not to a part of it.
    fn applied_in_place(&mut self, keyword: &str, value: &'s Value) -> Result<Vec<&'s Value>, String> {
        if !is_reference(keyword) {
            return Ok(in_place(keyword, value).collect());
        }
        self.budget.needs_dry_run = true;
        let Some(reference) = value.as_str() else { return Ok(Vec::new()) };
        match self.budget.target(self.root, reference) {
            Some(target) => Ok(vec![target]),
            None if is_known_draft(reference) => Ok(Vec::new()),
            None => Err(format!("it refers to '{reference}', which it does not contain")),
        }
    }
}

fn too_long() -> String {
    format!("more than {MAX_HOPS} subschemas refer to one another")
}

fn is_reference(keyword: &str) -> bool {
    matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef")
}

fn is_unevaluated(keywords: &Map<String, Value>) -> bool {
    keywords.contains_key("unevaluatedProperties") || keywords.contains_key("unevaluatedItems")
}

/// Returns `true` for references to meta-schemas, which the validator has built in.
fn is_known_draft(reference: &str) -> bool {
    reference.starts_with("http://json-schema.org/draft-")
        || reference.starts_with("https://json-schema.org/draft/")
}

/// Returns the subschemas, apart from references, that a keyword applies to the value itself.
fn in_place<'s>(keyword: &str, value: &'s Value) -> impl Iterator<Item = &'s Value> + use<'s> {
    let applies = matches!(
        keyword,
        "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" | "dependentSchemas" | "dependencies"
    );
    applies.then(|| vocabulary::subschemas(keyword, value)).into_iter().flatten().map(|(_, inner)| inner)
}

/// Simulated validation that counts the worst-case cost of the real one.
pub(super) struct DryRun<'s> {
    root: &'s Value,
    budget: &'s SchemaBudget,
    fuel: u64,
    /// Recursion depth of the real validation.
    pub(super) frames: usize,
    purpose: CheckPurpose,
}

/// Purpose of the real validation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckPurpose {
    /// A yes or no.
    Verdict,
    /// The list of violations, for which branches copy the value.
    Report,
}

/// The real validation could exceed its budget.
pub(super) struct BudgetExceeded;

impl<'s> DryRun<'s> {
    /// Maximum number of steps for a verdict, which takes well under a second.
    const VERDICT_FUEL: u64 = 2_000_000;
    /// Maximum number of steps and kilobytes for a report.
    const REPORT_FUEL: u64 = 100_000;
    const MAX_FRAMES: usize = 1_000;

    /// Returns the recursion depth of the real validation, unless it costs too much.
    pub(super) fn run(
        root: &'s Value,
        budget: &'s SchemaBudget,
        value: &Value,
        purpose: CheckPurpose,
    ) -> Result<usize, BudgetExceeded> {
        let fuel = match purpose {
            CheckPurpose::Verdict => Self::VERDICT_FUEL,
            CheckPurpose::Report => Self::REPORT_FUEL,
        };
        Self::run_with(root, budget, value, purpose, fuel)
    }

    fn run_with(
        root: &'s Value,
        budget: &'s SchemaBudget,
        value: &Value,
        purpose: CheckPurpose,
        fuel: u64,
    ) -> Result<usize, BudgetExceeded> {
        let mut dry_run = Self { root, budget, fuel, frames: 0, purpose };
        dry_run.visit(root, value, 0)?;
        Ok(dry_run.frames)
    }

    fn spend(&mut self, steps: u64) -> Result<(), BudgetExceeded> {
        self.fuel = self.fuel.checked_sub(steps).ok_or(BudgetExceeded)?;
        Ok(())
    }

    fn visit(&mut self, schema: &'s Value, value: &Value, depth: usize) -> Result<(), BudgetExceeded> {
        self.spend(1)?;
        self.frames = self.frames.max(depth);
        if depth > Self::MAX_FRAMES {
            return Err(BudgetExceeded);
        }
        let Some(keywords) = schema.as_object() else { return Ok(()) };
        let times = if is_unevaluated(keywords) { UNEVALUATED_FACTOR } else { 1 };
        for (keyword, subschemas) in keywords {
            for _ in 0..times {
                self.in_place(keyword, subschemas, value, depth)?;
            }
            match value {
                Value::Object(members) => self.members(keyword, subschemas, members, depth)?,
                Value::Array(items) => self.items(keyword, subschemas, items, depth)?,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        Ok(())
    }

    fn in_place(
        &mut self,
        keyword: &str,
        value: &'s Value,
        data: &Value,
        depth: usize,
    ) -> Result<(), BudgetExceeded> {
        if is_reference(keyword) {
            let target = value.as_str().and_then(|reference| self.budget.target(self.root, reference));
            return target.map_or(Ok(()), |target| self.visit(target, data, depth + 1));
        }
        if self.purpose == CheckPurpose::Report
            && let ("anyOf" | "oneOf", Some(branches)) = (keyword, value.as_array())
        {
            let copies = u64::try_from(branches.len()).unwrap_or(u64::MAX);
            self.spend(copies.saturating_mul(kilobytes(data)))?;
        }
        in_place(keyword, value).try_for_each(|applied| self.visit(applied, data, depth + 1))
    }

    fn members(
        &mut self,
        keyword: &str,
        value: &'s Value,
        members: &Map<String, Value>,
        depth: usize,
    ) -> Result<(), BudgetExceeded> {
        match (keyword, value) {
            ("properties", Value::Object(properties)) => {
                for (name, member) in members {
                    if let Some(schema) = properties.get(name) {
                        self.visit(schema, member, depth + 1)?;
                    }
                }
            }
            ("patternProperties", Value::Object(patterns)) => {
                for schema in patterns.values() {
                    members.values().try_for_each(|member| self.visit(schema, member, depth + 1))?;
                }
            }
            ("additionalProperties" | "unevaluatedProperties", schema) => {
                members.values().try_for_each(|member| self.visit(schema, member, depth + 1))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn items(
        &mut self,
        keyword: &str,
        value: &'s Value,
        items: &[Value],
        depth: usize,
    ) -> Result<(), BudgetExceeded> {
        match (keyword, value) {
            ("items" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter().zip(items).try_for_each(|(schema, item)| self.visit(schema, item, depth + 1))
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", schema) => {
                items.iter().try_for_each(|item| self.visit(schema, item, depth + 1))
            }
            _ => Ok(()),
        }
    }
}

/// Estimates the size of a value; at least 1.
fn kilobytes(value: &Value) -> u64 {
    fn bytes(value: &Value) -> usize {
        match value {
            Value::String(text) => 32 + text.len(),
            Value::Array(items) => 32 + items.iter().map(bytes).sum::<usize>(),
            Value::Object(members) => {
                32 + members.iter().map(|(name, member)| 32 + name.len() + bytes(member)).sum::<usize>()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 32,
        }
    }
    1 + bytes(value) as u64 / 1_024
}

/// Decodes a URI fragment into a JSON pointer.
fn percent_decoded(text: &str) -> String {
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
