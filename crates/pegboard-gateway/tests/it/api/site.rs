//! A gateway with a few tools behind a listener, and somebody who sends it requests.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::chain::ChainSpec;
use pegboard_core::client::{Notice, Progress, Question, Questions};
use pegboard_core::entry::{Annotations, ToolEntry};
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::store::{HistoryStore, OutputStore, SessionStore, TraceStore};
use pegboard_gateway::api::{About, Api, Principal, router};
use pegboard_json::RawJson;
use pegboard_runtime::{Builder, Runtime};
use pegboard_stores::limits::{HistoryLimits, OutputLimits, SessionLimits, TraceLimits};
use pegboard_stores::memory;
use pegboard_stores::sqlite::Database;
use pegboard_wire::http::server::{HttpServerOptions, serve};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time;
use tokio_util::task::AbortOnDropHandle;

use crate::stage::{Lazy, mcp, said, scripted, tells};

/// How long a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway behind a listener.
pub(super) struct Site {
    base: String,
    client: reqwest::Client,
    _serving: AbortOnDropHandle<()>,
}

impl Site {
    /// What this one principal sees of a gateway.
    pub(super) async fn of(api: &Api, who: Principal) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = format!("http://{}/api", listener.local_addr().unwrap());
        let application = router(api, who, &HttpServerOptions::default());
        let serving = tokio::spawn(async move { serve(listener, application).await.unwrap() });
        Self { base, client: reqwest::Client::new(), _serving: AbortOnDropHandle::new(serving) }
    }

    /// A request to be sent.
    pub(super) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.base)).timeout(PATIENCE)
    }

    /// The status and the document at a path.
    pub(super) async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.request(Method::GET, path).send().await.unwrap()).await
    }

    /// What comes of sending a document.
    pub(super) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        answer(self.posting(path, &body).send().await.unwrap()).await
    }

    /// The status of taking something away.
    pub(super) async fn delete(&self, path: &str) -> (u16, Value) {
        answer(self.request(Method::DELETE, path).send().await.unwrap()).await
    }

    fn posting(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).header(CONTENT_TYPE, "application/json").body(body.to_string())
    }

    /// The events that come of sending a document.
    pub(super) async fn stream(&self, path: &str, body: Value) -> Stream {
        Stream::of(self.posting(path, &body).header(ACCEPT, "text/event-stream").send().await.unwrap())
    }

    /// The lines that come of sending a document.
    pub(super) async fn lines(&self, path: &str, body: Value) -> Vec<Value> {
        let sent = self.posting(path, &body).header(ACCEPT, "application/x-ndjson").send().await.unwrap();
        assert_eq!(sent.headers()[CONTENT_TYPE], "application/x-ndjson");
        sent.text().await.unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The events at a path.
    pub(super) async fn listen(&self, path: &str) -> Stream {
        Stream::of(self.request(Method::GET, path).header(ACCEPT, "text/event-stream").send().await.unwrap())
    }
}

async fn answer(response: Response) -> (u16, Value) {
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// Events as they come.
pub(super) struct Stream {
    response: Response,
    text: String,
}

impl Stream {
    fn of(response: Response) -> Self {
        assert_eq!(response.headers()[CONTENT_TYPE], "text/event-stream", "{response:?}");
        Self { response, text: String::new() }
    }

    /// The next event: its name, and what it carries.
    pub(super) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let found = field("event: ").zip(field("data: "));
                self.text = rest.to_string();
                if let Some((name, data)) = found {
                    return Some((name, serde_json::from_str(&data).unwrap()));
                }
                continue;
            }
            let more = time::timeout(PATIENCE, self.response.chunk()).await.unwrap().unwrap()?;
            self.text.push_str(std::str::from_utf8(&more).unwrap());
        }
    }

    /// The next event of a name.
    pub(super) async fn expect(&mut self, name: &str) -> Value {
        let (event, data) = self.next().await.unwrap();
        assert_eq!(event, name, "{data}");
        data
    }
}

/// A runtime with a few tools, and what there is to tell of it.
pub(super) async fn api() -> (Api, Runtime, Arc<Notify>) {
    api_with(json!({})).await
}

/// The same with other settings.
pub(super) async fn api_with(settings: Value) -> (Api, Runtime, Arc<Notify>) {
    let gone = Arc::new(Notify::new());
    let stores = Stores::default();
    let builder = builder(&gone).settings(serde_json::from_value(settings).unwrap());
    let runtime = stores.give_to(builder).start().await.unwrap();
    (stores.show(told(&runtime)), runtime, gone)
}

/// Where state is kept.
pub(super) struct Stores {
    outputs: Arc<dyn OutputStore>,
    sessions: Arc<dyn SessionStore>,
    traces: Arc<dyn TraceStore>,
    history: Arc<dyn HistoryStore>,
}

