//! `pegboard doctor`: checks everything in the configuration and suggests fixes.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use pegboard::config::{self, ConfigProblem, Configuration, ServerEntry, Severity};
use pegboard::owner::OwnerScope;
use pegboard::provider::ServerState;
use pegboard::providers::process::{CommandSpec, SpawnError};
use pegboard::runtime::Runtime;
use pegboard::runtime::toolbox::ServerStatus;
use pegboard::settings::mcp::McpTarget;
use pegboard::telemetry::Telemetry;

use super::serve::DEFAULT_ADDRESS;
use super::server_starts::start_servers;
use crate::api_client::{ApiClient, ApiPath, ServerView};
use crate::cli::error::FIRST_CONFIGURATION;
use crate::cli::format::{one_line, plural};
use crate::cli::{CliError, Globals, OutputFormat, print};
use crate::paths::{self, ConfigSelection};
use crate::trust::TrustedConfiguration;
use finding::{CheckArea, DoctorFindings};

mod finding;

/// Arguments of `pegboard doctor`.
#[derive(Args)]
pub(crate) struct DoctorArgs {
    /// Server to check: its name, or toolbox/server; all servers by default
    server: Option<String>,
    /// Do not start servers; check only what is possible without
    #[arg(long)]
    no_start: bool,
}

impl DoctorArgs {
    pub(crate) async fn run(self, globals: &Globals, telemetry: &Telemetry) -> Result<ExitCode, CliError> {
        let mut findings = DoctorFindings::default();
        let selection = ConfigSelection::from_globals(globals)?;
        if let Some(configuration) = self.check_configuration(&selection, &mut findings)? {
            let unusable = check_commands(&configuration, self.server.as_deref(), &mut findings);
            if !self.no_start {
                match selection.admit(configuration).await {
                    Ok(trusted) => {
                        self.check_servers(globals, (trusted, &unusable), telemetry, &mut findings).await?;
                    }
                    Err(failure) => {
                        let remedy = failure.suggested_fix().unwrap_or_default().to_owned();
                        findings.problem(CheckArea::Config, failure.summary(), remedy);
                    }
                }
            }
        }
        if self.server.is_none() {
            check_pending(globals, &mut findings).await;
            check_port(&mut findings);
            check_state(paths::state_dir(globals.state.as_deref()).as_deref(), &mut findings);
        }
        print::document(globals.format_or(OutputFormat::Text), &findings.document(), || findings.text());
        Ok(findings.exit().map_or(ExitCode::SUCCESS, ExitCode::from))
    }

    /// Loads the configuration and reports its problems. The server named on the command line must exist.
    fn check_configuration(
        &self,
        selection: &ConfigSelection,
        findings: &mut DoctorFindings,
    ) -> Result<Option<Configuration>, CliError> {
        let loaded = if self.no_start { selection.inspect_required() } else { selection.load_required() };
        let configuration = match loaded {
            Ok(configuration) => configuration,
            Err(error) => {
                let problems = error.problems();
                for problem in problems {
                    add_problem(problem, findings);
                }
                if problems.is_empty() {
                    findings.problem(CheckArea::Config, error.to_string(), FIRST_CONFIGURATION);
                }
                return Ok(None);
            }
        };
        if let Some(server) = &self.server {
            check_name(server, &configuration)?;
        }
        for source in &configuration.sources {
            findings.ok(CheckArea::Config, format!("{} is valid", source.path.display()));
        }
        for problem in &configuration.problems {
            add_problem(problem, findings);
        }
        let servers: usize = configuration.toolboxes.values().map(|toolbox| toolbox.servers.len()).sum();
        let plural = |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
        let toolboxes = plural(configuration.toolboxes.len(), "toolbox", "toolboxes");
        findings.ok(CheckArea::Config, format!("{toolboxes}, {}", plural(servers, "server", "servers")));
        Ok(Some(configuration))
    }

