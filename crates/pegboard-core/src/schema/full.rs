//! Full JSON Schema validation, on top of the `jsonschema` crate.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use jsonschema::{PatternOptions, ValidationError};
use serde_json::Value;

use super::budget::{AnalyzedSchema, SchemaBudget};
use super::dry_run::{BudgetExceeded, CheckPurpose, DryRun, REPORT_STEPS};
use super::patterns::{MAX_PATTERN_BYTES, PatternBudget};
use super::validator_memory::{self, ValidatorSlot};
use super::{FormatChecks, SchemaRules, SchemaStrictness, compilation, report, vocabulary};
use crate::validation::Violation;

/// A compiled schema.
pub(super) struct Validator {
    /// Empty while there is no memory for the compiled form.
    slot: Arc<ValidatorSlot>,
    recipe: Recipe,
    budget: SchemaBudget,
}

/// Settings of a compilation, by which the same schema is compiled again.
struct Recipe {
    rules: SchemaRules,
    /// JSON pointers of the patterns that are dropped.
    dropped: Vec<String>,
    /// Limit of each lazily built automaton of a pattern.
    automaton_bytes: usize,
    is_costly: bool,
}

/// Maximum number of patterns dropped from one schema.
const MAX_DROPPED_PATTERNS: usize = 32;

/// Maximum recursion depth on the caller's stack.
const MAX_FRAMES_IN_PLACE: usize = 100;
/// Stack size for deeper recursion.
const DEEP_STACK_BYTES: usize = 64 << 20;

/// Compiles a schema; returns a warning for each dropped part.
pub(super) fn compile(
    schema: &Value,
    rules: SchemaRules,
    analyzed: AnalyzedSchema,
) -> Result<(Validator, Vec<String>), String> {
    if rules.strictness == SchemaStrictness::Strict {
        vocabulary::reject_unknown_keywords(schema)?;
    }
    let AnalyzedSchema { mut budget, patterns, n_bytes } = analyzed;
    let mut pattern_budget = PatternBudget::default();
    let mut dropped = Vec::new();
    let mut checked: HashMap<String, (usize, usize)> = HashMap::new();
    for (pointer, pattern) in patterns {
        if let Some(program_bytes) = pattern_budget.measure(&pattern) {
            let (_, n_places) = checked.entry(pattern).or_insert((program_bytes, 0));
            *n_places += 1;
            continue;
        }
        let may_drop = rules.strictness == SchemaStrictness::Lenient
            && dropped.len() < MAX_DROPPED_PATTERNS
            && vocabulary::is_removable_pattern(schema, &pointer);
        if !may_drop {
            return Err(format!("its pattern {UNUSABLE_PATTERN} (at {pointer})"));
        }
        dropped.push(pointer);
    }
    for (pattern, (program_bytes, n_places)) in checked {
        budget.add_pattern(pattern, program_bytes, n_places);
    }
    let warnings = dropped
        .iter()
        .map(|pointer| format!("the pattern at {pointer} is not checked: it {UNUSABLE_PATTERN}"))
        .collect();
    let memory = pattern_budget.memory();
    let slot = validator_memory::shared().slot(n_bytes + memory.n_bytes);
    let is_costly = compilation::is_costly(schema);
    let recipe = Recipe { rules, dropped, automaton_bytes: memory.automaton_bytes, is_costly };
    slot.store(&Arc::new(recipe.build(schema)?));
    Ok((Validator { slot, recipe, budget }, warnings))
}

const UNUSABLE_PATTERN: &str = "is invalid, too large, or uses look-around or back-references";

impl Validator {
    /// Returns `true` if validation may take more than a few milliseconds.
    pub(super) fn is_costly(&self, data: &Value, schema: &Value) -> bool {
        (self.recipe.is_costly && !self.slot.is_stored()) || self.budget.is_costly(schema, data)
    }

    /// Returns `true` if the value is valid.
    pub(super) fn accepts(&self, data: &Value, schema: &Value) -> Result<bool, BudgetExceeded> {
        let max_steps = self.budget.max_verdict_steps();
        let frames = if self.budget.is_within(data, max_steps) {
            0
        } else {
            DryRun::run(schema, &self.budget, data, CheckPurpose::Verdict, max_steps)?
        };
        let compiled = self.compiled(schema)?;
        with_stack_for(frames, || catch_panic(|| compiled.is_valid(data)).map_err(|_| BudgetExceeded))
    }

    /// Returns all violations of an invalid value.
    pub(super) fn violations(&self, data: &Value, schema: &Value) -> Vec<Violation> {
        let dry_run = DryRun::run(schema, &self.budget, data, CheckPurpose::Report, REPORT_STEPS);
        let listed = dry_run.and_then(|frames| {
            let compiled = self.compiled(schema)?;
            with_stack_for(frames, || {
                catch_panic(|| report::violations(compiled.iter_errors(data), data, schema, &self.budget))
                    .map_err(|_| BudgetExceeded)
            })
        });
        listed.unwrap_or_else(|_| {
            vec![Violation::plain(
                "$: the value does not match its schema; it is too large to list the violations",
            )]
        })
    }

    /// Returns the compiled form, which is compiled again if it was dropped.
    fn compiled(&self, schema: &Value) -> Result<Arc<jsonschema::Validator>, BudgetExceeded> {
        if let Some(compiled) = self.slot.get() {
            return Ok(compiled);
        }
        let compiled = Arc::new(self.recipe.build(schema).map_err(|_| BudgetExceeded)?);
        self.slot.store(&compiled);
        Ok(compiled)
    }
}

impl Recipe {
    fn build(&self, schema: &Value) -> Result<jsonschema::Validator, String> {
        if self.dropped.is_empty() {
            return self.build_from(schema);
        }
        let mut schema = schema.clone();
        for pointer in &self.dropped {
            remove(&mut schema, pointer);
        }
        self.build_from(&schema)
    }

    fn build_from(&self, schema: &Value) -> Result<jsonschema::Validator, String> {
        let patterns =
            PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(self.automaton_bytes);
        let options = jsonschema::options()
            .offline()
            .should_validate_formats(self.rules.formats == FormatChecks::Assert)
            .should_ignore_unknown_formats(self.rules.strictness == SchemaStrictness::Lenient)
            .with_pattern_options(patterns);
        catch_panic(|| options.build(schema).map_err(|error| error_text(&error)))?
    }
}

fn error_text(error: &ValidationError<'_>) -> String {
    let pointer = error.instance_path().as_str();
    format!("{} (at {})", error.masked(), if pointer.is_empty() { "its root" } else { pointer })
}

/// Runs `work` on this stack, or on a larger one if it may recurse deeply.
fn with_stack_for<T: Send>(
    frames: usize,
    work: impl FnOnce() -> Result<T, BudgetExceeded> + Send,
) -> Result<T, BudgetExceeded> {
    if frames <= MAX_FRAMES_IN_PLACE {
        return work();
    }
    thread::scope(|scope| {
        let deep = thread::Builder::new().stack_size(DEEP_STACK_BYTES).spawn_scoped(scope, work);
        deep.map_err(|_| BudgetExceeded)?.join().map_err(|_| BudgetExceeded)?
    })
}

/// Runs the validator; a bug in it costs one verdict and not the process.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the validator panicked".to_owned())
}

/// Removes the value at a JSON pointer.
fn remove(schema: &mut Value, pointer: &str) {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return };
    if let Some(Value::Object(parent)) = schema.pointer_mut(parent) {
        parent.shift_remove(&name.replace("~1", "/").replace("~0", "~"));
    }
}
