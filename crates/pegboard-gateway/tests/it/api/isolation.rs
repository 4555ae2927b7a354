//! What belongs to one principal does not exist for another: every object by every way to reach it.
//!
//! Ann leaves objects behind, each with a mark of its own. Then every probe is made for every principal, with every id
//! of Ann's. A mark that Ann finds proves that a probe works; a mark that Bob finds is a leak. The operator sees all.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use futures_util::future::{BoxFuture, FutureExt, ready};
use pegboard_core::call::ValidCall;
use pegboard_core::client::{InputRequest, InputRequests, Notice};
use pegboard_core::entry::ToolEntry;
use pegboard_core::error::CallError;
use pegboard_core::handler::Handler;
use pegboard_core::output::Output;
use pegboard_core::owner::Owner;
use pegboard_core::provider::{
    Provider, ProviderUpdate, ServerFeatures, ServerOffering, ServerState, ToolKind,
};
use pegboard_core::settings::ServerSettings;
use pegboard_core::store::{CallLog, LogEntry, OwnedTrace, TraceRecord};
use pegboard_core::task::ServerTask;
use pegboard_gateway::Gateway;
use pegboard_gateway::api::{Api, ApiScope, GatewayInfo};
use pegboard_json::RawJson;
use pegboard_runtime::Runtime;
use pegboard_stores::limits::CacheLimits;
use pegboard_stores::memory::MemoryCache;
use pegboard_stores::sqlite::Database;
use pegboard_wire::client::{Era, McpClient, RequestOptions};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{self, Duration};

use super::api_server::ApiServer;
use crate::fixture::{
    ClientRecorder, ERAS, connect_as, echo_tool, gateway, scripted_tool, text_output, wait_until,
};
use crate::recording_server::RecordingServer;

const PROFILES: [&str; 5] = ["flat", "meta", "agent", "hybrid", "auto"];
/// A session of Ann's that has expired: only its records are left.
const EXPIRED: &str = "s-20200102030405";
/// A session of Ann's that is in use.
const LIVE: &str = "s-20200102030406";
const RESOURCE: &str = "file:///shared";
/// The URI that clients see, since the resources of another server are unknown.
const LISTED: &str = "pegboard://s/file:///shared";

/// Marks of Ann's objects. Each is found by a probe of hers.
const MARKS: [&str; 8] = [
    "ann-output",
    "ann-suspended",
    "ann-task",
    "ann-workspace",
    "ann-expired-record",
    "ann-record",
    "ann-payload",
    "ann-running",
];
/// Marks that no principal finds once there are two: their owner is unknown.
const UNOWNED: [&str; 2] = ["unowned-log", "unowned-stderr"];

/// A server that has failed, and says why on stderr.
struct FailedServer {
    state: watch::Sender<ServerState>,
    offering: watch::Sender<Arc<ServerOffering>>,
}

impl Provider for FailedServer {
    fn kind(&self) -> ToolKind {
        ToolKind::Mcp
    }

    fn offering(&self) -> watch::Receiver<Arc<ServerOffering>> {
        self.offering.subscribe()
    }

    fn state(&self) -> watch::Receiver<ServerState> {
        self.state.subscribe()
    }

    fn open(&self) -> BoxFuture<'_, Result<(), CallError>> {
        ready(Err(CallError::ServerUnavailable { reason: "it does not start".to_owned() })).boxed()
    }

    fn shut_down(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}

/// A failure with something that the server wrote.
fn failure() -> ServerState {
    ServerState::Failed {
        why: "it broke".to_owned(),
        fix: "mend it".to_owned(),
        stderr: Some("unowned-stderr".to_owned()),
    }
}

/// Asks its caller, and answers with the mark in its arguments.
struct Asks;

impl Handler for Asks {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            let params = RawJson::from(json!({"mode": "form", "message": "Go on?", "requestedSchema": {}}));
            let question = InputRequest { method: "elicitation/create".to_owned(), params };
            let asked = InputRequests::from([("q".to_owned(), question)]);
            call.context().client().ask(asked).await.ok();
            Ok(text_output(call.raw_arguments().as_str()))
        }
        .boxed()
    }
}

