//! `pegboard batch`: many calls, a line for each, answered a line for each as they end.

use std::io::{self, BufRead, BufReader};
use std::process::ExitCode;

use clap::Args;
use pegboard::json::RawJson;
use serde_json::json;

use crate::cli::waiting::Waiting;
use crate::cli::{Exit, Failure, Globals, print, remark};
use crate::desk::{Address, Desk};

/// How many calls are made at most.
const MAX_CALLS: usize = 1_000;
/// How long a line may be.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// Which calls.
#[derive(Args)]
#[command(
    after_help = "A line is {\"tool\": \"NAME\", \"arguments\": {…}}. An answer is {\"index\": 0, \"tool\": …, \
    \"result\": …} or {\"index\": 0, \"tool\": …, \"error\": …}, where 0 is the first line."
)]
pub(crate) struct Batch {
    /// The file with a call on each line; - is standard input
    file: String,
    /// How many calls to make at the same time
    #[arg(long, value_name = "NUMBER")]
    parallel: Option<usize>,
}

impl Batch {
    pub(crate) async fn ask(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        let calls = self.read()?;
        let n_calls = calls.len();
        let mut order =
            RawJson::from(json!({"session": super::session()})).with("calls", &RawJson::of(&calls));
        if let Some(parallel) = self.parallel {
            order = order.with("parallel", &RawJson::of(&parallel));
        }
        let waiting = Waiting::new(globals, format!("{n_calls} calls"));
        let mut answers = waiting.during(desk.lines(&Address::of(&["batch"]), &order)).await?;
        let (mut n_answers, mut n_failed) = (0, 0);
        while let Some(line) = waiting.during(answers.next()).await? {
            if line.is_empty() {
                continue;
            }
            print::exactly(&line);
            n_answers += 1;
            let answer = RawJson::trusted(line);
            let is_error = answer.get("isError").is_some_and(|is_error| is_error.as_str() == "true");
            if is_error || answer.get("error").is_some() {
                n_failed += 1;
            }
            #[expect(clippy::cast_precision_loss, reason = "there are few calls")]
            waiting.advance(n_answers as f64, Some(n_calls as f64));
        }
        if n_answers < n_calls {
            let message = format!("the gateway ended after {n_answers} of {n_calls} answers");
            return Err(Failure::new(Exit::Unavailable, "not_running", message));
        }
        if n_failed == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        remark(globals, &format!("{n_failed} of {n_calls} calls failed"));
        Ok(Exit::Failed.into())
    }

    /// Reads all calls; nothing is done if one of them is none.
    fn read(&self) -> Result<Vec<RawJson>, Failure> {
        if self.file == "-" {
            return read(BufReader::new(io::stdin()), "standard input");
        }
        let unreadable =
            |error| Failure::not_found("not_found", format!("{} cannot be read: {error}", self.file));
        read(BufReader::new(std::fs::File::open(&self.file).map_err(unreadable)?), &self.file)
    }
}

fn read(mut lines: impl BufRead, name: &str) -> Result<Vec<RawJson>, Failure> {
    let mut calls = Vec::new();
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        let wrong = |why: &str| {
            Failure::usage(format!("{name}:{number}: {why}"))
                .hint(r#"write a call on each line: {"tool": "NAME", "arguments": {}}"#)
        };
        let n_bytes = io::Read::take(&mut lines, MAX_LINE as u64 + 1)
            .read_line(&mut line)
            .map_err(|error| wrong(&error.to_string()))?;
        if n_bytes == 0 {
            break;
        }
        if n_bytes > MAX_LINE {
            return Err(wrong("the line is too long"));
        }
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        let call = RawJson::parse(text.to_owned().into()).map_err(|error| wrong(&error.to_string()))?;
        if call.get("tool").is_none_or(|tool| tool.text().is_none()) {
            return Err(wrong("it names no tool"));
        }
        calls.push(call);
        if calls.len() > MAX_CALLS {
            return Err(wrong(&format!("there are more than {MAX_CALLS} calls; make several files of them")));
        }
    }
    if calls.is_empty() {
        return Err(Failure::usage(format!("{name} has no call in it"))
            .hint(r#"write a call on each line: {"tool": "NAME", "arguments": {}}"#));
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_call_is_told_before_anything_is_done() {
        let told = |text: &str| match read(text.as_bytes(), "calls.ndjson") {
            Ok(calls) => calls.iter().map(RawJson::as_str).collect::<Vec<_>>().join("|"),
            Err(failure) => failure.text(),
        };
        let cases = [
            "{\"tool\": \"a\"}\n\n {\"tool\": \"b\", \"arguments\": {\"n\": 12345678901234567890123}}",
            "{\"tool\": \"a\"}\n{\"tool\": }\n",
            "[]",
            "\n",
        ];
        insta::assert_snapshot!(cases.map(told).join("\n"), @r#"
        {"tool": "a"}|{"tool": "b", "arguments": {"n": 12345678901234567890123}}
        error[usage]: calls.ndjson:2: not JSON, at byte 9
          help: write a call on each line: {"tool": "NAME", "arguments": {}}
        error[usage]: calls.ndjson:1: it names no tool
          help: write a call on each line: {"tool": "NAME", "arguments": {}}
        error[usage]: calls.ndjson has no call in it
          help: write a call on each line: {"tool": "NAME", "arguments": {}}
        "#);
    }
}
