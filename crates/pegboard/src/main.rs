//! The `pegboard` command.

use std::process::ExitCode;

use anstream::eprintln;
use clap::{Parser, Subcommand};
use pegboard::telemetry::{Options, Telemetry};

mod demo;

/// The tool runtime and gateway for AI agents.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Try everything there is, on embedded tools, without network or files
    Demo {
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let telemetry = match Options::from_environment().and_then(Telemetry::start) {
        Ok(telemetry) => telemetry,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let code = run(arguments.command).await;
    telemetry.shutdown();
    code
}

async fn run(command: Command) -> ExitCode {
    match command {
        Command::Demo { json } => {
            let report = demo::run().await;
            if json {
                report.print_json();
            } else {
                report.print();
            }
            report.exit_code()
        }
    }
}
