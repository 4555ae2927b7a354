//! `pegboard run`: an agent is asked once, and its answer printed.

use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anstream::eprintln;
use clap::Args;
use pegboard::arguments::Arguments;
use pegboard::call::{Call, Ended, Invoker, Origin, ToolRef};
use pegboard::config::{self, AgentEntry, Configuration, ConfigurationError};
use pegboard::error::ErrorKind;
use pegboard::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard::model::{ModelName, ModelProviderName};
use pegboard::providers::mcp::PoolOptions;
use pegboard::runtime::{Caller, CallerOptions};
use pegboard::settings::agent::{AgentSettings, InputFormat, ReportFormat};
use pegboard::telemetry::{Options, Telemetry};
use pegboard::wiring::{self, Board, Surroundings, agents};
use serde_json::{Map, Value, json};

use super::serve::{supervisor, told};
use crate::cli::{Exit, Failure, Format, Globals, print};
use crate::observed_with;
use crate::place::{self, Wanted};
use progress::{Loudness, Progress};
use report::Report;

mod progress;
mod report;

/// How long servers may take to end when everything does.
const GRACE: Duration = Duration::from_secs(2);
/// How long a prompt may be.
const MAX_PROMPT_BYTES: u64 = 4 * 1024 * 1024;
/// What programs are told when there is no such agent.
const UNKNOWN: &str = "unknown_agent";
/// How many characters of a prompt are the title of its session.
const TITLE_CHARACTERS: usize = 60;

/// Which agent is asked, and what.
#[derive(Args)]
pub(crate) struct Run {
    /// The agent: its file, or its name in the configuration
    agent: String,
    /// What it is asked; without it, or with -, what standard input says
    prompt: Option<String>,
    /// The model that it thinks with, instead of its own; more of them are tried in order
    #[arg(long, value_name = "PROVIDER/MODEL")]
    model: Vec<ModelName>,
    /// How many times its model is asked, at most
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    max_turns: Option<u32>,
}

/// An agent in its place.
struct Chosen {
    toolbox: ToolboxName,
    agent: AgentSettings,
}

impl Run {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let prompt = self.prompt()?;
        let wanted = Wanted::of(globals)?;
        let configuration = wanted.read_some()?;
        // What goes wrong on the way is told as it happens.
        let options = Options::configured(&configuration.telemetry, &configuration.settings, "error");
        observed_with(globals, options, async |telemetry| {
            self.answer(globals, telemetry, (configuration, &wanted.project()), &prompt).await
        })
    }

    async fn answer(
        &self,
        globals: &Globals,
        telemetry: &Telemetry,
        (mut read, project): (Configuration, &Path),
        prompt: &str,
    ) -> Result<ExitCode, Failure> {
        let chosen = self.choose(&mut read, project)?;
        check_models(&chosen, &read)?;
        let arguments = Self::arguments(globals, &chosen.agent, prompt)?;
        let servers = PoolOptions { supervisor: supervisor() };
        let surroundings = Surroundings {
            state: place::state(globals.state.as_deref()),
            servers,
            ..Surroundings::default()
        };
        let board = wiring::start(read, surroundings, telemetry)
            .await
            .map_err(|error| Failure::configuration(error.to_string()))?;
        let code = ask(globals, &board, &chosen, arguments).await;
        // Who says so does not want to wait.
        tokio::select! {
            _ = board.runtime.shut_down(GRACE) => {}
            () = told() => {}
        }
        code
    }

    /// What the agent is asked.
    fn prompt(&self) -> Result<String, Failure> {
        let prompt = match self.prompt.as_deref() {
            Some(prompt) if prompt != "-" => prompt.to_owned(),
            None if io::stdin().is_terminal() => String::new(),
            Some(_) | None => {
                let mut prompt = String::new();
                let unreadable = |error| Failure::usage(format!("standard input cannot be read: {error}"));
                io::stdin().take(MAX_PROMPT_BYTES).read_to_string(&mut prompt).map_err(unreadable)?;
                prompt
            }
        };
        if prompt.trim().is_empty() {
            let hint = "write the question behind the agent, or pipe it in";
            return Err(Failure::usage("the agent is asked nothing").hint(hint));
        }
        Ok(prompt)
    }

    /// The agent that is meant, in the toolbox where it will be.
    fn choose(&self, configuration: &mut Configuration, project: &Path) -> Result<Chosen, Failure> {
        let file = Path::new(&self.agent);
        let is_file = file.is_file()
            || file.extension().is_some_and(|extension| extension == "ai" || extension == "md")
            || self.agent.contains(std::path::MAIN_SEPARATOR) && !self.is_in(configuration);
        let (toolbox, name) =
            if is_file { add(configuration, file, project)? } else { find(configuration, &self.agent)? };
        let entry =
            configuration.toolboxes.get_mut(&toolbox).and_then(|toolbox| toolbox.agents.get_mut(&name));
        match entry {
            Some(AgentEntry::Usable(agent)) => {
                if !self.model.is_empty() {
                    agent.models.clone_from(&self.model);
                }
                agent.max_turns = self.max_turns.unwrap_or(agent.max_turns);
                Ok(Chosen { toolbox, agent: (**agent).clone() })
            }
            Some(AgentEntry::Unusable { .. }) => Err(unusable(configuration, &toolbox, name)),
            None => Err(unknown(configuration, &self.agent)),
        }
    }

    /// Whether the configuration has an agent that is called so.
    fn is_in(&self, configuration: &Configuration) -> bool {
        find(configuration, &self.agent).is_ok()
    }

    /// The arguments of the call.
    fn arguments(globals: &Globals, agent: &AgentSettings, prompt: &str) -> Result<Value, Failure> {
        let title: String =
            prompt.trim().lines().next().unwrap_or_default().chars().take(TITLE_CHARACTERS).collect();
        match agent.input.format {
            InputFormat::Text => {
                let usual = match (is_document(globals), io::stdout().is_terminal()) {
                    (true, _) => ReportFormat::Markdown,
                    (false, true) => ReportFormat::Tty,
                    (false, false) => ReportFormat::Pipe,
                };
                let format = agent.output.format.unwrap_or(usual);
                Ok(json!({"prompt": prompt, "reason": title, "format": format.as_str()}))
            }
            InputFormat::Json => {
                let mut asked: Map<String, Value> = serde_json::from_str(prompt).map_err(|error| {
                    let schema = agent.input.schema.as_ref().map(Value::to_string).unwrap_or_default();
                    let message = format!("the agent '{}' is asked with a JSON object: {error}", agent.name);
                    Failure::of_kind(ErrorKind::InvalidParameters, message)
                        .hint(format!("it must be as {schema} says"))
                })?;
                asked.entry("reason").or_insert_with(|| "asked on the command line".into());
                Ok(Value::Object(asked))
            }
        }
    }
}

