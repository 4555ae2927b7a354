//! Full JSON Schema validation, on top of the `jsonschema` crate.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use jsonschema::{PatternOptions, ValidationError};
use serde_json::Value;

use super::budget::{BudgetExceeded, CheckPurpose, DryRun, SchemaBudget};
use super::{FormatChecks, SchemaRules, SchemaStrictness, report, vocabulary};
use crate::validation::Violation;

/// A compiled schema.
pub(super) struct Validator {
    inner: jsonschema::Validator,
    budget: SchemaBudget,
}

/// Maximum number of patterns dropped from one schema.
const MAX_DROPPED_PATTERNS: usize = 32;
/// Maximum size of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Maximum recursion depth on the caller's stack.
const MAX_FRAMES_IN_PLACE: usize = 100;
/// Stack size for deeper recursion.
const DEEP_STACK_BYTES: usize = 64 << 20;

/// Compiles a schema; returns a warning for each dropped part.
pub(super) fn compile(
    schema: &Value,
    rules: SchemaRules,
    budget: SchemaBudget,
) -> Result<(Validator, Vec<String>), String> {
    if rules.strictness == SchemaStrictness::Strict {
        vocabulary::reject_unknown_keywords(schema)?;
    }
    let mut warnings = Vec::new();
    let mut schema = schema.clone();
    loop {
        let error = match build(&schema, rules)? {
            Ok(inner) => return Ok((Validator { inner, budget }, warnings)),
            Err(error) => error,
        };
        let pointer = error.instance_path().as_str();
        let may_drop = rules.strictness == SchemaStrictness::Lenient
            && warnings.len() < MAX_DROPPED_PATTERNS
            && vocabulary::is_removable_pattern(&schema, pointer);
        if !(may_drop && remove(&mut schema, pointer)) {
            return Err(format!(
                "{} (at {})",
                error.masked(),
                if pointer.is_empty() { "its root" } else { pointer }
            ));
        }
        warnings.push(format!(
            "the pattern at {pointer} is not checked: it is invalid, too large, or uses look-around or back-references"
        ));
    }
}

impl Validator {
    /// Returns `true` if validation may take more than a few milliseconds.
    pub(super) fn is_costly(&self, data: &Value, schema: &Value) -> bool {
        self.budget.is_costly(schema, data)
    }

    /// Returns `true` if the value is valid.
    pub(super) fn accepts(&self, data: &Value, schema: &Value) -> Result<bool, BudgetExceeded> {
        let frames = if self.budget.needs_dry_run {
            DryRun::run(schema, &self.budget, data, CheckPurpose::Verdict)?
        } else {
            0
        };
        with_stack_for(frames, || catch_panic(|| self.inner.is_valid(data)).map_err(|_| BudgetExceeded))
    }

    /// Returns all violations of an invalid value.
    pub(super) fn violations(&self, data: &Value, schema: &Value) -> Vec<Violation> {
        let listed = DryRun::run(schema, &self.budget, data, CheckPurpose::Report).and_then(|frames| {
            with_stack_for(frames, || {
                catch_panic(|| report::violations(self.inner.iter_errors(data), data, schema, &self.budget))
                    .map_err(|_| BudgetExceeded)
            })
        });
        listed.unwrap_or_else(|_| {
            vec![Violation::plain(
                "$: the value does not match its schema; it is too large to list the violations",
            )]
        })
    }
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

fn build(
    schema: &Value,
    rules: SchemaRules,
) -> Result<Result<jsonschema::Validator, ValidationError<'static>>, String> {
    catch_panic(|| {
        jsonschema::options()
            .offline()
            .should_validate_formats(rules.formats == FormatChecks::Assert)
            .should_ignore_unknown_formats(rules.strictness == SchemaStrictness::Lenient)
            .with_pattern_options(
                PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES),
            )
            .build(schema)
    })
}

/// Runs the validator; a bug in it costs one verdict and not the process.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the validator panicked".to_owned())
}

/// Removes the value at a JSON pointer.
fn remove(schema: &mut Value, pointer: &str) -> bool {
    let Some((parent, name)) = pointer.rsplit_once('/') else { return false };
    let Some(Value::Object(parent)) = schema.pointer_mut(parent) else { return false };
    parent.shift_remove(&name.replace("~1", "/").replace("~0", "~")).is_some()
}
