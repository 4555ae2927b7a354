//! Servers that are started, go away, come back and end.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use pegboard_core::call::{Call, CallContext, Invoker, Running};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{Particulars, Provider, ServerState};
use pegboard_core::settings::mcp::{HealthProbe, Revival, Settings, Target};
use pegboard_providers::mcp::{Backing, Connect, ConnectError, Connected, Health, Introduction, Server};
use pegboard_wire::WeakConnection;
use pegboard_wire::client::Era;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{self, Instant};

use crate::stage::{ERAS, Stage, Start, call, line, said, settle, until};

/// When the server was started, in seconds after `since`.
fn started(stage: &Stage, since: Instant) -> Vec<u64> {
    stage.started.borrow().iter().map(|at| at.duration_since(since).as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn many_who_open_a_server_start_it_once() {
    let stage = Stage::new();
    let server = stage.provider(Era::Session);
    assert_eq!(*server.state().borrow(), ServerState::Idle);
    let opened = join_all((0..100).map(|_| server.open())).await;
    assert!(opened.iter().all(Result::is_ok));
    assert_eq!((stage.n_started(), &*server.state().borrow()), (1, &ServerState::Ready));
}

#[tokio::test(start_paused = true)]
async fn a_start_without_an_end_ends_for_everybody_and_is_tried_again() {
    let stage = Stage::new();
    stage.next_starts([Start::Hang]);
    let server = stage.provider(Era::Session);
    let begun = Instant::now();
    let opened = join_all((0..3).map(|_| server.open())).await;
    assert_eq!(begun.elapsed(), Duration::from_mins(1));
    let texts = opened.into_iter().map(|result| result.unwrap_err().text());
    assert_eq!(texts.collect::<Vec<_>>(), ["MCP server 'stage' initialization timed out after 60s"; 3]);
    assert!(matches!(&*server.state().borrow(), ServerState::Failed { .. }));
    let error = server.open().await.unwrap_err();
    assert_eq!(
        (error.text(), begun.elapsed()),
        (
            "MCP server 'stage' is unavailable (initialization failed 0s ago, retrying in background): MCP server \
             'stage' initialization timed out after 60s"
                .to_owned(),
            Duration::from_mins(1)
        )
    );
    until(&server, &ServerState::Ready).await;
    assert_eq!(started(&stage, begun), [0, 61]);
    assert_eq!(line(&server, "echo").await, "{}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_dies_in_mid_call_ends_the_call_at_once_and_comes_back() {
    for era in ERAS {
        let stage = Stage::new();
        let server = stage.opened(era).await;
        let begun = Instant::now();
        let killing = async {
            stage.hanging(1).await;
            stage.cut();
        };
        let (result, ()) = tokio::join!(call(&server, "hang", json!({}), CallContext::default()), killing);
        assert_eq!(
            said(&result),
            "transport_error: MCP server 'stage' went away before it answered: the connection was closed. The tool \
             may have run"
        );
        assert_eq!(begun.elapsed(), Duration::ZERO);
        until(&server, &ServerState::Ready).await;
        assert_eq!((line(&server, "echo").await.as_str(), stage.n_started()), ("{}", 2));
        assert_eq!(stage.calls.lock().unwrap().len(), 2, "nothing that may have run is made again");
    }
}

#[tokio::test(start_paused = true)]
async fn restarts_wait_longer_and_longer_and_callers_are_told() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    let begun = Instant::now();
    stage.next_starts([Start::Refuse, Start::Refuse]);
    stage.cut();
    until(&server, &ServerState::Restarting { attempt: 2 }).await;
    assert_eq!(line(&server, "echo").await, IN_PROGRESS);
    assert_eq!(said(&server.open().await.map(|()| unreachable!())), IN_PROGRESS);
    until(&server, &ServerState::Restarting { attempt: 3 }).await;
    until(&server, &ServerState::Ready).await;
    assert_eq!(started(&stage, begun), [0, 0, 1, 3]);
    assert_eq!(line(&server, "echo").await, "{}");
}

#[tokio::test(start_paused = true)]
async fn what_was_is_forgotten_after_a_minute() {
    let stage = Stage::new();
    let server = stage.opened(Era::Session).await;
    let begun = Instant::now();
    for uptime in [0, 0, 0, 60, 0] {
        time::sleep(Duration::from_secs(uptime)).await;
        stage.cut();
        stage.starts(stage.n_started() + 1).await;
        until(&server, &ServerState::Ready).await;
    }
    assert_eq!(started(&stage, begun), [0, 0, 1, 3, 63, 64]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_failing_is_not_asked() {
    let stage = Stage::new();
    stage.next_starts((0..6).map(|_| Start::Refuse));
    let server = stage.provider(Era::Session);
    let begun = Instant::now();
    assert_eq!(
        server.open().await.unwrap_err().text(),
        "MCP server 'stage' did not start: there is no such program"
    );
    time::sleep(Duration::from_secs(20)).await;
    let error = server.open().await.unwrap_err();
    assert!(matches!(error, CallError::CircuitOpen { .. }), "{error:?}");
    insta::assert_snapshot!(
        error.text(),
        @"MCP server 'stage' keeps failing (5 starts in a row): MCP server 'stage' did not start: there is no such program. It is tried again in 28s"
    );
    until(&server, &ServerState::Ready).await;
    assert_eq!(started(&stage, begun), [0, 1, 3, 8, 18, 48, 108]);
    assert_eq!(line(&server, "echo").await, "{}");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_too_long_restarts_only_a_server_that_does_not_answer() {
    for era in ERAS {
        for probe in [HealthProbe::Ping, HealthProbe::ListTools] {
            let stage = Stage::new();
            let server = stage.provider_with(era, |settings| settings.health_probe = probe);
            server.open().await.unwrap();
            let hang =
                || time::timeout(Duration::from_secs(5), call(&server, "hang", json!({}), out_of_time()));
            assert!(hang().await.is_err());
            time::sleep(Duration::from_secs(10)).await;
            assert_eq!((stage.n_started(), server.probe().await), (1, Health::Answers), "{era:?} {probe:?}");

            stage.freeze();
            let begun = Instant::now();
            assert!(hang().await.is_err());
            stage.starts(2).await;
            assert_eq!(begun.elapsed(), Duration::from_secs(8), "it has 3 s to answer");
            until(&server, &ServerState::Ready).await;
            assert_eq!((stage.n_started(), line(&server, "echo").await.as_str()), (2, "{}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_called_off_says_nothing_about_the_server() {
    let stage = Stage::new();
    let server = stage.provider(Era::Session);
    server.open().await.unwrap();
    stage.freeze();
    let hang = call(&server, "hang", json!({}), CallContext::default());
    assert!(time::timeout(Duration::from_secs(5), hang).await.is_err());
    time::sleep(Duration::from_secs(30)).await;
    assert_eq!((stage.n_started(), &*server.state().borrow()), (1, &ServerState::Ready));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_nobody_uses_is_asked_now_and_then_whether_it_answers() {
    let stage = Stage::new();
    let server = stage.provider(Era::Session);
    server.open().await.unwrap();
    stage.freeze();
    let begun = Instant::now();
    stage.starts(2).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(63), "once a minute, and it has 3 s to answer");
    until(&server, &ServerState::Ready).await;

    // One that is busy may have no time to answer.
    let hanging = call(&server, "hang", json!({}), CallContext::default());
    let waiting = async {
        stage.hanging(1).await;
        stage.freeze();
        time::sleep(Duration::from_mins(5)).await;
    };
    tokio::select! {
        result = hanging => panic!("{result:?}"),
        () = waiting => {}
    }
    assert_eq!(stage.n_started(), 2);
}

/// The context of a call whose time is used up when it is given up.
fn out_of_time() -> CallContext {
    struct OutOfTime;

    impl Invoker for OutOfTime {
        fn find(&self, _: &str) -> Option<Arc<ToolEntry>> {
            None
        }

        fn start(&self, _: Call) -> Running {
            unreachable!("the tools of servers make no calls")
        }

        fn is_overdue(&self) -> bool {
            true
        }
    }

    let mut context = CallContext::default();
    context.tools = Some(Arc::new(OutOfTime));
    context
}

#[tokio::test(start_paused = true)]
async fn a_probe_restarts_a_server_that_does_not_answer() {
    let stage = Stage::new();
    let server = stage.provider(Era::Session);
    assert_eq!(server.probe().await, Health::Absent);
    server.open().await.unwrap();
    stage.freeze();
    assert_eq!(server.probe().await, Health::Silent);
    stage.starts(2).await;
    until(&server, &ServerState::Ready).await;
    assert_eq!(server.probe().await, Health::Answers);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_nobody_uses_is_stopped_until_somebody_does() {
    let stage = Stage::new();
    let idle_stop = Some(Duration::from_secs(30));
    let server = stage.provider_with(Era::Session, |settings| settings.idle_stop = idle_stop);
    server.open().await.unwrap();
    let busy =
        time::timeout(Duration::from_mins(1), call(&server, "hang", json!({}), CallContext::default()));
    assert!(busy.await.is_err());
    assert_eq!(*server.state().borrow(), ServerState::Ready, "it was in use all the time");
    let begun = Instant::now();
    until(&server, &ServerState::Idle).await;
    assert_eq!((begun.elapsed(), server.offer().borrow().tools.len()), (Duration::from_secs(30), 9));
    assert_eq!((line(&server, "echo").await.as_str(), stage.n_started()), ("{}", 2));
}

#[tokio::test(start_paused = true)]
async fn a_lazy_server_that_goes_away_stays_away_until_it_is_used() {
    let stage = Stage::new();
    let server = stage.provider_with(Era::Session, |settings| settings.revival = Revival::WhenUsed);
    server.open().await.unwrap();
    stage.cut();
    until(&server, &ServerState::Idle).await;
    time::sleep(Duration::from_hours(1)).await;
    assert_eq!(stage.n_started(), 1);
    assert_eq!((line(&server, "echo").await.as_str(), stage.n_started()), ("{}", 2));
}

/// A way to a server that takes its time.
struct Late(Arc<dyn Connect>, Duration);

impl Connect for Late {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        async move {
            time::sleep(self.1).await;
            self.0.connect(introduction).await
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_tells_how_long_its_start_took_and_how_often_it_was_lost() {
    let stage = Stage::new();
    let mut settings = Settings::new(ServerName::new("stage").unwrap(), Target::Embedded);
    settings.idle_stop = Some(Duration::from_secs(30));
    let took = Duration::from_secs(3);
    let server = Server::new(settings, Arc::new(Late(stage.connector(Era::Session), took)));
    let check = |n_restarts: u64, started_in: Option<Duration>| {
        let expected = Particulars { n_restarts: Some(n_restarts), started_in, ..Particulars::default() };
        assert_eq!(server.particulars(), expected);
    };
    check(0, None);
    server.open().await.unwrap();
    check(0, Some(took));

    // Starts that come to nothing are part of one restart.
    stage.next_starts([Start::Refuse, Start::Refuse]);
    stage.cut();
    until(&server, &ServerState::Restarting { attempt: 3 }).await;
    check(0, Some(took));
    until(&server, &ServerState::Ready).await;
    check(1, Some(took));

    stage.freeze();
    assert_eq!(server.probe().await, Health::Silent);
    stage.starts(5).await;
    until(&server, &ServerState::Ready).await;
    check(2, Some(took));

    until(&server, &ServerState::Idle).await;
    server.open().await.unwrap();
    assert_eq!(stage.n_started(), 6);
    check(2, Some(took));
}

/// A way to a server that tells the test when a connection is gone.
struct Overheard(Arc<dyn Connect>, watch::Sender<Option<WeakConnection>>);

impl Connect for Overheard {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        async move {
            let connected = self.0.connect(introduction).await?;
            self.1.send_replace(Some(connected.client.connection().downgrade()));
            Ok(connected)
        }
        .boxed()
    }
}

/// Calls a tool the moment that the connection is gone, and says what came of it. Whether the call or the keeper is
/// first to hear of it is a matter of luck, so this is done often.
async fn call_as_it_breaks(restart: Option<Start>) -> (String, Stage) {
    let stage = Stage::new();
    let overheard = watch::Sender::new(None);
    let connect = Arc::new(Overheard(stage.connector(Era::Session), overheard.clone()));
    let settings = Settings::new(ServerName::new("stage").unwrap(), Target::Embedded);
    let server = Server::new(settings, connect);
    server.open().await.unwrap();
    let connection = overheard.borrow().clone().unwrap();
    stage.next_starts(restart);
    // On a task of its own, which is woken together with the keeper.
    let calling = tokio::spawn(async move {
        connection.closed().await;
        line(&server, "echo").await
    });
    settle().await;
    stage.cut();
    (calling.await.unwrap(), stage)
}

const IN_PROGRESS: &str = "server_unavailable: mcp_restart_in_progress:stage: restart still running";

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_sent_is_sent_after_the_restart() {
    let mut n_answered = 0;
    for _ in 0..64 {
        let (said, stage) = call_as_it_breaks(None).await;
        match said.as_str() {
            "{}" => n_answered += 1,
            other => assert_eq!(other, IN_PROGRESS),
        }
        assert_eq!(stage.calls.lock().unwrap().len(), usize::from(said == "{}"));
    }
    assert!(n_answered > 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_restart_is_told_when_that_fails() {
    let failed = "server_unavailable: mcp_restart_failed:stage: MCP server 'stage' did not start: there is no such program";
    let mut n_told = 0;
    for _ in 0..64 {
        let (said, stage) = call_as_it_breaks(Some(Start::Refuse)).await;
        assert!([failed, IN_PROGRESS].contains(&said.as_str()), "{said}");
        n_told += usize::from(said == failed);
        assert!(stage.calls.lock().unwrap().is_empty());
    }
    assert!(n_told > 0);
}

/// A process of which only the test knows whether it lives.
struct Process(watch::Sender<&'static str>);

impl Backing for Process {
    fn gone(&mut self) -> BoxFuture<'_, String> {
        async move {
            self.0.subscribe().wait_for(|life| *life == "dead").await.unwrap();
            "it was killed".to_owned()
        }
        .boxed()
    }

    fn end(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            self.0.send_if_modified(|life| *life != "dead" && std::mem::replace(life, "ended") != "ended");
        }
        .boxed()
    }
}

/// A way to a server with such a process behind it.
struct WithProcess(Arc<dyn Connect>, watch::Sender<&'static str>);

impl Connect for WithProcess {
    fn connect(&self, introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        async move {
            let connected = self.0.connect(introduction).await?;
            self.1.send_replace("alive");
            Ok(Connected { backing: Some(Box::new(Process(self.1.clone()))), ..connected })
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_behind_a_server_is_watched_and_ended() {
    let stage = Stage::new();
    let process = watch::Sender::new("none");
    let connect = Arc::new(WithProcess(stage.connector(Era::Session), process.clone()));
    let settings = Settings::new(ServerName::new("stage").unwrap(), Target::Embedded);
    let server = Server::new(settings, connect);
    server.open().await.unwrap();
    let killing = async {
        stage.hanging(1).await;
        process.send_replace("dead");
    };
    // The pipe stays open, and still the call ends.
    let (result, ()) = tokio::join!(call(&server, "hang", json!({}), CallContext::default()), killing);
    assert_eq!(
        said(&result),
        "transport_error: MCP server 'stage' went away before it answered: it was killed. The tool may have run"
    );
    until(&server, &ServerState::Ready).await;
    assert_eq!(*process.borrow(), "alive");
    server.shut_down().await;
    assert_eq!((*process.borrow(), &*server.state().borrow()), ("ended", &ServerState::Stopped));
}

/// A way that leads nowhere.
struct Broken;

impl Connect for Broken {
    fn connect(&self, _introduction: Introduction) -> BoxFuture<'_, Result<Connected, ConnectError>> {
        async { panic!("a bug") }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_way_that_panics_leaves_nobody_waiting() {
    let settings = Settings::new(ServerName::new("stage").unwrap(), Target::Embedded);
    let server = Server::new(settings, Arc::new(Broken));
    assert_eq!(server.open().await.unwrap_err().text(), "MCP server 'stage' was shut down");
    server.shut_down().await;
}
