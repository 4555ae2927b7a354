//! `pegboard doctor`: whether everything works that a configuration names, and what to do where it does not.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use pegboard::config::{Configuration, Problem, Server, Severity};
use pegboard::provider::ServerState;
use pegboard::providers::mcp::PoolOptions;
use pegboard::providers::process::{Launch, LaunchError};
use pegboard::runtime::toolbox::ServerStatus;
use pegboard::runtime::{CallerOptions, Runtime};
use pegboard::settings::mcp::Target;
use pegboard::telemetry::Telemetry;
use pegboard::wiring::{self, Surroundings};
use tokio::net::TcpListener;
use tokio::time;

use super::serve::{USUAL_ADDRESS, supervisor};
use crate::cli::{Failure, Format, Globals, print};
use crate::place::{self, Wanted};
use finding::{Area, Findings};

mod finding;

/// How long servers may take to come up if nobody says so.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long servers may take to end when everything does.
const GRACE: Duration = Duration::from_secs(2);

/// What is looked at.
#[derive(Args)]
pub(crate) struct Doctor {
    /// The server that is looked at: its name, or toolbox/server; without it all are
    server: Option<String>,
    /// Start no server: look at what can be seen without
    #[arg(long)]
    no_start: bool,
}

impl Doctor {
    pub(crate) async fn run(self, globals: &Globals, telemetry: &Telemetry) -> Result<ExitCode, Failure> {
        let mut findings = Findings::default();
        if let Some(configuration) = self.look_at_configuration(globals, &mut findings)? {
            let lame = look_at_commands(&configuration, self.server.as_deref(), &mut findings);
            if !self.no_start {
                let patience = globals.timeout.map_or(PATIENCE, Duration::from);
                self.look_at_servers(configuration, (&lame, patience), telemetry, &mut findings).await?;
            }
        }
        if self.server.is_none() {
            look_at_port(&mut findings).await;
            look_at_state(place::state(globals.state.as_deref()).as_deref(), &mut findings);
        }
        print::document(globals.format_or(Format::Text), &findings.document(), || findings.text());
        Ok(findings.exit().map_or(ExitCode::SUCCESS, ExitCode::from))
    }

    /// Whether what somebody wrote can be used. A server that is asked for by name must be in it.
    fn look_at_configuration(
        &self,
        globals: &Globals,
        findings: &mut Findings,
    ) -> Result<Option<Configuration>, Failure> {
        let configuration = match Wanted::of(globals)?.read_some() {
            Ok(configuration) => configuration,
            Err(error) => {
                let problems = error.problems();
                for problem in problems {
                    tell_problem(problem, findings);
                }
                if problems.is_empty() {
                    let remedy = "pegboard init writes one, pegboard import brings the servers you have";
                    findings.problem(Area::Config, error.to_string(), remedy);
                }
                return Ok(None);
            }
        };
        if let Some(server) = &self.server {
            check_name(server, &configuration)?;
        }
        for source in &configuration.sources {
            findings.well(Area::Config, format!("{} can be read", source.path.display()));
        }
        for problem in &configuration.problems {
            tell_problem(problem, findings);
        }
        let servers: usize = configuration.toolboxes.values().map(|toolbox| toolbox.servers.len()).sum();
        let plural = |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
        let toolboxes = plural(configuration.toolboxes.len(), "toolbox", "toolboxes");
        findings.well(Area::Config, format!("{toolboxes}, {}", plural(servers, "server", "servers")));
        Ok(Some(configuration))
    }

    async fn look_at_servers(
        &self,
        configuration: Configuration,
        (lame, patience): (&[String], Duration),
        telemetry: &Telemetry,
        findings: &mut Findings,
    ) -> Result<(), Failure> {
        let surroundings =
            Surroundings { servers: PoolOptions { supervisor: supervisor() }, ..Surroundings::default() };
        let board = wiring::start(configuration, surroundings, telemetry)
            .await
            .map_err(|error| Failure::configuration(error.to_string()))?;
        let runtime = &board.runtime;
        let is_told = |status: &ServerStatus| lame.contains(&format!("{}/{}", status.toolbox, status.server));
        let is_wanted = |status: &&ServerStatus| is_meant(self.server.as_deref(), status) && !is_told(status);
        let opening = async {
            let caller = runtime.caller(CallerOptions::default());
            let toolboxes = runtime.toolboxes();
            join_all(toolboxes.iter().map(|toolbox| caller.open(toolbox.name.as_str()))).await;
        };
        // What is not there by then is told as such.
        let _ = time::timeout(patience, opening).await;
        for status in runtime.servers().iter().filter(is_wanted) {
            tell_server(status, findings);
        }
        look_at_names(runtime, self.server.as_deref(), findings);
        runtime.shut_down(GRACE).await;
        Ok(())
    }
}

