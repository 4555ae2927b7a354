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
                    Permanently, bash: pegboard completions bash > ~/.local/share/bash-completion/completions/pegboard\n\
                    Permanently, zsh:  pegboard completions zsh > ~/.zfunc/_pegboard\n\
                    Permanently, fish: pegboard completions fish > ~/.config/fish/completions/pegboard.fish\n\n\
                    In bash, zsh and fish, names of servers, tools and their arguments are completed, too: from the \
                    running gateway, or what it has stored. No server is started.";

const BASH: &str = include_str!("completions/pegboard.bash");
const ZSH: &str = include_str!("completions/_pegboard");
const FISH: &str = include_str!("completions/pegboard.fish");

impl CompletionsArgs {
    #[expect(clippy::unnecessary_wraps, reason = "commands are alike")]
    pub(crate) fn run(&self) -> Result<ExitCode, CliError> {
        match self.shell {
            Shell::Bash => print::text(BASH),
            Shell::Zsh => print::text(ZSH),
            Shell::Fish => print::text(FISH),
            other => {
                let mut script = Vec::new();
                clap_complete::generate(other, &mut Cli::command(), "pegboard", &mut script);
                print::text(&String::from_utf8_lossy(&script));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