/// Whether the answer is wanted as a document, with how it came about.
fn is_document(globals: &Globals) -> bool {
    globals.format_or(Format::Text) != Format::Text
}

async fn ask(
    globals: &Globals,
    board: &Board,
    chosen: &Chosen,
    arguments: Value,
) -> Result<ExitCode, Failure> {
    let caller = board.runtime.caller(CallerOptions::default());
    let loudness = if globals.quiet { Loudness::Quiet } else { Loudness::Usual };
    let mut progress = Progress::of(&board.runtime, loudness);
    let server = ServerName::new(agents::SERVER).expect("it is a short word");
    let tool = ToolId { toolbox: chosen.toolbox.clone(), server, name: chosen.agent.name.clone() };
    let mut call = Call::new(ToolRef::Id(tool), Arguments::from(arguments));
    call.context.origin = Origin::Program;
    let running = caller.start(call);
    let ended = tokio::select! {
        ended = running => ended,
        never = progress.follow() => match never {},
        () = told() => return Err(Failure::interrupted()),
        failure = globals.out_of_time(Duration::ZERO) => return Err(failure),
    };
    progress.catch_up();
    tell(globals, &chosen.agent, &caller, &ended)
}

/// Prints what came of it.
fn tell(
    globals: &Globals,
    agent: &AgentSettings,
    caller: &Caller,
    ended: &Ended,
) -> Result<ExitCode, Failure> {
    let session = caller.tree().snapshot();
    let report = Report::of(agent, &session, ended);
    if !globals.quiet {
        eprintln!("{}", report.summary());
    }
    if is_document(globals) {
        print::document(globals.format_or(Format::Json), &report.document(), String::new);
    } else if let Some(answer) = report.answer() {
        print::text(&answer);
    }
    match report.error() {
        None => Ok(ExitCode::SUCCESS),
        Some((kind, _)) if is_document(globals) => Ok(Exit::from(kind).into()),
        Some((kind, text)) => Err(Failure::of_kind(kind, text)),
    }
}

/// What is wrong with an agent, and with those that it names.
fn unusable(configuration: &Configuration, toolbox: &ToolboxName, name: ToolName) -> Failure {
    let agents = configuration.toolboxes.get(toolbox).map(|toolbox| &toolbox.agents);
    let (mut waiting, mut seen, mut told) = (vec![name], Vec::new(), Vec::new());
    while let Some(name) = waiting.pop() {
        let found = agents.and_then(|agents| agents.get(&name));
        let Some(AgentEntry::Unusable { needs, problems, .. }) = found.filter(|_| !seen.contains(&name))
        else {
            continue;
        };
        told.extend(problems.iter().cloned());
        waiting.extend(needs.iter().rev().cloned());
        seen.push(name);
    }
    Failure::of_problems(told)
}

/// Whether an agent, and everybody whom it may call or hand over to, has a model that can be used.
fn check_models(chosen: &Chosen, configuration: &Configuration) -> Result<(), Failure> {
    let beside = configuration.toolboxes.get(&chosen.toolbox).map(|toolbox| &toolbox.agents);
    let (mut waiting, mut seen) = (vec![chosen.agent.name.clone()], Vec::new());
    while let Some(name) = waiting.pop() {
        let Some(AgentEntry::Usable(agent)) = beside.and_then(|agents| agents.get(&name)) else { continue };
        check_models_of(agent, configuration)?;
        seen.push(name);
        let named = agent.agents.iter().chain(&agent.destinations).chain(&agent.handoff);
        waiting.extend(named.filter(|name| !seen.contains(name)).cloned());
    }
    Ok(())
}

