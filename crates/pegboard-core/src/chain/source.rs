//! Input sources and conditions of chain steps.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::path::ContextPath;
use crate::output::n_json_bytes;
use crate::schema::Schema;

/// Source of one input of a step.
///
/// In a file it is a path (`page.body`, or `page.body?` if it is optional), a number, a boolean, or one of
/// these objects: `{"$const": …}`, `{"$path": …, "default": …}`, `{"$template": "Hello {user.name}"}`.
///
/// ```
/// use pegboard_core::chain::InputSource;
/// use serde_json::json;
///
/// assert_eq!(serde_json::from_value::<InputSource>(json!("page.body")).unwrap(), InputSource::from("page.body"));
/// assert_eq!(serde_json::from_value::<InputSource>(json!({"$const": [1]})).unwrap(), InputSource::constant([1]));
/// assert!(serde_json::from_value::<InputSource>(json!({"const": 1})).is_err());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum InputSource {
    /// The value at a path of the context.
    Path(ContextPath, OnMissing),
    /// A constant value.
    Constant(Value),
    /// A string with embedded paths.
    Template(ContextTemplate),
}

/// Behaviour if there is no value at the path.
#[derive(Clone, Debug, PartialEq)]
pub enum OnMissing {
    /// Fail the step.
    Fail,
    /// Omit the input.
    Omit,
    /// Use this value.
    Default(Value),
}

/// A value in a file that is not a valid source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a path such as page.body, a number, a boolean, {{\"$const\": …}}, {{\"$path\": …}} or {{\"$template\": …}}, found {found}"
)]
pub struct InvalidInputSource {
    found: String,
}

impl InputSource {
    /// Returns a constant source.
    pub fn constant(value: impl Into<Value>) -> Self {
        Self::Constant(value.into())
    }

    /// Returns a source that is omitted if there is no value at `path`.
    pub fn optional(path: impl Into<String>) -> Self {
        Self::Path(ContextPath::new(path), OnMissing::Omit)
    }

    /// Returns a source for the value at `path`, or `value` if there is none.
    pub fn or(path: impl Into<String>, value: impl Into<Value>) -> Self {
        // A default makes the path optional already.
        let path = path.into();
        Self::Path(
            ContextPath::new(path.strip_suffix('?').unwrap_or(&path)),
            OnMissing::Default(value.into()),
        )
    }

    /// Returns a template source: a string with `{paths}` in it, in which `{{` and `}}` are literal braces.
    pub fn template(text: impl Into<String>) -> Self {
        Self::Template(ContextTemplate::new(text.into()))
    }

    /// Returns the paths that must resolve for this source to have a value.
    pub(super) fn needed_paths(&self) -> Vec<&ContextPath> {
        match self {
            Self::Path(path, OnMissing::Fail) => vec![path],
            Self::Path(_, OnMissing::Omit | OnMissing::Default(_)) | Self::Constant(_) => Vec::new(),
            Self::Template(template) => template.paths().collect(),
        }
    }

    /// Returns the reason why this source can never have a value, if there is one.
    pub(super) fn problem(&self) -> Option<String> {
        match self {
            Self::Path(path, _) => {
                path.problem().map(|problem| format!("invalid path '{}': {problem}", path.as_str()))
            }
            Self::Constant(_) => None,
            Self::Template(template) => template.problem(),
        }
    }
}

impl From<&str> for InputSource {
    /// Creates a path source; a trailing `?` makes it optional.
    fn from(text: &str) -> Self {
        match text.strip_suffix('?') {
            Some(path) => Self::optional(path),
            None => Self::Path(ContextPath::new(text), OnMissing::Fail),
        }
    }
}

impl From<String> for InputSource {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl TryFrom<Value> for InputSource {
    type Error = InvalidInputSource;

    fn try_from(value: Value) -> Result<Self, InvalidInputSource> {
        let members = match value {
            Value::String(text) => return Ok(text.into()),
            Value::Number(_) | Value::Bool(_) => return Ok(Self::Constant(value)),
            Value::Object(members) => members,
            Value::Null | Value::Array(_) => return Err(InvalidInputSource { found: value.to_string() }),
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
        source.ok_or_else(|| InvalidInputSource { found: Value::Object(members).to_string() })
    }
}

impl Serialize for InputSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Path(path, OnMissing::Fail) => serializer.serialize_str(path.as_str()),
            Self::Path(path, OnMissing::Omit) => serializer.collect_str(&format_args!("{}?", path.as_str())),
            Self::Path(path, OnMissing::Default(value)) => {
                json!({"$path": path.as_str(), "default": value}).serialize(serializer)
            }
            Self::Constant(value) => json!({"$const": value}).serialize(serializer),
            Self::Template(template) => json!({"$template": template.text}).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for InputSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer)?.try_into().map_err(D::Error::custom)
    }
}

