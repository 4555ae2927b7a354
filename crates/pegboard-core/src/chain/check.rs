//! Static validation of chains: every tool exists, and every source can resolve.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::path::{ContextPath, PathSegment, SegmentKey};
use super::run;
use super::source::Condition;
use super::step::{ChainStep, OnPartial};
use super::{ChainSpec, ExecuteOptions, Semantics, costly_validation};
use crate::call::Invoker;
use crate::entry::ToolEntry;
use crate::schema::Schema;
use crate::validation::{ValidationResult, Violation};

/// Maximum number of items of a list that one step processes concurrently.
pub(super) const MAX_CONCURRENCY: usize = 64;
/// Maximum number of steps of a chain.
pub(super) const MAX_STEPS: usize = 1_000;

/// Error in a chain that makes it fail for any input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainError {
    /// Part of the chain that the error is about.
    pub location: ChainErrorLocation,
    /// Error message.
    pub text: String,
}

/// Part of a chain that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainErrorLocation {
    /// The chain itself.
    Chain,
    /// The output path.
    Output,
    /// The step with this zero-based index.
    Step(usize),
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, text } = self;
        match location {
            ChainErrorLocation::Chain => write!(f, "Chain {text}."),
            ChainErrorLocation::Output => write!(f, "output: {text}"),
            ChainErrorLocation::Step(index) => write!(f, "Step {index}: {text}."),
        }
    }
}

impl ChainSpec {
    /// Returns the errors that do not depend on tools; no tool is looked up.
    ///
    /// ```
    /// use pegboard_core::chain::{ChainSpec, ChainErrorLocation};
    ///
    /// let spec: ChainSpec = serde_json::from_str(r#"{"steps": [
    ///     {"tool": "ask", "as": "answer"},
    ///     {"tool": "write", "with": {"text": "answer["}}
    /// ]}"#)?;
    /// let errors = spec.structural_errors();
    /// assert_eq!((errors.len(), errors[0].location), (1, ChainErrorLocation::Step(1)));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn structural_errors(&self) -> Vec<ChainError> {
        find_errors(self, None, None)
    }
}

/// Validates a chain for any input.
pub(super) fn verdict(spec: &ChainSpec, tools: &dyn Invoker) -> ValidationResult {
    verdict_with(spec, tools, None, Vec::new())
}

/// Validates a chain for a given input. What takes long runs apart.
pub(super) async fn verdict_of_run(
    spec: &ChainSpec,
    tools: &dyn Invoker,
    input: &Value,
    options: ExecuteOptions,
) -> ValidationResult {
    // First, since the search for errors compiles schemas, too.
    let checked = match costly_validation::compile(spec, tools).await {
        Ok(()) => costly_validation::check(&spec.input_schema, input, tools).await,
        Err(error) => Err(error),
    };
    match checked {
        Ok(of_input) => verdict_with(spec, tools, Some((input, options)), of_input.errors),
        Err(error) => ValidationResult::of(vec![Violation::plain(format!("$: {error}"))]),
    }
}

fn verdict_with(
    spec: &ChainSpec,
    tools: &dyn Invoker,
    run_input: Option<(&Value, ExecuteOptions)>,
    of_input: Vec<Violation>,
) -> ValidationResult {
    let errors = find_errors(spec, Some(tools), run_input);
    let has_chain_error = errors.iter().any(|error| error.location == ChainErrorLocation::Chain);
    let mut found = if has_chain_error { Vec::new() } else { of_input };
    found.extend(errors.iter().map(|error| Violation::plain(error.to_string())));
    let problem = spec.input_schema.problem().filter(|_| !has_chain_error);
    let mut warnings: Vec<String> = problem.map(str::to_owned).into_iter().collect();
    if !has_chain_error {
        warnings.extend(left_out(spec, tools, run_input));
    }
    ValidationResult { warnings, ..ValidationResult::of(found) }
}

