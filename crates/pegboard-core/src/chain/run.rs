//! Execution of chains.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::path::ContextPath;
use super::source::{Condition, InputSource, OnMissing, missing_path};
use super::step::{ChainStep, OnPartial};
use super::{ChainResult, ChainSpec, ExecuteOptions, Semantics, check, costly_validation};
use crate::call::{Call, Invoker};
use crate::entry::ToolEntry;
use crate::error::{CallError, ErrorKind};
use crate::outcome::{Outcome, OutcomeStatus};
use crate::text::clipped;

/// Maximum number of items that one step processes.
const MAX_ITEMS: usize = 10_000;
/// Maximum size of the input of one call. Without a limit, a context that is passed whole doubles with every
/// step.
const MAX_INPUT_BYTES: usize = 64 << 20;
/// Maximum size of an error of a step, in the errors of the chain. A chain that fails in a chain repeats its errors twice,
/// so that without a limit they double with every level.
const MAX_ERROR_BYTES: usize = 4 << 10;

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
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            (Value::Object(Map::new()), Some("The input of a chain must be an object or null.".to_owned()))
        }
    };
    let mut run =
        ChainExecution { spec, tools, options, context: input, outcomes: Vec::new(), errors: Vec::new() };
    run.errors.extend(problem);
    if run.errors.is_empty() && options.validate_tools {
        let verdict = check::verdict_of_run(spec, tools, &run.context, options).await;
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

/// Groups the steps that run in parallel: neighbours with the same label, or a single step.
pub(super) fn groups(steps: &[ChainStep]) -> impl Iterator<Item = &[ChainStep]> {
    steps.chunk_by(|a, b| a.parallel.is_some() && a.parallel == b.parallel)
}

struct ChainExecution<'r> {
    spec: &'r ChainSpec,
    tools: &'r dyn Invoker,
    options: ExecuteOptions,
    /// Always an object.
    context: Value,
    outcomes: Vec<Outcome>,
    errors: Vec<String>,
}

impl ChainExecution<'_> {
    async fn steps(&mut self) {
        for group in groups(&self.spec.steps) {
            let outcomes = match group {
                [step] => vec![self.step(step).await],
                several => join_all(several.iter().map(|step| self.step(step))).await,
            };
            for (step, outcome) in group.iter().zip(outcomes) {
                self.record(step, outcome);
            }
            if self.options.stop_on_failure && !self.errors.is_empty() {
                return;
            }
        }
    }

    /// Adds the output of a step to the context, or its failure to the errors.
    fn record(&mut self, step: &ChainStep, outcome: Outcome) {
        let index = self.outcomes.len();
        let is_accepted = match outcome.status {
            OutcomeStatus::Success => true,
            OutcomeStatus::Partial => step.on_partial == OnPartial::Accept,
            OutcomeStatus::Skipped | OutcomeStatus::Failure | OutcomeStatus::Timeout => false,
        };
        if is_accepted {
            self.store(step, &outcome.data);
        } else if outcome.status != OutcomeStatus::Skipped {
            let clipped = |error: &str| clipped(error, MAX_ERROR_BYTES).into_owned();
            self.errors.extend(outcome.errors.iter().map(|error| clipped(error)));
            let message = clipped(&outcome.message);
            self.errors.push(format!("Step {index} ('{}') failed: {message}", step.tool_name));
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
        let scope = StepScope { context: &self.context, item: None, semantics: self.spec.semantics };
        if let Some(condition) = &step.when {
            match self.holds(condition, scope.find(condition.path())).await {
                Ok(true) => {}
                Ok(false) => {
                    let message =
                        format!("Tool '{}' was skipped: its condition does not hold.", step.tool_name);
                    return Outcome { status: OutcomeStatus::Skipped, message, ..Outcome::default() };
                }
                Err(error) => return rejected(format!("the condition was not checked: {error}")),
            }
        }
        match &step.for_each {
            None => self.call(step, &scope).await,
            Some(list) => self.for_each_item(step, list, &scope).await,
        }
    }

    /// Returns `true` if a condition holds.
    async fn holds(&self, condition: &Condition, found: Option<&Value>) -> Result<bool, CallError> {
        match (condition.schema(), found) {
            (Some(schema), Some(value)) if schema.is_costly(value) => {
                Ok(costly_validation::check(schema, value, self.tools).await?.valid)
            }
            _ => Ok(condition.holds(found)),
        }
    }

    /// Calls the tool once for each item, in order, with limited concurrency.
    async fn for_each_item(&self, step: &ChainStep, list: &ContextPath, scope: &StepScope<'_>) -> Outcome {
        let items = match scope.find(list) {
            Some(Value::Array(items)) if items.len() <= MAX_ITEMS => items,
            Some(Value::Array(items)) => {
                return rejected(format!(
                    "'{}' has {} items; a step takes at most {MAX_ITEMS}",
                    list.as_str(),
                    items.len()
                ));
            }
            Some(_) => return rejected(format!("'{}' is not a list", list.as_str())),
            None => return rejected(missing_path(list)),
        };
        let started = Instant::now();
        let items: Vec<Value> =
            items.iter().enumerate().map(|(index, item)| json!({"item": item, "index": index})).collect();
        let n_started = AtomicUsize::new(0);
        // By index: a closure over borrowed items would tie the whole run to their lifetime.
        let (items, n_started) = (&items, &n_started);
        let mut calls = stream::iter(0..items.len())
            .map(|index| {
                n_started.fetch_add(1, Ordering::Relaxed);
                async move { self.call(step, &StepScope { item: items.get(index), ..*scope }).await }
            })
            .buffered(step.concurrency.unwrap_or(1).clamp(1, check::MAX_CONCURRENCY));
        let mut outcomes = ItemOutcomes::default();
        while let Some(outcome) = calls.next().await {
            let failed = outcomes.add(step, outcome);
            if failed && self.options.stop_on_failure {
                break;
            }
        }
        let n_started = n_started.load(Ordering::Relaxed);
        outcomes.into_outcome(step, (n_started, items.len()), started.elapsed())
    }

    async fn call(&self, step: &ChainStep, scope: &StepScope<'_>) -> Outcome {
        let arguments = match scope.input_of(step, self.tools) {
            Ok(arguments) if size(&arguments) <= MAX_INPUT_BYTES => arguments,
            Ok(_) => return rejected(format!("the input is larger than {MAX_INPUT_BYTES} bytes")),
            Err(problem) => return rejected(problem),
        };
        let mut call = Call::new(step.tool_name.as_str(), arguments);
        let limit = step.timeout.map(Duration::from);
        call.context.deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut call_result = self.tools.start(call).await;
        if let (Err(CallError::DeadlinePassed { .. }), Some(limit)) = (&call_result.result, limit) {
            call_result.result = Err(CallError::TimedOut { limit });
        }
        Outcome::of(&step.tool_name, call_result)
    }
}

