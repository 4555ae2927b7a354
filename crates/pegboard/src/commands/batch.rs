//! `pegboard batch`: many calls from a file, one per line.

use std::io::{self, BufRead, BufReader};
use std::process::ExitCode;

use clap::Args;
use pegboard::json::RawJson;
use pegboard::runtime::BatchItem;
use serde_json::json;

use crate::api_client::{ApiClient, ApiPath};
use crate::cli::format::one_line;
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, ExitReason, Globals, OutputFormat, notice, print};

/// Maximum number of calls.
const MAX_CALLS: usize = 1_000;
/// Maximum length of a line.
const MAX_LINE: usize = 16 * 1024 * 1024;

/// Arguments of `pegboard batch`.
#[derive(Args)]
#[command(
    after_help = "Each line is {\"tool\": \"NAME\", \"arguments\": {…}}, with an \"id\" to be returned if you like; all that the \
    batch tool accepts is accepted. An answer is {\"index\": 0, \"tool\": …, \
    \"result\": …} or {\"index\": 0, \"tool\": …, \"error\": …}, where index counts calls from 0; with --json all answers \
    are one document, in order. All lines are validated before the first call is made."
)]
pub(crate) struct BatchArgs {
    /// File with one call per line; - reads standard input
    file: String,
    /// Number of concurrent calls, up to 32 [default: 8]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=32))]
    parallel: Option<u8>,
}

impl BatchArgs {
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        let calls = self.read()?;
        let n_calls = calls.len();
        let mut request =
            RawJson::from(json!({"session": super::session()})).with("calls", &RawJson::of(&calls));
        if let Some(parallel) = self.parallel {
            request = request.with("parallel", &RawJson::of(&parallel));
        }
        let spinner = Spinner::new(globals, format!("{n_calls} calls"));
        let mut answers = spinner.during(api.events(&ApiPath::new(&["batch"]), &request)).await?;
        let format = globals.format_or(OutputFormat::Ndjson);
        let wants_document = matches!(format, OutputFormat::Json | OutputFormat::Yaml);
        let (mut n_answers, mut n_failed, mut all) = (0, 0, Vec::new());
        while let Some(event) = spinner.during(answers.next()).await? {
            n_answers += 1;
            let answer = event.data;
            if wants_document {
                let index = answer.get("index").and_then(|index| index.read::<usize>().ok());
                all.push((index, answer.clone()));
            } else {
                print::json_line(&answer);
            }
            let is_error = answer.get("isError").is_some_and(|is_error| is_error.as_str() == "true");
            if is_error || answer.get("error").is_some() {
                n_failed += 1;
            }
            #[expect(clippy::cast_precision_loss, reason = "there are few calls")]
            spinner.set_progress(n_answers as f64, Some(n_calls as f64));
            if print::is_stdout_closed() {
                // The remaining calls have no reader.
                return Ok(ExitReason::Failed.into());
            }
        }
        if wants_document {
            all.sort_by_key(|(index, _)| *index);
            let all: Vec<RawJson> = all.into_iter().map(|(_, answer)| answer).collect();
            let all = RawJson::empty_object().with("answers", &RawJson::of(&all));
            print::raw_json(format, &all);
        }
        if n_answers < n_calls {
            let message = format!("the gateway exited after {n_answers} of {n_calls} answers");
            return Err(CliError::new(ExitReason::Unavailable, "not_running", message));
        }
        if n_failed == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        notice(globals, &format!("{n_failed} of {n_calls} calls failed"));
        Ok(ExitReason::Failed.into())
    }

    /// Reads all calls; an invalid line is an error before any call is made.
    fn read(&self) -> Result<Vec<RawJson>, CliError> {
        if self.file == "-" {
            return read(BufReader::new(io::stdin()), "standard input");
        }
        let unreadable = |error| CliError::unreadable(&self.file, &error);
        read(BufReader::new(std::fs::File::open(&self.file).map_err(unreadable)?), &self.file)
    }
}

fn read(mut lines: impl BufRead, name: &str) -> Result<Vec<RawJson>, CliError> {
    let mut calls = Vec::new();
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        let wrong = |why: &str| {
            CliError::usage(format!("{name}:{number}: {why}"))
                .hint(r#"write one call per line: {"tool": "NAME", "arguments": {}}"#)
        };
        let n_bytes = io::Read::take(&mut lines, MAX_LINE as u64 + 1)
            .read_line(&mut line)
            .map_err(|error| CliError::unreadable(name, &error))?;
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
        if let Some(why) = invalid_call_reason(&call) {
            return Err(wrong(&why));
        }
        calls.push(call);
        if calls.len() > MAX_CALLS {
            return Err(wrong(&format!("more than {MAX_CALLS} calls; split the file")));
        }
    }
    if calls.is_empty() {
        return Err(CliError::usage(format!("{name} contains no calls"))
            .hint(r#"write one call per line: {"tool": "NAME", "arguments": {}}"#));
    }
    Ok(calls)
}

/// Returns the reason why a line is not a valid call.
fn invalid_call_reason(call: &RawJson) -> Option<String> {
    if !call.is_object() || ["tool", "name"].iter().all(|key| call.get(key).is_none()) {
        return Some("missing tool".to_owned());
    }
    let names = call.names().into_iter();
    if let Some(unknown) = names.into_iter().find(|name| !BatchItem::KEYS.contains(&name.as_str())) {
        return Some(format!("unknown key '{}'", one_line(&unknown, 40)));
    }
    match BatchItem::read(0, call) {
        Ok(item) if item.arguments.is_object() => None,
        Ok(_) => Some("arguments must be an object".to_owned()),
        Err(problem) => Some(problem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_line_is_reported_before_any_call() {
        let outcome = |text: &str| match read(text.as_bytes(), "calls.ndjson") {
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
        insta::assert_snapshot!(cases.map(outcome).join("\n"), @r#"
        {"tool": "a"}|{"tool": "b", "arguments": {"n": 12345678901234567890123}}
        error[usage]: calls.ndjson:2: not JSON, at byte 9
          help: write one call per line: {"tool": "NAME", "arguments": {}}
        error[usage]: calls.ndjson:1: missing tool
          help: write one call per line: {"tool": "NAME", "arguments": {}}
        error[usage]: calls.ndjson:1: arguments must be an object
          help: write one call per line: {"tool": "NAME", "arguments": {}}
        error[usage]: calls.ndjson:2: unknown key 'args'
          help: write one call per line: {"tool": "NAME", "arguments": {}}
        error[usage]: calls.ndjson contains no calls
          help: write one call per line: {"tool": "NAME", "arguments": {}}
        "#);
    }
}
