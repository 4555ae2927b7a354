//! Why a command did not do what it should, in one shape: what, where, why, and the fix.

use std::fmt::Write;
use std::io;
use std::process::ExitCode;

use anstream::eprintln;
use pegboard::config::{ConfigurationError, Problem, Severity};
use pegboard::error::ErrorKind;
use serde_json::{Map, Value, json};

use super::{Format, Globals};

/// How a command ends, for programs. The numbers are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The tool, chain or agent reported a failure, or the system did.
    Failed = 1,
    /// The command was used in a way that it cannot be.
    Usage = 2,
    /// A configuration cannot be used.
    Configuration = 3,
    /// There is no such thing.
    NotFound = 4,
    /// A server cannot be started, reached or used.
    Unavailable = 5,
    /// It took too long.
    TimedOut = 6,
    /// The arguments are not as the tool wants them.
    Refused = 7,
    /// A limit was reached.
    OverLimit = 8,
    /// A bug of this program.
    Bug = 70,
    /// Somebody did not want to wait for it.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<ErrorKind> for Exit {
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

/// Why a command did not do what it should.
#[derive(Debug)]
pub(crate) struct Failure(Box<Particulars>);

#[derive(Debug)]
struct Particulars {
    exit: Exit,
    /// The stable word for it.
    code: String,
    /// What is wrong, in one line.
    message: String,
    /// More lines that a person should see.
    details: Vec<String>,
    /// What to do.
    hint: Option<String>,
    /// The way to the value that is wrong.
    path: Option<String>,
    /// Where to look at what happened.
    trace_id: Option<String>,
    /// What is wrong inside files, each with its place.
    problems: Vec<Problem>,
}

impl Failure {
    /// A failure with this code and message.
    pub(crate) fn new(exit: Exit, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self(Box::new(Particulars {
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

    /// The command was used in a way that it cannot be.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, "usage", message)
    }

    /// The system does not do what it should.
    pub(crate) fn system(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, "system", message)
    }

    /// A configuration cannot be used.
    pub(crate) fn configuration(message: impl Into<String>) -> Self {
        Self::new(Exit::Configuration, Problem::CODE, message)
    }

    /// There is no such thing.
    pub(crate) fn not_found(code: &str, message: impl Into<String>) -> Self {
        Self::new(Exit::NotFound, code, message)
    }

    /// A file that somebody named cannot be read.
    pub(crate) fn unreadable(name: &str, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::NotFound => {
                return Self::not_found("not_found", format!("there is no file {name}"));
            }
            io::ErrorKind::IsADirectory => "it is a folder".to_owned(),
            io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
            io::ErrorKind::InvalidData => "it is no text".to_owned(),
            _ => error.to_string(),
        };
        Self::usage(format!("{name} cannot be read: {why}"))
    }

    /// A call came to nothing.
    pub(crate) fn of_kind(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self::new(Exit::from(kind), kind.as_str(), message)
    }

    /// Somebody does not want to wait.
    pub(crate) fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted", "interrupted")
    }

    /// What is wrong inside files, each with its place.
    pub(crate) fn of_problems(problems: Vec<Problem>) -> Self {
        let message = match problems.as_slice() {
            [] => "the configuration cannot be used".to_owned(),
            [only] => only.message.clone(),
            several => format!("{} problems", several.len()),
        };
        let mut failure = Self::configuration(message);
        failure.0.problems = problems;
        failure
    }

    /// With what to do.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// With one more line.
    pub(crate) fn detail(mut self, line: impl Into<String>) -> Self {
        self.0.details.push(line.into());
        self
    }

    /// With the way to the value that is wrong.
    pub(crate) fn at(mut self, path: Option<String>) -> Self {
        self.0.path = path;
        self
    }

    /// With where to look at what happened.
    pub(crate) fn of_trace(mut self, trace_id: Option<String>) -> Self {
        self.0.trace_id = trace_id;
        self
    }

    /// With what to do, if nobody has said it yet.
    pub(crate) fn hint_or(self, hint: &str) -> Self {
        if self.0.hint.is_some() { self } else { self.hint(hint) }
    }

