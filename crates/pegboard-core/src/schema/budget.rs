//! Cost limits: rejects schema bombs before compilation, and costly combinations of schema and value before
//! validation.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ptr;

use serde_json::{Map, Value};

use super::dry_run::{CHEAP_STEPS, CheckPurpose, DryRun, REFERENCES_VERDICT_STEPS, VERDICT_STEPS};
use super::steps::{self, LocationSteps, TextRate};
use super::vocabulary;

/// Maximum nesting of the schema.
const MAX_DEPTH: usize = 128;
/// Maximum number of subschemas.
const MAX_NODES: usize = 100_000;
/// Maximum number of patterns.
const MAX_PATTERNS: usize = 200;
/// Maximum size of the paths of all keywords, each of which the validator stores.
const MAX_PATH_BYTES: usize = 16 << 20;
/// Maximum number of subschemas that apply to one location of the value, references followed.
const MAX_APPLIED: u64 = 10_000;
/// Maximum length of a chain of references at one location of the value.
const MAX_HOPS: usize = 100;
/// Cost multiplier of `unevaluated…`, which evaluates its neighbours repeatedly.
pub(super) const UNEVALUATED_FACTOR: u64 = 3;
/// Size of a value in a report, without its text.
const VALUE_BYTES: usize = 32;
/// Cost of a copy of the value for a report: one step for each kilobyte.
const COPY_RATE: TextRate = 16;

/// Static cost information of a schema.
#[derive(Debug, Default)]
pub(super) struct SchemaBudget {
    /// `true` if the cost depends on the value, so that a dry run is needed.
    needs_dry_run: bool,
    /// Maximum number of steps at one location of the value, if that needs no dry run.
    steps_per_value: u64,
    /// Maximum cost of reading a text of the value.
    text_rate: TextRate,
    /// Rates of the patterns that are checked.
    patterns: HashMap<String, TextRate>,
    /// JSON pointers of the anchors that references use.
    names: HashMap<String, String>,
}

/// A schema of which the cost is known, except for its patterns.
pub(super) struct AnalyzedSchema {
    pub(super) budget: SchemaBudget,
    /// JSON pointer and text of each pattern, `patternProperties` included.
    pub(super) patterns: Vec<(String, String)>,
    /// Estimated memory of the compiled form, without its patterns.
    pub(super) n_bytes: usize,
}

