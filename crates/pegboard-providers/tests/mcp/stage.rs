//! A server that does what a test tells it to, and the way to it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::arguments::Arguments;
use pegboard_core::call::{CallContext, Checks, ValidCall};
use pegboard_core::client::{Answers, AskError, Client, Notice, Questions};
use pegboard_core::error::CallError;
use pegboard_core::id::ServerName;
use pegboard_core::output::Output;
use pegboard_core::provider::{Offer, Provider, ServerState};
use pegboard_core::settings::mcp::{Settings, Target};
use pegboard_providers::mcp::{Connect, ConnectError, Connected, Introduction, Pipe, Server};
use pegboard_wire::client::Era;
use pegboard_wire::era::{LogLevel, Revision};
use pegboard_wire::link::InputLimits;
use pegboard_wire::server::{self, Change, Description, Reply, ServerRequest, Service};
use pegboard_wire::stdio::lines;
use pegboard_wire::{RawJson, RpcError};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

pub(crate) const ERAS: [Era; 2] = [Era::Session, Era::Stateless];

/// An answer with a number that no float can hold, in a spelling that a parser would lose.
pub(crate) const EXACT: &str =
    r#"{"content":[],  "structuredContent":{"b":12345678901234567890123, "a":1e2},"odd":null}"#;

/// What becomes of a start.
pub(crate) enum Start {
    Refuse,
    Hang,
}

/// What becomes of a request that is about no tool.
#[derive(Clone)]
pub(crate) enum Act {
    Say(String),
    Hang,
    /// Hangs the first time.
    HangOnce(String),
}

impl Act {
    pub(crate) fn say(answer: &Value) -> Self {
        Self::Say(answer.to_string())
    }
}

/// The server, and everything that happens to it. Clones are the same.
#[derive(Clone)]
pub(crate) struct Stage(Arc<Script>);

pub(crate) struct Script {
    changes: broadcast::Sender<Change>,
    capabilities: Mutex<Value>,
    /// What becomes of requests that are about no tool.
    acts: Mutex<HashMap<String, Act>>,
    /// Those requests that came, with their parameters.
    pub(crate) requests: Mutex<Vec<(String, RawJson)>>,
    /// The pages of the list, as they are sent.
    pages: Mutex<Vec<String>>,
    pub(crate) n_lists: AtomicUsize,
    /// The parameters of the calls that came.
    pub(crate) calls: Mutex<Vec<RawJson>>,
    /// How many calls of `hang` are under way.
    pub(crate) n_hanging: watch::Sender<usize>,
    starts: Mutex<VecDeque<Start>>,
    /// When it was started.
    pub(crate) started: watch::Sender<Vec<Instant>>,
    /// How many of it run.
    n_running: watch::Sender<usize>,
    wire: Mutex<Option<(AbortHandle, CancellationToken)>>,
}

impl std::ops::Deref for Stage {
    type Target = Script;

    fn deref(&self) -> &Script {
        &self.0
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        let names = ["echo", "exact", "fail", "refuse", "count", "hang", "ask", "roots", "storm"];
        let stage = Self(Arc::new(Script {
            changes: broadcast::Sender::new(64),
            capabilities: Mutex::new(json!({"tools": {"listChanged": true}})),
            acts: Mutex::default(),
            requests: Mutex::default(),
            pages: Mutex::default(),
            n_lists: AtomicUsize::new(0),
            calls: Mutex::default(),
            n_hanging: watch::Sender::new(0),
            starts: Mutex::default(),
            started: watch::Sender::default(),
            n_running: watch::Sender::default(),
            wire: Mutex::default(),
        }));
        stage.list(&names);
        stage
    }

    /// Lists tools of these names from now on.
    pub(crate) fn list(&self, names: &[&str]) {
        let tools: Vec<Value> =
            names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
        self.list_pages(vec![json!({"tools": tools}).to_string()]);
    }

    /// Lists these pages from now on; the cursor is the number of a page.
    pub(crate) fn list_pages(&self, pages: Vec<String>) {
        *self.pages.lock().unwrap() = pages;
    }

    /// Tells clients that the list of tools changed.
    pub(crate) fn change(&self) {
        self.tell(Change::Tools);
    }