/// Whether a server is the one that is asked for.
fn is_meant(asked: Option<&str>, status: &ServerStatus) -> bool {
    asked.is_none_or(|asked| is_name_of(asked, status.toolbox.as_str(), status.server.as_str()))
}

/// Whether a server is called so: by its name, or with its toolbox.
fn is_name_of(asked: &str, toolbox: &str, server: &str) -> bool {
    asked == server || asked.split_once('/') == Some((toolbox, server))
}

fn check_name(asked: &str, configuration: &Configuration) -> Result<(), Failure> {
    let servers = configuration
        .toolboxes
        .iter()
        .flat_map(|(toolbox, described)| described.servers.keys().map(move |server| (toolbox, server)));
    let names: Vec<String> = servers.map(|(toolbox, server)| format!("{toolbox}/{server}")).collect();
    let is_it = |name: &String| {
        name.split_once('/').is_some_and(|(toolbox, server)| is_name_of(asked, toolbox, server))
    };
    if names.iter().any(is_it) {
        return Ok(());
    }
    let short = names.iter().filter_map(|name| name.split_once('/')).map(|(_, server)| server);
    let meant = pegboard::config::near(asked, short.chain(names.iter().map(String::as_str)));
    let failure = Failure::not_found("unknown_server", format!("there is no server '{asked}'"));
    Err(match meant {
        Some(meant) => failure.hint(format!("did you mean {meant}?")),
        None if names.is_empty() => failure.hint("the configuration has none"),
        None => failure.hint(format!("there are {}", names.join(", "))),
    })
}

fn tell_problem(problem: &Problem, findings: &mut Findings) {
    let mut place = problem.file.display().to_string();
    if problem.line > 0 {
        place = format!("{place}:{}:{}  {}", problem.line, problem.column, problem.path);
    }
    let message = format!("{place}: {}", problem.message);
    let remedy = problem.help.clone().unwrap_or_else(|| "correct it there".to_owned());
    match problem.severity {
        Severity::Error => findings.problem(Area::Config, message, remedy),
        Severity::Warning => findings.warning(Area::Config, message, remedy),
    }
}

/// Whether every program is there that servers are started with. Gives the servers that cannot be used for what is told
/// already.
fn look_at_commands(
    configuration: &Configuration,
    asked: Option<&str>,
    findings: &mut Findings,
) -> Vec<String> {
    let (mut found, mut lame) = (Vec::new(), Vec::new());
    for (toolbox, described) in &configuration.toolboxes {
        for (server, described) in &described.servers {
            let name = format!("{toolbox}/{server}");
            if described.obstacle().is_some() {
                lame.push(name.clone());
            }
            let Server::Mcp { connection, .. } = described else { continue };
            let Target::Program(program) = &connection.target else { continue };
            let is_wanted = asked.is_none_or(|asked| is_name_of(asked, toolbox.as_str(), server.as_str()));
            if !connection.is_enabled || !is_wanted {
                continue;
            }
            let launch = Launch { cwd: program.cwd.clone(), ..Launch::new(&program.command) };
            match launch.check() {
                Ok(()) => found.push(program.command.clone()),
                Err(LaunchError::NotInPath { command }) => {
                    let message = format!("{command} is not on PATH, and {name} needs it");
                    findings.problem(Area::Commands, message, how_to_get(&command));
                    lame.push(name);
                }
                Err(error) => {
                    let remedy = "correct its description in the configuration";
                    findings.problem(Area::Commands, format!("{name} cannot be started: {error}"), remedy);
                    lame.push(name);
                }
            }
        }
    }
    found.sort();
    found.dedup();
    if !found.is_empty() {
        findings.well(Area::Commands, format!("{} can be started", found.join(", ")));
    }
    lame
}

/// How to come by a program.
fn how_to_get(command: &str) -> String {
    let name = Path::new(command).file_stem().and_then(|name| name.to_str()).unwrap_or(command);
    match name {
        "npx" | "npm" | "node" => "install Node.js, which has it: https://nodejs.org".to_owned(),
        "uvx" | "uv" => "install uv, which has it: https://docs.astral.sh/uv".to_owned(),
        "docker" => "install Docker: https://docs.docker.com/get-docker".to_owned(),
        "python" | "python3" => "install Python: https://www.python.org".to_owned(),
        "bunx" | "bun" => "install Bun, which has it: https://bun.sh".to_owned(),
        "deno" => "install Deno: https://deno.com".to_owned(),
        _ => "install it, or give its full path as the command".to_owned(),
    }
}

