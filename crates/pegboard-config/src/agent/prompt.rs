//! The prompt of an agent file: the text below the header, with includes expanded.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::problem::{ConfigProblem, Severity};
use crate::source::SourceText;
use crate::tree::{Node, Span, Value};

/// Maximum nesting depth of includes.
const MAX_DEPTH: usize = 8;
/// Maximum size of a prompt with all includes.
const MAX_BYTES: usize = 1024 * 1024;
/// Maximum number of includes in one prompt.
const MAX_FILES: usize = 1_000;
/// Maximum number of problems reported for a prompt.
const MAX_PROBLEMS: usize = 20;
/// Opening and closing markers of an include.
const INCLUDE_MARKERS: [(&str, &str); 2] = [("${include:", "}"), ("{{include:", "}}")];

/// Byte offsets of the parts of an agent file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AgentFileParts {
    /// End of the header. Everything before it parses as YAML, since a `#!` line is a comment there.
    pub(super) header_end: usize,
    /// Start of the prompt.
    pub(super) prompt: usize,
}

impl AgentFileParts {
    /// Finds the header between its two `---` lines. The error has the span and the message.
    pub(super) fn of(body: &str) -> Result<Self, (Span, &'static str)> {
        let mut lines = lines(body).filter(|(span, line)| !(span.start == 0 && line.starts_with("#!")));
        let first = lines.find(|(_, line)| !line.is_empty());
        match first {
            Some((_, "---")) => {}
            Some((span, _)) => return Err((span, "expected a header: an agent file starts with ---")),
            None => return Err((Span::new(0, 0), "the file is empty")),
        }
        let opening = first.map_or(Span::new(0, 0), |(span, _)| span);
        match lines.find(|(_, line)| *line == "---") {
            Some((span, _)) => {
                let after = body[span.end..].find('\n').map_or(body.len(), |end| span.end + end + 1);
                Ok(Self { header_end: span.start, prompt: after })
            }
            None => Err((opening, "unclosed header")),
        }
    }
}

/// Returns the lines of a text without trailing white space, with their spans.
fn lines(body: &str) -> impl Iterator<Item = (Span, &str)> {
    let mut start = 0;
    body.split_inclusive('\n').map(move |line| {
        let trimmed = line.trim_end();
        let span = Span::new(start, start + trimmed.len());
        start += line.len();
        (span, trimmed)
    })
}

/// Expands the includes of a prompt.
pub(super) struct IncludeExpander<'i> {
    /// Directory that includes must be inside of.
    root: &'i Path,
    /// Files being expanded, starting with the agent's: canonical path and name as written.
    stack: Vec<(PathBuf, String)>,
    n_files: usize,
    pub(super) problems: Vec<ConfigProblem>,
    /// Every path that was looked up, whether it exists or not.
    pub(super) files: Vec<PathBuf>,
}

impl<'i> IncludeExpander<'i> {
    /// Creates an expander for the agent at `path`, which must be canonical.
    pub(super) fn new(root: &'i Path, path: &Path) -> Self {
        Self {
            root,
            stack: vec![(path.to_owned(), file_name(path))],
            n_files: 0,
            problems: Vec::new(),
            files: Vec::new(),
        }
    }

    /// Returns the text from an offset on, with all includes expanded.
    pub(super) fn prompt(&mut self, text: &SourceText, from: usize) -> String {
        let mut prompt = String::new();
        self.expand(text, from, &mut prompt);
        prompt.trim().to_owned()
    }

    fn expand(&mut self, text: &SourceText, from: usize, prompt: &mut String) {
        let body = &text.body;
        let mut at = from;
        while let Some((start, (opening, closing))) = next_include(body, at) {
            prompt.push_str(&body[at..start]);
            let name_start = start + opening.len();
            let line_end = body[name_start..].find('\n').map_or(body.len(), |end| name_start + end);
            let Some(length) = body[name_start..line_end].find(closing) else {
                let span = Span::new(start, line_end);
                self.report(text, span, "unclosed include".to_owned(), format!("close it with {closing}"));
                at = line_end;
                continue;
            };
            at = name_start + length + closing.len();
            let name = body[name_start..name_start + length].trim();
            self.include(text, Span::new(start, at), name, prompt);
            if self.problems.len() >= MAX_PROBLEMS {
                return;
            }
        }
        prompt.push_str(&body[at..]);
        if prompt.len() > MAX_BYTES && !self.problems.iter().any(|problem| problem.message.contains("MiB")) {
            let message =
                format!("the prompt is larger than {} MiB with its includes", MAX_BYTES / 1024 / 1024);
            self.report(text, Span::new(from, from), message, "include less text".to_owned());
        }
    }

