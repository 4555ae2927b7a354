//! A server with every tool, prompt, resource and behaviour that the official conformance suite requires.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use pegboard_wire::era::Revision;
use pegboard_wire::http::headers::HeaderParameter;
use pegboard_wire::server::{McpService, ServerRequest, ServiceChange, ServiceDescription, ServiceReply};
use pegboard_wire::{RawJson, RpcError, code};
use serde_json::{Value, json};
use tokio::sync::broadcast;

mod input_rounds;
mod prompts;
mod resources;
mod tasks;
mod tools;

/// The conformance test server.
pub struct Fixture {
    notifier: ChangeNotifier,
    tasks: Arc<tasks::TaskTools>,
}

impl Fixture {
    /// Creates a fixture with its initial lists.
    pub fn new() -> Self {
        let changes = broadcast::Sender::new(64);
        Self {
            tasks: Arc::new(tasks::TaskTools::new(changes.clone())),
            notifier: ChangeNotifier { changes, versions: Arc::default() },
        }
    }
}

/// Change notifications of the fixture. Clones share the state.
#[derive(Clone)]
struct ChangeNotifier {
    changes: broadcast::Sender<ServiceChange>,
    versions: Arc<ListVersions>,
}

/// Number of changes per list.
#[derive(Default)]
struct ListVersions {
    tools: AtomicU64,
    prompts: AtomicU64,
}

impl ChangeNotifier {
    /// Changes a list and notifies subscribers.
    fn change(&self, change: ServiceChange) {
        match &change {
            ServiceChange::Tools => self.versions.tools.fetch_add(1, Ordering::Relaxed),
            ServiceChange::Prompts => self.versions.prompts.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        // There may be no subscriber.
        let _ = self.changes.send(change);
    }
}

/// Puts the number of changes into the first item's description, so that the list differs each time.
fn with_change_count(mut list: Value, n_changes: &AtomicU64) -> Value {
    let n_changes = n_changes.load(Ordering::Relaxed);
    if n_changes > 0 {
        list[0]["description"] = json!(format!("The list has changed {n_changes} times."));
    }
    list
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

impl McpService for Fixture {
    fn describe(&self, revision: Revision) -> ServiceDescription {
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
        ServiceDescription {
            info: RawJson::from(json!({"name": "pegboard-fixture", "version": env!("CARGO_PKG_VERSION")})),
            capabilities: RawJson::from(capabilities),
            instructions: Some("A server for tests.".to_owned()),
        }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let (notifier, tasks) = (self.notifier.clone(), Arc::clone(&self.tasks));
        async move {
            let params = request.params.to_value();
            match &*request.method {
                "tools/list" => {
                    let tools = with_change_count(tools::list(request.revision).into(), &notifier.versions.tools);
                    Ok(result(json!({"tools": tools})))
                }
                "tools/call" => match tasks.call(&request, &params).await {
                    Some(reply) => reply,
                    None => tools::call(Arc::new(request), params, &notifier).await,
                },
                method if method.starts_with("tasks/") => tasks.answer(&request, &params).await,
                "prompts/list" => {
                    let prompts = with_change_count(prompts::list(), &notifier.versions.prompts);
                    Ok(result(json!({"prompts": prompts})))
                }
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

    fn changes(&self) -> Option<broadcast::Receiver<ServiceChange>> {
        Some(self.notifier.changes.subscribe())
    }

    fn header_parameters(&self, tool: &str) -> Vec<HeaderParameter> {
        tools::header_parameters(tool)
    }
}

fn result(value: Value) -> ServiceReply {
    ServiceReply::Result(RawJson::from(value))
}

fn text(text: impl Into<String>) -> ServiceReply {
    result(json!({"content": [{"type": "text", "text": text.into()}]}))
}

fn missing(what: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("Invalid params: {what} is missing"))
}

/// A red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// An empty audio file.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";