/// Estimates the memory size of a value.
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

/// Returns the outcome of a step that could not start.
fn rejected(problem: String) -> Outcome {
    Outcome {
        status: OutcomeStatus::Failure,
        message: format!("{problem}."),
        errors: vec![problem],
        error_kind: Some(ErrorKind::InvalidParameters),
        ..Outcome::default()
    }
}

/// Values visible to a step.
#[derive(Clone, Copy)]
struct StepScope<'p> {
    context: &'p Value,
    /// Current item and its index, in a `for_each` step.
    item: Option<&'p Value>,
    semantics: Semantics,
}

impl<'p> StepScope<'p> {
    fn find(&self, path: &ContextPath) -> Option<&'p Value> {
        let scope = match self.item {
            Some(item) if path.refers_to_item() => item,
            _ => self.context,
        };
        match self.semantics {
            Semantics::Compat => path.resolve_compat(scope),
            Semantics::Full => path.resolve(scope),
        }
    }

    /// Builds the input of the tool; fails if a source is missing.
    fn input_of(&self, step: &ChainStep, tools: &dyn Invoker) -> Result<Value, String> {
        if step.input_mapping.is_empty() {
            if let Some(item) = self.item {
                return Ok(item["item"].clone());
            }
            let entry = tools.find(&step.tool_name);
            self.note_left_out(step, entry.as_deref(), tools);
            return Ok(self.accepted_context(entry.as_deref()));
        }
        let mut input = Map::new();
        for (name, source) in &step.input_mapping {
            let value = match source {
                InputSource::Constant(value) => Some(value.clone()),
                InputSource::Template(template) => {
                    let text = template.render(|path| self.find(path).cloned());
                    Some(text.map_err(|problem| format!("{problem} (for '{name}')"))?.into())
                }
                InputSource::Path(path, absent) => match (self.find(path), absent, self.semantics) {
                    (Some(value), _, _) | (None, OnMissing::Default(value), _) => Some(value.clone()),
                    (None, OnMissing::Omit, _) => None,
                    (None, OnMissing::Fail, Semantics::Compat) => Some(Value::Null),
                    (None, OnMissing::Fail, Semantics::Full) => {
                        return Err(format!("{} (for '{name}')", missing_path(path)));
                    }
                },
            };
            input.extend(value.map(|value| (name.clone(), value)));
        }
        Ok(input.into())
    }

    /// Records the parts of the context that the tool does not get.
    fn note_left_out(&self, step: &ChainStep, entry: Option<&ToolEntry>, tools: &dyn Invoker) {
        let Some(entry) = entry.filter(|_| self.semantics == Semantics::Full) else { return };
        let names = self.context.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let names = check::undeclared(entry, names);
        if !names.is_empty() {
            tools.recorder().warn(&check::left_out_text(&step.tool_name, &names));
        }
    }

    /// Returns the context, filtered to declared properties if the tool accepts no others.
    fn accepted_context(&self, entry: Option<&ToolEntry>) -> Value {
        let schema = entry.map_or(&Value::Null, |entry| entry.input_schema().as_json());
        if self.semantics == Semantics::Compat || check::is_open(schema) {
            return self.context.clone();
        }
        let takes = |name: &str| schema["properties"].get(name).is_some();
        let members = self.context.as_object().into_iter().flatten().filter(|(name, _)| takes(name));
        members.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// Accumulated outcomes of the calls of a `for_each` step.
#[derive(Default)]
struct ItemOutcomes {
    data: Vec<Value>,
    errors: Vec<String>,
    n_failed: usize,
    first_failure: Option<Outcome>,
}

impl ItemOutcomes {
    /// Adds an outcome; returns `true` if it is a failure.
    fn add(&mut self, step: &ChainStep, outcome: Outcome) -> bool {
        let index = self.data.len();
        let is_accepted = outcome.is_ok()
            || (outcome.status == OutcomeStatus::Partial && step.on_partial == OnPartial::Accept);
        if is_accepted {
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
        (n_started, n_items): (usize, usize),
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
                outcome.status = OutcomeStatus::Success;
                outcome.message = format!("Tool '{name}' executed successfully for {n_items} items.");
            }
            Some(first) => {
                outcome.status = first.status;
                outcome.error_kind = first.error_kind;
                let mut parts = vec![format!("{} of {n_items} items failed", self.n_failed)];
                if n_started > n_done {
                    parts.push(format!("{} were started and cancelled", n_started - n_done));
                }
                if n_items > n_started {
                    parts.push(format!("{} were not started", n_items - n_started));
                }
                outcome.message = format!("{}. {}", parts.join(", "), first.message);
            }
        }
        outcome
    }
}
