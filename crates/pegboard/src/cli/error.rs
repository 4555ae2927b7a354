//! Errors of commands: message, details and hint, with an exit code.

use std::fmt::Write;
use std::io;
use std::process::ExitCode;

use pegboard::config::backups::BackupError;
use pegboard::config::edit::{EditError, WriteError};
use pegboard::config::trust::TrustError;
use pegboard::config::{ConfigFileError, ConfigProblem, ConfigurationError};
use pegboard::error::ErrorKind;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::format::fit_quotes;
use super::style::{BOLD, PLAIN, RED, YELLOW};
use super::{Globals, OutputFormat, print};

/// Reason for a nonzero exit. The codes are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// The tool, chain or agent reported an error, or the system did.
    Failed = 1,
    /// Invalid command line.
    Usage = 2,
    /// Invalid configuration.
    Configuration = 3,
    /// The named item does not exist.
    NotFound = 4,
    /// A server cannot be started, reached or used.
    Unavailable = 5,
    /// A timeout expired.
    TimedOut = 6,
    /// The arguments do not match the tool's schema.
    Refused = 7,
    /// A limit was exceeded.
    OverLimit = 8,
    /// A bug in Pegboard.
    Bug = 70,
    /// The user interrupted the command.
    Interrupted = 130,
}

impl From<ExitReason> for ExitCode {
    fn from(exit: ExitReason) -> Self {
        Self::from(exit as u8)
    }
}

impl From<ErrorKind> for ExitReason {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::UnknownTool | ErrorKind::UnknownToolbox | ErrorKind::UnknownServer => Self::NotFound,
            ErrorKind::InvalidParameters => Self::Refused,
            ErrorKind::LimitExceeded | ErrorKind::QueueTimeout => Self::OverLimit,
            ErrorKind::Timeout => Self::TimedOut,
            ErrorKind::CircuitOpen
            | ErrorKind::AuthRequired
            | ErrorKind::ServerUnavailable
            | ErrorKind::TransportError => Self::Unavailable,
            ErrorKind::Canceled => Self::Interrupted,
            ErrorKind::NotPermitted | ErrorKind::ExecutionError | ErrorKind::OutputInvalid => Self::Failed,
            ErrorKind::InternalError => Self::Bug,
        }
    }
}

/// Hint for a user without a configuration.
pub(crate) const FIRST_CONFIGURATION: &str =
    "create one with pegboard init, or import the servers of your clients with pegboard import";

/// A command failed.
#[derive(Debug)]
pub(crate) struct CliError(Box<CliErrorDetails>);

#[derive(Debug, Serialize)]
struct CliErrorDetails {
    #[serde(skip)]
    exit: ExitReason,
    /// Stable error code.
    code: String,
    /// One-line message.
    message: String,
    /// Suggested fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Path to the invalid value.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// Trace of the failed call.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    /// Additional lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
    /// Problems in files, each with its location.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "serialize_problems")]
    problems: Vec<ConfigProblem>,
}

impl CliError {
    /// Creates an error with a code and a message.
    pub(crate) fn new(exit: ExitReason, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self(Box::new(CliErrorDetails {
            exit,
            code: code.into(),
            message: message.into(),
            details: Vec::new(),
            hint: None,
            path: None,
            trace_id: None,
            problems: Vec::new(),
        }))
    }

