//! Full JSON Schema. The only file that names the `jsonschema` crate's compiler.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use jsonschema::{PatternOptions, ValidationError};
use serde_json::Value;

use super::budget::{Budget, Purpose, TooCostly, Trial};
use super::{Formats, Rules, Strictness, report, vocabulary};
use crate::validation::Violation;

/// A compiled schema.
pub(super) struct Validator {
    inner: jsonschema::Validator,
    budget: Budget,
}

/// How many patterns may be taken out of one schema before it is given up.
const MAX_DROPPED_PATTERNS: usize = 32;
/// The size of one compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// How deep a check may go on the stack it is called on.
const MAX_FRAMES_IN_PLACE: usize = 100;
/// The stack of a check that goes deeper.
const DEEP_STACK_BYTES: usize = 64 << 20;

/// Compiles a schema, with a remark for each part that had to be left out, or says why it cannot be.
pub(super) fn compile(
    schema: &Value,
    rules: Rules,
    budget: Budget,
) -> Result<(Validator, Vec<String>), String> {
    if rules.strictness == Strictness::Strict {
        vocabulary::refuse_unknown(schema)?;
    }
    let mut remarks = Vec::new();
    let mut schema = schema.clone();
    loop {
        let error = match build(&schema, rules)? {
            Ok(inner) => return Ok((Validator { inner, budget }, remarks)),
            Err(error) => error,
        };
        let place = error.instance_path().as_str();
        let may_drop = rules.strictness == Strictness::Lenient
            && remarks.len() < MAX_DROPPED_PATTERNS
            && vocabulary::is_pattern_that_may_go(&schema, place);
        if !(may_drop && remove(&mut schema, place)) {
            return Err(format!(
                "{} (at {})",
                error.masked(),
                if place.is_empty() { "its root" } else { place }
            ));
        }
        remarks.push(format!(
            "the pattern at {place} is not checked: it is wrong, too large, or uses look-around or back-references"
        ));
    }
}

impl Validator {
    /// Whether the value is valid.
    pub(super) fn accepts(&self, data: &Value, schema: &Value) -> Result<bool, TooCostly> {
        let frames = if self.budget.needs_trial {
            Trial::run(schema, &self.budget, data, Purpose::Verdict)?
        } else {
            0
        };
        on_enough_stack(frames, || guarded(|| self.inner.is_valid(data)).map_err(|_| TooCostly))
    }

    /// Everything that is wrong with an invalid value.
    pub(super) fn violations(&self, data: &Value, schema: &Value) -> Vec<Violation> {
        let listed = Trial::run(schema, &self.budget, data, Purpose::Report).and_then(|frames| {
            on_enough_stack(frames, || {
                guarded(|| report::violations(self.inner.iter_errors(data), data, schema, &self.budget))
                    .map_err(|_| TooCostly)
            })
        });
        listed.unwrap_or_else(|_| {
            vec![Violation::plain("$: the value does not match its schema; it is too large to say where")]
        })
    }
}

/// Does the work here, or on a stack of its own if it may go deep.
fn on_enough_stack<T: Send>(
    frames: usize,
    work: impl FnOnce() -> Result<T, TooCostly> + Send,
) -> Result<T, TooCostly> {
    if frames <= MAX_FRAMES_IN_PLACE {
        return work();
    }
    thread::scope(|scope| {
        let deep = thread::Builder::new().stack_size(DEEP_STACK_BYTES).spawn_scoped(scope, work);
        deep.map_err(|_| TooCostly)?.join().map_err(|_| TooCostly)?
    })
}

fn build(
    schema: &Value,
    rules: Rules,
) -> Result<Result<jsonschema::Validator, ValidationError<'static>>, String> {
    guarded(|| {
        jsonschema::options()
            .offline()
            .should_validate_formats(rules.formats == Formats::Assert)
            .should_ignore_unknown_formats(rules.strictness == Strictness::Lenient)
            .with_pattern_options(
                PatternOptions::regex().size_limit(MAX_PATTERN_BYTES).dfa_size_limit(MAX_PATTERN_BYTES),
            )
            .build(schema)
    })
}

/// Runs the validator so that a bug in it costs one verdict and not the process.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the validator stumbled over it".to_owned())
}

/// Takes out what is at `place`.
fn remove(schema: &mut Value, place: &str) -> bool {
    let Some((parent, name)) = place.rsplit_once('/') else { return false };
    let Some(Value::Object(parent)) = schema.pointer_mut(parent) else { return false };
    parent.shift_remove(&name.replace("~1", "/").replace("~0", "~")).is_some()
}
