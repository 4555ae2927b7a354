//! Turns values of texts into what they mean, and collects all that is wrong with them.

use std::path::PathBuf;

use pegboard_core::settings::mcp::Secret;
use serde::de::DeserializeOwned;

use crate::near::near;
use crate::path::{Path, Step};
use crate::problem::{Problem, Severity};
pub(crate) use crate::source::Strictness;
use crate::source::Text;
use crate::tree::{Node, Origin, Span, Twin, Value};
use crate::variables::Surroundings;

mod deserializer;
mod fault;

use deserializer::Reading;
pub(crate) use deserializer::field_names;
use fault::{Fault, What};

/// How many problems are told.
const MAX_PROBLEMS: usize = 100;
/// How many names are listed to somebody who wrote another one.
const MAX_LISTED: usize = 10;
/// How many files are remembered that something depends on.
const MAX_WATCHED: usize = 1_000;
/// A secret that is shorter would be found in innocent text.
const MIN_SECRET_CHARACTERS: usize = 4;

/// Somebody who reads a tree from its root to its last value, whatever texts these are from.
pub(crate) struct Reader<'r> {
    texts: &'r [Text],
    /// What variables are looked up in, text by text.
    surroundings: Vec<Surroundings<'r>>,
    /// Keys that are there twice, and the way to them.
    twins: Vec<(Twin, Path)>,
    /// Problems of the whole file, and those of parts that are left out because of them.
    of_file: Vec<Problem>,
    of_parts: Vec<Problem>,
    /// The part that is being read, if one is.
    part: Option<Part>,
    secrets: Vec<String>,
    /// Files that what is read depends on.
    watched: Vec<PathBuf>,
    /// What only a person can tell, and the variables that the answers are looked for in.
    wanted: Vec<(String, String)>,
}

/// What is wrong with a part of a file that can be left out, such as a server.
#[derive(Default)]
pub(crate) struct Part {
    pub(crate) problems: Vec<Problem>,
    /// Variables that are missing.
    pub(crate) needs: Vec<String>,
    /// Whether it must be left out. Of very many problems not all are told, but all count.
    pub(crate) is_wrong: bool,
}

/// What is said of a place.
struct Said {
    message: String,
    help: Option<String>,
    /// The variable that is not set, if that is what is wrong.
    needs: Option<String>,
}

/// What becomes of variables that are not set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is told.
    Told,
    /// Nobody needs them: what they stand in is switched off.
    Ignored,
}

/// What was found wrong in a file.
pub(crate) struct Findings {
    pub(crate) of_file: Vec<Problem>,
    pub(crate) of_parts: Vec<Problem>,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) watched: Vec<PathBuf>,
    pub(crate) wanted: Vec<(String, String)>,
}

impl<'r> Reader<'r> {
    pub(crate) fn new(
        texts: &'r [Text],
        environment: &'r dyn Fn(&str) -> Option<String>,
        root: &Node,
        twins: &[Twin],
    ) -> Self {
        let with_way = |twin: &Twin| (twin.clone(), way_to(root, twin.first).unwrap_or_default());
        // Finding a way takes a walk through the whole tree. Where there are more, there is no saying what it means.
        let mut twins = twins.iter().map(with_way);
        let few: Vec<(Twin, Path)> = twins.by_ref().take(MAX_PROBLEMS).collect();
        let one_more = twins.next();
        let around = |text: &Text| Surroundings { environment, folder: text.folder.clone() };
        let mut reader = Self {
            texts,
            surroundings: texts.iter().map(around).collect(),
            twins: few,
            of_file: Vec::new(),
            of_parts: Vec::new(),
            part: None,
            secrets: Vec::new(),
            watched: Vec::new(),
            wanted: Vec::new(),
        };
        reader.tell_twins(one_more.into_iter().collect());
        reader
    }

