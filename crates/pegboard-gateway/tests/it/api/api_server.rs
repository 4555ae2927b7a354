//! An API server with a few tools, and an HTTP client for it.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::chain::ChainSpec;
use pegboard_core::client::{InputRequest, InputRequests, Notice, ProgressUpdate};
use pegboard_core::entry::{ToolAnnotations, ToolEntry};
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_gateway::api::{Api, ApiScope, GatewayInfo, router};
use pegboard_json::RawJson;
use pegboard_runtime::{Runtime, RuntimeBuilder};
use pegboard_stores::sqlite::Database;
use pegboard_wire::http::server::{HttpServerOptions, serve};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use crate::fixture::{LazyServer, echo_tool, mcp_server, scripted_tool, text_output};

/// Timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An API behind a listener.
pub(super) struct ApiServer {
    base: String,
    client: reqwest::Client,
    _serving: AbortOnDropHandle<()>,
}

impl ApiServer {
    /// Serves the API with this scope.
    pub(super) async fn start(api: &Api, scope: ApiScope) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = format!("http://{}/api", listener.local_addr().unwrap());
        let application = router(api, scope, &HttpServerOptions::default());
        let serving = tokio::spawn(async move { serve(listener, application).await.unwrap() });
        Self { base, client: reqwest::Client::new(), _serving: AbortOnDropHandle::new(serving) }
    }

    /// Builds a request.
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base)).timeout(TIMEOUT)
    }

    /// Returns the status and body of a GET request.
    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.request(Method::GET, path).send().await.unwrap()).await
    }

    /// Returns the status and body of a POST request.
    pub(super) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        answer(self.post_request(path, &body).send().await.unwrap()).await
    }

    /// Returns the status and body of a DELETE request.
    pub(super) async fn delete(&self, path: &str) -> (u16, Value) {
        answer(self.request(Method::DELETE, path).send().await.unwrap()).await
    }

    fn post_request(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).header(CONTENT_TYPE, "application/json").body(body.to_string())
    }

    /// Returns the event stream of a POST request.
    pub(super) async fn stream(&self, path: &str, body: Value) -> EventStream {
        EventStream::new(
            self.post_request(path, &body).header(ACCEPT, "text/event-stream").send().await.unwrap(),
        )
    }

    /// Returns the NDJSON lines of a POST request.
    pub(super) async fn lines(&self, path: &str, body: Value) -> Vec<Value> {
        let sent =
            self.post_request(path, &body).header(ACCEPT, "application/x-ndjson").send().await.unwrap();
        assert_eq!(sent.headers()[CONTENT_TYPE], "application/x-ndjson");
        sent.text().await.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the event stream of a GET request.
    pub(super) async fn listen(&self, path: &str) -> EventStream {
        EventStream::new(
            self.request(Method::GET, path).header(ACCEPT, "text/event-stream").send().await.unwrap(),
        )
    }
}

async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// A stream of server-sent events.
pub(super) struct EventStream {
    response: Response,
    text: String,
}

impl EventStream {
    fn new(response: Response) -> Self {
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream", "{response:?}");
        Self { response, text: String::new() }
    }

    /// Returns the name and payload of the next event.
    pub(super) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let event_data = field("event: ").zip(field("data: "));
                self.text = rest.to_string();
                if let Some((name, data)) = event_data {
                    return Some((name, serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let more = time::timeout(TIMEOUT, self.response.chunk()).await.unwrap().unwrap()?;
            self.text.push_str(std::str::from_utf8(&more).unwrap());
        }
    }

    /// Returns the payload of the next event, which must have this name.
    pub(super) async fn expect(&mut self, name: &str) -> Value {
        let (event, data) = self.next().await.unwrap();
        assert_eq!(event, name, "{data}");
        data
    }
}

/// Returns an API, its runtime, and a notification of cancelled calls.
pub(super) async fn api() -> (Api, Runtime, Arc<Notify>) {
    api_with(json!({})).await
}

/// Like [`api`], with other settings.
pub(super) async fn api_with(settings: Value) -> (Api, Runtime, Arc<Notify>) {
    let cancelled = Arc::new(Notify::new());
    let stores = Stores::default();
    let builder = builder(&cancelled).settings(serde_json::from_value(settings).unwrap());
    let runtime = stores.apply_to_builder(builder).start().await.unwrap();
    (stores.apply_to_api(api_for(&runtime)), runtime, cancelled)
}

/// The stores of a runtime.
pub(super) struct Stores(Arc<Database>);

impl Default for Stores {
    fn default() -> Self {
        Self(Arc::new(Database::in_memory()))
    }
}

impl Stores {
    /// Keeps everything in one database.
    pub(super) fn in_database(database: &Database) -> Self {
        Self(Arc::new(database.clone()))
    }

