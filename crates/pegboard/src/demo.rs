//! The demo: what the product does for an agent, seen through its own MCP endpoint, one line per check.

use std::fmt::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use pegboard::prelude::*;
use pegboard::telemetry::Telemetry;

use crate::cli::{Failure, Format, Globals, print};
use crate::commands::serve::USUAL_ADDRESS;
use crate::place;
use keep::Stand;
use story::Afterwards;

mod keep;
mod library;
pub(crate) mod servers;
mod service;
mod stage;
mod story;

/// What a future that is boxed looks like.
type Boxed<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// What to do with what was seen.
const NEXT: &str = "Next: pegboard import · pegboard serve · pegboard demo --keep";

/// The marks of checks that hold, and of those that do not.
const GOOD: &str = "\u{1b}[32m✓\u{1b}[0m";
const BAD: &str = "\u{1b}[31m✗\u{1b}[0m";

/// What stays of what is shown.
#[derive(Args)]
pub(crate) struct Demo {
    /// Leave the endpoint up afterwards, to be looked at with other clients, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Where it is then; the next port if something else listens there
    #[arg(long, value_name = "ADDRESS", default_value = USUAL_ADDRESS, requires = "keep")]
    http: SocketAddr,
}

impl Demo {
    /// Runs all checks, one after another, and prints what they found.
    pub(crate) async fn run(self, globals: &Globals, telemetry: &Telemetry) -> Result<ExitCode, Failure> {
        let stand = if self.keep { Some(Stand::open(self.http).await?) } else { None };
        let started = Instant::now();
        let mut checks = Checks::default();
        library::run(&mut checks).await;
        let afterwards = if self.keep { Afterwards::Stay } else { Afterwards::End };
        let board = story::run(&mut checks, telemetry, afterwards).await;
        let endpoint = stand.as_ref().map(Stand::endpoint);
        let report = Report { checks: checks.list, endpoint, duration: started.elapsed() };
        print::document(globals.format_or(Format::Text), &report.document(), || report.text());
        if let (Some(stand), Some(board)) = (stand, board) {
            let state = place::state(globals.state.as_deref());
            stand.serve(&board, state.as_deref()).await?;
        }
        Ok(report.exit_code())
    }
}

/// The checks so far.
#[derive(Default)]
struct Checks {
    list: Vec<Check>,
    part: &'static str,
}

/// One check: what it shows if it holds, or what went wrong.
struct Check {
    /// What it is a part of.
    part: &'static str,
    result: Result<String>,
    /// What belongs below the line.
    drawing: String,
    duration: Duration,
}

impl Checks {
    /// Begins another part of the tour.
    fn begin(&mut self, part: &'static str) {
        self.part = part;
    }

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
        self.list.push(Check { part: self.part, result, drawing, duration: started.elapsed() });
    }
}

/// Refuses to go on unless `holds`.
fn expect(holds: bool, otherwise: impl std::fmt::Display) -> Result<()> {
    if holds { Ok(()) } else { Err(ToolError::new(otherwise)) }
}

/// What the demo found.
struct Report {
    checks: Vec<Check>,
    /// Where clients find it from now on.
    endpoint: Option<String>,
    duration: Duration,
}

impl Report {
    /// For people.
    fn text(&self) -> String {
        let mut text = String::new();
        let mut part = "";
        for check in &self.checks {
            if check.part != part {
                part = check.part;
                let _ = writeln!(text, "\u{1b}[1m{part}\u{1b}[0m");
            }
            let (mark, line) = match &check.result {
                Ok(line) => (GOOD, line.clone()),
                Err(problem) => (BAD, problem.to_string()),
            };
            let _ = writeln!(text, "{mark} {line:<80} {:>8}", millis(check.duration));
            for line in check.drawing.lines() {
                let _ = writeln!(text, "  {line}");
            }
        }
        let (n_checks, n_failed, seconds) = (self.checks.len(), self.n_failed(), self.duration.as_secs_f64());
        let _ = match n_failed {
            0 => writeln!(text, "{n_checks} checks {GOOD} in {seconds:.1} s   {NEXT}"),
            _ => writeln!(text, "{n_failed} of {n_checks} checks {BAD} in {seconds:.1} s"),
        };
        text
    }

    /// For programs.
    fn document(&self) -> Value {
        let checks: Vec<Value> = self
            .checks
            .iter()
            .map(|check| {
                let line = check.result.clone().unwrap_or_else(|problem| problem.to_string());
                let mut report = json!({
                    "ok": check.result.is_ok(), "part": check.part, "line": line,
                    "duration_ms": as_millis(check.duration),
                });
                if !check.drawing.is_empty() {
                    report["drawing"] = check.drawing.as_str().into();
                }
                report
            })
            .collect();
        let mut report =
            json!({"ok": self.n_failed() == 0, "checks": checks, "duration_ms": as_millis(self.duration)});
        if let Some(endpoint) = &self.endpoint {
            report["mcp"] = endpoint.as_str().into();
        }
        report
    }

    fn exit_code(&self) -> ExitCode {
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
        let report = |checks| Report { checks, endpoint: None, duration: Duration::ZERO };
        let held = report(std::mem::take(&mut checks.list));
        assert_eq!((held.n_failed(), held.exit_code()), (0, ExitCode::SUCCESS));
        checks.add("the order", async { expect(1 > 2, "1 is not above 2").map(|()| String::new()) }).await;
        let failed = report(checks.list);
        assert_eq!((failed.n_failed(), failed.exit_code()), (1, ExitCode::FAILURE));
        let problem = failed.checks[0].result.as_ref().unwrap_err();
        insta::assert_snapshot!(problem, @"the order: 1 is not above 2");
    }
}
