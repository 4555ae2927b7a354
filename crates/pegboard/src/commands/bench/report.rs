//! Results of a benchmark: latency percentiles, throughput and processor time of both sides.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::format::{columns, one_line, plural};

/// Maximum number of different error messages that are kept.
const MAX_MESSAGES: usize = 5;
/// Maximum length of an error message.
const MAX_MESSAGE_CHARS: usize = 200;

/// Calls of one side, made in one or more batches.
#[derive(Clone, Debug, Default)]
pub(super) struct CallBatch {
    /// Times of successful calls.
    latencies: Vec<Duration>,
    /// Number of failed calls by message.
    failures: BTreeMap<String, usize>,
    n_failed: usize,
    /// Time from the first call to the end of the last.
    pub(super) elapsed: Duration,
    /// Processor time of this process.
    pub(super) processor_time: Option<Duration>,
}

impl CallBatch {
    pub(super) fn add(&mut self, latency: Duration, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.latencies.push(latency),
            Err(message) => {
                self.n_failed += 1;
                self.add_message(one_line(&message, MAX_MESSAGE_CHARS), 1);
            }
        }
    }

    pub(super) fn n_calls(&self) -> usize {
        self.latencies.len() + self.n_failed
    }

    /// Returns `true` if no call succeeded.
    pub(super) fn is_failure(&self) -> bool {
        self.latencies.is_empty()
    }

    fn add_message(&mut self, message: String, number: usize) {
        if self.failures.len() < MAX_MESSAGES || self.failures.contains_key(&message) {
            *self.failures.entry(message).or_default() += number;
        }
    }

    fn merge(&mut self, other: Self) {
        let is_first = self.n_calls() == 0;
        self.latencies.extend(other.latencies);
        self.n_failed += other.n_failed;
        for (message, number) in other.failures {
            self.add_message(message, number);
        }
        self.elapsed += other.elapsed;
        self.processor_time = match (is_first, self.processor_time, other.processor_time) {
            (true, _, more) => more,
            (false, time, more) => time.zip(more).map(|(time, more)| time + more),
        };
    }

    fn summary(&self) -> SideSummary {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let at =
            |percent: usize| sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1)));
        let n_calls = u32::try_from(self.n_calls()).unwrap_or(u32::MAX);
        let seconds = self.elapsed.as_secs_f64();
        SideSummary {
            latencies: [at(50), at(90), at(99), at(100)].map(Option::<&Duration>::copied),
            calls_per_second: if seconds > 0.0 { f64::from(n_calls) / seconds } else { 0.0 },
            processor_time: self.processor_time.and_then(|time| time.checked_div(n_calls)),
        }
    }
}

/// Figures of one side.
struct SideSummary {
    /// The percentiles of [`PERCENTILES`].
    latencies: [Option<Duration>; 4],
    calls_per_second: f64,
    /// Processor time per call.
    processor_time: Option<Duration>,
}

/// Names of the latencies in a summary.
const PERCENTILES: [&str; 4] = ["p50", "p90", "p99", "max"];

/// Calls of both sides so far.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    direct: CallBatch,
    through: CallBatch,
    /// Number of calls per side, if it is known in advance.
    n_planned: Option<usize>,
}

impl Comparison {
    pub(super) fn add(&mut self, direct: CallBatch, through: CallBatch, n_planned: Option<usize>) {
        self.direct.merge(direct);
        self.through.merge(through);
        self.n_planned = n_planned;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.direct.n_calls() == 0
    }

    /// Number of calls made and planned.
    #[expect(clippy::cast_precision_loss, reason = "for a progress bar")]
    pub(super) fn progress(&self) -> (f64, Option<f64>) {
        (self.direct.n_calls() as f64, self.n_planned.map(|n_calls| n_calls as f64))
    }
}

