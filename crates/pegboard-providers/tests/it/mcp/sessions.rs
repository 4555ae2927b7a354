//! Shared and dedicated instances of servers.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::call::{Call, Invoker};
use pegboard_core::client::Client;
use pegboard_core::owner::Owner;
use pegboard_core::provider::{Provider, ServerOffering};
use pegboard_core::settings::mcp::{ResolvedMcpServer, RootsChoice};
use pegboard_runtime::{Caller, CallerOptions, Runtime, ServerAffinity, SessionMode};
use pegboard_wire::client::Era;
use serde_json::{Value, json};

use crate::mcp::scripted::{self, RootedSession, ScriptedServer, TestClient, outcome_text, wait_until};

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
async fn a_principal_without_a_session_keeps_its_instance_of_an_unshared_server() {
    let scripted = ScriptedServer::with_processes();
    let runtime = runtime(&scripted, |settings| settings.is_shared = false).await;
    let client = TestClient::named("Ann");
    let processes = async |name: &'static str| {
        let mut processes = Vec::new();
        for _ in 0..2 {
            processes.push(call(&runtime.caller(stateless(name)), "process", &client).await);
        }
        processes
    };
    // The first one provides the listing.
    assert_eq!(processes("ann").await, ["2", "2"]);
    assert_eq!(processes("bob").await, ["3", "3"]);
    assert_eq!(processes("ann").await, ["2", "2"]);
    // A principal that is not seen any more is forgotten, and its process ends.
    scripted.wait_for_running(1).await;
    assert_eq!(processes("ann").await, ["4", "4"]);
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
        offering.warnings.iter().any(|warning| warning.contains("separate instances"))
    };
    wait_until(offering, has_warning).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_keeps_its_instance_and_a_new_one_does_not_take_that_of_others() {
    let scripted = ScriptedServer::with_processes();
    let server = scripted.provider(Era::Session);
    let offering = server.offering();
    let runtime = Runtime::builder().provide("scripted", server).start().await.unwrap();
    let clients = [TestClient::named("Ann"), TestClient::named("Bob"), TestClient::named("Cid")];
    let [ann, bob, cid] = [(); 3].map(|()| runtime.caller(CallerOptions::default()));
    // Both call before the first request without a call.
    assert_eq!(call(&ann, "process", &clients[0]).await, "1");
    assert_eq!(call(&bob, "process", &clients[1]).await, "1");
    let hanging = call(&ann, "hang", &clients[0]);
    let others = async {
        scripted.wait_for_hanging(1).await;
        let refused = call(&bob, "ask", &clients[1]).await;
        let own = [call(&bob, "process", &clients[1]).await, call(&cid, "process", &clients[2]).await];
        (refused, own, call(&cid, "ask", &clients[2]).await)
    };
    let (refused, own, asked) = tokio::select! {
        text = hanging => panic!("{text}"),
        texts = others => texts,
    };
    assert!(refused.contains("set `shared: false` for the server"), "{refused}");
    assert_eq!((own, asked.as_str()), (["1".to_owned(), "2".to_owned()], "Hello, Cid!"));
    // The call of the other client has ended.
    assert_eq!(call(&bob, "ask", &clients[1]).await, "Hello, Bob!");
    wait_until(offering, |offering| {
        offering.warnings.iter().any(|warning| warning.contains("shared: false"))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_session_with_parallel_calls_is_asked() {
    let scripted = ScriptedServer::new();
    let server = scripted.provider(Era::Session);
    let offering = server.offering();
    let runtime = Runtime::builder().provide("scripted", server).start().await.unwrap();
    let client = TestClient::named("Ann");
    for options in [CallerOptions::default(), stateless("ann")] {
        let caller = runtime.caller(options);
        let hanging = call(&caller, "hang", &client);
        let asking = async {
            scripted.wait_for_hanging(1).await;
            call(&caller, "ask", &client).await
        };
        let asked = tokio::select! {
            text = hanging => panic!("{text}"),
            text = asking => text,
        };
        assert_eq!(asked, "Hello, Ann!");
        scripted.wait_for_hanging(0).await;
    }
    assert_eq!(scripted.n_started(), 1);
    assert!(offering.borrow().warnings.is_empty(), "nothing was split");
}

#[tokio::test(start_paused = true)]
async fn sessions_after_a_question_use_instances_again() {
    let scripted = ScriptedServer::with_processes();
    let runtime = runtime(&scripted, |_| {}).await;
    let client = TestClient::named("Ann");
    let new_session = || runtime.caller(CallerOptions::default());
    // One after the other, each has the shared instance to itself.
    for _ in 0..3 {
        let caller = new_session();
        assert_eq!(call(&caller, "ask", &client).await, "Hello, Ann!");
        assert_eq!(call(&caller, "process", &client).await, "1");
    }
    // Beside a session that stays, they use the same second instance.
    let stays = new_session();
    assert_eq!(call(&stays, "process", &client).await, "1");
    for _ in 0..3 {
        let caller = new_session();
        assert_eq!(call(&caller, "ask", &client).await, "Hello, Ann!");
        assert_eq!(call(&caller, "process", &client).await, "2");
    }
    assert_eq!(call(&stays, "process", &client).await, "1");
    assert_eq!((scripted.n_started(), scripted.n_running()), (2, 2));
    // An instance that is not used any more is stopped.
    scripted.wait_for_running(1).await;
    let caller = new_session();
    assert_eq!(call(&caller, "process", &client).await, "3");
}

#[tokio::test(start_paused = true)]
async fn callers_of_one_request_have_the_instance_of_their_principal() {
    let scripted = ScriptedServer::with_processes();
    let runtime = runtime(&scripted, |_| {}).await;
    let client = TestClient::named("Ann");
    let affinity = ServerAffinity::Principal;
    let command = || runtime.caller(CallerOptions { affinity, ..CallerOptions::default() });
    assert_eq!(call(&command(), "process", &client).await, "1");
    assert_eq!(call(&command(), "ask", &client).await, "Hello, Ann!");
    // The record of a call keeps its caller.
    let callers = [command(), command(), command()];
    for caller in &callers {
        assert_eq!(call(caller, "process", &client).await, "1");
    }
    let session = runtime.caller(CallerOptions::default());
    assert_eq!(call(&session, "process", &client).await, "2");
    assert_eq!(call(&command(), "process", &client).await, "1");
    assert_eq!(scripted.n_started(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_principal_without_a_session_keeps_its_instance_after_a_question() {
    let scripted = ScriptedServer::with_processes();
    let runtime = runtime(&scripted, |_| {}).await;
    let client = TestClient::named("Ann");
    let caller = |name: &str| runtime.caller(stateless(name));
    assert_eq!(call(&caller("ann"), "ask", &client).await, "Hello, Ann!");
    let hanging = caller("ann");
    let others = async {
        scripted.wait_for_hanging(1).await;
        let processes = [
            call(&caller("ann"), "process", &client).await,
            call(&caller("bob"), "process", &client).await,
            call(&caller("ann"), "process", &client).await,
        ];
        (processes, call(&caller("bob"), "ask", &client).await)
    };
    let (processes, asked) = tokio::select! {
        text = call(&hanging, "hang", &client) => panic!("{text}"),
        texts = others => texts,
    };
    assert_eq!(
        (processes.map(|process| process.parse().unwrap()), asked.as_str()),
        ([1, 2, 1], "Hello, Ann!")
    );
    assert_eq!(
        call(&caller("bob"), "process", &client).await,
        "2",
        "it does not move when the other is free"
    );
    runtime.shut_down(Duration::from_secs(1)).await;
    scripted.wait_for_running(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_user_does_not_get_the_instance_of_an_idle_principal() {
    let scripted = ScriptedServer::with_processes();
    let runtime = runtime(&scripted, |_| {}).await;
    let client = TestClient::named("Ann");
    // Ann calls before the server needs isolation, and has no call in flight afterwards.
    assert_eq!(call(&runtime.caller(stateless("ann")), "ask", &client).await, "Hello, Ann!");
    let session = CallerOptions { owner: stateless("carl").owner, ..CallerOptions::default() };
    for options in [stateless("bob"), session] {
        assert_ne!(call(&runtime.caller(options), "process", &client).await, "1");
    }
    assert_eq!(call(&runtime.caller(stateless("ann")), "process", &client).await, "1");
}

#[tokio::test(start_paused = true)]
async fn the_instance_of_one_client_has_its_capabilities_and_roots() {
    const ROOTS: &str = r#"{"roots":[{"uri":"file:///home/ann"}]}"#;
    const CHANGED: &str = "notifications/roots/list_changed";
    let shared_capabilities = json!({
        "elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {},
        "tasks": {
            "list": {}, "cancel": {},
            "requests": {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}},
        },
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}},
    });
    for (is_shared, capabilities, roots) in [
        (false, json!({"roots": {"listChanged": true}}), ROOTS),
        (true, shared_capabilities, r#"{"roots":[]}"#),
    ] {
        let scripted = ScriptedServer::new();
        scripted.set_tools(&["capabilities", "later"]);
        let runtime = runtime(&scripted, |settings| settings.is_shared = is_shared).await;
        let session = Arc::new(RootedSession::default());
        let ann = TestClient {
            name: Some("Ann"),
            has_session: true,
            session: Some(Arc::clone(&session)),
            ..TestClient::default()
        };
        let (ann, caller) = (Arc::new(ann), runtime.caller(CallerOptions::default()));
        let told = call(&caller, "capabilities", &ann).await;
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), capabilities);
        assert_eq!(call(&caller, "later", &ann).await, "later");
        let has = |expected: &'static str| {
            move |notices: &Vec<String>| notices.iter().any(|notice| notice == expected)
        };
        wait_until(scripted.notices.subscribe(), has(roots)).await;
        session.roots_changes.send_modify(|n_changes| *n_changes += 1);
        if is_shared {
            scripted::settle().await;
            assert!(!has(CHANGED)(&scripted.notices.borrow()), "a shared server has no roots");
        } else {
            wait_until(scripted.notices.subscribe(), has(CHANGED)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_instance_of_one_client_may_run_what_it_asks_as_tasks() {
    let create = json!({"create": {}});
    for (client, requests) in [
        (json!({"elicitation": {}}), json!({"elicitation": create})),
        (json!({"sampling": {}, "roots": {}}), json!({"sampling": {"createMessage": {}}})),
        (json!({"roots": {}}), Value::Null),
        (json!({}), Value::Null),
    ] {
        let scripted = ScriptedServer::new();
        scripted.set_tools(&["capabilities"]);
        let runtime = runtime(&scripted, |settings| settings.is_shared = false).await;
        let session = RootedSession { capabilities: client.clone(), ..RootedSession::default() };
        let session = Some(Arc::new(session));
        let ann = Arc::new(TestClient { has_session: true, session, ..TestClient::default() });
        let told = call(&runtime.caller(CallerOptions::default()), "capabilities", &ann).await;
        let mut told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["tasks"]["requests"], requests, "{client}");
        told.as_object_mut().unwrap().remove("tasks");
        assert_eq!(told, client);
    }
}

#[tokio::test(start_paused = true)]
async fn the_instance_of_one_client_tells_it_what_belongs_to_no_call() {
    let scripted = ScriptedServer::new();
    scripted.set_tools(&["mutter"]);
    scripted.add_capability("experimental", json!({"acme": {}}));
    let runtime = runtime(&scripted, |settings| settings.is_shared = false).await;
    let sessions = [(); 2].map(|()| Arc::new(RootedSession::default()));
    for (n_calls, session) in (1..).zip(&sessions) {
        let session = Some(Arc::clone(session));
        let client = TestClient { has_session: true, session, ..TestClient::default() };
        let caller = runtime.caller(CallerOptions::default());
        assert_eq!(call(&caller, "mutter", &Arc::new(client)).await, "nothing");
        let told = |session: &RootedSession| session.told.borrow().join(" ");
        wait_until(sessions[n_calls - 1].told.subscribe(), |told| told.len() == 2).await;
        let expected = r#"{"level":"info","data":"by the way"} notifications/acme/tick"#;
        assert_eq!(told(&sessions[n_calls - 1]), expected);
        assert_eq!(sessions.iter().filter(|session| told(session) == expected).count(), n_calls);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_instance_gets_the_roots_of_all_its_clients_by_setting() {
    const CHANGED: &str = "notifications/roots/list_changed";
    let scripted = ScriptedServer::new();
    scripted.set_tools(&["capabilities", "later", "ask"]);
    let runtime = runtime(&scripted, |settings| settings.roots = RootsChoice::Union).await;
    let named = |user| {
        let session = Arc::new(RootedSession { user, ..RootedSession::default() });
        let client =
            TestClient { has_session: true, session: Some(Arc::clone(&session)), ..TestClient::default() };
        (Arc::new(client), session, runtime.caller(CallerOptions::default()))
    };
    let told = async |expected: &str| {
        let told = |notices: &Vec<String>| notices.iter().any(|notice| notice == expected);
        wait_until(scripted.notices.subscribe(), told).await;
        scripted.notices.send_modify(Vec::clear);
    };
    let (ann, ann_session, ann_caller) = named("ann");
    let capabilities = call(&ann_caller, "capabilities", &ann).await;
    assert!(capabilities.contains(r#""roots":{"listChanged":true}"#), "{capabilities}");
    told(CHANGED).await;
    call(&ann_caller, "later", &ann).await;
    told(r#"{"roots":[{"uri":"file:///home/ann"}]}"#).await;
    // The same root twice is one.
    let (bob, _session, bob_caller) = named("bob");
    let (other, _other_session, other_caller) = named("ann");
    call(&other_caller, "capabilities", &other).await;
    call(&bob_caller, "later", &bob).await;
    told(r#"{"roots":[{"uri":"file:///home/ann"},{"uri":"file:///home/bob"}]}"#).await;
    ann_session.roots_changes.send_modify(|n_changes| *n_changes += 1);
    told(CHANGED).await;
    // A client that has left has no roots.
    drop((bob_caller, other_caller));
    told(CHANGED).await;
    call(&ann_caller, "later", &ann).await;
    told(r#"{"roots":[{"uri":"file:///home/ann"}]}"#).await;
    // After a question that names no call the next session has an instance of its own.
    call(&ann_caller, "ask", &ann).await;
    let (carl, _carl_session, carl_caller) = named("carl");
    call(&carl_caller, "later", &carl).await;
    told(r#"{"roots":[{"uri":"file:///home/carl"}]}"#).await;
    assert_eq!(scripted.n_started(), 2);
}

/// Options of a principal that calls without a session.
fn stateless(principal: &str) -> CallerOptions {
    let owner = Owner::new(principal);
    CallerOptions { owner, session_mode: SessionMode::Stateless, ..CallerOptions::default() }
}

/// Calls a tool for a client without a session, and returns the outcome as text.
async fn call_text_as(server: &dyn Provider, tool: &str, client: &Arc<TestClient>) -> String {
    outcome_text(&scripted::call(server, tool, json!({}), client.context()).await)
}

#[tokio::test(start_paused = true)]
async fn the_first_call_of_a_session_finds_the_roots_that_its_server_asked_for() {
    let scripted = ScriptedServer::new();
    scripted.set_tools(&["known_roots"]);
    *scripted.listed_roots.lock().unwrap() = Some("unknown".to_owned());
    let runtime = runtime(&scripted, |settings| settings.is_shared = false).await;
    let session = RootedSession { delay: Duration::from_secs(1), ..RootedSession::default() };
    let client = TestClient { has_session: true, session: Some(Arc::new(session)), ..TestClient::default() };
    let roots = call(&runtime.caller(CallerOptions::default()), "known_roots", &Arc::new(client)).await;
    assert_eq!(roots, r#"{"roots":[{"uri":"file:///home/ann"}]}"#);
}
