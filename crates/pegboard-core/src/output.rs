//! Output of a tool.

use std::borrow::Cow;
use std::io;
use std::ops::Not;

use bytes::Bytes;
use pegboard_json::RawJson;
use serde::Serialize;
use serde_json::Value;

use crate::schema::Schema;
use crate::validation::Violation;

/// Output of a tool. The result of a server keeps the server's own bytes.
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
    payload: OutputPayload,
    is_error: bool,
    /// Violations of the tool's output schema; empty if the output is valid or was not validated.
    pub mismatches: Vec<Violation>,
}

/// A tool result that violates the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToolResult {
    /// The content is of another type.
    #[error("`content` must be an array")]
    ContentType,
    /// The content does not begin with a part.
    #[error("`content` must be an array of objects")]
    Content,
    /// The error flag is of another type.
    #[error("`isError` must be true or false")]
    IsError,
    /// The metadata is of another type.
    #[error("`_meta` must be an object")]
    Meta,
}

#[derive(Clone, Debug, PartialEq)]
enum OutputPayload {
    /// A value returned by an in-process tool.
    Data(Value),
    /// A complete MCP tool result: `content`, `structuredContent`, `isError`, `_meta`.
    Result(RawJson),
}

impl Output {
    /// Creates an output from a value, not yet validated.
    pub fn new(data: Value) -> Self {
        Self { payload: OutputPayload::Data(data), is_error: false, mismatches: Vec::new() }
    }

    /// Wraps a tool result as a server wrote it, with `content`, `structuredContent`, `isError` and `_meta`.
    pub fn result(raw: RawJson) -> Self {
        let is_error = raw.get("isError").is_some_and(|flag| flag.as_str() == "true");
        Self { payload: OutputPayload::Result(raw), is_error, mismatches: Vec::new() }
    }

    /// Wraps a tool result of a server that may be invalid. The content itself is not read.
    ///
    /// ```
    /// use pegboard_core::output::Output;
    /// use pegboard_json::RawJson;
    ///
    /// let wrong = Output::from_server(RawJson::parse(r#"{"content": 42}"#.into()).unwrap());
    /// assert_eq!(wrong.unwrap_err().to_string(), "`content` must be an array");
    /// ```
    pub fn from_server(raw: RawJson) -> Result<Self, InvalidToolResult> {
        let [content, is_error, meta] = raw.peek_all(["content", "isError", "_meta"]);
        match content {
            // Some servers send a single text.
            None | Some([b'"', ..]) => {}
            Some([b'[', items @ ..]) => {
                if !matches!(items.trim_ascii_start().first(), Some(b'{' | b']')) {
                    return Err(InvalidToolResult::Content);
                }
            }
            Some(_) => return Err(InvalidToolResult::ContentType),
        }
        let is_error = match is_error {
            None | Some(b"false" | b"null") => false,
            Some(b"true") => true,
            Some(_) => return Err(InvalidToolResult::IsError),
        };
        if !matches!(meta, None | Some([b'{', ..] | b"null")) {
            return Err(InvalidToolResult::Meta);
        }
        Ok(Self { payload: OutputPayload::Result(raw), is_error, mismatches: Vec::new() })
    }

    /// Creates an output that reports a failure.
    pub fn failure(text: impl Into<String>) -> Self {
        Self { payload: OutputPayload::Data(text.into().into()), is_error: true, mismatches: Vec::new() }
    }

    /// Returns `true` if the tool reports a failure.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// Returns `true` if a server wrote the output.
    pub fn is_from_server(&self) -> bool {
        matches!(self.payload, OutputPayload::Result(_))
    }

