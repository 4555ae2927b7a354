//! `pegboard man`: man pages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_mangen::Man;
use pegboard::config::did_you_mean;

use crate::Cli;
use crate::cli::{CliError, print};

/// Arguments of `pegboard man`.
#[derive(Args)]
#[command(after_help = "To read a page:  pegboard man serve | man -l -")]
pub(crate) struct ManArgs {
    /// Command to print the page of; the overview page by default
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
    /// Write all pages to this directory instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    out: Option<PathBuf>,
}

impl ManArgs {
    pub(crate) fn run(&self) -> Result<ExitCode, CliError> {
        let mut whole = Cli::command().disable_help_subcommand(true);
        whole.build();
        if let Some(folder) = &self.out {
            write_all(whole, folder)?;
            return Ok(ExitCode::SUCCESS);
        }
        let command = match &self.command {
            None => whole,
            Some(name) => named(&whole, name)?,
        };
        print::text(&String::from_utf8_lossy(&page(command)?));
        Ok(ExitCode::SUCCESS)
    }
}

/// Finds a command by name.
fn named(whole: &clap::Command, name: &str) -> Result<clap::Command, CliError> {
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
    if let Some(command) = whole.find_subcommand(name) {
        return Ok(command.clone().display_name(format!("pegboard-{name}")));
    }
    let failure = CliError::usage(format!("no such command '{name}'"));
    let meant = did_you_mean(name, names.iter().copied());
    Err(failure.hint(meant.unwrap_or_else(|| format!("expected one of {}", names.join(", ")))))
}

fn page(command: clap::Command) -> Result<Vec<u8>, CliError> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(|error| CliError::system(error.to_string()))?;
    Ok(page)
}

fn write_all(whole: clap::Command, folder: &Path) -> Result<(), CliError> {
    let write_failed = |error: std::io::Error| {
        CliError::system(format!("cannot write pages to {}: {error}", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(write_failed)?;
    clap_mangen::generate_to(whole, folder).map_err(write_failed)
}