/// Returns a warning for each step without a mapping, if its tool does not accept all of the known context.
fn left_out(
    spec: &ChainSpec,
    tools: &dyn Invoker,
    run_input: Option<(&Value, ExecuteOptions)>,
) -> Vec<String> {
    if spec.semantics == Semantics::Compat {
        return Vec::new();
    }
    let entries: Vec<_> = spec.steps.iter().map(|step| tools.find(&step.tool_name)).collect();
    let (input, options) = run_input.unzip();
    let keeps_going = options.is_some_and(|options| !options.stop_on_failure);
    let mut known = KnownContext::at_start(spec, input, keeps_going);
    let mut warnings = Vec::new();
    let mut steps = spec.steps.iter().zip(&entries).enumerate();
    for group in run::groups(&spec.steps) {
        let group: Vec<_> = steps.by_ref().take(group.len()).collect();
        for (index, (step, entry)) in &group {
            let takes_context = step.input_mapping.is_empty() && step.for_each.is_none();
            let Some(entry) = entry.as_deref().filter(|_| takes_context) else { continue };
            let mut names: Vec<&str> = undeclared(entry, known.keys.keys().copied());
            if !names.is_empty() {
                names.sort_unstable();
                warnings.push(format!("Step {index}: {}.", left_out_text(&step.tool_name, &names)));
            }
        }
        for (_, (step, entry)) in group {
            known.learn(step, entry.as_deref());
        }
    }
    warnings
}

/// Returns the names that a tool neither declares nor accepts. A tool without inputs is meant to get nothing.
pub(super) fn undeclared<'n>(entry: &ToolEntry, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let schema = entry.input_schema().as_json();
    let properties = schema["properties"].as_object().filter(|properties| !properties.is_empty());
    match properties {
        Some(properties) if !is_open(schema) => {
            names.filter(|name| !properties.contains_key(*name)).collect()
        }
        Some(_) | None => Vec::new(),
    }
}

/// Describes the parts of the context that a tool does not get.
pub(super) fn left_out_text(tool: &str, names: &[&str]) -> String {
    const MAX_NAMES: usize = 10;
    let quoted: Vec<String> = names.iter().take(MAX_NAMES).map(|name| format!("'{name}'")).collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("tool '{tool}' does not accept {}{more} of the context; left out", quoted.join(", "))
}

/// Returns all errors of a chain, as far as its tools are known.
fn find_errors(
    spec: &ChainSpec,
    tools: Option<&dyn Invoker>,
    run_input: Option<(&Value, ExecuteOptions)>,
) -> Vec<ChainError> {
    let n_steps = spec.steps.len();
    let of_chain = |text: String| vec![ChainError { location: ChainErrorLocation::Chain, text }];
    if n_steps == 0 {
        return of_chain("has no steps".to_owned());
    }
    if n_steps > MAX_STEPS {
        return of_chain(format!("has {n_steps} steps; at most {MAX_STEPS} are allowed"));
    }
    let mut found = Vec::new();
    let find = |step: &ChainStep| tools.and_then(|tools| tools.find(&step.tool_name));
    let entries: Vec<_> = spec.steps.iter().map(find).collect();
    for (index, (step, entry)) in spec.steps.iter().zip(&entries).enumerate() {
        let text = if step.tool_name.is_empty() {
            "tool_name is empty".to_owned()
        } else if tools.is_some() && entry.is_none() {
            format!("tool '{}' not found in registry", step.tool_name)
        } else {
            continue;
        };
        found.push(ChainError { location: ChainErrorLocation::Step(index), text });
    }
    if let Some(problem) = spec.output.as_ref().and_then(ContextPath::problem) {
        found.push(ChainError { location: ChainErrorLocation::Output, text: problem.to_string() });
    }
    if spec.semantics == Semantics::Full {
        let (input, options) = run_input.unzip();
        let keeps_going = options.is_some_and(|options| !options.stop_on_failure);
        let mut validator =
            ChainValidator { spec, known: KnownContext::at_start(spec, input, keeps_going), found };
        validator.steps(&entries);
        found = validator.found;
    }
    found
}

struct ChainValidator<'c> {
    spec: &'c ChainSpec,
    known: KnownContext<'c>,
    found: Vec<ChainError>,
}