/// Analyzes the cost of a schema; fails if it is too high or a reference cannot be resolved.
pub(super) fn analyze(schema: &Value) -> Result<AnalyzedSchema, String> {
    if is_deeper_than(schema, MAX_DEPTH) {
        return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
    }
    let mut analysis = CostAnalysis::of(schema);
    analysis.walk(schema, &mut String::new(), true)?;
    while let Some(node) = analysis.pending.pop() {
        analysis.cost(node)?;
    }
    let CostAnalysis { mut budget, patterns, path_bytes, n_stored, n_branches, .. } = analysis;
    let copy_rate = n_branches.saturating_mul(COPY_RATE);
    budget.add_text_rate(copy_rate);
    if !budget.needs_dry_run {
        let copies = steps::of_text(VALUE_BYTES, copy_rate);
        budget.steps_per_value = LocationSteps::of(schema).max().saturating_add(copies);
    }
    Ok(AnalyzedSchema { budget, patterns, n_bytes: path_bytes.saturating_add(n_stored) })
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
    /// Adds the cost of a pattern with a program of this size, which occurs at some number of places.
    pub(super) fn add_pattern(&mut self, pattern: String, program_bytes: usize, n_places: usize) {
        let rate = steps::pattern_rate(program_bytes);
        self.patterns.insert(pattern, rate);
        // A name is matched a second time for `additionalProperties`.
        self.add_text_rate(rate.saturating_mul(2 * n_places as u64));
    }

    fn add_text_rate(&mut self, rate: TextRate) {
        self.text_rate = self.text_rate.saturating_add(rate);
    }

    /// Returns the cost of matching a text against a pattern; 0 for a pattern that is not checked.
    pub(super) fn pattern_rate(&self, pattern: &str) -> TextRate {
        self.patterns.get(pattern).copied().unwrap_or(0)
    }

    /// Returns `true` if validation may take more than [`CHEAP_STEPS`].
    pub(super) fn is_costly(&self, root: &Value, value: &Value) -> bool {
        !self.is_within(value, CHEAP_STEPS)
            && DryRun::run(root, self, value, CheckPurpose::Report, CHEAP_STEPS).is_err()
    }

    /// Returns the maximum number of steps for a verdict.
    pub(super) fn max_verdict_steps(&self) -> u64 {
        if self.needs_dry_run { REFERENCES_VERDICT_STEPS } else { VERDICT_STEPS }
    }

    /// Returns `true` if validation takes at most `limit` steps, whatever the value contains. Faster than a dry run.
    pub(super) fn is_within(&self, value: &Value, limit: u64) -> bool {
        !self.needs_dry_run && self.rest(value, limit, 0).is_some()
    }

    /// Returns what a value and its parts leave of `limit`.
    fn rest(&self, value: &Value, limit: u64, path_bytes: usize) -> Option<u64> {
        let here = self.steps_per_value.saturating_mul(1 + (path_bytes / 1_024) as u64);
        let rest = limit.checked_sub(here)?;
        match value {
            Value::String(text) => rest.checked_sub(steps::of_text(text.len(), self.text_rate)),
            Value::Array(items) => {
                items.iter().try_fold(rest, |rest, item| self.rest(item, rest, path_bytes + 1))
            }
            Value::Object(members) => members.iter().try_fold(rest, |rest, (name, member)| {
                // A name is read, and for `propertyNames` it is a value.
                let read = steps::of_text(name.len(), self.text_rate);
                self.rest(member, rest.checked_sub(read)?, path_bytes + 1 + name.len())
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(rest),
        }
    }

    /// Resolves a reference inside the schema; `None` for the meta-schemas.
    pub(super) fn target<'s>(&self, root: &'s Value, reference: &str) -> Option<&'s Value> {
        let base = reference.split_once('#').map_or(reference, |(base, _)| base);
        let is_here = base.is_empty()
            || root.get("$id").and_then(Value::as_str).is_some_and(|id| id.trim_end_matches('#') == base);
        if is_here { root.pointer(&self.pointer(reference)?) } else { None }
    }

    /// Returns the JSON pointer of a reference.
    fn pointer(&self, reference: &str) -> Option<Cow<'_, str>> {
        match reference.split_once('#').map_or("", |(_, fragment)| fragment) {
            "" => Some("".into()),
            pointer if pointer.starts_with('/') => Some(percent_decoded(pointer).into()),
            name => self.names.get(name).map(|pointer| pointer.as_str().into()),
        }
    }
}

