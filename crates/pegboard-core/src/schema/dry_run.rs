//! Simulated validation, which finds costly combinations of schema and value.

use serde_json::{Map, Value};

use super::budget::{self, SchemaBudget};
use super::steps;

/// Simulated validation that counts the worst-case cost of the real one.
pub(super) struct DryRun<'s> {
    root: &'s Value,
    budget: &'s SchemaBudget,
    fuel: u64,
    /// Recursion depth of the real validation.
    frames: usize,
    /// Length of the path of a violation at the current location.
    path_bytes: usize,
    purpose: CheckPurpose,
}

/// Purpose of the real validation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckPurpose {
    /// A yes or no.
    Verdict,
    /// The list of violations, for which branches copy the value and each violation its path.
    Report,
}

/// The real validation could exceed its budget.
#[derive(Debug)]
pub(super) struct BudgetExceeded;

/// Maximum number of steps of a validation that need not leave the thread of its caller: a few milliseconds.
pub(super) const CHEAP_STEPS: u64 = 20_000;
/// Maximum number of steps for a verdict: some seconds, on a thread of its own.
pub(super) const VERDICT_STEPS: u64 = 20_000_000;
/// Maximum number of steps for a verdict of a schema with references, each of which takes longer.
pub(super) const REFERENCES_VERDICT_STEPS: u64 = 4_000_000;
/// Maximum number of steps and kilobytes for a report.
pub(super) const REPORT_STEPS: u64 = 100_000;

const MAX_FRAMES: usize = 1_000;

impl<'s> DryRun<'s> {
    /// Returns the recursion depth of the real validation, unless it takes more than `fuel`.
    pub(super) fn run(
        root: &'s Value,
        budget: &'s SchemaBudget,
        value: &Value,
        purpose: CheckPurpose,
        fuel: u64,
    ) -> Result<usize, BudgetExceeded> {
        let mut dry_run = Self { root, budget, fuel, frames: 0, path_bytes: 0, purpose };
        dry_run.visit(root, value, 0)?;
        Ok(dry_run.frames)
    }

    fn spend(&mut self, n_steps: u64) -> Result<(), BudgetExceeded> {
        self.fuel = self.fuel.checked_sub(n_steps).ok_or(BudgetExceeded)?;
        Ok(())
    }

    /// Spends steps that may each report a violation.
    fn spend_on_checks(&mut self, n_steps: u64) -> Result<(), BudgetExceeded> {
        let per_step = match self.purpose {
            CheckPurpose::Verdict => 1,
            CheckPurpose::Report => 1 + (self.path_bytes / 1_024) as u64,
        };
        self.spend(n_steps.saturating_mul(per_step))
    }

    fn visit(&mut self, schema: &'s Value, value: &Value, depth: usize) -> Result<(), BudgetExceeded> {
        self.frames = self.frames.max(depth);
        if depth > MAX_FRAMES {
            return Err(BudgetExceeded);
        }
        let Some(keywords) = schema.as_object() else { return self.spend_on_checks(1) };
        self.spend_on_checks(steps::of_checks(keywords))?;
        let times = if budget::is_unevaluated(keywords) { budget::UNEVALUATED_FACTOR } else { 1 };
        for (keyword, subschemas) in keywords {
            for _ in 0..times {
                self.in_place(keyword, subschemas, value, depth)?;
            }
            match value {
                Value::Object(members) => self.members(keyword, subschemas, members, depth)?,
                Value::Array(items) => self.items(keyword, subschemas, items, depth)?,
                Value::String(text) => {
                    let rate = steps::text_rate(keyword, subschemas, self.budget);
                    self.spend(steps::of_text(text.len(), rate))?;
                }
                Value::Null | Value::Bool(_) | Value::Number(_) => {}
            }
        }
        Ok(())
    }

    /// Visits a part of the value.
    fn visit_part(
        &mut self,
        schema: &'s Value,
        part: (&str, &Value),
        depth: usize,
    ) -> Result<(), BudgetExceeded> {
        let (name, value) = part;
        let n_bytes = name.len() + 1;
        self.path_bytes += n_bytes;
        let visited = self.visit(schema, value, depth + 1);
        self.path_bytes -= n_bytes;
        visited
    }

    fn in_place(
        &mut self,
        keyword: &str,
        value: &'s Value,
        data: &Value,
        depth: usize,
    ) -> Result<(), BudgetExceeded> {
        if budget::is_reference(keyword) {
            let Some(reference) = value.as_str() else { return Ok(()) };
            let target = self.budget.target(self.root, reference);
            // The path through the schema names the reference.
            return target.map_or(Ok(()), |target| self.visit_part(target, (reference, data), depth));
        }
        if self.purpose == CheckPurpose::Report
            && let ("anyOf" | "oneOf", Some(branches)) = (keyword, value.as_array())
        {
            self.spend((branches.len() as u64).saturating_mul(kilobytes(data)))?;
        }
        budget::in_place(keyword, value).try_for_each(|applied| self.visit(applied, data, depth + 1))
    }

    fn members(
        &mut self,
        keyword: &str,
        value: &'s Value,
        members: &Map<String, Value>,
        depth: usize,
    ) -> Result<(), BudgetExceeded> {
        match (keyword, value) {
            ("properties", Value::Object(properties)) => {
                let position = steps::of_position(properties);
                for (name, member) in members {
                    if let Some(schema) = properties.get(name) {
                        self.spend(position)?;
                        self.visit_part(schema, (name, member), depth)?;
                    }
                }
            }
            ("patternProperties", Value::Object(patterns)) => {
                for (pattern, schema) in patterns {
                    let rate = self.budget.pattern_rate(pattern);
                    for (name, member) in members {
                        self.spend(1 + steps::of_text(name.len(), rate))?;
                        self.visit_part(schema, (name, member), depth)?;
                    }
                }
            }
            ("additionalProperties" | "unevaluatedProperties", schema) => {
                for (name, member) in members {
                    self.visit_part(schema, (name, member), depth)?;
                }
            }
            ("propertyNames", schema) => {
                for name in members.keys() {
                    self.visit(schema, &Value::String(name.clone()), depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn items(
        &mut self,
        keyword: &str,
        value: &'s Value,
        items: &[Value],
        depth: usize,
    ) -> Result<(), BudgetExceeded> {
        match (keyword, value) {
            ("items" | "prefixItems", Value::Array(schemas)) => {
                let pairs = schemas.iter().zip(items);
                pairs.into_iter().try_for_each(|(schema, item)| self.visit_part(schema, ("", item), depth))
            }
            ("items" | "additionalItems" | "unevaluatedItems" | "contains", schema) => {
                items.iter().try_for_each(|item| self.visit_part(schema, ("", item), depth))
            }
            ("uniqueItems", Value::Bool(true)) => {
                let n_steps: u64 = items.iter().map(steps::of_value).sum();
                self.spend(n_steps.saturating_mul(steps::UNIQUE_FACTOR))
            }
            _ => Ok(()),
        }
    }
}

/// Estimates the size of a value; at least 1.
fn kilobytes(value: &Value) -> u64 {
    fn bytes(value: &Value) -> usize {
        match value {
            Value::String(text) => 32 + text.len(),
            Value::Array(items) => 32 + items.iter().map(bytes).sum::<usize>(),
            Value::Object(members) => {
                32 + members.iter().map(|(name, member)| 32 + name.len() + bytes(member)).sum::<usize>()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 32,
        }
    }
    1 + bytes(value) as u64 / 1_024
}
