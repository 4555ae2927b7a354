//! A server with every tool, prompt, resource and behaviour that the official conformance suite asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    news: News,
    tasks: Arc<tasks::Tasks>,
}

impl Fixture {
    /// A fixture that nobody has called yet.
    pub fn new() -> Self {
        let changes = broadcast::Sender::new(64);
        Self {
            tasks: Arc::new(tasks::Tasks::new(changes.clone())),
            news: News { changes, lists: Arc::default() },
        }
    }
}

/// What changes. Clones are the same.
#[derive(Clone)]
struct News {
    changes: broadcast::Sender<Change>,
    lists: Arc<Lists>,
}

/// How often each list has changed.
#[derive(Default)]
struct Lists {
    tools: AtomicU64,
    prompts: AtomicU64,
}

impl News {
    /// Changes a list, and says so.
    fn change(&self, change: Change) {
        match &change {
            Change::Tools => self.lists.tools.fetch_add(1, Ordering::Relaxed),
            Change::Prompts => self.lists.prompts.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
        // Nobody may be listening.
        let _ = self.changes.send(change);
    }
}

/// A list whose first item tells how often the list has changed, so that it really is another each time.
fn changed(mut list: Value, n_changes: &AtomicU64) -> Value {
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
        let (news, tasks) = (self.news.clone(), Arc::clone(&self.tasks));
        async move {
            let params = request.params.to_value();
            match &*request.method {
                "tools/list" => {
                    let tools = changed(tools::list(request.revision).into(), &news.lists.tools);
                    Ok(result(json!({"tools": tools})))
                }
                "tools/call" => match tasks.call(&request, &params).await {
                    Some(reply) => reply,
                    None => tools::call(Arc::new(request), params, &news).await,
                },
                method if method.starts_with("tasks/") => tasks.answer(&request, &params).await,
                "prompts/list" => {
                    let prompts = changed(prompts::list(), &news.lists.prompts);
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

    fn changes(&self) -> Option<broadcast::Receiver<Change>> {
        Some(self.news.changes.subscribe())
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
