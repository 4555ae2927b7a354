//! What can be said of a chain before it runs: every tool exists, and every source can resolve.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::path::{Key, Path, Segment};
use super::run;
use super::source::Condition;
use super::step::{ChainStep, OnPartial};
use super::{ChainSpec, ExecuteOptions, Semantics};
use crate::call::Invoker;
use crate::entry::ToolEntry;
use crate::schema::Schema;
use crate::validation::{ValidationResult, Violation};

/// How many items of a list one step may work on at a time.
pub(super) const MAX_CONCURRENCY: usize = 64;
/// How many steps a chain may have.
const MAX_STEPS: usize = 1_000;

/// Something for which a chain can never work, whatever its input is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// What it is about.
    pub place: FlawPlace,
    /// What is wrong.
    pub text: String,
}

/// What a flaw is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlawPlace {
    /// All of the chain.
    Chain,
    /// What it gives back.
    Output,
    /// The step with this number, from 0.
    Step(usize),
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, text } = self;
        match place {
            FlawPlace::Chain => write!(f, "Chain {text}."),
            FlawPlace::Output => write!(f, "output: {text}"),
            FlawPlace::Step(index) => write!(f, "Step {index}: {text}."),
        }
    }
}

impl ChainSpec {
    /// What is wrong with the chain whatever its tools are: no tool is looked for.
    ///
    /// ```
    /// use pegboard_core::chain::{ChainSpec, FlawPlace};
    ///
    /// let spec: ChainSpec = serde_json::from_str(r#"{"steps": [
    ///     {"tool": "ask", "as": "answer"},
    ///     {"tool": "write", "with": {"text": "answer["}}
    /// ]}"#)?;
    /// let flaws = spec.flaws();
    /// assert_eq!((flaws.len(), flaws[0].place), (1, FlawPlace::Step(1)));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn flaws(&self) -> Vec<Flaw> {
        flaws(self, None, None)
    }
}

/// The verdict on a chain, for any input or for the one at hand.
pub(super) fn verdict(
    spec: &ChainSpec,
    tools: &dyn Invoker,
    at_hand: Option<(&Value, ExecuteOptions)>,
) -> ValidationResult {
    let flaws = flaws(spec, Some(tools), at_hand);
    let is_whole = flaws.iter().any(|flaw| flaw.place == FlawPlace::Chain);
    let mut found = Vec::new();
    if let Some((input, _)) = at_hand.filter(|_| !is_whole) {
        found.extend(spec.input_schema.check(input).errors);
    }
    found.extend(flaws.iter().map(|flaw| Violation::plain(flaw.to_string())));
    let problem = spec.input_schema.problem().filter(|_| !is_whole);
    let warnings = problem.map(str::to_owned).into_iter().collect();
    ValidationResult { warnings, ..ValidationResult::of(found) }
}

/// All that is wrong with a chain, as far as its tools are known.
fn flaws(
    spec: &ChainSpec,
    tools: Option<&dyn Invoker>,
    at_hand: Option<(&Value, ExecuteOptions)>,
) -> Vec<Flaw> {
    let n_steps = spec.steps.len();
    let of_chain = |text: String| vec![Flaw { place: FlawPlace::Chain, text }];
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
        found.push(Flaw { place: FlawPlace::Step(index), text });
    }
    if let Some(problem) = spec.output.as_ref().and_then(Path::problem) {
        found.push(Flaw { place: FlawPlace::Output, text: problem.to_string() });
    }
    if spec.semantics == Semantics::Full {
        let (input, options) = at_hand.unzip();
        let keeps_going = options.is_some_and(|options| !options.stop_on_failure);
        let mut check = Check { spec, known: Known::at_start(spec, input, keeps_going), found };
        check.steps(&entries);
        found = check.found;
    }
    found
}

struct Check<'c> {
    spec: &'c ChainSpec,
    known: Known<'c>,
    found: Vec<Flaw>,
}

