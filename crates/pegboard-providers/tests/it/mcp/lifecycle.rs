//! Start, restart and shutdown of servers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use pegboard_core::call::{Call, CallContext, CallHandle, Invoker};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{ProcessInfo, Provider, ServerState};
use pegboard_core::settings::mcp::{HealthProbe, McpTarget, ResolvedMcpServer, RestartPolicy, ServerProgram};
use pegboard_providers::mcp::{
    Backend, Connector, ConnectorError, EstablishedConnection, HandshakeOptions, Health, McpServer,
};
use pegboard_wire::WeakConnection;
use pegboard_wire::client::Era;
use serde_json::json;
use tokio::sync::watch;
use tokio::task;
use tokio::time::{self, Instant};

use crate::mcp::scripted::{
    ERAS, ScriptedServer, ScriptedStart, call, call_text, outcome_text, settle, wait_for_state,
};

/// Returns the times of the server's starts, in seconds after `since`.
fn started(scripted: &ScriptedServer, since: Instant) -> Vec<u64> {
    scripted.started.borrow().iter().map(|at| at.duration_since(since).as_secs()).collect()
}

#[tokio::test(start_paused = true)]
async fn concurrent_opens_start_the_server_once() {
    let scripted = ScriptedServer::new();
    let server = scripted.provider(Era::Session);
    assert_eq!(*server.state().borrow(), ServerState::Idle);
    let opened = join_all((0..100).map(|_| server.open())).await;
    assert!(opened.iter().all(Result::is_ok));
    assert_eq!((scripted.n_started(), &*server.state().borrow()), (1, &ServerState::Ready));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_start_times_out_for_all_callers_and_is_retried() {
    let scripted = ScriptedServer::new();
    scripted.next_starts([ScriptedStart::Hang]);
    let server = scripted.provider(Era::Session);
    let started_at = Instant::now();
    let opened = join_all((0..3).map(|_| server.open())).await;
    assert_eq!(started_at.elapsed(), Duration::from_mins(1));
    let texts = opened.into_iter().map(|result| result.unwrap_err().text());
    assert_eq!(texts.collect::<Vec<_>>(), ["MCP server 'scripted' initialization timed out after 60s"; 3]);
    assert!(matches!(&*server.state().borrow(), ServerState::Failed { .. }));
    let error = server.open().await.unwrap_err();
    assert_eq!(
        (error.text(), started_at.elapsed()),
        (
            "MCP server 'scripted' is unavailable (initialization failed 0s ago, retrying in background): MCP server \
             'scripted' initialization timed out after 60s"
                .to_owned(),
            Duration::from_mins(1)
        )
    );
    wait_for_state(&server, &ServerState::Ready).await;
    assert_eq!(started(&scripted, started_at), [0, 61]);
    assert_eq!(call_text(&server, "echo").await, "{}");
}

#[tokio::test(start_paused = true)]
async fn a_server_lost_in_mid_call_fails_the_call_at_once_and_restarts() {
    for era in ERAS {
        let scripted = ScriptedServer::new();
        let server = scripted.open_provider(era).await;
        let started_at = Instant::now();
        let killing = async {
            scripted.wait_for_hanging(1).await;
            scripted.disconnect();
        };
        let (result, ()) = tokio::join!(call(&server, "hang", json!({}), CallContext::default()), killing);
        assert_eq!(
            outcome_text(&result),
            "transport_error: MCP server 'scripted' failed before it responded: the connection was closed. The tool \
             may have run"
        );
        assert_eq!(started_at.elapsed(), Duration::ZERO);
        wait_for_state(&server, &ServerState::Ready).await;
        assert_eq!((call_text(&server, "echo").await.as_str(), scripted.n_started()), ("{}", 2));
        assert_eq!(scripted.calls.lock().unwrap().len(), 2, "a call that may have run is not repeated");
    }
}

#[tokio::test(start_paused = true)]
async fn restarts_back_off_and_calls_report_the_restart() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    let started_at = Instant::now();
    scripted.next_starts([ScriptedStart::Refuse, ScriptedStart::Refuse]);
    scripted.disconnect();
    wait_for_state(&server, &ServerState::Restarting { attempt: 2 }).await;
    assert_eq!(call_text(&server, "echo").await, IN_PROGRESS);
    assert_eq!(outcome_text(&server.open().await.map(|()| unreachable!())), IN_PROGRESS);
    wait_for_state(&server, &ServerState::Restarting { attempt: 3 }).await;
    wait_for_state(&server, &ServerState::Ready).await;
    assert_eq!(started(&scripted, started_at), [0, 0, 1, 3]);
    assert_eq!(call_text(&server, "echo").await, "{}");
}

