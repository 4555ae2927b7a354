//! `pegboard trace`: what a call did, and when.

use std::process::ExitCode;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use super::sessions;
use crate::cli::words::{DIM, PLAIN, ago, columns, millis, now, one_line, took};
use crate::cli::{Failure, Format, Globals, print, remark};
use crate::desk::{Address, Desk};
use drawing::{Drawing, Picture, mark};

pub(super) mod drawing;
mod otlp;

/// How many digits of a trace are shown: enough to find it by.
pub(super) const TRACE_DIGITS: usize = 8;

/// Which call, and how it is drawn.
#[derive(Args)]
pub(crate) struct Trace {
    /// The call: the beginning of its trace id, or last; ls lists the latest calls
    #[arg(value_name = "ID", default_value = "last", value_parser = NonEmptyStringValueParser::new())]
    id: String,
    /// Draw what it did as a tree, without times
    #[arg(long, conflicts_with = "waterfall")]
    tree: bool,
    /// Draw what it did as a tree beside bars; this is usual
    #[arg(long)]
    waterfall: bool,
    /// Print it as spans in the JSON of OTLP, as collectors take it at /v1/traces
    #[arg(long, conflicts_with_all = ["tree", "waterfall"])]
    otlp: bool,
    /// How many calls ls lists
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
}

impl Trace {
    pub(crate) async fn ask(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        if self.id == "ls" {
            return self.list(globals, desk).await;
        }
        let told = desk.get(&Address::of(&["traces", &self.id])).await?;
        if self.otlp {
            let spans = otlp::spans(&told["trace"]);
            print::document(globals.format_or(Format::Json), &spans, || format!("{spans:#}"));
            return Ok(ExitCode::SUCCESS);
        }
        let picture = if self.tree && !self.waterfall { Picture::Tree } else { Picture::Waterfall };
        print::document(globals.data_format(), &told["trace"], || text(&told["trace"], picture));
        Ok(ExitCode::SUCCESS)
    }

    async fn list(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        let told = desk.get(&Address::of(&["traces"]).with("limit", &self.limit)).await?;
        let format = globals.data_format();
        match format {
            Format::Ndjson => print::list(format, &told["traces"]),
            Format::Text | Format::Json | Format::Yaml => {
                print::document(format, &told, || list(&told["traces"], now()));
            }
        }
        if told["traces"].as_array().is_none_or(Vec::is_empty) {
            remark(globals, "No call has been made yet");
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A call and all that it did.
pub(super) fn text(trace: &Value, picture: Picture) -> String {
    let word = |name: &str| trace[name].as_str().unwrap_or_default();
    let began = ago(now(), trace["op"]["startedAt"].as_u64().unwrap_or_default());
    format!(
        "{}{}{DIM}trace {}  session {}  {began}{PLAIN}\n",
        Drawing::of_operation(&trace["op"]).text(picture),
        sessions::records(&trace["records"], now()),
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
            took(millis(&trace["durationMs"])),
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
    fn calls_are_listed_with_how_they_went() {
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