impl Default for Stores {
    fn default() -> Self {
        Self {
            outputs: Arc::new(memory::Outputs::new(OutputLimits::default())),
            sessions: Arc::new(memory::Sessions::new(SessionLimits::default())),
            traces: Arc::new(memory::Traces::new(TraceLimits::default())),
            history: Arc::new(memory::History::new(HistoryLimits::default())),
        }
    }
}

impl Stores {
    /// All in one database.
    pub(super) fn in_database(database: &Database) -> Self {
        let database = Arc::new(database.clone());
        Self {
            outputs: Arc::clone(&database) as _,
            sessions: Arc::clone(&database) as _,
            traces: Arc::clone(&database) as _,
            history: database,
        }
    }

    pub(super) fn give_to(&self, builder: Builder) -> Builder {
        builder
            .outputs(Arc::clone(&self.outputs))
            .sessions(Arc::clone(&self.sessions))
            .traces(Arc::clone(&self.traces))
            .history(Arc::clone(&self.history))
    }

    pub(super) fn show(&self, api: Api) -> Api {
        api.outputs(Arc::clone(&self.outputs))
            .sessions(Arc::clone(&self.sessions))
            .traces(Arc::clone(&self.traces))
            .history(Arc::clone(&self.history))
    }
}

/// What there is to tell of a runtime.
pub(super) fn told(runtime: &Runtime) -> Api {
    let about = About {
        version: "1.2.3".to_owned(),
        configuration: vec![PathBuf::from("/etc/pegboard.yaml")],
        addresses: vec!["http://127.0.0.1:7332/mcp".to_owned()],
    };
    Api::new(about).runtime(runtime)
}

/// The tools: `dev/notes` has all kinds, `dev/idle` has not been started, `ops/broken` cannot be.
pub(super) fn builder(gone: &Arc<Notify>) -> Builder {
    let read_only = Annotations { read_only: Some(true), ..Annotations::default() };
    let handler = |name: &str, behaviour| {
        let handler = Arc::new(Tool { behaviour, gone: Arc::clone(gone) });
        ToolEntry::from_handler(name, format!("The tool {name}"), handler)
            .with_input_schema(json!({"type": "object"}))
    };
    let notes = mcp([
        tells("notes", "list").with_annotations(read_only).tag("reading"),
        ToolEntry::from_handler("add", "Adds a note to the board.", Arc::new(Tool::answering()))
            .with_title("Add a note")
            .with_input_schema(json!({
                "type": "object",
                "properties": {"text": {"type": "string"}, "priority": {"type": "integer", "minimum": 1, "maximum": 5}},
                "required": ["text"],
            })),
        scripted("lines", |call| Ok(said(call.arguments()["text"].as_str().unwrap_or_default()))),
        scripted("fail", |_| {
            Ok(Output::result(RawJson::from(json!({"content": [{"type": "text", "text": "no"}], "isError": true}))))
        }),
        handler("talk", Behaviour::Talks),
        handler("ask", Behaviour::Asks),
        handler("hang", Behaviour::Hangs),
    ]);
    Runtime::builder()
        .toolbox("dev", "For development")
        .provide("notes", notes)
        .provide("idle", Lazy::new([tells("idle", "sleepy")]))
        .chain(chain())
        .toolbox("ops", "")
        .provide("broken", Lazy::broken("uvx: not found"))
}

/// Lists the notes, and adds what was said.
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
struct Tool {
    behaviour: Behaviour,
    /// Told when a call of it is given up.
    gone: Arc<Notify>,
}

#[derive(Clone, Copy)]
enum Behaviour {
    Answers,
    Talks,
    Asks,
    Hangs,
}

impl Tool {
    fn answering() -> Self {
        Self { behaviour: Behaviour::Answers, gone: Arc::default() }
    }
}

struct Leaving<'t>(&'t Notify);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

impl Handler for Tool {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let client = call.context().client();
            match self.behaviour {
                Behaviour::Answers => Ok(said(&format!("added {}", call.raw_arguments().as_str()))),
                Behaviour::Talks => {
                    let message = Some("half way".to_owned());
                    client.notify(Notice::Progress(Progress { done: 1.0, total: Some(2.0), message }));
                    client.notify(Notice::Log(RawJson::from(json!({"level": "info", "data": "well"}))));
                    Ok(said("done"))
                }
                Behaviour::Asks => {
                    let params =
                        RawJson::from(json!({"mode": "form", "message": "Who?", "requestedSchema": {}}));
                    let question = Question { method: "elicitation/create".to_owned(), params };
                    match client.ask(Questions::from([("who".to_owned(), question)])).await {
                        Ok(answers) => Ok(said(&answers["who"].to_value()["content"]["name"].to_string())),
                        Err(error) => Ok(said(&error.to_string())),
                    }
                }
                Behaviour::Hangs => {
                    let _leaving = Leaving(&self.gone);
                    std::future::pending().await
                }
            }
        }
        .boxed()
    }
}