#[tokio::test(start_paused = true)]
async fn the_backoff_resets_after_a_minute_of_uptime() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    let started_at = Instant::now();
    for uptime in [0, 0, 0, 60, 0] {
        time::sleep(Duration::from_secs(uptime)).await;
        scripted.disconnect();
        scripted.wait_for_starts(scripted.n_started() + 1).await;
        wait_for_state(&server, &ServerState::Ready).await;
    }
    assert_eq!(started(&scripted, started_at), [0, 0, 1, 3, 63, 64]);
}

#[tokio::test(start_paused = true)]
async fn the_circuit_opens_for_a_server_that_keeps_failing() {
    let scripted = ScriptedServer::new();
    scripted.next_starts((0..6).map(|_| ScriptedStart::Refuse));
    let server = scripted.provider(Era::Session);
    let started_at = Instant::now();
    assert_eq!(
        server.open().await.unwrap_err().text(),
        "MCP server 'scripted' did not start: there is no such program"
    );
    time::sleep(Duration::from_secs(20)).await;
    let error = server.open().await.unwrap_err();
    assert!(matches!(error, CallError::CircuitOpen { .. }), "{error:?}");
    insta::assert_snapshot!(
        error.text(),
        @"MCP server 'scripted' keeps failing (5 starts in a row): MCP server 'scripted' did not start: there is no such program. Next attempt in 28s"
    );
    wait_for_state(&server, &ServerState::Ready).await;
    assert_eq!(started(&scripted, started_at), [0, 1, 3, 8, 18, 48, 108]);
    assert_eq!(call_text(&server, "echo").await, "{}");
}

