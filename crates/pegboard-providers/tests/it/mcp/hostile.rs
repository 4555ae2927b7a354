//! Misbehaving servers and unfavourable timing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use pegboard_core::call::{Call, CallContext, CallHandle, Invoker};
use pegboard_core::entry::ToolEntry;
use pegboard_core::extensions::Extensions;
use pegboard_core::id::ServerName;
use pegboard_core::provider::{Provider, ProviderMethod, ProviderRequest, ServerState};
use pegboard_core::settings::mcp::{McpTarget, ResolvedMcpServer, RestartPolicy};
use pegboard_providers::mcp::{
    Backend, Connector, ConnectorError, EstablishedConnection, HandshakeOptions, McpServer, PipeConnector,
};
use pegboard_wire::RpcError;
use pegboard_wire::client::Era;
use pegboard_wire::era::Revision;
use pegboard_wire::server::{
    self, McpService, ServerRequest, ServiceChange, ServiceDescription, ServiceReply,
};
use pegboard_wire::stdio::line_transport;
use pegboard_wire::transport::InputLimits;
use serde_json::json;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::{self, Instant};

use crate::mcp::scripted::{
    ScriptedServer, ScriptedStart, TestClient, WithEra, call, call_text, settle, tool_names, wait_for_state,
};

#[tokio::test(start_paused = true)]
async fn a_request_for_a_caller_without_a_client_is_not_sent_to_another() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    let ann = TestClient::named("Ann");
    let hanging = call(&server, "hang", json!({}), ann.context());
    let asking = async {
        scripted.wait_for_hanging(1).await;
        call_text(&server, "ask").await
    };
    let asked = tokio::select! {
        result = hanging => panic!("{result:?}"),
        asked = asking => asked,
    };
    assert_eq!(
        asked,
        "execution_error: MCP error -32603: The request cannot be answered: calls of several clients are in flight and \
         it does not name one; set `shared: false` for the server"
    );
    assert_eq!(ann.received(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_log_message_for_a_caller_without_a_client_is_dropped() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    let mut updates = server.updates();
    assert_eq!(call_text(&server, "count").await, "counted");
    settle().await;
    assert_eq!(updates.try_recv(), Err(TryRecvError::Empty));

    let ann = TestClient::named("Ann");
    let hanging = call(&server, "hang", json!({}), ann.context());
    let counting = async {
        scripted.wait_for_hanging(1).await;
        call_text(&server, "count").await;
        settle().await;
    };
    tokio::select! {
        result = hanging => panic!("{result:?}"),
        () = counting => {}
    }
    assert_eq!((ann.received(), updates.try_recv()), (vec![], Err(TryRecvError::Empty)));
}

#[tokio::test(start_paused = true)]
async fn a_server_with_only_subscriptions_is_probed() {
    let scripted = crate::mcp::requests::subscribable_server();
    let server = scripted.open_provider(Era::Session).await;
    let request = ProviderRequest { method: ProviderMethod::Subscribe, params: json!({"uri": "x:a"}).into() };
    server.request(&request, &CallContext::default()).await.unwrap();
    let started_at = Instant::now();
    scripted.freeze();
    scripted.wait_for_starts(2).await;
    wait_for_state(&server, &ServerState::Ready).await;
    assert_eq!(started_at.elapsed().as_secs(), 63);
}

#[tokio::test(start_paused = true)]
async fn a_long_run_that_ends_idle_resets_the_backoff() {
    let scripted = ScriptedServer::new();
    scripted.next_starts([ScriptedStart::Refuse, ScriptedStart::Refuse, ScriptedStart::Refuse]);
    let idle_stop = Some(Duration::from_mins(2));
    let server = scripted.provider_with(Era::Session, |settings| settings.idle_stop = idle_stop);
    server.open().await.unwrap_err();
    wait_for_state(&server, &ServerState::Ready).await;
    wait_for_state(&server, &ServerState::Idle).await;
    scripted.next_starts([ScriptedStart::Refuse]);
    let started_at = Instant::now();
    server.open().await.unwrap_err();
    wait_for_state(&server, &ServerState::Ready).await;
    assert_eq!(started_at.elapsed(), Duration::from_secs(1));
}

/// A connector with a backend that is slow to shut down, and the number of running backends.
struct SlowShutdownConnector(Arc<dyn Connector>, watch::Sender<usize>);

impl Connector for SlowShutdownConnector {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        async move {
            let connected = self.0.connect(handshake).await?;
            self.1.send_modify(|n_processes| *n_processes += 1);
            Ok(EstablishedConnection { backend: Some(Box::new(SlowProcess(self.1.clone()))), ..connected })
        }
        .boxed()
    }
}

