//! `pegboard validate`: checks configurations without starting anything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::{Configuration, ConfigurationError};
use serde_json::{Value, json};

use crate::cli::format::columns;
use crate::cli::{CliError, ExitReason, Globals, OutputFormat, print};
use crate::paths::ConfigSelection;
use report::{ValidationMode, ValidationReport, ValidationVerdict};

mod origins;
mod report;

/// Arguments of `pegboard validate`.
#[derive(Args)]
pub(crate) struct ValidateArgs {
    /// Files, directories or clients such as cursor, each checked by itself; by default the configuration
    /// that commands in this directory use
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Treat warnings and unusable entries as errors
    #[arg(long)]
    strict: bool,
    /// Print every value with its source instead, or only those below a key: --origins=mcpServers.github
    #[arg(long, value_name = "KEY", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    origins: Option<String>,
}

impl ValidateArgs {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, CliError> {
        let has_others = !globals.config.is_empty() || !globals.set.is_empty();
        if has_others && !self.files.is_empty() {
            let message = "FILE cannot be combined with --config or --set: files are checked by themselves";
            return Err(
                CliError::usage(message).hint("omit FILE to check the configuration with --config and --set")
            );
        }
        let selection = ConfigSelection::from_globals(globals)?;
        if let Some(under) = &self.origins {
            return self.print_origins(globals, &selection, under);
        }
        let project = selection.project();
        let mut reports = Vec::new();
        if self.files.is_empty() {
            let read = match selection.inspect_required() {
                read @ (Ok(_) | Err(ConfigurationError::Invalid { .. })) => read,
                Err(error) => return Err(error.into()),
            };
            reports.push(ValidationReport::check(selection.files().to_string(), read, &project).await);
        }
        for file in &self.files {
            reports.push(
                ValidationReport::check(display_path(file), selection.read_source(file), &project).await,
            );
        }
        let mode = if self.strict { ValidationMode::Strict } else { ValidationMode::Normal };
        print_reports(globals, &reports, mode);
        Ok(exit_code(&reports, mode))
    }

    fn print_origins(
        &self,
        globals: &Globals,
        selection: &ConfigSelection,
        under: &str,
    ) -> Result<ExitCode, CliError> {
        let configurations: Vec<Configuration> = if self.files.is_empty() {
            vec![selection.inspect()?]
        } else {
            let read = |file: &PathBuf| selection.read_source(file).map_err(load_error);
            self.files.iter().map(read).collect::<Result<_, _>>()?
        };
        let settings = origins::under(&configurations, under)?;
        let format = globals.data_format();
        match format {
            OutputFormat::Text => print::text(&origins::table(&settings)),
            OutputFormat::Json | OutputFormat::Ndjson | OutputFormat::Yaml => {
                print::list(format, &origins::document(&settings));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns `true` if the source does not exist.
fn is_absent(error: &ConfigurationError) -> bool {
    match error {
        ConfigurationError::NotFound { .. }
        | ConfigurationError::NoConfiguration { .. }
        | ConfigurationError::UnknownSource { .. }
        | ConfigurationError::NoClientFile { .. }
        | ConfigurationError::NoSuchServer { .. } => true,
        ConfigurationError::IsDirectory { .. }
        | ConfigurationError::Unreadable { .. }
        | ConfigurationError::UnsafeFile { .. }
        | ConfigurationError::TooLarge { .. }
        | ConfigurationError::NotUtf8 { .. }
        | ConfigurationError::Empty { .. }
        | ConfigurationError::Invalid { .. } => false,
    }
}

/// Error for a source that cannot be loaded.
fn load_error(error: ConfigurationError) -> CliError {
    if is_absent(&error) {
        CliError::not_found("not_found", error.to_string())
    } else {
        CliError::from(error)
    }
}

fn print_reports(globals: &Globals, reports: &[ValidationReport], mode: ValidationMode) {
    match globals.format_or(OutputFormat::Text) {
        OutputFormat::Text => {
            for report in reports {
                report.print(globals, mode);
            }
            let rows: Vec<Vec<String>> = reports.iter().flat_map(|report| report.rows(mode)).collect();
            print::text(&columns(&rows));
        }
        OutputFormat::Ndjson => print::list(OutputFormat::Ndjson, &documents(reports, mode)),
        format @ (OutputFormat::Json | OutputFormat::Yaml) => {
            let is_valid = reports.iter().all(|report| report.verdict(mode) == ValidationVerdict::Valid);
            let document = json!({"ok": is_valid, "files": documents(reports, mode)});
            print::document(format, &document, String::new);
        }
    }
}

fn documents(reports: &[ValidationReport], mode: ValidationMode) -> Value {
    reports.iter().map(|report| report.document(mode)).collect()
}

/// Exit code for the worst report.
fn exit_code(reports: &[ValidationReport], mode: ValidationMode) -> ExitCode {
    let has = |verdict: ValidationVerdict| reports.iter().any(|report| report.verdict(mode) == verdict);
    if has(ValidationVerdict::Invalid) {
        ExitReason::Configuration.into()
    } else if has(ValidationVerdict::Absent) {
        ExitReason::NotFound.into()
    } else {
        ExitCode::SUCCESS
    }
}

/// Path as the user wrote it.
fn display_path(path: &Path) -> String {
    path.display().to_string()
}
