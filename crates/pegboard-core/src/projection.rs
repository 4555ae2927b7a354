//! How a call went, in the shapes that different callers expect.

use pegboard_json::RawJson;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::call::Ended;
use crate::error::{CallError, Executed};
use crate::output::Output;
use crate::provider::ToolKind;

/// What stands for an answer without a word: models do not take an empty one.
const NO_OUTPUT: &str = "(no output)";

/// How a call went, for an agent that reads texts.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_core::{call::{Call, Invoker}, projection::ToolExecuteResult, provider::ToolKind, registry::ToolRegistry};
///
/// let ended = ToolRegistry::new().start(Call::new("missing", serde_json::json!({}))).await;
/// let result = ToolExecuteResult::of(&ended, ToolKind::Mcp, "github");
/// assert_eq!(result.error.as_deref(), Some("Unknown tool: missing"));
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolExecuteResult {
    /// Whether the tool answered, and not that it failed.
    pub ok: bool,
    /// The answer as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long the tool ran.
    pub latency_ms: u64,
    /// What sort of tool it is.
    pub kind: ToolKind,
    /// The server it is of.
    pub namespace: String,
    /// What else there is to know.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extras: Map<String, Value>,
}

impl ToolExecuteResult {
    /// How a call of a tool of this kind and server went.
    pub fn of(ended: &Ended, kind: ToolKind, namespace: impl Into<String>) -> Self {
        let (result, error) = match &ended.result {
            Ok(output) if output.is_error() => (None, Some(text(output))),
            Ok(output) => (Some(text(output)), None),
            Err(error) => (None, Some(error.text())),
        };
        let mut extras = Map::new();
        if let Err(error) = &ended.result {
            extras.insert("error".to_owned(), error_document(error));
        }
        if let Some(handle) = &ended.journey.stored {
            extras.insert("stored".to_owned(), handle.0.clone().into());
        }
        if !ended.warnings.is_empty() {
            extras.insert("warnings".to_owned(), ended.warnings.clone().into());
        }
        let millis = ended.duration.unwrap_or_default().as_millis();
        Self {
            ok: error.is_none(),
            result,
            error,
            latency_ms: u64::try_from(millis).unwrap_or(u64::MAX),
            kind,
            namespace: namespace.into(),
            extras,
        }
    }
}

fn text(output: &Output) -> String {
    let text = output.text();
    if text.trim().is_empty() { NO_OUTPUT.to_owned() } else { text.into_owned() }
}

/// How a call went, for a caller that looks at `success`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContractResult {
    /// Whether the tool answered, and not that it failed.
    pub success: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl ContractResult {
    /// How a call went.
    pub fn of(ended: &Ended) -> Self {
        match &ended.result {
            Ok(output) if output.is_error() => {
                let said = output.text();
                let error =
                    if said.trim().is_empty() { "Unknown error".to_owned() } else { said.into_owned() };
                Self { success: false, error: Some(error), data: None }
            }
            Ok(output) => Self { success: true, error: None, data: Some(output.data().into_owned()) },
            Err(error) => Self { success: false, error: Some(error.text()), data: None },
        }
    }
}

/// How a call went, as a tool result of the protocol. What a server answered stays as it is; where there is no answer
/// the text says why, and `_meta` says it for programs.
pub fn mcp_result(ended: &Ended) -> RawJson {
    match &ended.result {
        Ok(output) => output.to_result(),
        Err(error) => RawJson::of(&json!({
            "content": [{"type": "text", "text": error.text()}],
            "isError": true,
            "_meta": {"pegboard/error": error_document(error)},
        })),
    }
}

/// Why there is no answer, for programs: `kind`, `message`, whether the tool may have `executed`, and what about it is
/// wrong.
pub fn error_document(error: &CallError) -> Value {
    let mut document = json!({
        "kind": error.kind(),
        "message": error.text(),
        "executed": error.executed() == Executed::Yes,
    });
    if let CallError::InvalidParameters { .. } | CallError::OutputInvalid { .. } = error {
        document["violations"] = error.texts().into();
    }
    document
}
