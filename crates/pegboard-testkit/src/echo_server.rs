//! A server for measurements: an `echo` tool, and any number of others to list.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use pegboard_wire::era::Revision;
use pegboard_wire::server::{McpService, ServerRequest, ServiceDescription, ServiceReply, ServiceServer};
use pegboard_wire::{RawJson, RpcError};
use serde_json::{Value, json};

/// Creates a server with the tool `echo` and `n_others` tools that have no code.
pub fn echo_server(n_others: usize) -> ServiceServer {
    let others = (0..n_others).map(listed_tool);
    let tools: Vec<Value> = std::iter::once(echo_tool()).chain(others).collect();
    ServiceServer::new(Arc::new(EchoService { tools: RawJson::from(json!({"tools": tools})) }))
}

/// The service behind [`echo_server`].
struct EchoService {
    /// Result of `tools/list`.
    tools: RawJson,
}

impl McpService for EchoService {
    fn describe(&self, _revision: Revision) -> ServiceDescription {
        ServiceDescription {
            info: RawJson::from(json!({"name": "pegboard-echo", "version": env!("CARGO_PKG_VERSION")})),
            capabilities: RawJson::from(json!({"tools": {}})),
            instructions: None,
        }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let reply = match &*request.method {
            "tools/list" => Ok(self.tools.clone().into()),
            "tools/call" => {
                let params = request.params.to_value();
                let text = &params["arguments"]["text"];
                Ok(RawJson::from(json!({"content": [{"type": "text", "text": text}]})).into())
            }
            method => Err(RpcError::method_not_found(method)),
        };
        ready(reply).boxed()
    }
}

fn echo_tool() -> Value {
    json!({
        "name": "echo",
        "description": "Returns its text.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string", "description": "Text to return"}},
            "required": ["text"],
        },
        "annotations": {"readOnlyHint": true},
    })
}

/// A definition of the usual size.
fn listed_tool(number: usize) -> Value {
    json!({
        "name": format!("search_{number}"),
        "description": format!("Searches collection {number} and returns the best matches with their scores."),
        "inputSchema": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "Words to search for"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["query"],
        },
        "annotations": {"readOnlyHint": true},
    })
}
