//! `pegboard chain`: several tools, one after another.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::{Value, json};

use super::talk;
use super::trace::drawing::mark;
use crate::cli::arguments::{self, Words};
use crate::cli::waiting::Waiting;
use crate::cli::words::{BOLD, DIM, PLAIN, RED, columns, millis, one_line, size, took};
use crate::cli::{Exit, Failure, Format, Globals, print, remark};
use crate::desk::{Address, Desk};

/// How long the file of a chain may be.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// What is done with chains.
#[derive(Args)]
pub(crate) struct Chain {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the chains of the configuration
    Ls,
    /// Tell what is wrong with a chain, without running it
    Check {
        /// The chain: its name, or its file
        chain: String,
    },
    /// Run a chain, and print what came of it
    #[command(after_help = arguments::HELP)]
    Run {
        /// The chain: its name, or its file
        chain: String,
        /// What it begins with: k=v is a text, k:=json anything else
        #[arg(value_name = "INPUT")]
        input: Vec<String>,
        /// Go on after a step that fails
        #[arg(long)]
        keep_going: bool,
        /// Show what it would do, and do nothing
        #[arg(long)]
        plan: bool,
    },
}

impl Chain {
    pub(crate) async fn ask(&self, globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
        match &self.what {
            What::Ls => list(globals, desk).await,
            What::Check { chain } | What::Run { chain, plan: true, .. } => check(globals, desk, chain).await,
            What::Run { chain, input, keep_going, plan: false } => {
                let order = order(chain)?.with("input", &inputs(input)?);
                let order = if *keep_going { order.with("keepGoing", &RawJson::of(&true)) } else { order };
                let waiting = Waiting::new(globals, chain);
                let address = Address::of(&["chains", "run"]);
                let answer = talk::accompany(globals, desk, &address, &order, &waiting).await?.to_value();
                ended(globals, &answer)
            }
        }
    }
}

async fn list(globals: &Globals, desk: &Desk) -> Result<ExitCode, Failure> {
    let told = desk.get(&Address::of(&["chains"])).await?;
    let format = globals.data_format();
    match format {
        Format::Ndjson => print::list(format, &told["chains"]),
        Format::Text | Format::Json | Format::Yaml => {
            print::document(format, &told, || rows(&told["chains"]));
        }
    }
    if told["chains"].as_array().is_none_or(Vec::is_empty) {
        remark(globals, "There are no chains. Describe one under chains in the configuration, or run a file");
    }
    Ok(ExitCode::SUCCESS)
}

fn rows(chains: &Value) -> String {
    let word = |value: &Value| one_line(value.as_str().unwrap_or_default(), 100);
    let rows = chains.as_array().into_iter().flatten().map(|chain| {
        let steps: Vec<String> = chain["steps"].as_array().into_iter().flatten().map(word).collect();
        vec![
            format!("{}/{}", word(&chain["toolbox"]), word(&chain["name"])),
            steps.join(" → "),
            format!("{DIM}{}{PLAIN}", word(&chain["description"])),
        ]
    });
    columns(&rows.collect::<Vec<_>>())
}

/// Tells what a chain would do, and what is wrong with it.
async fn check(globals: &Globals, desk: &Desk, chain: &str) -> Result<ExitCode, Failure> {
    let order = order(chain)?;
    let address = Address::of(&["chains", "check"]);
    let told = Waiting::new(globals, chain).during(desk.post(&address, &order)).await?;
    let problems: Vec<String> = texts(&told["problems"]).collect();
    print::document(globals.data_format(), &told, || plan(&told["plan"]));
    let [first, others @ ..] = problems.as_slice() else { return Ok(ExitCode::SUCCESS) };
    let failure = Failure::configuration(format!("the chain cannot work: {first}"));
    Err(others.iter().fold(failure, Failure::detail))
}

