//! The result of a batch: the outcome of each call, unaltered.

use pegboard_core::call::CallResult;
use pegboard_core::error::ErrorKind;
use pegboard_core::memory::MemoryPoolFull;
use pegboard_core::output::Output;
use pegboard_core::store::OutputHandle;
use pegboard_json::{MAX_DEPTH, RawJson, scan};
use serde::Serialize;
use serde_json::Value;

use super::BatchItem;
use crate::output_query::OutputStats;

/// Maximum nesting depth of an embedded answer. A message adds five levels around it, and some readers stop
/// one level below [`MAX_DEPTH`].
const MAX_ANSWER_DEPTH: usize = MAX_DEPTH - 6;

/// Encodes all results as the answer of the batch: `{"results": […]}` as text and as structured content.
pub(super) fn envelope(results: Vec<BatchItemResult>) -> Output {
    let envelope = RawJson::of(&BatchResult { results: &results });
    // The results may be large.
    drop(results);
    let content = [BatchText { kind: "text", text: envelope.as_str() }];
    Output::result(RawJson::of(&BatchOutput { content, structured_content: &envelope }))
}

#[derive(Serialize)]
struct BatchResult<'r> {
    results: &'r [BatchItemResult],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BatchOutput<'r> {
    content: [BatchText<'r>; 1],
    structured_content: &'r RawJson,
}

#[derive(Serialize)]
struct BatchText<'r> {
    #[serde(rename = "type")]
    kind: &'static str,
    text: &'r str,
}

/// Outcome of one call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BatchItemResult {
    id: RawJson,
    tool: String,
    pub(super) ok: bool,
    pub(super) elapsed_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<BatchItemError>,
    /// Handle of the complete answer, if it was too large to return.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<OutputHandle>,
    /// Approximate number of tokens of the text that replaces a stored answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<usize>,
    /// Checks that could not be performed, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct BatchItemError {
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<ErrorKind>,
    message: String,
}

impl BatchItemResult {
    pub(super) fn of(id: RawJson, tool: String, ended: CallResult) -> Self {
        let mut item = Self::new(id, tool);
        item.warnings = ended.warnings;
        match ended.result {
            Ok(output) => {
                let text = output.text();
                item.ok = !output.is_error();
                if output.is_error() {
                    item.error = Some(BatchItemError::new("EXECUTION_ERROR", text.clone().into_owned()));
                }
                item.stored = ended.meta.stored;
                item.output = Some(if item.stored.is_some() {
                    // The handle carries the same information as the link beside the text.
                    item.tokens = Some(OutputStats::of(text.as_bytes()).n_tokens);
                    RawJson::of(text.as_ref())
                } else {
                    item_output(&output)
                });
            }
            Err(error) => {
                let kind = Some(error.kind());
                item.error = Some(BatchItemError {
                    kind,
                    ..BatchItemError::new(error_code(error.kind()), error.text())
                });
            }
        }
        item
    }

    /// A call that is not allowed in a batch.
    pub(super) fn not_allowed(id: RawJson, tool: String) -> Self {
        let error =
            BatchItemError::new("INTERNAL_NOT_ALLOWED", format!("'{tool}' cannot be called in a batch"));
        Self { error: Some(error), ..Self::new(id, tool) }
    }

    /// The result without its output, which does not fit into the memory.
    pub(super) fn discarded(self, full: MemoryPoolFull) -> Self {
        let message = format!(
            "the result was discarded: {full}; the tool has run; let it return less, or use several batches"
        );
        let error = BatchItemError {
            kind: Some(ErrorKind::LimitExceeded),
            ..BatchItemError::new(error_code(ErrorKind::LimitExceeded), message)
        };
        Self { error: Some(error), ..Self::new(self.id, self.tool) }
    }

    /// Returns the size of what the call has returned.
    pub(super) fn n_bytes(&self) -> usize {
        let output = self.output.as_ref().map_or(0, |output| output.as_bytes().len());
        let error = self.error.as_ref().map_or(0, |error| error.message.len());
        output + error + self.warnings.iter().map(String::len).sum::<usize>()
    }

    /// A call that was skipped after an earlier failure.
    pub(super) fn skipped(item: BatchItem) -> Self {
        let error = BatchItemError::new("SKIPPED", "skipped because an earlier call failed".to_owned());
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

impl BatchItemError {
    fn new(code: &'static str, message: String) -> Self {
        Self { code, kind: None, message }
    }
}

fn error_code(kind: ErrorKind) -> &'static str {
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

/// Returns the answer to embed: the data of a local tool; of a server's result, the structured content or
/// else the text, or the whole result if either would drop a part.
fn item_output(output: &Output) -> RawJson {
    if !output.is_from_server() {
        return embeddable(RawJson::of(output.data().as_ref()));
    }
    let result = output.to_result();
    let structured = result.get("structuredContent").filter(|structured| structured.as_str() != "null");
    match (ContentKind::of(&result), structured) {
        (ContentKind::Empty | ContentKind::Text, Some(structured)) => embeddable(structured),
        (ContentKind::Text, None) => RawJson::of(output.text().as_ref()),
        (ContentKind::Empty, None) | (ContentKind::Mixed, _) => embeddable(result),
    }
}

/// Kinds of content blocks in a result.
enum ContentKind {
    Empty,
    Text,
    Mixed,
}

impl ContentKind {
    fn of(result: &RawJson) -> Self {
        let Some(content) = result.get("content") else { return Self::Empty };
        // Some servers return a bare string as content.
        if content.text().is_some() {
            return Self::Text;
        }
        let is_text = |part: RawJson| {
            part.get("type").is_some_and(|kind| kind.as_str() == r#""text""#)
                && part.get("text").is_some_and(|text| text.text().is_some())
        };
        let mut parts = content.items().map(is_text);
        match parts.next() {
            None => Self::Empty,
            Some(is_text) if is_text && parts.all(|is_text| is_text) => Self::Text,
            Some(_) => Self::Mixed,
        }
    }
}

/// Returns the value, or its text if it is nested too deep to embed: one answer must not make the others
/// unreadable.
fn embeddable(value: RawJson) -> RawJson {
    let is_shallow = scan::single_value(value.as_bytes(), MAX_ANSWER_DEPTH).is_ok();
    if is_shallow && value.read::<Value>().is_ok() { value } else { RawJson::of(value.as_str()) }
}
