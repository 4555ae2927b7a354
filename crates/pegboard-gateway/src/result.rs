//! Tool results of finished calls.

use pegboard_core::call::{CallResult, SessionInfo};
use pegboard_core::error::{CallError, ErrorKind, NotFound, ProtocolError};
use pegboard_core::output::Output;
use pegboard_core::projection::{error_document, mcp_result};
use pegboard_json::RawJson;
use pegboard_wire::{RpcError, code};
use serde_json::{Value, json};

use crate::surface::json_array;

/// `_meta` key of the name that a call used, if it was corrected.
const CORRECTED_FROM_KEY: &str = "pegboard/corrected_from";

/// `_meta` key of the session and workspace of a call.
const SESSION_KEY: &str = "pegboard/session";

/// Returns the JSON-RPC error with which the server refused the call, if it did.
pub(crate) fn upstream_error(call_result: &CallResult) -> Option<RpcError> {
    let Err(CallError::Failed(error)) = &call_result.result else { return None };
    let ProtocolError { code, message, data } = error.protocol()?;
    let rpc_error = RpcError::new(*code, message.clone());
    Some(match data {
        Some(data) => rpc_error.with_data(data.clone()),
        None => rpc_error,
    })
}

/// Returns the JSON-RPC error for the name of a tool that does not exist. A toolbox that is not open is a matter for
/// the model, so it is a result.
pub(crate) fn unknown_tool(call_result: &CallResult) -> Option<RpcError> {
    match &call_result.result {
        Err(CallError::NotFound(NotFound::NotOpen { .. } | NotFound::Disabled { .. })) => None,
        Err(error @ CallError::NotFound(_)) => {
            Some(RpcError::new(code::INVALID_PARAMS, error.text()).with_data(error_details(error)))
        }
        Ok(_) | Err(_) => None,
    }
}

/// Renders the result of a server's tool. Results of servers pass unchanged.
pub(crate) fn tool_result(call_result: &CallResult) -> RawJson {
    let result = mcp_result(call_result);
    match &call_result.meta.corrected_from {
        None => result,
        Some(requested) => {
            let own = result.get("_meta").unwrap_or_else(RawJson::empty_object);
            result.with("_meta", &own.with(CORRECTED_FROM_KEY, &RawJson::of(requested)))
        }
    }
}

/// Renders the result of a server's tool, called by its name, with its session in `_meta`.
pub(crate) fn named_tool_result_in_session(call_result: &CallResult) -> Result<RawJson, RpcError> {
    unknown_tool(call_result).map_or_else(|| Ok(tool_result_in_session(call_result)), Err)
}

/// Renders the result of a server's tool with its session in `_meta`, and a text item if the session is new.
pub(crate) fn tool_result_in_session(call_result: &CallResult) -> RawJson {
    let result = tool_result(call_result);
    let Some(SessionInfo { id, workspace, workspace_source, notice }) = &call_result.meta.session else {
        return result;
    };
    let note = json!({"sessionId": id, "workspaceId": workspace, "workspaceSource": workspace_source});
    let own = result.get("_meta").filter(RawJson::is_object).unwrap_or_else(RawJson::empty_object);
    let result = result.with("_meta", &own.with(SESSION_KEY, &RawJson::from(note)));
    match (notice, result.get("content")) {
        (Some(notice), Some(content)) if content.as_str().starts_with('[') => {
            let line = RawJson::from(json!({"type": "text", "text": notice}));
            result.with("content", &json_array(content.items().chain([line])))
        }
        _ => result,
    }
}

/// Renders the result of a meta-tool.
pub(crate) fn meta_tool_result(call_result: &CallResult) -> RawJson {
    match &call_result.result {
        Ok(output) if output.is_error() && !output.is_from_server() => failed_output(output),
        Ok(output) => output.to_result(),
        Err(error) => meta_tool_error(&error.text(), &error_document(error)),
    }
}

fn failed_output(output: &Output) -> RawJson {
    let text = output.text();
    meta_tool_error(&text, &json!({"kind": ErrorKind::ExecutionError, "message": text, "executed": true}))
}

/// A text result.
pub(crate) fn text_result(text: &str) -> RawJson {
    RawJson::from(json!({"content": [{"type": "text", "text": text}]}))
}

/// An error result of a server's tool, as text and in `_meta`.
pub(crate) fn tool_error(text: &str, error: &Value) -> RawJson {
    RawJson::from(json!({
        "content": [{"type": "text", "text": text}],
        "isError": true,
        "_meta": {"pegboard/error": error},
    }))
}

/// An error result of a meta-tool, as text and as structured content.
pub(crate) fn meta_tool_error(text: &str, error: &Value) -> RawJson {
    RawJson::from(json!({
        "content": [{"type": "text", "text": text}],
        "isError": true,
        "structuredContent": {"error": error},
    }))
}

/// Returns the structured error with the available or nearest names.
pub(crate) fn error_details(error: &CallError) -> Value {
    let mut document = error_document(error);
    match error {
        CallError::NotFound(NotFound::Toolbox { toolbox, available }) => {
            document["toolbox"] = toolbox.as_str().into();
            document["available"] = available.clone().into();
        }
        CallError::NotFound(NotFound::NotOpen { toolbox }) => document["toolbox"] = toolbox.as_str().into(),
        CallError::NotFound(NotFound::Server { available, .. }) => {
            document["available"] = available.clone().into();
        }
        CallError::NotFound(
            NotFound::Tool { nearest, .. }
            | NotFound::Ambiguous { candidates: nearest, .. }
            | NotFound::ToolOfServer { nearest, .. },
        ) => {
            document["nearest"] = nearest.clone().into();
        }
        _ => {}
    }
    document
}
