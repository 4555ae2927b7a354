//! A scripted server, and helpers for tests against it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::CallArguments;
use pegboard_core::call::{CallContext, SchemaChecks, ValidCall};
use pegboard_core::client::{
    AskError, Client, ClientSession, InputRequest, InputRequests, InputResponses, Notice,
};
use pegboard_core::error::CallError;
use pegboard_core::id::ServerName;
use pegboard_core::output::Output;
use pegboard_core::provider::{Provider, ServerOffering, ServerState};
use pegboard_core::settings::mcp::{McpTarget, ResolvedMcpServer};
use pegboard_providers::mcp::{
    Connector, ConnectorError, EstablishedConnection, HandshakeOptions, McpServer, PipeConnector,
};
use pegboard_wire::client::Era;
use pegboard_wire::era::{LogLevel, Revision};
use pegboard_wire::server::{
    self, ClientSessionId, McpService, Peer, ServerRequest, ServiceChange, ServiceDescription, ServiceReply,
};
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use pegboard_wire::{Notification, RawJson, RequestError, RpcError};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

pub(crate) const ERAS: [Era; 2] = [Era::Session, Era::Stateless];

/// A result with a number that no float can hold, in a spelling that a parser would lose.
pub(crate) const EXACT: &str =
    r#"{"content":[],  "structuredContent":{"b":12345678901234567890123, "a":1e2},"odd":null}"#;

/// Outcome of a start.
pub(crate) enum ScriptedStart {
    Refuse,
    Hang,
}

/// Response to a request other than a tool call.
#[derive(Clone)]
pub(crate) enum ScriptedReply {
    Raw(String),
    Hang,
    /// Hangs the first time.
    HangOnce(String),
}

impl ScriptedReply {
    pub(crate) fn json(answer: &Value) -> Self {
        Self::Raw(answer.to_string())
    }
}

/// A scripted server with a record of its requests. Clones share it.
#[derive(Clone)]
pub(crate) struct ScriptedServer(Arc<ScriptState>);

pub(crate) struct ScriptState {
    changes: broadcast::Sender<ServiceChange>,
    capabilities: Mutex<Value>,
    /// Responses to requests other than tool calls, by method.
    replies: Mutex<HashMap<String, ScriptedReply>>,
    /// Recorded requests other than tool calls, with their parameters.
    pub(crate) requests: Mutex<Vec<(String, RawJson)>>,
    /// Roots of the client, which every process requests when it is listed, if it is to.
    pub(crate) listed_roots: Mutex<Option<String>>,
    /// Changes of single processes, by number.
    process_changes: Mutex<HashMap<usize, broadcast::Sender<ServiceChange>>>,
    /// Lists of tools of single processes, by number.
    process_tools: Mutex<HashMap<usize, RawJson>>,
    /// Pages of the tool list, as they are sent.
    pages: Mutex<Vec<String>>,
    pub(crate) n_list_requests: AtomicUsize,
    /// Parameters of the recorded calls.
    pub(crate) calls: Mutex<Vec<RawJson>>,
    /// Number of requests that hang.
    pub(crate) n_hanging: watch::Sender<usize>,
    /// Every process serves only the era of its first message, as most servers of both eras do.
    keeps_first_era: AtomicBool,
    /// Received notifications, and answers to requests outside of calls.
    pub(crate) notices: watch::Sender<Vec<String>>,
    starts: Mutex<VecDeque<ScriptedStart>>,
    /// Times of the starts.
    pub(crate) started: watch::Sender<Vec<Instant>>,
    /// Number of running instances.
    n_running: watch::Sender<usize>,
    wire: Mutex<Option<(AbortHandle, CancellationToken)>>,
}

impl std::ops::Deref for ScriptedServer {
    type Target = ScriptState;

    fn deref(&self) -> &ScriptState {
        &self.0
    }
}

