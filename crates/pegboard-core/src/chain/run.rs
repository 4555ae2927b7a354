//! Execution of chains.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::path::ContextPath;
use super::source::{Condition, InputSource, OnMissing, missing_path};
use super::step::{ChainStep, OnPartial};
use super::{ChainResult, ChainSpec, ExecuteOptions, Semantics, check, costly_validation};
use crate::call::{Call, Invoker};
use crate::entry::ToolEntry;
use crate::error::{CallError, ErrorKind};
use crate::memory::{MemoryPool, MemoryPoolFull, PoolReservation, member_bytes, value_bytes};
use crate::outcome::{Outcome, OutcomeStatus};
use crate::text::clipped;

/// Maximum number of items that one step processes.
const MAX_ITEMS: usize = 10_000;
/// Maximum size of an error of a step, in the errors of the chain. A chain that fails in a chain repeats its errors twice,
/// so that without a limit they double with every level.
const MAX_ERROR_BYTES: usize = 4 << 10;

/// Handling of the output of a step that is stored in the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutputs {
    /// Its outcome has a copy.
    Copied,
    /// Its outcome has no data.
    Moved,
}

/// Memory of one run: its input, the outputs of its steps, and the inputs of the calls in flight.
pub(super) struct ChainMemory {
    pool: MemoryPool,
    held: PoolReservation,
}

impl ChainMemory {
    /// Counts the input of a chain.
    pub(super) fn admit(tools: &dyn Invoker, input: &Value) -> Result<Self, MemoryPoolFull> {
        let pool = tools.memory().unwrap_or_default();
        let held = pool.reservation();
        held.try_grow(value_bytes(input))?;
        Ok(Self { pool, held })
    }
}

/// Returns the error for an input that does not fit.
pub(super) fn input_too_large(full: MemoryPoolFull) -> String {
    format!("the input is too large: {full}; pass less data, or use several chains")
}

/// Returns the result of a chain that did not start.
pub(super) fn refused(problem: String) -> ChainResult {
    ChainResult {
        success: false,
        context: Map::new(),
        step_results: Vec::new(),
        errors: vec![problem],
        duration: Duration::ZERO,
    }
}

