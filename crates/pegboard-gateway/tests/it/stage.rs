//! Gateways, servers and clients that the tests share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::ValidCall;
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::{CallError, ToolError};
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::provider::{Local, Offer, Particulars, Provider, ServerState, ToolKind};
use pegboard_core::server_log::ServerLog;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_gateway::Gateway;
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_wire::client::{Client, ClientOptions, Era};
use pegboard_wire::link::{InputLimits, Link};
use pegboard_wire::stdio::lines;
use pegboard_wire::{Id, Inbound, Notification, Receiver, RpcError};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{self, Duration};

/// Both ways to speak.
pub(crate) const ERAS: [Era; 2] = [Era::Session, Era::Stateless];

/// A client that answers every form, and remembers what it hears.
#[derive(Default)]
pub(crate) struct Ears {
    heard: Mutex<Vec<String>>,
    news: Notify,
}

impl Ears {
    /// What it heard since it was last asked; of a log line and of a task, all of it.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    fn pop(&self) -> Option<String> {
        let mut heard = self.heard.lock().unwrap();
        (!heard.is_empty()).then(|| heard.remove(0))
    }

    /// The next thing that it hears.
    pub(crate) async fn next(&self) -> String {
        let hearing = async {
            loop {
                let news = self.news.notified();
                match self.pop() {
                    Some(first) => return first,
                    None => news.await,
                }
            }
        };
        time::timeout(Duration::from_mins(5), hearing).await.unwrap()
    }
}

impl Receiver for Ears {
    fn request(&self, inbound: Inbound) -> BoxFuture<'static, Result<RawJson, RpcError>> {
        let answer = match &*inbound.request.method {
            "elicitation/create" => {
                // It says under which id it was sent to an address, if it was.
                let visit = inbound.request.params.and_then(|params| params.get("elicitationId"));
                let content = RawJson::from(json!({"name": "Ada"}));
                let content = visit.iter().fold(content, |content, visit| content.with("visit", visit));
                Ok(RawJson::from(json!({"action": "accept"})).with("content", &content))
            }
            method => Err(RpcError::method_not_found(method)),
        };
        std::future::ready(answer).boxed()
    }

    fn notification(&self, notification: Notification, _about: Option<Id>) {
        let method = &*notification.method;
        let is_told = matches!(method, "notifications/message" | "notifications/tasks");
        let params = notification.params.filter(|_| is_told);
        let params = params.map(|params| format!(" {}", params.as_str())).unwrap_or_default();
        self.heard.lock().unwrap().push(format!("{method}{params}"));
        self.news.notify_one();
    }
}

/// A gateway to a runtime, with these settings.
pub(crate) fn gateway(runtime: &Runtime, settings: Value) -> Gateway {
    let settings: GatewaySettings = serde_json::from_value(settings).unwrap();
    Gateway::new(runtime, &settings).unwrap()
}

/// A client of a gateway that can fill in forms, over a pipe.
pub(crate) async fn connect(gateway: &Gateway, profile: Option<&str>, era: Era) -> (Client, Arc<Ears>) {
    connect_as(gateway, profile, era, "test", json!({"elicitation": {}})).await
}

/// A client of a gateway, over a pipe.
pub(crate) async fn connect_as(
    gateway: &Gateway,
    profile: Option<&str>,
    era: Era,
    name: &str,
    capabilities: Value,
) -> (Client, Arc<Ears>) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (reader, writer) = tokio::io::split(far);
    let (link, _) = lines(reader, writer, InputLimits::server());
    let server = gateway.server(profile).unwrap();
    tokio::spawn(async move { server.serve(link).await });
    let (reader, writer) = tokio::io::split(near);
    let (link, _) = lines(reader, writer, InputLimits::client());
    introduce(link, era, name, capabilities).await
}

/// A client over a link that is there already.
pub(crate) async fn connect_over(link: Link, era: Era) -> (Client, Arc<Ears>) {
    introduce(link, era, "test", json!({"elicitation": {}})).await
}

async fn introduce(link: Link, era: Era, name: &str, capabilities: Value) -> (Client, Arc<Ears>) {
    let ears = Arc::new(Ears::default());
    let capabilities = RawJson::from(capabilities);
    let options = ClientOptions { era: Some(era), capabilities, ..ClientOptions::new(name, "1") };
    (Client::connect(link, ears.clone(), options).await.unwrap(), ears)
}

/// Calls a tool and gives the result as it came.
pub(crate) async fn raw_call(client: &Client, tool: &str, arguments: RawJson) -> RawJson {
    let params = RawJson::empty_object().with("name", &RawJson::of(tool)).with("arguments", &arguments);
    client.call("tools/call", Some(params)).await.unwrap()
}