impl ScriptedServer {
    pub(crate) fn new() -> Self {
        let names = ["echo", "exact", "fail", "refuse", "count", "hang", "ask", "roots", "storm"];
        let scripted = Self(Arc::new(ScriptState {
            changes: broadcast::Sender::new(64),
            capabilities: Mutex::new(json!({"tools": {"listChanged": true}})),
            replies: Mutex::default(),
            requests: Mutex::default(),
            listed_roots: Mutex::default(),
            process_changes: Mutex::default(),
            process_tools: Mutex::default(),
            pages: Mutex::default(),
            n_list_requests: AtomicUsize::new(0),
            calls: Mutex::default(),
            n_hanging: watch::Sender::new(0),
            keeps_first_era: AtomicBool::new(false),
            notices: watch::Sender::default(),
            starts: Mutex::default(),
            started: watch::Sender::default(),
            n_running: watch::Sender::default(),
            wire: Mutex::default(),
        }));
        scripted.set_tools(&names);
        scripted
    }

    /// Sets the listed tools.
    pub(crate) fn set_tools(&self, names: &[&str]) {
        let tools: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
        self.set_tool_pages(vec![json!({"tools": tools}).to_string()]);
    }

    /// Sets the pages of the tool list; the cursor is the number of a page.
    pub(crate) fn set_tool_pages(&self, pages: Vec<String>) {
        *self.pages.lock().unwrap() = pages;
    }

    /// Notifies clients of a changed tool list.
    pub(crate) fn notify_tools_changed(&self) {
        self.notify_change(ServiceChange::Tools);
    }

    /// Notifies clients of a change.
    pub(crate) fn notify_change(&self, change: ServiceChange) {
        self.changes.send(change).unwrap();
    }

    /// Notifies the clients of one process of a change.
    pub(crate) fn notify_process(&self, number: usize, change: ServiceChange) {
        self.process_changes(number).send(change).unwrap();
    }

    fn process_changes(&self, number: usize) -> broadcast::Sender<ServiceChange> {
        let mut changes = self.process_changes.lock().unwrap();
        changes.entry(number).or_insert_with(|| broadcast::Sender::new(64)).clone()
    }

    /// Sets the list of tools of one process.
    pub(crate) fn set_process_tools(&self, number: usize, page: &Value) {
        self.process_tools.lock().unwrap().insert(number, RawJson::from(page.clone()));
    }

    /// Declares a capability.
    pub(crate) fn add_capability(&self, name: &str, how: Value) {
        self.capabilities.lock().unwrap()[name] = how;
    }

    /// Sets the response to a method.
    pub(crate) fn respond_to(&self, method: &str, act: ScriptedReply) {
        self.replies.lock().unwrap().insert(method.to_owned(), act);
    }

