//! Where a step's input comes from, and when a step runs at all.

use std::fmt::Write as _;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::path::Path;
use crate::schema::Schema;

/// Where one input of a step comes from.
///
/// In a file it is a path (`page.body`, or `page.body?` if it may be absent), a number or a boolean as it stands,
/// or one of these objects: `{"$const": …}`, `{"$path": …, "default": …}`, `{"$template": "Hello {user.name}"}`.
///
/// ```
/// use pegboard_core::chain::Source;
/// use serde_json::json;
///
/// assert_eq!(serde_json::from_value::<Source>(json!("page.body")).unwrap(), Source::from("page.body"));
/// assert_eq!(serde_json::from_value::<Source>(json!({"$const": [1]})).unwrap(), Source::constant([1]));
/// assert!(serde_json::from_value::<Source>(json!({"const": 1})).is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// What is at a place of the context.
    Path(Path, Absent),
    /// Always the same value.
    Constant(Value),
    /// A text with places of the context in it.
    Template(Template),
}

/// What happens when there is nothing at the place.
#[derive(Clone, Debug, PartialEq)]
pub enum Absent {
    /// The step fails.
    Fail,
    /// The input is left out.
    Omit,
    /// This value stands in.
    Default(Value),
}

/// Why a value in a file is no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a source is a path like page.body, a number, true or false, {{\"$const\": …}}, {{\"$path\": …}} or {{\"$template\": …}}, not {found}"
)]
pub struct InvalidSource {
    found: String,
}

impl Source {
    /// Always this value.
    pub fn constant(value: impl Into<Value>) -> Self {
        Self::Constant(value.into())
    }

    /// What is at `path`; the input is left out if there is nothing.
    pub fn optional(path: impl Into<String>) -> Self {
        Self::Path(Path::new(path), Absent::Omit)
    }

    /// What is at `path`, or `value` if there is nothing.
    pub fn or(path: impl Into<String>, value: impl Into<Value>) -> Self {
        // A default makes it optional already.
        let path = path.into();
        Self::Path(Path::new(path.strip_suffix('?').unwrap_or(&path)), Absent::Default(value.into()))
    }

    /// A text with `{paths}` in it; `{{` and `}}` are braces.
    pub fn template(text: impl Into<String>) -> Self {
        Self::Template(Template::new(text.into()))
    }

    /// The paths that must lead somewhere for this source to have a value.
    pub(super) fn needed_paths(&self) -> Vec<&Path> {
        match self {
            Self::Path(path, Absent::Fail) => vec![path],
            Self::Path(_, Absent::Omit | Absent::Default(_)) | Self::Constant(_) => Vec::new(),
            Self::Template(template) => template.paths().collect(),
        }
    }

    /// Why this source can have no value at all, whatever the context.
    pub(super) fn problem(&self) -> Option<String> {
        match self {
            Self::Path(path, _) => {
                path.problem().map(|problem| format!("'{}' is no path: {problem}", path.as_str()))
            }
            Self::Constant(_) => None,
            Self::Template(template) => template.problem(),
        }
    }
}

impl From<&str> for Source {
    /// A path; a `?` at its end makes it optional.
    fn from(text: &str) -> Self {
        match text.strip_suffix('?') {
            Some(path) => Self::optional(path),
            None => Self::Path(Path::new(text), Absent::Fail),
        }
    }
}

impl From<String> for Source {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl TryFrom<Value> for Source {
    type Error = InvalidSource;

    fn try_from(value: Value) -> Result<Self, InvalidSource> {
        let members = match value {
            Value::String(text) => return Ok(text.into()),
            Value::Number(_) | Value::Bool(_) => return Ok(Self::Constant(value)),
            Value::Object(members) => members,
            Value::Null | Value::Array(_) => return Err(InvalidSource { found: value.to_string() }),
        };
        let names: Vec<&str> = members.keys().map(String::as_str).collect();
        let text = |name: &str| members[name].as_str().map(str::to_owned);
        let source = match names.as_slice() {
            ["$const"] => Some(Self::Constant(members["$const"].clone())),
            ["$template"] => text("$template").map(Self::template),
            ["$path"] => text("$path").map(Self::from),
            ["$path", "default"] | ["default", "$path"] => {
                text("$path").map(|path| Self::or(path, members["default"].clone()))
            }
            _ => None,
        };
        source.ok_or_else(|| InvalidSource { found: Value::Object(members).to_string() })
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Path(path, Absent::Fail) => serializer.serialize_str(path.as_str()),
            Self::Path(path, Absent::Omit) => serializer.collect_str(&format_args!("{}?", path.as_str())),
            Self::Path(path, Absent::Default(value)) => {
                json!({"$path": path.as_str(), "default": value}).serialize(serializer)
            }
            Self::Constant(value) => json!({"$const": value}).serialize(serializer),
            Self::Template(template) => json!({"$template": template.text}).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer)?.try_into().map_err(D::Error::custom)
    }
}

