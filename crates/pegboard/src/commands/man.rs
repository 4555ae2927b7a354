//! `pegboard man`: the manual.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_mangen::Man;

use crate::Arguments;
use crate::cli::{Failure, print};

/// Which page, or where to all of them.
#[derive(Args)]
#[command(after_help = "To read a page:  pegboard man serve | man -l -")]
pub(crate) struct ManPages {
    /// The command whose page is printed; without it the page about all of them
    #[arg(value_name = "COMMAND")]
    command: Option<String>,
    /// Write all pages into this folder instead
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    out: Option<PathBuf>,
}

impl ManPages {
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let mut whole = Arguments::command().disable_help_subcommand(true);
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

/// The command of a name, called as one types it.
fn named(whole: &clap::Command, name: &str) -> Result<clap::Command, Failure> {
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set());
    let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
    if let Some(command) = whole.find_subcommand(name) {
        return Ok(command.clone().display_name(format!("pegboard-{name}")));
    }
    let failure = Failure::usage(format!("there is no command '{name}'"));
    Err(match pegboard::config::near(name, names.iter().copied()) {
        Some(meant) => failure.hint(format!("did you mean {meant}?")),
        None => failure.hint(format!("there are {}", names.join(", "))),
    })
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(|error| Failure::system(error.to_string()))?;
    Ok(page)
}

fn write_all(whole: clap::Command, folder: &Path) -> Result<(), Failure> {
    let refused = |error: std::io::Error| {
        Failure::system(format!("the pages cannot be written into {}: {error}", folder.display()))
    };
    std::fs::create_dir_all(folder).map_err(refused)?;
    clap_mangen::generate_to(whole, folder).map_err(refused)
}