impl<'c> ChainValidator<'c> {
    fn steps(&mut self, entries: &'c [Option<Arc<ToolEntry>>]) {
        let mut labels = HashSet::new();
        let mut index = 0;
        for group in run::groups(&self.spec.steps) {
            if let Some(label) = &group[0].parallel
                && !labels.insert(label)
            {
                self.report(index, &format!("the steps of group '{label}' must be adjacent"));
            }
            let tools = &entries[index..index + group.len()];
            for (offset, (step, entry)) in group.iter().zip(tools).enumerate() {
                self.step(index + offset, step, entry.as_deref());
            }
            // Steps of a group do not see each other's outputs, so these become known afterwards.
            for (step, entry) in group.iter().zip(tools) {
                self.known.learn(step, entry.as_deref());
            }
            index += group.len();
        }
    }

    fn step(&mut self, index: usize, step: &ChainStep, entry: Option<&ToolEntry>) {
        for path in step.when.iter().map(Condition::path).chain(&step.for_each) {
            if let Some(problem) = path.problem() {
                self.report(index, &format!("invalid path '{}': {problem}", path.as_str()));
            }
        }
        if let Some(problem) = step.when.as_ref().and_then(Condition::problem) {
            self.report(index, &format!("the condition has no effect: {problem}"));
        }
        if let Some(list) = &step.for_each {
            if !self.known.may_have(list, ExpectedShape::Anything) {
                self.report(index, &format!("for_each: '{}' can never be in the context", list.as_str()));
            } else if !self.known.may_have(list, ExpectedShape::List) {
                self.report(index, &format!("for_each: '{}' can never be a list", list.as_str()));
            }
        }
        if step.concurrency.is_some_and(|n_items| n_items == 0 || n_items > MAX_CONCURRENCY) {
            self.report(index, &format!("concurrency must be between 1 and {MAX_CONCURRENCY}"));
        }
        for (name, source) in &step.input_mapping {
            if let Some(problem) = source.problem() {
                self.report(index, &format!("input '{name}': {problem}"));
            }
            for path in source.needed_paths() {
                let is_item = step.for_each.is_some() && path.refers_to_item();
                if !is_item && !self.known.may_have(path, ExpectedShape::Anything) {
                    self.report(
                        index,
                        &format!("input '{name}': '{}' can never be in the context", path.as_str()),
                    );
                }
            }
        }
        if let Some(entry) = entry.filter(|_| !step.input_mapping.is_empty()) {
            self.inputs(index, step, entry);
        }
    }

    /// Checks a mapping for missing and unknown inputs: a tool gets exactly what the mapping names.
    fn inputs(&mut self, index: usize, step: &ChainStep, entry: &ToolEntry) {
        let schema = entry.input_schema().as_json();
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for name in required.filter(|name| !step.input_mapping.contains_key(*name)) {
            self.report(index, &format!("tool '{}' requires '{name}', which is not mapped", step.tool_name));
        }
        if is_open(schema) {
            return;
        }
        for name in step.input_mapping.keys().filter(|name| schema["properties"].get(name.as_str()).is_none())
        {
            self.report(index, &format!("tool '{}' has no input '{name}'", step.tool_name));
        }
    }

    fn report(&mut self, index: usize, problem: &str) {
        self.found.push(ChainError { location: ChainErrorLocation::Step(index), text: problem.to_owned() });
    }
}

/// Static knowledge about the context at one point of the chain.
struct KnownContext<'c> {
    keys: HashMap<&'c str, KnownShape<'c>>,
    /// `true` if there may be keys that are not known.
    is_open: bool,
    /// `true` if a failed step leaves the context as it was and the chain continues.
    keeps_going: bool,
}

/// Requirement on the value at a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedShape {
    Anything,
    List,
}