    /// Invalid command line.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitReason::Usage, "usage", message)
    }

    /// Operating system error.
    pub(crate) fn system(message: impl Into<String>) -> Self {
        Self::new(ExitReason::Failed, "system", message)
    }

    /// Invalid configuration.
    pub(crate) fn configuration(message: impl Into<String>) -> Self {
        Self::new(ExitReason::Configuration, ConfigProblem::CODE, message)
    }

    /// The named item does not exist.
    pub(crate) fn not_found(code: &str, message: impl Into<String>) -> Self {
        Self::new(ExitReason::NotFound, code, message)
    }

    /// The named file cannot be read.
    pub(crate) fn unreadable(name: &str, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::NotFound => {
                return Self::not_found("not_found", format!("no such file: {name}"));
            }
            io::ErrorKind::IsADirectory => "is a directory".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
            io::ErrorKind::InvalidData => "not valid UTF-8".to_owned(),
            _ => error.to_string(),
        };
        Self::usage(format!("cannot read {name}: {why}"))
    }

    /// A call failed with this kind of error.
    pub(crate) fn from_kind(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::new(ExitReason::from(kind), kind.as_str(), message)
    }

    /// The user interrupted the command.
    pub(crate) fn interrupted() -> Self {
        Self::new(ExitReason::Interrupted, "interrupted", "interrupted")
    }

    /// Problems in files, each with its location.
    pub(crate) fn from_problems(problems: Vec<ConfigProblem>) -> Self {
        let message = match problems.as_slice() {
            [] => "invalid configuration".to_owned(),
            [only] => only.message.clone(),
            several => format!("{} problems", several.len()),
        };
        let mut failure = Self::configuration(message);
        failure.0.problems = problems;
        failure
    }

    /// Sets the suggested fix.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds a line of detail.
    pub(crate) fn detail(mut self, line: impl Into<String>) -> Self {
        self.0.details.push(line.into());
        self
    }

    /// Sets the path to the invalid value.
    pub(crate) fn with_path(mut self, path: Option<String>) -> Self {
        self.0.path = path;
        self
    }

    /// Sets the trace of the failed call.
    pub(crate) fn with_trace(mut self, trace_id: Option<String>) -> Self {
        self.0.trace_id = trace_id;
        self
    }

    /// Sets the suggested fix unless there is one.
    pub(crate) fn hint_or(self, hint: &str) -> Self {
        if self.0.hint.is_some() { self } else { self.hint(hint) }
    }

    /// Prints all errors but the last and returns the last. Succeeds if there are none.
    pub(crate) fn report_all(mut failures: Vec<Self>, globals: &Globals) -> Result<ExitCode, Self> {
        let last = failures.pop();
        for failure in failures {
            failure.report(globals.output);
        }
        last.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    /// Exit reason.
    #[cfg(test)]
    pub(crate) fn exit(&self) -> ExitReason {
        self.0.exit
    }

    /// Returns `true` if the user interrupted the command.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.0.exit == ExitReason::Interrupted
    }

    /// Returns `true` if no gateway is running.
    pub(crate) fn is_not_running(&self) -> bool {
        self.0.code == "not_running"
    }

    /// Returns `true` if what was named does not exist.
    pub(crate) fn is_not_found(&self) -> bool {
        self.0.exit == ExitReason::NotFound
    }

    /// Message in one line.
    pub(crate) fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns `true` if the error has this kind.
    pub(crate) fn is_kind(&self, kind: ErrorKind) -> bool {
        self.0.code == kind.as_str()
    }

    /// Message with its details, on one line.
    pub(crate) fn summary(&self) -> String {
        std::iter::once(&self.0.message).chain(&self.0.details).cloned().collect::<Vec<_>>().join("; ")
    }

    /// Suggested fix.
    pub(crate) fn suggested_fix(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Renders the error as text.
    pub(crate) fn text(&self) -> String {
        if !self.0.problems.is_empty() {
            let problems = self.0.problems.iter().map(ConfigProblem::render);
            return problems.chain(self.0.details.iter().cloned()).collect::<Vec<_>>().join("\n");
        }
        let mut text = format!("error[{}]: {}", self.0.code, self.0.message.replace('\n', "\n  "));
        for detail in &self.0.details {
            let _ = write!(text, "\n  {detail}");
        }
        if let Some(hint) = &self.0.hint {
            let _ = write!(text, "\n  help: {hint}");
        }
        text
    }

    /// Renders the error as JSON.
    pub(crate) fn document(&self) -> Value {
        json!({"error": self.0})
    }

    /// Prints the error to standard error and returns the exit code. JSON output formats get a JSON error.
    pub(crate) fn report(&self, format: Option<OutputFormat>) -> ExitCode {
        match format {
            Some(OutputFormat::Json | OutputFormat::Ndjson) => {
                print::error_json(&self.document().to_string());
            }
            Some(OutputFormat::Text | OutputFormat::Yaml) | None => {
                print::error_line(&colored(&fit_quotes(&self.text(), print::error_width())));
            }
        }
        self.0.exit.into()
    }
}