/// Result of `pegboard bench`.
pub(super) struct BenchReport {
    /// Address of the tool.
    pub(super) tool: String,
    pub(super) concurrency: u16,
    pub(super) is_interrupted: bool,
    pub(super) measured: Comparison,
}

impl BenchReport {
    pub(super) fn has_failures(&self) -> bool {
        self.measured.direct.n_failed + self.measured.through.n_failed > 0
    }

    /// Returns a line per error message.
    pub(super) fn failures(&self) -> Vec<String> {
        let sides = [("direct", &self.measured.direct), ("via pegboard", &self.measured.through)];
        let lines = sides.into_iter().flat_map(|(side, calls)| {
            calls.failures.iter().map(move |(message, number)| {
                format!("{side}: {} failed: {message}", plural(*number as u64, "call"))
            })
        });
        lines.collect()
    }

    pub(super) fn document(&self) -> Value {
        let Comparison { direct, through, .. } = &self.measured;
        let (one, other) = (direct.summary(), through.summary());
        let overhead = one
            .latencies
            .iter()
            .zip(other.latencies)
            .map(|(one, other)| one.zip(other).map(|(one, other)| millis(other) - millis(one)));
        let processor = one.processor_time.zip(other.processor_time);
        json!({
            "tool": self.tool,
            "calls": direct.n_calls(),
            "concurrency": self.concurrency,
            "interrupted": self.is_interrupted,
            "direct": side_json(direct, &one),
            "viaPegboard": side_json(through, &other),
            "overhead": {
                "latencyMs": by_percentile(overhead),
                "cpuMs": processor.map(|(one, other)| rounded(millis(other) - millis(one))),
            },
        })
    }

    pub(super) fn text(&self) -> String {
        let Comparison { direct, through, .. } = &self.measured;
        let (one, other) = (direct.summary(), through.summary());
        let header = ["", "p50", "p90", "p99", "max", "calls/s", "CPU/call", "errors"];
        let mut overhead = vec!["overhead".to_owned()];
        overhead
            .extend(one.latencies.iter().zip(other.latencies).map(|(one, other)| difference(*one, other)));
        overhead.extend([String::new(), difference(one.processor_time, other.processor_time)]);
        let rows = [
            header.map(str::to_owned).to_vec(),
            side_row("direct", direct, &one),
            side_row("via pegboard", through, &other),
            overhead,
        ];
        let n_calls = plural(direct.n_calls() as u64, "call");
        let interrupted = if self.is_interrupted { ", interrupted" } else { "" };
        format!(
            "{}  {n_calls} each, {} at a time{interrupted}\n{}",
            self.tool,
            self.concurrency,
            columns(&rows)
        )
    }
}

fn side_row(name: &str, calls: &CallBatch, summary: &SideSummary) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    row.extend(summary.latencies.iter().map(|latency| short_time(*latency)));
    row.push(format!("{:.0}", summary.calls_per_second));
    row.push(short_time(summary.processor_time));
    row.push(calls.n_failed.to_string());
    row
}

fn side_json(calls: &CallBatch, summary: &SideSummary) -> Value {
    json!({
        "errors": calls.n_failed,
        "latencyMs": by_percentile(summary.latencies.iter().map(|latency| latency.map(millis))),
        "callsPerSecond": rounded(summary.calls_per_second),
        "cpuMs": summary.processor_time.map(|time| rounded(millis(time))),
        "failures": calls.failures,
    })
}

fn by_percentile(values: impl Iterator<Item = Option<f64>>) -> Value {
    let values = values.map(|value| json!(value.map(rounded)));
    PERCENTILES.into_iter().map(str::to_owned).zip(values).collect()
}

/// Rounds to three digits: microseconds, if it is a number of milliseconds.
fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

