//! The demo: what the product does for an agent, seen through its own MCP endpoint, one line per check.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anstream::println;
use pegboard::prelude::*;
use pegboard::telemetry::Telemetry;

mod library;
pub(crate) mod servers;
mod service;
mod stage;
mod story;

/// What a future that is boxed looks like.
type Boxed<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// Runs all checks, one after another.
pub(crate) async fn run(telemetry: &Telemetry) -> Report {
    let started = Instant::now();
    let mut checks = Checks::default();
    library::run(&mut checks).await;
    story::run(&mut checks, telemetry).await;
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
    /// Adds a check of something; `work` gives the line that tells what was seen.
    async fn add(&mut self, what: &str, work: impl Future<Output = Result<String>>) {
        self.add_drawn(what, async { Ok((work.await?, String::new())) }).await;
    }

    /// Adds a check whose line has a drawing below it.
    async fn add_drawn(&mut self, what: &str, work: impl Future<Output = Result<(String, String)>>) {
        let started = Instant::now();
        let (result, drawing) = match work.await {
            Ok((line, drawing)) => (Ok(line), drawing),
            Err(problem) => (Err(ToolError::new(format!("{what}: {problem}"))), String::new()),
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
        let (n_checks, n_failed, seconds) = (self.checks.len(), self.n_failed(), self.duration.as_secs_f64());
        match n_failed {
            0 => println!("{n_checks} checks \u{1b}[32m✓\u{1b}[0m in {seconds:.1} s"),
            _ => println!("{n_failed} of {n_checks} checks \u{1b}[31m✗\u{1b}[0m in {seconds:.1} s"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_check_that_does_not_hold_makes_the_demo_fail() {
        let mut checks = Checks::default();
        checks.add("the sky", async { Ok("the sky is up".to_owned()) }).await;
        let report = |checks| Report { checks, duration: Duration::ZERO };
        let held = report(std::mem::take(&mut checks.0));
        assert_eq!((held.n_failed(), held.exit_code()), (0, ExitCode::SUCCESS));
        checks.add("the order", async { expect(1 > 2, "1 is not above 2").map(|()| String::new()) }).await;
        let failed = report(checks.0);
        assert_eq!((failed.n_failed(), failed.exit_code()), (1, ExitCode::FAILURE));
        let problem = failed.checks[0].result.as_ref().unwrap_err();
        insta::assert_snapshot!(problem, @"the order: 1 is not above 2");
    }
}
