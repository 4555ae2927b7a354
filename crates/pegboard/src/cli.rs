//! Parts shared by all commands: global options, output and errors.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, ColorChoice, ValueEnum};
use pegboard::duration::HumanDuration;
use pegboard::error::ErrorKind;
use tokio::time;

pub(crate) mod arguments;
pub(crate) mod error;
pub(crate) mod format;
pub(crate) mod print;
pub(crate) mod prompt;
pub(crate) mod spinner;
pub(crate) mod style;

pub(crate) use error::{CliError, ExitReason};

/// Exit codes as listed in the help.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 success, 1 the tool, chain or agent reported an error, 2 usage error, \
    3 invalid configuration, 4 not found, 5 server unavailable, 6 timeout, 7 invalid arguments, 8 limit exceeded, \
    70 internal error, 130 interrupted";

/// Options that every command accepts.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Globals {
    /// Load configuration from this source instead of the current directory: a file, a directory, a client
    /// such as cursor or cursor:weather, or a URL; can be repeated, later sources override earlier ones
    #[arg(long, value_name = "SOURCE", global = true)]
    pub(crate) config: Vec<PathBuf>,
    /// Run as if started in this folder
    #[arg(long, value_name = "FOLDER", global = true)]
    pub(crate) directory: Option<PathBuf>,
    /// Override one setting: toolTimeout=30s, mcpServers.github.enabled=false
    #[arg(long, value_name = "SETTING=VALUE", global = true)]
    pub(crate) set: Vec<String>,
    /// Output format; text by default, also in a pipe
    #[arg(
        long,
        short,
        value_name = "FORMAT",
        value_enum,
        global = true,
        default_value_if("json", ArgPredicate::IsPresent, "json")
    )]
    pub(crate) output: Option<OutputFormat>,
    /// Print results as JSON; short for --output json
    #[arg(long, global = true, conflicts_with = "output")]
    json: bool,
    /// Never prompt; fail if input is needed
    #[arg(long, global = true)]
    pub(crate) no_input: bool,
    /// Use the project's configuration files without asking, this time; see `pegboard trust`
    #[arg(long, global = true)]
    pub(crate) trust: bool,
    /// Do not use a running gateway; start servers in this process
    #[arg(long, global = true)]
    pub(crate) no_daemon: bool,
    /// Maximum time to wait for a gateway, a server or a model: 30s, 5m
    #[arg(long, value_name = "DURATION", value_parser = duration_with_unit, global = true)]
    pub(crate) timeout: Option<HumanDuration>,
    /// Print only results and errors
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print more diagnostics; repeat for debug output
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Control the use of colors
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = ColorChoice::Auto, global = true)]
    color: ColorChoice,
    #[arg(
        long,
        value_name = "FOLDER",
        global = true,
        help = "State directory; by default PEGBOARD_STATE, or the user's state directory"
    )]
    pub(crate) state: Option<PathBuf>,
}

/// Format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Text,
    Json,
    Ndjson,
    Yaml,
}

impl Globals {
    /// Applies `--color`. With `auto`, `NO_COLOR` is honored by the terminal library.
    pub(crate) fn apply_color_choice(&self) {
        match self.color {
            ColorChoice::Always => anstream::ColorChoice::Always.write_global(),
            ColorChoice::Never => anstream::ColorChoice::Never.write_global(),
            ColorChoice::Auto => {}
        }
    }

    /// Changes to the folder of `--directory`.
    pub(crate) fn enter_directory(&self) -> Result<(), CliError> {
        let Some(folder) = &self.directory else { return Ok(()) };
        std::env::set_current_dir(folder).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                CliError::not_found("not_found", format!("no such folder: {}", folder.display()))
            }
            _ => CliError::system(format!("{}: {error}", folder.display())),
        })
    }

    /// Returns the same options with `source` as the only configuration.
    pub(crate) fn with_only_config(&self, source: PathBuf) -> Self {
        Self { config: vec![source], ..self.clone() }
    }

    /// Resolves to a timeout error once `--timeout` plus `grace` has passed; never resolves without
    /// `--timeout`.
    pub(crate) async fn deadline(&self, grace: Duration) -> CliError {
        match self.timeout.map(Duration::from) {
            None => std::future::pending().await,
            Some(limit) => {
                time::sleep(limit + grace).await;
                let message = format!("no answer within {}", HumanDuration::from(limit));
                CliError::from_kind(ErrorKind::Timeout, message).hint("increase it with --timeout")
            }
        }
    }

    /// Log filter set by `--quiet` or `--verbose`, if any.
    pub(crate) fn log_filter(&self) -> Option<&'static str> {
        match (self.quiet, self.verbose) {
            (true, _) => Some("error"),
            (false, 0) => None,
            (false, 1) => Some("info"),
            (false, _) => Some("debug"),
        }
    }

    /// Returns the format of `--output`, or `default`.
    pub(crate) fn format_or(&self, default: OutputFormat) -> OutputFormat {
        self.output.unwrap_or(default)
    }

    /// Returns the format of `--output`, or else text.
    pub(crate) fn data_format(&self) -> OutputFormat {
        self.format_or(OutputFormat::Text)
    }
}

/// Parses a duration. A number alone is rejected: milliseconds, as in files, are not what a user means.
pub(crate) fn duration_with_unit(text: &str) -> Result<HumanDuration, String> {
    let duration = text.parse::<HumanDuration>().map_err(|_| "use a number with a unit: 500ms, 30s, 5m")?;
    match text.trim().parse::<f64>() {
        Ok(number) if number > 0.0 => Err(format!("add a unit: {number}s or {number}ms")),
        Ok(_) | Err(_) => Ok(duration),
    }
}

/// Prints a line that is not a result to standard error, unless `--quiet` is set.
pub(crate) fn notice(globals: &Globals, text: &str) {
    if !globals.quiet {
        print::error_line(&format::fit(text, print::error_width()));
    }
}
