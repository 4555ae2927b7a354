//! Servers of both eras: each client uses them in its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pegboard_core::call::{Call, CallContext, CallResult, Invoker};
use pegboard_core::id::{ServerName, ToolboxName};
use pegboard_core::provider::{Provider, ProviderMethod, ProviderRequest, ProviderUpdate, ServerOffering};
use pegboard_core::settings::mcp::{EraChoice, McpTarget, ResolvedMcpServer};
use pegboard_json::RawJson;
use pegboard_providers::mcp::McpServer;
use pegboard_runtime::requests::ServerId;
use pegboard_runtime::{Caller, CallerOptions, Runtime};
use pegboard_wire::client::Era;
use pegboard_wire::server::ServiceChange;
use serde_json::json;
use tokio::time::{Duration, Instant};

use crate::mcp::scripted::{
    self, ScriptedReply, ScriptedServer, ScriptedStart, TestClient, outcome_text, settle, tool_names,
    wait_until,
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
async fn clients_share_a_connection_until_the_other_can_be_made() {
    let scripted = ScriptedServer::dual_era();
    let server = open(&scripted).await;
    let (ann, bob) = clients();
    assert_eq!(call(&server, "era", &bob).await, "Stateless");
    scripted.next_starts([ScriptedStart::Refuse, ScriptedStart::Refuse]);
    for client in [&ann, &bob, &ann] {
        assert_eq!(call(&server, "era", client).await, "Stateless");
    }
    assert_eq!((scripted.n_started(), scripted.n_running()), (2, 1), "no call waits for the backoff");
    // The supervisor of the other connection tries again.
    scripted.wait_for_starts(4).await;
    scripted.wait_for_running(2).await;
    settle().await;
    assert_eq!(call(&server, "era", &ann).await, "Session");
    assert_eq!(call(&server, "era", &bob).await, "Stateless");
}

#[tokio::test(start_paused = true)]
async fn a_second_connection_that_hangs_delays_the_first_call_only() {
    let scripted = ScriptedServer::dual_era();
    let server = open(&scripted).await;
    let (ann, bob) = clients();
    assert_eq!(call(&server, "era", &bob).await, "Stateless");
    scripted.next_starts([ScriptedStart::Hang, ScriptedStart::Hang]);
    assert_eq!(call(&server, "era", &ann).await, "Stateless");
    // It is being started again.
    scripted.wait_for_starts(3).await;
    let before = Instant::now();
    for client in [&ann, &bob, &ann] {
        assert_eq!(call(&server, "era", client).await, "Stateless");
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_session_stays_on_the_connection_that_it_began_with() {
    let scripted = ScriptedServer::dual_era();
    let server = Arc::new(open(&scripted).await);
    let runtime = Runtime::builder().provide("scripted", Arc::clone(&server)).start().await.unwrap();
    let (early, late) = (runtime.caller(CallerOptions::default()), runtime.caller(CallerOptions::default()));
    let (ann, bob) = clients();
    assert_eq!(call(&*server, "era", &bob).await, "Stateless");
    scripted.next_starts([ScriptedStart::Refuse]);
    let era_of = |caller: &Caller, client: &Arc<TestClient>| {
        caller.start(Call { context: client.context(), ..Call::new("scripted__era", json!({})) })
    };
    let text = |ended: CallResult| ended.result.unwrap().text().into_owned();
    assert_eq!(text(era_of(&early, &ann).await), "Stateless");
    scripted.wait_for_starts(3).await;
    scripted.wait_for_running(2).await;
    settle().await;
    assert_eq!(text(era_of(&late, &ann).await), "Session");
    assert_eq!(text(era_of(&early, &ann).await), "Stateless");
}

/// Returns a server of both eras with resources, and the provider after clients of both have used it.
async fn open_in_both_eras() -> (ScriptedServer, McpServer) {
    let scripted = ScriptedServer::dual_era();
    scripted.add_capability("resources", json!({"subscribe": true}));
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        scripted.respond_to(method, ScriptedReply::json(&json!({})));
    }
    let server = open(&scripted).await;
    let (ann, bob) = clients();
    assert_eq!(call(&server, "process", &ann).await, "2");
    assert_eq!(call(&server, "process", &bob).await, "3");
    (scripted, server)
}

#[tokio::test(start_paused = true)]
async fn a_list_that_changes_in_either_process_is_published() {
    let (scripted, server) = open_in_both_eras().await;
    let own_tools = |extra: &str| {
        let names = ["era", "process", "insist", extra];
        names.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
    };
    let extras = |offering: &ServerOffering| tool_names(offering)[3..].join(" ");
    // Each process has its own list: that of the last one that has changed comes first.
    for (process, extra, expected) in [
        (3, "stateless", "stateless"),
        (2, "session", "session stateless"),
        (3, "stateless again", "stateless again session"),
    ] {
        scripted.set_process_tools(process, &json!({"tools": own_tools(extra)}));
        scripted.notify_process(process, ServiceChange::Tools);
        wait_until(server.offering(), |offering| extras(offering) == expected).await;
    }
    // A change that only the other process reports is found in the first one, too.
    scripted.set_process_tools(2, &json!({"tools": own_tools("both")}));
    scripted.notify_process(3, ServiceChange::Tools);
    wait_until(server.offering(), |offering| extras(offering) == "both stateless again").await;
}

#[tokio::test(start_paused = true)]
async fn tools_of_either_era_are_listed() {
    let scripted = ScriptedServer::dual_era();
    let tools = |name: &str| {
        let own = ["era", name].map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
        json!({"tools": own})
    };
    for (process, name) in [(1, "stateless"), (2, "session"), (3, "stateless")] {
        scripted.set_process_tools(process, &tools(name));
    }
    let server = open(&scripted).await;
    let (ann, bob) = clients();
    let listed = || tool_names(&server.offering().borrow()).join(" ");
    assert_eq!(listed(), "era stateless");
    // The server is started again for Ann, whose era has another list.
    assert_eq!(call(&server, "era", &ann).await, "Session");
    assert_eq!(listed(), "era session stateless");
    assert_eq!(call(&server, "era", &bob).await, "Stateless");
    settle().await;
    assert_eq!(listed(), "era session stateless", "nothing changes with the second connection");
}

#[tokio::test(start_paused = true)]
async fn a_change_in_a_dedicated_instance_has_the_published_list_read_again() {
    let scripted = ScriptedServer::dual_era();
    let server = provider(&scripted, |settings| settings.is_shared = false);
    server.open().await.unwrap();
    let runtime = Runtime::builder().provide("scripted", server).start().await.unwrap();
    let (ann, _) = clients();
    let caller = runtime.caller(CallerOptions::default());
    let first_call =
        caller.start(Call { context: ann.context(), ..Call::new("scripted__process", json!({})) }).await;
    assert_eq!(first_call.result.unwrap().text(), "2");
    let tools = |name: &str| json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}]});
    scripted.set_process_tools(2, &tools("private"));
    scripted.set_process_tools(1, &tools("public"));
    scripted.notify_process(2, ServiceChange::Tools);
    let published = |_: &u64| {
        let snapshot = runtime.catalogue();
        let (listing, _) = snapshot.listings().next().unwrap();
        tool_names(&listing.offer) == ["public"]
    };
    wait_until(runtime.catalogue_changes(), published).await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_is_subscribed_in_the_era_of_the_client() {
    let (scripted, server) = open_in_both_eras().await;
    let (ann, bob) = clients();
    let subscribe = |uri: &str| ProviderRequest {
        method: ProviderMethod::Subscribe,
        params: RawJson::from(json!({"uri": uri})),
    };
    server.request(&subscribe("x:ann"), &ann.context()).await.unwrap();
    server.request(&subscribe("x:bob"), &bob.context()).await.unwrap();
    server.request(&subscribe("x:nobody"), &CallContext::default()).await.unwrap();
    let sent = |method: &str| -> Vec<String> {
        let requests = scripted.requests.lock().unwrap();
        let found = requests.iter().filter(|(sent, _)| sent == method);
        found.map(|(_, params)| params.without("_meta").as_str().to_owned()).collect()
    };
    assert_eq!(sent("resources/subscribe"), [r#"{"uri":"x:ann"}"#]);
    let mut updates = server.updates();
    for (process, uri) in [(2, "x:ann"), (3, "x:bob"), (3, "x:nobody"), (2, "x:bob")] {
        scripted.notify_process(process, ServiceChange::Resource { uri: uri.to_owned(), params: None });
        settle().await;
    }
    let mut uris = Vec::new();
    while let Ok(ProviderUpdate::Resource(params)) = updates.try_recv() {
        uris.push(params.get("uri").unwrap().text().unwrap().into_owned());
    }
    assert_eq!(uris, ["x:ann", "x:bob", "x:nobody"]);
    let unsubscribe = ProviderRequest { method: ProviderMethod::Unsubscribe, ..subscribe("x:ann") };
    server.request(&unsubscribe, &ann.context()).await.unwrap();
    assert_eq!(sent("resources/unsubscribe"), [r#"{"uri":"x:ann"}"#]);
}

#[tokio::test(start_paused = true)]
async fn a_notification_reaches_the_process_that_its_session_uses() {
    let notify = |caller: &Caller, client: &Arc<TestClient>| {
        let toolbox = ToolboxName::new("default").unwrap();
        let server = ServerId { toolbox, server: ServerName::new("scripted").unwrap() };
        let method = ProviderMethod::CustomNotification("notifications/acme/ready".into());
        let request = ProviderRequest { method, params: RawJson::empty_object() };
        caller.request(&server, request, client.context())
    };
    for is_shared in [true, false] {
        let scripted = ScriptedServer::dual_era();
        scripted.add_capability("experimental", json!({"acme": {}}));
        let provider = provider(&scripted, |settings| settings.is_shared = is_shared);
        provider.open().await.unwrap();
        let runtime = Runtime::builder().provide("scripted", provider).start().await.unwrap();
        let (ann, _) = clients();
        let caller = runtime.caller(CallerOptions::default());
        // No process is started for it.
        notify(&caller, &ann).await.result.unwrap();
        assert_eq!(scripted.n_started(), 1);
        let call = Call { context: ann.context(), ..Call::new("scripted__process", json!({})) };
        assert_eq!(caller.start(call).await.result.unwrap().text(), "2");
        notify(&caller, &ann).await.result.unwrap();
        let is_custom = |notice: &&String| *notice == "notifications/acme/ready";
        settle().await;
        assert_eq!(scripted.notices.borrow().iter().filter(is_custom).count(), 1, "{is_shared}");
        assert_eq!(scripted.n_started(), 2);
    }
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