/// A string with embedded paths into the context.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextTemplate {
    text: String,
    /// `None` if a brace is unmatched.
    segments: Option<Vec<TemplateSegment>>,
}

#[derive(Clone, Debug, PartialEq)]
enum TemplateSegment {
    Text(String),
    Path(ContextPath),
}

impl ContextTemplate {
    fn new(text: String) -> Self {
        Self { segments: parse_segments(&text), text }
    }

    fn paths(&self) -> impl Iterator<Item = &ContextPath> {
        self.segments.iter().flatten().filter_map(|segment| match segment {
            TemplateSegment::Path(path) => Some(path),
            TemplateSegment::Text(_) => None,
        })
    }

    fn problem(&self) -> Option<String> {
        if self.segments.is_none() {
            return Some(format!(
                "unmatched brace in template '{}' (write {{{{ or }}}} for a literal brace)",
                self.text
            ));
        }
        self.paths().find_map(|path| {
            path.problem().map(|problem| format!("invalid path '{}' in template: {problem}", path.as_str()))
        })
    }

    /// Looks up the values of all placeholders; fails if a path does not resolve.
    pub(super) fn resolve<'v>(
        &'v self,
        find: impl Fn(&ContextPath) -> Option<&'v Value>,
    ) -> Result<ResolvedTemplate<'v>, String> {
        if let Some(problem) = self.problem() {
            return Err(problem);
        }
        let parts = self.segments.iter().flatten().map(|segment| match segment {
            TemplateSegment::Text(literal) => Ok(ResolvedPart::Text(literal)),
            TemplateSegment::Path(path) => match find(path).ok_or_else(|| missing_path(path))? {
                Value::String(text) => Ok(ResolvedPart::Text(text)),
                other => Ok(ResolvedPart::Json(other)),
            },
        });
        parts.collect::<Result<_, _>>().map(ResolvedTemplate)
    }
}

/// A template with its values, of which the text is not built yet.
pub(super) struct ResolvedTemplate<'v>(Vec<ResolvedPart<'v>>);

enum ResolvedPart<'v> {
    Text(&'v str),
    Json(&'v Value),
}

impl ResolvedTemplate<'_> {
    /// Returns the size of the text.
    pub(super) fn n_bytes(&self) -> usize {
        let n_bytes = |part: &ResolvedPart<'_>| match part {
            ResolvedPart::Text(text) => text.len(),
            ResolvedPart::Json(value) => n_json_bytes(value),
        };
        self.0.iter().map(n_bytes).fold(0, usize::saturating_add)
    }
}

impl fmt::Display for ResolvedTemplate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            ResolvedPart::Text(text) => f.write_str(text),
            ResolvedPart::Json(value) => write!(f, "{value}"),
        })
    }
}

/// Returns the error message for a path that does not resolve.
pub(super) fn missing_path(path: &ContextPath) -> String {
    format!("'{}' is not in the context", path.as_str())
}

fn parse_segments(text: &str) -> Option<Vec<TemplateSegment>> {
    let mut segments = Vec::new();
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
            if !literal.is_empty() {
                segments.push(TemplateSegment::Text(std::mem::take(&mut literal)));
            }
            segments.push(TemplateSegment::Path(ContextPath::new(path)));
            rest = after;
        }
    }
    literal.push_str(rest);
    segments.push(TemplateSegment::Text(literal));
    Some(segments)
}

/// Condition of a step: a value is truthy, or matches a schema.
///
/// In a file it is a path, which holds if the value is not `null`, `false`, zero or empty, or an object with
/// a path and a schema: `{"path": "score", "is": {"minimum": 5}}`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    path: ContextPath,
    schema: Option<Schema>,
}

impl Condition {
    /// Creates a condition that the value at `path` matches `schema`.
    pub fn is(path: impl Into<String>, schema: impl Into<Schema>) -> Self {
        Self { path: ContextPath::new(path), schema: Some(schema.into()) }
    }

    /// Returns the path of the tested value.
    pub fn path(&self) -> &ContextPath {
        &self.path
    }

    /// Returns the schema of the condition, if it has one.
    pub(super) fn schema(&self) -> Option<&Schema> {
        self.schema.as_ref()
    }

    /// Returns the reason why the schema of the condition cannot be used, if any.
    pub(super) fn problem(&self) -> Option<&str> {
        self.schema.as_ref().and_then(Schema::problem)
    }

    /// Returns `true` if the condition holds for the value at its path.
    pub(super) fn holds(&self, found: Option<&Value>) -> bool {
        match (found, &self.schema) {
            (None, _) => false,
            (Some(value), Some(schema)) => schema.accepts(value),
            (Some(value), None) => is_truthy(value),
        }
    }
}

fn is_truthy(value: &Value) -> bool {
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
        Self { path: ContextPath::new(path), schema: None }
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
                "expected a path, or {{\"path\": …, \"is\": <schema>}}, found {value}"
            ))),
        }
    }
}
