//! The prompt of an agent file: what stands below its header, with other files put in.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::problem::{Problem, Severity};
use crate::source::Text;
use crate::tree::{Node, Span, Value};

/// How deep files may be put into one another.
const MAX_DEPTH: usize = 8;
/// How long a prompt may be, with all that is put in.
const MAX_BYTES: usize = 1024 * 1024;
/// How many files may be put into one prompt.
const MAX_FILES: usize = 1_000;
/// How many problems of a prompt are told.
const MAX_PROBLEMS: usize = 20;
/// How a file is put in: what stands before its name, and what behind it.
const MARKS: [(&str, &str); 2] = [("${include:", "}"), ("{{include:", "}}")];

/// Where the parts of an agent file are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    /// Where the header ends. Everything before it can be read as YAML: the first line is a remark there.
    pub(super) header_end: usize,
    /// Where the prompt begins.
    pub(super) prompt: usize,
}

impl Parts {
    /// Finds the header between its two lines of dashes; or says what is there instead, and where.
    pub(super) fn of(body: &str) -> Result<Self, (Span, &'static str)> {
        let mut lines = lines(body).filter(|(span, line)| !(span.start == 0 && line.starts_with("#!")));
        let first = lines.find(|(_, line)| !line.is_empty());
        match first {
            Some((_, "---")) => {}
            Some((span, _)) => return Err((span, "an agent file begins with a header, and this is none")),
            None => return Err((Span::new(0, 0), "the file is empty")),
        }
        let opening = first.map_or(Span::new(0, 0), |(span, _)| span);
        match lines.find(|(_, line)| *line == "---") {
            Some((span, _)) => {
                let after = body[span.end..].find('\n').map_or(body.len(), |end| span.end + end + 1);
                Ok(Self { header_end: span.start, prompt: after })
            }
            None => Err((opening, "the header begins here and never ends")),
        }
    }
}

/// The lines of a text without the white space behind them, and where they are.
fn lines(body: &str) -> impl Iterator<Item = (Span, &str)> {
    let mut start = 0;
    body.split_inclusive('\n').map(move |line| {
        let trimmed = line.trim_end();
        let span = Span::new(start, start + trimmed.len());
        start += line.len();
        (span, trimmed)
    })
}

/// Puts files into a prompt.
pub(super) struct Inclusion<'i> {
    /// The folder that no file may be outside of.
    root: &'i Path,
    /// The files that are being put in, the agent's first: where they are, and what they are called.
    trail: Vec<(PathBuf, String)>,
    n_files: usize,
    pub(super) problems: Vec<Problem>,
    /// Every file that was looked for, whether it is there or not.
    pub(super) files: Vec<PathBuf>,
}

impl<'i> Inclusion<'i> {
    /// For the agent at `path`, of which all links are followed.
    pub(super) fn new(root: &'i Path, path: &Path) -> Self {
        Self {
            root,
            trail: vec![(path.to_owned(), name_of(path))],
            n_files: 0,
            problems: Vec::new(),
            files: Vec::new(),
        }
    }

    /// The text from a place on, with all files put in.
    pub(super) fn prompt(&mut self, text: &Text, from: usize) -> String {
        let mut prompt = String::new();
        self.expand(text, from, &mut prompt);
        prompt.trim().to_owned()
    }

