//! `pegboard chain`: lists, checks and runs chains of tools.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand};
use pegboard::ChainFileError;
use pegboard::chain::ChainSpec;
use pegboard::config::did_you_mean;
use pegboard::error::ErrorKind;
use pegboard::json::RawJson;
use serde_json::{Value, json};

use super::call::answer::ToolAnswer;
use super::follow_call;
use super::trace::drawing::mark;
use crate::api_client::{ApiClient, ApiPath};
use crate::cli::arguments::{self, RawArguments};
use crate::cli::format::{BOLD, DIM, PLAIN, RED, columns, format_millis, json_millis, one_line};
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, Globals, OutputFormat, notice, print};

/// Maximum size of a chain file.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// Arguments of `pegboard chain`.
#[derive(Args)]
pub(crate) struct ChainArgs {
    #[command(subcommand)]
    command: ChainCommand,
}

#[derive(Subcommand)]
enum ChainCommand {
    /// List the chains of the configuration
    Ls,
    /// Check a chain without running it
    Check {
        /// Name or file of the chain
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        chain: String,
    },
    /// Run a chain and print its result
    #[command(after_help = arguments::HELP)]
    Run {
        /// Name or file of the chain
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        chain: String,
        /// Input of the chain: k=v, k:=json, k=@file, '{…}', or - to read standard input
        #[arg(value_name = "INPUT")]
        input: Vec<String>,
        /// Continue after a failed step
        #[arg(long)]
        keep_going: bool,
        /// Show the steps without running them
        #[arg(long)]
        plan: bool,
    },
}

impl ChainArgs {
    pub(crate) async fn run(&self, globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
        match &self.command {
            ChainCommand::Ls => list(globals, api).await,
            ChainCommand::Check { chain } | ChainCommand::Run { chain, plan: true, .. } => {
                check(globals, api, chain).await
            }
            ChainCommand::Run { chain, input, keep_going, plan: false } => {
                let words = RawArguments::read(input)?;
                let chain_ref = ChainRef::read(chain)?;
                let input = match words.as_json() {
                    Some(input) => input,
                    None => RawJson::from(Value::Object(words.coerce(&chain_ref.schema(api).await?)?)),
                };
                let request = json!({"session": super::session(), "keepGoing": keep_going});
                let request = chain_ref.request(&RawJson::from(request)).with("input", &input);
                let spinner = Spinner::new(globals, chain);
                let address = ApiPath::new(&["chains", "run"]);
                match follow_call::follow_call(globals, api, &address, &request, &spinner).await {
                    Ok(answer) => print_result(globals, &ToolAnswer::new(answer)),
                    Err(failure) if failure.is_kind(ErrorKind::UnknownTool) => {
                        // The check reports all problems.
                        let request = chain_ref.request(&RawJson::empty_object());
                        let checked = api.post(&ApiPath::new(&["chains", "check"]), &request).await?;
                        Err(check_failure(&checked).unwrap_or(failure))
                    }
                    Err(failure) => Err(failure),
                }
            }
        }
    }
}

