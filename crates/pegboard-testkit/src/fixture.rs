//! A server with every tool, prompt, resource and behaviour that the official conformance suite asks for.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pegboard_wire::era::Revision;
use pegboard_wire::http::headers::HeaderParameter;
use pegboard_wire::server::{Change, Description, Reply, ServerRequest, Service};
use pegboard_wire::{RawJson, RpcError, code};
use serde_json::{Value, json};
use tokio::sync::broadcast;

mod prompts;
mod resources;
mod rounds;
mod tasks;
mod tools;

/// The fixture.
pub struct Fixture {
    changes: broadcast::Sender<Change>,
    tasks: Arc<tasks::Tasks>,
}

impl Fixture {
    /// A fixture that nobody has called yet.
    pub fn new() -> Self {
        let changes = broadcast::Sender::new(64);
        Self { tasks: Arc::new(tasks::Tasks::new(changes.clone())), changes }
    }
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

impl Service for Fixture {
    fn describe(&self, revision: Revision) -> Description {
        let mut capabilities = json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"listChanged": true, "subscribe": true},
            "completions": {},
        });
        if !revision.is_stateless() {
            capabilities["logging"] = json!({});
        }
        tasks::describe(revision, &mut capabilities);
        Description {
            info: RawJson::from(json!({"name": "pegboard-fixture", "version": env!("CARGO_PKG_VERSION")})),
            capabilities: RawJson::from(capabilities),
            instructions: Some("A server for tests.".to_owned()),
        }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<Reply, RpcError>> {
        let (changes, tasks) = (self.changes.clone(), Arc::clone(&self.tasks));
        async move {
            let params = request.params.to_value();
            match &*request.method {
                "tools/list" => Ok(result(json!({"tools": tools::list(request.revision)}))),
                "tools/call" => match tasks.call(&request, &params).await {
                    Some(reply) => reply,
                    None => tools::call(Arc::new(request), params, changes).await,
                },
                method if method.starts_with("tasks/") => tasks.answer(&request, &params).await,
                "prompts/list" => Ok(result(json!({"prompts": prompts::list()}))),
                "prompts/get" => prompts::get(&request, &params),
                "resources/list" => Ok(result(json!({"resources": resources::list()}))),
                "resources/templates/list" => Ok(result(json!({"resourceTemplates": resources::templates()}))),
                "resources/read" => resources::read(&params, request.revision),
                "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => Ok(result(json!({}))),
                "completion/complete" => {
                    Ok(result(json!({"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": false}})))
                }
                method => Err(RpcError::method_not_found(method)),
            }
        }
        .boxed()
    }

    fn changes(&self) -> Option<broadcast::Receiver<Change>> {
        Some(self.changes.subscribe())
    }

    fn header_parameters(&self, tool: &str) -> Vec<HeaderParameter> {
        tools::header_parameters(tool)
    }
}

fn result(value: Value) -> Reply {
    Reply::Result(RawJson::from(value))
}

fn text(text: impl Into<String>) -> Reply {
    result(json!({"content": [{"type": "text", "text": text.into()}]}))
}

fn missing(what: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("Invalid params: {what} is missing"))
}

/// A red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A moment of silence.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";
