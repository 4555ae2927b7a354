//! `pegboard chain`: several tools, one after another.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use pegboard::ChainFileError;
use pegboard::chain::ChainSpec;
use pegboard::config::near;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::{Value, json};

use super::call::answer::Answer;
use super::talk;
use super::trace::drawing::mark;
use crate::cli::arguments::{self, Words};
use crate::cli::waiting::Waiting;
use crate::cli::words::{BOLD, DIM, PLAIN, RED, columns, millis, one_line, took};
use crate::cli::{Failure, Format, Globals, print, remark};
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
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        chain: String,
    },
    /// Run a chain, and print what came of it
    #[command(after_help = arguments::HELP)]
    Run {
        /// The chain: its name, or its file
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        chain: String,
        /// What it begins with: k=v, k:=json, k=@file, '{…}', or - to read it from standard input
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
                let words = Words::read(input)?;
                let wanted = Wanted::read(chain)?;
                let input = match words.as_they_are() {
                    Some(input) => input,
                    None => RawJson::from(Value::Object(words.fit(&wanted.schema(desk).await?)?)),
                };
                let order = json!({"session": super::session(), "keepGoing": keep_going});
                let order = wanted.order(&RawJson::from(order)).with("input", &input);
                let waiting = Waiting::new(globals, chain);
                let address = Address::of(&["chains", "run"]);
                let answer = talk::accompany(globals, desk, &address, &order, &waiting).await?;
                ended(globals, &Answer::new(answer))
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
    let order = Wanted::read(chain)?.order(&RawJson::empty_object());
    let address = Address::of(&["chains", "check"]);
    let told = Waiting::new(globals, chain).during(desk.post(&address, &order)).await?;
    let problems: Vec<String> = texts(&told["problems"]).collect();
    print::document(globals.data_format(), &told, || plan(&told["plan"]));
    match unworkable(&problems) {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => {
            let mut steps = told["plan"].as_array().into_iter().flatten();
            let hint = steps.find_map(|step| step["error"]["hint"].as_str());
            Err(match hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            })
        }
    }
}

/// Why a chain can never work, if it cannot.
fn unworkable(problems: &[String]) -> Option<Failure> {
    let (first, others) = problems.split_first()?;
    let failure = Failure::configuration(format!("the chain cannot work: {first}"));
    let failure = others.iter().fold(failure, Failure::detail);
    let hints = [
        (
            "can never be in the context",
            "what a chain begins with is given as NAME=VALUE; a text that is always the same is {$const: TEXT}",
        ),
        ("can never be a list", "a list is given as JSON: NAME:='[\"one\", \"two\"]'"),
    ];
    let fits = |(words, _): &&(&str, &str)| problems.iter().any(|problem| problem.contains(words));
    Some(match hints.iter().find(fits) {
        Some((_, hint)) => failure.hint(*hint),
        None => failure,
    })
}

fn plan(steps: &Value) -> String {
    let rows = steps.as_array().into_iter().flatten().map(|step| {
        let word = |name: &str| one_line(step[name].as_str().unwrap_or_default(), 80);
        let inputs = step["inputs"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, source)| format!("{name} ← {}", one_line(&origin(source), 80)));
        let each = if step["forEach"].is_null() {
            String::new()
        } else {
            format!(" × {}", text_of(&step["forEach"]))
        };
        let missing =
            if step["isThere"] == false { format!("  {RED}not there{PLAIN}") } else { String::new() };
        let output = word("output");
        let ends = [
            (!output.is_empty()).then(|| format!("→ {output}")),
            (!step["when"].is_null()).then(|| format!("if {}", text_of(&step["when"]))),
        ];
        vec![
            // As messages count them.
            step["step"].as_u64().unwrap_or_default().to_string(),
            format!("{BOLD}{}{PLAIN}{each}{missing}", word("tool")),
            inputs.collect::<Vec<_>>().join(", "),
            ends.into_iter().flatten().collect::<Vec<_>>().join("  "),
        ]
    });
    columns(&rows.collect::<Vec<_>>())
}

