//! `pegboard validate`: whether configurations can be used, without starting anything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pegboard::config::{Configuration, ConfigurationError};
use serde_json::{Value, json};

use crate::cli::words::columns;
use crate::cli::{Exit, Failure, Format, Globals, print};
use crate::place::Wanted;
use report::{Measure, Report, Verdict};

mod origins;
mod report;

/// What is checked, and how strictly.
#[derive(Args)]
pub(crate) struct Validate {
    /// What is checked, each by itself: any file that is read here, a folder, or a client such as cursor; without it,
    /// what a command in this folder would use
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Let warnings, and parts that cannot be used, count as errors
    #[arg(long)]
    strict: bool,
    /// Print every value and where it is from instead, or those at one place: --origins=mcpServers.github
    #[arg(long, value_name = "WAY", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    origins: Option<String>,
}

impl Validate {
    pub(crate) async fn run(self, globals: &Globals) -> Result<ExitCode, Failure> {
        let has_others = !globals.config.is_empty() || !globals.set.is_empty();
        if has_others && !self.files.is_empty() {
            let message = "files are checked each by itself, without --config and --set";
            return Err(Failure::usage(message)
                .hint("name no file to check all that a command would use, with --config and --set"));
        }
        let wanted = Wanted::of(globals)?;
        if let Some(under) = &self.origins {
            return self.tell_origins(globals, &wanted, under);
        }
        let project = wanted.project();
        let mut reports = Vec::new();
        if self.files.is_empty() {
            let read = match wanted.read_some() {
                read @ (Ok(_) | Err(ConfigurationError::Invalid { .. })) => read,
                Err(error) => return Err(error.into()),
            };
            reports.push(Report::of(wanted.files(), read, &project).await);
        }
        for file in &self.files {
            reports.push(Report::of(shown(file), wanted.read_alone(file), &project).await);
        }
        let measure = if self.strict { Measure::Strict } else { Measure::Usual };
        tell(globals, &reports, measure);
        Ok(end(&reports, measure))
    }

    fn tell_origins(&self, globals: &Globals, wanted: &Wanted, under: &str) -> Result<ExitCode, Failure> {
        let configurations: Vec<Configuration> = if self.files.is_empty() {
            vec![wanted.read()?]
        } else {
            let read = |file: &PathBuf| wanted.read_alone(file).map_err(unread);
            self.files.iter().map(read).collect::<Result<_, _>>()?
        };
        let settings = origins::under(&configurations, under)?;
        let format = globals.data_format();
        match format {
            Format::Text => print::text(&origins::table(&settings)),
            Format::Json | Format::Ndjson | Format::Yaml => {
                print::list(format, &origins::document(&settings));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Whether something that somebody named is not there at all.
fn is_absent(error: &ConfigurationError) -> bool {
    match error {
        ConfigurationError::NotThere { .. }
        | ConfigurationError::NoneFound { .. }
        | ConfigurationError::Unknown { .. }
        | ConfigurationError::NoClientFile { .. }
        | ConfigurationError::NoSuchPart { .. } => true,
        ConfigurationError::Folder { .. }
        | ConfigurationError::Unreadable { .. }
        | ConfigurationError::TooLarge { .. }
        | ConfigurationError::NotText { .. }
        | ConfigurationError::Empty { .. }
        | ConfigurationError::Invalid { .. } => false,
    }
}

/// Why something that somebody named comes to nothing.
fn unread(error: ConfigurationError) -> Failure {
    if is_absent(&error) { Failure::not_found("not_found", error.to_string()) } else { Failure::from(error) }
}

fn tell(globals: &Globals, reports: &[Report], measure: Measure) {
    match globals.format_or(Format::Text) {
        Format::Text => {
            for report in reports {
                report.tell(globals, measure);
            }
            let rows: Vec<Vec<String>> = reports.iter().flat_map(|report| report.rows(measure)).collect();
            print::text(&columns(&rows));
        }
        Format::Ndjson => print::list(Format::Ndjson, &documents(reports, measure)),
        format @ (Format::Json | Format::Yaml) => {
            let is_well = reports.iter().all(|report| report.verdict(measure) == Verdict::Well);
            let document = json!({"ok": is_well, "files": documents(reports, measure)});
            print::document(format, &document, String::new);
        }
    }
}

fn documents(reports: &[Report], measure: Measure) -> Value {
    reports.iter().map(|report| report.document(measure)).collect()
}

/// How the command ends: by the worst that was found.
fn end(reports: &[Report], measure: Measure) -> ExitCode {
    let has = |verdict: Verdict| reports.iter().any(|report| report.verdict(measure) == verdict);
    if has(Verdict::Wrong) {
        Exit::Configuration.into()
    } else if has(Verdict::Absent) {
        Exit::NotFound.into()
    } else {
        ExitCode::SUCCESS
    }
}

/// A path as somebody names it.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
