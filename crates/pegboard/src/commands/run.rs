//! `pegboard run`: runs an agent once and prints its answer.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use pegboard::arguments::CallArguments;
use pegboard::call::{Call, CallOrigin, CallResult, Invoker, ToolRef};
use pegboard::config::{self, AgentEntry, Configuration, ConfigurationError};
use pegboard::error::ErrorKind;
use pegboard::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard::model::{ModelName, ModelProviderName};
use pegboard::providers::mcp::PoolOptions;
use pegboard::runtime::{Caller, CallerOptions};
use pegboard::settings::agent::{AgentSettings, InputFormat, ReportFormat};
use pegboard::telemetry::{Telemetry, TelemetryOptions};
use pegboard::wiring::{App, AppOptions, agents};
use serde_json::{Map, Value, json};

use super::serve::{shutdown_signal, supervisor};
use crate::api_client::CLIENT_NAME;
use crate::cli::arguments::read_text;
use crate::cli::spinner::Spinner;
use crate::cli::{CliError, ExitReason, Globals, OutputFormat, print};
use crate::logins;
use crate::paths::{self, ConfigSelection};
use crate::run_with_telemetry_options;
use crate::trust::TrustedConfiguration;
use progress::{ProgressPrinter, ProgressVerbosity};
use report::AgentRunReport;

mod progress;
mod report;

/// Grace period for servers at shutdown.
const GRACE: Duration = Duration::from_secs(2);
/// Maximum size of a prompt.
const MAX_PROMPT_BYTES: u64 = 4 * 1024 * 1024;
/// Error code for an unknown agent.
const UNKNOWN_AGENT: &str = "unknown_agent";
/// Maximum number of characters of the session title.
const TITLE_CHARACTERS: usize = 60;

/// Arguments of `pegboard run`.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// File of the agent, or its name in the configuration
    agent: String,
    /// Prompt for the agent; read from standard input if missing or -
    prompt: Option<String>,
    /// Model to use instead of the agent's own; repeat for fallbacks
    #[arg(long, value_name = "PROVIDER/MODEL")]
    model: Vec<ModelName>,
    /// Maximum number of model turns
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    max_turns: Option<u32>,
}

/// Agent and its toolbox.
struct SelectedAgent {
    toolbox: ToolboxName,
    agent: AgentSettings,
}

impl RunArgs {
    pub(crate) fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let prompt = self.prompt()?;
        let selection = ConfigSelection::from_globals(globals)?;
        let configuration = selection.gate().admit(selection.load_required()?)?;
        let (telemetry, settings) = (&configuration.get().telemetry, &configuration.get().settings);
        // Problems are printed as they happen.
        let options = TelemetryOptions::from_settings(telemetry, settings, "error");
        run_with_telemetry_options(globals, options, async |telemetry| {
            self.answer(globals, telemetry, (configuration, &selection.project()), &prompt).await
        })
    }

    async fn answer(
        &self,
        globals: &Globals,
        telemetry: &Telemetry,
        (mut read, project): (TrustedConfiguration, &Path),
        prompt: &str,
    ) -> Result<ExitCode, CliError> {
        let chosen = self.choose(read.get_mut(), project)?;
        check_models(&chosen, read.get())?;
        let arguments = Self::arguments(globals, &chosen.agent, prompt)?;
        let servers = PoolOptions { supervisor: supervisor(), ..PoolOptions::default() };
        let state = paths::state_dir(globals.state.as_deref());
        let options = AppOptions {
            secrets: logins::key_storage(state.as_deref())?,
            state,
            servers,
            ..AppOptions::default()
        };
        let app = read.start(options, telemetry).await?;
        let code = ask(globals, &app, &chosen, arguments).await;
        // A signal skips the shutdown.
        tokio::select! {
            _ = app.runtime.shut_down(GRACE) => {}
            () = shutdown_signal() => {}
        }
        code
    }

    /// Reads the prompt.
    fn prompt(&self) -> Result<String, CliError> {
        let prompt = match self.prompt.as_deref() {
            Some(prompt) if prompt != "-" => prompt.to_owned(),
            None if io::stdin().is_terminal() => String::new(),
            Some(_) | None => read_text(io::stdin(), "standard input", MAX_PROMPT_BYTES)?,
        };
        if prompt.trim().is_empty() {
            let hint = "pass it after the agent, or pipe it in";
            return Err(CliError::usage("missing prompt").hint(hint));
        }
        Ok(prompt)
    }

    /// Finds the agent, or adds that of a file to the configuration.
    fn choose(&self, configuration: &mut Configuration, project: &Path) -> Result<SelectedAgent, CliError> {
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
                Ok(SelectedAgent { toolbox, agent: (**agent).clone() })
            }
            Some(AgentEntry::Unusable { .. }) => Err(unusable(configuration, &toolbox, name)),
            None => Err(unknown(configuration, &self.agent)),
        }
    }

    /// Returns `true` if the configuration has an agent with this name.
    fn is_in(&self, configuration: &Configuration) -> bool {
        find(configuration, &self.agent).is_ok()
    }

    /// Builds the arguments of the call.
    fn arguments(globals: &Globals, agent: &AgentSettings, prompt: &str) -> Result<Value, CliError> {
        let title: String =
            prompt.trim().lines().next().unwrap_or_default().chars().take(TITLE_CHARACTERS).collect();
        match agent.input.format {
            InputFormat::Text => {
                let default = match (wants_document(globals), io::stdout().is_terminal()) {
                    (true, _) => ReportFormat::Markdown,
                    (false, true) => ReportFormat::Tty,
                    (false, false) => ReportFormat::Pipe,
                };
                let format = agent.output.format.unwrap_or(default);
                Ok(json!({"prompt": prompt, "reason": title, "format": format.as_str()}))
            }
            InputFormat::Json => {
                let mut input: Map<String, Value> = serde_json::from_str(prompt).map_err(|error| {
                    let schema = agent.input.schema.as_ref().map(Value::to_string).unwrap_or_default();
                    let message = format!("agent '{}' expects a JSON object: {error}", agent.name);
                    CliError::from_kind(ErrorKind::InvalidParameters, message)
                        .hint(format!("it must match the schema {schema}"))
                })?;
                input.entry("reason").or_insert_with(|| "run from the command line".into());
                Ok(Value::Object(input))
            }
        }
    }
}