/// Colors the severities, the carets and the hints of diagnostics.
pub(crate) fn colored(diagnostics: &str) -> String {
    let mut style = RED;
    let line = |line: &str| {
        let start = line.trim_start();
        if line.starts_with("error[") || line.starts_with("warning: ") {
            style = if line.starts_with('w') { YELLOW } else { RED };
            let (severity, rest) = line.split_once(": ").unwrap_or((line, ""));
            return format!("{style}{severity}{PLAIN}: {rest}");
        }
        match line.find('^') {
            _ if start.starts_with("help: ") => line.replacen("help", &format!("{BOLD}help{PLAIN}"), 1),
            Some(at) if start.starts_with("| ") => {
                format!("{}{style}{}{PLAIN}", &line[..at], &line[at..])
            }
            _ => line.to_owned(),
        }
    };
    diagnostics.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn serialize_problems<S: Serializer>(problems: &[ConfigProblem], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(problems.iter().map(problem_document))
}

/// Renders a problem in a file as JSON.
pub(crate) fn problem_document(problem: &ConfigProblem) -> Value {
    json!({
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
        "hint": problem.help,
    })
}

impl From<ConfigurationError> for CliError {
    fn from(error: ConfigurationError) -> Self {
        match error {
            ConfigurationError::Invalid { problems } => {
                let summary = ConfigProblem::summary(&problems);
                Self::from_problems(problems).detail(summary)
            }
            error @ ConfigurationError::NoSuchServer { .. } => {
                Self::not_found("unknown_server", error.to_string())
            }
            error @ (ConfigurationError::UnknownSource { .. }
            | ConfigurationError::NoClientFile { .. }
            | ConfigurationError::NotFound { .. }) => Self::not_found("not_found", error.to_string()),
            error @ ConfigurationError::NoConfiguration { .. } => {
                Self::configuration(error.to_string()).hint(FIRST_CONFIGURATION)
            }
            other => Self::configuration(other.to_string()),
        }
    }
}

impl From<ConfigFileError> for CliError {
    fn from(error: ConfigFileError) -> Self {
        let message = error.to_string();
        match error {
            ConfigFileError::Unreadable(error) => error.into(),
            ConfigFileError::InvalidBefore(error) => {
                Self::from(error).detail("fix this first; the file was not changed")
            }
            ConfigFileError::InvalidAfter { path, error } => {
                let failure = match error {
                    ConfigurationError::Invalid { problems } => Self::from_problems(problems),
                    other => other.into(),
                };
                failure.detail(format!("{} was not changed", path.display()))
            }
            ConfigFileError::Edit(error) => error.into(),
            ConfigFileError::SeveralToolboxes { names } => {
                Self::usage(message).hint(format!("choose one with -b: {}", names.join(", ")))
            }
            ConfigFileError::NoUrlSupport { .. } => {
                Self::usage(message).hint("remove --http to have it start a program")
            }
        }
    }
}

impl From<TrustError> for CliError {
    fn from(error: TrustError) -> Self {
        let failure = Self::system(error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

impl From<EditError> for CliError {
    fn from(EditError::Unsafe(problem): EditError) -> Self {
        Self::from_problems(vec![*problem])
    }
}

impl From<WriteError> for CliError {
    fn from(error: WriteError) -> Self {
        Self::system(error.to_string())
    }
}

impl From<BackupError> for CliError {
    fn from(error: BackupError) -> Self {
        let failure = Self::system(error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_setting_of_the_command_line_is_not_reported_as_a_file() {
        let layers = pegboard::config::Layers::new(std::path::Path::new("/")).set("toolTimeout=soon");
        let error = pegboard::config::load_layers(&layers, &|_| None).unwrap_err();
        insta::assert_snapshot!(CliError::from(error).text(), @"
        error[config_invalid]: --set toolTimeout  toolTimeout
             | toolTimeout=soon
             |             ^^^^ duration must be a millisecond number, or a duration like 5m/2h/1d, not 'soon'
        1 error: this configuration was not loaded
        ");
    }

    #[test]
    fn severities_carets_and_hints_have_colors() {
        let text = "error[config_invalid]: a:1:2\n   1 | x^\n     | ^^ wrong\n  help: fix it\nwarning: b\n     | ^ odd";
        let rendered = crate::cli::style::render(&colored(text)).replace('\u{1b}', "ESC");
        insta::assert_snapshot!(rendered, @"
        ESC[31merror[config_invalid]ESC[0m: a:1:2
           1 | x^
             | ESC[31m^^ wrongESC[0m
          ESC[1mhelpESC[0m: fix it
        ESC[33mwarningESC[0m: b
             | ESC[33m^ oddESC[0m
        ");
        assert_eq!(anstream::adapter::strip_str(&rendered.replace("ESC", "\u{1b}")).to_string(), text);
    }

    #[test]
    fn an_error_has_a_message_details_and_a_hint() {
        let failure = CliError::from_kind(ErrorKind::ServerUnavailable, "jira exited with 127")
            .detail("stderr: sh: uvx: not found")
            .hint("install uv, or set command for jira");
        insta::assert_snapshot!(failure.text(), @r"
        error[server_unavailable]: jira exited with 127
          stderr: sh: uvx: not found
          help: install uv, or set command for jira
        ");
        insta::assert_snapshot!(failure.document(), @r#"{"error":{"code":"server_unavailable","message":"jira exited with 127","hint":"install uv, or set command for jira","details":["stderr: sh: uvx: not found"]}}"#);
        assert_eq!(failure.0.exit, ExitReason::Unavailable);
    }
}
