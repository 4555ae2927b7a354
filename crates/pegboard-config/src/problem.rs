//! Problems of configuration files, rendered like compiler diagnostics.

use std::fmt;
use std::fmt::Write;
use std::path::PathBuf;

/// Number of characters of a long line to show on each side of a problem.
const WINDOW: usize = 60;

/// A problem of a configuration file: what, where, and what to do.
///
/// It contains no secrets: values of `env` and `headers` and expanded variables are redacted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Severity of the problem.
    pub severity: Severity,
    /// The file, or the name of a source that is not a file: `--set toolTimeout`, `PEGBOARD__TOOL_TIMEOUT`.
    pub file: PathBuf,
    /// Line, from 1; 0 if the source is not a file.
    pub line: usize,
    /// Column in characters, from 1; 0 if the source is not a file.
    pub column: usize,
    /// Path of the value: `mcpServers.github.command`.
    pub path: String,
    /// Description of the problem.
    pub message: String,
    /// Suggested fix.
    pub help: Option<String>,
    /// The unset variable, if that is the problem: the environment is at fault then, not the file.
    pub needs: Option<String>,
    pub(crate) snippet: Snippet,
}

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The enclosing server, chain or file is invalid and left out.
    Error,
    /// Nothing is left out, or only an entry until its variables are set.
    Warning,
}

impl ConfigProblem {
    /// Error code of an invalid file.
    pub const CODE: &str = "config_invalid";

    /// Renders the problem for a terminal, with the affected line.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("pegboard.json");
    /// std::fs::write(&path, r#"{"toolTimeOut": "5m"}"#)?;
    /// let error = pegboard_config::load(&path, &|_| None).unwrap_err();
    /// let text = error.problems()[0].render();
    /// assert!(text.ends_with("
    ///    1 | {\"toolTimeOut\": \"5m\"}
    ///      |  ^^^^^^^^^^^^^ unknown setting
    ///   help: did you mean toolTimeout?"), "{text}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn render(&self) -> String {
        let kind = match self.severity {
            Severity::Error => format!("error[{}]", Self::CODE),
            Severity::Warning => "warning".to_owned(),
        };
        let mut text = format!("{kind}: {}", self.file.display());
        if self.line > 0 {
            let _ = write!(text, ":{}:{}", self.line, self.column);
        }
        if !self.path.is_empty() {
            let _ = write!(text, "  {}", self.path);
        }
        let Snippet { shown, before, n_carets, .. } = &self.snippet;
        if shown.is_empty() {
            let _ = write!(text, "\n  {}", self.message);
        } else {
            let number = if self.line > 0 { self.line.to_string() } else { String::new() };
            let width = number.len().max(4);
            let _ = write!(text, "\n{number:>width$} | {shown}");
            let carets = "^".repeat((*n_carets).max(1));
            let _ = write!(text, "\n{:>width$} | {before}{carets} {}", "", self.message);
        }
        if let Some(help) = &self.help {
            let _ = write!(text, "\n  help: {help}");
        }
        text
    }

    /// Summarizes the problems of a configuration that was not loaded because of them.
    pub fn summary(problems: &[Self]) -> String {
        let n_errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
        let s = if n_errors == 1 { "" } else { "s" };
        let is_of_files = problems.iter().all(|problem| problem.line > 0);
        let is_of_one = problems.iter().all(|problem| problem.file == problems[0].file);
        let subject = match (is_of_files, is_of_one) {
            (true, true) => "this file was",
            (true, false) => "these files were",
            (false, _) => "this configuration was",
        };
        format!("{n_errors} error{s}: {subject} not loaded")
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render())
    }
}

/// The redacted line of a problem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snippet {
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// The line, or the part of a long line around the problem.
    shown: String,
    /// White space up to the problem.
    before: String,
    n_carets: usize,
}

impl Snippet {
    /// Creates a snippet of a line with a problem `n_before` characters from its start, `n_wrong` characters
    /// long.
    pub(crate) fn new(text: &str, n_before: usize, n_wrong: usize) -> Self {
        let n_characters = text.chars().count();
        let n_wrong = n_wrong.min(WINDOW);
        let first = n_before.saturating_sub(WINDOW);
        let last = (n_before + n_wrong + WINDOW).min(n_characters);
        let (cut_before, cut_after) = (first > 0, last < n_characters);
        let middle = || text.chars().skip(first).take(last.saturating_sub(first));
        let shown: String = cut_before
            .then_some('…')
            .into_iter()
            .chain(middle())
            .chain(cut_after.then_some('…'))
            .map(|each| if each.is_control() && each != '\t' { '·' } else { each })
            .collect();
        // Tabs are kept, so that the carets align whatever the tab width.
        let before = cut_before
            .then_some(' ')
            .into_iter()
            .chain(middle().take(n_before - first).map(|each| if each == '\t' { '\t' } else { ' ' }))
            .collect();
        let shown = if text.trim().is_empty() { String::new() } else { shown };
        Self { shown, before, n_carets: n_wrong, ..Self::default() }
    }
}
