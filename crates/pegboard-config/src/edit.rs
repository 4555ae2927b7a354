//! Changing what somebody wrote, without touching what is around it.
//!
//! A [`Document`] is a text and what it means. A change is made in the text, at the places that it is about: comments,
//! the order of keys, how lines are indented and end, and everything else stay as they are. Afterwards the text is read
//! again, and if it does not mean exactly what it should, the change is refused and nothing is changed.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::ConfigurationError;
use crate::path::{Path as Places, Step};
use crate::plain::plain;
use crate::problem::{Problem, Severity};
use crate::source::{Format, Text};
use crate::tree::{self, Parsed, Span, Value as Meaning};

mod diff;
mod file;
mod flow;
mod json;
mod page;
mod piece;
mod print;
mod toml;
mod walk;
mod yaml;

pub use diff::diff;
pub use file::{WriteError, followed, write};

use page::{Page, Splice, apply};
use piece::Piece;
use walk::{Obstacle, at};

/// The mark that some editors put first in a file.
const MARK: char = '\u{feff}';

/// The way from the whole to a value in it.
///
/// ```
/// use pegboard_config::edit::Way;
///
/// let way = Way::to(["mcpServers", "github"]).key("args").index(0);
/// assert_eq!(way.to_string(), "mcpServers.github.args[0]");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way(Vec<Turn>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Turn {
    Key(String),
    Index(usize),
    Named(String),
}

impl Way {
    /// The way along some keys.
    pub fn to<'k>(keys: impl IntoIterator<Item = &'k str>) -> Self {
        Self(keys.into_iter().map(|key| Turn::Key(key.to_owned())).collect())
    }

    /// The way along some steps.
    pub(crate) fn along(steps: &[Step]) -> Self {
        let turn = |step: &Step| match step {
            Step::Key(key) => Turn::Key(key.clone()),
            Step::Index(index) => Turn::Index(*index),
        };
        Self(steps.iter().map(turn).collect())
    }

    /// Whether it begins with these keys, and leads further.
    pub fn is_below(&self, keys: &[String]) -> bool {
        let begins = self.0.iter().zip(keys).all(|(turn, key)| matches!(turn, Turn::Key(own) if own == key));
        self.0.len() > keys.len() && begins
    }

    /// On to the value under a key.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.0.push(Turn::Key(key.to_owned()));
        self
    }

    /// On to a value of a list, from 0; one more than there are is behind the last.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Turn::Index(index));
        self
    }

    /// On to the object in a list that has this `name`; behind the last if none has it.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.0.push(Turn::Named(name.to_owned()));
        self
    }

    /// The steps in a value, in which every object of a list has a place.
    fn steps(&self, root: &Value) -> Vec<Step> {
        let mut steps = Vec::new();
        for turn in &self.0 {
            let step = match turn {
                Turn::Key(key) => Step::Key(key.clone()),
                Turn::Index(index) => Step::Index(*index),
                Turn::Named(name) => {
                    let items =
                        at(root, &steps).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                    let has_name = |item: &Value| item.get("name").and_then(Value::as_str) == Some(name);
                    Step::Index(items.iter().position(has_name).unwrap_or(items.len()))
                }
            };
            steps.push(step);
        }
        steps
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let step = |turn: &Turn| match turn {
            Turn::Key(key) | Turn::Named(key) => Step::Key(key.clone()),
            Turn::Index(index) => Step::Index(*index),
        };
        let steps: Vec<Step> = self.0.iter().map(step).collect();
        Places::default().then(&steps).fmt(f)
    }
}

/// Why a text was not changed.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// It cannot be done without touching more than what was asked for.
    #[error("{}", .0.render())]
    Unsafe(Box<Problem>),
}

/// A text that somebody wrote, and that can be changed in places.
///
/// ```
/// use pegboard_config::edit::{Document, Way};
///
/// let text = "# Mine\nmcpServers:\n  files: {command: my-server} # the old one\n";
/// let mut document = Document::new("pegboard.yaml".as_ref(), text.to_owned())?;
/// document.set(&Way::to(["mcpServers", "github", "url"]), &"https://example.com/mcp".into())?;
/// assert_eq!(
///     document.text(),
///     "# Mine\nmcpServers:\n  files: {command: my-server} # the old one\n  github:\n    url: https://example.com/mcp\n",
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    format: Format,
    has_mark: bool,
    body: String,
    value: Value,
    /// A key that is there twice, so that nobody knows which is meant.
    twin: Option<Span>,
}