    /// Returns the number of requests with this method.
    pub(crate) fn n_requests(&self, method: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|(received, _)| received == method).count()
    }

    async fn respond(&self, request: &ServerRequest) -> Result<ServiceReply, RpcError> {
        let method = request.method.to_string();
        self.requests.lock().unwrap().push((method.clone(), request.params.clone()));
        let act = self.replies.lock().unwrap().get(&method).cloned();
        let answer = match act {
            None => return Err(RpcError::method_not_found(&method)),
            Some(ScriptedReply::HangOnce(_)) if self.n_requests(&method) == 1 => None,
            Some(ScriptedReply::Hang) => None,
            Some(ScriptedReply::Raw(answer) | ScriptedReply::HangOnce(answer)) => Some(answer),
        };
        let Some(answer) = answer else {
            let _hanging = HangingCall::new(self);
            return std::future::pending().await;
        };
        Ok(RawJson::parse(answer.into()).unwrap().into())
    }

    pub(crate) fn next_starts(&self, starts: impl IntoIterator<Item = ScriptedStart>) {
        self.starts.lock().unwrap().extend(starts);
    }

    pub(crate) fn n_started(&self) -> usize {
        self.started.borrow().len()
    }

    pub(crate) fn n_running(&self) -> usize {
        *self.n_running.borrow()
    }

    /// Waits until this many instances run.
    pub(crate) async fn wait_for_running(&self, n_running: usize) {
        wait_until(self.n_running.subscribe(), |n| *n == n_running).await;
    }

    /// Breaks the connection.
    pub(crate) fn disconnect(&self) {
        self.wire.lock().unwrap().take().unwrap().0.abort();
    }

    /// Stops forwarding messages in both directions.
    pub(crate) fn freeze(&self) {
        self.wire.lock().unwrap().as_ref().unwrap().1.cancel();
    }

    pub(crate) async fn wait_for_hanging(&self, n_hanging: usize) {
        wait_until(self.n_hanging.subscribe(), |n| *n == n_hanging).await;
    }

    /// Waits until the server was started this often.
    pub(crate) async fn wait_for_starts(&self, n_started: usize) {
        wait_until(self.started.subscribe(), |started| started.len() == n_started).await;
    }

    /// Returns a connector to the server, for one era.
    pub(crate) fn connector(&self, era: Era) -> Arc<dyn Connector> {
        Arc::new(WithEra(era, self.negotiating_connector()))
    }

    async fn start(&self) -> io::Result<DuplexStream> {
        self.started.send_modify(|started| started.push(Instant::now()));
        let start = self.starts.lock().unwrap().pop_front();
        match start {
            Some(ScriptedStart::Refuse) => return Err(io::Error::other("there is no such program")),
            Some(ScriptedStart::Hang) => return std::future::pending().await,
            None => {}
        }
        let (near, mut relay_near) = tokio::io::duplex(64 * 1024);
        let (mut relay_far, far) = tokio::io::duplex(64 * 1024);
        let frozen = CancellationToken::new();
        let freeze = frozen.clone();
        let relay = tokio::spawn(async move {
            let copying = tokio::io::copy_bidirectional(&mut relay_near, &mut relay_far);
            if frozen.run_until_cancelled(copying).await.is_none() {
                std::future::pending::<()>().await;
            }
        });
        *self.wire.lock().unwrap() = Some((relay.abort_handle(), freeze));
        let (reader, writer) = tokio::io::split(far);
        let (transport, _) = line_transport(reader, writer, InputLimits::server());
        let process = ScriptedProcess {
            scripted: self.clone(),
            number: self.n_started(),
            era: self.keeps_first_era.load(Ordering::SeqCst).then(OnceLock::new),
        };
        let serving = server::ServiceServer::new(Arc::new(process));
        let n_running = self.n_running.clone();
        n_running.send_modify(|n_running| *n_running += 1);
        tokio::spawn(async move {
            serving.serve(transport).await;
            n_running.send_modify(|n_running| *n_running -= 1);
        });
        Ok(near)
    }

    /// Returns a server whose processes tell their number.
    pub(crate) fn with_processes() -> Self {
        let scripted = Self::new();
        scripted.set_tools(&["process", "hang", "ask"]);
        scripted
    }

    /// Returns a server of both eras, of which each process serves that of its first message.
    pub(crate) fn dual_era() -> Self {
        let scripted = Self::new();
        scripted.keeps_first_era.store(true, Ordering::SeqCst);
        scripted.set_tools(&["era", "process", "insist", "hang", "ask"]);
        scripted
    }

    /// Returns a connector to the server that negotiates the era.
    pub(crate) fn negotiating_connector(&self) -> Arc<dyn Connector> {
        let scripted = self.clone();
        Arc::new(PipeConnector::new(move || {
            let scripted = scripted.clone();
            async move { scripted.start().await.map(tokio::io::split) }
        }))
    }

    /// Returns the server as a provider for one era, with default settings.
    pub(crate) fn provider(&self, era: Era) -> McpServer {
        self.provider_with(era, |_| {})
    }

    pub(crate) fn provider_with(&self, era: Era, change: impl FnOnce(&mut ResolvedMcpServer)) -> McpServer {
        let mut settings = ResolvedMcpServer::new(ServerName::new("scripted").unwrap(), McpTarget::Embedded);
        change(&mut settings);
        McpServer::new(settings, self.connector(era))
    }

    /// Returns the server as a provider that is already started.
    pub(crate) async fn open_provider(&self, era: Era) -> McpServer {
        let server = self.provider(era);
        server.open().await.unwrap();
        server
    }
}