fn tell_server(status: &ServerStatus, findings: &mut Findings) {
    let name = format!("{}/{}", status.toolbox, status.server);
    match &status.state {
        ServerState::Ready => {
            let s = if status.n_tools == 1 { "" } else { "s" };
            findings.well(Area::Servers, format!("{name} answers: {} tool{s}", status.n_tools));
            if status.n_tools == 0 {
                let remedy = "look at what it says: pegboard logs, and at toolsAllowed and toolsDenied";
                findings.warning(Area::Servers, format!("{name} offers no tools"), remedy);
            }
        }
        ServerState::NeedsLogin { fix } => {
            findings.problem(Area::Servers, format!("{name}: somebody must log in first"), fix.clone());
        }
        ServerState::Failed { why, fix } => {
            let why = why.strip_prefix(&format!("MCP server '{}' ", status.server)).unwrap_or(why);
            findings.problem(Area::Servers, format!("{name}: {why}"), fix.clone());
        }
        ServerState::Idle | ServerState::Starting | ServerState::Restarting { .. } | ServerState::Stopped => {
            let remedy = "give it longer with --timeout, or run its command by hand to see what it waits for";
            findings.problem(Area::Servers, format!("{name} did not come up in time"), remedy);
        }
    }
    for warning in &status.warnings {
        findings.warning(Area::Tools, format!("{name}: {warning}"), "tell whoever wrote the server");
    }
}

/// Names that could not stay as they are, and definitions that say nothing.
fn look_at_names(runtime: &Runtime, asked: Option<&str>, findings: &mut Findings) {
    let catalogue = runtime.catalogue();
    let is_wanted =
        |toolbox: &str, server: &str| asked.is_none_or(|asked| is_name_of(asked, toolbox, server));
    for collision in catalogue.collisions() {
        let tool = &collision.tool;
        if is_wanted(tool.toolbox.as_str(), tool.server.as_str()) {
            let message = format!(
                "{tool} is listed as {}, because {} is the name of {}",
                collision.given, collision.wanted, collision.taken_by
            );
            findings.warning(Area::Names, message, "rename one of the servers to choose the names yourself");
        }
    }
    let tools = || {
        let tools = catalogue.tools().iter();
        tools.filter(|tool| is_wanted(tool.id.toolbox.as_str(), tool.id.server.as_str()))
    };
    for tool in tools() {
        let wanted = format!("{}__{}", tool.id.server, tool.id.name);
        let is_told = catalogue.collisions().iter().any(|collision| collision.tool == tool.id);
        if *tool.flat_name != wanted && !is_told {
            let message = format!("{} is listed as {}", tool.id, tool.flat_name);
            let remedy = "clients take letters, digits, _ and - up to toolNameMaxLength; a shorter name of the server helps";
            findings.warning(Area::Names, message, remedy);
        }
        if tool.entry.description().trim().is_empty() {
            let message = format!("{} has no description, so no model will choose it", tool.id);
            let remedy = "give it instructions in the configuration, under tools";
            findings.warning(Area::Tools, message, remedy);
        }
    }
    for warning in catalogue.warnings() {
        if is_wanted(warning.toolbox.as_str(), warning.server.as_str()) {
            let message = format!("{}/{}: {}", warning.toolbox, warning.server, warning.text);
            findings.warning(
                Area::Tools,
                message,
                "tell whoever wrote the server; what can be used of it is",
            );
        }
    }
    let n_tools = tools().count();
    if n_tools > 0 {
        findings.well(Area::Tools, format!("{n_tools} tools can be called"));
    }
}

/// Whether clients can be waited for at the usual address.
async fn look_at_port(findings: &mut Findings) {
    let Ok(address) = USUAL_ADDRESS.parse::<SocketAddr>() else { return };
    match TcpListener::bind(address).await {
        Ok(_) => findings.well(Area::Ports, format!("{address} is free for pegboard serve")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let remedy =
                "if it is not the gateway you started, choose another port with pegboard serve --http";
            findings.warning(Area::Ports, format!("something listens at {address} already"), remedy);
        }
        Err(error) => {
            let remedy = "choose another address with pegboard serve --http";
            findings.problem(Area::Ports, format!("nobody can listen at {address}: {error}"), remedy);
        }
    }
}

/// Whether state can be kept.
fn look_at_state(folder: Option<&Path>, findings: &mut Findings) {
    let Some(folder) = folder else {
        let remedy = "set HOME, or name a folder with --state";
        return findings.warning(
            Area::State,
            "there is no folder for state, so it is lost at the end",
            remedy,
        );
    };
    let try_to_write = || -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        let probe = folder.join(format!(".doctor-{}", std::process::id()));
        std::fs::write(&probe, "")?;
        std::fs::remove_file(&probe)
    };
    match try_to_write() {
        Ok(()) => findings.well(Area::State, format!("{} can be written", folder.display())),
        Err(error) => {
            let remedy = "make it writable, or name another folder with --state";
            let message =
                format!("{} cannot be written: {error}; state is lost at the end", folder.display());
            findings.problem(Area::State, message, remedy);
        }
    }
}