impl Document {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ConfigurationError> {
        Self::new(path, Text::read_body(path)?)
    }

    /// Takes a text as what is in a file of this name. Nothing is read.
    pub fn new(path: &Path, text: String) -> Result<Self, ConfigurationError> {
        let has_mark = text.starts_with(MARK);
        let text = Text::new(path, text);
        let format = Format::of(&text.path, &text.body);
        let parsed = tree::parse(&text.body, format).map_err(|error| {
            let place = (error.span, String::new());
            let problem = text.problem(Severity::Error, place, error.message, error.help);
            ConfigurationError::Invalid { problems: vec![problem] }
        })?;
        let twin = parsed.as_ref().and_then(|parsed| Some(parsed.twins.first()?.span));
        let value = meaning(parsed.as_ref());
        Ok(Self { path: text.path, format, has_mark, body: text.body, value, twin })
    }

    /// The text as it is now.
    pub fn text(&self) -> String {
        let mark = if self.has_mark { MARK.to_string() } else { String::new() };
        mark + &self.body
    }

    /// The notation it is written in.
    pub fn format(&self) -> Format {
        self.format
    }

    /// What the text means.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The value at the end of a way.
    pub fn get(&self, way: &Way) -> Option<&Value> {
        at(&self.value, &way.steps(&self.value))
    }

    /// Puts a value at the end of a way, in place of the one that is there, and with all objects that are missing on it.
    pub fn set(&mut self, way: &Way, value: &Value) -> Result<(), EditError> {
        let steps = way.steps(&self.value);
        if at(&self.value, &steps) == Some(value) {
            return Ok(());
        }
        let mut expected = self.value.clone();
        if !put(&mut expected, &steps, value) {
            return Err(self.refused(way, Obstacle::new(self.place(&steps), "an object is needed here")));
        }
        let splices = self.put(&steps, value).map_err(|obstacle| self.refused(way, obstacle))?;
        self.change(way, splices, &expected)
    }

    /// Puts a value behind the last of the list at the end of a way, which is made if it is not there.
    pub fn append(&mut self, way: &Way, value: &Value) -> Result<(), EditError> {
        let n_items = self.get(way).and_then(Value::as_array).map_or(0, Vec::len);
        self.set(&way.clone().index(n_items), value)
    }

    /// Takes away what is at the end of a way. Gives back what was there.
    pub fn remove(&mut self, way: &Way) -> Result<Option<Value>, EditError> {
        let steps = way.steps(&self.value);
        let Some(removed) = at(&self.value, &steps).cloned() else { return Ok(None) };
        let mut expected = self.value.clone();
        take(&mut expected, &steps);
        let splices = match self.format {
            Format::Toml => toml::remove(self.page(), &steps),
            Format::Json | Format::Yaml => match self.root() {
                Some(root) => walk::remove(self.page(), &root, &steps),
                None => Ok(Vec::new()),
            },
        };
        let splices = splices.map_err(|obstacle| self.refused(way, obstacle))?;
        self.change(way, splices, &expected)?;
        Ok(Some(removed))
    }

