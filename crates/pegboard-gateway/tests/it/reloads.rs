//! Clients that stay while another configuration takes over.

use std::net::Ipv4Addr;
use std::sync::Arc;

use pegboard_core::provider::{Local, Provider};
use pegboard_core::settings::ServerSettings;
use pegboard_core::settings::gateway::GatewaySettings;
use pegboard_gateway::{Gateway, Views, serve};
use pegboard_json::RawJson;
use pegboard_runtime::{Plan, Runtime};
use pegboard_wire::Exchange;
use pegboard_wire::client::{Client, Era, RequestOptions};
use pegboard_wire::http::client::{HttpOptions, connect as over_http};
use pegboard_wire::http::server::HttpServerOptions;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{self, Duration};

use crate::stage::{Ears, Lazy, call, connect, connect_over, gateway, listed, mcp, tells, text, use_tool};

/// Who waits for so long has failed.
const LONG: Duration = Duration::from_secs(10);

/// Two toolboxes with a server each, and what else there is.
struct Scene {
    a: Arc<Local>,
    b: Arc<Local>,
}

impl Scene {
    fn new() -> Self {
        Self { a: Arc::new(mcp([tells("a", "x")])), b: Arc::new(mcp([tells("b", "x")])) }
    }

    fn plan(&self) -> Plan {
        let provided = |server: &Arc<Local>| Arc::clone(server) as Arc<dyn Provider>;
        Plan::new()
            .toolbox("b", "B")
            .provide_with("b", provided(&self.b), ServerSettings::default())
            .toolbox("a", "A")
            .provide_with("a", provided(&self.a), ServerSettings::default())
    }
}

/// Puts another configuration in the place of the one before.
async fn reload(runtime: &Runtime, gateway: &Gateway, plan: Plan, settings: Value) {
    let settings: GatewaySettings = serde_json::from_value(settings).unwrap();
    let toolboxes = runtime.toolboxes().into_iter().map(|toolbox| toolbox.name).collect();
    let views = Views::of(&settings, &toolboxes).unwrap();
    let prepared = runtime.prepare(plan).await.unwrap();
    gateway.show(views);
    prepared.take_effect();
    gateway.warm_up_again();
}

async fn heard(ears: &Ears) -> String {
    time::timeout(LONG, ears.next()).await.unwrap()
}

/// Has a client without a session be told of other tools, for as long as what it gives is there.
async fn listen(client: &Client, ears: &Ears) -> Exchange {
    let filter = RawJson::from(json!({"notifications": {"toolsListChanged": true}}));
    let listening =
        client.request("subscriptions/listen", Some(filter), RequestOptions::default()).await.unwrap();
    assert_eq!(heard(ears).await, "notifications/subscriptions/acknowledged");
    listening
}

#[tokio::test]
async fn clients_of_both_eras_stay_and_hear_that_there_are_other_tools() {
    let scene = Scene::new();
    let runtime = Runtime::builder().plan(scene.plan()).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let (session, ears) = connect(&gateway, Some("flat"), Era::Session).await;
    let (stateless, other_ears) = connect(&gateway, Some("flat"), Era::Stateless).await;
    assert_eq!(listed(&session).await, ["b__x", "a__x"]);
    let _listening = listen(&stateless, &other_ears).await;
    ears.take();
    // A server that has yet to start is made ready, because its tools are listed by themselves.
    let plan = scene.plan().provide("late", Lazy::new([tells("late", "y")]));
    reload(&runtime, &gateway, plan, json!({})).await;
    assert_eq!(heard(&ears).await, "notifications/tools/list_changed");
    assert_eq!(heard(&other_ears).await, "notifications/tools/list_changed");
    for client in [&session, &stateless] {
        assert_eq!(listed(client).await, ["b__x", "a__x", "late__y"]);
        assert_eq!(text(&call(client, "late__y", json!({})).await), "late/y {}");
        assert_eq!(text(&call(client, "a__x", json!({})).await), "a/x {}");
    }
    ears.take();
    reload(&runtime, &gateway, scene.plan().provide("late", mcp([tells("late", "y")])), json!({})).await;
    assert_eq!(listed(&session).await, ["b__x", "a__x", "late__y"]);
    assert_eq!(ears.take(), [""; 0], "what is listed is the same as before");
}

#[tokio::test]
async fn a_session_stays_while_its_profile_becomes_another() {
    let scene = Scene::new();
    let runtime = Runtime::builder().plan(scene.plan()).start().await.unwrap();
    let mine = |profile: Value| json!({"profiles": {"mine": profile}});
    let gateway = gateway(&runtime, mine(json!({"toolboxes": ["a"]})));
    let (client, ears) = connect(&gateway, Some("mine"), Era::Session).await;
    assert_eq!(listed(&client).await[0], "open_toolbox");
    call(&client, "open_toolbox", json!({"toolbox": "a"})).await;
    assert_eq!(text(&use_tool(&client, ["a", "a", "x"], json!({})).await), "a/x {}");
    assert!(text(&use_tool(&client, ["b", "b", "x"], json!({})).await).starts_with("isError"));
    ears.take();

    reload(&runtime, &gateway, scene.plan(), mine(json!({"expose": "flat", "toolboxes": ["b"]}))).await;
    assert_eq!(heard(&ears).await, "notifications/tools/list_changed");
    assert_eq!(listed(&client).await, ["b__x"]);
    assert_eq!(text(&call(&client, "b__x", json!({})).await), "b/x {}");
    assert!(text(&call(&client, "a__x", json!({})).await).starts_with("isError"));

    reload(&runtime, &gateway, scene.plan(), mine(json!({}))).await;
    assert_eq!(heard(&ears).await, "notifications/tools/list_changed");
    assert_eq!(listed(&client).await[0], "open_toolbox");
    let used = text(&use_tool(&client, ["a", "a", "x"], json!({})).await);
    assert_eq!(used, "a/x {}", "what it has opened is open");
}

#[tokio::test]
async fn a_profile_comes_and_goes_by_its_path() {
    let scene = Scene::new();
    let runtime = Runtime::builder().plan(scene.plan()).start().await.unwrap();
    let gateway = gateway(&runtime, json!({}));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}/mcp/mine", listener.local_addr().unwrap());
    let serving = gateway.clone();
    tokio::spawn(async move { serve::http(&serving, listener, &HttpServerOptions::default()).await });
    let status = async || reqwest::get(&url).await.unwrap().status();
    assert_eq!(status().await, 404);
    let mine = json!({"profiles": {"mine": {"expose": "flat", "toolboxes": ["a"]}}});
    reload(&runtime, &gateway, scene.plan(), mine.clone()).await;
    let client = async || {
        let link = over_http(HttpOptions::new(url.parse().unwrap())).unwrap();
        connect_over(link, Era::Session).await.0
    };
    let stays = client().await;
    assert_eq!(listed(&stays).await, ["a__x"]);
    reload(&runtime, &gateway, scene.plan(), mine.clone()).await;
    assert_eq!(listed(&stays).await, ["a__x"], "it is the same session");
    reload(&runtime, &gateway, scene.plan(), json!({})).await;
    assert_eq!(status().await, 404);
    reload(&runtime, &gateway, scene.plan(), mine).await;
    assert_eq!(listed(&client().await).await, ["a__x"]);
    let nowhere = reqwest::get(format!("{url}/nowhere")).await.unwrap();
    insta::assert_snapshot!(nowhere.text().await.unwrap(), @"There is no profile 'mine/nowhere'. Profiles: meta, flat, agent, hybrid, auto, mine");
}
