//! The hidden command behind shell completions: completes the last word of a command line.
//!
//! Names come from the running gateway, or else from the configuration and the stored listings. No server is started, no
//! URL is read, and nothing is asked.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, ValueEnum};
use pegboard::telemetry::Telemetry;
use tokio::time;

use crate::Cli;
use crate::cli::format::one_line;
use crate::cli::{CliError, print};
use names::KnownNames;
use words::{PartialLine, WordPlace};

mod names;
mod words;

/// Time limit of the whole completion.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of candidates.
const MAX_CANDIDATES: usize = 500;
/// Maximum number of characters of a description.
const MAX_CHARACTERS: usize = 80;

/// Arguments of `pegboard complete`.
#[derive(Args)]
pub(crate) struct CompleteArgs {
    /// Shell that asks
    #[arg(long)]
    shell: CompletionShell,
    /// Words after the program's name, the last one as far as it is typed; for bash, one text with the line up to the
    /// cursor
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Shell with completions of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// Candidates with their descriptions, which may be empty.
type Candidates = BTreeMap<String, String>;

impl CompleteArgs {
    pub(crate) async fn run(self, telemetry: &Telemetry) -> Result<ExitCode, CliError> {
        let (words, is_quoted) = match self.shell {
            CompletionShell::Bash => words::split(self.words.first().map_or("", String::as_str)),
            CompletionShell::Zsh | CompletionShell::Fish => (self.words, false),
        };
        let mut command = Cli::command();
        command.build();
        let line = PartialLine::new(&command, &words);
        let known = KnownNames::new(&line, telemetry);
        // A shell waits for the answer.
        let candidates = time::timeout(TIMEOUT, candidates(&line, &known)).await.unwrap_or_default();
        let skipped = match self.shell {
            CompletionShell::Bash => words::length_before_break(line.current()),
            CompletionShell::Zsh | CompletionShell::Fish => 0,
        };
        // A value that is not shown as it is would be another one.
        let is_offered = |value: &str| {
            value.starts_with(line.current())
                && one_line(value, usize::MAX) == value
                && !(is_quoted && words::quoted(value) != value)
        };
        for (value, description) in
            candidates.iter().filter(|(value, _)| is_offered(value)).take(MAX_CANDIDATES)
        {
            let value = value.get(skipped..).unwrap_or_default();
            match self.shell {
                CompletionShell::Bash => print::text(&words::quoted(value)),
                CompletionShell::Zsh | CompletionShell::Fish => {
                    print::text(&format!("{value}\t{}", one_line(description, MAX_CHARACTERS)));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn candidates(line: &PartialLine<'_>, known: &KnownNames<'_>) -> Candidates {
    match line.place() {
        WordPlace::Option => line.options(),
        WordPlace::OptionValue { argument, prefix } => {
            let values = known.values_of(line, argument).await;
            values.into_iter().map(|(value, about)| (format!("{prefix}{value}"), about)).collect()
        }
        WordPlace::Positional { argument } => {
            let mut all = line.subcommands();
            if let Some(argument) = argument {
                all.extend(known.values_of(line, argument).await);
            }
            all
        }
    }
}