/// Where an input comes from: a path, a constant, or a text with places in it.
fn origin(source: &Value) -> String {
    let text = |name: &str| source[name].as_str();
    match (source.as_str(), text("$path"), text("$template"), source.get("$const")) {
        (Some(path), ..) => path.to_owned(),
        (None, Some(path), ..) => match source.get("default") {
            Some(default) => format!("{path} or {default}"),
            None => path.to_owned(),
        },
        (None, None, Some(template), _) => format!("\"{template}\""),
        (None, None, None, Some(constant)) => constant.to_string(),
        (None, None, None, None) => source.to_string(),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| one_line(&value.to_string(), 400), |text| one_line(text, 400))
}

fn texts(list: &Value) -> impl Iterator<Item = String> {
    list.as_array().into_iter().flatten().map(text_of)
}

/// Prints what came of a chain: the context that it ended with.
fn ended(globals: &Globals, answer: &Answer) -> Result<ExitCode, Failure> {
    let result = &answer.document()["result"];
    let format = globals.data_format();
    for line in steps(&result["steps"]).lines() {
        remark(globals, line);
    }
    let errors: Vec<String> = texts(&result["errors"]).collect();
    let has_run = result["steps"].as_array().is_some_and(|steps| !steps.is_empty());
    match format {
        Format::Text if has_run => print::text(&format!("{:#}", result["context"])),
        Format::Text => {}
        Format::Json | Format::Ndjson | Format::Yaml => print::document(format, result, String::new),
    }
    if has_run && print::is_for_people() && format == Format::Text {
        remark(globals, &answer.footer());
    }
    if result["success"] == true {
        return Ok(ExitCode::SUCCESS);
    }
    let trace = Some(answer.trace().to_owned());
    if let Some(failure) = unworkable(&errors).filter(|_| !has_run) {
        return Err(failure.of_trace(trace));
    }
    // What a step says of itself stands before the sentence that names the step.
    let of_step = errors.iter().position(|error| error.starts_with("Step ")).unwrap_or_default();
    let message = errors.get(of_step).map_or("the chain reports a failure", String::as_str);
    let failure = Failure::of_kind(ErrorKind::ExecutionError, message).of_trace(trace);
    let others = errors.iter().enumerate().filter(|(place, _)| *place != of_step);
    Err(others.fold(failure, |failure, (_, error)| failure.detail(error)))
}

/// How each step went.
fn steps(steps: &Value) -> String {
    let rows = steps.as_array().into_iter().flatten().map(|step| {
        let name = step["tool"].as_str().unwrap_or_default();
        let status = match step["status"].as_str() {
            Some("success") => "ok",
            Some("skipped") => "",
            _ => "failed",
        };
        let took = if status.is_empty() { "skipped".to_owned() } else { took(millis(&step["durationMs"])) };
        vec![format!("{} {}", mark(status), one_line(name, 80)), format!("{DIM}{took}{PLAIN}")]
    });
    columns(&rows.collect::<Vec<_>>())
}

/// The chain that is meant.
enum Wanted {
    /// One of the configuration.
    Named(String),
    /// One of a file.
    Written(Box<ChainSpec>),
}

