//! How a chain is carried out.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::path::Path;
use super::source::{Absent, Source, not_there};
use super::step::{ChainStep, OnPartial};
use super::{ChainResult, ChainSpec, ExecuteOptions, Semantics, check};
use crate::call::{Call, Invoker};
use crate::entry::ToolEntry;
use crate::error::{CallError, ErrorKind};
use crate::outcome::{Outcome, Status};

/// How many items one step may work through.
const MAX_ITEMS: usize = 10_000;
/// How large the input of one call may be. Without a bound a context that is given whole doubles with every step.
const MAX_INPUT_BYTES: usize = 64 << 20;

pub(super) async fn execute(
    spec: &ChainSpec,
    tools: &dyn Invoker,
    input: Value,
    options: ExecuteOptions,
) -> ChainResult {
    let started = Instant::now();
    let (input, problem) = match input {
        Value::Null => (Value::Object(Map::new()), None),
        Value::Object(_) => (input, None),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => (
            Value::Object(Map::new()),
            Some("The input of a chain is an object, or null for none.".to_owned()),
        ),
    };
    let mut run = Run { spec, tools, options, context: input, outcomes: Vec::new(), errors: Vec::new() };
    run.errors.extend(problem);
    if run.errors.is_empty() && options.validate_tools {
        let verdict = check::verdict(spec, tools, Some((&run.context, options)));
        run.errors.extend(verdict.errors.iter().map(|violation| violation.text().to_owned()));
    }
    if run.errors.is_empty() {
        run.steps().await;
    }
    ChainResult {
        success: run.errors.is_empty(),
        context: match run.context {
            Value::Object(context) => context,
            _ => Map::new(),
        },
        step_results: run.outcomes,
        errors: run.errors,
        duration: started.elapsed(),
    }
}

/// Steps that run together: neighbours of one label, or a step alone.
pub(super) fn groups(steps: &[ChainStep]) -> impl Iterator<Item = &[ChainStep]> {
    steps.chunk_by(|a, b| a.parallel.is_some() && a.parallel == b.parallel)
}

struct Run<'r> {
    spec: &'r ChainSpec,
    tools: &'r dyn Invoker,
    options: ExecuteOptions,
    /// Always an object.
    context: Value,
    outcomes: Vec<Outcome>,
    errors: Vec<String>,
}

impl Run<'_> {
    async fn steps(&mut self) {
        for group in groups(&self.spec.steps) {
            let outcomes = match group {
                [step] => vec![self.step(step).await],
                several => join_all(several.iter().map(|step| self.step(step))).await,
            };
            for (step, outcome) in group.iter().zip(outcomes) {
                self.take(step, outcome);
            }
            if self.options.stop_on_failure && !self.errors.is_empty() {
                return;
            }
        }
    }

    /// Adds what a step gave to the context, or what went wrong to the errors.
    fn take(&mut self, step: &ChainStep, outcome: Outcome) {
        let index = self.outcomes.len();
        let is_good = match outcome.status {
            Status::Success => true,
            Status::Partial => step.on_partial == OnPartial::Accept,
            Status::Skipped | Status::Failure | Status::Timeout => false,
        };
        if is_good {
            self.store(step, &outcome.data);
        } else if outcome.status != Status::Skipped {
            self.errors.extend_from_slice(&outcome.errors);
            self.errors.push(format!("Step {index} ('{}') failed: {}", step.tool_name, outcome.message));
        }
        self.outcomes.push(outcome);
    }

    fn store(&mut self, step: &ChainStep, data: &Value) {
        let Some(context) = self.context.as_object_mut() else { return };
        if !step.output_key.is_empty() {
            context.insert(step.output_key.clone(), data.clone());
        } else if let Value::Object(members) = data {
            context.extend(members.clone());
        }
    }

    async fn step(&self, step: &ChainStep) -> Outcome {
        let place = Place { context: &self.context, item: None, semantics: self.spec.semantics };
        if let Some(condition) = &step.when
            && !condition.holds(place.find(condition.path()))
        {
            let message = format!("Tool '{}' was skipped: its condition does not hold.", step.tool_name);
            return Outcome { status: Status::Skipped, message, ..Outcome::default() };
        }
        match &step.for_each {
            None => self.call(step, &place).await,
            Some(list) => self.each(step, list, &place).await,
        }
    }

    /// Calls the tool once for each item, in order, a few at a time.
    async fn each(&self, step: &ChainStep, list: &Path, place: &Place<'_>) -> Outcome {
        let items = match place.find(list) {
            Some(Value::Array(items)) if items.len() <= MAX_ITEMS => items,
            Some(Value::Array(items)) => {
                return refused(format!(
                    "'{}' has {} items; a step takes at most {MAX_ITEMS}",
                    list.as_str(),
                    items.len()
                ));
            }
            Some(_) => return refused(format!("'{}' is no list", list.as_str())),
            None => return refused(not_there(list)),
        };
        let started = Instant::now();
        let items: Vec<Value> =
            items.iter().enumerate().map(|(index, item)| json!({"item": item, "index": index})).collect();
        let n_begun = AtomicUsize::new(0);
        // By index: a closure over borrowed items would tie the whole run to their lifetime.
        let (items, n_begun) = (&items, &n_begun);
        let mut calls = stream::iter(0..items.len())
            .map(|index| {
                n_begun.fetch_add(1, Ordering::Relaxed);
                async move { self.call(step, &Place { item: items.get(index), ..*place }).await }
            })
            .buffered(step.concurrency.unwrap_or(1).clamp(1, check::MAX_CONCURRENCY));
        let mut ends = Ends::default();
        while let Some(outcome) = calls.next().await {
            let failed = ends.add(step, outcome);
            if failed && self.options.stop_on_failure {
                break;
            }
        }
        let n_begun = n_begun.load(Ordering::Relaxed);
        ends.into_outcome(step, (n_begun, items.len()), started.elapsed())
    }

    async fn call(&self, step: &ChainStep, place: &Place<'_>) -> Outcome {
        let arguments = match place.input_of(step, self.tools) {
            Ok(arguments) if size(&arguments) <= MAX_INPUT_BYTES => arguments,
            Ok(_) => return refused(format!("the input is larger than {MAX_INPUT_BYTES} bytes")),
            Err(problem) => return refused(problem),
        };
        let mut call = Call::new(step.tool_name.as_str(), arguments);
        let limit = step.timeout.map(Duration::from);
        call.context.deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut ended = self.tools.start(call).await;
        if let (Err(CallError::DeadlinePassed { .. }), Some(limit)) = (&ended.result, limit) {
            ended.result = Err(CallError::TimedOut { limit });
        }
        Outcome::of(&step.tool_name, ended)
    }
}

