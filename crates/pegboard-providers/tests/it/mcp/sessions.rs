//! Shared and dedicated instances of servers.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::client::Client;
use pegboard_core::provider::{Provider, ServerOffering};
use pegboard_core::settings::mcp::ResolvedMcpServer;
use pegboard_runtime::{Caller, CallerOptions, Runtime, SessionMode};
use pegboard_wire::client::Era;
use serde_json::json;

use crate::mcp::scripted::{self, ScriptedServer, TestClient, outcome_text, wait_until};

async fn runtime(scripted: &ScriptedServer, change: impl FnOnce(&mut ResolvedMcpServer)) -> Runtime {
    let server = scripted.provider_with(Era::Session, change);
    Runtime::builder().provide("scripted", server).start().await.unwrap()
}

async fn call(caller: &Caller, tool: &str, client: &Arc<TestClient>) -> String {
    let mut call = Call::new(format!("scripted__{tool}"), json!({}));
    call.context.client = Some(Arc::clone(client) as Arc<dyn Client>);
    outcome_text(&caller.start(call).await.result)
}

#[tokio::test(start_paused = true)]
async fn sessions_share_a_server() {
    let scripted = ScriptedServer::new();
    let runtime = runtime(&scripted, |_| {}).await;
    let client = TestClient::named("Ann");
    for _ in 0..3 {
        let caller = runtime.caller(CallerOptions::default());
        assert_eq!(call(&caller, "echo", &client).await, "{}");
    }
    assert_eq!(scripted.n_started(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unshared_server_runs_once_per_session() {
    let scripted = ScriptedServer::new();
    let runtime = runtime(&scripted, |settings| settings.is_shared = false).await;
    let client = TestClient::named("Ann");
    let callers = [(); 3].map(|()| runtime.caller(CallerOptions::default()));
    for _ in 0..2 {
        for caller in &callers {
            assert_eq!(call(caller, "echo", &client).await, "{}");
        }
    }
    // The shared instance, and one for each session.
    assert_eq!((scripted.n_started(), scripted.n_running()), (4, 4));
    // A dedicated instance ends with its session and is not reused.
    drop(callers);
    scripted.wait_for_running(1).await;
    let caller = runtime.caller(CallerOptions::default());
    assert_eq!((call(&caller, "echo", &client).await.as_str(), scripted.n_running()), ("{}", 2));
    runtime.shut_down(Duration::from_secs(1)).await;
    scripted.wait_for_running(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_stateless_caller_gets_an_instance_per_call_of_an_unshared_server() {
    let scripted = ScriptedServer::new();
    let runtime = runtime(&scripted, |settings| settings.is_shared = false).await;
    let client = TestClient::named("Ann");
    let options = CallerOptions { session_mode: SessionMode::Stateless, ..CallerOptions::default() };
    for _ in 0..2 {
        assert_eq!(call(&runtime.caller(options.clone()), "echo", &client).await, "{}");
    }
    // The shared instance, and one for each call.
    assert_eq!(scripted.n_started(), 3);
    scripted.wait_for_running(1).await;
}

#[tokio::test(start_paused = true)]
async fn an_unshared_server_that_was_shut_down_says_so() {
    let scripted = ScriptedServer::new();
    let server = scripted.provider_with(Era::Session, |settings| settings.is_shared = false);
    server.open().await.unwrap();
    server.shut_down().await;
    let text = call_text_as(&server, "echo", &TestClient::named("Ann")).await;
    assert_eq!(text, "server_unavailable: MCP server 'scripted' was shut down");
}

#[tokio::test(start_paused = true)]
async fn a_server_with_ambiguous_requests_is_split_per_session() {
    let scripted = ScriptedServer::new();
    let server = scripted.provider(Era::Session);
    let offering = server.offering();
    let runtime = Runtime::builder().provide("scripted", server).start().await.unwrap();
    let clients = [TestClient::named("Ann"), TestClient::named("Bob")];
    let callers = [(); 2].map(|()| runtime.caller(CallerOptions::default()));
    assert_eq!(call(&callers[0], "ask", &clients[0]).await, "Hello, Ann!");
    assert_eq!(scripted.n_started(), 1);

    let (ann, bob) = (call(&callers[0], "hang", &clients[0]), call(&callers[1], "ask", &clients[1]));
    let asked = tokio::select! {
        text = ann => panic!("{text}"),
        text = bob => text,
    };
    assert_eq!((asked.as_str(), scripted.n_started()), ("Hello, Bob!", 2));
    // The first session keeps its instance.
    assert_eq!(call(&callers[0], "ask", &clients[0]).await, "Hello, Ann!");
    assert_eq!(scripted.n_started(), 2);
    let has_warning = |offering: &Arc<ServerOffering>| {
        offering.warnings.iter().any(|warning| warning.contains("dedicated instance"))
    };
    wait_until(offering, has_warning).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_does_not_take_an_instance_with_calls_of_others() {
    let scripted = ScriptedServer::new();
    let runtime = runtime(&scripted, |_| {}).await;
    let clients = [TestClient::named("Ann"), TestClient::named("Bob")];
    let stateless = CallerOptions { session_mode: SessionMode::Stateless, ..CallerOptions::default() };
    let callers = [runtime.caller(stateless), runtime.caller(CallerOptions::default())];
    // The call starts before the first ambiguous request.
    let ann = call(&callers[0], "hang", &clients[0]);
    let bob = async {
        scripted.wait_for_hanging(1).await;
        (call(&callers[1], "ask", &clients[1]).await, call(&callers[1], "ask", &clients[1]).await)
    };
    let (first, second) = tokio::select! {
        text = ann => panic!("{text}"),
        text = bob => text,
    };
    assert_ne!(first, "Hello, Bob!", "the request is ambiguous");
    assert_eq!((second.as_str(), scripted.n_started()), ("Hello, Bob!", 2));
}

#[tokio::test]
async fn a_caller_without_a_session_gets_an_instance_for_the_duration_of_its_call() {
    let scripted = ScriptedServer::new();
    let server = scripted.open_provider(Era::Session).await;
    let clients = [TestClient::named("Ann"), TestClient::named("Bob")];
    assert_eq!(call_text_as(&server, "ask", &clients[0]).await, "Hello, Ann!");
    assert_eq!(scripted.n_started(), 1);

    let ann = call_text_as(&server, "hang", &clients[0]);
    let bob = async {
        scripted.wait_for_hanging(1).await;
        let first = call_text_as(&server, "ask", &clients[1]).await;
        // The instance of the first call serves the next one.
        (first, call_text_as(&server, "ask", &clients[1]).await)
    };
    let asked = tokio::select! {
        text = ann => panic!("{text}"),
        text = bob => text,
    };
    assert_eq!(asked, ("Hello, Bob!".to_owned(), "Hello, Bob!".to_owned()));
    assert_eq!(scripted.n_started(), 2);
    // The shared instance is free again.
    assert_eq!(call_text_as(&server, "ask", &clients[0]).await, "Hello, Ann!");
    assert_eq!(scripted.n_started(), 2);
    server.shut_down().await;
    scripted.wait_for_running(0).await;
}

/// Calls a tool for a client without a session, and returns the outcome as text.
async fn call_text_as(server: &dyn Provider, tool: &str, client: &Arc<TestClient>) -> String {
    outcome_text(&scripted::call(server, tool, json!({}), client.context()).await)
}
