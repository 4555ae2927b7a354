//! What all commands have in common: options, where things go, and how failures are told.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, ColorChoice, ValueEnum};
use pegboard::duration::HumanDuration;
use pegboard::error::ErrorKind;
use tokio::time;

pub(crate) mod arguments;
pub(crate) mod failure;
pub(crate) mod print;
pub(crate) mod question;
pub(crate) mod waiting;
pub(crate) mod words;

pub(crate) use failure::{Exit, Failure};

/// The exit codes, as the help tells them.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 well, 1 the tool, chain or agent reported a failure, 2 wrong usage, \
    3 configuration invalid, 4 not found, 5 server unavailable, 6 timed out, 7 arguments refused, 8 over a limit, \
    70 a bug of Pegboard, 130 interrupted";

/// What may be said to every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options for every command")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Globals {
    /// A configuration, instead of the one of this folder: a file of ours or of a client, a folder, a client such as
    /// cursor or cursor:weather, or an address; of several the later counts before the earlier
    #[arg(long, value_name = "SOURCE", global = true)]
    pub(crate) config: Vec<PathBuf>,
    /// One setting, whatever files say: toolTimeout=30s, mcpServers.github.enabled=false
    #[arg(long, value_name = "SETTING=VALUE", global = true)]
    pub(crate) set: Vec<String>,
    /// How results are printed; without it as text on a terminal, and as suits the command elsewhere
    #[arg(
        long,
        short,
        value_name = "FORMAT",
        value_enum,
        global = true,
        default_value_if("json", ArgPredicate::IsPresent, "json")
    )]
    pub(crate) output: Option<Format>,
    /// Print results as JSON: short for --output json
    #[arg(long, global = true, conflicts_with = "output")]
    json: bool,
    /// Ask nobody anything: what would be asked is told instead
    #[arg(long, global = true)]
    pub(crate) no_input: bool,
    /// Ask no gateway that runs, and start what is needed here
    #[arg(long, global = true)]
    pub(crate) no_daemon: bool,
    /// How long a command that asks a gateway, a server or a model waits at most: 30s, 5m
    #[arg(long, value_name = "DURATION", global = true)]
    pub(crate) timeout: Option<HumanDuration>,
    /// Say nothing but results and what goes wrong
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more of what happens; twice for everything
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Whether to use colours
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ColorChoice::Auto, global = true)]
    color: ColorChoice,
    #[arg(
        long,
        value_name = "FOLDER",
        global = true,
        help = "Where state is kept; without it what PEGBOARD_STATE names, or this user's folder for state"
    )]
    pub(crate) state: Option<PathBuf>,
}

/// How results are printed: for people, as one document, or as one in every line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Text,
    Json,
    Ndjson,
    Yaml,
}

impl Globals {
    /// Has everything printed in colours, or not, as somebody wants it. `NO_COLOR` is honoured without a word.
    pub(crate) fn choose_colours(&self) {
        match self.color {
            ColorChoice::Always => anstream::ColorChoice::Always.write_global(),
            ColorChoice::Never => anstream::ColorChoice::Never.write_global(),
            ColorChoice::Auto => {}
        }
    }

    /// The same, for a command that is about this source alone.
    pub(crate) fn looking_at(&self, source: PathBuf) -> Self {
        Self { config: vec![source], ..self.clone() }
    }

    /// Waits for as long as a command may at most, and a little longer if `grace` says so; for ever if nobody sets a limit.
    pub(crate) async fn out_of_time(&self, grace: Duration) -> Failure {
        match self.timeout.map(Duration::from) {
            None => std::future::pending().await,
            Some(limit) => {
                time::sleep(limit + grace).await;
                let message = format!("there was no answer within {}", HumanDuration::from(limit));
                Failure::of_kind(ErrorKind::Timeout, message).hint("give it longer with --timeout")
            }
        }
    }

    /// What is logged, if somebody says so.
    pub(crate) fn log_filter(&self) -> Option<&'static str> {
        match (self.quiet, self.verbose) {
            (true, _) => Some("error"),
            (false, 0) => None,
            (false, 1) => Some("info"),
            (false, _) => Some("debug"),
        }
    }

    /// How results are printed, if nobody says so and `usually` is what suits the command.
    pub(crate) fn format_or(&self, usually: Format) -> Format {
        self.output.unwrap_or(usually)
    }

    /// How data are printed, if nobody says so: as text for people, and as JSON for programs.
    pub(crate) fn data_format(&self) -> Format {
        self.format_or(if print::is_for_people() { Format::Text } else { Format::Json })
    }
}

/// Says something that is no result, on standard error, unless nobody wants to know.
pub(crate) fn remark(globals: &Globals, text: &str) {
    if !globals.quiet {
        anstream::eprintln!("{text}");
    }
}
