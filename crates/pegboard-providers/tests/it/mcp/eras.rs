//! Servers of both eras: each client uses them in its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pegboard_core::id::ServerName;
use pegboard_core::provider::{Provider, ServerState};
use pegboard_core::settings::mcp::{EraChoice, McpTarget, ResolvedMcpServer};
use pegboard_providers::mcp::McpServer;
use pegboard_wire::client::Era;
use serde_json::json;

use crate::mcp::scripted::{
    self, ScriptedServer, ScriptedStart, TestClient, outcome_text, tool_names, wait_for_state,
};

/// Returns a provider that negotiates the era.
fn provider(scripted: &ScriptedServer, change: impl FnOnce(&mut ResolvedMcpServer)) -> McpServer {
    let mut settings = ResolvedMcpServer::new(ServerName::new("scripted").unwrap(), McpTarget::Embedded);
    change(&mut settings);
    McpServer::new(settings, scripted.negotiating_connector())
}

async fn open(scripted: &ScriptedServer) -> McpServer {
    let server = provider(scripted, |_| {});
    server.open().await.unwrap();
    server
}

async fn call(server: &dyn Provider, tool: &str, client: &Arc<TestClient>) -> String {
    outcome_text(&scripted::call(server, tool, json!({}), client.context()).await)
}

fn clients() -> (Arc<TestClient>, Arc<TestClient>) {
    (TestClient::with_session("Ann"), TestClient::named("Bob"))
}

#[tokio::test(start_paused = true)]
async fn clients_with_sessions_alone_use_one_process_in_the_session_era() {
    let scripted = ScriptedServer::dual_era();
    let server = open(&scripted).await;
    let (ann, _) = clients();
    let mut offering = server.offering();
    offering.mark_unchanged();
    for is_first in [true, false] {
        assert_eq!(call(&server, "era", &ann).await, "Session");
        assert!(!is_first || !offering.has_changed().unwrap(), "the same tools are no change");
        assert_eq!(call(&server, "insist", &ann).await, "\"Ann\"");
        assert_eq!(call(&server, "process", &ann).await, "2");
    }
    assert_eq!((scripted.n_started(), scripted.n_running()), (2, 1));
    server.shut_down().await;
    scripted.wait_for_running(0).await;
}

#[tokio::test(start_paused = true)]
async fn clients_of_both_eras_have_a_process_each() {
    let is_session_first = [true, false];
    for is_session_first in is_session_first {
        let scripted = ScriptedServer::dual_era();
        let server = open(&scripted).await;
        let (ann, bob) = clients();
        let n_started = if is_session_first {
            assert_eq!(call(&server, "era", &ann).await, "Session");
            3
        } else {
            assert_eq!(call(&server, "era", &bob).await, "Stateless");
            2
        };
        for _ in 0..2 {
            assert_eq!(call(&server, "era", &bob).await, "Stateless");
            assert_eq!(call(&server, "insist", &ann).await, "\"Ann\"");
            assert_eq!(call(&server, "ask", &bob).await, "Hello, Bob!");
        }
        assert_ne!(call(&server, "process", &ann).await, call(&server, "process", &bob).await);
        assert_eq!((scripted.n_started(), scripted.n_running()), (n_started, 2), "{is_session_first}");
        assert_eq!(tool_names(&server.offering().borrow()), ["era", "process", "insist", "hang", "ask"]);
        server.shut_down().await;
        scripted.wait_for_running(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn parallel_first_calls_start_one_process_per_era() {
    let scripted = ScriptedServer::dual_era();
    let server = open(&scripted).await;
    let (ann, bob) = clients();
    let (first, second, third, fourth) = tokio::join!(
        call(&server, "era", &ann),
        call(&server, "era", &bob),
        call(&server, "era", &ann),
        call(&server, "era", &bob),
    );
    assert_eq!([first, second, third, fourth], ["Session", "Stateless", "Session", "Stateless"]);
    assert_eq!(scripted.n_running(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_is_not_asked_twice_for_an_era_that_it_lacks() {
    // One process to find out: the listing of a server with sessions has shown it already.
    for (era, n_started) in [(Era::Session, 1), (Era::Stateless, 2)] {
        let scripted = ScriptedServer::new();
        scripted.set_tools(&["era"]);
        let server = scripted.open_provider(era).await;
        let (ann, bob) = clients();
        for _ in 0..3 {
            for client in [&ann, &bob] {
                assert_eq!(call(&server, "era", client).await, format!("{era:?}"));
            }
        }
        assert_eq!((scripted.n_started(), scripted.n_running()), (n_started, 1), "{era:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_era_can_be_set() {
    for (choice, era) in [(EraChoice::Session, "Session"), (EraChoice::Stateless, "Stateless")] {
        let scripted = ScriptedServer::dual_era();
        let server = provider(&scripted, |settings| settings.era = choice);
        server.open().await.unwrap();
        let (ann, bob) = clients();
        for client in [&ann, &bob, &ann] {
            assert_eq!(call(&server, "era", client).await, era);
        }
        assert_eq!(scripted.n_started(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn clients_share_a_connection_if_no_other_can_be_made() {
    let scripted = ScriptedServer::dual_era();
    let server = open(&scripted).await;
    let (ann, bob) = clients();
    assert_eq!(call(&server, "era", &bob).await, "Stateless");
    scripted.next_starts([ScriptedStart::Refuse]);
    for client in [&ann, &bob, &ann] {
        assert_eq!(call(&server, "era", client).await, "Stateless");
    }
    assert_eq!((scripted.n_started(), scripted.n_running()), (2, 1));
    // A server that was lost may be another one now.
    scripted.next_starts([ScriptedStart::Refuse]);
    scripted.disconnect();
    scripted.wait_for_starts(4).await;
    wait_for_state(&server, &ServerState::Ready).await;
    assert_eq!(call(&server, "era", &ann).await, "Session");
}

#[tokio::test(start_paused = true)]
async fn dedicated_instances_have_the_era_of_their_client() {
    let scripted = ScriptedServer::dual_era();
    let server = provider(&scripted, |settings| settings.is_shared = false);
    server.open().await.unwrap();
    let (ann, bob) = clients();
    assert_eq!(call(&server, "era", &ann).await, "Session");
    assert_eq!(call(&server, "era", &bob).await, "Stateless");
    // A caller that is not known has an instance for one call.
    assert_eq!(scripted.n_list_requests.load(Ordering::SeqCst), 3, "each instance lists its tools");
    assert_eq!(scripted.n_started(), 3);
}
