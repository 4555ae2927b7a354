//! Full JSON Schema. The only file that names the `jsonschema` crate's compiler.

use std::panic::{AssertUnwindSafe, catch_unwind};

use jsonschema::{PatternOptions, ValidationError};
use serde_json::Value;

use super::budget::{self, Budget};
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
        let may_drop = rules.strictness == Strictness::Lenient && remarks.len() < MAX_DROPPED_PATTERNS;
        if !(may_drop && drop_pattern(&mut schema, place)) {
            return Err(format!(
                "{} (at {})",
                error.masked(),
                if place.is_empty() { "its root" } else { place }
            ));
        }
        remarks.push(format!(
            "the pattern at {place} is not checked: only patterns without look-around and back-references are"
        ));
    }
}

impl Validator {
    /// Whether the value is valid, or why that could not be found out.
    pub(super) fn accepts(&self, data: &Value) -> Result<bool, String> {
        if let Some(limit) = self.budget.max_value_depth
            && budget::is_deeper_than(data, limit)
        {
            return Err(format!(
                "the value nests deeper than {limit} levels, which this schema would take too long to check"
            ));
        }
        guarded(|| self.inner.is_valid(data))
    }

    /// Everything that is wrong with an invalid value.
    pub(super) fn violations(&self, data: &Value, schema: &Value) -> Vec<Violation> {
        guarded(|| report::violations(self.inner.iter_errors(data), schema))
            .unwrap_or_else(|_| vec![Violation::plain("$: the value does not match its schema")])
    }
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

/// Takes the pattern out that the compiler complained of.
fn drop_pattern(schema: &mut Value, place: &str) -> bool {
    let Some((parent, name)) = place.rsplit_once('/') else { return false };
    let is_pattern =
        name == "pattern" || parent.ends_with("/patternProperties") || parent == "/patternProperties";
    let Some(Value::Object(parent)) = schema.pointer_mut(parent) else { return false };
    let name = name.replace("~1", "/").replace("~0", "~");
    is_pattern && parent.shift_remove(&name).is_some()
}