    /// The text that a place is in.
    pub(crate) fn text(&self, span: Span) -> &'r Text {
        &self.texts[span.text]
    }

    /// What variables are looked up in at a place.
    pub(crate) fn surroundings(&self, span: Span) -> &Surroundings<'r> {
        &self.surroundings[span.text]
    }

    /// Tells an error.
    pub(crate) fn error(
        &mut self,
        span: Span,
        path: &Path,
        message: impl Into<String>,
        help: Option<String>,
    ) {
        self.tell_error((span, path), Said { message: message.into(), help, needs: None });
    }

    fn tell_error(&mut self, at: (Span, &Path), said: Said) {
        if let Some(part) = &mut self.part {
            part.is_wrong = true;
            self.tell_part(Severity::Error, at, said);
        } else {
            self.tell_of_file(at, said);
        }
    }

    /// Tells an error that no part of the file can be left out for.
    pub(crate) fn error_of_file(&mut self, span: Span, path: &Path, message: String, help: Option<String>) {
        self.tell_of_file((span, path), Said { message, help, needs: None });
    }

    fn tell_of_file(&mut self, at: (Span, &Path), said: Said) {
        if self.of_file.len() < MAX_PROBLEMS {
            let problem = self.problem(Severity::Error, at, said);
            self.of_file.push(problem);
        }
    }

    /// Tells a warning.
    pub(crate) fn warn(&mut self, span: Span, path: &Path, message: impl Into<String>, help: Option<String>) {
        let said = Said { message: message.into(), help, needs: None };
        self.tell_part(Severity::Warning, (span, path), said);
    }

    /// Tells a key that nobody knows, with the one that was probably meant. Remarks may stand anywhere.
    pub(crate) fn unknown_key(&mut self, key: &str, span: Span, path: &Path, known: &[&str]) {
        if key.starts_with('_') || key == "$schema" {
            return;
        }
        let strictness = self.text(span).strictness;
        if self.is_full(strictness) {
            // Looking for near names takes longest, and nobody would see them.
            return self.note_unknown_key(strictness);
        }
        let help = match near(key, known.iter().copied()) {
            Some(meant) => Some(format!("did you mean {meant}?")),
            None if known.len() <= MAX_LISTED => Some(format!("there are {}", known.join(", "))),
            None => None,
        };
        match strictness {
            Strictness::Strict => self.error(span, path, "unknown setting", help),
            Strictness::Lenient => self.warn(span, path, "unknown setting, which is left alone", help),
        }
    }

    /// Begins a part that can be left out.
    pub(crate) fn begin_part(&mut self) {
        self.part = Some(Part::default());
    }

    /// Whether something is wrong with the part that is being read.
    pub(crate) fn is_part_wrong(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.is_wrong)
    }

    /// Ends the part, and says what is wrong with it: also keys that are there twice inside it.
    pub(crate) fn end_part(&mut self, way: &Path) -> Part {
        let is_inside = |(_, twin): &(Twin, Path)| twin.is_inside(way);
        let (inside, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.twins).into_iter().partition(is_inside);
        self.twins = others;
        self.tell_twins(inside);
        let mut part = self.part.take().unwrap_or_default();
        for problem in &mut part.problems {
            mask(problem, &self.secrets);
        }
        self.of_parts.extend(part.problems.iter().cloned());
        part
    }

    /// All that was found wrong, in the order of the file.
    pub(crate) fn finish(mut self) -> Findings {
        let twins = std::mem::take(&mut self.twins);
        self.tell_twins(twins);
        self.secrets.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        self.secrets.dedup();
        for problems in [&mut self.of_file, &mut self.of_parts] {
            for problem in &mut *problems {
                mask(problem, &self.secrets);
            }
            sort(problems, self.texts);
        }
        let secrets = std::mem::take(&mut self.secrets).into_iter().map(Secret::new).collect();
        let Self { of_file, of_parts, watched, wanted, .. } = self;
        Findings { of_file, of_parts, secrets, watched, wanted }
    }

    /// Takes what is wrong with other files that this one names.
    pub(crate) fn add_of_other_files(&mut self, problems: Vec<Problem>) {
        for problem in problems {
            // A file that is named twice is read twice.
            if self.of_parts.len() < MAX_PROBLEMS && !self.of_parts.contains(&problem) {
                self.of_parts.push(problem);
            }
        }
    }

    /// Remembers a file that what is read depends on.
    pub(crate) fn watch(&mut self, path: PathBuf) {
        if self.watched.len() < MAX_WATCHED && !self.watched.contains(&path) {
            self.watched.push(path);
        }
    }

    /// Remembers a text that nobody should see.
    pub(crate) fn keep_secret(&mut self, text: &str) {
        // These are no secrets wherever they stand, and every other message has one of them.
        let is_word = matches!(text, "true" | "false" | "null");
        if text.chars().count() >= MIN_SECRET_CHARACTERS && !is_word {
            self.secrets.push(text.to_owned());
        }
    }

    /// Fills in all variables of a value, keys too.
    pub(crate) fn fill(&mut self, node: &mut Node, path: &Path, missing: Missing) {
        let span = node.span;
        match &mut node.value {
            Value::Text(text) => {
                let (filled, origin) = self.fill_text(text, span, path, missing);
                *text = filled;
                node.origin = origin;
            }
            Value::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.fill(item, &path.step(Step::Index(index)), missing);
                }
            }
            Value::Map(entries) => {
                for entry in entries {
                    let path = path.key(&entry.key);
                    entry.key = self.fill_text(&entry.key, entry.key_span, &path, missing).0;
                    self.fill(&mut entry.value, &path, missing);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Fills in all variables of a text, and says where it came from then.
    pub(crate) fn fill_text(
        &mut self,
        text: &str,
        span: Span,
        path: &Path,
        missing: Missing,
    ) -> (String, Origin) {
        let filled = self.surroundings[span.text].fill(text);
        let origin = match (filled.secrets.is_empty(), filled.text == text) {
            (false, _) => Origin::Secret,
            (true, false) => Origin::Default,
            (true, true) => Origin::Written,
        };
        filled.secrets.iter().for_each(|secret| self.keep_secret(secret));
        for path in named(text, "${file:") {
            self.watch(self.text(span).folder.join(path));
        }
        for fault in filled.faults {
            if missing == Missing::Ignored && fault.needs.is_some() {
                continue;
            }
            if let (Some(id), Some(name)) =
                (named(&text[fault.range.clone()], "${input:").next(), &fault.needs)
                && !self.wanted.iter().any(|(_, wanted)| wanted == name)
            {
                self.wanted.push((id.to_owned(), name.clone()));
            }
            if let (Some(part), Some(name)) = (&mut self.part, &fault.needs)
                && !part.needs.contains(name)
            {
                part.needs.push(name.clone());
            }
            // Where the reference itself was written, unless an escape hides it.
            let written = self.text(span).slice(span);
            let place = written
                .find(&text[fault.range.clone()])
                .map_or(span, |at| span.beside(span.start + at, span.start + at + fault.range.len()));
            let said = Said { message: fault.message, help: Some(fault.help), needs: fault.needs };
            self.tell_error((place, path), said);
        }
        (filled.text, origin)
    }

    /// Reads a value as what it should be. Whatever is wrong in it is told and left out, so that all is told at once.
    ///
    /// `beside` are keys that are known here too.
    pub(crate) fn read<T: DeserializeOwned>(
        &mut self,
        node: &Node,
        path: &Path,
        beside: &[&str],
    ) -> Option<T> {
        let mut node = node.clone();
        let mut pruned: Vec<Vec<Step>> = Vec::new();
        for _ in 0..MAX_PROBLEMS {
            let fault = match T::deserialize(Reading(&node)) {
                Ok(read) => return Some(read),
                Err(fault) => fault,
            };
            let steps = fault.steps();
            // What was taken away is probably what is missing now.
            let is_known = matches!(fault.what, What::Missing { .. }) && pruned.contains(&steps);
            if !is_known {
                self.tell_fault(&fault, &node, path, beside);
            }
            if !prune(&mut node, &steps) {
                return None;
            }
            pruned.push(steps[..steps.len() - 1].to_vec());
        }
        None
    }

    fn tell_fault(&mut self, fault: &Fault, node: &Node, path: &Path, beside: &[&str]) {
        let steps = fault.steps();
        let place = path.then(&steps);
        let (value, key_span) = find(node, &steps);
        let span = if fault.is_of_key() { key_span.unwrap_or(value.span) } else { value.span };
        let help = match &fault.what {
            What::UnknownKey { key, known } => {
                let known: Vec<&str> = known.iter().copied().chain(beside.iter().copied()).collect();
                return self.unknown_key(key, span, &place, &known);
            }
            What::UnknownWord { word, known } => {
                near(word, known.iter().copied()).map(|meant| format!("did you mean {meant}?"))
            }
            What::Missing { .. } | What::Twice { .. } | What::Wrong { .. } => None,
        };
        let mut message = match &fault.what {
            // Of a long word only the beginning is said, which nobody would know for a part of a secret.
            What::UnknownWord { known, .. } if value.origin == Origin::Secret => {
                format!("'***' is none of {}", known.join(", "))
            }
            What::UnknownWord { .. }
            | What::UnknownKey { .. }
            | What::Missing { .. }
            | What::Twice { .. }
            | What::Wrong { .. } => fault.to_string(),
        };
        if let (Value::Text(text), Origin::Secret) = (&value.value, value.origin)
            && !text.is_empty()
        {
            message = message.replace(text.as_str(), "***");
        }
        self.error(span, &place, message, help);
    }

    fn tell_twins(&mut self, twins: Vec<(Twin, Path)>) {
        for (twin, way) in twins {
            let first = self.text(twin.first).line(twin.first);
            let message = format!("'{}' is here twice, first in line {first}", twin.key);
            self.error(twin.span, &way, message, Some("take one of them away".to_owned()));
        }
    }

    /// Whether no more problems are told of what is being read.
    fn is_full(&self, strictness: Strictness) -> bool {
        let n_of_part = self.part.as_ref().map_or(0, |part| part.problems.len());
        match self.part {
            None if strictness == Strictness::Strict => self.of_file.len() >= MAX_PROBLEMS,
            None | Some(_) => self.of_parts.len() + n_of_part >= MAX_PROBLEMS,
        }
    }

    /// Leaves out the part that is being read for a key that nobody knows, if that is what it means.
    fn note_unknown_key(&mut self, strictness: Strictness) {
        if let (Some(part), Strictness::Strict) = (&mut self.part, strictness) {
            part.is_wrong = true;
        }
    }

    fn tell_part(&mut self, severity: Severity, at: (Span, &Path), said: Said) {
        let n_told = self.of_parts.len() + self.part.as_ref().map_or(0, |part| part.problems.len());
        if n_told < MAX_PROBLEMS {
            let problem = self.problem(severity, at, said);
            self.part.as_mut().map_or(&mut self.of_parts, |part| &mut part.problems).push(problem);
        }
    }

    fn problem(&self, severity: Severity, (span, path): (Span, &Path), said: Said) -> Problem {
        let text = self.text(span);
        let path = text.written_way(span).unwrap_or_else(|| text.label.join(path));
        let Said { message, help, needs } = said;
        Problem { needs, ..text.problem(severity, (span, path.to_string()), message, help) }
    }
}

/// Puts problems in the order of the texts that are read, with those of other files at the end.
pub(crate) fn sort(problems: &mut [Problem], texts: &[Text]) {
    let place = |problem: &Problem| {
        let text = texts.iter().position(|text| text.path == problem.file).unwrap_or(texts.len());
        (text, problem.file.clone(), problem.line, problem.column)
    };
    problems.sort_by_cached_key(place);
}

/// What all references of a kind in a text name.
fn named<'t>(text: &'t str, beginning: &'t str) -> impl Iterator<Item = &'t str> {
    let references = text.match_indices(beginning).map(move |(at, _)| &text[at + beginning.len()..]);
    references.filter_map(|rest| rest.split_once('}')).map(|(name, _)| name).filter(|name| !name.is_empty())
}

/// Stars for secrets, should one have got into a message, as it is or with its quotes and line ends spelled out.
fn mask(problem: &mut Problem, secrets: &[String]) {
    let texts = [Some(&mut problem.message), problem.help.as_mut(), Some(&mut problem.path)];
    for text in texts.into_iter().flatten() {
        for secret in secrets {
            let quoted = format!("{secret:?}");
            let quoted = quoted.get(1..quoted.len() - 1).unwrap_or_default();
            for spelling in [secret.as_str(), quoted] {
                if text.contains(spelling) {
                    *text = text.replace(spelling, "***");
                }
            }
        }
    }
}

/// The value at the end of a way, or as far as the way leads, and where its key is.
fn find<'n>(node: &'n Node, steps: &[Step]) -> (&'n Node, Option<Span>) {
    let mut found = (node, None);
    for step in steps {
        found = match (step, &found.0.value) {
            (Step::Key(key), Value::Map(entries)) => match entries.iter().find(|entry| entry.key == *key) {
                Some(entry) => (&entry.value, Some(entry.key_span)),
                None => return found,
            },
            (Step::Index(index), Value::List(items)) => match items.get(*index) {
                Some(item) => (item, None),
                None => return found,
            },
            _ => return found,
        };
    }
    found
}

