//! What servers and callers do at the worst moment.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::attachment::Attachments;
use pegboard_core::call::{Call, CallContext, Invoker, Running};
use pegboard_core::entry::ToolEntry;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{Method, Provider, Request, ServerState};
use pegboard_core::settings::mcp::{Revival, Settings, Target};
use pegboard_providers::mcp::{Backing, Connect, ConnectError, Connected, Introduction, Pipe, Server};
use pegboard_wire::RpcError;
use pegboard_wire::client::Era;
use pegboard_wire::era::Revision;
use pegboard_wire::link::InputLimits;
use pegboard_wire::server::{self, Change, Description, Reply, ServerRequest, Service};
use pegboard_wire::stdio::lines;
use serde_json::json;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::{self, Instant};

use crate::stage::{Person, Speaking, Stage, Start, call, line, names, settle, until};

#[tokio::test(start_paused = true)]
async fn a_question_about_the_call_of_a_mute_caller_is_put_to_nobody_else() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    let ann = Person::named("Ann");
    let hanging = call(&server, "hang", json!({}), ann.context());
    let asking = async {
        stage.hanging(1).await;
        line(&server, "ask").await
    };
    let asked = tokio::select! {
        result = hanging => panic!("{result:?}"),
        asked = asking => asked,
    };
    assert_eq!(
        asked,
        "execution_error: MCP error -32603: The question has no answer: calls of several callers are under way, and \
         nobody can tell whom the question is for"
    );
    assert_eq!(ann.heard(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_line_of_the_log_about_the_call_of_a_mute_caller_is_told_to_nobody() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    let mut updates = server.updates();
    assert_eq!(line(&server, "count").await, "counted");
    settle().await;
    assert_eq!(updates.try_recv(), Err(TryRecvError::Empty));

    let ann = Person::named("Ann");
    let hanging = call(&server, "hang", json!({}), ann.context());
    let counting = async {
        stage.hanging(1).await;
        line(&server, "count").await;
        settle().await;
    };
    tokio::select! {
        result = hanging => panic!("{result:?}"),
        () = counting => {}
    }
    assert_eq!((ann.heard(), updates.try_recv()), (vec![], Err(TryRecvError::Empty)));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_only_watched_is_asked_whether_it_answers() {
    let stage = crate::requests::watched();
    let server = stage.opened(Era::Session).await;
    let request = Request { method: Method::Subscribe, params: json!({"uri": "x:a"}).into() };
    server.request(&request, &CallContext::default()).await.unwrap();
    let begun = Instant::now();
    stage.freeze();
    stage.starts(2).await;
    until(&server, &ServerState::Ready).await;
    assert_eq!(begun.elapsed().as_secs(), 63);
}

#[tokio::test(start_paused = true)]
async fn a_long_run_is_remembered_even_if_it_ended_because_nobody_used_the_server() {
    let stage = Stage::new();
    stage.next_starts([Start::Refuse, Start::Refuse, Start::Refuse]);
    let idle_stop = Some(Duration::from_mins(2));
    let server = stage.provider_with(Era::Session, |settings| settings.idle_stop = idle_stop);
    server.open().await.unwrap_err();
    until(&server, &ServerState::Ready).await;
    until(&server, &ServerState::Idle).await;
    stage.next_starts([Start::Refuse]);
    let begun = Instant::now();
    server.open().await.unwrap_err();
    until(&server, &ServerState::Ready).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}

/// A way to servers with a process behind each that takes long to end, and how many of those there are.
struct Slow(Arc<dyn Connect>, watch::Sender<usize>);

impl Connect for Slow {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        async move {
            let connected = self.0.connect(introduction).await?;
            self.1.send_modify(|n_processes| *n_processes += 1);
            Ok(Connected { backing: Some(Box::new(SlowProcess(self.1.clone()))), ..connected })
        }
        .boxed()
    }
}

struct SlowProcess(watch::Sender<usize>);

impl Backing for SlowProcess {
    fn gone(&mut self) -> BoxFuture<'_, String> {
        std::future::pending().boxed()
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            time::sleep(Duration::from_secs(5)).await;
            self.0.send_modify(|n_processes| *n_processes -= 1);
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn servers_of_their_own_count_until_they_have_ended() {
    let stage = Stage::new();
    let n_processes = watch::Sender::new(0);
    let mut settings = Settings::new(ServerName::new("stage").unwrap(), Target::Embedded);
    settings.is_shared = false;
    let way = Arc::new(Slow(stage.connector(Era::Session), n_processes.clone()));
    let server = Server::new(settings, way);
    server.open().await.unwrap();
    let begun = Instant::now();
    let mut n_answered = 0;
    for _ in 0..150 {
        n_answered += usize::from(line(&server, "echo").await == "{}");
    }
    assert_eq!((n_answered, *n_processes.borrow(), begun.elapsed()), (100, 101, Duration::ZERO));
    time::sleep(Duration::from_secs(10)).await;
    assert_eq!((line(&server, "echo").await.as_str(), *n_processes.borrow()), ("{}", 2));
    server.shut_down().await;
    assert_eq!(*n_processes.borrow(), 0);
}

/// A session that makes no calls of its own.
#[derive(Default)]
struct Session(Attachments);

impl Invoker for Session {
    fn find(&self, _: &str) -> Option<Arc<ToolEntry>> {
        None
    }

    fn start(&self, _: Call) -> Running {
        unreachable!("nothing here makes calls")
    }

    fn attachments(&self) -> Option<&Attachments> {
        Some(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_session_wanted_of_a_server_that_is_not_shared_ends_with_it() {
    let stage = crate::requests::watched();
    let server = stage.provider_with(Era::Session, |settings| settings.is_shared = false);
    let mut context = CallContext::default();
    context.tools = Some(Arc::new(Session::default()));
    for (method, params) in
        [(Method::Subscribe, json!({"uri": "x:a"})), (Method::SetLogLevel, json!({"level": "debug"}))]
    {
        server.request(&Request { method, params: params.into() }, &context).await.unwrap();
    }
    drop(context);
    until(&server, &ServerState::Idle).await;
    server.open().await.unwrap();
    settle().await;
    assert_eq!((stage.n_started(), stage.n_requests("resources/subscribe")), (2, 1));
    assert_eq!(stage.n_requests("logging/setLevel"), 1);
}

/// A way that leads to one server after another.
struct InTurn(Mutex<VecDeque<Arc<dyn Connect>>>);

impl Connect for InTurn {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        let way = self.0.lock().unwrap().pop_front().unwrap();
        async move { way.connect(introduction).await }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_session_does_to_a_server_that_is_not_shared_shows_in_no_list() {
    let stages = [Stage::new(), Stage::new()];
    let ways = stages.iter().map(|stage| stage.connector(Era::Session)).collect();
    let mut settings = Settings::new(ServerName::new("stage").unwrap(), Target::Embedded);
    settings.is_shared = false;
    let server = Server::new(settings, Arc::new(InTurn(Mutex::new(ways))));
    server.open().await.unwrap();
    let mut context = CallContext::default();
    context.tools = Some(Arc::new(Session::default()));
    call(&server, "echo", json!({}), context.clone()).await.unwrap();
    for stage in stages.iter().filter(|stage| stage.n_calls("echo") > 0) {
        stage.list(&["echo", "read_the_diary_of_ann"]);
        stage.change();
    }
    time::sleep(Duration::from_secs(5)).await;
    assert!(!names(&server.offer().borrow()).contains(&"read_the_diary_of_ann".to_owned()));
}

/// A way to a server whose process is gone as soon as it has said what it has.
struct Doomed(Arc<dyn Connect>);

impl Connect for Doomed {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        async move {
            let connected = self.0.connect(introduction).await?;
            Ok(Connected { backing: Some(Box::new(Gone)), ..connected })
        }
        .boxed()
    }
}

struct Gone;

impl Backing for Gone {
    fn gone(&mut self) -> BoxFuture<'_, String> {
        std::future::ready("it fell over".to_owned()).boxed()
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_server_that_falls_over_at_once_is_told_why() {
    for revival in [Revival::AtOnce, Revival::WhenUsed] {
        let mut settings = Settings::new(ServerName::new("stage").unwrap(), Target::Embedded);
        settings.revival = revival;
        let server = Server::new(settings, Arc::new(Doomed(Stage::new().connector(Era::Session))));
        let error = server.open().await.unwrap_err();
        assert_eq!(error.text(), "MCP server 'stage' went away: it fell over");
    }
}

/// A server that ends every stream of changes at once, and how often it was asked for one.
#[derive(Clone)]
struct Curt(Stage, Arc<AtomicUsize>);

impl Service for Curt {
    fn describe(&self, revision: Revision) -> Description {
        self.0.describe(revision)
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<Reply, RpcError>> {
        self.0.call(request)
    }

    fn changes(&self) -> Option<broadcast::Receiver<Change>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Some(broadcast::channel(1).1)
    }
}

impl Curt {
    fn way(&self) -> Arc<dyn Connect> {
        let curt = self.clone();
        Arc::new(Pipe::new(move || {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let (reader, writer) = tokio::io::split(far);
            let (link, _) = lines(reader, writer, InputLimits::server());
            let serving = server::Server::new(Arc::new(curt.clone()));
            tokio::spawn(async move { serving.serve(link).await });
            async { Ok(tokio::io::split(near)) }
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_stream_of_changes_at_once_is_asked_less_and_less() {
    let curt = Curt(Stage::new(), Arc::default());
    let settings = Settings::new(ServerName::new("curt").unwrap(), Target::Embedded);
    let server = Server::new(settings, Arc::new(Speaking(Era::Stateless, curt.way())));
    server.open().await.unwrap();
    time::sleep(Duration::from_hours(1)).await;
    let [n_streams, n_lists] = [&curt.1, &curt.0.n_lists].map(|n| n.load(Ordering::SeqCst));
    assert!((10..30).contains(&n_streams) && (10..30).contains(&n_lists), "{n_streams}, {n_lists}");
}
