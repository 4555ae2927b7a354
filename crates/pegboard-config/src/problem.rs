//! What is wrong with a file, and where, told like a compiler does.

use std::fmt;
use std::fmt::Write;
use std::path::PathBuf;

/// How many characters of a long line are shown on each side of what is wrong.
const WINDOW: usize = 60;

/// One thing that is wrong with a file: what, where, and what to do.
///
/// Nothing in it is secret: values of `env` and `headers` are starred out, and so is what came from a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file, or the name of a setting that is in none: `--set toolTimeout`, `PEGBOARD__TOOL_TIMEOUT`.
    pub file: PathBuf,
    /// The line, from 1; 0 for what is in no file.
    pub line: usize,
    /// The column, in characters, from 1; 0 for what is in no file.
    pub column: usize,
    /// The way to the value: `mcpServers.github.command`.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
    /// The variable that is not set, if that is what is wrong: not with the file, but with where it is read.
    pub needs: Option<String>,
    pub(crate) snippet: Snippet,
}

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// What it stands in is left out: a server, a chain, or the whole file.
    Error,
    /// It changes nothing.
    Warning,
}

impl Problem {
    /// What a program calls a file that is wrong.
    pub const CODE: &str = "config_invalid";

    /// The problem for a person to read, with the line that it is in.
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
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render())
    }
}

/// The line that a problem is in, as far as it may be seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snippet {
    pub(crate) line: usize,
    pub(crate) column: usize,
    /// The line, or what of a long one is around the problem.
    shown: String,
    /// As much white space as leads to the problem.
    before: String,
    n_carets: usize,
}

impl Snippet {
    /// A line, or the part of a long one, with something wrong `n_before` characters from its start, over `n_wrong` characters.
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
        // Tabs stay tabs, so that the carets stand where they belong whatever a tab is worth.
        let before = cut_before
            .then_some(' ')
            .into_iter()
            .chain(middle().take(n_before - first).map(|each| if each == '\t' { '\t' } else { ' ' }))
            .collect();
        let shown = if text.trim().is_empty() { String::new() } else { shown };
        Self { shown, before, n_carets: n_wrong, ..Self::default() }
    }
}
