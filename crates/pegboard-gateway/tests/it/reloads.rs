//! Clients stay connected while the configuration is reloaded.

use std::net::Ipv4Addr;
use std::sync::Arc;

use pegboard_core::provider::{LocalProvider, Provider};
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_gateway::{Gateway, ProfileViews, serve};
use pegboard_json::RawJson;
use pegboard_runtime::{Runtime, RuntimePlan};
use pegboard_wire::PendingRequest;
use pegboard_wire::client::{Era, McpClient, RequestOptions};
use pegboard_wire::http::client::{HttpOptions, connect as over_http};
use pegboard_wire::http::server::HttpServerOptions;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{self, Duration};

use crate::fixture::{
    ClientRecorder, LazyServer, call, connect, connect_over, echo_tool, gateway, mcp_server, text,
    tool_names, use_tool,
};

/// Timeout of every wait.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Two toolboxes with one server each.
struct TwoServers {
    a: Arc<LocalProvider>,
    b: Arc<LocalProvider>,
}

impl TwoServers {
    fn new() -> Self {
        Self {
            a: Arc::new(mcp_server([echo_tool("a", "x")])),
            b: Arc::new(mcp_server([echo_tool("b", "x")])),
        }
    }

    fn plan(&self) -> RuntimePlan {
        let provider = |server: &Arc<LocalProvider>| Arc::clone(server) as Arc<dyn Provider>;
        RuntimePlan::new()
            .toolbox("b", "B")
            .provide("b", provider(&self.b))
            .toolbox("a", "A")
            .provide("a", provider(&self.a))
    }
}

/// Replaces the configuration.
async fn reload(runtime: &Runtime, gateway: &Gateway, plan: RuntimePlan, settings: Value) {
    let settings: GatewaySettings = serde_json::from_value(settings).unwrap();
    let toolboxes = runtime.toolboxes().into_iter().map(|toolbox| toolbox.name).collect();
    let views = ProfileViews::from_settings(&settings, &toolboxes).unwrap();
    let prepared = runtime.prepare(plan).await.unwrap();
    gateway.set_views(views);
    prepared.apply();
    gateway.warm_up_new_servers();
}

async fn next_notification(notifications: &ClientRecorder) -> String {
    time::timeout(TIMEOUT, notifications.next()).await.unwrap()
}

/// Subscribes a stateless client to tool list changes for as long as the returned request is alive.
async fn listen(client: &McpClient, notifications: &ClientRecorder) -> PendingRequest {
    let filter = RawJson::from(json!({"notifications": {"toolsListChanged": true}}));
    let listening =
        client.request("subscriptions/listen", Some(filter), RequestOptions::default()).await.unwrap();
    assert_eq!(next_notification(notifications).await, "notifications/subscriptions/acknowledged");
    listening
}

#[tokio::test]
async fn clients_of_both_eras_stay_connected_and_are_notified() {
    let servers = TwoServers::new();
    let runtime = Runtime::builder().plan(servers.plan()).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let (session, notifications) = connect(&gateway, Some("flat"), Era::Session).await;
    let (stateless, other_notifications) = connect(&gateway, Some("flat"), Era::Stateless).await;
    assert_eq!(tool_names(&session).await, ["b__x", "a__x"]);
    let _listening = listen(&stateless, &other_notifications).await;
    notifications.take();
    // An idle server is started, because its tools are listed directly.
    let plan = servers.plan().provide("late", LazyServer::new([echo_tool("late", "y")]));
    reload(&runtime, &gateway, plan, json!({})).await;
    assert_eq!(next_notification(&notifications).await, "notifications/tools/list_changed");
    assert_eq!(next_notification(&other_notifications).await, "notifications/tools/list_changed");
    for client in [&session, &stateless] {
        assert_eq!(tool_names(client).await, ["b__x", "a__x", "late__y"]);
        assert_eq!(text(&call(client, "late__y", json!({})).await), "late/y {}");
        assert_eq!(text(&call(client, "a__x", json!({})).await), "a/x {}");
    }
    notifications.take();
    reload(
        &runtime,
        &gateway,
        servers.plan().provide("late", mcp_server([echo_tool("late", "y")])),
        json!({}),
    )
    .await;
    assert_eq!(tool_names(&session).await, ["b__x", "a__x", "late__y"]);
    assert_eq!(notifications.take(), [""; 0], "the list has not changed");
}