/// Formats a short time: `84 µs`, `1.25 ms`, `3.10 s`.
fn short_time(time: Option<Duration>) -> String {
    match time {
        None => "–".to_owned(),
        Some(time) if time < Duration::from_millis(1) => format!("{} µs", time.as_micros()),
        Some(time) if time < Duration::from_secs(1) => format!("{:.2} ms", millis(time)),
        Some(time) => format!("{:.2} s", time.as_secs_f64()),
    }
}

fn difference(one: Option<Duration>, other: Option<Duration>) -> String {
    match one.zip(other) {
        None => "–".to_owned(),
        Some((one, other)) => {
            let sign = if other >= one { "+" } else { "-" };
            format!("{sign}{}", short_time(Some(other.abs_diff(one))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(micros: impl Iterator<Item = u64>, cpu: u64) -> CallBatch {
        let mut batch = CallBatch::default();
        for time in micros {
            batch.add(Duration::from_micros(time), Ok(()));
        }
        batch.elapsed = Duration::from_millis(50);
        batch.processor_time = Some(Duration::from_micros(cpu));
        batch
    }

    fn report() -> BenchReport {
        let mut measured = Comparison::default();
        measured.add(calls(1..=100, 4_000), calls(51..=150, 9_000), Some(200));
        let mut failing = calls(1_200..=1_298, 9_000);
        failing.add(Duration::from_secs(1), Err("no\nanswer".to_owned()));
        measured.add(calls(1..=100, 4_000), failing, Some(200));
        BenchReport { tool: "dev/files/read".to_owned(), concurrency: 16, is_interrupted: false, measured }
    }

    #[test]
    fn both_sides_are_compared() {
        insta::assert_snapshot!(report().text(), @"
        dev/files/read  200 calls each, 16 at a time
                      p50     p90       p99       max       calls/s  CPU/call  errors
        direct        51 µs   91 µs     100 µs    100 µs    2000     40 µs     0
        via pegboard  150 µs  1.28 ms   1.30 ms   1.30 ms   2000     90 µs     1
        overhead      +99 µs  +1.19 ms  +1.20 ms  +1.20 ms           +50 µs
        ");
        insta::assert_snapshot!(report().failures().join("\n"), @"via pegboard: 1 call failed: no answer");
        insta::assert_snapshot!(serde_json::to_string_pretty(&report().document()).unwrap(), @r#"
        {
          "tool": "dev/files/read",
          "calls": 200,
          "concurrency": 16,
          "interrupted": false,
          "direct": {
            "errors": 0,
            "latencyMs": {
              "p50": 0.051,
              "p90": 0.091,
              "p99": 0.1,
              "max": 0.1
            },
            "callsPerSecond": 2000.0,
            "cpuMs": 0.04,
            "failures": {}
          },
          "viaPegboard": {
            "errors": 1,
            "latencyMs": {
              "p50": 0.15,
              "p90": 1.279,
              "p99": 1.297,
              "max": 1.298
            },
            "callsPerSecond": 2000.0,
            "cpuMs": 0.09,
            "failures": {
              "no answer": 1
            }
          },
          "overhead": {
            "latencyMs": {
              "p50": 0.099,
              "p90": 1.188,
              "p99": 1.197,
              "max": 1.198
            },
            "cpuMs": 0.05
          }
        }
        "#);
    }

    #[test]
    fn a_side_without_success_has_no_latency() {
        let mut failing = CallBatch::default();
        failing.add(Duration::from_secs(1), Err("gone".to_owned()));
        let mut measured = Comparison::default();
        measured.add(calls(7..=7, 40), failing, None);
        let report = BenchReport { tool: "a/b/c".to_owned(), concurrency: 1, is_interrupted: true, measured };
        insta::assert_snapshot!(report.text(), @"
        a/b/c  1 call each, 1 at a time, interrupted
                      p50   p90   p99   max   calls/s  CPU/call  errors
        direct        7 µs  7 µs  7 µs  7 µs  20       40 µs     0
        via pegboard  –     –     –     –     0        –         1
        overhead      –     –     –     –              –
        ");
    }
}
