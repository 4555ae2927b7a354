//! The `pegboard` command-line program.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use pegboard::telemetry::{Telemetry, TelemetryOptions};

use cli::{CliError, EXIT_CODES, Globals, OutputFormat, print};
use commands::gateway_commands::GatewayCommand;
use commands::{
    add, agent_help, auth, bench, complete, completions, connect, doctor, enable, export, import, init, man,
    openapi, restore, rm, run, secret, serve, trust_files, validate, version,
};

mod api_client;
mod cli;
mod commands;
mod demo;
mod environment;
mod logins;
mod onboarding;
mod paths;
mod secrets;
mod token_file;
mod trust;

/// Time that blocking work may take to finish after the async work is done.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Tool runtime and gateway for AI agents
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a self-contained tour of the features; no network, and no files without --keep
    Demo(demo::DemoArgs),
    /// Create a configuration file
    Init(init::InitArgs),
    /// Import MCP servers from clients into the configuration
    Import(import::ImportArgs),
    /// Add a server, service, tool or agent to the configuration
    Add(Box<add::AddArgs>),
    /// Remove a server, service, tool, chain or agent from the configuration
    Rm(rm::RmArgs),
    /// Enable a server or a single tool
    Enable(enable::EnableArgs),
    /// Disable a server or a single tool
    Disable(enable::EnableArgs),
    /// Register Pegboard in a client's configuration
    Connect(connect::ConnectArgs),
    /// Print the entry that a client needs to use Pegboard, or write it to the client's file
    Export(export::ExportArgs),
    /// Restore a client's file to its state before Pegboard changed it
    Restore(restore::RestoreArgs),
    /// Log in to servers that require it, and show or end logins
    Auth(auth::AuthArgs),
    /// Store, list or remove secrets that the configuration refers to
    Secret(secret::SecretArgs),
    /// Trust the configuration files of a project, or list the trusted ones
    Trust(trust_files::TrustArgs),
    /// Stop trusting configuration files
    Untrust(trust_files::UntrustArgs),
    /// Serve all configured tools behind one MCP endpoint
    Serve(serve::ServeArgs),
    #[command(flatten)]
    Gateway(GatewayCommand),
    /// Run an agent once and print its answer
    Run(run::RunArgs),
    /// Alias of `run`
    #[command(hide = true)]
    Agent {
        #[command(subcommand)]
        command: AgentCommand,
    },
    /// Measure a tool: direct calls against calls through Pegboard
    Bench(bench::BenchArgs),
    /// Check everything in the configuration and suggest fixes
    Doctor(doctor::DoctorArgs),
    /// Check configuration files without starting anything, or show where values come from
    Validate(validate::ValidateArgs),
    /// Show the tools that an OpenAPI document yields and the operations it skips
    Openapi(openapi::OpenapiArgs),
    /// Generate shell completions
    Completions(completions::CompletionsArgs),
    /// Complete a command line; for the scripts of `completions`
    #[command(hide = true)]
    Complete(complete::CompleteArgs),
    /// Print a man page, or write all of them to a directory
    Man(man::ManArgs),
    /// Print instructions for a model that uses this command line
    AgentHelp,
    /// Print the version and the supported MCP revisions
    Version,
    /// Run one of the demo's MCP servers; for internal use
    #[command(hide = true)]
    DemoServer {
        /// Name of the server
        server: demo::servers::DemoServer,
    },
    /// Run this program in the background; for internal use
    #[cfg(unix)]
    #[command(hide = true)]
    Background {
        /// Arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Run a program and kill its whole process tree at the end; for internal use
    #[cfg(unix)]
    #[command(hide = true)]
    Supervise {
        /// Program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

impl Command {
    /// Returns `true` if a program started by the command inherits its environment.
    fn passes_environment_on(&self) -> bool {
        match self {
            #[cfg(unix)]
            Self::Background { .. } | Self::Supervise { .. } => true,
            _ => false,
        }
    }

    /// Returns `true` if the command waits for a gateway, a server or a model, so that `--timeout` applies.
    fn accepts_timeout(&self) -> bool {
        matches!(
            self,
            Self::Gateway(_)
                | Self::Run(_)
                | Self::Agent { .. }
                | Self::Auth(_)
                | Self::Bench(_)
                | Self::Doctor(_)
        )
    }
}

#[derive(Subcommand)]
enum AgentCommand {
    /// Run an agent once and print its answer
    Run(run::RunArgs),
}

fn main() -> ExitCode {
    let Cli { globals, command } = Cli::try_parse().unwrap_or_else(|error| exit_with_parse_error(&error));
    if command.passes_environment_on() {
        environment::forbid_inspection();
    } else {
        environment::seal();
    }
    globals.apply_color_choice();
    let globals = &globals;
    if let Err(failure) = globals.enter_directory() {
        return failure.report(globals.output);
    }
    if globals.timeout.is_some() && !command.accepts_timeout() {
        let failure = CliError::usage(
            "--timeout applies only to commands that wait for a gateway, a server or a model",
        );
        return failure.hint("remove --timeout").report(globals.output);
    }
    let done = run_command(command, globals);
    let done = done.and_then(|code| print::write_error().map_or(Ok(code), Err));
    done.unwrap_or_else(|failure| failure.report(globals.output))
}

fn run_command(command: Command, globals: &Globals) -> Result<ExitCode, CliError> {
    match command {
        // Failures are part of the result.
        Command::Gateway(gateway_command) => run_with_telemetry(globals, "error", async |telemetry| {
            gateway_command.run(globals, telemetry).await
        }),
        // The demo provokes failures on purpose; its output is the report.
        Command::Demo(demo) => {
            run_with_telemetry(globals, "error", async |telemetry| demo.run(globals, telemetry).await)
        }
        Command::Add(add) => {
            let may_need_login = add.remote_server().map(str::to_owned);
            let code = add.run(globals)?;
            if let Some(server) = may_need_login.filter(|_| auth::can_offer_login(globals)) {
                run_with_telemetry(globals, "error", async |_| {
                    auth::offer_login(globals, &server).await.map(|()| ExitCode::SUCCESS)
                })?;
            }
            Ok(code)
        }
        Command::Auth(auth) => run_with_telemetry(globals, "error", async |_| auth.run(globals).await),
        // Failures are part of the report.
        Command::Bench(bench) => {
            run_with_telemetry(globals, "error", async |telemetry| bench.run(globals, telemetry).await)
        }
        Command::Connect(connect) => {
            run_with_telemetry(globals, "error", async |_| connect.run(globals).await)
        }
        Command::Disable(switch) => switch.run(globals, enable::SwitchState::Off),
        Command::Enable(switch) => switch.run(globals, enable::SwitchState::On),
        Command::Export(export) => run_with_telemetry(globals, "error", async |_| export.run(globals).await),
        Command::Import(import) => run_with_telemetry(globals, "error", async |_| import.run(globals).await),
        Command::Init(init) => init.run(globals),
        Command::Restore(restore) => restore.run(globals),
        Command::Rm(rm) => rm.run(globals),
        Command::Secret(secret) => secret.run(globals),
        Command::Trust(trust) => run_with_telemetry(globals, "error", async |_| trust.run(globals).await),
        Command::Untrust(untrust) => untrust.run(globals),
        Command::DemoServer { server } => Ok(server.run()),
        Command::Completions(completions) => completions.run(),
        Command::Complete(complete) => {
            run_with_telemetry(globals, "off", async |telemetry| complete.run(telemetry).await)
        }
        // Problems are reported as findings.
        Command::Doctor(doctor) => {
            run_with_telemetry(globals, "off", async |telemetry| doctor.run(globals, telemetry).await)
        }
        Command::Man(pages) => pages.run(),
        Command::AgentHelp => agent_help::run(),
        Command::Version => version::run(globals),
        // Problems are reported in the output.
        Command::Validate(validate) => {
            run_with_telemetry(globals, "off", async |_| validate.run(globals).await)
        }
        Command::Openapi(openapi) => {
            run_with_telemetry(globals, "error", async |_| openapi.run(globals).await)
        }
        // Problems are printed as they happen.
        Command::Run(run) | Command::Agent { command: AgentCommand::Run(run) } => run.run(globals),
        Command::Serve(serve) => serve.run(globals),
        #[cfg(unix)]
        Command::Background { arguments } => serve::background::detach(&arguments),
        // Many instances may run at once and its output is the program's own: no log, and its own event loop.
        #[cfg(unix)]
        Command::Supervise { program } => Ok(pegboard::providers::process::supervise(program)),
    }
}

/// Prints a command-line parse error and exits. With `--json` the error is a JSON document.
fn exit_with_parse_error(error: &clap::Error) -> ! {
    let words: Vec<String> = std::env::args().collect();
    let is_output = |word: &str| word == "-o" || word == "--output";
    let wants_json = words.iter().any(|word| ["--json", "--output=json", "-ojson"].contains(&word.as_str()))
        || words.windows(2).any(|pair| is_output(&pair[0]) && pair[1] == "json");
    if error.use_stderr() && wants_json {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        CliError::usage(message).hint("see --help").report(Some(OutputFormat::Json));
        std::process::exit(2);
    }
    error.exit()
}

/// Runs `work` with logging, metrics and tracing. `default_filter` applies unless an option or variable sets
/// one.
fn run_with_telemetry(
    globals: &Globals,
    default_filter: &str,
    work: impl AsyncFnOnce(&Telemetry) -> Result<ExitCode, CliError>,
) -> Result<ExitCode, CliError> {
    run_with_telemetry_options(
        globals,
        TelemetryOptions { filter: default_filter.to_owned(), ..TelemetryOptions::default() },
        work,
    )
}

/// Same as [`run_with_telemetry`], with options taken from a configuration.
fn run_with_telemetry_options(
    globals: &Globals,
    mut options: TelemetryOptions,
    work: impl AsyncFnOnce(&Telemetry) -> Result<ExitCode, CliError>,
) -> Result<ExitCode, CliError> {
    if let Some(filter) = globals.log_filter() {
        filter.clone_into(&mut options.filter);
    }
    let telemetry = options
        .with_variables(paths::env_var)
        .and_then(Telemetry::start)
        .map_err(|error| CliError::usage(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::system(format!("cannot start the async runtime: {error}")))?;
    let done = runtime.block_on(work(&telemetry));
    // A blocking read of standard input ends only when the client writes or closes it, which may never
    // happen.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    telemetry.shutdown();
    done
}