    /// Tells clients what changed.
    pub(crate) fn tell(&self, change: Change) {
        self.changes.send(change).unwrap();
    }

    /// Says that it can do this, too.
    pub(crate) fn can(&self, name: &str, how: Value) {
        self.capabilities.lock().unwrap()[name] = how;
    }

    /// What becomes of requests of this method from now on.
    pub(crate) fn on(&self, method: &str, act: Act) {
        self.acts.lock().unwrap().insert(method.to_owned(), act);
    }

    /// How often a request of this method came.
    pub(crate) fn n_requests(&self, method: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|(came, _)| came == method).count()
    }

    async fn do_act(&self, request: &ServerRequest) -> Result<Reply, RpcError> {
        let method = request.method.to_string();
        self.requests.lock().unwrap().push((method.clone(), request.params.clone()));
        let act = self.acts.lock().unwrap().get(&method).cloned();
        let answer = match act {
            None => return Err(RpcError::method_not_found(&method)),
            Some(Act::HangOnce(_)) if self.n_requests(&method) == 1 => None,
            Some(Act::Hang) => None,
            Some(Act::Say(answer) | Act::HangOnce(answer)) => Some(answer),
        };
        let Some(answer) = answer else {
            let _hanging = Hanging::new(self);
            return std::future::pending().await;
        };
        Ok(RawJson::parse(answer.into()).unwrap().into())
    }

    pub(crate) fn next_starts(&self, starts: impl IntoIterator<Item = Start>) {
        self.starts.lock().unwrap().extend(starts);
    }

    pub(crate) fn n_started(&self) -> usize {
        self.started.borrow().len()
    }

    pub(crate) fn n_running(&self) -> usize {
        *self.n_running.borrow()
    }

    /// Waits until so many of it run.
    pub(crate) async fn running(&self, n_running: usize) {
        become_true(self.n_running.subscribe(), |n| *n == n_running).await;
    }

    /// Breaks the connection.
    pub(crate) fn cut(&self) {
        self.wire.lock().unwrap().take().unwrap().0.abort();
    }

    /// Lets nothing more through, in both directions.
    pub(crate) fn freeze(&self) {
        self.wire.lock().unwrap().as_ref().unwrap().1.cancel();
    }

    pub(crate) async fn hanging(&self, n_hanging: usize) {
        become_true(self.n_hanging.subscribe(), |n| *n == n_hanging).await;
    }

    /// Waits until it was started so often.
    pub(crate) async fn starts(&self, n_started: usize) {
        become_true(self.started.subscribe(), |started| started.len() == n_started).await;
    }

    /// The way to it, in one era.
    pub(crate) fn connector(&self, era: Era) -> Arc<dyn Connect> {
        let stage = self.clone();
        let pipe = Pipe::new(move || {
            let stage = stage.clone();
            async move { stage.start().await.map(tokio::io::split) }
        });
        Arc::new(Speaking(era, Arc::new(pipe)))
    }

    async fn start(&self) -> io::Result<DuplexStream> {
        self.started.send_modify(|started| started.push(Instant::now()));
        let start = self.starts.lock().unwrap().pop_front();
        match start {
            Some(Start::Refuse) => return Err(io::Error::other("there is no such program")),
            Some(Start::Hang) => return std::future::pending().await,
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
        let (link, _) = lines(reader, writer, InputLimits::server());
        let serving = server::Server::new(Arc::new(self.clone()));
        let n_running = self.n_running.clone();
        n_running.send_modify(|n_running| *n_running += 1);
        tokio::spawn(async move {
            serving.serve(link).await;
            n_running.send_modify(|n_running| *n_running -= 1);
        });
        Ok(near)
    }

    /// The server as a provider, in one era, with the usual settings.
    pub(crate) fn provider(&self, era: Era) -> Server {
        self.provider_with(era, |_| {})
    }

    pub(crate) fn provider_with(&self, era: Era, change: impl FnOnce(&mut Settings)) -> Server {
        let mut settings = Settings::new(ServerName::new("stage").unwrap(), Target::Embedded);
        change(&mut settings);
        Server::new(settings, self.connector(era))
    }

    /// The same, started.
    pub(crate) async fn opened(&self, era: Era) -> Server {
        let server = self.provider(era);
        server.open().await.unwrap();
        server
    }
}