/// Returns `true` if the answer is printed as a document, with metadata.
fn wants_document(globals: &Globals) -> bool {
    globals.format_or(OutputFormat::Text) != OutputFormat::Text
}

async fn ask(
    globals: &Globals,
    app: &App,
    chosen: &SelectedAgent,
    arguments: Value,
) -> Result<ExitCode, CliError> {
    let caller = app.runtime.caller(CallerOptions::default());
    caller.name_client(CLIENT_NAME);
    let verbosity = if globals.quiet { ProgressVerbosity::Quiet } else { ProgressVerbosity::Normal };
    let spinner = Spinner::new(globals, chosen.agent.name.as_str());
    let mut progress = ProgressPrinter::new(&app.runtime, verbosity, &spinner);
    let server = ServerName::new(agents::SERVER).expect("it is a short word");
    let tool = ToolId { toolbox: chosen.toolbox.clone(), server, name: chosen.agent.name.clone() };
    let mut call = Call::new(ToolRef::Id(tool), CallArguments::from(arguments));
    call.context.origin = CallOrigin::Program;
    let running = caller.start(call);
    let running = spinner.during(async {
        tokio::select! {
            ended = running => Ok(ended),
            never = progress.follow() => match never {},
            () = shutdown_signal() => Err(CliError::interrupted()),
            failure = globals.deadline(Duration::ZERO) => Err(failure),
        }
    });
    let ended = running.await?;
    progress.drain();
    print_result(globals, &chosen.agent, &caller, &ended)
}

/// Prints the result.
fn print_result(
    globals: &Globals,
    agent: &AgentSettings,
    caller: &Caller,
    ended: &CallResult,
) -> Result<ExitCode, CliError> {
    let session = caller.tree().snapshot();
    let report = AgentRunReport::new(agent, &session, ended);
    if !globals.quiet {
        print::error_line(&report.summary());
    }
    if wants_document(globals) {
        print::document(globals.format_or(OutputFormat::Json), &report.document(), String::new);
    } else if let Some(answer) = report.answer() {
        print::text(&answer);
    }
    match report.error() {
        None => Ok(ExitCode::SUCCESS),
        Some((kind, _)) if wants_document(globals) => Ok(ExitReason::from(kind).into()),
        Some((kind, text)) => Err(CliError::from_kind(kind, text)),
    }
}

/// Error that lists the problems of an agent and of those it depends on.
fn unusable(configuration: &Configuration, toolbox: &ToolboxName, name: ToolName) -> CliError {
    let agents = configuration.toolboxes.get(toolbox).map(|toolbox| &toolbox.agents);
    let (mut waiting, mut seen, mut all_problems) = (vec![name], Vec::new(), Vec::new());
    while let Some(name) = waiting.pop() {
        let found = agents.and_then(|agents| agents.get(&name));
        let Some(AgentEntry::Unusable { needs, problems, .. }) = found.filter(|_| !seen.contains(&name))
        else {
            continue;
        };
        all_problems.extend(problems.iter().cloned());
        waiting.extend(needs.iter().rev().cloned());
        seen.push(name);
    }
    CliError::from_problems(all_problems)
}