impl<'c> Check<'c> {
    fn steps(&mut self, entries: &'c [Option<Arc<ToolEntry>>]) {
        let mut labels = HashSet::new();
        let mut index = 0;
        for group in run::groups(&self.spec.steps) {
            if let Some(label) = &group[0].parallel
                && !labels.insert(label)
            {
                self.report(index, &format!("the steps of the group '{label}' must follow one another"));
            }
            let tools = &entries[index..index + group.len()];
            for (offset, (step, entry)) in group.iter().zip(tools).enumerate() {
                self.step(index + offset, step, entry.as_deref());
            }
            // Steps of one group do not see each other's outputs, so those become known afterwards.
            for (step, entry) in group.iter().zip(tools) {
                self.known.learn(step, entry.as_deref());
            }
            index += group.len();
        }
    }

    fn step(&mut self, index: usize, step: &ChainStep, entry: Option<&ToolEntry>) {
        for path in step.when.iter().map(Condition::path).chain(&step.for_each) {
            if let Some(problem) = path.problem() {
                self.report(index, &format!("'{}' is no path: {problem}", path.as_str()));
            }
        }
        if let Some(problem) = step.when.as_ref().and_then(Condition::problem) {
            self.report(index, &format!("the condition says nothing: {problem}"));
        }
        if let Some(list) = &step.for_each {
            if !self.known.may_have(list, Wanted::Anything) {
                self.report(index, &format!("'{}' for for_each can never be in the context", list.as_str()));
            } else if !self.known.may_have(list, Wanted::List) {
                self.report(index, &format!("'{}' for for_each can never be a list", list.as_str()));
            }
        }
        if step.concurrency.is_some_and(|n_items| n_items == 0 || n_items > MAX_CONCURRENCY) {
            self.report(index, &format!("concurrency must be from 1 to {MAX_CONCURRENCY}"));
        }
        for (name, source) in &step.input_mapping {
            if let Some(problem) = source.problem() {
                self.report(index, &format!("source of '{name}': {problem}"));
            }
            for path in source.needed_paths() {
                let is_item = step.for_each.is_some() && path.is_about_item();
                if !is_item && !self.known.may_have(path, Wanted::Anything) {
                    self.report(
                        index,
                        &format!("'{}' for '{name}' can never be in the context", path.as_str()),
                    );
                }
            }
        }
        if let Some(entry) = entry.filter(|_| !step.input_mapping.is_empty()) {
            self.inputs(index, step, entry);
        }
    }

    /// A mapping gives a tool exactly what it names, so what is missing or too much is known now.
    fn inputs(&mut self, index: usize, step: &ChainStep, entry: &ToolEntry) {
        let schema = entry.input_schema().as_json();
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for name in required.filter(|name| !step.input_mapping.contains_key(*name)) {
            self.report(
                index,
                &format!("tool '{}' needs '{name}', which the mapping does not give", step.tool_name),
            );
        }
        if is_open(schema) {
            return;
        }
        for name in step.input_mapping.keys().filter(|name| schema["properties"].get(name.as_str()).is_none())
        {
            self.report(index, &format!("tool '{}' does not take '{name}'", step.tool_name));
        }
    }

    fn report(&mut self, index: usize, problem: &str) {
        self.found.push(Flaw { place: FlawPlace::Step(index), text: problem.to_owned() });
    }
}

/// What can be known of the context at one point of the chain.
struct Known<'c> {
    keys: HashMap<&'c str, Shape<'c>>,
    /// Whether there may be keys that nobody named.
    is_open: bool,
    /// Whether a step that fails leaves what was there before.
    keeps_going: bool,
}

/// What a path must lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Anything,
    List,
}