    async fn check_servers(
        &self,
        globals: &Globals,
        (configuration, unusable): (TrustedConfiguration, &[String]),
        telemetry: &Telemetry,
        findings: &mut DoctorFindings,
    ) -> Result<(), CliError> {
        let api = ApiClient::start(globals, None, telemetry, configuration).await?;
        let Some(app) = api.app() else { return Ok(()) };
        let runtime = &app.runtime;
        let is_reported =
            |status: &ServerStatus| unusable.contains(&format!("{}/{}", status.toolbox, status.server));
        let is_wanted =
            |status: &&ServerStatus| is_selected(self.server.as_deref(), status) && !is_reported(status);
        let is_started = |server: &ServerView| {
            let selected = self.server.as_deref();
            selected.is_none_or(|selected| is_name_of(selected, &server.toolbox, &server.server))
                && !unusable.contains(&server.address())
        };
        // Servers that are not ready by then are reported as such.
        let _late = Box::pin(start_servers(globals, &api, is_started)).await?;
        for status in runtime.servers(&OwnerScope::All).iter().filter(is_wanted) {
            add_server_state(status, findings);
        }
        check_names(runtime, self.server.as_deref(), findings);
        api.close().await;
        Ok(())
    }
}

/// Returns `true` if the server is selected.
fn is_selected(selected: Option<&str>, status: &ServerStatus) -> bool {
    selected.is_none_or(|selected| is_name_of(selected, status.toolbox.as_str(), status.server.as_str()))
}

/// Returns `true` if `selected` is the server's name or address.
fn is_name_of(selected: &str, toolbox: &str, server: &str) -> bool {
    selected == server || selected.split_once('/') == Some((toolbox, server))
}

fn check_name(selected: &str, configuration: &Configuration) -> Result<(), CliError> {
    let servers = configuration
        .toolboxes
        .iter()
        .flat_map(|(toolbox, described)| described.servers.keys().map(move |server| (toolbox, server)));
    let names: Vec<String> = servers.map(|(toolbox, server)| format!("{toolbox}/{server}")).collect();
    let is_it = |name: &String| {
        name.split_once('/').is_some_and(|(toolbox, server)| is_name_of(selected, toolbox, server))
    };
    if names.iter().any(is_it) {
        return Ok(());
    }
    let short = names.iter().filter_map(|name| name.split_once('/')).map(|(_, server)| server);
    let meant = config::did_you_mean(selected, short.chain(names.iter().map(String::as_str)));
    let failure = CliError::not_found("unknown_server", format!("no server '{selected}'"));
    Err(match meant {
        Some(meant) => failure.hint(meant),
        None if names.is_empty() => failure.hint("the configuration has no servers"),
        None => failure.hint(format!("expected one of {}", names.join(", "))),
    })
}

fn add_problem(problem: &ConfigProblem, findings: &mut DoctorFindings) {
    let mut place = problem.file.display().to_string();
    if problem.line > 0 {
        place = format!("{place}:{}:{}  {}", problem.line, problem.column, problem.path);
    }
    let message = format!("{place}: {}", problem.message);
    let remedy = problem.help.clone().unwrap_or_else(|| "fix it in the file".to_owned());
    match problem.severity {
        Severity::Error => findings.problem(CheckArea::Config, message, remedy),
        Severity::Warning => findings.warning(CheckArea::Config, message, remedy),
    }
}

