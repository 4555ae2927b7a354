//! What a tool answered.

use std::borrow::Cow;
use std::io;

use bytes::Bytes;
use pegboard_json::RawJson;
use serde_json::{Map, Value, json};

use crate::schema::Schema;
use crate::validation::Violation;

/// What a tool answered. An answer that came from a server stays in the server's own bytes.
///
/// ```
/// use pegboard_core::output::Output;
/// use pegboard_json::RawJson;
/// use serde_json::json;
///
/// let made = Output::new(json!({"sum": 5}));
/// assert_eq!(made.text(), r#"{"sum":5}"#);
///
/// let sent = RawJson::from(json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}));
/// let answer = Output::result(sent.clone());
/// assert_eq!(answer.text(), "ab");
/// assert_eq!(answer.to_result(), sent);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    body: Body,
    is_error: bool,
    /// Where the answer breaks the tool's output schema. The answer stands all the same.
    pub mismatches: Vec<Violation>,
}

#[derive(Clone, Debug, PartialEq)]
enum Body {
    /// A value that a tool of this program gave.
    Made(Value),
    /// A whole tool result: `content`, `structuredContent`, `isError`, `_meta`.
    Result(RawJson),
}

impl Output {
    /// A value that nobody has held against a schema yet.
    pub fn new(data: Value) -> Self {
        Self { body: Body::Made(data), is_error: false, mismatches: Vec::new() }
    }

    /// A tool result as a server wrote it, with `content`, `structuredContent`, `isError` and `_meta`.
    pub fn result(raw: RawJson) -> Self {
        let is_error = raw.get("isError").is_some_and(|says| says.as_str() == "true");
        Self { body: Body::Result(raw), is_error, mismatches: Vec::new() }
    }

    /// A tool that answers, in these words, that it could not do it.
    pub fn failure(text: impl Into<String>) -> Self {
        Self { body: Body::Made(text.into().into()), is_error: true, mismatches: Vec::new() }
    }

    /// Whether the tool says that it could not do what it was asked.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// Whether a server wrote it.
    pub fn is_from_server(&self) -> bool {
        matches!(self.body, Body::Result(_))
    }

    /// The answer as data: what a tool gave, or the structured content of a result, or else its text.
    pub fn data(&self) -> Cow<'_, Value> {
        match &self.body {
            Body::Made(data) => Cow::Borrowed(data),
            Body::Result(raw) => Cow::Owned(match raw.get("structuredContent") {
                Some(structured) => structured.to_value(),
                None => self.text().into_owned().into(),
            }),
        }
    }

    /// The answer as data, to be kept.
    pub fn into_data(self) -> Value {
        match self.body {
            Body::Made(data) => data,
            Body::Result(_) => self.data().into_owned(),
        }
    }

    /// What an output schema speaks of: the data, or the structured content of a result if it has one.
    pub fn structured(&self) -> Option<Cow<'_, Value>> {
        match &self.body {
            Body::Made(data) => Some(Cow::Borrowed(data)),
            Body::Result(raw) => {
                raw.get("structuredContent").map(|structured| Cow::Owned(structured.to_value()))
            }
        }
    }

    /// The answer as one text for a model: texts joined, everything else as JSON.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.body {
            Body::Made(Value::String(text)) => Cow::Borrowed(text),
            Body::Made(data) => Cow::Owned(data.to_string()),
            Body::Result(raw) => match raw.get("content") {
                Some(content) if content.as_str().starts_with('"') => {
                    Cow::Owned(content.text().unwrap_or_default().into_owned())
                }
                Some(content) => joined(&content).map_or_else(|| Cow::Borrowed(raw.as_str()), Cow::Owned),
                None => Cow::Borrowed(raw.as_str()),
            },
        }
    }

    /// The answer as a tool result. What a server wrote stays as it is.
    pub fn to_result(&self) -> RawJson {
        match &self.body {
            Body::Result(raw) => raw.clone(),
            Body::Made(data) => {
                let mut result = Map::new();
                result.insert("content".to_owned(), json!([{"type": "text", "text": self.text()}]));
                if data.is_object() {
                    result.insert("structuredContent".to_owned(), data.clone());
                }
                if self.is_error {
                    result.insert("isError".to_owned(), true.into());
                }
                RawJson::of(&result)
            }
        }
    }

    /// Holds the answer against a schema and keeps where it breaks it; gives what could not be checked, and why.
    pub fn check(&mut self, schema: &Schema) -> Vec<String> {
        // An answer "I could not do it" need not look like one that it could.
        if schema.is_empty() || self.is_error {
            return Vec::new();
        }
        let verdict = match self.structured() {
            Some(data) => schema.check(&data),
            None => {
                return vec![
                    "the answer has no structured content to hold against the output schema".to_owned(),
                ];
            }
        };
        self.mismatches = verdict.errors;
        verdict.warnings
    }

    /// The answer as bytes that can be kept; where it breaks a schema is not kept.
    pub fn to_bytes(&self) -> Bytes {
        let (tag, body) = match &self.body {
            Body::Made(data) => (if self.is_error { b'F' } else { b'M' }, RawJson::of(data)),
            Body::Result(raw) => (b'R', raw.clone()),
        };
        [&[tag], body.as_bytes()].concat().into()
    }

    /// The answer that was kept as these bytes; `None` if they are no such thing.
    pub fn from_bytes(bytes: &Bytes) -> Option<Self> {
        let raw = RawJson::parse(bytes.slice(1.min(bytes.len())..)).ok()?;
        match bytes.first()? {
            b'M' => Some(Self::new(raw.read().ok()?)),
            b'F' => Some(Self { is_error: true, ..Self::new(raw.read().ok()?) }),
            b'R' => Some(Self::result(raw)),
            _ => None,
        }
    }

    /// How much a caller is handed: the bytes of the whole result, or of the value.
    pub fn n_bytes(&self) -> usize {
        match &self.body {
            Body::Result(raw) => raw.as_bytes().len(),
            Body::Made(Value::String(text)) => text.len(),
            Body::Made(data) => n_json_bytes(data),
        }
    }
}

/// How long a value is when written down.
pub(crate) fn n_json_bytes(value: &Value) -> usize {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).map_or(0, |()| counter.0)
}

/// Counts what is written.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The texts of a result's parts in one; `None` if no part is a text.
fn joined(content: &RawJson) -> Option<String> {
    let mut text: Option<String> = None;
    for part in content.items() {
        if part.get("type")?.as_str() != r#""text""# {
            continue;
        }
        text.get_or_insert_default().push_str(&part.get("text")?.text()?);
    }
    text
}
