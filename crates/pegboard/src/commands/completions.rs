//! `pegboard completions`: shell completions.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::cli::{CliError, print};

/// Arguments of `pegboard completions`.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct CompletionsArgs {
    /// Shell to generate completions for
    shell: Shell,
}

const HELP: &str = "Current session:   source <(pegboard completions bash)\n\
                    Permanently, zsh:  pegboard completions zsh > ~/.zfunc/_pegboard\n\
                    Permanently, fish: pegboard completions fish > ~/.config/fish/completions/pegboard.fish";

impl CompletionsArgs {
    #[expect(clippy::unnecessary_wraps, reason = "commands are alike")]
    pub(crate) fn run(&self) -> Result<ExitCode, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "pegboard", &mut script);
        print::text(&String::from_utf8_lossy(&script));
        Ok(ExitCode::SUCCESS)
    }
}