    /// Tells all failures of several things but the last, which is how the command ends. It ends well without any.
    pub(crate) fn told_but_last(mut failures: Vec<Self>, globals: &Globals) -> Result<ExitCode, Self> {
        let last = failures.pop();
        for failure in failures {
            failure.tell(globals.output);
        }
        last.map_or(Ok(ExitCode::SUCCESS), Err)
    }

    /// How it ends the command.
    #[cfg(test)]
    pub(crate) fn exit(&self) -> Exit {
        self.0.exit
    }

    /// Whether somebody did not want to wait.
    pub(crate) fn is_interruption(&self) -> bool {
        self.0.exit == Exit::Interrupted
    }

    /// Whether it is of this kind.
    pub(crate) fn is_of(&self, kind: ErrorKind) -> bool {
        self.0.code == kind.as_str()
    }

    /// For a person.
    pub(crate) fn text(&self) -> String {
        if !self.0.problems.is_empty() {
            let problems = self.0.problems.iter().map(Problem::render);
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

    /// For a program.
    pub(crate) fn document(&self) -> Value {
        let mut error = Map::new();
        error.insert("code".to_owned(), json!(self.0.code));
        error.insert("message".to_owned(), json!(self.0.message));
        let optional = [("hint", &self.0.hint), ("path", &self.0.path), ("trace_id", &self.0.trace_id)];
        for (key, value) in optional {
            if let Some(value) = value {
                error.insert(key.to_owned(), json!(value));
            }
        }
        if !self.0.details.is_empty() {
            error.insert("details".to_owned(), json!(self.0.details));
        }
        if !self.0.problems.is_empty() {
            let problems = self.0.problems.iter().map(problem_document);
            error.insert("problems".to_owned(), problems.collect());
        }
        json!({"error": error})
    }

    /// Tells it on standard error, and gives the exit code. Programs that read results as JSON read failures so, too.
    pub(crate) fn tell(&self, format: Option<Format>) -> ExitCode {
        match format {
            Some(Format::Json | Format::Ndjson) => eprintln!("{}", self.document()),
            Some(Format::Text | Format::Yaml) | None => eprintln!("{}", self.text()),
        }
        self.0.exit.into()
    }
}

/// What is wrong inside a file, for a program.
pub(crate) fn problem_document(problem: &Problem) -> Value {
    json!({
        "file": problem.file,
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
        "hint": problem.help,
    })
}

impl From<ConfigurationError> for Failure {
    fn from(error: ConfigurationError) -> Self {
        match error {
            ConfigurationError::Invalid { problems } => {
                let is_error = |problem: &&Problem| problem.severity == Severity::Error;
                let n_errors = problems.iter().filter(is_error).count();
                let s = if n_errors == 1 { "" } else { "s" };
                Self::of_problems(problems)
                    .detail(format!("{n_errors} error{s}: nothing of this file is used"))
            }
            error @ ConfigurationError::NoSuchPart { .. } => {
                Self::not_found("unknown_server", error.to_string())
            }
            error @ (ConfigurationError::Unknown { .. } | ConfigurationError::NoClientFile { .. }) => {
                Self::not_found("not_found", error.to_string())
            }
            other => Self::configuration(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_why_and_what_to_do() {
        let failure = Failure::of_kind(ErrorKind::ServerUnavailable, "jira exited with 127")
            .detail("stderr: sh: uvx: not found")
            .hint("install uv, or set command for jira");
        insta::assert_snapshot!(failure.text(), @r"
        error[server_unavailable]: jira exited with 127
          stderr: sh: uvx: not found
          help: install uv, or set command for jira
        ");
        insta::assert_snapshot!(failure.document(), @r#"{"error":{"code":"server_unavailable","message":"jira exited with 127","hint":"install uv, or set command for jira","details":["stderr: sh: uvx: not found"]}}"#);
        assert_eq!(failure.0.exit, Exit::Unavailable);
    }
}