async fn list(globals: &Globals, api: &ApiClient) -> Result<ExitCode, CliError> {
    let response = api.get(&ApiPath::new(&["chains"])).await?;
    print::listing(
        globals,
        &response,
        "chains",
        rows,
        "No chains. Define one under chains in the configuration, or run a file",
    );
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

/// Prints the plan of a chain, and its problems as an error.
async fn check(globals: &Globals, api: &ApiClient, chain: &str) -> Result<ExitCode, CliError> {
    let request = ChainRef::read(chain)?.request(&RawJson::empty_object());
    let address = ApiPath::new(&["chains", "check"]);
    let response = Spinner::new(globals, chain).during(api.post(&address, &request)).await?;
    print::document(globals.data_format(), &response, || plan(&response["plan"]));
    for warning in texts(&response["warnings"]) {
        notice(globals, &format!("warning: {warning}"));
    }
    check_failure(&response).map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Returns an error with all problems of a checked chain, if there are any.
fn check_failure(response: &Value) -> Option<CliError> {
    let problems: Vec<String> = texts(&response["problems"]).collect();
    let failure = invalid_chain(&problems)?;
    let mut steps = response["plan"].as_array().into_iter().flatten();
    Some(match steps.find_map(|step| step["error"]["hint"].as_str()) {
        Some(hint) => failure.hint(hint),
        None => failure,
    })
}

/// Returns an error if the chain can never succeed.
fn invalid_chain(problems: &[String]) -> Option<CliError> {
    let (first, others) = problems.split_first()?;
    let failure = CliError::configuration(format!("invalid chain: {first}"));
    let failure = others.iter().fold(failure, CliError::detail);
    let hints = [
        ("can never be in the context", "pass input as NAME=VALUE; write a constant as {$const: TEXT}"),
        ("can never be a list", "pass a list as JSON: NAME:='[\"one\", \"two\"]'"),
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
            if step["exists"] == false { format!("  {RED}not found{PLAIN}") } else { String::new() };
        let output = word("output");
        let ends = [
            (!output.is_empty()).then(|| format!("→ {output}")),
            (!step["when"].is_null()).then(|| format!("if {}", text_of(&step["when"]))),
        ];
        vec![
            // Steps are numbered from 0, as in messages.
            step["step"].as_u64().unwrap_or_default().to_string(),
            format!("{BOLD}{}{PLAIN}{each}{missing}", word("tool")),
            inputs.collect::<Vec<_>>().join(", "),
            ends.into_iter().flatten().collect::<Vec<_>>().join("  "),
        ]
    });
    columns(&rows.collect::<Vec<_>>())
}

/// Renders the source of an input: a path, a constant or a template.
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

/// Prints the result of a chain: its final context.
fn print_result(globals: &Globals, answer: &ToolAnswer) -> Result<ExitCode, CliError> {
    let result = &answer.document()["result"];
    let format = globals.data_format();
    for line in steps(&result["step_results"]).lines() {
        notice(globals, line);
    }
    let errors: Vec<String> = texts(&result["errors"]).collect();
    let has_run = result["step_results"].as_array().is_some_and(|steps| !steps.is_empty());
    match format {
        OutputFormat::Text if has_run => print::json(&format!("{:#}", result["context"])),
        OutputFormat::Text => {}
        OutputFormat::Json | OutputFormat::Ndjson | OutputFormat::Yaml => {
            print::document(format, result, String::new);
        }
    }
    if has_run && print::is_terminal() && format == OutputFormat::Text {
        notice(globals, &answer.footer());
    }
    if result["success"] == true {
        return Ok(ExitCode::SUCCESS);
    }
    let trace = Some(answer.trace().to_owned());
    if let Some(failure) = invalid_chain(&errors).filter(|_| !has_run) {
        return Err(failure.with_trace(trace));
    }
    // The error of a step precedes the sentence that names the step.
    let of_step = errors.iter().position(|error| error.starts_with("Step ")).unwrap_or_default();
    let message = errors.get(of_step).map_or("the chain failed", String::as_str);
    let failure = CliError::from_kind(ErrorKind::ExecutionError, message).with_trace(trace);
    let others = errors.iter().enumerate().filter(|(index, _)| *index != of_step);
    Err(others.fold(failure, |failure, (_, error)| failure.detail(error)))
}

/// Renders the outcome of each step.
fn steps(steps: &Value) -> String {
    let rows = steps.as_array().into_iter().flatten().map(|step| {
        let name = step["tool"].as_str().unwrap_or_default();
        let status = match step["status"].as_str() {
            Some("success") => "ok",
            Some("skipped") => "",
            _ => "failed",
        };
        let took = if status.is_empty() {
            "skipped".to_owned()
        } else {
            format_millis(json_millis(&step["duration_ms"]))
        };
        vec![format!("{} {}", mark(status), one_line(name, 80)), format!("{DIM}{took}{PLAIN}")]
    });
    columns(&rows.collect::<Vec<_>>())
}

/// A chain by name or by definition.
enum ChainRef {
    /// Chain of the configuration.
    Named(String),
    /// Chain read from a file.
    Inline(Box<ChainSpec>),
}

impl ChainRef {
    /// Interprets the argument: an existing file, or a name with the extension of one, is a file.
    fn read(chain: &str) -> Result<Self, CliError> {
        let path = Path::new(chain);
        let is_file = path.is_file()
            || path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|each| end == *each));
        if !is_file {
            return Ok(Self::Named(chain.to_owned()));
        }
        let file = File::open(path).map_err(|error| CliError::unreadable(chain, &error))?;
        let mut text = String::new();
        let n_bytes = file.take(MAX_BYTES + 1).read_to_string(&mut text);
        if n_bytes.map_err(|error| CliError::unreadable(chain, &error))? as u64 > MAX_BYTES {
            return Err(CliError::configuration(format!(
                "{chain} is larger than {} MiB",
                MAX_BYTES / 1024 / 1024
            )));
        }
        let mut spec = pegboard::read_chain(&text).map_err(|error| chain_file_error(chain, &error))?;
        if spec.name.is_none() {
            spec.name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        }
        Ok(Self::Inline(Box::new(spec)))
    }

    /// Adds the chain to a request body.
    fn request(&self, request: &RawJson) -> RawJson {
        match self {
            Self::Named(name) => request.with("name", &RawJson::of(name)),
            Self::Inline(spec) => request.with("spec", &RawJson::of(spec)),
        }
    }

    /// Input schema of the chain, if it has one.
    async fn schema(&self, api: &ApiClient) -> Result<Value, CliError> {
        match self {
            Self::Inline(spec) => Ok(spec.input_schema.as_json().clone()),
            Self::Named(name) => {
                let response = api.get(&ApiPath::new(&["chains"])).await?;
                let chains = response["chains"].as_array().into_iter().flatten();
                let is_selected = |chain: &&Value| {
                    let own = chain["name"].as_str().unwrap_or_default();
                    let toolbox = chain["toolbox"].as_str().unwrap_or_default();
                    own == name || format!("{toolbox}/{own}") == *name
                };
                let found = chains.into_iter().find(is_selected).map(|chain| chain["inputSchema"].clone());
                // The API has the better error message for an unknown chain.
                Ok(found.unwrap_or_default())
            }
        }
    }
}