/// Checks that the programs of servers can be executed. Returns the servers that are already reported as
/// unusable.
fn check_commands(
    configuration: &Configuration,
    selected: Option<&str>,
    findings: &mut DoctorFindings,
) -> Vec<String> {
    let (mut found, mut unusable) = (Vec::new(), Vec::new());
    for (toolbox, described) in &configuration.toolboxes {
        for (server, described) in &described.servers {
            let name = format!("{toolbox}/{server}");
            if described.unusable().is_some() {
                unusable.push(name.clone());
            }
            let ServerEntry::Mcp { connection, .. } = described else { continue };
            let McpTarget::Program(program) = &connection.target else { continue };
            let is_wanted =
                selected.is_none_or(|selected| is_name_of(selected, toolbox.as_str(), server.as_str()));
            if !connection.is_enabled || !is_wanted {
                continue;
            }
            match CommandSpec::new(program.clone()).check() {
                Ok(()) => found.push(program.command.clone()),
                Err(SpawnError::NotInPath { command }) => {
                    let message = format!("{command} is not on PATH; required by {name}");
                    findings.problem(CheckArea::Commands, message, install_hint(&command));
                    unusable.push(name);
                }
                Err(error) => {
                    let remedy = "fix its entry in the configuration";
                    // The path may contain the value of a variable.
                    let error = print::redacted(&error.to_string());
                    findings.problem(CheckArea::Commands, format!("cannot start {name}: {error}"), remedy);
                    unusable.push(name);
                }
            }
        }
    }
    found.sort();
    found.dedup();
    if !found.is_empty() {
        findings.ok(CheckArea::Commands, format!("{} found", found.join(", ")));
    }
    unusable
}

/// Installation hint for a program.
fn install_hint(command: &str) -> String {
    let name = Path::new(command).file_stem().and_then(|name| name.to_str()).unwrap_or(command);
    match name {
        "npx" | "npm" | "node" => "install Node.js: https://nodejs.org".to_owned(),
        "uvx" | "uv" => "install uv: https://docs.astral.sh/uv".to_owned(),
        "docker" => "install Docker: https://docs.docker.com/get-docker".to_owned(),
        "python" | "python3" => "install Python: https://www.python.org".to_owned(),
        "bunx" | "bun" => "install Bun: https://bun.sh".to_owned(),
        "deno" => "install Deno: https://deno.com".to_owned(),
        _ => "install it, or set command to its full path".to_owned(),
    }
}

fn add_server_state(status: &ServerStatus, findings: &mut DoctorFindings) {
    let name = format!("{}/{}", status.toolbox, status.server);
    match &status.state {
        ServerState::Ready => {
            let tools = plural(status.n_tools as u64, "tool");
            findings.ok(CheckArea::Servers, format!("{name} is ready: {tools}"));
            if status.n_tools == 0 {
                let remedy = "check pegboard logs, toolsAllowed and toolsDenied";
                findings.warning(CheckArea::Servers, format!("{name} offers no tools"), remedy);
            }
        }
        ServerState::NeedsLogin { fix } => {
            findings.problem(CheckArea::Servers, format!("{name}: login required"), fix.clone());
        }
        ServerState::Failed { why, fix, stderr: _ } => {
            let why = why.strip_prefix(&format!("MCP server '{}' ", status.server)).unwrap_or(why);
            findings.problem(CheckArea::Servers, format!("{name}: {why}"), fix.clone());
        }
        ServerState::Idle | ServerState::Starting | ServerState::Restarting { .. } | ServerState::Stopped => {
            let remedy = "increase --timeout, or run its command by hand to see what it waits for";
            findings.problem(CheckArea::Servers, format!("{name} did not start in time"), remedy);
        }
    }
    for warning in &status.warnings {
        findings.warning(
            CheckArea::Tools,
            format!("{name}: {warning}"),
            "report it to the author of the server",
        );
    }
}