/// Asks the client as a task; returns the statuses of the task and the answer.
async fn deferred_answer(peer: &Peer) -> Result<String, RequestError> {
    let params =
        json!({"message": "Who are you?", "requestedSchema": {"type": "object"}, "task": {"ttl": 60_000}});
    let created = peer.request("elicitation/create", Some(params.into())).await?;
    let id = created.at(&["task", "taskId"]).unwrap();
    let task = || Some(RawJson::empty_object().with("taskId", &id));
    let answer = peer.request("tasks/result", task()).await?;
    let ended = peer.request("tasks/get", task()).await?;
    let refused = peer.request("tasks/cancel", task()).await;
    let related = answer.at(&["_meta", "io.modelcontextprotocol/related-task", "taskId"]);
    assert_eq!((related, refused.is_err()), (Some(id.clone()), true));
    let text = |object: &RawJson, path: &[&str]| object.at(path).unwrap().as_str().to_owned();
    Ok([text(&created, &["task", "status"]), text(&ended, &["status"]), text(&answer, &["content", "name"])]
        .join(" "))
}

/// A connector with a fixed era.
pub(crate) struct WithEra(pub(crate) Era, pub(crate) Arc<dyn Connector>);

impl Connector for WithEra {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        self.1.connect(handshake.with_era(self.0))
    }
}

/// One process of a scripted server.
struct ScriptedProcess {
    scripted: ScriptedServer,
    number: usize,
    /// Era of the first message, if the process serves no other.
    era: Option<OnceLock<Era>>,
}

impl McpService for ScriptedProcess {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        if let Some(era) = &self.era {
            era.get_or_init(|| revision.era());
        }
        self.scripted.describe(revision)
    }

    fn info(&self) -> RawJson {
        self.scripted.info()
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let served = self.era.as_ref().and_then(OnceLock::get);
        if served.is_some_and(|era| *era != request.revision.era()) {
            return std::future::ready(Err(RpcError::new(-32_600, "this process serves the other era")))
                .boxed();
        }
        if request.params.get("name").is_some_and(|name| name.as_str() == "\"process\"") {
            let text = RawJson::from(json!({"content": [{"type": "text", "text": self.number.to_string()}]}));
            return std::future::ready(Ok(text.into())).boxed();
        }
        let own_tools = self.scripted.process_tools.lock().unwrap().get(&self.number).cloned();
        match own_tools.filter(|_| &*request.method == "tools/list") {
            Some(tools) => std::future::ready(Ok(tools.into())).boxed(),
            None => self.scripted.call(request),
        }
    }

    fn on_notification(&self, _session: &ClientSessionId, notification: Notification) {
        self.scripted.notices.send_modify(|notices| notices.push(notification.method.to_string()));
    }

    fn changes(&self) -> Option<broadcast::Receiver<ServiceChange>> {
        if self.era.is_some() {
            return Some(self.scripted.process_changes(self.number).subscribe());
        }
        self.scripted.changes()
    }
}

impl McpService for ScriptedServer {
    fn describe(&self, _revision: Revision) -> ServiceDescription {
        ServiceDescription {
            info: RawJson::from(json!({"name": "scripted", "version": "1"})),
            capabilities: RawJson::from(self.capabilities.lock().unwrap().clone()),
            instructions: Some("Break a leg.".to_owned()),
        }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        let scripted = self.clone();
        async move {
            match &*request.method {
                "tools/list" => {
                    scripted.request_roots(&request.peer);
                    scripted.page(&request.params)
                }
                "tools/call" => scripted.call_tool(request).await,
                "prompts/get"
                    if request.params.get("name").is_some_and(|name| name.as_str() == "\"ask\"") =>
                {
                    scripted.call_tool(request).await
                }
                _ => scripted.respond(&request).await,
            }
        }
        .boxed()
    }

    fn changes(&self) -> Option<broadcast::Receiver<ServiceChange>> {
        Some(self.changes.subscribe())
    }
}

