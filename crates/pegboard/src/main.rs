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

impl Command {
    /// The options with a log that suits the command, unless somebody asked for another.
    fn quiet(&self, options: Options) -> Options {
        match self {
            // It provokes failures on purpose, and what it prints is the report.
            Self::Demo { .. } if std::env::var_os("PEGBOARD_LOG").is_none() => {
                Options { filter: "error".to_owned(), ..options }
            }
            Self::Demo { .. } => options,
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let telemetry = match Options::from_environment()
        .map(|options| arguments.command.quiet(options))
        .and_then(Telemetry::start)
    {
        Ok(telemetry) => telemetry,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let code = run(arguments.command, &telemetry).await;
    telemetry.shutdown();
    code
}

async fn run(command: Command, telemetry: &Telemetry) -> ExitCode {
    match command {
        Command::Demo { json } => {
            let report = demo::run(telemetry).await;
            if json {
                report.print_json();
            } else {
                report.print();
            }
            report.exit_code()
        }
    }
}
