//! Costs that were accepted, and the comparison with new ones.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Error, Result};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::CallCost;

/// Difference in percent that needs a new baseline.
const TOLERANCE: f64 = 3.0;
/// Command that records new costs.
const UPDATE: &str = "scripts/bench-guard.sh --update \"REASON\"";

/// Accepted costs by scenario.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Baseline {
    /// Reason for the last change.
    reason: String,
    scenarios: BTreeMap<String, BaselineCost>,
}

/// Accepted cost of one request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct BaselineCost {
    /// Instructions of all threads.
    instructions: f64,
    /// Part of them in threads other than the busiest.
    other_threads: f64,
    allocations: f64,
}

impl Baseline {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let named = |error: &dyn fmt::Display| Error::other(format!("{}: {error}", file.display()));
        let text = std::fs::read_to_string(file).map_err(|error| named(&error))?;
        serde_json::from_str(&text).map_err(|error| named(&error))
    }

    pub(super) fn write(&self, file: &Path) -> Result<()> {
        std::fs::write(file, serde_json::to_string_pretty(self)? + "\n")
    }

    /// Records costs. Scenarios that were not measured keep theirs.
    pub(super) fn update(&mut self, measured: &[(&str, CallCost)], reason: &str) {
        reason.clone_into(&mut self.reason);
        for (name, cost) in measured {
            let recorded = BaselineCost {
                instructions: cost.instructions().round(),
                other_threads: cost.other_threads.round(),
                allocations: (cost.allocations * 10.0).round() / 10.0,
            };
            self.scenarios.insert((*name).to_owned(), recorded);
        }
    }

    pub(super) fn compare(&self, measured: &[(&str, CallCost)]) -> CostReport {
        let lines = measured.iter().map(|(name, cost)| CostComparison {
            scenario: (*name).to_owned(),
            old: self.scenarios.get(*name).copied(),
            new: *cost,
        });
        CostReport(lines.collect())
    }
}

/// Costs of all scenarios beside the accepted ones, as a table.
pub(super) struct CostReport(Vec<CostComparison>);

struct CostComparison {
    scenario: String,
    old: Option<BaselineCost>,
    new: CallCost,
}

/// A count that differs from its baseline by more than the tolerance.
struct CostChange<'a> {
    scenario: &'a str,
    what: &'static str,
    old: f64,
    new: f64,
}

impl CostComparison {
    /// Returns the counts that differ too much.
    fn changes(&self) -> impl Iterator<Item = CostChange<'_>> {
        let counts = self.old.map(|old| {
            [
                ("instructions", old.instructions, self.new.instructions()),
                ("allocations", old.allocations, self.new.allocations),
            ]
        });
        let changes = counts.into_iter().flatten();
        let changes = changes.map(|(what, old, new)| CostChange { scenario: &self.scenario, what, old, new });
        changes.filter(|change| {
            (change.new - change.old).abs() > 0.5 && percent(change.old, change.new).abs() > TOLERANCE
        })
    }
}

impl CostReport {
    /// Returns an error that lists what got worse, and scenarios that are not in the baseline.
    pub(super) fn verdict(&self) -> Result<()> {
        let worse = self.0.iter().flat_map(CostComparison::changes).filter(|change| change.new > change.old);
        let worse = worse.map(|change| format!("error: {change}\n"));
        let unknown = self.0.iter().filter(|line| line.old.is_none());
        let unknown = unknown.map(|line| format!("error: {} has no baseline\n", line.scenario));
        let errors: String = worse.chain(unknown).collect();
        if errors.is_empty() {
            return Ok(());
        }
        Err(Error::other(format!("{errors}  help: make it cheaper, or record it with the reason: {UPDATE}")))
    }
}

