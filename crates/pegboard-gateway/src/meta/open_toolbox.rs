//! `open_toolbox`: starts the servers of a toolbox and lists their tools.

use std::sync::LazyLock;

use futures_util::future::{FutureExt, ready};
use pegboard_core::error::{CallError, ErrorKind, NotFound};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use pegboard_runtime::toolbox::OpenedToolbox;
use serde_json::json;

use super::MetaTool;
use super::input::{DetailLevel, InputProblems, echo};
use crate::client_request::ClientRequest;
use crate::result;
use crate::surface::ReplyFuture;

mod summary;

/// The `open_toolbox` tool.
pub(super) struct OpenToolbox;

static DEFINITION: LazyLock<RawJson> = LazyLock::new(|| {
    RawJson::from(json!({
        "name": "open_toolbox",
        "title": "Open a toolbox",
        "description": include_str!("open_toolbox.md").trim_end(),
        "inputSchema": {
            "type": "object",
            "properties": {
                "toolbox": {"type": "string", "minLength": 1},
                "detail": {"enum": ["compact", "full"]},
            },
            "required": ["toolbox"],
            "additionalProperties": false,
        },
        "annotations": {
            "readOnlyHint": false, "destructiveHint": false, "idempotentHint": true, "openWorldHint": true,
        },
    }))
});

impl MetaTool for OpenToolbox {
    fn name(&self) -> &'static str {
        "open_toolbox"
    }

    fn definition(&self, _caller: &Caller) -> Option<RawJson> {
        Some(DEFINITION.clone())
    }

    fn call(&self, request: ClientRequest, arguments: RawJson) -> ReplyFuture {
        let (toolbox, detail) = match read_arguments(arguments) {
            Ok(read) => read,
            Err(error_result) => return ready(Ok(error_result.into())).boxed(),
        };
        async move {
            let result = match request.caller.open(&toolbox).await {
                Ok(opened) => result::text_result(listing(&request, &opened, detail).as_str()),
                Err(error) => open_error(&toolbox, &error),
            };
            Ok(result.into())
        }
        .boxed()
    }
}

/// Lists the tools of a toolbox: every definition, or a summary if they are large and the caller does not ask for them.
fn listing(request: &ClientRequest, opened: &OpenedToolbox, detail: Option<DetailLevel>) -> RawJson {
    let max_bytes = request.profile.runtime.settings().open_toolbox_max_bytes;
    let is_small = opened.tools.as_str().len() <= max_bytes;
    let detail = detail.unwrap_or(if is_small { DetailLevel::Full } else { DetailLevel::Compact });
    match detail {
        DetailLevel::Full => RawJson::of(opened),
        DetailLevel::Compact => {
            let snapshot = request.profile.runtime.catalogue();
            RawJson::from(summary::summarize(opened, snapshot.tools_of(&opened.toolbox), max_bytes))
        }
    }
}

/// Parses the arguments; `Err` is the error result.
fn read_arguments(arguments: RawJson) -> Result<(String, Option<DetailLevel>), RawJson> {
    let mut problems = InputProblems::default();
    let (mut toolbox, mut detail) = (None, None);
    if let Some(arguments) = problems.object("", Some(arguments)) {
        toolbox = problems.required_name("toolbox", arguments.get("toolbox"), "Toolbox name");
        detail = problems.detail(arguments.get("detail"));
        problems.reject_unknown(
            "",
            &arguments,
            &["toolbox", "detail"],
            &[("toolbox_name", "toolbox"), ("name", "toolbox")],
        );
    }
    match (problems.text(), toolbox) {
        (None, Some(toolbox)) => Ok((toolbox, detail)),
        (text, _) => {
            let text = format!("Invalid parameters: {}", text.unwrap_or_default());
            let kind = ErrorKind::InvalidParameters;
            Err(result::meta_tool_error(
                &text,
                &json!({"kind": kind, "message": text, "executed": false, "violations": problems.all()}),
            ))
        }
    }
}

/// Renders the error of a failed open.
fn open_error(toolbox: &str, error: &CallError) -> RawJson {
    let toolbox = echo(toolbox);
    let text = match error {
        CallError::NotFound(NotFound::Toolbox { available, .. }) => {
            let available = if available.is_empty() { "none".to_owned() } else { available.join(", ") };
            format!("Error: Toolbox '{toolbox}' not found. Available toolboxes: {available}")
        }
        other => other.text(),
    };
    let mut document = result::error_details(error);
    document["message"] = text.as_str().into();
    document["toolbox"] = toolbox.into();
    result::meta_tool_error(&text, &document)
}