    fn expand(&mut self, text: &Text, from: usize, prompt: &mut String) {
        let body = &text.body;
        let mut at = from;
        while let Some((start, (opening, closing))) = next_mark(body, at) {
            prompt.push_str(&body[at..start]);
            let name_start = start + opening.len();
            let line_end = body[name_start..].find('\n').map_or(body.len(), |end| name_start + end);
            let Some(length) = body[name_start..line_end].find(closing) else {
                let span = Span::new(start, line_end);
                self.tell(
                    text,
                    span,
                    "the name of the file never ends".to_owned(),
                    format!("end it with {closing}"),
                );
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
                format!("the prompt has more than {} MiB with all that is put in", MAX_BYTES / 1024 / 1024);
            self.tell(text, Span::new(from, from), message, "put in less".to_owned());
        }
    }

    fn include(&mut self, text: &Text, span: Span, name: &str, prompt: &mut String) {
        if self.n_files >= MAX_FILES || prompt.len() > MAX_BYTES {
            return;
        }
        let (path, mut inner) = match self.open(text, name) {
            Ok(included) => included,
            Err((message, help)) => return self.tell(text, span, message, help),
        };
        self.n_files += 1;
        if self.n_files == MAX_FILES {
            let message = format!("more than {MAX_FILES} files are put into the prompt");
            return self.tell(text, span, message, "put in fewer".to_owned());
        }
        // It has no settings, so there is nothing in it that would have to be hidden.
        inner.veil(&Node::new(Span::default(), Value::Null));
        let trimmed = inner.body.trim_end_matches(['\r', '\n']).len();
        inner.body.truncate(trimmed);
        self.trail.push((path, name.to_owned()));
        self.expand(&inner, 0, prompt);
        self.trail.pop();
    }

    /// Opens a file that is to be put in, or says why it cannot be, and what to do.
    fn open(&mut self, text: &Text, name: &str) -> Result<(PathBuf, Text), (String, String)> {
        let wrong = |message: String, help: &str| Err((message, help.to_owned()));
        if name.is_empty() {
            return wrong("no file is named".to_owned(), "name one, from the folder of this file");
        }
        let folder = text.path.parent().unwrap_or(Path::new(""));
        self.files.push(folder.join(name));
        let path = within(self.root, folder, name)?;
        if let Some(first) = self.trail.iter().position(|(before, _)| *before == path) {
            let round = self.trail[first..].iter().map(|(_, name)| name.as_str()).chain([name]);
            let round: Vec<&str> = round.collect();
            return wrong(
                format!("the file is put into itself: {}", round.join(" -> ")),
                "take one of them away",
            );
        }
        if self.trail.len() > MAX_DEPTH {
            return wrong(
                format!("files are put into one another more than {MAX_DEPTH} times"),
                "put in fewer",
            );
        }
        match Text::read(&path) {
            // What it names is looked for beside where it was found, wherever a link leads.
            Ok(mut found) => {
                found.path = folder.join(name);
                Ok((path, found))
            }
            Err(error) => wrong(error.to_string(), "name another file, or correct this one"),
        }
    }

    fn tell(&mut self, text: &Text, span: Span, message: String, help: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(text.problem(Severity::Error, (span, String::new()), message, Some(help)));
        }
    }
}

/// Where a file is that another one names, with all links followed. It may not be outside of `root`, nor hold secrets.
pub(super) fn within(root: &Path, folder: &Path, name: &str) -> Result<PathBuf, (String, String)> {
    let is_secret = |path: &Path| name_of(path).to_lowercase().starts_with(".env");
    let shown = folder.join(name);
    let refused = || {
        let message = format!("'{name}' may hold secrets, which no model should see");
        (message, "put what the model may see into a file of another name".to_owned())
    };
    if is_secret(&shown) {
        return Err(refused());
    }
    let path = shown.canonicalize().map_err(|_| {
        let help = "check the path; it begins in the folder of this file".to_owned();
        (format!("there is no file '{name}'"), help)
    })?;
    if is_secret(&path) {
        return Err(refused());
    }
    if !path.starts_with(root) {
        let help =
            "move it there; files are taken from the folder of the configuration, or else of the agent";
        return Err((format!("'{name}' is outside of {}", root.display()), help.to_owned()));
    }
    Ok(path)
}

/// The next place where a file is put in.
fn next_mark(body: &str, from: usize) -> Option<(usize, (&'static str, &'static str))> {
    let found = MARKS.into_iter().filter_map(|mark| Some((from + body[from..].find(mark.0)?, mark)));
    found.min_by_key(|(start, _)| *start)
}

/// What a file is called in its folder.
pub(super) fn name_of(path: &Path) -> String {
    path.file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_found_between_its_lines() {
        for (body, expected) in [
            ("---\na: 1\n---\nDo it.", Ok((9, 13))),
            ("#!/usr/bin/env x\n---\na: 1\n---\nDo it.", Ok((26, 30))),
            ("\n---\r\na: 1\r\n---\r\nDo it.", Ok((12, 17))),
            ("---\n---", Ok((4, 7))),
            ("Do it.", Err("an agent file begins with a header, and this is none")),
            ("#!/x\nDo it.", Err("an agent file begins with a header, and this is none")),
            ("---\na: 1\n", Err("the header begins here and never ends")),
            ("\n\n", Err("the file is empty")),
            ("", Err("the file is empty")),
        ] {
            let parts = Parts::of(body).map(|parts| (parts.header_end, parts.prompt));
            assert_eq!(parts.map_err(|(_, message)| message), expected, "{body:?}");
        }
    }
}