impl fmt::Display for CostReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<22}{:>24}{:>12}{:>24}", "per request", "instructions", "others", "allocations")?;
        for CostComparison { scenario, old, new } in &self.0 {
            let instructions = with_difference(old.map(|old| old.instructions), new.instructions(), 0);
            let allocations = with_difference(old.map(|old| old.allocations), new.allocations, 1);
            writeln!(f, "{scenario:<22}{instructions:>24}{:>12.0}{allocations:>24}", new.other_threads)?;
        }
        let better = self.0.iter().flat_map(CostComparison::changes).filter(|change| change.new < change.old);
        let better: Vec<String> = better.map(|change| format!("better: {change}\n")).collect();
        if better.is_empty() {
            return Ok(());
        }
        writeln!(f, "{}  help: record the improvement: {UPDATE}", better.concat())
    }
}

impl fmt::Display for CostChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scenario, what, old, new } = *self;
        let direction = if new > old { "rose" } else { "fell" };
        write!(f, "{scenario}: {what} {direction} from {old:.0} to {new:.0} ({:+.1} %)", percent(old, new))
    }
}

fn with_difference(old: Option<f64>, new: f64, digits: usize) -> String {
    match old {
        Some(old) => format!("{new:.digits$} ({:+.1} %)", percent(old, new)),
        None => format!("{new:.digits$} (new)"),
    }
}

fn percent(old: f64, new: f64) -> f64 {
    (new / old - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(instructions: f64, allocations: f64) -> CallCost {
        CallCost { serving: instructions - 1_000.0, other_threads: 1_000.0, allocations }
    }

    fn compared(measured: &[(&str, CallCost)]) -> String {
        let mut baseline = Baseline::default();
        baseline.update(&[("echo", cost(60_000.0, 40.0)), ("list", cost(9_000_000.0, 12.3))], "first");
        let report = baseline.compare(measured);
        match report.verdict() {
            Ok(()) => format!("{report}"),
            Err(error) => format!("{report}{error}"),
        }
    }

    #[test]
    fn small_differences_pass() {
        insta::assert_snapshot!(compared(&[("echo", cost(61_700.0, 39.0)), ("list", cost(8_800_000.0, 12.3))]), @"
        per request                       instructions      others             allocations
        echo                            61700 (+2.8 %)        1000           39.0 (-2.5 %)
        list                          8800000 (-2.2 %)        1000           12.3 (+0.0 %)
        ");
    }

    #[test]
    fn a_worse_count_fails() {
        insta::assert_snapshot!(compared(&[("echo", cost(62_000.0, 42.0)), ("call", cost(5_000.0, 1.0))]), @r#"
        per request                       instructions      others             allocations
        echo                            62000 (+3.3 %)        1000           42.0 (+5.0 %)
        call                                5000 (new)        1000               1.0 (new)
        error: echo: instructions rose from 60000 to 62000 (+3.3 %)
        error: echo: allocations rose from 40 to 42 (+5.0 %)
        error: call has no baseline
          help: make it cheaper, or record it with the reason: scripts/bench-guard.sh --update "REASON"
        "#);
    }

    #[test]
    fn a_better_count_asks_for_a_new_baseline() {
        insta::assert_snapshot!(compared(&[("echo", cost(50_000.0, 40.0))]), @r#"
        per request                       instructions      others             allocations
        echo                           50000 (-16.7 %)        1000           40.0 (+0.0 %)
        better: echo: instructions fell from 60000 to 50000 (-16.7 %)
          help: record the improvement: scripts/bench-guard.sh --update "REASON"
        "#);
    }

    #[test]
    fn an_update_keeps_what_was_not_measured() {
        let mut baseline = Baseline::default();
        baseline.update(&[("echo", cost(60_000.4, 40.0)), ("list", cost(9_000_000.0, 12.34))], "first");
        baseline.update(&[("echo", cost(50_000.0, 30.0))], "faster");
        insta::assert_snapshot!(serde_json::to_string_pretty(&baseline).unwrap(), @r#"
        {
          "reason": "faster",
          "scenarios": {
            "echo": {
              "instructions": 50000.0,
              "otherThreads": 1000.0,
              "allocations": 30.0
            },
            "list": {
              "instructions": 9000000.0,
              "otherThreads": 1000.0,
              "allocations": 12.3
            }
          }
        }
        "#);
    }
}