fn check_models_of(agent: &AgentSettings, configuration: &Configuration) -> Result<(), Failure> {
    let obstacle = |model: &ModelName| agents::obstacle(model, &configuration.providers);
    let told = |model: &ModelName| Some(format!("the model '{model}': {}", obstacle(model)?));
    let obstacles: Vec<String> = agent.models.iter().filter_map(told).collect();
    if obstacles.len() < agent.models.len() {
        return Ok(());
    }
    let names: Vec<&str> = configuration.providers.keys().map(ModelProviderName::as_str).collect();
    let help = if names.is_empty() {
        "describe a provider of models in the configuration, under providers".to_owned()
    } else {
        format!(
            "there are the providers {}; name another model in its file, or with --model",
            names.join(", ")
        )
    };
    let message = format!("the agent '{}' has no model that can be used", agent.name);
    Err(obstacles.into_iter().fold(Failure::configuration(message), Failure::detail).hint(help))
}

/// Adds the agent of a file, and those that it names, unless the configuration has it already.
fn add(
    configuration: &mut Configuration,
    file: &Path,
    project: &Path,
) -> Result<(ToolboxName, ToolName), Failure> {
    let canonical = file.canonicalize().ok();
    for (toolbox, described) in &configuration.toolboxes {
        let is_it = |entry: &AgentEntry| Some(entry.path()) == canonical.as_deref();
        if let Some((name, _)) = described.agents.iter().find(|(_, entry)| is_it(entry)) {
            return Ok((toolbox.clone(), name.clone()));
        }
    }
    let loaded = config::load_agent(file, project).map_err(|error| match error {
        ConfigurationError::NotThere { path } => {
            Failure::not_found(UNKNOWN, format!("there is no agent {}", path.display()))
                .hint("check the path")
        }
        other => Failure::from(other),
    })?;
    for warning in &loaded.warnings {
        eprintln!("{warning}");
    }
    let toolbox = place_for(configuration, loaded.agents.keys());
    let agents = loaded.agents.into_iter().map(|(name, agent)| (name, AgentEntry::Usable(Box::new(agent))));
    configuration.toolboxes.entry(toolbox.clone()).or_default().agents.extend(agents);
    Ok((toolbox, loaded.name))
}

/// A toolbox where none of these names is taken.
fn place_for<'n>(configuration: &Configuration, names: impl Iterator<Item = &'n ToolName>) -> ToolboxName {
    let names: Vec<&ToolName> = names.collect();
    let is_free = |toolbox: &ToolboxName| {
        let described = configuration.toolboxes.get(toolbox);
        !described.is_some_and(|described| names.iter().any(|name| described.agents.contains_key(*name)))
    };
    let others = (1..).map(|number| format!("run-{number}"));
    let candidates = std::iter::once("default".to_owned()).chain(others);
    let mut candidates = candidates.map(|name| ToolboxName::new(name).expect("it is short"));
    candidates.find(is_free).expect("there are more numbers than toolboxes")
}

/// The agent of a name: `name`, `agent__name`, or `toolbox/name` where that is needed.
fn find(configuration: &Configuration, written: &str) -> Result<(ToolboxName, ToolName), Failure> {
    let (toolbox, name) =
        written.rsplit_once('/').map_or((None, written), |(toolbox, name)| (Some(toolbox), name));
    let name = name.strip_prefix("agent__").unwrap_or(name);
    let found: Vec<(&ToolboxName, &ToolName)> = configuration
        .toolboxes
        .iter()
        .filter(|(candidate, _)| toolbox.is_none_or(|toolbox| candidate.as_str() == toolbox))
        .filter_map(|(toolbox, described)| Some((toolbox, described.agents.get_key_value(name)?.0)))
        .collect();
    match found.as_slice() {
        [(toolbox, name)] => Ok(((*toolbox).clone(), (*name).clone())),
        [] => Err(unknown(configuration, written)),
        several => {
            let several: Vec<String> =
                several.iter().map(|(toolbox, name)| format!("{toolbox}/{name}")).collect();
            let message = format!("'{written}' may be {}", several.join(" or "));
            Err(Failure::not_found(UNKNOWN, message).hint("name one of them"))
        }
    }
}

fn unknown(configuration: &Configuration, written: &str) -> Failure {
    let names =
        configuration.toolboxes.values().flat_map(|toolbox| toolbox.agents.keys()).map(ToolName::as_str);
    let names: Vec<&str> = names.collect();
    let help = match config::near(written, names.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None if names.is_empty() => {
            "name the file of one, or list files under agents in the configuration".to_owned()
        }
        None => format!("there are {}; or name the file of one", names.join(", ")),
    };
    Failure::not_found(UNKNOWN, format!("there is no agent '{written}'")).hint(help)
}