    fn include(&mut self, text: &SourceText, span: Span, name: &str, prompt: &mut String) {
        if self.n_files >= MAX_FILES || prompt.len() > MAX_BYTES {
            return;
        }
        let (path, mut inner) = match self.open(text, name) {
            Ok(included) => included,
            Err((message, help)) => return self.report(text, span, message, help),
        };
        self.n_files += 1;
        if self.n_files == MAX_FILES {
            let message = format!("the prompt has more than {MAX_FILES} includes");
            return self.report(text, span, message, "use fewer includes".to_owned());
        }
        // An included file has no settings, so there is nothing to redact.
        inner.redact(&Node::new(Span::default(), Value::Null));
        let trimmed = inner.body.trim_end_matches(['\r', '\n']).len();
        inner.body.truncate(trimmed);
        self.stack.push((path, name.to_owned()));
        self.expand(&inner, 0, prompt);
        self.stack.pop();
    }

    /// Opens an included file. The error is the message and the help text.
    fn open(&mut self, text: &SourceText, name: &str) -> Result<(PathBuf, SourceText), (String, String)> {
        let wrong = |message: String, help: &str| Err((message, help.to_owned()));
        if name.is_empty() {
            return wrong(
                "the include names no file".to_owned(),
                "name a file, relative to the directory of this one",
            );
        }
        let folder = text.path.parent().unwrap_or(Path::new(""));
        self.files.push(folder.join(name));
        let path = resolve_inside(self.root, folder, name)?;
        if let Some(first) = self.stack.iter().position(|(before, _)| *before == path) {
            let cycle = self.stack[first..].iter().map(|(_, name)| name.as_str()).chain([name]);
            let cycle: Vec<&str> = cycle.collect();
            return wrong(format!("the file includes itself: {}", cycle.join(" -> ")), "remove one of them");
        }
        if self.stack.len() > MAX_DEPTH {
            return wrong(
                format!("includes are nested deeper than {MAX_DEPTH} levels"),
                "use fewer includes",
            );
        }
        match SourceText::read(&path) {
            // Nested includes are resolved against the path as written, not the target of a link.
            Ok(mut found) => {
                found.path = folder.join(name);
                Ok((path, found))
            }
            Err(error) => wrong(error.to_string(), "use another file, or fix this one"),
        }
    }

    fn report(&mut self, text: &SourceText, span: Span, message: String, help: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(text.problem(Severity::Error, (span, String::new()), message, Some(help)));
        }
    }
}

/// Resolves a path relative to `folder` and follows links. The file must be inside `root` and must not be a
/// `.env` file.
pub(super) fn resolve_inside(root: &Path, folder: &Path, name: &str) -> Result<PathBuf, (String, String)> {
    let is_secret = |path: &Path| file_name(path).to_lowercase().starts_with(".env");
    let joined = folder.join(name);
    let refused = || {
        let message = format!("'{name}' may contain secrets, which models must not see");
        (message, "move the text for the model to a file with another name".to_owned())
    };
    if is_secret(&joined) {
        return Err(refused());
    }
    let path = joined.canonicalize().map_err(|_| {
        let help = "check the path; it is relative to the directory of this file".to_owned();
        (format!("no such file: '{name}'"), help)
    })?;
    if is_secret(&path) {
        return Err(refused());
    }
    if !path.starts_with(root) {
        let help =
            "move it there: includes must be in the directory of the configuration, or that of the agent";
        return Err((format!("'{name}' is outside of {}", root.display()), help.to_owned()));
    }
    Ok(path)
}

/// Returns the next include at or after an offset.
fn next_include(body: &str, from: usize) -> Option<(usize, (&'static str, &'static str))> {
    let found =
        INCLUDE_MARKERS.into_iter().filter_map(|mark| Some((from + body[from..].find(mark.0)?, mark)));
    found.min_by_key(|(start, _)| *start)
}

/// Returns the last component of a path.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_between_dashes() {
        for (body, expected) in [
            ("---\na: 1\n---\nDo it.", Ok((9, 13))),
            ("#!/usr/bin/env x\n---\na: 1\n---\nDo it.", Ok((26, 30))),
            ("\n---\r\na: 1\r\n---\r\nDo it.", Ok((12, 17))),
            ("---\n---", Ok((4, 7))),
            ("Do it.", Err("expected a header: an agent file starts with ---")),
            ("#!/x\nDo it.", Err("expected a header: an agent file starts with ---")),
            ("---\na: 1\n", Err("unclosed header")),
            ("\n\n", Err("the file is empty")),
            ("", Err("the file is empty")),
        ] {
            let parts = AgentFileParts::of(body).map(|parts| (parts.header_end, parts.prompt));
            assert_eq!(parts.map_err(|(_, message)| message), expected, "{body:?}");
        }
    }
}