fn plan(steps: &Value) -> String {
    let rows = steps.as_array().into_iter().flatten().map(|step| {
        let word = |name: &str| one_line(step[name].as_str().unwrap_or_default(), 80);
        let inputs = step["inputs"].as_object().into_iter().flatten().map(|(name, source)| {
            let source = source.as_str().map_or_else(|| source.to_string(), str::to_owned);
            format!("{name} ← {}", one_line(&source, 80))
        });
        let each = if step["forEach"].is_null() {
            String::new()
        } else {
            format!(" × {}", text_of(&step["forEach"]))
        };
        let missing =
            if step["isThere"] == false { format!("  {RED}not there{PLAIN}") } else { String::new() };
        let output = word("output");
        vec![
            (step["step"].as_u64().unwrap_or_default() + 1).to_string(),
            format!("{BOLD}{}{PLAIN}{each}{missing}", word("tool")),
            inputs.collect::<Vec<_>>().join(", "),
            if output.is_empty() { String::new() } else { format!("→ {output}") },
        ]
    });
    columns(&rows.collect::<Vec<_>>())
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| one_line(&value.to_string(), 80), |text| one_line(text, 80))
}

fn texts(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().map(text_of)
}

/// Prints what came of a chain: the context that it ended with.
fn ended(globals: &Globals, answer: &Value) -> Result<ExitCode, Failure> {
    let result = &answer["result"];
    let format = globals.data_format();
    for line in steps(&result["steps"]).lines() {
        remark(globals, line);
    }
    match format {
        Format::Text => print::text(&format!("{:#}", result["context"])),
        Format::Json | Format::Ndjson | Format::Yaml => print::document(format, result, String::new),
    }
    if print::is_for_people() && format == Format::Text {
        let bytes = answer["bytes"].as_u64().unwrap_or_default();
        remark(globals, &format!("{DIM}{}  {}{PLAIN}", took(millis(&result["durationMs"])), size(bytes)));
    }
    if result["success"] == true {
        return Ok(ExitCode::SUCCESS);
    }
    let errors: Vec<String> = texts(&result["errors"]).collect();
    let message = errors.first().cloned().unwrap_or_else(|| "the chain reports a failure".to_owned());
    let failure = Failure::new(Exit::Failed, ErrorKind::ExecutionError.as_str(), message);
    Err(errors.iter().skip(1).fold(failure, Failure::detail))
}

/// How each step went.
fn steps(steps: &Value) -> String {
    let mut text = String::new();
    for step in steps.as_array().into_iter().flatten() {
        let name =
            ["tool_name", "tool", "name"].iter().find_map(|key| step[*key].as_str()).unwrap_or_default();
        let status = match step["status"].as_str() {
            Some("success") => "ok",
            Some("skipped") => "",
            _ => "failed",
        };
        let _ = writeln!(
            text,
            "{} {}  {DIM}{}{PLAIN}",
            mark(status),
            one_line(name, 80),
            took(millis(&step["durationMs"]))
        );
    }
    text
}

/// The order for a chain: by its name, or with all that its file says.
fn order(chain: &str) -> Result<RawJson, Failure> {
    let path = Path::new(chain);
    let is_file = path.is_file()
        || path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|each| end == *each));
    if !is_file {
        return Ok(RawJson::from(json!({"name": chain})));
    }
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::not_found("not_found", format!("{chain} cannot be read: {error}"))
    };
    let length = std::fs::metadata(path).map_err(|error| unreadable(&error))?.len();
    if length > MAX_BYTES {
        return Err(unreadable(&"it is too long for a chain"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(&error))?;
    let spec =
        pegboard::read_chain(&text).map_err(|error| Failure::configuration(format!("{chain}: {error}")))?;
    Ok(RawJson::empty_object().with("spec", &RawJson::of(&spec)))
}

fn inputs(words: &[String]) -> Result<RawJson, Failure> {
    let words = Words::read(words)?;
    match words.as_they_are() {
        Some(input) => Ok(input),
        None => words.plain().map(|input| RawJson::from(Value::Object(input))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_where_everything_comes_from() {
        let steps = json!([
            {"step": 0, "tool": "search_code", "isThere": true, "inputs": {"q": "q"}, "output": "hits"},
            {"step": 1, "tool": "fetch_page", "isThere": false, "inputs": {"url": "hits.urls", "depth": 1}, "forEach": "hits.urls"},
        ]);
        let text = plan(&steps);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @"
        1  search_code                        q ← q                       → hits
        2  fetch_page × hits.urls  not there  url ← hits.urls, depth ← 1
        ");
    }

    #[test]
    fn chains_are_listed_with_their_steps() {
        let chains = json!([{"toolbox": "dev", "name": "report", "description": "Asks and writes", "steps": ["ask", "write"]}]);
        insta::assert_snapshot!(anstream::adapter::strip_str(&rows(&chains)), @"dev/report  ask → write  Asks and writes");
    }
}