/// A way to a server that is spoken to in one era.
pub(crate) struct Speaking(pub(crate) Era, pub(crate) Arc<dyn Connect>);

impl Connect for Speaking {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        self.1.connect(introduction.speaking(self.0))
    }
}

impl Service for Stage {
    fn describe(&self, _revision: Revision) -> Description {
        Description {
            info: RawJson::from(json!({"name": "stage", "version": "1"})),
            capabilities: RawJson::from(self.capabilities.lock().unwrap().clone()),
            instructions: Some("Break a leg.".to_owned()),
        }
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<Reply, RpcError>> {
        let stage = self.clone();
        async move {
            match &*request.method {
                "tools/list" => stage.page(&request.params),
                "tools/call" => stage.act(request).await,
                "prompts/get"
                    if request.params.get("name").is_some_and(|name| name.as_str() == "\"ask\"") =>
                {
                    stage.act(request).await
                }
                _ => stage.do_act(&request).await,
            }
        }
        .boxed()
    }

    fn changes(&self) -> Option<broadcast::Receiver<Change>> {
        Some(self.changes.subscribe())
    }
}

impl Stage {
    fn page(&self, params: &RawJson) -> Result<Reply, RpcError> {
        self.n_lists.fetch_add(1, Ordering::SeqCst);
        let number =
            params.get("cursor").map_or(0, |cursor| cursor.text().unwrap().parse::<usize>().unwrap());
        let pages = self.pages.lock().unwrap();
        let page = pages.get(number).ok_or_else(|| RpcError::new(-32_050, "out of pages"))?;
        Ok(RawJson::parse(page.clone().into()).unwrap().into())
    }

    pub(crate) fn n_calls(&self, tool: &str) -> usize {
        let is_it = |call: &&RawJson| call.get("name").unwrap().text().unwrap() == tool;
        self.calls.lock().unwrap().iter().filter(is_it).count()
    }

    async fn act(&self, request: ServerRequest) -> Result<Reply, RpcError> {
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
                request.peer.log(LogLevel::Info, "stage", &RawJson::of("begin")).await;
                for step in [1.0, 2.0, 3.0] {
                    request.peer.progress(step, Some(3.0), Some("step")).await;
                }
                request.peer.log(LogLevel::Info, "stage", &RawJson::of("end")).await;
                text("counted")
            }
            "hang" => {
                let _hanging = Hanging::new(self);
                std::future::pending().await
            }
            "ask" => {
                match request.answers.as_ref().and_then(|answers| answers.at(&["who", "content", "name"])) {
                    Some(name) => text(&format!("Hello, {}!", name.text().unwrap())),
                    None => Ok(Reply::InputRequired {
                        questions: RawJson::from(json!({"who": {"method": "elicitation/create", "params": {
                            "message": "Who are you?", "requestedSchema": {"type": "object", "properties": {}}
                        }}})),
                        state: Some("asked".into()),
                    }),
                }
            }
            "roots" => match &request.answers {
                Some(answers) => text(answers.as_str()),
                None => Ok(Reply::InputRequired {
                    questions: RawJson::from(json!({"where": {"method": "roots/list"}})),
                    state: None,
                }),
            },
            "storm" => {
                for _ in 0..20_000 {
                    request.peer.notify("notifications/tools/list_changed", RawJson::empty_object()).await;
                }
                text("calm")
            }
            _ => self.act_oddly(&name, request).await,
        }
    }

    async fn act_oddly(&self, tool: &str, request: ServerRequest) -> Result<Reply, RpcError> {
        let text =
            |text: &str| Ok(RawJson::from(json!({"content": [{"type": "text", "text": text}]})).into());
        match tool {
            // The first call of it never ends.
            "once" => {
                if self.n_calls("once") == 1 {
                    let _hanging = Hanging::new(self);
                    return std::future::pending().await;
                }
                text("done")
            }
            // It wants somebody to have been somewhere first.
            "elsewhere" if self.n_calls("elsewhere") == 1 => {
                let there = json!({"mode": "url", "elicitationId": "e1", "url": "https://example.org", "message": "Go"});
                Err(RpcError::new(-32_042, "go there first").with_data(json!({"elicitations": [there]})))
            }
            "elsewhere" => text("welcome back"),
            // The server makes a task of it, as the arguments say.
            "task" => Ok(request.params.get("arguments").unwrap().into()),
            "mutter" => {
                tokio::spawn(async move {
                    time::sleep(Duration::from_secs(1)).await;
                    let line = RawJson::from(json!({"level": "info", "data": "by the way"}));
                    request.peer.notify("notifications/message", line).await;
                });
                text("nothing")
            }
            _ => Err(RpcError::invalid_params("there is no such tool")),
        }
    }
}