/// A text with places of the context in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    text: String,
    /// `None` if a brace has no partner.
    pieces: Option<Vec<Piece>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Place(Path),
}

impl Template {
    fn new(text: String) -> Self {
        Self { pieces: pieces(&text), text }
    }

    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.pieces.iter().flatten().filter_map(|piece| match piece {
            Piece::Place(path) => Some(path),
            Piece::Text(_) => None,
        })
    }

    fn problem(&self) -> Option<String> {
        if self.pieces.is_none() {
            return Some(format!(
                "the template '{}' has a brace without a partner (a brace itself is {{{{ or }}}})",
                self.text
            ));
        }
        self.paths().find_map(|path| {
            path.problem().map(|problem| format!("'{}' in the template is no path: {problem}", path.as_str()))
        })
    }

    /// The text with every place filled in, or why that cannot be.
    pub(super) fn render(&self, find: impl Fn(&Path) -> Option<Value>) -> Result<String, String> {
        if let Some(problem) = self.problem() {
            return Err(problem);
        }
        let mut text = String::new();
        for piece in self.pieces.iter().flatten() {
            match piece {
                Piece::Text(literal) => text.push_str(literal),
                Piece::Place(path) => match find(path).ok_or_else(|| not_there(path))? {
                    Value::String(string) => text.push_str(&string),
                    other => {
                        let _ = write!(text, "{other}");
                    }
                },
            }
        }
        Ok(text)
    }
}

/// What is said of a path that leads nowhere.
pub(super) fn not_there(path: &Path) -> String {
    format!("'{}' is not in the context", path.as_str())
}

fn pieces(text: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let (brace, after) = rest[at..].split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            literal.push_str(brace);
            rest = after;
        } else {
            let (path, after) = if brace == "{" { after.split_once('}')? } else { return None };
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
            pieces.push(Piece::Place(Path::new(path)));
            rest = after;
        }
    }
    literal.push_str(rest);
    pieces.push(Piece::Text(literal));
    Some(pieces)
}

/// When a step runs: something is there, or it is as a schema says.
///
/// In a file it is a path, true if there is something other than `null`, `false`, zero or emptiness, or an object
/// with a `path` and what it must be: `{"path": "score", "is": {"minimum": 5}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    path: Path,
    schema: Option<Schema>,
}

impl Condition {
    /// The value at `path` is as `schema` says.
    pub fn is(path: impl Into<String>, schema: impl Into<Schema>) -> Self {
        Self { path: Path::new(path), schema: Some(schema.into()) }
    }

    /// The place that is looked at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why the condition says nothing, if its schema cannot be used.
    pub(super) fn problem(&self) -> Option<&str> {
        self.schema.as_ref().and_then(Schema::problem)
    }

    /// Whether the step runs, given what is at the place.
    pub(super) fn holds(&self, found: Option<&Value>) -> bool {
        match (found, &self.schema) {
            (None, _) => false,
            (Some(value), Some(schema)) => schema.accepts(value),
            (Some(value), None) => is_something(value),
        }
    }
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(flag) => *flag,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

impl From<&str> for Condition {
    fn from(path: &str) -> Self {
        Self { path: Path::new(path), schema: None }
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.schema {
            None => serializer.serialize_str(self.path.as_str()),
            Some(schema) => json!({"path": self.path.as_str(), "is": schema.as_json()}).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if let Some(path) = value.as_str() {
            return Ok(path.into());
        }
        let parts = value.as_object().filter(|members| members.len() == 2);
        let path = parts.and_then(|members: &Map<String, Value>| members.get("path")?.as_str());
        match (path, parts.and_then(|members| members.get("is"))) {
            (Some(path), Some(schema)) => Ok(Self::is(path, schema.clone())),
            _ => Err(D::Error::custom(format!(
                "a condition is a path, or {{\"path\": …, \"is\": a schema}}, not {value}"
            ))),
        }
    }
}