/// Checks for renamed tools and for definitions without a description.
fn check_names(runtime: &Runtime, selected: Option<&str>, findings: &mut DoctorFindings) {
    let catalogue = runtime.catalogue();
    let is_wanted =
        |toolbox: &str, server: &str| selected.is_none_or(|selected| is_name_of(selected, toolbox, server));
    for collision in catalogue.collisions() {
        let tool = &collision.tool;
        if is_wanted(tool.toolbox.as_str(), tool.server.as_str()) {
            let message = format!(
                "{tool} is listed as {}: {} is already taken by {}",
                collision.given, collision.wanted, collision.taken_by
            );
            findings.warning(CheckArea::Names, message, "rename one of the servers to avoid the conflict");
        }
    }
    let tools = || {
        let tools = catalogue.tools().iter();
        tools.filter(|tool| is_wanted(tool.id.toolbox.as_str(), tool.id.server.as_str()))
    };
    for tool in tools() {
        let wanted = format!("{}__{}", tool.id.server, tool.id.name);
        let is_reported = catalogue.collisions().iter().any(|collision| collision.tool == tool.id);
        if *tool.flat_name != wanted && !is_reported {
            let message = format!("{} is listed as {}", tool.id, tool.flat_name);
            let remedy =
                "clients accept letters, digits, _ and - up to toolNameMaxLength; use a shorter server name";
            findings.warning(CheckArea::Names, message, remedy);
        }
        if tool.entry.description().trim().is_empty() {
            let message = format!("{} has no description, so models are unlikely to choose it", tool.id);
            let remedy = "add instructions in the configuration, under tools";
            findings.warning(CheckArea::Tools, message, remedy);
        }
    }
    for warning in catalogue.warnings() {
        if is_wanted(warning.toolbox.as_str(), warning.server.as_str()) {
            let message = format!("{}/{}: {}", warning.toolbox, warning.server, warning.text);
            findings.warning(
                CheckArea::Tools,
                message,
                "report it to the author of the server; the valid parts are used",
            );
        }
    }
    let n_tools = tools().count();
    if n_tools > 0 {
        findings.ok(CheckArea::Tools, format!("{} callable", plural(n_tools as u64, "tool")));
    }
}

/// Reports changes that wait for approval in the running gateway.
async fn check_pending(globals: &Globals, findings: &mut DoctorFindings) {
    let Ok(api) = ApiClient::running(globals).await else { return };
    let Ok(status) = api.get(&ApiPath::new(&["status"])).await else { return };
    for change in status["pending"].as_array().into_iter().flatten() {
        let word = |key: &str| one_line(change[key].as_str().unwrap_or_default(), 400);
        let message =
            format!("{} waits for approval ({}): {}", word("entry"), word("reason"), word("action"));
        findings.warning(CheckArea::Config, message, "review it, then run pegboard reload");
    }
}

/// Checks that the default port is free.
fn check_port(findings: &mut DoctorFindings) {
    let Ok(address) = DEFAULT_ADDRESS.parse::<SocketAddr>() else { return };
    // Bound, but not listening: two checks at a time do not find each other.
    match pegboard::wire::http::server::bind(address) {
        Ok(_) => findings.ok(CheckArea::Ports, format!("{address} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let remedy = "unless it is your gateway, choose another port with pegboard serve --http";
            findings.warning(CheckArea::Ports, format!("{address} is in use"), remedy);
        }
        Err(error) => {
            let remedy = "choose another address with pegboard serve --http";
            findings.problem(CheckArea::Ports, format!("cannot listen on {address}: {error}"), remedy);
        }
    }
}

/// Checks that the state directory is writable.
fn check_state(folder: Option<&Path>, findings: &mut DoctorFindings) {
    let Some(folder) = folder else {
        let remedy = "set HOME, or a directory with --state";
        return findings.warning(CheckArea::State, "no state directory; state will be lost at exit", remedy);
    };
    let try_to_write = || -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let probe = folder.join(format!(".doctor-{}", std::process::id()));
        std::fs::write(&probe, "")?;
        std::fs::remove_file(&probe)
    };
    match try_to_write() {
        Ok(()) => findings.ok(CheckArea::State, format!("{} is writable", folder.display())),
        Err(error) => {
            let remedy = "make it writable, or set another directory with --state";
            let message =
                format!("cannot write to {}: {error}; state will be lost at exit", folder.display());
            findings.problem(CheckArea::State, message, remedy);
        }
    }
}