/// Calls a tool and gives the result.
pub(crate) async fn call(client: &Client, tool: &str, arguments: Value) -> Value {
    raw_call(client, tool, RawJson::from(arguments)).await.to_value()
}

/// Calls a tool by its identity.
pub(crate) async fn use_tool(client: &Client, tool: [&str; 3], arguments: Value) -> Value {
    let [toolbox, server, name] = tool;
    let tool = json!({"toolbox": toolbox, "server": server, "name": name});
    call(client, "use_tool", json!({"tool": tool, "arguments": arguments})).await
}

/// The text of a result, marked if it says that it is no good.
pub(crate) fn text(result: &Value) -> String {
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    if result["isError"] == json!(true) { format!("isError: {text}") } else { text.to_owned() }
}

/// The names of the tools that a client sees.
pub(crate) async fn listed(client: &Client) -> Vec<String> {
    let list = client.call("tools/list", None).await.unwrap().to_value();
    let tools = list["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// A server of MCP tools.
pub(crate) fn mcp(tools: impl IntoIterator<Item = ToolEntry>) -> Local {
    Local::new(tools).of_kind(ToolKind::Mcp)
}

/// A tool that answers with the name of its server, its own name and what it was given.
pub(crate) fn tells(server: &'static str, name: &'static str) -> ToolEntry {
    let answer =
        move |call: &ValidCall| Ok(said(&format!("{server}/{name} {}", call.raw_arguments().as_str())));
    scripted(name, answer)
}

/// A tool with code of its own.
pub(crate) fn scripted(
    name: &'static str,
    answer: impl Fn(&ValidCall) -> Result<Output, CallError> + Send + Sync + 'static,
) -> ToolEntry {
    struct Scripted<F>(F);
    impl<F: Fn(&ValidCall) -> Result<Output, CallError> + Send + Sync + 'static> Handler for Scripted<F> {
        fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
            std::future::ready((self.0)(call)).boxed()
        }
    }
    ToolEntry::from_handler(name, format!("The tool {name}"), Arc::new(Scripted(answer)))
        .with_input_schema(json!({"type": "object"}))
}

/// A server's answer in words.
pub(crate) fn said(text: &str) -> Output {
    Output::result(RawJson::from(json!({"content": [{"type": "text", "text": text}]})))
}

/// What a server's own error becomes.
pub(crate) fn failed(text: &str) -> CallError {
    CallError::Failed(ToolError::new(text))
}

/// A server that is started when somebody opens it, or cannot be.
pub(crate) struct Lazy {
    tools: Vec<Arc<ToolEntry>>,
    fails_with: Option<&'static str>,
    gate: Option<Arc<Notify>>,
    pub(crate) n_opened: Arc<AtomicUsize>,
    pub(crate) log: ServerLog,
    pub(crate) particulars: Particulars,
    offer: watch::Sender<Arc<Offer>>,
    state: watch::Sender<ServerState>,
}

impl Lazy {
    pub(crate) fn new(tools: impl IntoIterator<Item = ToolEntry>) -> Self {
        Self {
            tools: tools.into_iter().map(Arc::new).collect(),
            fails_with: None,
            gate: None,
            n_opened: Arc::default(),
            log: ServerLog::default(),
            particulars: Particulars::default(),
            offer: watch::Sender::default(),
            state: watch::Sender::default(),
        }
    }

    /// The same, but somebody must let it be ready.
    pub(crate) fn behind(self, gate: &Arc<Notify>) -> Self {
        Self { gate: Some(Arc::clone(gate)), ..self }
    }

    pub(crate) fn broken(why: &'static str) -> Self {
        Self { fails_with: Some(why), ..Self::new([]) }
    }
}

impl Provider for Lazy {
    fn kind(&self) -> ToolKind {
        ToolKind::Mcp
    }

    fn offer(&self) -> watch::Receiver<Arc<Offer>> {
        self.offer.subscribe()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        async {
            self.n_opened.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            if let Some(gate) = &self.gate {
                gate.notified().await;
            }
            if let Some(why) = self.fails_with {
                return Err(CallError::ServerUnavailable { reason: why.to_owned() });
            }
            self.offer.send_replace(Arc::new(Offer { tools: self.tools.clone(), ..Offer::default() }));
            self.state.send_replace(ServerState::Ready);
            Ok(())
        }
        .boxed()
    }

    fn particulars(&self) -> Particulars {
        self.particulars
    }

    fn log(&self) -> ServerLog {
        self.log.clone()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        self.state.send_replace(ServerState::Stopped);
        std::future::ready(()).boxed()
    }
}

/// Waits until something holds.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    time::timeout(Duration::from_secs(10), waiting).await.unwrap();
}