#[tokio::test(start_paused = true)]
async fn a_call_timeout_restarts_only_an_unresponsive_server() {
    for era in ERAS {
        for probe in [HealthProbe::Ping, HealthProbe::ListTools] {
            let scripted = ScriptedServer::new();
            let server = scripted.provider_with(era, |settings| settings.health_probe = probe);
            server.open().await.unwrap();
            let hang =
                || time::timeout(Duration::from_secs(5), call(&server, "hang", json!({}), overdue_context()));
            assert!(hang().await.is_err());
            time::sleep(Duration::from_secs(10)).await;
            assert_eq!(
                (scripted.n_started(), server.probe().await),
                (1, Health::Responsive),
                "{era:?} {probe:?}"
            );

            scripted.freeze();
            let started_at = Instant::now();
            assert!(hang().await.is_err());
            scripted.wait_for_starts(2).await;
            assert_eq!(started_at.elapsed(), Duration::from_secs(8), "it has 3 s to answer");
            wait_for_state(&server, &ServerState::Ready).await;
            assert_eq!((scripted.n_started(), call_text(&server, "echo").await.as_str()), (2, "{}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_does_not_trigger_a_probe() {
    let scripted = ScriptedServer::new();
    let server = scripted.provider(Era::Session);
    server.open().await.unwrap();
    scripted.freeze();
    let hang = call(&server, "hang", json!({}), CallContext::default());
    assert!(time::timeout(Duration::from_secs(5), hang).await.is_err());
    time::sleep(Duration::from_secs(30)).await;
    assert_eq!((scripted.n_started(), &*server.state().borrow()), (1, &ServerState::Ready));
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_is_probed_periodically() {
    let scripted = ScriptedServer::new();
    let server = scripted.provider(Era::Session);
    server.open().await.unwrap();
    scripted.freeze();
    let started_at = Instant::now();
    scripted.wait_for_starts(2).await;
    assert_eq!(started_at.elapsed(), Duration::from_secs(63), "probed once a minute, with 3 s to answer");
    wait_for_state(&server, &ServerState::Ready).await;

    // A busy server may have no time to answer.
    let hanging = call(&server, "hang", json!({}), CallContext::default());
    let waiting = async {
        scripted.wait_for_hanging(1).await;
        scripted.freeze();
        time::sleep(Duration::from_mins(5)).await;
    };
    tokio::select! {
        result = hanging => panic!("{result:?}"),
        () = waiting => {}
    }
    assert_eq!(scripted.n_started(), 2);
}

/// Returns the context of a call that is overdue when it is dropped.
fn overdue_context() -> CallContext {
    struct OverdueInvoker;

    impl Invoker for OverdueInvoker {
        fn find(&self, _: &str) -> Option<Arc<ToolEntry>> {
            None
        }

        fn start(&self, _: Call) -> CallHandle {
            unreachable!("the tools of servers make no calls")
        }

        fn is_overdue(&self) -> bool {
            true
        }
    }

    let mut context = CallContext::default();
    context.tools = Some(Arc::new(OverdueInvoker));
    context
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_time_is_up_is_told_that_the_server_is_still_starting() {
    let scripted = ScriptedServer::new();
    let server = scripted.provider_with(Era::Session, |settings| settings.restart = RestartPolicy::OnDemand);
    server.open().await.unwrap();
    scripted.next_starts([ScriptedStart::Hang]);
    scripted.disconnect();
    wait_for_state(&server, &ServerState::Idle).await;
    let ended = call(&server, "echo", json!({}), overdue_context()).await;
    assert_eq!(
        outcome_text(&ended),
        "server_unavailable: MCP server 'scripted' is still starting. Call it again in a moment"
    );
    // The start goes on.
    wait_for_state(&server, &ServerState::Starting).await;
    wait_for_state(&server, &ServerState::Ready).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_restarts_the_server() {
    let scripted = ScriptedServer::new();
    let server = scripted.provider(Era::Session);
    assert_eq!(server.probe().await, Health::NotRunning);
    server.open().await.unwrap();
    scripted.freeze();
    assert_eq!(server.probe().await, Health::Unresponsive);
    scripted.wait_for_starts(2).await;
    wait_for_state(&server, &ServerState::Ready).await;
    assert_eq!(server.probe().await, Health::Responsive);
}

#[tokio::test(start_paused = true)]
async fn an_idle_server_is_stopped_until_its_next_use() {
    let scripted = ScriptedServer::new();
    let idle_stop = Some(Duration::from_secs(30));
    let server = scripted.provider_with(Era::Session, |settings| settings.idle_stop = idle_stop);
    server.open().await.unwrap();
    let busy =
        time::timeout(Duration::from_mins(1), call(&server, "hang", json!({}), CallContext::default()));
    assert!(busy.await.is_err());
    assert_eq!(*server.state().borrow(), ServerState::Ready, "it was in use");
    let started_at = Instant::now();
    wait_for_state(&server, &ServerState::Idle).await;
    assert_eq!((started_at.elapsed(), server.offering().borrow().tools.len()), (Duration::from_secs(30), 9));
    assert_eq!((call_text(&server, "echo").await.as_str(), scripted.n_started()), ("{}", 2));
}

#[tokio::test(start_paused = true)]
async fn a_lost_lazy_server_is_not_restarted_until_it_is_used() {
    let scripted = ScriptedServer::new();
    let server = scripted.provider_with(Era::Session, |settings| settings.restart = RestartPolicy::OnDemand);
    server.open().await.unwrap();
    scripted.disconnect();
    wait_for_state(&server, &ServerState::Idle).await;
    time::sleep(Duration::from_hours(1)).await;
    assert_eq!(scripted.n_started(), 1);
    assert_eq!((call_text(&server, "echo").await.as_str(), scripted.n_started()), ("{}", 2));
}

/// A connector with a delay.
struct SlowConnector(Arc<dyn Connector>, Duration);

impl Connector for SlowConnector {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        async move {
            time::sleep(self.1).await;
            self.0.connect(handshake).await
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_package_runner_may_install_at_its_first_start_only() {
    let npx = ServerProgram { args: vec!["some-server".to_owned()], ..ServerProgram::new("npx") };
    let own = |first, every| ResolvedMcpServer {
        first_start_timeout: first,
        start_timeout: every,
        ..ResolvedMcpServer::new(ServerName::new("scripted").unwrap(), McpTarget::Program(npx.clone()))
    };
    let minute = Duration::from_mins(1);
    let stopped = "It was stopped and may have left an incomplete installation. Run `npx some-server` by hand until the \
                   server is installed, or increase `firstStartTimeout`.";
    for (settings, takes, expected) in [
        (own(None, minute), minute * 4, Ok(())),
        (own(None, minute), minute * 6, Err("300s")),
        (own(None, minute * 7), minute * 6, Ok(())),
        (own(Some(minute * 2), minute), minute * 3, Err("120s")),
    ] {
        let scripted = ScriptedServer::new();
        let connector = Arc::new(SlowConnector(scripted.connector(Era::Session), takes));
        let server = McpServer::new(settings, connector);
        assert!(server.open_timeout() > takes || expected.is_err());
        let opened = server.open().await.map_err(|error| error.text());
        let expected =
            expected.map_err(|after| format!("MCP server 'scripted' initialization timed out after {after}"));
        assert_eq!(opened, expected);
        match &*server.state().borrow() {
            ServerState::Failed { fix, .. } => assert_eq!(fix, stopped),
            state => assert_eq!(*state, ServerState::Ready),
        }
    }
    // Later starts find the package installed.
    let scripted = ScriptedServer::new();
    let server = McpServer::new(own(None, minute), scripted.connector(Era::Session));
    server.open().await.unwrap();
    scripted.next_starts([ScriptedStart::Hang]);
    let lost_at = Instant::now();
    scripted.disconnect();
    wait_for_state(&server, &ServerState::Restarting { attempt: 2 }).await;
    assert!((minute..minute * 2).contains(&lost_at.elapsed()), "{:?}", lost_at.elapsed());
}

#[tokio::test(start_paused = true)]
async fn process_info_reports_start_time_and_restarts() {
    let scripted = ScriptedServer::new();
    let mut settings = ResolvedMcpServer::new(ServerName::new("scripted").unwrap(), McpTarget::Embedded);
    settings.idle_stop = Some(Duration::from_secs(30));
    let took = Duration::from_secs(3);
    let server = McpServer::new(settings, Arc::new(SlowConnector(scripted.connector(Era::Session), took)));
    let check = |n_restarts: u64, started_in: Option<Duration>| {
        let expected = ProcessInfo { n_restarts: Some(n_restarts), started_in, ..ProcessInfo::default() };
        assert_eq!(server.process_info(), expected);
    };
    check(0, None);
    server.open().await.unwrap();
    check(0, Some(took));

    // Failed starts are part of one restart.
    scripted.next_starts([ScriptedStart::Refuse, ScriptedStart::Refuse]);
    scripted.disconnect();
    wait_for_state(&server, &ServerState::Restarting { attempt: 3 }).await;
    check(0, Some(took));
    wait_for_state(&server, &ServerState::Ready).await;
    check(1, Some(took));

    scripted.freeze();
    assert_eq!(server.probe().await, Health::Unresponsive);
    scripted.wait_for_starts(5).await;
    wait_for_state(&server, &ServerState::Ready).await;
    check(2, Some(took));

    wait_for_state(&server, &ServerState::Idle).await;
    server.open().await.unwrap();
    assert_eq!(scripted.n_started(), 6);
    check(2, Some(took));
}

/// A connector that passes each connection to the test.
struct ObservedConnector(Arc<dyn Connector>, watch::Sender<Option<WeakConnection>>);

impl Connector for ObservedConnector {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        async move {
            let connected = self.0.connect(handshake).await?;
            self.1.send_replace(Some(connected.client.connection().downgrade()));
            // The test waits for the end of the connection before the supervisor does.
            task::yield_now().await;
            Ok(connected)
        }
        .boxed()
    }
}

/// Calls a tool at the moment the connection is lost, and returns the outcome. The call notices it before or
/// together with the supervisor, so callers repeat this.
async fn call_during_disconnect(restart: Option<ScriptedStart>) -> (String, ScriptedServer) {
    let scripted = ScriptedServer::new();
    let observed = watch::Sender::new(None);
    let connector = Arc::new(ObservedConnector(scripted.connector(Era::Session), observed.clone()));
    let settings = ResolvedMcpServer::new(ServerName::new("scripted").unwrap(), McpTarget::Embedded);
    let server = Arc::new(McpServer::new(settings, connector));
    let (caller, mut connections) = (Arc::clone(&server), observed.subscribe());
    let calling = tokio::spawn(async move {
        let connection = connections.wait_for(Option::is_some).await.unwrap().clone().unwrap();
        connection.closed().await;
        call_text(&*caller, "echo").await
    });
    server.open().await.unwrap();
    scripted.next_starts(restart);
    settle().await;
    scripted.disconnect();
    (calling.await.unwrap(), scripted)
}

const IN_PROGRESS: &str = "server_unavailable: mcp_restart_in_progress:scripted: restart still running";

#[tokio::test(start_paused = true)]
async fn a_call_that_was_never_sent_is_sent_after_the_restart() {
    let mut n_answered = 0;
    for _ in 0..64 {
        let (text, scripted) = call_during_disconnect(None).await;
        match text.as_str() {
            "{}" => n_answered += 1,
            other => assert_eq!(other, IN_PROGRESS),
        }
        assert_eq!(scripted.calls.lock().unwrap().len(), usize::from(text == "{}"));
    }
    assert!(n_answered > 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_restart_fails_with_it() {
    let failed = "server_unavailable: mcp_restart_failed:scripted: MCP server 'scripted' did not start: there is no such program";
    let mut n_failed_restarts = 0;
    for _ in 0..64 {
        let (text, scripted) = call_during_disconnect(Some(ScriptedStart::Refuse)).await;
        assert!([failed, IN_PROGRESS].contains(&text.as_str()), "{text}");
        n_failed_restarts += usize::from(text == failed);
        assert!(scripted.calls.lock().unwrap().is_empty());
    }
    assert!(n_failed_restarts > 0);
}

/// A process with a state that the test controls.
struct FakeProcess(watch::Sender<&'static str>);

impl Backend for FakeProcess {
    fn exited(&mut self) -> BoxFuture<'_, String> {
        async move {
            self.0.subscribe().wait_for(|state| *state == "dead").await.unwrap();
            "it was killed".to_owned()
        }
        .boxed()
    }

    fn shut_down(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            self.0.send_if_modified(|state| *state != "dead" && std::mem::replace(state, "ended") != "ended");
        }
        .boxed()
    }
}

/// A connector with such a process as its backend.
struct ProcessConnector(Arc<dyn Connector>, watch::Sender<&'static str>);

impl Connector for ProcessConnector {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        async move {
            let connected = self.0.connect(handshake).await?;
            self.1.send_replace("alive");
            Ok(EstablishedConnection { backend: Some(Box::new(FakeProcess(self.1.clone()))), ..connected })
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn the_backend_of_a_server_is_monitored_and_shut_down() {
    let scripted = ScriptedServer::new();
    let process = watch::Sender::new("none");
    let connector = Arc::new(ProcessConnector(scripted.connector(Era::Session), process.clone()));
    let settings = ResolvedMcpServer::new(ServerName::new("scripted").unwrap(), McpTarget::Embedded);
    let server = McpServer::new(settings, connector);
    server.open().await.unwrap();
    let killing = async {
        scripted.wait_for_hanging(1).await;
        process.send_replace("dead");
    };
    // The pipe stays open, and still the call ends.
    let (result, ()) = tokio::join!(call(&server, "hang", json!({}), CallContext::default()), killing);
    assert_eq!(
        outcome_text(&result),
        "transport_error: MCP server 'scripted' failed before it responded: it was killed. The tool may have run"
    );
    wait_for_state(&server, &ServerState::Ready).await;
    assert_eq!(*process.borrow(), "alive");
    server.shut_down().await;
    assert_eq!((*process.borrow(), &*server.state().borrow()), ("ended", &ServerState::Stopped));
}

/// A connector that panics.
struct PanickingConnector;

impl Connector for PanickingConnector {
    fn connect(
        &self,
        _handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        async { panic!("a bug") }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_connector_leaves_no_caller_waiting() {
    let settings = ResolvedMcpServer::new(ServerName::new("scripted").unwrap(), McpTarget::Embedded);
    let server = McpServer::new(settings, Arc::new(PanickingConnector));
    assert_eq!(server.open().await.unwrap_err().text(), "MCP server 'scripted' was shut down");
    server.shut_down().await;
}