    /// Returns the output as data: a tool's value, the structured content of a result, or else its text.
    pub fn data(&self) -> Cow<'_, Value> {
        match &self.payload {
            OutputPayload::Data(data) => Cow::Borrowed(data),
            OutputPayload::Result(raw) => Cow::Owned(match raw.get("structuredContent") {
                Some(structured) => structured.to_value(),
                None => self.text().into_owned().into(),
            }),
        }
    }

    /// Converts the output into data.
    pub fn into_data(self) -> Value {
        match self.payload {
            OutputPayload::Data(data) => data,
            OutputPayload::Result(_) => self.data().into_owned(),
        }
    }

    /// Returns the data that the output schema applies to: a tool's value, or the structured content of a
    /// result.
    pub fn structured(&self) -> Option<Cow<'_, Value>> {
        match &self.payload {
            OutputPayload::Data(data) => Some(Cow::Borrowed(data)),
            OutputPayload::Result(raw) => {
                raw.get("structuredContent").map(|structured| Cow::Owned(structured.to_value()))
            }
        }
    }

    /// Returns the output as one text for a model: text parts joined, anything else as JSON.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.payload {
            OutputPayload::Data(Value::String(text)) => Cow::Borrowed(text),
            OutputPayload::Data(data) => Cow::Owned(data.to_string()),
            OutputPayload::Result(raw) => match raw.get("content") {
                Some(content) if content.as_str().starts_with('"') => {
                    Cow::Owned(content.text().unwrap_or_default().into_owned())
                }
                Some(content) => {
                    joined_text(&content).map_or_else(|| Cow::Borrowed(raw.as_str()), Cow::Owned)
                }
                None => Cow::Borrowed(raw.as_str()),
            },
        }
    }

    /// Returns the output as an MCP tool result. A server's result stays unchanged.
    pub fn to_result(&self) -> RawJson {
        match &self.payload {
            OutputPayload::Result(raw) => raw.clone(),
            OutputPayload::Data(data) => RawJson::of(&DataResult {
                content: [DataText { kind: "text", text: self.text() }],
                structured_content: Some(data).filter(|data| data.is_object()),
                is_error: self.is_error,
            }),
        }
    }

    /// Validates the output and stores the violations; returns warnings about parts that could not be
    /// validated.
    pub fn check(&mut self, schema: &Schema) -> Vec<String> {
        self.check_unless(schema, |_| false).unwrap_or_default()
    }

    /// Validates the output like [`check`](Self::check), unless that [is costly](Schema::is_costly): `None`.
    pub fn check_if_cheap(&mut self, schema: &Schema) -> Option<Vec<String>> {
        self.check_unless(schema, |data| schema.is_costly(data))
    }

    fn check_unless(&mut self, schema: &Schema, is_refused: impl Fn(&Value) -> bool) -> Option<Vec<String>> {
        // A failure need not match the schema.
        if schema.is_empty() || self.is_error {
            return Some(Vec::new());
        }
        let verdict = match self.structured() {
            Some(data) if is_refused(&data) => return None,
            Some(data) => schema.check(&data),
            None => {
                return Some(vec![
                    "the output has no structured content to validate against the output schema".to_owned(),
                ]);
            }
        };
        self.mismatches = verdict.errors;
        Some(verdict.warnings)
    }

    /// Serializes the output for storage, without violations.
    pub fn to_bytes(&self) -> Bytes {
        let (tag, payload) = match &self.payload {
            OutputPayload::Data(data) => (if self.is_error { b'F' } else { b'M' }, RawJson::of(data)),
            OutputPayload::Result(raw) => (b'R', raw.clone()),
        };
        [&[tag], payload.as_bytes()].concat().into()
    }

    /// Restores a stored output; `None` if the bytes are not one.
    pub fn from_bytes(bytes: &Bytes) -> Option<Self> {
        let raw = RawJson::parse(bytes.slice(1.min(bytes.len())..)).ok()?;
        match bytes.first()? {
            b'M' => Some(Self::new(raw.read().ok()?)),
            b'F' => Some(Self { is_error: true, ..Self::new(raw.read().ok()?) }),
            b'R' => Some(Self::result(raw)),
            _ => None,
        }
    }

    /// Returns the size of the output in bytes: of the whole result, or of the value.
    pub fn n_bytes(&self) -> usize {
        match &self.payload {
            OutputPayload::Result(raw) => raw.as_bytes().len(),
            OutputPayload::Data(Value::String(text)) => text.len(),
            OutputPayload::Data(data) => n_json_bytes(data),
        }
    }
}

/// The result of a tool that returns data, as MCP writes it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DataResult<'o> {
    content: [DataText<'o>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'o Value>,
    #[serde(skip_serializing_if = "Not::not")]
    is_error: bool,
}

#[derive(Serialize)]
struct DataText<'o> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: Cow<'o, str>,
}

/// Returns the size of a value as JSON text.
pub(crate) fn n_json_bytes(value: &Value) -> usize {
    let mut counter = ByteCounter(0);
    serde_json::to_writer(&mut counter, value).map_or(0, |()| counter.0)
}

/// Writer that counts bytes.
struct ByteCounter(usize);

impl io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Joins the text parts of a result; `None` if there are none.
fn joined_text(content: &RawJson) -> Option<String> {
    let mut text: Option<String> = None;
    for part in content.items() {
        if part.get("type")?.as_str() != r#""text""# {
            continue;
        }
        text.get_or_insert_default().push_str(&part.get("text")?.text()?);
    }
    text
}
