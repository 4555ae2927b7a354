//! `pegboard trace`: operations of a call.

use std::process::ExitCode;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use super::sessions;
use crate::api_client::{ApiClient, ApiPath};
use crate::cli::format::{DIM, PLAIN, ago, columns, format_millis, json_millis, now_millis, one_line};
use crate::cli::{CliError, Globals, OutputFormat, print};
use drawing::{TraceDrawing, TraceLayout, mark};

pub(super) mod drawing;
mod otlp;

/// Number of digits shown of a trace id; enough to identify it.
pub(super) const TRACE_DIGITS: usize = 8;

/// Arguments of `pegboard trace`.
#[derive(Args)]
pub(crate) struct TraceArgs {
    /// Prefix of a trace id, or last; ls lists recent calls
    #[arg(value_name = "ID", default_value = "last", value_parser = NonEmptyStringValueParser::new())]
    id: String,
    /// Show a tree without times
    #[arg(long, conflicts_with = "waterfall")]
    tree: bool,
    /// Show a tree with a waterfall of times; this is the default
    #[arg(long)]
    waterfall: bool,
    /// Print the spans as OTLP JSON, as collectors accept it at /v1/traces
    #[arg(long, conflicts_with_all = ["tree", "waterfall"])]
    otlp: bool,
    /// Maximum number of calls that ls lists
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
}

impl TraceArgs {
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        if self.id == "ls" {
            return self.list(globals, api).await;
        }
        let response = api.get(&ApiPath::new(&["traces", &self.id])).await?;
        if self.otlp {
            let spans = otlp::spans(&response["trace"]);
            print::document(globals.format_or(OutputFormat::Json), &spans, || format!("{spans:#}"));
            return Ok(ExitCode::SUCCESS);
        }
        let layout = if self.tree && !self.waterfall { TraceLayout::Tree } else { TraceLayout::Waterfall };
        print::document(globals.data_format(), &response["trace"], || text(&response["trace"], layout));
        Ok(ExitCode::SUCCESS)
    }

    async fn list(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        let response = api.get(&ApiPath::new(&["traces"]).with("limit", &self.limit)).await?;
        print::listing(
            globals,
            &response,
            "traces",
            |traces| list(traces, now_millis()),
            "No calls have been made yet",
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// Renders a call and all of its operations.
pub(super) fn text(trace: &Value, layout: TraceLayout) -> String {
    let word = |name: &str| trace[name].as_str().unwrap_or_default();
    let began = ago(now_millis(), trace["op"]["startedAt"].as_u64().unwrap_or_default());
    let drawing = TraceDrawing::of_operation(&trace["op"]);
    let reason = drawing.reason().map(|reason| format!("{reason}\n")).unwrap_or_default();
    format!(
        "{reason}{}{}{DIM}trace {}  session {}  {began}{PLAIN}\n",
        drawing.text(layout),
        sessions::records(&trace["records"], now_millis()),
        word("traceId"),
        sessions::short(word("session")),
    )
}

fn list(traces: &Value, now: u64) -> String {
    let rows = traces.as_array().into_iter().flatten().map(|trace| {
        let word = |name: &str| trace[name].as_str().unwrap_or_default();
        vec![
            word("traceId").chars().take(TRACE_DIGITS).collect(),
            format!("{} {}", mark(word("status")), one_line(word("tool"), 60)),
            format_millis(json_millis(&trace["durationMs"])),
            ago(now, trace["startedAt"].as_u64().unwrap_or_default()),
            one_line(word("error"), 60),
        ]
    });
    columns(&rows.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_listed_with_status_and_duration() {
        let traces = json!([
            {"traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "tool": "dev/github/search", "status": "ok",
             "startedAt": 1_000_000, "durationMs": 412.3},
            {"traceId": "00f067aa0ba902b700f067aa0ba902b7", "tool": "wait", "status": "failed",
             "startedAt": 900_000, "durationMs": 2_000, "error": "timeout"},
        ]);
        let text = list(&traces, 1_030_000);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @"
        4bf92f35  ✓ dev/github/search  412 ms  30 s ago
        00f067aa  ✗ wait               2.0 s   2 min ago  timeout
        ");
    }
}
