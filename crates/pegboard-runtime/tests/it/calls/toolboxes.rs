//! Toolboxes: opening, visibility, and the errors for closed ones.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use pegboard_core::call::{Call, Invoker};
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::owner::OwnerScope;
use pegboard_core::provider::{LocalProvider, ServerOffering};
use pegboard_core::settings::{RuntimeSettings, ServerSettings, StartRule};
use pegboard_runtime::event::RuntimeEvent;
use pegboard_runtime::{Caller, CallerOptions, Runtime, SessionMode};
use serde_json::json;
use tokio::time::{self, Instant};

use crate::calls::fixtures::{SlowServer, line, name_tool};

fn id(toolbox: &str, server: &str, name: &str) -> ToolId {
    ToolId {
        toolbox: ToolboxName::new(toolbox).unwrap(),
        server: ServerName::new(server).unwrap(),
        name: ToolName::new(name).unwrap(),
    }
}

async fn use_tool(caller: &Caller, tool: ToolId) -> String {
    line(&caller.start(Call::new(tool, json!({}))).await)
}

fn session(runtime: &Runtime) -> Caller {
    runtime.caller(CallerOptions { session_mode: SessionMode::Session, ..CallerOptions::default() })
}

#[tokio::test(start_paused = true)]
async fn opening_starts_all_servers_and_lists_their_tools_in_order() {
    let (b, n_b) = SlowServer::new(&["zeta", "alpha"], None);
    let (a, n_a) = SlowServer::new(&["echo__x-1.y"], None);
    let runtime = Runtime::builder()
        .toolbox("dev", "For development")
        .provide("b", b)
        .provide("a", a)
        .start()
        .await
        .unwrap();
    let caller = session(&runtime);
    let started = time::Instant::now();
    let opened = caller.open("dev").await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(1), "both at the same time");
    let json = serde_json::to_value(&opened).unwrap();
    assert_eq!(
        (&json["toolbox"], &json["description"], &json["servers_connected"], json.get("servers_failed")),
        (&json!("dev"), &json!("For development"), &json!(2), None)
    );
    let tools: Vec<_> =
        json["tools"].as_array().unwrap().iter().map(|tool| (&tool["server"], &tool["name"])).collect();
    assert_eq!(
        tools,
        [(&json!("b"), &json!("zeta")), (&json!("b"), &json!("alpha")), (&json!("a"), &json!("echo__x-1.y"))]
    );
    // Opening again, also for another caller, starts nothing.
    let again = serde_json::to_value(caller.open("dev").await.unwrap()).unwrap();
    session(&runtime).open("dev").await.unwrap();
    assert_eq!(again, json);
    assert_eq!((n_a.load(Ordering::SeqCst), n_b.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(use_tool(&caller, id("dev", "a", "echo__x-1.y")).await, "echo__x-1.y");
}

#[tokio::test(start_paused = true)]
async fn concurrent_opens_share_one_attempt() {
    for fails_with in [None, Some("spawn x ENOENT")] {
        let (server, n_opened) = SlowServer::new(&["x"], fails_with);
        let runtime = Runtime::builder().toolbox("dev", "").provide("s", server).start().await.unwrap();
        let callers = [(); 3].map(|()| session(&runtime));
        let opened = join_all(callers.iter().map(|caller| caller.open("dev"))).await;
        assert!(opened.iter().all(|opened| opened.is_ok() == fails_with.is_none()));
        assert_eq!(n_opened.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_open_does_not_affect_others() {
    let (server, n_opened) = SlowServer::new(&["x"], None);
    let runtime = Runtime::builder().toolbox("dev", "").provide("s", server).start().await.unwrap();
    let (first, second) = (session(&runtime), session(&runtime));
    let opening = tokio::spawn(async move { first.open("dev").await.map(drop) });
    crate::calls::fixtures::settle().await;
    let waiting =
        tokio::spawn(async move { second.open("dev").await.map(|opened| opened.servers_connected) });
    crate::calls::fixtures::settle().await;
    opening.abort();
    assert_eq!(waiting.await.unwrap().unwrap(), 1);
    assert_eq!(n_opened.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_server_is_reported_and_the_others_work() {
    let (bad, _) = SlowServer::new(&[], Some("spawn x ENOENT"));
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("bad", bad)
        .provide("good", LocalProvider::new([name_tool("hello")]))
        .start()
        .await
        .unwrap();
    let caller = session(&runtime);
    let opened = serde_json::to_value(caller.open("dev").await.unwrap()).unwrap();
    assert_eq!(opened["servers_connected"], 1);
    assert_eq!(opened["servers_failed"], json!([{"server": "bad", "error": "spawn x ENOENT"}]));
    assert_eq!(use_tool(&caller, id("dev", "good", "hello")).await, "hello");
    // The tools of the failed server are unknown; calling one retries it once.
    assert_eq!(use_tool(&caller, id("dev", "bad", "x")).await, "server_unavailable: spawn x ENOENT");
}

#[tokio::test(start_paused = true)]
async fn a_toolbox_without_a_working_server_stays_closed() {
    let (bad, _) = SlowServer::new(&[], Some("spawn x ENOENT"));
    let runtime = Runtime::builder().toolbox("bad", "").provide("x", bad).start().await.unwrap();
    let caller = session(&runtime);
    let error = caller.open("bad").await.unwrap_err();
    insta::assert_snapshot!(error, @"Error opening toolbox 'bad': Failed to connect to MCP server 'x': spawn x ENOENT");
    assert!(!caller.is_toolbox_open(&ToolboxName::new("bad").unwrap()));
}

#[tokio::test]
async fn unknown_and_closed_toolboxes_are_reported_with_alternatives() {
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("files", LocalProvider::new([name_tool("read_file"), name_tool("write_file")]))
        .toolbox("prod", "")
        .provide("files", LocalProvider::new([name_tool("read_file")]))
        .start()
        .await
        .unwrap();
    let caller = session(&runtime);
    assert_eq!(
        use_tool(&caller, id("dev", "files", "read_file")).await,
        r#"unknown_toolbox: Toolbox 'dev' is not open. Call open_toolbox with {"toolbox": "dev"} first"#
    );
    caller.open("dev").await.unwrap();
    let cases = [
        (id("dev", "files", "read_file"), "read_file"),
        (
            id("DEV", "files", "read_file"),
            "unknown_toolbox: Toolbox 'DEV' is not open: Toolbox 'DEV' not found. Available toolboxes: dev, prod. Did you mean 'dev'?",
        ),
        (
            id("dev", "zz", "x"),
            "unknown_server: Server 'zz' not found in toolbox 'dev'. Available servers: files",
        ),
        (
            id("dev", "files", "read_fil"),
            "unknown_tool: Tool 'read_fil' not found in server 'files' (toolbox 'dev'). Did you mean one of: read_file, write_file?",
        ),
        (
            id("prod", "files", "read_file"),
            r#"unknown_toolbox: Toolbox 'prod' is not open. Call open_toolbox with {"toolbox": "prod"} first"#,
        ),
    ];
    for (tool, expected) in cases {
        assert_eq!(use_tool(&caller, tool).await, expected);
    }
    let error = caller.open("nope").await.unwrap_err();
    assert!(error.to_string().contains("Toolbox 'nope' not found. Available toolboxes: dev, prod"));
}

#[tokio::test]
async fn auto_open_depends_on_setting_and_session_mode() {
    use SessionMode::{AllOpen, Session, Stateless};
    let cases = [
        ("stateless", [(Session, false), (Stateless, true), (AllOpen, true)]),
        ("never", [(Session, false), (Stateless, false), (AllOpen, true)]),
        ("always", [(Session, true), (Stateless, true), (AllOpen, true)]),
    ];
    for (auto_open, callers) in cases {
        let settings: RuntimeSettings = serde_json::from_value(json!({"autoOpen": auto_open})).unwrap();
        let runtime = Runtime::builder()
            .settings(settings)
            .toolbox("dev", "")
            .provide("s", LocalProvider::new([name_tool("x")]))
            .start()
            .await
            .unwrap();
        for (session_mode, is_open) in callers {
            let caller = runtime.caller(CallerOptions { session_mode, ..CallerOptions::default() });
            let by_id = use_tool(&caller, id("dev", "s", "x")).await == "x";
            let by_name = line(&caller.start(Call::new("s__x", json!({}))).await) == "x";
            assert_eq!((by_id, by_name), (is_open, is_open), "{auto_open} {session_mode:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lazy_server_is_opened_by_the_first_call_of_its_tool() {
    let (server, n_opened) = SlowServer::new(&["x"], None);
    let runtime = Runtime::builder().toolbox("dev", "").provide("s", server).start().await.unwrap();
    let caller =
        runtime.caller(CallerOptions { session_mode: SessionMode::Stateless, ..CallerOptions::default() });
    assert_eq!(n_opened.load(Ordering::SeqCst), 0);
    let calls = join_all((0..3).map(|_| use_tool(&caller, id("dev", "s", "x")))).await;
    assert_eq!(calls, ["x", "x", "x"]);
    assert_eq!(n_opened.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn invisible_toolboxes_do_not_exist_for_a_caller() {
    let runtime = Runtime::builder()
        .toolbox("open", "")
        .provide("s", LocalProvider::new([name_tool("x")]))
        .toolbox("secret", "")
        .provide("hidden", LocalProvider::new([name_tool("y")]))
        .start()
        .await
        .unwrap();
    let toolboxes = Some([ToolboxName::new("open").unwrap()].into());
    let caller = runtime.caller(CallerOptions { toolboxes, ..CallerOptions::default() });
    let by_id = use_tool(&caller, id("secret", "hidden", "y")).await;
    let by_name = line(&caller.start(Call::new("hidden__y", json!({}))).await);
    let opened = caller.open("secret").await.unwrap_err().to_string();
    assert_eq!(
        by_id,
        "unknown_toolbox: Toolbox 'secret' is not open: Toolbox 'secret' not found. Available toolboxes: open"
    );
    assert_eq!(by_name, "unknown_tool: Unknown tool: hidden__y");
    assert!(opened.ends_with("Available toolboxes: open"), "{opened}");
    assert_eq!(line(&caller.start(Call::new("s__x", json!({}))).await), "x");
}

#[tokio::test]
async fn filtered_tools_cannot_be_called() {
    let settings: ServerSettings = serde_json::from_value(json!({"toolsDenied": ["wipe*"]})).unwrap();
    let provider = Arc::new(LocalProvider::new([name_tool("wipe_disk"), name_tool("read")]));
    let runtime = Runtime::builder().provide("s", provider).server_settings(settings).start().await.unwrap();
    let caller = runtime.caller(CallerOptions::default());
    let denied = use_tool(&caller, id("default", "s", "wipe_disk")).await;
    assert!(denied.starts_with("unknown_tool: Tool 'wipe_disk' not found in server 's'"), "{denied}");
    assert!(line(&caller.start(Call::new("s__wipe_disk", json!({}))).await).starts_with("unknown_tool"));
}

#[tokio::test(start_paused = true)]
async fn added_and_removed_tools_are_reflected_at_once() {
    let local = Arc::new(LocalProvider::new([name_tool("old")]));
    let runtime = Runtime::builder().provide("s", Arc::clone(&local)).start().await.unwrap();
    let caller = runtime.caller(CallerOptions::default());
    let before = runtime.catalogue();
    local.replace(ServerOffering { tools: vec![Arc::new(name_tool("new"))], ..ServerOffering::default() });
    time::sleep(Duration::from_millis(100)).await;
    assert_eq!(line(&caller.start(Call::new("s__new", json!({}))).await), "new");
    assert!(line(&caller.start(Call::new("s__old", json!({}))).await).starts_with("unknown_tool"));
    assert_eq!(before.tools().len(), 1, "what somebody holds stays as it is");
}

#[tokio::test]
async fn invalid_and_duplicate_names_fail_the_start() {
    let none = || LocalProvider::new([]);
    let cases = [
        (
            Runtime::builder().provide("Alpha-Server!!", none()),
            "MCP server names may only contain letters, digits, '-' or '_': Alpha-Server!!",
        ),
        (Runtime::builder().provide("", none()), "MCP server names must be non-empty strings."),
        (Runtime::builder().toolbox("", ""), "Toolbox names must be non-empty strings."),
        (
            Runtime::builder().provide("a", none()).provide("a", none()),
            "duplicate server 'a' in toolbox 'default': rename one of them",
        ),
        (Runtime::builder().toolbox("t", "").toolbox("t", ""), "duplicate toolbox 't': rename one of them"),
    ];
    for (builder, expected) in cases {
        assert_eq!(builder.start().await.unwrap_err().to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn eager_servers_start_in_the_background_with_limited_concurrency() {
    let settings = |rule: &str, n_at_once: usize| {
        serde_json::from_value::<RuntimeSettings>(json!({"start": rule, "mcpInitConcurrency": n_at_once}))
            .unwrap()
    };
    let lazy = || ServerSettings { start: Some(StartRule::Lazy), ..ServerSettings::default() };
    let begun = Instant::now();
    let (slept, n_slept) = SlowServer::new(&["x"], None);
    let (bad, _) = SlowServer::new(&[], Some("spawn x ENOENT"));
    let mut builder = Runtime::builder().settings(settings("eager", 2)).provide("bad", bad);
    for name in ["a", "b", "c", "d"] {
        builder = builder.provide(name, SlowServer::new(&["x"], None).0);
    }
    let runtime = builder.provide("lazy", slept).server_settings(lazy()).start().await.unwrap();
    let mut events = runtime.events().subscribe();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // A call does not wait in line with the others.
    let caller = runtime.caller(CallerOptions::default());
    let answer = use_tool(&caller, id("default", "d", "x")).await;
    assert_eq!((answer.is_empty(), begun.elapsed()), (false, Duration::from_secs(1)), "{answer}");
    let servers = loop {
        if let RuntimeEvent::Started { servers } = events.recv().await.unwrap() {
            break servers;
        }
    };
    assert_eq!(begun.elapsed(), Duration::from_secs(2), "two at a time, and one was there already");
    let failed: Vec<_> =
        servers.iter().filter(|start| start.error.is_some()).map(|start| start.server.as_str()).collect();
    assert_eq!((servers.len(), failed), (5, vec!["bad"]));
    assert_eq!(n_slept.load(Ordering::SeqCst), 0);
    assert_eq!(
        runtime.servers(&OwnerScope::All).iter().map(|status| status.n_tools).collect::<Vec<_>>(),
        [0, 1, 1, 1, 1, 0]
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_does_not_delay_its_toolbox() {
    let begun = Instant::now();
    let runtime = Runtime::builder()
        .provide("hangs", SlowServer::new(&["y"], None).0.taking(Duration::from_secs(50)))
        .provide("good", SlowServer::new(&["x"], None).0)
        .start()
        .await
        .unwrap();
    let caller = session(&runtime);
    let opened = caller.open("default").await.unwrap();
    assert_eq!((opened.servers_connected, begun.elapsed()), (1, Duration::from_secs(3)));
    assert_eq!(
        opened.servers_failed[0].error,
        "MCP server 'hangs' is still starting. Open the toolbox again in a moment"
    );
    // If there is nothing else to wait for, it is waited for.
    let alone = SlowServer::new(&["y"], None).0.taking(Duration::from_secs(50));
    let runtime = Runtime::builder().provide("slow", alone).start().await.unwrap();
    assert_eq!(session(&runtime).open("default").await.unwrap().servers_connected, 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_can_be_called_as_soon_as_its_server_offers_it() {
    let server = Arc::new(LocalProvider::new([name_tool("old")]));
    let runtime = Runtime::builder().provide("s", Arc::clone(&server)).start().await.unwrap();
    let caller = runtime.caller(CallerOptions::default());
    // The catalogue has not been rebuilt yet.
    server.replace(ServerOffering { tools: vec![Arc::new(name_tool("new"))], ..ServerOffering::default() });
    assert_eq!(use_tool(&caller, id("default", "s", "new")).await, "new");
    server.replace(ServerOffering { tools: vec![Arc::new(name_tool("newer"))], ..ServerOffering::default() });
    assert_eq!(line(&caller.start(Call::new("s__newer", json!({}))).await), "newer");
}
