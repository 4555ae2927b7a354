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

/// Creates a server with tools of an office, such as `create_invoice`: [`VERBS`] with some of [`OBJECTS`]. Each returns its
/// argument `text`.
pub fn office_server(objects: &[&str], n_tools: usize) -> ServiceServer {
    let tools = objects.iter().flat_map(|object| VERBS.iter().map(|verb| office_tool(verb, object)));
    let tools: Vec<Value> = tools.take(n_tools).collect();
    ServiceServer::new(Arc::new(EchoService { tools: RawJson::from(json!({"tools": tools})) }))
}

/// Verbs in the names of [`office_server`]'s tools.
pub const VERBS: [&str; 10] =
    ["create", "search", "list", "read", "update", "delete", "export", "archive", "share", "count"];

/// Objects in the names of [`office_server`]'s tools.
pub const OBJECTS: [&str; 50] = [
    "invoice",
    "contract",
    "meeting",
    "ticket",
    "employee",
    "project",
    "budget",
    "shipment",
    "supplier",
    "customer",
    "campaign",
    "document",
    "report",
    "payment",
    "refund",
    "order",
    "product",
    "warehouse",
    "vehicle",
    "route",
    "contact",
    "calendar",
    "task",
    "milestone",
    "branch",
    "release",
    "incident",
    "alert",
    "dashboard",
    "metric",
    "dataset",
    "query",
    "table",
    "backup",
    "certificate",
    "domain",
    "mailbox",
    "newsletter",
    "survey",
    "interview",
    "vacancy",
    "training",
    "badge",
    "room",
    "desk",
    "printer",
    "laptop",
    "licence",
    "subscription",
    "voucher",
];

/// The service behind [`echo_server`] and [`office_server`].
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

/// A definition of the usual size.
fn office_tool(verb: &str, object: &str) -> Value {
    json!({
        "name": format!("{verb}_{object}"),
        "description": format!(
            "Use this tool to {verb} a {object} in the workspace of the current team. Returns the {object} with its id, \
             its state and the time of the last change. Fails if the caller may not {verb} it."
        ),
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": format!("Words that describe the {object}")},
                "id": {"type": "string", "description": format!("Id of the {object}, as listed")},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 10},
                "labels": {"type": "array", "items": {"type": "string"}, "description": "Labels to match or to set"},
            },
            "required": ["text"],
        },
    })
}