    fn page(&self) -> Page<'_> {
        Page { text: &self.body, format: self.format }
    }

    /// What the text is made of, where a tree says all of it.
    fn root(&self) -> Option<Piece> {
        match self.format {
            Format::Json => Some(Piece::of_json(&tree::parse(&self.body, self.format).ok()??.root)),
            Format::Yaml => yaml::pieces(&self.body),
            Format::Toml => None,
        }
    }

    fn put(&self, steps: &[Step], value: &Value) -> Result<Vec<Splice>, Obstacle> {
        let page = self.page();
        match (self.format, self.root()) {
            (Format::Toml, _) => toml::put(page, steps, (&self.value, value)),
            (Format::Json | Format::Yaml, Some(root)) if !self.is_empty() => {
                walk::put(page, &root, steps, (&self.value, value))
            }
            (Format::Yaml, _) => Ok(vec![yaml::begin(page, &walk::wrapped(steps, value))]),
            (Format::Json, _) => {
                let whole = walk::wrapped(steps, value);
                let layout = print::Layout::lines(page, "");
                let is_line = page.text.is_empty() || page.text.ends_with('\n');
                let before = if is_line { "" } else { page.newline() };
                let text = format!("{before}{}{}", json::value(&whole, &layout), page.newline());
                Ok(vec![Splice::insert(page.text.len(), text)])
            }
        }
    }

    /// Whether there is nothing in the text but comments.
    fn is_empty(&self) -> bool {
        matches!(tree::parse(&self.body, self.format), Ok(None))
    }

    /// Makes a change, if what comes of it is what was asked for.
    fn change(&mut self, way: &Way, splices: Vec<Splice>, expected: &Value) -> Result<(), EditError> {
        let span = splices.first().map_or(Span::default(), |splice| splice.span);
        if let Some(twin) = self.twin {
            let message = "this key is there twice, and one of the two must go first";
            return Err(self.refused(way, Obstacle::new(twin, message)));
        }
        let body = apply(&self.body, splices);
        let changed = tree::parse(&body, self.format).ok().map(|parsed| meaning(parsed.as_ref()));
        let is_right = |changed: &Value| {
            changed == expected
                || (self.format == Format::Toml && without_empty(changed) == without_empty(expected))
        };
        match changed.filter(is_right) {
            Some(changed) => {
                self.body = body;
                self.value = changed;
                Ok(())
            }
            None => {
                Err(self
                    .refused(way, Obstacle::new(span, "a change here would change more than was asked for")))
            }
        }
    }

    /// Where what is at the end of a way is written, or the last that is on it.
    fn place(&self, steps: &[Step]) -> Span {
        let Ok(Some(parsed)) = tree::parse(&self.body, self.format) else { return Span::default() };
        let mut node = &parsed.root;
        for step in steps {
            let next = match (step, &node.value) {
                (Step::Key(key), _) => node.get(key),
                (Step::Index(index), Meaning::List(items)) => items.get(*index),
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
        }
        node.span
    }

    fn refused(&self, way: &Way, obstacle: Obstacle) -> EditError {
        let mut text = Text::new(&self.path, self.body.clone());
        if let Ok(Some(parsed)) = tree::parse(&self.body, self.format) {
            text.veil(&parsed.root);
        }
        let help = format!("the file was not changed; change {way} in it by hand");
        let place = (obstacle.span, way.to_string());
        EditError::Unsafe(Box::new(text.problem(Severity::Error, place, obstacle.message, Some(help))))
    }
}

/// What a tree means, without its places.
fn meaning(parsed: Option<&Parsed>) -> Value {
    parsed.map_or_else(|| Value::Object(Map::new()), |parsed| plain(&parsed.root))
}

/// Puts a value at the end of a way. `false` if the way leads through what has no inside.
fn put(root: &mut Value, steps: &[Step], value: &Value) -> bool {
    let Some((first, rest)) = steps.split_first() else {
        *root = value.clone();
        return true;
    };
    if root.is_null() {
        *root = walk::wrapped(steps, value);
        return true;
    }
    match (first, root) {
        (Step::Key(key), Value::Object(entries)) => {
            if let Some(inner) = entries.get_mut(key) {
                return put(inner, rest, value);
            }
            entries.insert(key.clone(), walk::wrapped(rest, value));
            true
        }
        (Step::Index(index), Value::Array(items)) if *index < items.len() => {
            put(&mut items[*index], rest, value)
        }
        (Step::Index(index), Value::Array(items)) if *index == items.len() => {
            items.push(walk::wrapped(rest, value));
            true
        }
        _ => false,
    }
}

/// Takes away what is at the end of a way.
fn take(root: &mut Value, steps: &[Step]) {
    let Some((first, rest)) = steps.split_first() else { return };
    match (first, root) {
        (Step::Key(key), Value::Object(entries)) if rest.is_empty() => {
            entries.shift_remove(key);
        }
        (Step::Key(key), Value::Object(entries)) => {
            if let Some(inner) = entries.get_mut(key) {
                take(inner, rest);
            }
        }
        (Step::Index(index), Value::Array(items)) if *index < items.len() => {
            if rest.is_empty() {
                items.remove(*index);
            } else {
                take(&mut items[*index], rest);
            }
        }
        _ => {}
    }
}

/// A value without the objects that have nothing in them: TOML has none that nobody wrote.
fn without_empty(value: &Value) -> Value {
    match value {
        Value::Object(entries) => {
            let inner = entries.iter().map(|(key, value)| (key.clone(), without_empty(value)));
            Value::Object(inner.filter(|(_, value)| !value.as_object().is_some_and(Map::is_empty)).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => value.clone(),
    }
}