pub(super) async fn execute(
    spec: &ChainSpec,
    tools: &dyn Invoker,
    (input, memory): (Value, ChainMemory),
    (options, step_outputs): (ExecuteOptions, StepOutputs),
) -> ChainResult {
    let started = Instant::now();
    let (input, problem) = match input {
        Value::Null => (Value::Object(Map::new()), None),
        Value::Object(_) => (input, None),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            (Value::Object(Map::new()), Some("The input of a chain must be an object or null.".to_owned()))
        }
    };
    let mut run = ChainExecution {
        spec,
        tools,
        options,
        step_outputs,
        memory,
        context: input,
        outcomes: Vec::new(),
        errors: Vec::new(),
    };
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
    step_outputs: StepOutputs,
    memory: ChainMemory,
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
    fn record(&mut self, step: &ChainStep, mut outcome: Outcome) {
        let index = self.outcomes.len();
        if is_accepted(step, &outcome) {
            let data = match self.step_outputs {
                StepOutputs::Copied => outcome.data.clone(),
                StepOutputs::Moved => mem::take(&mut outcome.data),
            };
            self.store(step, data);
        } else if outcome.status != OutcomeStatus::Skipped {
            let clipped = |error: &str| clipped(error, MAX_ERROR_BYTES).into_owned();
            self.errors.extend(outcome.errors.iter().map(|error| clipped(error)));
            let message = clipped(&outcome.message);
            self.errors.push(format!("Step {index} ('{}') failed: {message}", step.tool_name));
        }
        self.outcomes.push(outcome);
    }

    fn store(&mut self, step: &ChainStep, data: Value) {
        let Some(context) = self.context.as_object_mut() else { return };
        let mut dropped = Vec::new();
        if !step.output_key.is_empty() {
            dropped.extend(context.insert(step.output_key.clone(), data));
        } else if let Value::Object(members) = data {
            dropped.extend(members.into_iter().filter_map(|(name, member)| context.insert(name, member)));
        } else {
            dropped.push(data);
        }
        if self.step_outputs == StepOutputs::Moved {
            self.memory.held.shrink(dropped.iter().map(value_bytes).sum());
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
        let n_started = AtomicUsize::new(0);
        // By index: a closure over borrowed items would tie the whole run to their lifetime.
        let n_started = &n_started;
        let mut calls = stream::iter(0..items.len())
            .map(|index| {
                n_started.fetch_add(1, Ordering::Relaxed);
                async move { self.call_for_item(step, (index, &items[index]), scope).await }
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

    async fn call_for_item(
        &self,
        step: &ChainStep,
        (index, item): (usize, &Value),
        scope: &StepScope<'_>,
    ) -> Outcome {
        let held = self.memory.pool.reservation();
        let members = |item| [("item".to_owned(), item), ("index".to_owned(), index.into())];
        let item = match held.copy(item) {
            Ok(item) => Value::Object(Map::from_iter(members(item))),
            Err(full) => return over_limit(input_too_large(full)),
        };
        let mut outcome = self.call(step, &StepScope { item: Some(&item), ..*scope }).await;
        if !is_accepted(step, &outcome) {
            // The list has `null` in its place.
            self.memory.held.shrink(value_bytes(&mem::take(&mut outcome.data)));
        }
        outcome
    }

    async fn call(&self, step: &ChainStep, scope: &StepScope<'_>) -> Outcome {
        // Counted until the call ends.
        let held = self.memory.pool.reservation();
        let arguments = match scope.input_of(step, self.tools, &held) {
            Ok(arguments) => arguments,
            Err(InputProblem::Invalid(problem)) => return rejected(problem),
            Err(InputProblem::TooLarge(full)) => return over_limit(input_too_large(full)),
        };
        let mut call = Call::new(step.tool_name.as_str(), arguments);
        let limit = step.timeout.map(Duration::from);
        call.context.deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut call_result = self.tools.start(call).await;
        if let (Err(CallError::DeadlinePassed { .. }), Some(limit)) = (&call_result.result, limit) {
            call_result.result = Err(CallError::TimedOut { limit });
        }
        drop(held);
        self.hold(Outcome::of(&step.tool_name, call_result))
    }

    /// Counts the outcome of a call until the end of the run; one that does not fit is replaced by a failure.
    fn hold(&self, outcome: Outcome) -> Outcome {
        let texts = outcome.errors.iter().chain([&outcome.message]);
        let n_bytes = value_bytes(&outcome.data) + texts.map(String::len).sum::<usize>();
        match self.memory.held.try_grow(n_bytes) {
            Ok(()) => outcome,
            Err(full) => Outcome {
                duration: outcome.duration,
                ..over_limit(format!(
                    "the output was discarded: {full}; the tool has run; let it return less, or use several chains"
                ))
            },
        }
    }
}

/// Returns `true` if the output of a step goes into the context.
fn is_accepted(step: &ChainStep, outcome: &Outcome) -> bool {
    match outcome.status {
        OutcomeStatus::Success => true,
        OutcomeStatus::Partial => step.on_partial == OnPartial::Accept,
        OutcomeStatus::Skipped | OutcomeStatus::Failure | OutcomeStatus::Timeout => false,
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

/// Returns the outcome of a step with too large an input or output.
fn over_limit(problem: String) -> Outcome {
    Outcome { error_kind: Some(ErrorKind::LimitExceeded), ..rejected(problem) }
}

/// Reason why the input of a step cannot be built.
enum InputProblem {
    Invalid(String),
    TooLarge(MemoryPoolFull),
}

impl From<MemoryPoolFull> for InputProblem {
    fn from(full: MemoryPoolFull) -> Self {
        Self::TooLarge(full)
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

    /// Builds the input of the tool; fails if a source is missing, or before it outgrows the memory.
    fn input_of(
        &self,
        step: &ChainStep,
        tools: &dyn Invoker,
        held: &PoolReservation,
    ) -> Result<Value, InputProblem> {
        if step.input_mapping.is_empty() {
            if let Some(item) = self.item {
                return Ok(held.copy(&item["item"])?);
            }
            let entry = tools.find(&step.tool_name);
            self.note_left_out(step, entry.as_deref(), tools);
            return Ok(self.accepted_context(entry.as_deref(), held)?);
        }
        let mut input = Map::new();
        for (name, source) in &step.input_mapping {
            let value = match source {
                InputSource::Constant(value) => Some(held.copy(value)?),
                InputSource::Template(template) => {
                    let invalid = |problem| InputProblem::Invalid(format!("{problem} (for '{name}')"));
                    let parts = template.resolve(|path| self.find(path)).map_err(invalid)?;
                    held.try_grow(parts.n_bytes())?;
                    Some(parts.to_string().into())
                }
                InputSource::Path(path, absent) => match (self.find(path), absent, self.semantics) {
                    (Some(value), _, _) | (None, OnMissing::Default(value), _) => Some(held.copy(value)?),
                    (None, OnMissing::Omit, _) => None,
                    (None, OnMissing::Fail, Semantics::Compat) => Some(Value::Null),
                    (None, OnMissing::Fail, Semantics::Full) => {
                        return Err(InputProblem::Invalid(format!("{} (for '{name}')", missing_path(path))));
                    }
                },
            };
            if let Some(value) = value {
                held.try_grow(member_bytes(name))?;
                input.insert(name.clone(), value);
            }
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
    fn accepted_context(
        &self,
        entry: Option<&ToolEntry>,
        held: &PoolReservation,
    ) -> Result<Value, MemoryPoolFull> {
        let schema = entry.map_or(&Value::Null, |entry| entry.input_schema().as_json());
        if self.semantics == Semantics::Compat || check::is_open(schema) {
            return held.copy(self.context);
        }
        let takes = |name: &str| schema["properties"].get(name).is_some();
        let members = self.context.as_object().into_iter().flatten().filter(|(name, _)| takes(name));
        members
            .map(|(name, value)| {
                held.try_grow(member_bytes(name))?;
                Ok((name.clone(), held.copy(value)?))
            })
            .collect()
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
    fn add(&mut self, step: &ChainStep, mut outcome: Outcome) -> bool {
        let index = self.data.len();
        if is_accepted(step, &outcome) {
            self.data.push(outcome.data);
            return false;
        }
        self.data.push(Value::Null);
        self.n_failed += 1;
        let errors = mem::take(&mut outcome.errors).into_iter();
        self.errors.extend(errors.map(|error| format!("item {index}: {}", clipped(&error, MAX_ERROR_BYTES))));
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
