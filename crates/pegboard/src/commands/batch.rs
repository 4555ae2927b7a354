//! `pegboard batch`: many calls, a line for each, answered a line for each as they end.

use std::io::{self, BufRead, BufReader};
use std::process::ExitCode;

use clap::Args;
use pegboard::json::RawJson;
use serde_json::json;

use crate::cli::waiting::Waiting;
use crate::cli::words::one_line;
use crate::cli::{Exit, Failure, Format, Globals, print, remark};
use crate::desk::{Address, Desk};

/// How many calls are made at most.
const MAX_CALLS: usize = 1_000;
/// How long a line may be.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// Which calls.
#[derive(Args)]
#[command(
    after_help = "A line is {\"tool\": \"NAME\", \"arguments\": {…}}. An answer is {\"index\": 0, \"tool\": …, \
    \"result\": …} or {\"index\": 0, \"tool\": …, \"error\": …}, where 0 is the first call; with --json all of them \
    are one document, in order. A line that is no call is told before any call is made."
)]
pub(crate) struct Batch {
    /// The file with a call on each line; - is standard input
    file: String,
    /// How many calls to make at the same time, up to 32; 8 without it
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=32))]
    parallel: Option<u8>,
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
        let format = globals.format_or(Format::Ndjson);
        let is_document = matches!(format, Format::Json | Format::Yaml);
        let (mut n_answers, mut n_failed, mut all) = (0, 0, Vec::new());
        while let Some(line) = waiting.during(answers.next()).await? {
            if line.is_empty() {
                continue;
            }
            n_answers += 1;
            let answer = RawJson::trusted(line);
            if is_document {
                let index = answer.get("index").and_then(|index| index.read::<usize>().ok());
                all.push((index, answer.clone()));
            } else {
                print::exactly(answer.as_bytes());
            }
            let is_error = answer.get("isError").is_some_and(|is_error| is_error.as_str() == "true");
            if is_error || answer.get("error").is_some() {
                n_failed += 1;
            }
            #[expect(clippy::cast_precision_loss, reason = "there are few calls")]
            waiting.advance(n_answers as f64, Some(n_calls as f64));
            if print::is_unread() {
                // Those that have not been made yet are for nobody.
                return Ok(Exit::Failed.into());
            }
        }
        if is_document {
            all.sort_by_key(|(index, _)| *index);
            let all: Vec<RawJson> = all.into_iter().map(|(_, answer)| answer).collect();
            let all = RawJson::empty_object().with("answers", &RawJson::of(&all));
            print::raw(format, &all);
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
        let unreadable = |error| Failure::unreadable(&self.file, &error);
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
            .map_err(|error| Failure::unreadable(name, &error))?;
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
        if let Some(why) = why_none(&call) {
            return Err(wrong(&why));
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

/// Why something is no call, if it is none.
fn why_none(call: &RawJson) -> Option<String> {
    if call.get("tool").is_none_or(|tool| tool.text().is_none()) {
        return Some("it names no tool".to_owned());
    }
    if call.get("arguments").is_some_and(|arguments| !arguments.is_object()) {
        return Some("its arguments are no object".to_owned());
    }
    let unknown = call.names().into_iter().find(|name| !["tool", "arguments"].contains(&name.as_str()))?;
    Some(format!("'{}' means nothing here", one_line(&unknown, 40)))
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
            "{\"tool\": \"a\", \"arguments\": [1]}",
            "\n{\"tool\": \"a\", \"args\": {}}",
            "\n",
        ];
        insta::assert_snapshot!(cases.map(told).join("\n"), @r#"
        {"tool": "a"}|{"tool": "b", "arguments": {"n": 12345678901234567890123}}
        error[usage]: calls.ndjson:2: not JSON, at byte 9
          help: write a call on each line: {"tool": "NAME", "arguments": {}}
        error[usage]: calls.ndjson:1: it names no tool
          help: write a call on each line: {"tool": "NAME", "arguments": {}}
        error[usage]: calls.ndjson:1: its arguments are no object
          help: write a call on each line: {"tool": "NAME", "arguments": {}}
        error[usage]: calls.ndjson:2: 'args' means nothing here
          help: write a call on each line: {"tool": "NAME", "arguments": {}}
        error[usage]: calls.ndjson has no call in it
          help: write a call on each line: {"tool": "NAME", "arguments": {}}
        "#);
    }
}