#[tokio::test]
async fn a_session_survives_a_change_of_its_profile() {
    let servers = TwoServers::new();
    let runtime = Runtime::builder().plan(servers.plan()).start().await.unwrap();
    let with_profile = |profile: Value| json!({"profiles": {"mine": profile}});
    let gateway = gateway(&runtime, with_profile(json!({"toolboxes": ["a"]})));
    let (client, notifications) = connect(&gateway, Some("mine"), Era::Session).await;
    assert_eq!(tool_names(&client).await[0], "open_toolbox");
    call(&client, "open_toolbox", json!({"toolbox": "a"})).await;
    assert_eq!(text(&use_tool(&client, ["a", "a", "x"], json!({})).await), "a/x {}");
    assert!(text(&use_tool(&client, ["b", "b", "x"], json!({})).await).starts_with("isError"));
    notifications.take();

    reload(&runtime, &gateway, servers.plan(), with_profile(json!({"expose": "flat", "toolboxes": ["b"]})))
        .await;
    assert_eq!(next_notification(&notifications).await, "notifications/tools/list_changed");
    assert_eq!(tool_names(&client).await, ["b__x"]);
    assert_eq!(text(&call(&client, "b__x", json!({})).await), "b/x {}");
    assert!(text(&call(&client, "a__x", json!({})).await).starts_with("-32602"));

    reload(&runtime, &gateway, servers.plan(), with_profile(json!({}))).await;
    assert_eq!(next_notification(&notifications).await, "notifications/tools/list_changed");
    assert_eq!(tool_names(&client).await[0], "open_toolbox");
    let used = text(&use_tool(&client, ["a", "a", "x"], json!({})).await);
    assert_eq!(used, "a/x {}", "open toolboxes stay open");
}

#[tokio::test]
async fn profile_paths_appear_and_disappear_on_reload() {
    let servers = TwoServers::new();
    let runtime = Runtime::builder().plan(servers.plan()).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/mcp/mine", listener.local_addr().unwrap());
    let serving = gateway.clone();
    tokio::spawn(async move { serve::http(&serving, listener, &HttpServerOptions::default()).await });
    let status = async || reqwest::get(&url).await.unwrap().status();
    assert_eq!(status().await, 404);
    let with_profile = json!({"profiles": {"mine": {"expose": "flat", "toolboxes": ["a"]}}});
    reload(&runtime, &gateway, servers.plan(), with_profile.clone()).await;
    let client = async || {
        let transport = over_http(HttpOptions::new(url.parse().unwrap())).unwrap();
        connect_over(transport, Era::Session).await.0
    };
    let existing = client().await;
    assert_eq!(tool_names(&existing).await, ["a__x"]);
    reload(&runtime, &gateway, servers.plan(), with_profile.clone()).await;
    assert_eq!(tool_names(&existing).await, ["a__x"], "it is the same session");
    reload(&runtime, &gateway, servers.plan(), json!({})).await;
    assert_eq!(status().await, 404);
    reload(&runtime, &gateway, servers.plan(), with_profile).await;
    assert_eq!(tool_names(&client().await).await, ["a__x"]);
    let nowhere = reqwest::get(format!("{url}/nowhere")).await.unwrap();
    insta::assert_snapshot!(nowhere.text().await.unwrap(), @"unknown profile 'mine/nowhere'; available: meta, flat, agent, hybrid, auto, mine");
}