impl ScriptedServer {
    /// Requests the roots of the client, as some servers do after the handshake.
    fn request_roots(&self, peer: &Peer) {
        if self.listed_roots.lock().unwrap().is_some() {
            let (scripted, peer) = (self.clone(), peer.clone());
            let mut requesting = Box::pin(async move {
                if let Ok(roots) = peer.request("roots/list", None).await {
                    *scripted.listed_roots.lock().unwrap() = Some(roots.as_str().to_owned());
                }
            });
            // It is sent before the list, and answered at any time.
            let _ = (&mut requesting).now_or_never();
            tokio::spawn(requesting);
        }
    }

    fn page(&self, params: &RawJson) -> Result<ServiceReply, RpcError> {
        self.n_list_requests.fetch_add(1, Ordering::SeqCst);
        let number =
            params.get("cursor").map_or(0, |cursor| cursor.text().unwrap().parse::<usize>().unwrap());
        let pages = self.pages.lock().unwrap();
        let page = pages.get(number).ok_or_else(|| RpcError::new(-32_050, "out of pages"))?;
        Ok(RawJson::parse(page.clone().into()).unwrap().into())
    }

    pub(crate) fn n_calls(&self, tool: &str) -> usize {
        let is_tool = |call: &&RawJson| call.get("name").unwrap().text().unwrap() == tool;
        self.calls.lock().unwrap().iter().filter(is_tool).count()
    }

    async fn call_tool(&self, request: ServerRequest) -> Result<ServiceReply, RpcError> {
        self.calls.lock().unwrap().push(request.params.clone());
        let arguments = request.params.get("arguments").unwrap_or_else(RawJson::empty_object);
        let name = request.params.get("name").unwrap().read::<String>().unwrap();
        let text =
            |text: &str| Ok(RawJson::from(json!({"content": [{"type": "text", "text": text}]})).into());
        match name.as_str() {
            "echo" => text(arguments.as_str()),
            "exact" => Ok(RawJson::parse(EXACT.into()).unwrap().into()),
            "fail" => {
                Ok(RawJson::from(json!({"content": [{"type": "text", "text": "no"}], "isError": true}))
                    .into())
            }
            "refuse" => Err(RpcError::new(-32_050, "not today")),
            "count" => {
                request.peer.log(LogLevel::Info, "scripted", &RawJson::of("begin")).await;
                for step in [1.0, 2.0, 3.0] {
                    request.peer.progress(step, Some(3.0), Some("step")).await;
                }
                request.peer.log(LogLevel::Info, "scripted", &RawJson::of("end")).await;
                text("counted")
            }
            "hang" => {
                let _hanging = HangingCall::new(self);
                std::future::pending().await
            }
            "ask" => {
                match request
                    .input_responses
                    .as_ref()
                    .and_then(|answers| answers.at(&["who", "content", "name"]))
                {
                    Some(name) => text(&format!("Hello, {}!", name.text().unwrap())),
                    None => Ok(ServiceReply::InputRequired {
                        input_requests: RawJson::from(
                            json!({"who": {"method": "elicitation/create", "params": {
                                "message": "Who are you?", "requestedSchema": {"type": "object", "properties": {}}
                            }}}),
                        ),
                        state: Some("asked".into()),
                    }),
                }
            }
            "roots" => match &request.input_responses {
                Some(answers) => text(answers.as_str()),
                None => Ok(ServiceReply::InputRequired {
                    input_requests: RawJson::from(json!({"where": {"method": "roots/list"}})),
                    state: None,
                }),
            },
            "storm" => {
                for _ in 0..20_000 {
                    request.peer.notify("notifications/tools/list_changed", RawJson::empty_object()).await;
                }
                text("calm")
            }
            _ => self.call_special_tool(&name, request).await,
        }
    }