/// Creates a task with the mark in its arguments as its status, and never ends.
struct NeverEnds;

impl Handler for NeverEnds {
    fn call<'a>(&'a self, call: &'a ValidCall) -> BoxFuture<'a, Result<Output, CallError>> {
        async move {
            call.context().client().notify(Notice::Task(ServerTask {
                time_to_live: Some(Duration::from_mins(10)),
                poll_interval: Some(Duration::from_millis(200)),
                message: Some(call.raw_arguments().as_str().to_owned()),
                refresher: None,
            }));
            std::future::pending().await
        }
        .boxed()
    }
}

struct Stage {
    gateway: Gateway,
    api: Api,
    server: RecordingServer,
    failed: watch::Sender<ServerState>,
    database: Arc<Database>,
}

async fn stage() -> Stage {
    let n_calls = Arc::new(AtomicUsize::new(0));
    let task = json!({"name": "endless", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}});
    let schema = || json!({"type": "object"});
    let tools = [
        echo_tool("s", "echo"),
        scripted_tool("stamp", move |_| {
            Ok(text_output(&format!("stamp-{}", n_calls.fetch_add(1, Ordering::SeqCst))))
        }),
        scripted_tool("big", |call| Ok(text_output(&call.arguments()["text"].as_str().unwrap().repeat(200)))),
        ToolEntry::from_handler("ask", "", Arc::new(Asks)).with_input_schema(schema()),
        ToolEntry::from_handler("endless", "", Arc::new(NeverEnds))
            .with_input_schema(schema())
            .with_definition(RawJson::from(task)),
    ];
    let offering = ServerOffering {
        tools: tools.into_iter().map(Arc::new).collect(),
        resources: vec![json!({"uri": RESOURCE, "name": "shared"}).into()],
        features: ServerFeatures { logging: true, subscriptions: true, ..ServerFeatures::default() },
        ..ServerOffering::default()
    };
    let server = RecordingServer::new(offering, |_| Ok(RawJson::empty_object()));
    let failed = watch::Sender::new(ServerState::Idle);
    let database = Arc::new(Database::in_memory());
    let cached: ServerSettings = serde_json::from_value(json!({"toolsCache": {"stamp": "1h"}})).unwrap();
    let settings = json!({"tracePayloads": true, "toolResponseMaxBytes": 1000, "toolTimeout": "5m"});
    let runtime = Runtime::builder()
        .settings(serde_json::from_value(settings).unwrap())
        .toolbox("t", "")
        .provide("s", server.clone())
        .server_settings(cached)
        .provide("down", FailedServer { state: failed.clone(), offering: watch::Sender::default() })
        .outputs(Arc::clone(&database) as _)
        .sessions(Arc::clone(&database) as _)
        .call_log(Arc::clone(&database) as _)
        .cache(Arc::new(MemoryCache::new(CacheLimits::default())))
        .start()
        .await
        .unwrap();
    let api = Api::new(GatewayInfo::default())
        .runtime(&runtime)
        .outputs(Arc::clone(&database) as _)
        .sessions(Arc::clone(&database) as _)
        .call_log(Arc::clone(&database) as _);
    let gateway = gateway(&runtime, json!({"pinned": ["*"]}));
    Stage { gateway, api, server, failed, database }
}

/// An MCP client of a principal.
struct Connected {
    client: McpClient,
    notifications: Arc<ClientRecorder>,
    profile: &'static str,
    is_stateless: bool,
}

impl Stage {
    /// Connects a principal to every profile in both eras.
    async fn connect_all(&self, principal: &str) -> Vec<Connected> {
        let gateway = self.gateway.for_principal(principal);
        let mut clients = Vec::new();
        for era in ERAS {
            for profile in PROFILES {
                let capabilities = match era {
                    Era::Session => json!({}),
                    Era::Stateless => {
                        json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
                    }
                };
                let (client, notifications) =
                    connect_as(&gateway, Some(profile), era, "test", capabilities).await;
                let connected =
                    Connected { client, notifications, profile, is_stateless: era == Era::Stateless };
                // Where toolboxes are opened by clients, this opens it.
                connected
                    .ask("tools/call", json!({"name": "open_toolbox", "arguments": {"toolbox": "t"}}))
                    .await;
                clients.push(connected);
            }
        }
        clients
    }

