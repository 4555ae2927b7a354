//! The demo: a tour of the features through a real MCP endpoint, one line per check.

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use pegboard::prelude::*;
use pegboard::telemetry::Telemetry;

use crate::cli::style::{BOLD, GREEN, PLAIN, RED, TextStyle};
use crate::cli::{CliError, Globals, OutputFormat, print};
use crate::commands::serve::DEFAULT_ADDRESS;
use crate::commands::serve::access::AdmittedClients;
use crate::paths;
use endpoint::DemoEndpoint;
use tour::AfterTour;

mod endpoint;
mod harness;
mod library;
pub(crate) mod servers;
mod tour;
mod web_service;

/// Boxed future.
type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// Suggested next commands.
const NEXT: &str = "Next: pegboard import · pegboard serve · pegboard demo --keep";

/// Marks of passed and failed checks.
const GOOD: DemoMark = DemoMark(GREEN, '✓');
const BAD: DemoMark = DemoMark(RED, '✗');

/// Colored character.
#[derive(Clone, Copy)]
struct DemoMark(TextStyle, char);

impl fmt::Display for DemoMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{PLAIN}", self.0, self.1)
    }
}

/// Arguments of `pegboard demo`.
#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Keep the endpoint running afterwards for other clients, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Address of that endpoint; if the port is in use, the next free one is taken
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS, requires = "keep")]
    http: SocketAddr,
}

impl DemoArgs {
    /// Runs all checks in order and prints the report.
    pub(crate) async fn run(self, globals: &Globals, telemetry: &Telemetry) -> Result<ExitCode, CliError> {
        let state = paths::state_dir(globals.state.as_deref());
        let demo_endpoint = if self.keep {
            let access = AdmittedClients::own_user(state.as_deref())?;
            Some((DemoEndpoint::open(self.http).await?, access))
        } else {
            None
        };
        let started = Instant::now();
        let mut checks = DemoChecks::default();
        library::run(&mut checks).await;
        let afterwards = if self.keep { AfterTour::KeepRunning } else { AfterTour::ShutDown };
        let app = tour::run(&mut checks, telemetry, afterwards).await;
        let endpoint = demo_endpoint.as_ref().map(|(endpoint, _)| endpoint.url());
        let report = DemoReport { checks: checks.list, endpoint, duration: started.elapsed() };
        print::document(globals.format_or(OutputFormat::Text), &report.document(), || report.text());
        if let (Some((demo_endpoint, access)), Some(app)) = (demo_endpoint, app) {
            demo_endpoint.serve(&app, state.as_deref(), &access).await?;
        }
        Ok(report.exit_code())
    }
}

/// Collects the results of checks.
#[derive(Default)]
struct DemoChecks {
    list: Vec<DemoCheck>,
    part: &'static str,
}

/// Result of one check: the line that describes it, or the error.
struct DemoCheck {
    /// Section of the tour.
    part: &'static str,
    result: Result<String>,
    /// Lines printed below the check.
    drawing: String,
    duration: Duration,
}

impl DemoChecks {
    /// Starts another section.
    fn begin(&mut self, part: &'static str) {
        self.part = part;
    }

    /// Runs a check; `work` returns the line to print.
    async fn add(&mut self, what: &str, work: impl Future<Output = Result<String>>) {
        self.add_drawn(what, async { Ok((work.await?, String::new())) }).await;
    }

    /// Runs a check with additional lines below it.
    async fn add_drawn(&mut self, what: &str, work: impl Future<Output = Result<(String, String)>>) {
        let started = Instant::now();
        let (result, drawing) = match work.await {
            Ok((line, drawing)) => (Ok(line), drawing),
            Err(problem) => (Err(ToolError::new(format!("{what}: {problem}"))), String::new()),
        };
        self.list.push(DemoCheck { part: self.part, result, drawing, duration: started.elapsed() });
    }
}

/// Returns an error unless `holds`.
fn expect(holds: bool, message: impl std::fmt::Display) -> Result<()> {
    if holds { Ok(()) } else { Err(ToolError::new(message)) }
}

/// Report of the demo.
struct DemoReport {
    checks: Vec<DemoCheck>,
    /// URL of the endpoint that is kept running.
    endpoint: Option<String>,
    duration: Duration,
}

impl DemoReport {
    /// Renders the report as text.
    fn text(&self) -> String {
        let mut text = String::new();
        let mut part = "";
        for check in &self.checks {
            if check.part != part {
                part = check.part;
                let _ = writeln!(text, "{BOLD}{part}{PLAIN}");
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

    /// Renders the report as JSON.
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
    async fn a_failed_check_fails_the_demo() {
        let mut checks = DemoChecks::default();
        checks.add("the sky", async { Ok("the sky is up".to_owned()) }).await;
        let report = |checks| DemoReport { checks, endpoint: None, duration: Duration::ZERO };
        let held = report(std::mem::take(&mut checks.list));
        assert_eq!((held.n_failed(), held.exit_code()), (0, ExitCode::SUCCESS));
        checks.add("the order", async { expect(1 > 2, "1 is not above 2").map(|()| String::new()) }).await;
        let failed = report(checks.list);
        assert_eq!((failed.n_failed(), failed.exit_code()), (1, ExitCode::FAILURE));
        let problem = failed.checks[0].result.as_ref().unwrap_err();
        insta::assert_snapshot!(problem, @"the order: 1 is not above 2");
    }
}