/// A call that hangs, for as long as this lives.
struct Hanging(Stage);

impl Hanging {
    fn new(stage: &Stage) -> Self {
        stage.n_hanging.send_modify(|n_hanging| *n_hanging += 1);
        Self(stage.clone())
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.n_hanging.send_modify(|n_hanging| *n_hanging -= 1);
    }
}

/// A caller that remembers what it is told, and gives its name to whoever asks.
#[derive(Default)]
pub(crate) struct Person {
    pub(crate) name: Option<&'static str>,
    pub(crate) comes_again: bool,
    pub(crate) heard: Mutex<Vec<String>>,
}

impl Person {
    pub(crate) fn named(name: &'static str) -> Arc<Self> {
        Arc::new(Self { name: Some(name), ..Self::default() })
    }

    pub(crate) fn context(self: &Arc<Self>) -> CallContext {
        let mut context = CallContext::default();
        context.client = Some(Arc::clone(self) as Arc<dyn Client>);
        context
    }

    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    fn hear(&self, what: impl Into<String>) {
        self.heard.lock().unwrap().push(what.into());
    }
}

impl Client for Person {
    fn notify(&self, notice: Notice) {
        match notice {
            Notice::Progress(progress) => self.hear(format!("{} of {:?}", progress.done, progress.total)),
            Notice::Log(params) => self.hear(params.get("data").unwrap().as_str()),
            Notice::Task(task) => self.hear(format!("a task for {:?}", task.time_to_live)),
        }
    }

    fn is_asked_in_rounds(&self) -> bool {
        self.comes_again
    }

    fn ask(&self, questions: Questions) -> BoxFuture<'_, Result<Answers, AskError>> {
        let answers = match self.name {
            None => Err(AskError::Nobody),
            Some(name) => Ok(questions
                .into_iter()
                .map(|(key, question)| {
                    self.hear(question.method);
                    (key, RawJson::from(json!({"action": "accept", "content": {"name": name}})))
                })
                .collect()),
        };
        std::future::ready(answers).boxed()
    }
}

/// Calls a tool that a provider offers.
pub(crate) async fn call(
    server: &dyn Provider,
    tool: &str,
    arguments: impl Into<Arguments>,
    context: CallContext,
) -> Result<Output, CallError> {
    let entry = server.offer().borrow().tools.iter().find(|entry| entry.name() == tool).unwrap().clone();
    ValidCall::admit(entry, arguments.into(), context, Checks::None).unwrap().run().await
}

/// The same from nowhere in particular, as one line: the answer's text, or the kind of the error and its words.
pub(crate) async fn line(server: &dyn Provider, tool: &str) -> String {
    said(&call(server, tool, json!({}), CallContext::default()).await)
}

pub(crate) fn said(result: &Result<Output, CallError>) -> String {
    match result {
        Ok(output) => output.text().into_owned(),
        Err(error) => format!("{}: {error}", error.kind().as_str()),
    }
}

pub(crate) fn names(offer: &Offer) -> Vec<String> {
    offer.tools.iter().map(|entry| entry.name().to_owned()).collect()
}

/// Waits until a server is like this.
pub(crate) async fn until(server: &dyn Provider, state: &ServerState) {
    become_true(server.state(), |now| now == state).await;
}

/// Waits until something is so, but not for ever.
pub(crate) async fn become_true<T>(mut news: watch::Receiver<T>, is_so: impl FnMut(&T) -> bool) {
    time::timeout(Duration::from_mins(5), news.wait_for(is_so)).await.unwrap().unwrap();
}

/// Lets every task run until all of them wait.
pub(crate) async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