/// How much memory a value takes, roughly.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => 8 + text.len(),
        Value::Array(items) => 8 + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => {
            8 + members.iter().map(|(name, member)| name.len() + size(member)).sum::<usize>()
        }
    }
}

/// A step that could not be begun.
fn refused(problem: String) -> Outcome {
    Outcome {
        status: Status::Failure,
        message: format!("{problem}."),
        errors: vec![problem],
        error_kind: Some(ErrorKind::InvalidParameters),
        ..Outcome::default()
    }
}

/// What a step can see.
#[derive(Clone, Copy)]
struct Place<'p> {
    context: &'p Value,
    /// The item at hand and its index, in a step that goes through a list.
    item: Option<&'p Value>,
    semantics: Semantics,
}

impl<'p> Place<'p> {
    fn find(&self, path: &Path) -> Option<&'p Value> {
        let scope = match self.item {
            Some(item) if path.is_about_item() => item,
            _ => self.context,
        };
        match self.semantics {
            Semantics::Compat => path.resolve_compat(scope),
            Semantics::Full => path.resolve(scope),
        }
    }

    /// What the tool is given, or why there is nothing to give.
    fn input_of(&self, step: &ChainStep, tools: &dyn Invoker) -> Result<Value, String> {
        if step.input_mapping.is_empty() {
            return Ok(match self.item {
                Some(item) => item["item"].clone(),
                None => self.what_fits(tools.find(&step.tool_name).as_deref()),
            });
        }
        let mut input = Map::new();
        for (name, source) in &step.input_mapping {
            let value = match source {
                Source::Constant(value) => Some(value.clone()),
                Source::Template(template) => {
                    let text = template.render(|path| self.find(path).cloned());
                    Some(text.map_err(|problem| format!("{problem} (for '{name}')"))?.into())
                }
                Source::Path(path, absent) => match (self.find(path), absent, self.semantics) {
                    (Some(value), _, _) | (None, Absent::Default(value), _) => Some(value.clone()),
                    (None, Absent::Omit, _) => None,
                    (None, Absent::Fail, Semantics::Compat) => Some(Value::Null),
                    (None, Absent::Fail, Semantics::Full) => {
                        return Err(format!("{} (for '{name}')", not_there(path)));
                    }
                },
            };
            input.extend(value.map(|value| (name.clone(), value)));
        }
        Ok(input.into())
    }

    /// The context, or of it just what a tool that takes nothing else can take.
    fn what_fits(&self, entry: Option<&ToolEntry>) -> Value {
        let schema = entry.map_or(&Value::Null, |entry| entry.input_schema().as_json());
        if self.semantics == Semantics::Compat || check::is_open(schema) {
            return self.context.clone();
        }
        let takes = |name: &str| schema["properties"].get(name).is_some();
        let members = self.context.as_object().into_iter().flatten().filter(|(name, _)| takes(name));
        members.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// The ends of the calls of one step, as one.
#[derive(Default)]
struct Ends {
    data: Vec<Value>,
    errors: Vec<String>,
    n_failed: usize,
    first_failure: Option<Outcome>,
}

impl Ends {
    /// Adds an outcome; `true` if it is a failure.
    fn add(&mut self, step: &ChainStep, outcome: Outcome) -> bool {
        let index = self.data.len();
        let is_good =
            outcome.is_ok() || (outcome.status == Status::Partial && step.on_partial == OnPartial::Accept);
        if is_good {
            self.data.push(outcome.data);
            return false;
        }
        self.data.push(Value::Null);
        self.n_failed += 1;
        self.errors.extend(outcome.errors.iter().map(|error| format!("item {index}: {error}")));
        self.first_failure.get_or_insert(outcome);
        true
    }

    fn into_outcome(
        self,
        step: &ChainStep,
        (n_begun, n_items): (usize, usize),
        duration: Duration,
    ) -> Outcome {
        let name = &step.tool_name;
        let n_done = self.data.len();
        let mut outcome = Outcome {
            data: self.data.into(),
            errors: self.errors,
            duration: Some(duration),
            metadata: Map::from_iter([("items".to_owned(), n_items.into())]),
            ..Outcome::default()
        };
        match self.first_failure {
            None => {
                outcome.status = Status::Success;
                outcome.message = format!("Tool '{name}' executed successfully for {n_items} items.");
            }
            Some(first) => {
                outcome.status = first.status;
                outcome.error_kind = first.error_kind;
                let mut parts = vec![format!("{} of {n_items} items failed", self.n_failed)];
                if n_begun > n_done {
                    parts.push(format!("{} were begun and given up", n_begun - n_done));
                }
                if n_items > n_begun {
                    parts.push(format!("{} were not begun", n_items - n_begun));
                }
                outcome.message = format!("{}. {}", parts.join(", "), first.message);
            }
        }
        outcome
    }
}