/// Error for a file that is not a valid chain.
fn chain_file_error(file: &str, error: &ChainFileError) -> CliError {
    let message = error.message();
    let place = error.place().map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default();
    let failure = CliError::configuration(format!("{file}{place}: {message}"));
    let unknown =
        message.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected one of "));
    let meant = unknown.and_then(|(word, known)| did_you_mean(word, known.split(", ")));
    failure.hint(
        meant.as_deref().unwrap_or("expected {steps: [{tool: NAME, with: {INPUT: PATH}, as: NAME}, …]}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_shows_the_source_of_every_input() {
        let steps = json!([
            {"step": 0, "tool": "search_code", "exists": true, "inputs": {"q": "q"}, "output": "hits"},
            {"step": 1, "tool": "fetch_page", "exists": false, "inputs": {"url": "item", "depth": {"$const": 1}}, "forEach": "hits.urls"},
            {"step": 2, "tool": "tell", "exists": true, "inputs": {"text": {"$template": "{q}!"}, "to": {"$path": "who", "default": "all"}}, "output": "told", "when": "hits"},
        ]);
        let text = plan(&steps);
        insta::assert_snapshot!(anstream::adapter::strip_str(&text), @r#"
        0  search_code                        q ← q                             → hits
        1  fetch_page × hits.urls  not found  url ← item, depth ← 1
        2  tell                               text ← "{q}!", to ← who or "all"  → told  if hits
        "#);
    }

    #[test]
    fn an_invalid_chain_file_is_reported_with_a_suggestion() {
        let message = |text: &str| {
            let error = pegboard::read_chain(text).unwrap_err();
            chain_file_error("a.yaml", &error).text()
        };
        insta::assert_snapshot!(["steps: [{tool: a, wth: {}}]", "steps: ["].map(message).join("\n"), @"
        error[config_invalid]: a.yaml:1:19: unknown field `wth`, expected one of tool, tool_name, input_mapping, with, as, output_key, timeout, when, for_each, concurrency, parallel, on_partial
          help: did you mean with?
        error[config_invalid]: a.yaml:1:8: unclosed bracket '['
          help: expected {steps: [{tool: NAME, with: {INPUT: PATH}, as: NAME}, …]}
        ");
    }

    #[test]
    fn chains_are_listed_with_their_steps() {
        let chains = json!([{"toolbox": "dev", "name": "report", "description": "Asks and writes", "steps": ["ask", "write"]}]);
        insta::assert_snapshot!(anstream::adapter::strip_str(&rows(&chains)), @"dev/report  ask → write  Asks and writes");
    }
}
