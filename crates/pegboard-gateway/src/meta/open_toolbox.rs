//! `open_toolbox`: makes the servers of a toolbox ready, and lists their tools.

use std::sync::LazyLock;

use futures_util::future::{FutureExt, ready};
use pegboard_core::error::{CallError, ErrorKind, NotFound};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use serde_json::json;

use super::MetaTool;
use super::input::{Problems, said};
use crate::result;
use crate::surface::Answering;
use crate::visit::Visit;

/// Makes the servers of a toolbox ready, and lists their tools.
pub(super) struct OpenToolbox;

static DEFINITION: LazyLock<RawJson> = LazyLock::new(|| {
    RawJson::from(json!({
        "name": "open_toolbox",
        "title": "Open a toolbox",
        "description": include_str!("open_toolbox.md").trim_end(),
        "inputSchema": {
            "type": "object",
            "properties": {"toolbox": {"type": "string", "minLength": 1}},
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

    fn call(&self, visit: Visit, arguments: RawJson) -> Answering {
        let toolbox = match toolbox(arguments) {
            Ok(toolbox) => toolbox,
            Err(refusal) => return ready(Ok(refusal.into())).boxed(),
        };
        async move {
            let result = match visit.caller.open(&toolbox).await {
                Ok(opened) => result::text(&RawJson::of(&opened).indented()),
                Err(error) => refused(&toolbox, &error),
            };
            Ok(result.into())
        }
        .boxed()
    }
}

/// The toolbox that is to be opened, or what is wrong with the arguments.
fn toolbox(arguments: RawJson) -> Result<String, RawJson> {
    let mut problems = Problems::default();
    let mut toolbox = None;
    if let Some(arguments) = problems.object("", Some(arguments)) {
        toolbox = problems.name("toolbox", arguments.get("toolbox"), "Toolbox name");
        problems.only("", &arguments, &["toolbox"], &[("toolbox_name", "toolbox"), ("name", "toolbox")]);
    }
    match (problems.text(), toolbox) {
        (None, Some(toolbox)) => Ok(toolbox),
        (text, _) => {
            let text = format!("Invalid parameters: {}", text.unwrap_or_default());
            let kind = ErrorKind::InvalidParameters;
            Err(result::failure(
                &text,
                &json!({"kind": kind, "message": text, "executed": false, "violations": problems.texts()}),
            ))
        }
    }
}

/// Why a toolbox cannot be opened, in the words of who wanted to open it.
fn refused(toolbox: &str, error: &CallError) -> RawJson {
    let toolbox = said(toolbox);
    let text = match error {
        CallError::NotFound(NotFound::Toolbox { available, .. }) => {
            let available = if available.is_empty() { "none".to_owned() } else { available.join(", ") };
            format!("Error: Toolbox '{toolbox}' not found. Available toolboxes: {available}")
        }
        other => other.text(),
    };
    let mut document = result::document(error);
    document["message"] = text.as_str().into();
    document["toolbox"] = toolbox.into();
    result::failure(&text, &document)
}