/// What can be known of one value.
#[derive(Clone, Copy)]
enum Shape<'c> {
    Anything,
    /// The value itself.
    Value(&'c Value),
    /// What a schema describes.
    Described(&'c Value),
    /// A list of what a schema describes.
    ListOf(&'c Value),
}

impl<'c> Known<'c> {
    fn at_start(spec: &'c ChainSpec, input: Option<&'c Value>, keeps_going: bool) -> Self {
        if let Some(members) = input.and_then(Value::as_object) {
            let keys = members.iter().map(|(name, value)| (name.as_str(), Shape::Value(value))).collect();
            return Self { keys, is_open: false, keeps_going };
        }
        let mut known = Self { keys: HashMap::new(), is_open: false, keeps_going };
        let schema = spec.input_schema.problem().map_or(spec.input_schema.as_json(), |_| &Value::Null);
        known.merge(schema);
        known
    }

    /// What the context may hold after a step.
    fn learn(&mut self, step: &'c ChainStep, entry: Option<&'c ToolEntry>) {
        // An output that nobody holds against the schema may be anything.
        let binding = entry
            .map(ToolEntry::output_schema)
            .filter(|schema| step.on_partial == OnPartial::Fail && schema.problem().is_none());
        let schema = binding.map_or(&Value::Null, Schema::as_json);
        let shape = if step.for_each.is_some() { Shape::ListOf(schema) } else { Shape::Described(schema) };
        if !step.output_key.is_empty() {
            // A step that may not run leaves what was there before.
            let may_not_run = step.when.is_some() || self.keeps_going;
            let is_replaced = !may_not_run || !self.may_have_key(&step.output_key);
            self.keys.insert(&step.output_key, if is_replaced { shape } else { Shape::Anything });
        } else if step.for_each.is_none() {
            self.merge(schema);
        }
    }

    /// The keys of an object that a schema describes may be there from now on.
    fn merge(&mut self, schema: &'c Value) {
        if !may_be(schema, "object") {
            return;
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let shape = if self.may_have_key(name) { Shape::Anything } else { Shape::Described(property) };
            self.keys.insert(name, shape);
        }
        if is_open(schema) {
            // Any key may have come, and any that was there may have been replaced.
            self.is_open = true;
            self.keys.clear();
        }
    }

    fn may_have_key(&self, key: &str) -> bool {
        self.is_open || self.keys.contains_key(key)
    }

    fn may_have(&self, path: &Path, wanted: Wanted) -> bool {
        let Some(segments) = path.segments() else { return true };
        let mut heads = path
            .literal_heads(segments)
            .filter_map(|(key, rest)| Some((self.keys.get(key)?, rest)))
            .peekable();
        // Where the first name is known, nobody means a key with a dot in it that nobody has named.
        match heads.peek() {
            None => self.is_open,
            Some(_) => heads.any(|(shape, rest)| shape.may_have(path, rest, wanted)),
        }
    }
}

impl Shape<'_> {
    fn may_have(self, path: &Path, segments: &[Segment], wanted: Wanted) -> bool {
        match self {
            Self::Anything => true,
            Self::Value(value) => path
                .in_value(value, segments)
                .is_some_and(|found| wanted == Wanted::Anything || found.is_array()),
            Self::Described(schema) => schema_may_have(schema, path, segments, wanted),
            Self::ListOf(schema) => match segments.split_first() {
                None => true,
                Some((first, rest)) => first.index().is_some() && schema_may_have(schema, path, rest, wanted),
            },
        }
    }
}

fn schema_may_have(schema: &Value, path: &Path, segments: &[Segment], wanted: Wanted) -> bool {
    if is_composed(schema) {
        return true;
    }
    let Some((first, rest)) = segments.split_first() else {
        return wanted == Wanted::Anything || may_be(schema, "array");
    };
    let in_array = first.index().is_some()
        && may_be(schema, "array")
        && (!schema["items"].is_object() || schema_may_have(&schema["items"], path, rest, wanted));
    let in_object = !matches!(first.key, Key::Index(_))
        && may_be(schema, "object")
        && path.literal_heads(segments).any(|(key, rest)| match schema["properties"].get(key) {
            Some(property) => schema_may_have(property, path, rest, wanted),
            None => is_open(schema),
        });
    in_array || in_object
}

/// Whether an object may have properties that its schema does not name.
pub(super) fn is_open(schema: &Value) -> bool {
    is_composed(schema) || schema["additionalProperties"] != Value::Bool(false)
}

/// Whether a schema says more than its own `type`, `properties` and `items`.
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