    async fn call_special_tool(&self, tool: &str, request: ServerRequest) -> Result<ServiceReply, RpcError> {
        let text =
            |text: &str| Ok(RawJson::from(json!({"content": [{"type": "text", "text": text}]})).into());
        match tool {
            // The first call hangs.
            "once" => {
                if self.n_calls("once") == 1 {
                    let _hanging = HangingCall::new(self);
                    return std::future::pending().await;
                }
                text("done")
            }
            // The first call requires a URL elicitation.
            "elsewhere" if self.n_calls("elsewhere") == 1 => {
                let elicitation = json!({"mode": "url", "elicitationId": "e1", "url": "https://example.org", "message": "Go"});
                Err(RpcError::new(-32_042, "go there first")
                    .with_data(json!({"elicitations": [elicitation]})))
            }
            "elsewhere" => text("welcome back"),
            // The arguments are the task that the server creates.
            "task" => Ok(request.params.get("arguments").unwrap().into()),
            "known_roots" => text(&self.listed_roots.lock().unwrap().clone().unwrap_or_default()),
            "era" => text(&format!("{:?}", request.revision.era())),
            // Asks in mid-call, which needs a session.
            "insist" => {
                let params = json!({"message": "Who are you?", "requestedSchema": {"type": "object"}});
                let answer = request.peer.request("elicitation/create", Some(RawJson::from(params))).await;
                match answer {
                    Ok(answer) => text(answer.at(&["content", "name"]).unwrap().as_str()),
                    Err(error) => Err(RpcError::new(-32_603, error.to_string())),
                }
            }
            // Asks as a task, and fetches the answer later.
            "defer" => text(&deferred_answer(&request.peer).await.unwrap_or_else(|error| error.to_string())),
            "capabilities" => text(request.client.capabilities.as_str()),
            // Asks after the call.
            "later" => {
                let scripted = self.clone();
                tokio::spawn(async move {
                    time::sleep(Duration::from_secs(1)).await;
                    let roots = request.peer.request("roots/list", None).await;
                    let roots = roots.unwrap_or_else(|error| RawJson::of(&error.to_string()));
                    scripted.notices.send_modify(|notices| notices.push(roots.as_str().to_owned()));
                });
                text("later")
            }
            "mutter" => {
                tokio::spawn(async move {
                    time::sleep(Duration::from_secs(1)).await;
                    let line = RawJson::from(json!({"level": "info", "data": "by the way"}));
                    request.peer.notify("notifications/message", line).await;
                    request.peer.notify("notifications/acme/tick", RawJson::empty_object()).await;
                });
                text("nothing")
            }
            _ => Err(RpcError::invalid_params("there is no such tool")),
        }
    }
}

/// A hanging request, counted until dropped.
struct HangingCall(ScriptedServer);

impl HangingCall {
    fn new(scripted: &ScriptedServer) -> Self {
        scripted.n_hanging.send_modify(|n_hanging| *n_hanging += 1);
        Self(scripted.clone())
    }
}

impl Drop for HangingCall {
    fn drop(&mut self) {
        self.0.n_hanging.send_modify(|n_hanging| *n_hanging -= 1);
    }
}

/// A client that records notifications and answers questions with its name.
#[derive(Default)]
pub(crate) struct TestClient {
    pub(crate) name: Option<&'static str>,
    pub(crate) retries_with_answers: bool,
    pub(crate) has_session: bool,
    pub(crate) session: Option<Arc<RootedSession>>,
    pub(crate) received: Mutex<Vec<String>>,
}

impl TestClient {
    pub(crate) fn named(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name: Some(name), ..Self::default() })
    }

    pub(crate) fn with_session(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name: Some(name), has_session: true, ..Self::default() })
    }

    pub(crate) fn context(self: &Arc<Self>) -> CallContext {
        let mut context = CallContext::default();
        context.client = Some(Arc::clone(self) as Arc<dyn Client>);
        context
    }

    pub(crate) fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    fn record(&self, what: impl Into<String>) {
        self.received.lock().unwrap().push(what.into());
    }
}

impl Client for TestClient {
    fn notify(&self, notice: Notice) {
        match notice {
            Notice::Progress(progress) => self.record(format!("{} of {:?}", progress.done, progress.total)),
            Notice::Log(params) => self.record(params.get("data").unwrap().as_str()),
            Notice::Custom { method, params } => {
                self.record(format!(
                    "{method} {}",
                    params.map(|params| params.as_str().to_owned()).unwrap_or_default()
                ));
            }
            Notice::Task(task) => self.record(format!("a task for {:?}", task.time_to_live)),
        }
    }

    fn needs_input_rounds(&self) -> bool {
        self.retries_with_answers
    }

