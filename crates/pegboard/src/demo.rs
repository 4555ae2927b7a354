//! The demo: every part of the product at work on embedded tools, one line per check.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anstream::println;
use pegboard::prelude::*;
use pegboard::telemetry::Telemetry;

mod library;
mod runtime;
mod wire;

/// Runs all checks, one after another.
pub(crate) async fn run(telemetry: &Telemetry) -> Report {
    let started = Instant::now();
    let mut checks = Checks::default();
    library::run(&mut checks).await;
    runtime::run(&mut checks, telemetry).await;
    wire::run(&mut checks).await;
    Report { checks: checks.0, duration: started.elapsed() }
}

/// The checks so far.
#[derive(Default)]
struct Checks(Vec<Check>);

/// One check: what it shows if it holds, or what went wrong.
struct Check {
    result: Result<String>,
    /// What belongs below the line.
    drawing: String,
    duration: Duration,
}

impl Checks {
    /// Adds a check; `work` gives the line that tells what was seen.
    async fn add(&mut self, work: impl Future<Output = Result<String>>) {
        let started = Instant::now();
        let result = work.await;
        self.0.push(Check { result, drawing: String::new(), duration: started.elapsed() });
    }

    /// Adds a check whose line has a drawing below it.
    async fn add_drawn(&mut self, work: impl Future<Output = Result<(String, String)>>) {
        let started = Instant::now();
        let (result, drawing) = match work.await {
            Ok((line, drawing)) => (Ok(line), drawing),
            Err(problem) => (Err(problem), String::new()),
        };
        self.0.push(Check { result, drawing, duration: started.elapsed() });
    }
}

/// Refuses to go on unless `holds`.
fn expect(holds: bool, otherwise: impl std::fmt::Display) -> Result<()> {
    if holds { Ok(()) } else { Err(ToolError::new(otherwise)) }
}

/// What the demo found.
pub(crate) struct Report {
    checks: Vec<Check>,
    duration: Duration,
}

impl Report {
    pub(crate) fn print(&self) {
        for check in &self.checks {
            let (mark, line) = match &check.result {
                Ok(line) => ("\u{1b}[32m✓\u{1b}[0m", line.clone()),
                Err(problem) => ("\u{1b}[31m✗\u{1b}[0m", problem.to_string()),
            };
            println!("{mark} {line:<78} {:>8}", millis(check.duration));
            for line in check.drawing.lines() {
                println!("  {line}");
            }
        }
        let (n_checks, n_failed) = (self.checks.len(), self.n_failed());
        match n_failed {
            0 => println!("All {n_checks} checks passed in {}.", millis(self.duration)),
            _ => println!("{n_failed} of {n_checks} checks failed in {}.", millis(self.duration)),
        }
    }

    pub(crate) fn print_json(&self) {
        let checks: Vec<Value> = self
            .checks
            .iter()
            .map(|check| {
                let line = check.result.clone().unwrap_or_else(|problem| problem.to_string());
                let mut report =
                    json!({"ok": check.result.is_ok(), "line": line, "duration_ms": as_millis(check.duration)});
                if !check.drawing.is_empty() {
                    report["drawing"] = check.drawing.as_str().into();
                }
                report
            })
            .collect();
        let report =
            json!({"ok": self.n_failed() == 0, "checks": checks, "duration_ms": as_millis(self.duration)});
        println!("{report:#}");
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        if self.n_failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn n_failed(&self) -> usize {
        self.checks.iter().filter(|check| check.result.is_err()).count()
    }
}

fn as_millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", as_millis(duration))
}