struct SlowProcess(watch::Sender<usize>);

impl Backend for SlowProcess {
    fn exited(&mut self) -> BoxFuture<'_, String> {
        std::future::pending().boxed()
    }

    fn shut_down(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            time::sleep(Duration::from_secs(5)).await;
            self.0.send_modify(|n_processes| *n_processes -= 1);
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn dedicated_instances_count_until_they_have_exited() {
    let scripted = ScriptedServer::new();
    let n_processes = watch::Sender::new(0);
    let mut settings = ResolvedMcpServer::new(ServerName::new("scripted").unwrap(), McpTarget::Embedded);
    settings.is_shared = false;
    let connector = Arc::new(SlowShutdownConnector(scripted.connector(Era::Session), n_processes.clone()));
    let server = McpServer::new(settings, connector);
    server.open().await.unwrap();
    let started_at = Instant::now();
    let mut n_answered = 0;
    for _ in 0..150 {
        n_answered += usize::from(call_text(&server, "echo").await == "{}");
    }
    assert_eq!((n_answered, *n_processes.borrow(), started_at.elapsed()), (100, 101, Duration::ZERO));
    time::sleep(Duration::from_secs(10)).await;
    assert_eq!((call_text(&server, "echo").await.as_str(), *n_processes.borrow()), ("{}", 2));
    server.shut_down().await;
    assert_eq!(*n_processes.borrow(), 0);
}

/// A session that makes no calls.
#[derive(Default)]
struct TestSession(Extensions);

impl Invoker for TestSession {
    fn find(&self, _: &str) -> Option<Arc<ToolEntry>> {
        None
    }

    fn start(&self, _: Call) -> CallHandle {
        unreachable!("nothing here makes calls")
    }

    fn extensions(&self) -> Option<&Extensions> {
        Some(&self.0)
    }
}

#[tokio::test(start_paused = true)]
async fn settings_of_a_session_on_an_unshared_server_end_with_the_session() {
    let scripted = crate::mcp::requests::subscribable_server();
    let server = scripted.provider_with(Era::Session, |settings| settings.is_shared = false);
    let mut context = CallContext::default();
    context.tools = Some(Arc::new(TestSession::default()));
    for (method, params) in [
        (ProviderMethod::Subscribe, json!({"uri": "x:a"})),
        (ProviderMethod::SetLogLevel, json!({"level": "debug"})),
    ] {
        server.request(&ProviderRequest { method, params: params.into() }, &context).await.unwrap();
    }
    drop(context);
    wait_for_state(&server, &ServerState::Idle).await;
    server.open().await.unwrap();
    settle().await;
    assert_eq!((scripted.n_started(), scripted.n_requests("resources/subscribe")), (2, 1));
    assert_eq!(scripted.n_requests("logging/setLevel"), 1);
}

/// A connector to a sequence of servers.
struct SequenceConnector(Mutex<VecDeque<Arc<dyn Connector>>>);

impl Connector for SequenceConnector {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        let connector = self.0.lock().unwrap().pop_front().unwrap();
        async move { connector.connect(handshake).await }.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn list_changes_of_a_dedicated_instance_are_not_published() {
    let servers = [ScriptedServer::new(), ScriptedServer::new()];
    let connectors = servers.iter().map(|scripted| scripted.connector(Era::Session)).collect();
    let mut settings = ResolvedMcpServer::new(ServerName::new("scripted").unwrap(), McpTarget::Embedded);
    settings.is_shared = false;
    let server = McpServer::new(settings, Arc::new(SequenceConnector(Mutex::new(connectors))));
    server.open().await.unwrap();
    let mut context = CallContext::default();
    context.tools = Some(Arc::new(TestSession::default()));
    call(&server, "echo", json!({}), context.clone()).await.unwrap();
    for scripted in servers.iter().filter(|scripted| scripted.n_calls("echo") > 0) {
        scripted.set_tools(&["echo", "read_the_diary_of_ann"]);
        scripted.notify_tools_changed();
    }
    time::sleep(Duration::from_secs(5)).await;
    assert!(!tool_names(&server.offering().borrow()).contains(&"read_the_diary_of_ann".to_owned()));
}

/// A connector to a server that crashes right after its tools were listed.
struct CrashingConnector(Arc<dyn Connector>);

impl Connector for CrashingConnector {
    fn connect(
        &self,
        handshake: HandshakeOptions,
    ) -> BoxFuture<'_, Result<EstablishedConnection, ConnectorError>> {
        async move {
            let connected = self.0.connect(handshake).await?;
            Ok(EstablishedConnection { backend: Some(Box::new(CrashedProcess)), ..connected })
        }
        .boxed()
    }
}

struct CrashedProcess;

impl Backend for CrashedProcess {
    fn exited(&mut self) -> BoxFuture<'_, String> {
        std::future::ready("it fell over".to_owned()).boxed()
    }

    fn shut_down(self: Box<Self>) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn callers_waiting_for_a_server_that_crashes_get_the_reason() {
    for policy in [RestartPolicy::Immediate, RestartPolicy::OnDemand] {
        let mut settings = ResolvedMcpServer::new(ServerName::new("scripted").unwrap(), McpTarget::Embedded);
        settings.restart = policy;
        let server = McpServer::new(
            settings,
            Arc::new(CrashingConnector(ScriptedServer::new().connector(Era::Session))),
        );
        let error = server.open().await.unwrap_err();
        assert_eq!(error.text(), "MCP server 'scripted' disconnected: it fell over");
    }
}

/// A service that closes every change stream at once, and the number of streams opened.
#[derive(Clone)]
struct StreamClosingService(ScriptedServer, Arc<AtomicUsize>);

impl McpService for StreamClosingService {
    fn describe(&self, revision: Revision) -> ServiceDescription {
        self.0.describe(revision)
    }

    fn call(&self, request: ServerRequest) -> BoxFuture<'static, Result<ServiceReply, RpcError>> {
        self.0.call(request)
    }

    fn changes(&self) -> Option<broadcast::Receiver<ServiceChange>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Some(broadcast::channel(1).1)
    }
}

impl StreamClosingService {
    fn connector(&self) -> Arc<dyn Connector> {
        let service = self.clone();
        Arc::new(PipeConnector::new(move || {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let (reader, writer) = tokio::io::split(far);
            let (transport, _) = line_transport(reader, writer, InputLimits::server());
            let serving = server::ServiceServer::new(Arc::new(service.clone()));
            tokio::spawn(async move { serving.serve(transport).await });
            async { Ok(tokio::io::split(near)) }
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn listening_backs_off_if_the_server_closes_every_stream() {
    let service = StreamClosingService(ScriptedServer::new(), Arc::default());
    let settings = ResolvedMcpServer::new(ServerName::new("curt").unwrap(), McpTarget::Embedded);
    let server = McpServer::new(settings, Arc::new(WithEra(Era::Stateless, service.connector())));
    server.open().await.unwrap();
    time::sleep(Duration::from_hours(1)).await;
    let [n_streams, n_list_requests] =
        [&service.1, &service.0.n_list_requests].map(|n| n.load(Ordering::SeqCst));
    assert!(
        (10..30).contains(&n_streams) && (10..30).contains(&n_list_requests),
        "{n_streams}, {n_list_requests}"
    );
}
