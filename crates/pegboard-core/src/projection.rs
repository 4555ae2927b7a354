//! Call results in the formats of different callers.

use pegboard_json::RawJson;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::call::CallResult;
use crate::error::{CallError, Executed};
use crate::output::Output;
use crate::provider::ToolKind;

/// Placeholder for an empty output, which models do not accept.
const NO_OUTPUT: &str = "(no output)";

/// Result of a call for an agent, as text.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use pegboard_core::{call::{Call, Invoker}, projection::ToolExecuteResult, provider::ToolKind, registry::ToolRegistry};
///
/// let call_result = ToolRegistry::new().start(Call::new("missing", serde_json::json!({}))).await;
/// let result = ToolExecuteResult::of(&call_result, ToolKind::Mcp, "github");
/// assert_eq!(result.error.as_deref(), Some("Unknown tool: missing"));
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolExecuteResult {
    /// `true` if the tool succeeded.
    pub ok: bool,
    /// Output as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Run time of the tool.
    pub latency_ms: u64,
    /// Kind of the tool.
    pub kind: ToolKind,
    /// Server of the tool.
    pub namespace: String,
    /// Additional data.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extras: Map<String, Value>,
}

impl ToolExecuteResult {
    /// Converts the result of a call of a tool of this kind and server.
    pub fn of(call_result: &CallResult, kind: ToolKind, namespace: impl Into<String>) -> Self {
        let (result, error) = match &call_result.result {
            Ok(output) if output.is_error() => (None, Some(text(output))),
            Ok(output) => (Some(text(output)), None),
            Err(error) => (None, Some(error.text())),
        };
        let mut extras = Map::new();
        if let Err(error) = &call_result.result {
            extras.insert("error".to_owned(), error_document(error));
        }
        if let Some(handle) = &call_result.meta.stored {
            extras.insert("stored".to_owned(), handle.0.clone().into());
        }
        if !call_result.warnings.is_empty() {
            extras.insert("warnings".to_owned(), call_result.warnings.clone().into());
        }
        let millis = call_result.duration.unwrap_or_default().as_millis();
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

/// Result of a call for callers that check `success`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ContractResult {
    /// `true` if the tool succeeded.
    pub success: bool,
    /// Error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl ContractResult {
    /// Converts the result of a call.
    pub fn of(call_result: &CallResult) -> Self {
        match &call_result.result {
            Ok(output) if output.is_error() => {
                let message = output.text();
                let error =
                    if message.trim().is_empty() { "Unknown error".to_owned() } else { message.into_owned() };
                Self { success: false, error: Some(error), data: None }
            }
            Ok(output) => Self { success: true, error: None, data: Some(output.data().into_owned()) },
            Err(error) => Self { success: false, error: Some(error.text()), data: None },
        }
    }
}

/// Converts the result of a call into an MCP tool result. A server's result stays unchanged; an error is
/// reported as text, and in `_meta` for programs.
pub fn mcp_result(call_result: &CallResult) -> RawJson {
    match &call_result.result {
        Ok(output) => output.to_result(),
        Err(error) => RawJson::of(&json!({
            "content": [{"type": "text", "text": error.text()}],
            "isError": true,
            "_meta": {"pegboard/error": error_document(error)},
        })),
    }
}

/// Returns an error as JSON: `kind`, `message`, `executed` and, for validation errors, `violations`.
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