    fn has_session(&self) -> bool {
        self.has_session
    }

    fn session(&self) -> Option<Arc<dyn ClientSession>> {
        self.session.clone().map(|session| session as _)
    }

    fn ask(&self, questions: InputRequests) -> BoxFuture<'_, Result<InputResponses, AskError>> {
        let answers = match self.name {
            None => Err(AskError::Unsupported),
            Some(name) => Ok(questions
                .into_iter()
                .map(|(key, question)| {
                    self.record(question.method);
                    (key, RawJson::from(json!({"action": "accept", "content": {"name": name}})))
                })
                .collect()),
        };
        std::future::ready(answers).boxed()
    }
}

/// A session whose client has one root, the home of its user.
pub(crate) struct RootedSession {
    pub(crate) user: &'static str,
    /// Capabilities of the client; those of roots by default.
    pub(crate) capabilities: Value,
    pub(crate) roots_changes: watch::Sender<u64>,
    /// Notifications that belong to no call.
    pub(crate) told: watch::Sender<Vec<String>>,
    /// Time that the client takes for an answer.
    pub(crate) delay: Duration,
}

impl Default for RootedSession {
    fn default() -> Self {
        let (roots_changes, told) = (watch::Sender::default(), watch::Sender::default());
        let capabilities = json!({"roots": {"listChanged": true}});
        Self { user: "ann", capabilities, roots_changes, told, delay: Duration::ZERO }
    }
}

impl ClientSession for RootedSession {
    fn capabilities(&self) -> RawJson {
        RawJson::from(self.capabilities.clone())
    }

    fn ask(&self, request: InputRequest) -> BoxFuture<'_, Result<RawJson, AskError>> {
        let roots = RawJson::from(json!({"roots": [{"uri": format!("file:///home/{}", self.user)}]}));
        let answer = if request.method == "roots/list" { Ok(roots) } else { Err(AskError::Unsupported) };
        async move {
            time::sleep(self.delay).await;
            answer
        }
        .boxed()
    }

    fn notify(&self, notice: Notice) {
        let line = match notice {
            Notice::Log(params) => params.as_str().to_owned(),
            Notice::Custom { method, .. } => method.to_string(),
            Notice::Progress(_) | Notice::Task(_) => "of a call".to_owned(),
        };
        self.told.send_modify(|told| told.push(line));
    }

    fn roots_changes(&self) -> watch::Receiver<u64> {
        self.roots_changes.subscribe()
    }
}

/// Calls a tool of a provider.
pub(crate) async fn call(
    server: &dyn Provider,
    tool: &str,
    arguments: impl Into<CallArguments>,
    context: CallContext,
) -> Result<Output, CallError> {
    let entry = server.offering().borrow().tools.iter().find(|entry| entry.name() == tool).unwrap().clone();
    ValidCall::admit(entry, arguments.into(), context, SchemaChecks::None).unwrap().run().await
}

/// Calls a tool without arguments or client, and returns the outcome as text.
pub(crate) async fn call_text(server: &dyn Provider, tool: &str) -> String {
    outcome_text(&call(server, tool, json!({}), CallContext::default()).await)
}

pub(crate) fn outcome_text(result: &Result<Output, CallError>) -> String {
    match result {
        Ok(output) => output.text().into_owned(),
        Err(error) => format!("{}: {error}", error.kind().as_str()),
    }
}

pub(crate) fn tool_names(offering: &ServerOffering) -> Vec<String> {
    offering.tools.iter().map(|entry| entry.name().to_owned()).collect()
}

/// Waits until a server is in this state.
pub(crate) async fn wait_for_state(server: &dyn Provider, state: &ServerState) {
    wait_until(server.state(), |now| now == state).await;
}

/// Waits until a condition is met, for a limited time.
pub(crate) async fn wait_until<T>(mut receiver: watch::Receiver<T>, is_met: impl FnMut(&T) -> bool) {
    time::timeout(Duration::from_mins(30), receiver.wait_for(is_met)).await.unwrap().unwrap();
}

/// Lets every task run until all of them wait.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
