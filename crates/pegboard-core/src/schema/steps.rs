//! Costs of checks in steps, each of which takes less than a microsecond.

use serde_json::{Map, Value};

use super::budget::{SchemaBudget, is_in_place};
use super::vocabulary;

/// Size of a text that takes one step to compare or to copy.
const TEXT_BYTES_PER_STEP: usize = 64;
/// Number of declared names that take one step to find the position of one.
const NAMES_PER_STEP: usize = 64;
/// Comparisons of each value in an array for `uniqueItems`, which compares short arrays pairwise.
pub(super) const UNIQUE_FACTOR: u64 = 8;

/// Returns the steps of all checks of one subschema on a value of any size, without its subschemas, and without those that
/// grow with the value ([`of_text`], [`UNIQUE_FACTOR`]).
pub(super) fn of_checks(keywords: &Map<String, Value>) -> u64 {
    keywords.iter().fold(1, |n_steps: u64, (keyword, value)| n_steps.saturating_add(of_check(keyword, value)))
}

fn of_check(keyword: &str, value: &Value) -> u64 {
    match (keyword, value) {
        ("enum", Value::Array(options)) if is_hashed(options) => 1,
        ("enum" | "const" | "required" | "dependentRequired", _) => of_value(value),
        ("dependencies", Value::Object(dependencies)) => {
            let names = dependencies.values().filter(|names| names.is_array());
            dependencies.len() as u64 + names.map(of_value).sum::<u64>()
        }
        ("dependentSchemas", Value::Object(dependencies)) => dependencies.len() as u64,
        _ => 0,
    }
}

/// Returns `true` for options that are found without a comparison with each.
fn is_hashed(options: &[Value]) -> bool {
    options.iter().all(|option| option.is_string() || option.is_null())
}

/// Returns the steps that compare or copy a value.
pub(super) fn of_value(value: &Value) -> u64 {
    let text = |text: &str| (text.len() / TEXT_BYTES_PER_STEP) as u64;
    1 + match value {
        Value::String(string) => text(string),
        Value::Array(items) => items.iter().map(of_value).sum(),
        Value::Object(members) => members.iter().map(|(name, member)| text(name) + of_value(member)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Returns the steps that find one of these names.
pub(super) fn of_position(names: &Map<String, Value>) -> u64 {
    (names.len() / NAMES_PER_STEP) as u64
}

/// Cost of reading a text, in steps per 16 KiB of it.
pub(super) type TextRate = u64;

/// Returns the steps of reading a text at this rate.
pub(super) fn of_text(n_bytes: usize, rate: TextRate) -> u64 {
    (n_bytes as u64).saturating_mul(rate) >> 14
}

/// Rate of a check for a format, which costs as much as a common pattern.
pub(super) const FORMAT_RATE: TextRate = 8 << 10;

/// Returns the rate of a pattern with a program of this size. The worst case is a thread through each of its states.
pub(super) fn pattern_rate(program_bytes: usize) -> TextRate {
    (1 << 10) + program_bytes as u64
}

/// Returns the rate of a keyword that reads a string.
pub(super) fn text_rate(keyword: &str, value: &Value, budget: &SchemaBudget) -> TextRate {
    match (keyword, value) {
        ("pattern", Value::String(pattern)) => budget.pattern_rate(pattern),
        ("format" | "contentEncoding" | "contentMediaType", _) => FORMAT_RATE,
        ("minLength" | "maxLength", _) => 16,
        ("uniqueItems", Value::Bool(true)) => UNIQUE_FACTOR << 8,
        _ => 0,
    }
}

/// Upper bound of the steps at one location of a value, for a schema without references.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LocationSteps {
    /// At the location itself.
    here: u64,
    /// At any location inside of it.
    inside: u64,
}

impl LocationSteps {
    /// Returns the bound for a subschema.
    pub(super) fn of(schema: &Value) -> Self {
        let Some(keywords) = schema.as_object() else { return Self { here: 1, inside: 0 } };
        let mut steps = Self { here: of_checks(keywords), inside: 0 };
        let (mut declared, mut other_members, mut prefix, mut items) = (0, 0, 0, 0_u64);
        for (keyword, value) in keywords {
            let all = || vocabulary::subschemas(keyword, value).into_iter().map(|(_, inner)| Self::of(inner));
            let sum = || all().map(Self::max).fold(0, u64::saturating_add);
            let largest = || all().map(Self::max).max().unwrap_or(0);
            match (keyword.as_str(), value) {
                ("properties", Value::Object(names)) => {
                    declared = largest().saturating_add(of_position(names));
                }
                ("prefixItems", _) | ("items", Value::Array(_)) => prefix = largest(),
                // Each name is matched against each pattern.
                ("patternProperties", Value::Object(patterns)) => {
                    other_members = sum().saturating_add(other_members).saturating_add(patterns.len() as u64);
                }
                ("additionalProperties" | "propertyNames", _) => {
                    other_members = sum().saturating_add(other_members);
                }
                ("items" | "additionalItems" | "contains", _) => items = sum().saturating_add(items),
                ("uniqueItems", Value::Bool(true)) => {
                    steps.inside = steps.inside.saturating_add(UNIQUE_FACTOR);
                }
                (other, _) if is_in_place(other) => {
                    for inner in all() {
                        steps.here = steps.here.saturating_add(inner.here);
                        steps.inside = steps.inside.saturating_add(inner.inside);
                    }
                }
                _ => {}
            }
        }
        let members = declared.saturating_add(other_members);
        steps.inside = steps.inside.saturating_add(members.max(prefix.saturating_add(items)));
        steps
    }

    /// Returns the bound for the location and all inside of it.
    pub(super) fn max(self) -> u64 {
        self.here.max(self.inside)
    }
}