    async fn api_of(&self, scope: ApiScope) -> ApiServer {
        ApiServer::start(&self.api, scope).await
    }
}

impl Connected {
    /// Sends a request; returns whatever comes back, as text.
    async fn ask(&self, method: &str, params: Value) -> String {
        let sent = self.client.request(method, Some(RawJson::from(params)), RequestOptions::default()).await;
        match sent.unwrap().response().await {
            Ok(result) => result.as_str().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    async fn next_notification(&self) -> String {
        time::timeout(Duration::from_secs(10), self.notifications.next()).await.unwrap()
    }

    /// Calls a tool of the server in the way of the profile.
    async fn call(&self, tool: &str, arguments: Value) -> String {
        self.ask("tools/call", self.call_params(tool, arguments)).await
    }

    fn call_params(&self, tool: &str, mut arguments: Value) -> Value {
        match self.profile {
            "meta" => {
                let tool = json!({"toolbox": "t", "server": "s", "name": tool});
                json!({"name": "use_tool", "arguments": {"tool": tool, "arguments": arguments}})
            }
            "agent" => {
                arguments["mode"] = tool.into();
                json!({"name": "s", "arguments": arguments})
            }
            _ => json!({"name": format!("s__{tool}"), "arguments": arguments}),
        }
    }
}

/// Ids of Ann's objects.
#[derive(Debug)]
struct AnnsIds {
    output: String,
    request_state: Value,
    tasks: Vec<String>,
    trace: String,
    running: String,
    caller: String,
}

/// Has Ann leave objects behind.
async fn leave_objects(stage: &Stage, ann: &[Connected], api: &ApiServer) -> AnnsIds {
    let of = |profile: &str, is_stateless: bool| {
        ann.iter().filter(|client| client.profile == profile).nth(usize::from(is_stateless)).unwrap()
    };
    let record = TraceRecord {
        workspace_id: "default".to_owned(),
        session_id: EXPIRED.to_owned(),
        kind: "tool_call".to_owned(),
        content: "ann-expired-record".to_owned(),
        timestamp: 1,
        metadata: json!({}),
    };
    let trace = OwnedTrace { owner: Owner::new("ann"), record };
    let batch = Box::new([LogEntry::Trace(trace)].into_iter());
    stage.database.append(batch, SystemTime::now()).await.unwrap();
    let stored = of("flat", true).call("big", json!({"text": "ann-output "})).await;
    let output = stored.split("pegboard://outputs/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let suspended = of("flat", true).call("ask", json!({"mark": "ann-suspended"})).await;
    let request_state = serde_json::from_str::<Value>(&suspended).unwrap()["requestState"].clone();
    let mut tasks = Vec::new();
    for is_stateless in [true, false] {
        let client = of("flat", is_stateless);
        let mut params = client.call_params("endless", json!({"mark": "ann-task"}));
        params["task"] = json!({"ttl": 600_000});
        let created: Value = serde_json::from_str(&client.ask("tools/call", params).await).unwrap();
        let task = if created["task"].is_object() { &created["task"] } else { &created };
        tasks.push(task["taskId"].as_str().unwrap().to_owned());
    }
    let context = json!({"sessionId": LIVE, "workspaceId": "ann-workspace", "primaryGoal": "ann-record"});
    of("agent", false).call("echo", json!({"note": "ann-payload", "context": context})).await;
    let (status, called) = api.post("/calls", json!({"tool": "s__echo", "session": "x"})).await;
    assert_eq!(status, 200);
    // A call that is in flight.
    let mut events = api
        .stream(
            "/calls",
            json!({"tool": "s__ask", "arguments": {"mark": "ann-running"}, "session": "ann-running"}),
        )
        .await;
    let started = events.expect("started").await;
    let question = events.expect("question").await;
    assert!(question.is_object());
    std::mem::forget(events);
    let (_, sessions) = api.get("/sessions").await;
    let sessions = sessions["sessions"].as_array().unwrap();
    let calls = api.get("/calls").await.1;
    let mut calls = calls["calls"].as_array().unwrap().iter();
    let running = calls.find(|call| call["callId"] == started["callId"]).unwrap();
    assert!(sessions.iter().any(|session| session["id"] == running["caller"]));
    AnnsIds {
        output,
        request_state,
        tasks,
        trace: called["traceId"].as_str().unwrap().to_owned(),
        running: started["callId"].as_str().unwrap().to_owned(),
        caller: running["caller"].as_str().unwrap().to_owned(),
    }
}

/// Every way to reach an object through MCP; returns everything that came back.
async fn probe_client(client: &Connected, ids: &AnnsIds) -> String {
    let mut seen = Vec::new();
    for arguments in [
        json!({"handle": ids.output, "mode": "stats"}),
        json!({"handle": ids.output, "mode": "lines", "from": 1}),
    ] {
        seen.push(client.ask("tools/call", json!({"name": "tool_output", "arguments": arguments})).await);
        seen.push(client.call("echo", json!({"x": {"$output": ids.output}})).await);
    }
    for uri in [format!("pegboard://outputs/{}", ids.output), LISTED.to_owned()] {
        seen.push(client.ask("resources/read", json!({"uri": uri})).await);
    }
    for method in ["tasks/get", "tasks/list", "tasks/update"] {
        for id in &ids.tasks {
            seen.push(client.ask(method, json!({"taskId": id, "inputResponses": {}})).await);
        }
        seen.push(client.ask(method, json!({})).await);
    }
    for session in [EXPIRED, LIVE] {
        let context = json!({"context": {"sessionId": session}});
        seen.push(client.call("echo", context.clone()).await);
        seen.push(client.ask("tools/call", json!({"name": "s_echo", "arguments": context})).await);
    }
    for method in ["tools/list", "resources/list", "prompts/list", "resources/templates/list"] {
        seen.push(client.ask(method, json!({})).await);
    }
    for (name, arguments) in [
        ("get_tools", json!({})),
        ("get_tools", json!({"tools": ["down"]})),
        ("open_toolbox", json!({"toolbox": "t"})),
        (
            "batch",
            json!({"calls": [{"tool": "tool_output", "arguments": {"handle": ids.output, "mode": "stats"}}]}),
        ),
        ("down__tool", json!({})),
    ] {
        seen.push(client.ask("tools/call", json!({"name": name, "arguments": arguments})).await);
    }
    seen.join("\n")
}

/// Tries to resume the suspended call, which only its owner can do, and only once.
async fn resume(client: &Connected, ids: &AnnsIds) -> String {
    let mut params = client.call_params("ask", json!({"mark": "ann-suspended"}));
    params["requestState"] = ids.request_state.clone();
    params["inputResponses"] = json!({"q": {"action": "accept", "content": {}}});
    client.ask("tools/call", params).await
}

/// Every `GET` of the API with every id; returns everything that came back, and the paths with an id that exist.
async fn probe_api(api: &ApiServer, ids: &AnnsIds) -> (String, BTreeSet<String>) {
    let paths = api.get("/").await.1["paths"].clone();
    let paths = paths.as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned());
    let (mut seen, mut found) = (Vec::new(), BTreeSet::new());
    for path in paths.filter_map(|path| path.strip_prefix("GET /api").map(str::to_owned)) {
        if path == "/events" {
            continue;
        }
        let with_ids = [("{trace}", &ids.trace), ("{handle}", &ids.output), ("{session}", &ids.caller)];
        let (toolbox, server) = ("t".to_owned(), "s".to_owned());
        let plain = [("{toolbox}", &toolbox), ("{server}", &server)];
        let mut variants: Vec<String> = vec![path.clone()];
        if path.contains("{session}") {
            variants.extend([EXPIRED, LIVE].map(|id| path.replace("{session}", id)));
        }
        if path == "/tool" {
            variants = vec!["/tool?name=s__echo".to_owned()];
        }
        if path == "/traces" {
            variants.push(format!("/traces?session={}", ids.caller));
        }
        for variant in variants {
            let filled =
                with_ids.iter().chain(&plain).fold(variant, |path, (name, id)| path.replace(name, id));
            let (status, body) = api.get(&filled).await;
            if with_ids.iter().any(|(name, _)| path.contains(name)) && status == 200 {
                found.insert(filled);
            }
            seen.push(body.to_string());
        }
    }
    (seen.join("\n"), found)
}

fn marks_in(text: &str) -> BTreeSet<&'static str> {
    MARKS.iter().chain(&UNOWNED).copied().filter(|mark| text.contains(mark)).collect()
}

/// Checks that nothing of Ann's exists for Bob.
async fn check_stranger(bob: &[Connected], api: &ApiServer, ids: &AnnsIds) {
    for client in bob {
        let seen = probe_client(client, ids).await;
        assert_eq!(marks_in(&seen), BTreeSet::new(), "{}: {seen}", client.profile);
        if client.is_stateless {
            let refused = resume(client, ids).await;
            assert!(refused.starts_with("Invalid params: "), "{}: {refused}", client.profile);
        }
        for method in ["tasks/cancel", "tasks/result"] {
            for id in &ids.tasks {
                let refused = client.ask(method, json!({"taskId": id})).await;
                assert!(!refused.contains("working") && !refused.contains("cancelled"), "{refused}");
            }
        }
    }
    let (seen, found) = probe_api(api, ids).await;
    assert_eq!(marks_in(&seen), BTreeSet::new(), "{seen}");
    // He has sessions of his own under the ids that he tried.
    assert_eq!(found, BTreeSet::from([EXPIRED, LIVE].map(|id| format!("/sessions/{id}"))));
    for path in [format!("/outputs/{}", ids.output), format!("/calls/{}", ids.running)] {
        assert_eq!(api.delete(&path).await.0, 404, "{path}");
    }
    for id in [EXPIRED, LIVE] {
        assert_eq!(api.get(&format!("/sessions/ann:{id}")).await.0, 404);
    }
    let answers = json!({"id": "1", "answers": {"q": {"action": "accept", "content": {}}}});
    assert_eq!(api.post(&format!("/calls/{}/answers", ids.running), answers).await.0, 404);
}

/// Checks that everything is there for Ann; returns the paths of the API that lead to it.
async fn check_owner(ann: &[Connected], api: &ApiServer, ids: &AnnsIds) -> BTreeSet<String> {
    let mut seen = String::new();
    for client in ann {
        seen += &probe_client(client, ids).await;
    }
    let (by_api, found) = probe_api(api, ids).await;
    seen += &by_api;
    seen += &resume(ann.iter().filter(|client| client.profile == "flat").nth(1).unwrap(), ids).await;
    assert_eq!(marks_in(&seen), MARKS.into_iter().collect());
    assert_eq!(found.len(), 5, "{found:?}");
    found
}

/// Checks that the operator sees all of it, and what no principal may see.
async fn check_operator(api: &ApiServer, ids: &AnnsIds, found_by_ann: &BTreeSet<String>) {
    let (mut seen, found) = probe_api(api, ids).await;
    assert!(found.is_subset(found_by_ann));
    // Ann and Bob have sessions with these ids.
    for id in [EXPIRED, LIVE] {
        let (status, problem) = api.get(&format!("/sessions/{id}")).await;
        assert_eq!((status, &problem["error"]["code"]), (404, &json!("not_found")));
        seen += &api.get(&format!("/sessions/ann:{id}")).await.1.to_string();
        assert_eq!(api.get(&format!("/sessions/bob:{id}")).await.0, 200);
    }
    let expected =
        ["ann-output", "ann-record", "ann-payload", "ann-workspace", "ann-running", "unowned-stderr"];
    assert!(expected.iter().all(|mark| seen.contains(mark)), "{:?}", marks_in(&seen));
}

#[tokio::test]
async fn what_belongs_to_one_principal_does_not_exist_for_another() {
    let stage = stage().await;
    let (ann, bob) = (stage.connect_all("ann").await, stage.connect_all("bob").await);
    let api_of = async |name: &str| stage.api_of(ApiScope::Principal(name.to_owned())).await;
    let (of_ann, of_bob) = (api_of("ann").await, api_of("bob").await);
    let mut bobs_events = of_bob.listen("/events").await;
    let ids = leave_objects(&stage, &ann, &of_ann).await;
    stage.failed.send_replace(failure());

    // Bob first: what he does must not change what Ann has.
    check_stranger(&bob, &of_bob, &ids).await;
    let found = check_owner(&ann, &of_ann, &ids).await;
    check_operator(&stage.api_of(ApiScope::All).await, &ids, &found).await;

    // Bob's events have told him nothing either. They end with a call of his own.
    assert_eq!(of_bob.post("/calls", json!({"tool": "s__stamp", "session": "last"})).await.0, 200);
    let mut events = String::new();
    loop {
        let (name, data) = bobs_events.next().await.unwrap();
        events += &data.to_string();
        if name == "tool_finished" && data["call"]["tool"] == "s__stamp" {
            break;
        }
    }
    assert_eq!(marks_in(&events), BTreeSet::new(), "{events}");
    assert!(events.contains("it broke"), "the state of a server is for everyone: {events}");
    assert!(!events.contains(&ids.caller) && !events.contains(&ids.output), "{events}");
}

/// Sends a log message of a server outside of any call, and then a change of a resource that every client is
/// subscribed to. Returns the log messages that came before it, by client.
async fn log_messages(stage: &Stage, clients: &[&Connected], levels: &[&str]) -> Vec<Vec<String>> {
    for client in clients {
        client.ask("resources/subscribe", json!({"uri": LISTED})).await;
        client.notifications.take();
    }
    for level in levels {
        let line = json!({"level": level, "data": format!("unowned-log {level}")});
        stage.server.updates.send(ProviderUpdate::Log(line.into())).unwrap();
    }
    stage.server.updates.send(ProviderUpdate::Resource(json!({"uri": RESOURCE}).into())).unwrap();
    let mut received = Vec::new();
    for client in clients {
        let mut lines = Vec::new();
        loop {
            let line = client.next_notification().await;
            if line == "notifications/resources/updated" {
                break;
            }
            lines.extend(
                levels
                    .iter()
                    .filter(|level| line.contains(&format!("unowned-log {level}")))
                    .map(|level| (*level).to_owned()),
            );
        }
        received.push(lines);
    }
    received
}

fn session_clients(clients: &[Connected]) -> Vec<&Connected> {
    clients.iter().take(PROFILES.len()).collect()
}

#[tokio::test]
async fn a_log_message_outside_of_calls_reaches_a_principal_only_while_it_is_alone() {
    let stage = stage().await;
    let ann = stage.connect_all("ann").await;
    let alone = log_messages(&stage, &session_clients(&ann), &["warning"]).await;
    assert_eq!(alone, vec![vec!["warning".to_owned()]; PROFILES.len()]);
    let bob = stage.connect_all("bob").await;
    for clients in [&ann, &bob] {
        let shared = log_messages(&stage, &session_clients(clients), &["warning"]).await;
        assert_eq!(shared, vec![Vec::<String>::new(); PROFILES.len()]);
    }
}

#[tokio::test]
async fn the_output_of_a_failed_server_reaches_a_principal_only_while_it_is_alone() {
    let stage = stage().await;
    stage.failed.send_replace(failure());
    let of_ann = stage.api_of(ApiScope::Principal("ann".to_owned())).await;
    let of_operator = stage.api_of(ApiScope::All).await;
    let ann = stage.connect_all("ann").await;
    let agent = &ann[PROFILES.iter().position(|profile| *profile == "agent").unwrap()];
    let about = json!({"name": "get_tools", "arguments": {"tools": ["down"]}});
    for (is_alone, name) in [(true, "ann"), (false, "bob")] {
        drop(stage.gateway.for_principal(name));
        let servers = of_ann.get("/servers").await.1.to_string();
        assert!(servers.contains("it broke"));
        assert_eq!(servers.contains("unowned-stderr"), is_alone, "{servers}");
        let opened = of_ann.post("/servers/t/down/open", json!({})).await.1.to_string();
        assert_eq!(opened.contains("unowned-stderr"), is_alone, "{opened}");
        let found = agent.ask("tools/call", about.clone()).await;
        assert!(found.contains("it broke"), "{found}");
        assert_eq!(found.contains("unowned-stderr"), is_alone, "{found}");
        assert!(of_operator.get("/servers").await.1.to_string().contains("Stderr: unowned-stderr"));
    }
}

#[tokio::test]
async fn a_log_level_is_that_of_its_session() {
    let stage = stage().await;
    let ann = stage.connect_all("ann").await;
    let [one, other, silent] = [&ann[0], &ann[1], &ann[2]];
    let last_level = || {
        let requests = stage.server.requests.lock().unwrap();
        requests.iter().rev().find(|request| request.starts_with("logging/setLevel")).cloned()
    };
    let server_has = async |level: &str| {
        let expected = Some(format!(r#"logging/setLevel {{"level":"{level}"}}"#));
        wait_until(|| last_level() == expected).await;
    };
    let levels = ["debug", "info", "error"];
    // Asking for less takes nothing away from those who did not.
    one.ask("logging/setLevel", json!({"level": "error"})).await;
    server_has("info").await;
    let received = log_messages(&stage, &[one, other, silent], &levels).await;
    assert_eq!(received, [vec!["error"], vec!["info", "error"], vec!["info", "error"]]);
    // The server gets the most verbose level that any session, of any principal and profile, asks for.
    other.ask("logging/setLevel", json!({"level": "debug"})).await;
    server_has("debug").await;
    let received = log_messages(&stage, &[one, other, silent], &levels).await;
    assert_eq!(received, [vec!["error"], vec!["debug", "info", "error"], vec!["info", "error"]]);
    let bob = stage.connect_all("bob").await;
    bob[0].ask("logging/setLevel", json!({"level": "emergency"})).await;
    assert_eq!(last_level().unwrap(), r#"logging/setLevel {"level":"debug"}"#);
    // It ends with its session.
    drop(bob);
    let mut ann = ann.into_iter();
    let _one = ann.next();
    drop(ann.next());
    server_has("info").await;
}

#[tokio::test]
async fn cached_answers_are_those_of_a_principal_on_every_path() {
    let stage = stage().await;
    let mut of_all = Vec::new();
    for principal in ["ann", "bob"] {
        let mut stamps = BTreeSet::new();
        for client in stage.connect_all(principal).await {
            let answer = client.call("stamp", json!({})).await;
            let stamp = answer.split("stamp-").nth(1).unwrap_or_else(|| panic!("{answer}"));
            stamps.insert(stamp.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().to_owned());
        }
        let api = stage.api_of(ApiScope::Principal(principal.to_owned())).await;
        let (_, answer) = api.post("/calls", json!({"tool": "s__stamp"})).await;
        stamps.insert(answer["text"].as_str().unwrap().strip_prefix("stamp-").unwrap().to_owned());
        assert_eq!(stamps.len(), 1, "one principal shares its answers: {stamps:?}");
        of_all.extend(stamps);
    }
    assert_eq!(of_all, ["0", "1"], "two principals do not");
}

#[tokio::test]
async fn a_principal_cannot_end_the_subscription_of_another() {
    let stage = stage().await;
    let (ann, bob) = (stage.connect_all("ann").await, stage.connect_all("bob").await);
    let n_unsubscribed = || {
        let requests = stage.server.requests.lock().unwrap();
        requests.iter().filter(|request| request.starts_with("resources/unsubscribe")).count()
    };
    let uri = json!({"uri": LISTED});
    ann[0].ask("resources/subscribe", uri.clone()).await;
    for client in session_clients(&bob) {
        // Without a subscription, and with one.
        client.ask("resources/unsubscribe", uri.clone()).await;
        client.ask("resources/subscribe", uri.clone()).await;
        client.ask("resources/unsubscribe", uri.clone()).await;
    }
    bob[0].ask("resources/subscribe", uri.clone()).await;
    drop(bob);
    // Another session of the same principal does not end it either.
    ann[1].ask("resources/unsubscribe", uri.clone()).await;
    ann[0].ask("tools/list", json!({})).await;
    assert_eq!(n_unsubscribed(), 0);
    stage.server.updates.send(ProviderUpdate::Resource(json!({"uri": RESOURCE}).into())).unwrap();
    loop {
        if ann[0].next_notification().await == "notifications/resources/updated" {
            break;
        }
    }
    ann[0].ask("resources/unsubscribe", uri).await;
    wait_until(|| n_unsubscribed() == 1).await;
}
