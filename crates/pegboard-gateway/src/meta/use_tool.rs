//! `use_tool`: calls a tool of an open toolbox by its id.

use std::sync::{Arc, LazyLock};

use futures_util::future::{FutureExt, ready};
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{Call, CallResult};
use pegboard_core::error::{CallError, ErrorKind, NotFound};
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_json::RawJson;
use pegboard_runtime::Caller;
use serde_json::json;

use super::MetaTool;
use super::input::{InputProblems, echo};
use crate::client_request::ClientRequest;
use crate::resource_index::with_view;
use crate::result;
use crate::surface::ReplyFuture;

/// The `use_tool` tool.
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

    fn call(&self, mut request: ClientRequest, arguments: RawJson) -> ReplyFuture {
        let (address, arguments) = match ToolAddress::read(arguments) {
            Ok(read) => read,
            Err(error_result) => return ready(Ok(error_result.into())).boxed(),
        };
        let id = match address.id(&request) {
            Ok(id) => id,
            Err(error) => return ready(Ok(address.error_result(&error).into())).boxed(),
        };
        request.label = Some(address.label(&request, &id));
        let view = request.profile.tool_view(&id);
        let render = move |call_result: &CallResult| {
            let result = address.render(call_result);
            if call_result.result.is_ok() { with_view(result, view.as_deref()) } else { result }
        };
        async move { request.call(Call::new(id, arguments), render).await }.boxed()
    }
}

/// A tool id as given by the caller, not validated yet.
struct ToolAddress {
    toolbox: String,
    server: String,
    name: String,
}

impl ToolAddress {
    /// Parses the address and the tool's arguments; `Err` is the error result.
    fn read(arguments: RawJson) -> Result<(Self, CallArguments), RawJson> {
        const NAMES: [&str; 3] = ["toolbox", "server", "name"];
        const TOOL_ALIASES: [(&str, &str); 5] = [
            ("tool", "name"),
            ("tool_name", "name"),
            ("toolbox_name", "toolbox"),
            ("server_name", "server"),
            ("source_server", "server"),
        ];
        const ROOT_ALIASES: [(&str, &str); 3] =
            [("parameters", "arguments"), ("params", "arguments"), ("args", "arguments")];
        let mut problems = InputProblems::default();
        let mut address = None;
        let mut given = RawJson::empty_object();
        if let Some(root) = problems.object("", Some(arguments)) {
            if let Some(tool) = problems.object("tool", root.get("tool")) {
                let toolbox = problems.required_name("tool.toolbox", tool.get("toolbox"), "Toolbox name");
                let server = problems.required_name("tool.server", tool.get("server"), "Server name");
                let name = problems.required_name("tool.name", tool.get("name"), "Tool name");
                problems.reject_unknown("tool", &tool, &NAMES, &TOOL_ALIASES);
                address = toolbox.zip(server).zip(name);
            }
            if let Some(arguments) = root.get("arguments") {
                given = problems.object("arguments", Some(arguments)).unwrap_or(given);
            }
            problems.reject_unknown("", &root, &["tool", "arguments"], &ROOT_ALIASES);
        }
        match (problems.text(), address) {
            (None, Some(((toolbox, server), name))) => {
                Ok((Self { toolbox, server, name }, CallArguments::from(given)))
            }
            (text, _) => {
                let text = format!("Invalid tool invocation parameters: {}", text.unwrap_or_default());
                let kind = ErrorKind::InvalidParameters;
                Err(result::meta_tool_error(
                    &text,
                    &json!({"kind": kind, "message": text, "executed": false, "violations": problems.all()}),
                ))
            }
        }
    }

    /// Returns the tool id, whether or not the tool exists.
    fn id(&self, request: &ClientRequest) -> Result<ToolId, CallError> {
        let names =
            (ToolboxName::new(&self.toolbox), ServerName::new(&self.server), ToolName::new(&self.name));
        match names {
            (Ok(toolbox), Ok(server), Ok(name)) => Ok(ToolId { toolbox, server, name }),
            _ => Err(self.not_found(request)),
        }
    }

    /// Returns the display name of the tool.
    fn label(&self, request: &ClientRequest, id: &ToolId) -> Arc<str> {
        match request.profile.runtime.catalogue().by_id(id) {
            Some(tool) => Arc::clone(&tool.flat_name),
            // The tools of its server are not known yet.
            None => format!("{}__{}", self.server, self.name).into(),
        }
    }

    /// Returns the first part of the address that does not exist. Called if a part is not a valid name.
    fn not_found(&self, request: &ClientRequest) -> CallError {
        let toolboxes = request.profile.toolboxes();
        let toolbox = toolboxes.iter().find(|toolbox| toolbox.name.as_str() == self.toolbox);
        CallError::NotFound(match toolbox {
            None => NotFound::Toolbox {
                toolbox: echo(&self.toolbox),
                available: toolboxes.iter().map(|toolbox| toolbox.name.to_string()).collect(),
            },
            Some(toolbox) if !request.caller.is_toolbox_open(&toolbox.name) => {
                NotFound::NotOpen { toolbox: toolbox.name.to_string() }
            }
            Some(toolbox) if toolbox.servers.iter().all(|server| server.as_str() != self.server) => {
                NotFound::Server {
                    server: echo(&self.server),
                    toolbox: toolbox.name.to_string(),
                    available: toolbox.servers.iter().map(ToString::to_string).collect(),
                }
            }
            Some(toolbox) => NotFound::ToolOfServer {
                name: echo(&self.name),
                server: self.server.clone(),
                toolbox: toolbox.name.to_string(),
                nearest: Vec::new(),
            },
        })
    }

    /// Renders the result. Results of servers pass unchanged.
    fn render(&self, call_result: &CallResult) -> RawJson {
        match &call_result.result {
            Ok(output) => output.to_result(),
            Err(error) => self.error_result(error),
        }
    }

    fn error_result(&self, error: &CallError) -> RawJson {
        let Self { toolbox, server, name } = self;
        let text = match error {
            CallError::NotFound(_) => format!("Error executing tool: {}", error.text()),
            _ => format!(
                "Error executing tool '{name}' in server '{server}' (toolbox '{toolbox}'): {}",
                error.text()
            ),
        };
        let mut document = result::error_details(error);
        document["message"] = text.as_str().into();
        for (member, value) in [("toolbox", toolbox), ("server", server), ("name", name)] {
            document[member] = echo(value).into();
        }
        result::meta_tool_error(&text, &document)
    }
}