/// Static knowledge about one value.
#[derive(Clone, Copy)]
enum KnownShape<'c> {
    Anything,
    /// A known value.
    Value(&'c Value),
    /// A value that matches a schema.
    Described(&'c Value),
    /// A list of values that match a schema.
    ListOf(&'c Value),
}

impl<'c> KnownContext<'c> {
    fn at_start(spec: &'c ChainSpec, input: Option<&'c Value>, keeps_going: bool) -> Self {
        if let Some(members) = input.and_then(Value::as_object) {
            let keys =
                members.iter().map(|(name, value)| (name.as_str(), KnownShape::Value(value))).collect();
            return Self { keys, is_open: false, keeps_going };
        }
        let mut known = Self { keys: HashMap::new(), is_open: false, keeps_going };
        let schema = spec.input_schema.problem().map_or(spec.input_schema.as_json(), |_| &Value::Null);
        known.merge(schema);
        known
    }

    /// Adds the output of a step.
    fn learn(&mut self, step: &'c ChainStep, entry: Option<&'c ToolEntry>) {
        // An output that is not validated may be anything.
        let binding = entry
            .map(ToolEntry::output_schema)
            .filter(|schema| step.on_partial == OnPartial::Fail && schema.problem().is_none());
        let schema = binding.map_or(&Value::Null, Schema::as_json);
        let shape =
            if step.for_each.is_some() { KnownShape::ListOf(schema) } else { KnownShape::Described(schema) };
        if !step.output_key.is_empty() {
            // A step that may not run leaves the previous value.
            let may_not_run = step.when.is_some() || self.keeps_going;
            let is_replaced = !may_not_run || !self.may_have_key(&step.output_key);
            self.keys.insert(&step.output_key, if is_replaced { shape } else { KnownShape::Anything });
        } else if step.for_each.is_none() {
            self.merge(schema);
        }
    }

    /// Adds the keys of an object that matches a schema.
    fn merge(&mut self, schema: &'c Value) {
        if !may_be(schema, "object") {
            return;
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let shape =
                if self.may_have_key(name) { KnownShape::Anything } else { KnownShape::Described(property) };
            self.keys.insert(name, shape);
        }
        if is_open(schema) {
            // Any key may have been added, and any existing one replaced.
            self.is_open = true;
            self.keys.clear();
        }
    }

    fn may_have_key(&self, key: &str) -> bool {
        self.is_open || self.keys.contains_key(key)
    }

    fn may_have(&self, path: &ContextPath, expected: ExpectedShape) -> bool {
        let Some(segments) = path.segments() else { return true };
        let mut heads = path
            .literal_heads(segments)
            .filter_map(|(key, rest)| Some((self.keys.get(key)?, rest)))
            .peekable();
        // If the first name is known, an unknown key that contains the dot is not considered.
        match heads.peek() {
            None => self.is_open,
            Some(_) => heads.any(|(shape, rest)| shape.may_have(path, rest, expected)),
        }
    }
}

impl KnownShape<'_> {
    fn may_have(self, path: &ContextPath, segments: &[PathSegment], expected: ExpectedShape) -> bool {
        match self {
            Self::Anything => true,
            Self::Value(value) => path
                .resolve_segments(value, segments)
                .is_some_and(|found| expected == ExpectedShape::Anything || found.is_array()),
            Self::Described(schema) => schema_may_have(schema, path, segments, expected),
            Self::ListOf(schema) => match segments.split_first() {
                None => true,
                Some((first, rest)) => {
                    first.index().is_some() && schema_may_have(schema, path, rest, expected)
                }
            },
        }
    }
}

fn schema_may_have(
    schema: &Value,
    path: &ContextPath,
    segments: &[PathSegment],
    expected: ExpectedShape,
) -> bool {
    if is_composed(schema) {
        return true;
    }
    let Some((first, rest)) = segments.split_first() else {
        return expected == ExpectedShape::Anything || may_be(schema, "array");
    };
    let in_array = first.index().is_some()
        && may_be(schema, "array")
        && (!schema["items"].is_object() || schema_may_have(&schema["items"], path, rest, expected));
    let in_object = !matches!(first.key, SegmentKey::Index(_))
        && may_be(schema, "object")
        && path.literal_heads(segments).any(|(key, rest)| match schema["properties"].get(key) {
            Some(property) => schema_may_have(property, path, rest, expected),
            None => is_open(schema),
        });
    in_array || in_object
}

/// Returns `true` if an object may have properties that its schema does not name.
pub(super) fn is_open(schema: &Value) -> bool {
    is_composed(schema) || schema["additionalProperties"] != Value::Bool(false)
}

/// Returns `true` if a schema has more constraints than its own `type`, `properties` and `items`.
fn is_composed(schema: &Value) -> bool {
    const COMPOSING: [&str; 9] = [
        "$ref",
        "$dynamicRef",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "patternProperties",
        "dependentSchemas",
        "prefixItems",
    ];
    COMPOSING.iter().any(|keyword| schema.get(keyword).is_some())
}

fn may_be(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::String(name) => name == kind,
        Value::Array(names) => names.iter().any(|name| name == kind),
        _ => true,
    }
}