impl Wanted {
    /// What is the name of a file, or looks like one, is a file.
    fn read(chain: &str) -> Result<Self, Failure> {
        let path = Path::new(chain);
        let is_file = path.is_file()
            || path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|each| end == *each));
        if !is_file {
            return Ok(Self::Named(chain.to_owned()));
        }
        let file = File::open(path).map_err(|error| Failure::unreadable(chain, &error))?;
        let mut text = String::new();
        let n_bytes = file.take(MAX_BYTES + 1).read_to_string(&mut text);
        if n_bytes.map_err(|error| Failure::unreadable(chain, &error))? as u64 > MAX_BYTES {
            return Err(Failure::configuration(format!("{chain} is too long for a chain")));
        }
        let mut spec = pegboard::read_chain(&text).map_err(|error| no_chain(chain, &error))?;
        if spec.name.is_none() {
            spec.name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        }
        Ok(Self::Written(Box::new(spec)))
    }

    /// An order that says which chain it is about.
    fn order(&self, order: &RawJson) -> RawJson {
        match self {
            Self::Named(name) => order.with("name", &RawJson::of(name)),
            Self::Written(spec) => order.with("spec", &RawJson::of(spec)),
        }
    }

    /// What its input looks like, if anybody says so.
    async fn schema(&self, desk: &Desk) -> Result<Value, Failure> {
        match self {
            Self::Written(spec) => Ok(spec.input_schema.as_json().clone()),
            Self::Named(name) => {
                let told = desk.get(&Address::of(&["chains"])).await?;
                let chains = told["chains"].as_array().into_iter().flatten();
                let is_meant = |chain: &&Value| {
                    let own = chain["name"].as_str().unwrap_or_default();
                    let toolbox = chain["toolbox"].as_str().unwrap_or_default();
                    own == name || format!("{toolbox}/{own}") == *name
                };
                let found = chains.into_iter().find(is_meant).map(|chain| chain["inputSchema"].clone());
                // The gateway tells best what there is not.
                Ok(found.unwrap_or_default())
            }
        }
    }
}

/// A file that is no chain.
fn no_chain(file: &str, error: &ChainFileError) -> Failure {
    let message = error.message();
    let place = error.place().map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default();
    let failure = Failure::configuration(format!("{file}{place}: {message}"));
    let unknown =
        message.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected one of "));
    match unknown.and_then(|(word, known)| near(word, known.split(", "))) {
        Some(meant) => failure.hint(format!("did you mean {meant}?")),
        None => failure.hint("a chain is {steps: [{tool: NAME, with: {INPUT: PLACE}, as: NAME}, …]}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_where_everything_comes_from() {
        let steps = json!([
            {"step": 0, "tool": "search_code", "isThere": true, "inputs": {"q": "q"}, "output": "hits"},
            {"step": 1, "tool": "fetch_page", "isThere": false, "inputs": {"url": "item", "depth": {"$const": 1}}, "forEach": "hits.urls"},
            {"step": 2, "tool": "tell", "isThere": true, "inputs": {"text": {"$template": "{q}!"}, "to": {"$path": "who", "default": "all"}}, "output": "told", "when": "hits"},
        ]);
        let text = plan(&steps);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @r#"
        0  search_code                        q ← q                             → hits
        1  fetch_page × hits.urls  not there  url ← item, depth ← 1
        2  tell                               text ← "{q}!", to ← who or "all"  → told  if hits
        "#);
    }

    #[test]
    fn a_file_that_is_no_chain_is_told_with_what_was_meant() {
        let told = |text: &str| {
            let error = pegboard::read_chain(text).unwrap_err();
            no_chain("a.yaml", &error).text()
        };
        insta::assert_snapshot!(["steps: [{tool: a, wth: {}}]", "steps: ["].map(told).join("\n"), @"
        error[config_invalid]: a.yaml:1:19: unknown field `wth`, expected one of tool, tool_name, input_mapping, with, as, output_key, timeout, when, for_each, concurrency, parallel, on_partial
          help: did you mean with?
        error[config_invalid]: a.yaml:1:8: unclosed bracket '['
          help: a chain is {steps: [{tool: NAME, with: {INPUT: PLACE}, as: NAME}, …]}
        ");
    }

    #[test]
    fn chains_are_listed_with_their_steps() {
        let chains = json!([{"toolbox": "dev", "name": "report", "description": "Asks and writes", "steps": ["ask", "write"]}]);
        insta::assert_snapshot!(anstream::adapter::strip_str(&rows(&chains)), @"dev/report  ask → write  Asks and writes");
    }
}