/// Checks that the agent, and every agent it may call or hand off to, has a usable model.
fn check_models(chosen: &SelectedAgent, configuration: &Configuration) -> Result<(), CliError> {
    let agents = configuration.toolboxes.get(&chosen.toolbox).map(|toolbox| &toolbox.agents);
    let (mut waiting, mut seen) = (vec![chosen.agent.name.clone()], Vec::new());
    while let Some(name) = waiting.pop() {
        let Some(AgentEntry::Usable(agent)) = agents.and_then(|agents| agents.get(&name)) else { continue };
        check_models_of(agent, configuration)?;
        seen.push(name);
        let named = agent.agents.iter().chain(&agent.destinations).chain(&agent.handoff);
        waiting.extend(named.filter(|name| !seen.contains(name)).cloned());
    }
    Ok(())
}

fn check_models_of(agent: &AgentSettings, configuration: &Configuration) -> Result<(), CliError> {
    let reason = |model: &ModelName| agents::obstacle(model, &configuration.providers);
    let describe = |model: &ModelName| Some(format!("model '{model}': {}", reason(model)?));
    let reasons: Vec<String> = agent.models.iter().filter_map(describe).collect();
    if reasons.len() < agent.models.len() {
        return Ok(());
    }
    let names: Vec<&str> = configuration.providers.keys().map(ModelProviderName::as_str).collect();
    let help = if names.is_empty() {
        "define a model provider in the configuration, under providers".to_owned()
    } else {
        format!("known providers: {}; set another model in its file, or with --model", names.join(", "))
    };
    let message = format!("agent '{}' has no usable model", agent.name);
    Err(reasons.into_iter().fold(CliError::configuration(message), CliError::detail).hint(help))
}

/// Adds the agent of a file and those it refers to, unless the configuration already has it.
fn add(
    configuration: &mut Configuration,
    file: &Path,
    project: &Path,
) -> Result<(ToolboxName, ToolName), CliError> {
    let canonical = file.canonicalize().ok();
    for (toolbox, described) in &configuration.toolboxes {
        let is_it = |entry: &AgentEntry| Some(entry.path()) == canonical.as_deref();
        if let Some((name, _)) = described.agents.iter().find(|(_, entry)| is_it(entry)) {
            return Ok((toolbox.clone(), name.clone()));
        }
    }
    let loaded = config::load_agent(file, project).map_err(|error| match error {
        ConfigurationError::NotFound { path } => {
            CliError::not_found(UNKNOWN_AGENT, format!("no such agent file: {}", path.display()))
                .hint("check the path")
        }
        other => CliError::from(other),
    })?;
    for warning in &loaded.warnings {
        print::error_line(&warning.to_string());
    }
    let toolbox = free_toolbox(configuration, loaded.agents.keys());
    let agents = loaded.agents.into_iter().map(|(name, agent)| (name, AgentEntry::Usable(Box::new(agent))));
    configuration.toolboxes.entry(toolbox.clone()).or_default().agents.extend(agents);
    Ok((toolbox, loaded.name))
}

/// Returns a toolbox in which none of these names is taken.
fn free_toolbox<'n>(configuration: &Configuration, names: impl Iterator<Item = &'n ToolName>) -> ToolboxName {
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

/// Finds an agent by name: `name`, `agent__name` or `toolbox/name`.
fn find(configuration: &Configuration, written: &str) -> Result<(ToolboxName, ToolName), CliError> {
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
            let message = format!("'{written}' is ambiguous: {}", several.join(" or "));
            Err(CliError::not_found(UNKNOWN_AGENT, message).hint("use one of them"))
        }
    }
}

fn unknown(configuration: &Configuration, written: &str) -> CliError {
    let names =
        configuration.toolboxes.values().flat_map(|toolbox| toolbox.agents.keys()).map(ToolName::as_str);
    let names: Vec<&str> = names.collect();
    let help = match config::did_you_mean(written, names.iter().copied()) {
        Some(meant) => meant,
        None if names.is_empty() => {
            "pass an agent file, or list files under agents in the configuration".to_owned()
        }
        None => format!("known agents: {}; or pass an agent file", names.join(", ")),
    };
    CliError::not_found(UNKNOWN_AGENT, format!("no agent '{written}'")).hint(help)
}
