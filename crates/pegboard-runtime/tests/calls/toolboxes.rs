//! Toolboxes: opening, what is open for whom, and what is said when it is not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use pegboard_core::call::{Call, Invoker};
use pegboard_core::id::{ServerName, ToolId, ToolName, ToolboxName};
use pegboard_core::provider::{Local, Offer};
use pegboard_core::settings::{RuntimeSettings, ServerSettings, StartRule};
use pegboard_runtime::event::Event;
use pegboard_runtime::{Caller, CallerOptions, Memory, Runtime};
use serde_json::json;
use tokio::time::{self, Instant};

use crate::board::{Slow, line, says};

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
    runtime.caller(CallerOptions { memory: Memory::Session, ..CallerOptions::default() })
}

#[tokio::test(start_paused = true)]
async fn opening_makes_all_servers_ready_and_lists_their_tools_in_order() {
    let (b, n_b) = Slow::new(&["zeta", "alpha"], None);
    let (a, n_a) = Slow::new(&["echo__x-1.y"], None);
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
    // Again, and for somebody else: nothing is started anew.
    let again = serde_json::to_value(caller.open("dev").await.unwrap()).unwrap();
    session(&runtime).open("dev").await.unwrap();
    assert_eq!(again, json);
    assert_eq!((n_a.load(Ordering::SeqCst), n_b.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(use_tool(&caller, id("dev", "a", "echo__x-1.y")).await, "echo__x-1.y");
}

#[tokio::test(start_paused = true)]
async fn many_open_at_once_and_one_does_the_work() {
    for fails_with in [None, Some("spawn x ENOENT")] {
        let (server, n_opened) = Slow::new(&["x"], fails_with);
        let runtime = Runtime::builder().toolbox("dev", "").provide("s", server).start().await.unwrap();
        let callers = [(); 3].map(|()| session(&runtime));
        let opened = join_all(callers.iter().map(|caller| caller.open("dev"))).await;
        assert!(opened.iter().all(|opened| opened.is_ok() == fails_with.is_none()));
        assert_eq!(n_opened.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_opens_and_leaves_does_not_spoil_it_for_others() {
    let (server, n_opened) = Slow::new(&["x"], None);
    let runtime = Runtime::builder().toolbox("dev", "").provide("s", server).start().await.unwrap();
    let (first, second) = (session(&runtime), session(&runtime));
    let opening = tokio::spawn(async move { first.open("dev").await.map(drop) });
    crate::board::settle().await;
    let waiting =
        tokio::spawn(async move { second.open("dev").await.map(|opened| opened.servers_connected) });
    crate::board::settle().await;
    opening.abort();
    assert_eq!(waiting.await.unwrap().unwrap(), 1);
    assert_eq!(n_opened.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_fails_is_named_and_the_others_work() {
    let (bad, _) = Slow::new(&[], Some("spawn x ENOENT"));
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("bad", bad)
        .provide("good", Local::new([says("hello")]))
        .start()
        .await
        .unwrap();
    let caller = session(&runtime);
    let opened = serde_json::to_value(caller.open("dev").await.unwrap()).unwrap();
    assert_eq!(opened["servers_connected"], 1);
    assert_eq!(opened["servers_failed"], json!([{"server": "bad", "error": "spawn x ENOENT"}]));
    assert_eq!(use_tool(&caller, id("dev", "good", "hello")).await, "hello");
    // The tools of the one that failed are not known; asking for one tries it once more.
    assert_eq!(use_tool(&caller, id("dev", "bad", "x")).await, "server_unavailable: spawn x ENOENT");
}

#[tokio::test(start_paused = true)]
async fn a_toolbox_of_which_no_server_works_is_not_open() {
    let (bad, _) = Slow::new(&[], Some("spawn x ENOENT"));
    let runtime = Runtime::builder().toolbox("bad", "").provide("x", bad).start().await.unwrap();
    let caller = session(&runtime);
    let error = caller.open("bad").await.unwrap_err();
    insta::assert_snapshot!(error, @"Error opening toolbox 'bad': Failed to connect to MCP server 'x': spawn x ENOENT");
    assert!(!caller.has_open(&ToolboxName::new("bad").unwrap()));
}

#[tokio::test]
async fn what_is_not_there_or_not_open_is_said_with_what_there_is() {
    let runtime = Runtime::builder()
        .toolbox("dev", "")
        .provide("files", Local::new([says("read_file"), says("write_file")]))
        .toolbox("prod", "")
        .provide("files", Local::new([says("read_file")]))
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
            "unknown_toolbox: Toolbox 'DEV' is not open: Toolbox 'DEV' not found. Available toolboxes: dev, prod",
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
async fn the_setting_and_the_kind_of_caller_decide_what_opens_by_itself() {
    use Memory::{Everything, Session, Stateless};
    let cases = [
        ("stateless", [(Session, false), (Stateless, true), (Everything, true)]),
        ("never", [(Session, false), (Stateless, false), (Everything, true)]),
        ("always", [(Session, true), (Stateless, true), (Everything, true)]),
    ];
    for (auto_open, callers) in cases {
        let settings: RuntimeSettings = serde_json::from_value(json!({"autoOpen": auto_open})).unwrap();
        let runtime = Runtime::builder()
            .settings(settings)
            .toolbox("dev", "")
            .provide("s", Local::new([says("x")]))
            .start()
            .await
            .unwrap();
        for (memory, is_open) in callers {
            let caller = runtime.caller(CallerOptions { memory, ..CallerOptions::default() });
            let by_id = use_tool(&caller, id("dev", "s", "x")).await == "x";
            let by_name = line(&caller.start(Call::new("s__x", json!({}))).await) == "x";
            assert_eq!((by_id, by_name), (is_open, is_open), "{auto_open} {memory:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lazy_server_is_made_ready_by_the_first_call_of_its_tool() {
    let (server, n_opened) = Slow::new(&["x"], None);
    let runtime = Runtime::builder().toolbox("dev", "").provide("s", server).start().await.unwrap();
    let caller = runtime.caller(CallerOptions { memory: Memory::Stateless, ..CallerOptions::default() });
    assert_eq!(n_opened.load(Ordering::SeqCst), 0);
    let calls = join_all((0..3).map(|_| use_tool(&caller, id("dev", "s", "x")))).await;
    assert_eq!(calls, ["x", "x", "x"]);
    assert_eq!(n_opened.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn toolboxes_that_are_not_for_a_caller_do_not_exist_for_it() {
    let runtime = Runtime::builder()
        .toolbox("open", "")
        .provide("s", Local::new([says("x")]))
        .toolbox("secret", "")
        .provide("hidden", Local::new([says("y")]))
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
async fn what_is_filtered_out_cannot_be_called_either() {
    let settings: ServerSettings = serde_json::from_value(json!({"toolsDenied": ["wipe*"]})).unwrap();
    let provider = Arc::new(Local::new([says("wipe_disk"), says("read")]));
    let runtime = Runtime::builder().provide_with("s", provider, settings).start().await.unwrap();
    let caller = runtime.caller(CallerOptions::default());
    let denied = use_tool(&caller, id("default", "s", "wipe_disk")).await;
    assert!(denied.starts_with("unknown_tool: Tool 'wipe_disk' not found in server 's'"), "{denied}");
    assert!(line(&caller.start(Call::new("s__wipe_disk", json!({}))).await).starts_with("unknown_tool"));
}

#[tokio::test(start_paused = true)]
async fn tools_that_come_and_go_are_there_and_gone() {
    let local = Arc::new(Local::new([says("old")]));
    let runtime = Runtime::builder()
        .provide_with("s", Arc::clone(&local) as _, ServerSettings::default())
        .start()
        .await
        .unwrap();
    let caller = runtime.caller(CallerOptions::default());
    let before = runtime.catalogue();
    local.replace(Offer { tools: vec![Arc::new(says("new"))], ..Offer::default() });
    time::sleep(Duration::from_millis(100)).await;
    assert_eq!(line(&caller.start(Call::new("s__new", json!({}))).await), "new");
    assert!(line(&caller.start(Call::new("s__old", json!({}))).await).starts_with("unknown_tool"));
    assert_eq!(before.tools().len(), 1, "what somebody holds stays as it is");
}

#[tokio::test]
async fn names_that_cannot_be_and_names_given_twice_are_refused_at_the_start() {
    let none = || Local::new([]);
    let cases = [
        (
            Runtime::builder().provide("Alpha-Server!!", none()),
            "MCP server names may only contain letters, digits, '-' or '_': Alpha-Server!!",
        ),
        (Runtime::builder().provide("", none()), "MCP server names must be non-empty strings."),
        (Runtime::builder().toolbox("", ""), "Toolbox names must be non-empty strings."),
        (
            Runtime::builder().provide("a", none()).provide("a", none()),
            "Toolbox 'default' has two servers called 'a'. Give one of them another name",
        ),
        (
            Runtime::builder().toolbox("t", "").toolbox("t", ""),
            "There are two toolboxes called 't'. Give one of them another name",
        ),
    ];
    for (builder, expected) in cases {
        assert_eq!(builder.start().await.unwrap_err().to_string(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn servers_that_start_with_the_runtime_start_a_few_at_a_time_and_nobody_waits() {
    let settings = |rule: &str, n_at_once: usize| {
        serde_json::from_value::<RuntimeSettings>(json!({"start": rule, "mcpInitConcurrency": n_at_once}))
            .unwrap()
    };
    let lazy = || ServerSettings { start: Some(StartRule::Lazy), ..ServerSettings::default() };
    let begun = Instant::now();
    let (slept, n_slept) = Slow::new(&["x"], None);
    let (bad, _) = Slow::new(&[], Some("spawn x ENOENT"));
    let mut builder = Runtime::builder().settings(settings("eager", 2)).provide("bad", bad);
    for name in ["a", "b", "c", "d"] {
        builder = builder.provide(name, Slow::new(&["x"], None).0);
    }
    let runtime = builder.provide_with("lazy", Arc::new(slept), lazy()).start().await.unwrap();
    let mut events = runtime.events().subscribe();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // A call does not stand in line with the others.
    let caller = runtime.caller(CallerOptions::default());
    let said = use_tool(&caller, id("default", "d", "x")).await;
    assert_eq!((said.is_empty(), begun.elapsed()), (false, Duration::from_secs(1)), "{said}");
    let servers = loop {
        if let Event::Started { servers } = events.recv().await.unwrap() {
            break servers;
        }
    };
    assert_eq!(begun.elapsed(), Duration::from_secs(2), "two at a time, and one was there already");
    let failed: Vec<_> =
        servers.iter().filter(|start| start.error.is_some()).map(|start| start.server.as_str()).collect();
    assert_eq!((servers.len(), failed), (5, vec!["bad"]));
    assert_eq!(n_slept.load(Ordering::SeqCst), 0);
    assert_eq!(runtime.servers().iter().map(|status| status.n_tools).collect::<Vec<_>>(), [0, 1, 1, 1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_takes_much_longer_than_others_does_not_hold_up_its_toolbox() {
    let begun = Instant::now();
    let runtime = Runtime::builder()
        .provide("hangs", Slow::new(&["y"], None).0.taking(Duration::from_secs(50)))
        .provide("good", Slow::new(&["x"], None).0)
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
    // With nothing else to wait for, it is waited for.
    let alone = Slow::new(&["y"], None).0.taking(Duration::from_secs(50));
    let runtime = Runtime::builder().provide("slow", alone).start().await.unwrap();
    assert_eq!(session(&runtime).open("default").await.unwrap().servers_connected, 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_can_be_called_as_soon_as_its_server_offers_it() {
    let server = Arc::new(Local::new([says("old")]));
    let runtime = Runtime::builder()
        .provide_with("s", Arc::clone(&server) as _, ServerSettings::default())
        .start()
        .await
        .unwrap();
    let caller = runtime.caller(CallerOptions::default());
    // Nobody has had the time to make the catalogue anew.
    server.replace(Offer { tools: vec![Arc::new(says("new"))], ..Offer::default() });
    assert_eq!(use_tool(&caller, id("default", "s", "new")).await, "new");
    server.replace(Offer { tools: vec![Arc::new(says("newer"))], ..Offer::default() });
    assert_eq!(line(&caller.start(Call::new("s__newer", json!({}))).await), "newer");
}