struct CostAnalysis<'s> {
    root: &'s Value,
    budget: SchemaBudget,
    n_nodes: usize,
    /// JSON pointer and text of each pattern.
    patterns: Vec<(String, String)>,
    /// Size of the paths of all keywords.
    path_bytes: usize,
    /// Estimated memory of everything else that the validator stores.
    n_stored: usize,
    /// Number of subschemas of `anyOf` and `oneOf`.
    n_branches: u64,
    /// Subschemas that have been counted.
    walked: HashSet<*const Value>,
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
            patterns: Vec::new(),
            path_bytes: 0,
            n_stored: 0,
            n_branches: 0,
            walked: HashSet::new(),
            pending: vec![root],
            costs: HashMap::new(),
            n_open: 0,
        }
    }

    /// Counts the subschemas below a node and records their anchors.
    fn walk(&mut self, node: &'s Value, pointer: &mut String, is_root: bool) -> Result<(), String> {
        let Some(keywords) = node.as_object() else { return Ok(()) };
        if !self.walked.insert(node) {
            return Ok(());
        }
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
                    pointer.push_str(&escaped(part));
                }
                self.walk(inner, pointer, false)?;
                pointer.truncate(length);
            }
        }
        Ok(())
    }

    fn record(&mut self, keywords: &Map<String, Value>, pointer: &str, is_root: bool) -> Result<(), String> {
        for (keyword, value) in keywords {
            self.store(keyword, value, pointer);
        }
        if self.patterns.len() > MAX_PATTERNS {
            return Err(format!("it has more than {MAX_PATTERNS} patterns"));
        }
        if self.path_bytes > MAX_PATH_BYTES {
            return Err(format!("the paths of its keywords take more than {} MiB", MAX_PATH_BYTES >> 20));
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

    /// Records the costs of one keyword.
    fn store(&mut self, keyword: &str, value: &Value, pointer: &str) {
        /// Memory of the check of one keyword.
        const CHECK_BYTES: usize = 256;
        /// Memory of one step of a check, of which there are two copies.
        const STEP_BYTES: u64 = 2 * 80;
        self.path_bytes += pointer.len() + keyword.len();
        let checked = match keyword {
            "enum" | "const" | "required" | "dependentRequired" | "dependencies" => steps::of_value(value),
            _ => 0,
        };
        let n_bytes = usize::try_from(checked.saturating_mul(STEP_BYTES)).unwrap_or(usize::MAX);
        self.n_stored = self.n_stored.saturating_add(n_bytes).saturating_add(CHECK_BYTES);
        match (keyword, value) {
            ("pattern", Value::String(pattern)) => {
                self.patterns.push((format!("{pointer}/pattern"), pattern.clone()));
            }
            ("patternProperties", Value::Object(patterns)) => {
                let pointers = patterns.keys().take(MAX_PATTERNS + 1);
                self.patterns.extend(
                    pointers.map(|name| (format!("{pointer}/{keyword}/{}", escaped(name)), name.clone())),
                );
            }
            // Each branch copies the value into its report.
            ("anyOf" | "oneOf", Value::Array(branches)) => self.n_branches += branches.len() as u64,
            _ => {
                let rate = steps::text_rate(keyword, value, &self.budget);
                self.budget.add_text_rate(rate);
            }
        }
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
            Some(target) => {
                // A reference may lead to a place that is no schema otherwise.
                if !self.walked.contains(&ptr::from_ref(target)) {
                    let mut pointer = self.budget.pointer(reference).unwrap_or_default().into_owned();
                    self.walk(target, &mut pointer, false)?;
                }
                Ok(vec![target])
            }
            None if is_known_draft(reference) => Ok(Vec::new()),
            None => Err(format!("it refers to '{reference}', which it does not contain")),
        }
    }
}

fn too_long() -> String {
    format!("more than {MAX_HOPS} subschemas refer to one another")
}

pub(super) fn is_reference(keyword: &str) -> bool {
    matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef")
}

pub(super) fn is_unevaluated(keywords: &Map<String, Value>) -> bool {
    keywords.contains_key("unevaluatedProperties") || keywords.contains_key("unevaluatedItems")
}

/// Returns `true` for references to meta-schemas, which the validator has built in.
fn is_known_draft(reference: &str) -> bool {
    reference.starts_with("http://json-schema.org/draft-")
        || reference.starts_with("https://json-schema.org/draft/")
}

/// Returns the subschemas, apart from references, that a keyword applies to the value itself.
pub(super) fn in_place<'s>(keyword: &str, value: &'s Value) -> impl Iterator<Item = &'s Value> + use<'s> {
    let applied = is_in_place(keyword).then(|| vocabulary::subschemas(keyword, value));
    applied.into_iter().flatten().map(|(_, inner)| inner)
}

pub(super) fn is_in_place(keyword: &str) -> bool {
    matches!(
        keyword,
        "allOf" | "anyOf" | "oneOf" | "not" | "if" | "then" | "else" | "dependentSchemas" | "dependencies"
    )
}

/// Escapes a name for a JSON pointer.
fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
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
