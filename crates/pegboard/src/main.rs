//! The `pegboard` command.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anstream::eprintln;
use clap::{Parser, Subcommand};
use pegboard::telemetry::{Options, Telemetry};

mod demo;
mod openapi;
mod place;
mod reload;
mod run;
mod serve;
mod status;
mod unread;

/// How long work that cannot be interrupted may take to end when everything else has.
const FAREWELL: Duration = Duration::from_millis(500);

/// The tool runtime and gateway for AI agents.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show everything there is, through an MCP endpoint of its own, without network or files
    Demo {
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
    },
    /// Be one of the servers of the demo; for Pegboard itself
    #[command(hide = true)]
    DemoServer {
        /// Which one
        server: demo::servers::DemoServer,
    },
    /// Show which tools an OpenAPI document comes to, and which of its operations are none
    Openapi(openapi::Openapi),
    /// Ask an agent once, and print its answer
    Run(run::Run),
    /// Serve every tool of a configuration behind one MCP endpoint
    Serve(serve::Serve),
    /// Watch one program and end everything it started; for Pegboard itself
    #[cfg(unix)]
    #[command(hide = true)]
    Supervise {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        // It provokes failures on purpose, and what it prints is the report.
        Command::Demo { json } => observed("error", async |telemetry| {
            let report = demo::run(telemetry).await;
            if json {
                report.print_json();
            } else {
                report.print();
            }
            report.exit_code()
        }),
        Command::DemoServer { server } => server.run(),
        Command::Openapi(openapi) => observed("error", async |_| openapi.run().await),
        // What goes wrong on the way is told as it happens.
        Command::Run(run) => observed("error", async |telemetry| run.run(telemetry).await),
        Command::Serve(serve) => observed("warn", async |telemetry| serve.run(telemetry).await),
        // It is one of many, and what it prints is what the program says: no log, no event loop but its own.
        #[cfg(unix)]
        Command::Supervise { program } => pegboard::providers::process::supervise(program),
    }
}

/// Does something with a log, metrics and spans. What is logged if nobody says otherwise is `usually`.
fn observed(usually: &str, work: impl AsyncFnOnce(&Telemetry) -> ExitCode) -> ExitCode {
    let options = Options::from_environment().map(|options| match std::env::var_os("PEGBOARD_LOG") {
        Some(_) => options,
        None => Options { filter: usually.to_owned(), ..options },
    });
    let telemetry = match options.and_then(Telemetry::start) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let code = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(work(&telemetry));
            // Whoever reads standard input does so until the client writes or leaves, and neither may happen.
            runtime.shutdown_timeout(FAREWELL);
            code
        }
        Err(error) => {
            eprintln!("error: the system gives no event loop: {error}");
            ExitCode::FAILURE
        }
    };
    telemetry.shutdown();
    code
}
