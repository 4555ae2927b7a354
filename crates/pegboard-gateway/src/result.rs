//! How calls went, as tool results of the protocol.

use pegboard_core::call::{Ended, SessionNote};
use pegboard_core::error::{CallError, ErrorKind, NotFound, ProtocolError};
use pegboard_core::output::Output;
use pegboard_core::projection::{error_document, mcp_result};
use pegboard_json::RawJson;
use pegboard_wire::RpcError;
use serde_json::{Value, json};

use crate::surface::array;

/// Where a result says what its tool had been called, if that was not quite its name.
const CORRECTED_FROM: &str = "pegboard/corrected_from";

/// Where a result says which session and workspace its call was made in.
const SESSION: &str = "pegboard/session";

/// The error with which a server refused something, in its own words.
pub(crate) fn refused(ended: &Ended) -> Option<RpcError> {
    let Err(CallError::Failed(error)) = &ended.result else { return None };
    let ProtocolError { code, message, data } = error.protocol()?;
    let words = RpcError::new(*code, message.clone());
    Some(match data {
        Some(data) => words.with_data(data.clone()),
        None => words,
    })
}

/// How the call of a tool went that goes by its own name. What a server answered stays as it is.
pub(crate) fn of_tool(ended: &Ended) -> RawJson {
    let result = mcp_result(ended);
    match &ended.journey.corrected_from {
        None => result,
        Some(asked) => {
            let own = result.get("_meta").unwrap_or_else(RawJson::empty_object);
            result.with("_meta", &own.with(CORRECTED_FROM, &RawJson::of(asked)))
        }
    }
}

/// The same for a call that was made in a session, which the result names. A line says so where that is news.
pub(crate) fn of_tool_in_session(ended: &Ended) -> RawJson {
    let result = of_tool(ended);
    let Some(SessionNote { id, workspace, workspace_source, notice }) = &ended.journey.session else {
        return result;
    };
    let note = json!({"sessionId": id, "workspaceId": workspace, "workspaceSource": workspace_source});
    let own = result.get("_meta").filter(RawJson::is_object).unwrap_or_else(RawJson::empty_object);
    let result = result.with("_meta", &own.with(SESSION, &RawJson::from(note)));
    match (notice, result.get("content")) {
        (Some(notice), Some(content)) if content.as_str().starts_with('[') => {
            let line = RawJson::from(json!({"type": "text", "text": notice}));
            result.with("content", &array(content.items().chain([line])))
        }
        _ => result,
    }
}

/// How the call of one of the gateway's own tools went.
pub(crate) fn of_own_tool(ended: &Ended) -> RawJson {
    match &ended.result {
        Ok(output) if output.is_error() && !output.is_from_server() => refusal(output),
        Ok(output) => output.to_result(),
        Err(error) => failure(&error.text(), &error_document(error)),
    }
}

fn refusal(output: &Output) -> RawJson {
    let text = output.text();
    failure(&text, &json!({"kind": ErrorKind::ExecutionError, "message": text, "executed": true}))
}

/// An answer in words.
pub(crate) fn text(text: &str) -> RawJson {
    RawJson::from(json!({"content": [{"type": "text", "text": text}]}))
}

/// Why there is no answer of a tool that goes by its own name, in words and for programs.
pub(crate) fn refusal_of_tool(text: &str, error: &Value) -> RawJson {
    RawJson::from(json!({
        "content": [{"type": "text", "text": text}],
        "isError": true,
        "_meta": {"pegboard/error": error},
    }))
}

/// Why there is no answer, in words and for programs.
pub(crate) fn failure(text: &str, error: &Value) -> RawJson {
    RawJson::from(json!({
        "content": [{"type": "text", "text": text}],
        "isError": true,
        "structuredContent": {"error": error},
    }))
}

/// Why there is no answer, for programs, with what there is in place of what was asked for.
pub(crate) fn document(error: &CallError) -> Value {
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
        CallError::NotFound(NotFound::Tool { nearest, .. } | NotFound::ToolOfServer { nearest, .. }) => {
            document["nearest"] = nearest.clone().into();
        }
        _ => {}
    }
    document
}
