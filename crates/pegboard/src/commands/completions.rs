//! `pegboard completions`: what a shell needs to complete commands and options.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Arguments;
use crate::cli::{Failure, print};

/// For which shell.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

const HELP: &str = "For this session:      source <(pegboard completions bash)\n\
                    For all of them, zsh:  pegboard completions zsh > ~/.zfunc/_pegboard\n\
                    For all of them, fish: pegboard completions fish > ~/.config/fish/completions/pegboard.fish";

impl Completions {
    #[expect(clippy::unnecessary_wraps, reason = "commands are alike")]
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "pegboard", &mut script);
        print::text(&String::from_utf8_lossy(&script));
        Ok(ExitCode::SUCCESS)
    }
}
