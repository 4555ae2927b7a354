//! `use_tool`: calls a tool of an open toolbox by its identity.

use std::sync::{Arc, LazyLock};

use futures_util::future::{FutureExt, ready};
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{Call, Ended};
use pegboard_core::error::{CallError, ErrorKind, NotFound};
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use serde_json::json;

use super::MetaTool;
use super::input::{Problems, said};
use crate::result;
use crate::surface::Answering;
use crate::visit::Visit;

/// Calls a tool of an open toolbox by its identity.
pub(super) struct UseTool;

static DEFINITION: LazyLock<RawJson> = LazyLock::new(|| {
    RawJson::from(json!({
        "name": "use_tool",
        "title": "Use a tool",
        "description": include_str!("use_tool.md").trim_end(),
        "inputSchema": {
            "type": "object",
            "properties": {
                "tool": {
                    "type": "object",
                    "properties": {
                        "toolbox": {"type": "string", "minLength": 1},
                        "server": {"type": "string", "minLength": 1},
                        "name": {"type": "string", "minLength": 1},
                    },
                    "required": ["toolbox", "server", "name"],
                    "additionalProperties": false,
                },
                "arguments": {"type": "object", "default": {}, "description": "What the tool's input schema asks for"},
            },
            "required": ["tool"],
            "additionalProperties": false,
        },
        "annotations": {
            "readOnlyHint": false, "destructiveHint": false, "idempotentHint": false, "openWorldHint": true,
        },
    }))
});

impl MetaTool for UseTool {
    fn name(&self) -> &'static str {
        "use_tool"
    }

    fn definition(&self, _caller: &Caller) -> Option<RawJson> {
        Some(DEFINITION.clone())
    }

    fn call(&self, mut visit: Visit, arguments: RawJson) -> Answering {
        let (wanted, arguments) = match Wanted::read(arguments) {
            Ok(read) => read,
            Err(refusal) => return ready(Ok(refusal.into())).boxed(),
        };
        let id = match wanted.id(&visit) {
            Ok(id) => id,
            Err(error) => return ready(Ok(wanted.failed(&error).into())).boxed(),
        };
        visit.label = Some(wanted.label(&visit, &id));
        async move { visit.call(Call::new(id, arguments), move |ended| wanted.words(ended)).await }.boxed()
    }
}

/// A tool as a caller names it.
struct Wanted {
    toolbox: String,
    server: String,
    name: String,
}

impl Wanted {
    /// The tool and what it is given, or everything that is wrong with the arguments.
    fn read(arguments: RawJson) -> Result<(Self, Arguments), RawJson> {
        const NAMES: [&str; 3] = ["toolbox", "server", "name"];
        const MEANT: [(&str, &str); 5] = [
            ("tool", "name"),
            ("tool_name", "name"),
            ("toolbox_name", "toolbox"),
            ("server_name", "server"),
            ("source_server", "server"),
        ];
        const MEANT_AT_ROOT: [(&str, &str); 3] =
            [("parameters", "arguments"), ("params", "arguments"), ("args", "arguments")];
        let mut problems = Problems::default();
        let mut wanted = None;
        let mut given = RawJson::empty_object();
        if let Some(root) = problems.object("", Some(arguments)) {
            if let Some(tool) = problems.object("tool", root.get("tool")) {
                let toolbox = problems.name("tool.toolbox", tool.get("toolbox"), "Toolbox name");
                let server = problems.name("tool.server", tool.get("server"), "Server name");
                let name = problems.name("tool.name", tool.get("name"), "Tool name");
                problems.only("tool", &tool, &NAMES, &MEANT);
                wanted = toolbox.zip(server).zip(name);
            }
            if let Some(arguments) = root.get("arguments") {
                given = problems.object("arguments", Some(arguments)).unwrap_or(given);
            }
            problems.only("", &root, &["tool", "arguments"], &MEANT_AT_ROOT);
        }
        match (problems.text(), wanted) {
            (None, Some(((toolbox, server), name))) => {
                Ok((Self { toolbox, server, name }, Arguments::from(given)))
            }
            (text, _) => {
                let text = format!("Invalid tool invocation parameters: {}", text.unwrap_or_default());
                let kind = ErrorKind::InvalidParameters;
                Err(result::failure(
                    &text,
                    &json!({"kind": kind, "message": text, "executed": false, "violations": problems.texts()}),
                ))
            }
        }
    }

    /// The tool's identity, whether it is there or not.
    fn id(&self, visit: &Visit) -> Result<ToolId, CallError> {
        let names =
            (ToolboxName::new(&self.toolbox), ServerName::new(&self.server), ToolName::new(&self.name));
        match names {
            (Ok(toolbox), Ok(server), Ok(name)) => Ok(ToolId { toolbox, server, name }),
            _ => Err(self.missing(visit)),
        }
    }

    /// What people call the tool.
    fn label(&self, visit: &Visit, id: &ToolId) -> Arc<str> {
        match visit.board.runtime.catalogue().by_id(id) {
            Some(tool) => Arc::clone(&tool.flat_name),
            // Its server has not been asked yet what it has.
            None => format!("{}__{}", self.server, self.name).into(),
        }
    }

    /// What of an identity is not there, because it cannot be a name: looked for in the order of the identity.
    fn missing(&self, visit: &Visit) -> CallError {
        let toolboxes = visit.board.toolboxes();
        let toolbox = toolboxes.iter().find(|toolbox| toolbox.name.as_str() == self.toolbox);
        CallError::NotFound(match toolbox {
            None => NotFound::Toolbox {
                toolbox: said(&self.toolbox),
                available: toolboxes.iter().map(|toolbox| toolbox.name.to_string()).collect(),
            },
            Some(toolbox) if !visit.caller.has_open(&toolbox.name) => {
                NotFound::NotOpen { toolbox: toolbox.name.to_string() }
            }
            Some(toolbox) if toolbox.servers.iter().all(|server| server.as_str() != self.server) => {
                NotFound::Server {
                    server: said(&self.server),
                    toolbox: toolbox.name.to_string(),
                    available: toolbox.servers.iter().map(ToString::to_string).collect(),
                }
            }
            Some(toolbox) => NotFound::ToolOfServer {
                name: said(&self.name),
                server: self.server.clone(),
                toolbox: toolbox.name.to_string(),
                nearest: Vec::new(),
            },
        })
    }

    /// How the call went. What a server answered stays as it is.
    fn words(&self, ended: &Ended) -> RawJson {
        match &ended.result {
            Ok(output) => output.to_result(),
            Err(error) => self.failed(error),
        }
    }

    fn failed(&self, error: &CallError) -> RawJson {
        let Self { toolbox, server, name } = self;
        let text = match error {
            CallError::NotFound(_) => format!("Error executing tool: {}", error.text()),
            _ => format!(
                "Error executing tool '{name}' in server '{server}' (toolbox '{toolbox}'): {}",
                error.text()
            ),
        };
        let mut document = result::document(error);
        document["message"] = text.as_str().into();
        for (member, value) in [("toolbox", toolbox), ("server", server), ("name", name)] {
            document[member] = said(value).into();
        }
        result::failure(&text, &document)
    }
}