/// The way to the key that was written at a place.
fn way_to(node: &Node, key_span: Span) -> Option<Path> {
    match &node.value {
        Value::List(items) => items.iter().enumerate().find_map(|(index, item)| {
            way_to(item, key_span).map(|way| Path::default().step(Step::Index(index)).join(&way))
        }),
        Value::Map(entries) => entries.iter().find_map(|entry| {
            let here = Path::default().key(&entry.key);
            if entry.key_span == key_span {
                return Some(here);
            }
            way_to(&entry.value, key_span).map(|way| here.join(&way))
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => None,
    }
}

/// Takes away the value at the end of a way. `false` if there is none.
fn prune(node: &mut Node, steps: &[Step]) -> bool {
    match (steps, &mut node.value) {
        ([Step::Key(key)], Value::Map(entries)) => {
            let n_before = entries.len();
            entries.retain(|entry| entry.key != *key);
            entries.len() < n_before
        }
        ([Step::Index(index)], Value::List(items)) => items
            .get_mut(*index)
            .is_some_and(|item| std::mem::replace(&mut item.origin, Origin::LeftOut) != Origin::LeftOut),
        ([Step::Key(key), rest @ ..], Value::Map(entries)) => entries
            .iter_mut()
            .find(|entry| entry.key == *key)
            .is_some_and(|entry| prune(&mut entry.value, rest)),
        ([Step::Index(index), rest @ ..], Value::List(items)) => {
            items.get_mut(*index).is_some_and(|item| prune(item, rest))
        }
        _ => false,
    }
}
