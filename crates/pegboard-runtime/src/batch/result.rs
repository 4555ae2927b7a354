//! What a batch gives back: what came of each call, as it came.

use pegboard_core::call::Ended;
use pegboard_core::error::ErrorKind;
use pegboard_core::output::Output;
use pegboard_core::store::OutputHandle;
use pegboard_json::{MAX_DEPTH, RawJson, scan};
use serde::Serialize;
use serde_json::{Value, json};

use super::Item;
use crate::reading::Stats;

/// How deep an answer may nest. Around it are five levels of a message, and some readers stop at one level less than
/// [`MAX_DEPTH`].
const MAX_ANSWER_DEPTH: usize = MAX_DEPTH - 6;

/// All results as the answer of the batch: `{"results": […]}` as text and as structured content.
pub(super) fn envelope(results: &[ItemResult]) -> Output {
    let envelope = RawJson::empty_object().with("results", &RawJson::of(results));
    let text = json!({"content": [{"type": "text", "text": envelope.as_str()}]});
    Output::result(RawJson::from(text).with("structuredContent", &envelope))
}

/// What came of one call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ItemResult {
    id: RawJson,
    tool: String,
    pub(super) ok: bool,
    pub(super) elapsed_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ItemError>,
    /// Where the whole answer is kept, if it was too large to hand over.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<OutputHandle>,
    /// About how many tokens the text is that stands in place of an answer that was stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<usize>,
    /// What could not be checked and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ItemError {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<ErrorKind>,
    message: String,
}

impl ItemResult {
    pub(super) fn of(id: RawJson, tool: String, ended: Ended) -> Self {
        let mut item = Self::new(id, tool);
        item.warnings = ended.warnings;
        match ended.result {
            Ok(output) => {
                let text = output.text();
                item.ok = !output.is_error();
                if output.is_error() {
                    item.error = Some(ItemError::new("EXECUTION_ERROR", text.clone().into_owned()));
                }
                item.stored = ended.journey.stored;
                item.output = Some(if item.stored.is_some() {
                    // The handle says what the link beside the text says.
                    item.tokens = Some(Stats::of(text.as_bytes()).n_tokens);
                    RawJson::of(text.as_ref())
                } else {
                    answer(&output)
                });
            }
            Err(error) => {
                let kind = Some(error.kind());
                item.error = Some(ItemError { kind, ..ItemError::new(code(error.kind()), error.text()) });
            }
        }
        item
    }

    /// A call that cannot be made in a batch.
    pub(super) fn not_allowed(id: RawJson, tool: String) -> Self {
        let error = ItemError::new("INTERNAL_NOT_ALLOWED", format!("'{tool}' cannot be called in a batch"));
        Self { error: Some(error), ..Self::new(id, tool) }
    }

    /// A call that was not made.
    pub(super) fn skipped(item: Item) -> Self {
        let error = ItemError::new("SKIPPED", "not called, because a call before it failed".to_owned());
        Self { error: Some(error), ..Self::new(item.id, item.tool.to_string()) }
    }

    fn new(id: RawJson, tool: String) -> Self {
        Self {
            id,
            tool,
            ok: false,
            elapsed_ms: 0,
            output: None,
            error: None,
            stored: None,
            tokens: None,
            warnings: Vec::new(),
        }
    }
}

impl ItemError {
    fn new(code: &'static str, message: String) -> Self {
        Self { code, kind: None, message }
    }
}

fn code(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::UnknownTool | ErrorKind::UnknownToolbox | ErrorKind::UnknownServer => "UNKNOWN_TOOL",
        ErrorKind::InvalidParameters => "BAD_REQUEST",
        ErrorKind::NotPermitted => "INTERNAL_NOT_ALLOWED",
        ErrorKind::LimitExceeded
        | ErrorKind::Canceled
        | ErrorKind::QueueTimeout
        | ErrorKind::Timeout
        | ErrorKind::CircuitOpen
        | ErrorKind::AuthRequired
        | ErrorKind::ServerUnavailable
        | ErrorKind::TransportError
        | ErrorKind::ExecutionError
        | ErrorKind::OutputInvalid
        | ErrorKind::InternalError => "EXECUTION_ERROR",
    }
}

/// An answer as it came: the data of a tool of this program. Of a server's result the structured content or else the
/// text, and all of it if that would leave a part out.
fn answer(output: &Output) -> RawJson {
    if !output.is_from_server() {
        return readable(RawJson::of(output.data().as_ref()));
    }
    let result = output.to_result();
    let structured = result.get("structuredContent").filter(|structured| structured.as_str() != "null");
    match (Parts::of(&result), structured) {
        (Parts::None | Parts::Texts, Some(structured)) => readable(structured),
        (Parts::Texts, None) => RawJson::of(output.text().as_ref()),
        (Parts::None, None) | (Parts::Others, _) => readable(result),
    }
}

/// What the content of a result is made of.
enum Parts {
    None,
    Texts,
    Others,
}

impl Parts {
    fn of(result: &RawJson) -> Self {
        let Some(content) = result.get("content") else { return Self::None };
        // Some servers give the text itself.
        if content.text().is_some() {
            return Self::Texts;
        }
        let is_text = |part: RawJson| {
            part.get("type").is_some_and(|kind| kind.as_str() == r#""text""#)
                && part.get("text").is_some_and(|text| text.text().is_some())
        };
        let mut parts = content.items().map(is_text);
        match parts.next() {
            None => Self::None,
            Some(is_text) if is_text && parts.all(|is_text| is_text) => Self::Texts,
            Some(_) => Self::Others,
        }
    }
}

/// The value, or its text if no tree can hold it in its place: one answer must not make the others unreadable.
fn readable(value: RawJson) -> RawJson {
    let is_shallow = scan::whole(value.as_bytes(), MAX_ANSWER_DEPTH).is_ok();
    if is_shallow && value.read::<Value>().is_ok() { value } else { RawJson::of(value.as_str()) }
}
