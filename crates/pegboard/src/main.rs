//! The `pegboard` command.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use pegboard::telemetry::{Options, Telemetry};

use cli::{EXIT_CODES, Failure, Format, Globals, print};
use commands::asking::Asking;
use commands::{
    add, agent_help, completions, doctor, enable, export, import, init, man, openapi, restore, rm, run,
    serve, validate, version,
};

mod cli;
mod commands;
mod demo;
mod desk;
mod place;
mod welcome;

/// How long work that cannot be interrupted may take to end when everything else has.
const FAREWELL: Duration = Duration::from_millis(500);

/// The tool runtime and gateway for AI agents.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = EXIT_CODES)]
struct Arguments {
    #[command(flatten)]
    globals: Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show everything there is, through an MCP endpoint of its own, without network or files
    Demo(demo::Demo),
    /// Write a configuration to begin with
    Init(init::Init),
    /// Bring the servers that clients have into the configuration
    Import(import::Import),
    /// Add a server, a service, a tool or an agent to the configuration
    Add(Box<add::Add>),
    /// Take a server, a service, a tool, a chain or an agent out of the configuration
    Rm(rm::Rm),
    /// Switch a server or a single tool on
    Enable(enable::Switch),
    /// Switch a server or a single tool off
    Disable(enable::Switch),
    /// Have a client use us: write us into its file
    Connect(export::Connect),
    /// Print what a client needs to know to use us, or write it into its file
    Export(export::Export),
    /// Put a client's file back as it was before we changed it
    Restore(restore::Restore),
    /// Serve every tool of a configuration behind one MCP endpoint
    Serve(serve::Serve),
    #[command(flatten)]
    Ask(Asking),
    /// Ask an agent once, and print its answer
    Run(run::Run),
    /// The same, for those whose fingers know it so
    #[command(hide = true)]
    Agent {
        #[command(subcommand)]
        command: AgentCommand,
    },
    /// Check everything that the configuration names, and say what to do where something does not work
    Doctor(doctor::Doctor),
    /// Check configurations without starting anything, and say where their values are from
    Validate(validate::Validate),
    /// Show which tools an OpenAPI document comes to, and which of its operations are none
    Openapi(openapi::Openapi),
    /// Print what a shell needs to complete commands
    Completions(completions::Completions),
    /// Print the manual, or write its pages
    Man(man::ManPages),
    /// Print what a model should know that uses this command line
    AgentHelp,
    /// Print which Pegboard this is, and which revisions of MCP it speaks
    Version,
    /// Be one of the servers of the demo; for Pegboard itself
    #[command(hide = true)]
    DemoServer {
        /// Which one
        server: demo::servers::DemoServer,
    },
    /// Watch one program and end everything it started; for Pegboard itself
    #[cfg(unix)]
    #[command(hide = true)]
    Supervise {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

impl Command {
    /// Whether it waits for a gateway, a server or a model, for as long as somebody wants.
    fn waits(&self) -> bool {
        matches!(self, Self::Ask(_) | Self::Run(_) | Self::Agent { .. } | Self::Doctor(_))
    }
}

#[derive(Subcommand)]
enum AgentCommand {
    /// Ask an agent once, and print its answer
    Run(run::Run),
}

fn main() -> ExitCode {
    let Arguments { globals, command } = Arguments::try_parse().unwrap_or_else(|error| refuse(&error));
    globals.choose_colours();
    let globals = &globals;
    if globals.timeout.is_some() && !command.waits() {
        let failure = Failure::usage(
            "--timeout is for commands that ask a gateway, a server or a model, and this one does not",
        );
        return failure.hint("leave it out").tell(globals.output);
    }
    let done = match command {
        // What goes wrong is the answer.
        Command::Ask(asking) => {
            observed(globals, "error", async |telemetry| asking.run(globals, telemetry).await)
        }
        // It provokes failures on purpose, and what it prints is the report.
        Command::Demo(demo) => {
            observed(globals, "error", async |telemetry| demo.run(globals, telemetry).await)
        }
        Command::Add(add) => add.run(globals),
        Command::Connect(connect) => connect.run(globals),
        Command::Disable(switch) => switch.run(globals, enable::Turn::Off),
        Command::Enable(switch) => switch.run(globals, enable::Turn::On),
        Command::Export(export) => export.run(globals),
        Command::Import(import) => import.run(globals),
        Command::Init(init) => init.run(globals),
        Command::Restore(restore) => restore.run(globals),
        Command::Rm(rm) => rm.run(globals),
        Command::DemoServer { server } => Ok(server.run()),
        Command::Completions(completions) => completions.run(),
        // Whatever goes wrong is what it looks for.
        Command::Doctor(doctor) => {
            observed(globals, "off", async |telemetry| doctor.run(globals, telemetry).await)
        }
        Command::Man(pages) => pages.run(),
        Command::AgentHelp => agent_help::run(),
        Command::Version => version::run(globals),
        // Whatever is wrong is what it tells.
        Command::Validate(validate) => observed(globals, "off", async |_| validate.run(globals).await),
        Command::Openapi(openapi) => observed(globals, "error", async |_| openapi.run(globals).await),
        // What goes wrong on the way is told as it happens.
        Command::Run(run) | Command::Agent { command: AgentCommand::Run(run) } => run.run(globals),
        Command::Serve(serve) => serve.run(globals),
        // It is one of many, and what it prints is what the program says: no log, no event loop but its own.
        #[cfg(unix)]
        Command::Supervise { program } => Ok(pegboard::providers::process::supervise(program)),
    };
    let done = done.and_then(|code| print::failure().map_or(Ok(code), Err));
    done.unwrap_or_else(|failure| failure.tell(globals.output))
}

/// Tells why what somebody typed is no command: to a program that reads JSON as such, and to others as it is.
fn refuse(error: &clap::Error) -> ! {
    let words: Vec<String> = std::env::args().collect();
    let is_output = |word: &str| word == "-o" || word == "--output";
    let wants_json = words.iter().any(|word| ["--json", "--output=json", "-ojson"].contains(&word.as_str()))
        || words.windows(2).any(|pair| is_output(&pair[0]) && pair[1] == "json");
    if error.use_stderr() && wants_json {
        let text = error.render().to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        Failure::usage(message).hint("see --help").tell(Some(Format::Json));
        std::process::exit(2);
    }
    error.exit()
}

/// Does something with a log, metrics and spans. What is logged if nobody says otherwise is `usually`.
fn observed(
    globals: &Globals,
    usually: &str,
    work: impl AsyncFnOnce(&Telemetry) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    observed_with(globals, Options { filter: usually.to_owned(), ..Options::default() }, work)
}

/// The same, as a configuration asks for it.
fn observed_with(
    globals: &Globals,
    mut options: Options,
    work: impl AsyncFnOnce(&Telemetry) -> Result<ExitCode, Failure>,
) -> Result<ExitCode, Failure> {
    if let Some(filter) = globals.log_filter() {
        filter.clone_into(&mut options.filter);
    }
    let telemetry = options
        .varied(place::environment)
        .and_then(Telemetry::start)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::system(format!("the system gives no event loop: {error}")))?;
    let done = runtime.block_on(work(&telemetry));
    // Whoever reads standard input does so until the client writes or leaves, and neither may happen.
    runtime.shutdown_timeout(FAREWELL);
    telemetry.shutdown();
    done
}