    pub(super) fn apply_to_builder(&self, builder: RuntimeBuilder) -> RuntimeBuilder {
        builder
            .outputs(Arc::clone(&self.0) as _)
            .sessions(Arc::clone(&self.0) as _)
            .call_log(Arc::clone(&self.0) as _)
    }

    pub(super) fn apply_to_api(&self, api: Api) -> Api {
        api.outputs(Arc::clone(&self.0) as _)
            .sessions(Arc::clone(&self.0) as _)
            .call_log(Arc::clone(&self.0) as _)
    }
}

/// Returns the API of a runtime, without stores.
pub(super) fn api_for(runtime: &Runtime) -> Api {
    let info = GatewayInfo {
        version: "1.2.3".to_owned(),
        configuration: vec![PathBuf::from("/etc/pegboard.yaml")],
        addresses: vec!["http://127.0.0.1:7332/mcp".to_owned()],
        ..GatewayInfo::default()
    };
    Api::new(info).runtime(runtime)
}

/// Builds the tools: `dev/notes` has all kinds, `dev/idle` is not started, `ops/broken` cannot be started.
pub(super) fn builder(cancelled: &Arc<Notify>) -> RuntimeBuilder {
    let read_only = ToolAnnotations { read_only: Some(true), ..ToolAnnotations::default() };
    let handler = |name: &str, behaviour| {
        let handler = Arc::new(TestTool { behaviour, cancelled: Arc::clone(cancelled) });
        ToolEntry::from_handler(name, format!("The tool {name}"), handler)
            .with_input_schema(json!({"type": "object"}))
    };
    let notes = mcp_server([
        echo_tool("notes", "list").with_annotations(read_only).tag("reading"),
        ToolEntry::from_handler("add", "Adds a note to the board.", Arc::new(TestTool::answering()))
            .with_title("Add a note")
            .with_input_schema(json!({
                "type": "object",
                "properties": {"text": {"type": "string"}, "priority": {"type": "integer", "minimum": 1, "maximum": 5}},
                "required": ["text"],
            })),
        scripted_tool("lines", |call| Ok(text_output(call.arguments()["text"].as_str().unwrap_or_default()))),
        scripted_tool("fail", |_| {
            Ok(Output::result(RawJson::from(json!({"content": [{"type": "text", "text": "no"}], "isError": true}))))
        }),
        handler("talk", Behaviour::Talks),
        handler("ask", Behaviour::Asks),
        handler("hang", Behaviour::Hangs),
    ]);
    Runtime::builder()
        .toolbox("dev", "For development")
        .provide("notes", notes)
        .provide("idle", LazyServer::new([echo_tool("idle", "sleepy")]))
        .chain(chain())
        .toolbox("ops", "")
        .provide("broken", LazyServer::broken("uvx: not found"))
}

/// Lists the notes, and adds the list as a note.
fn chain() -> ChainSpec {
    let spec = json!({
        "chain": "report",
        "description": "Lists and adds.",
        "steps": [
            {"tool": "notes__list", "with": {"topic": "topic"}, "as": "found"},
            {"tool": "notes__add", "with": {"text": "found"}, "as": "added"},
        ],
    });
    serde_json::from_value(spec).unwrap()
}

/// A tool that does more than answer.
struct TestTool {
    behaviour: Behaviour,
    /// Notified when a call of it is cancelled.
    cancelled: Arc<Notify>,
}

#[derive(Clone, Copy)]
enum Behaviour {
    Answers,
    Talks,
    Asks,
    Hangs,
}

impl TestTool {
    fn answering() -> Self {
        Self { behaviour: Behaviour::Answers, cancelled: Arc::default() }
    }
}

struct DropNotifier<'t>(&'t Notify);

impl Drop for DropNotifier<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Handler for TestTool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let client = call.context().client();
            match self.behaviour {
                Behaviour::Answers => Ok(text_output(&format!("added {}", call.raw_arguments().as_str()))),
                Behaviour::Talks => {
                    let message = Some("half way".to_owned());
                    client.notify(Notice::Progress(ProgressUpdate {
                        done: 1.0,
                        total: Some(2.0),
                        message,
                        params: None,
                    }));
                    client.notify(Notice::Log(RawJson::from(json!({"level": "info", "data": "well"}))));
                    Ok(text_output("done"))
                }
                Behaviour::Asks => {
                    let params =
                        RawJson::from(json!({"mode": "form", "message": "Who?", "requestedSchema": {}}));
                    let question = InputRequest { method: "elicitation/create".to_owned(), params };
                    match client.ask(InputRequests::from([("who".to_owned(), question)])).await {
                        Ok(answers) => {
                            Ok(text_output(&answers["who"].to_value()["content"]["name"].to_string()))
                        }
                        Err(error) => Ok(text_output(&error.to_string())),
                    }
                }
                Behaviour::Hangs => {
                    let _notifier = DropNotifier(&self.cancelled);
                    std::future::pending().await
                }
            }
        }
        .boxed()
    }
}
