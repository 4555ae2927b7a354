//! What there is, in few words.

use std::sync::Arc;
use std::time::Duration;

use pegboard_core::provider::{Particulars, Transport};
use pegboard_core::settings::QueueSettings;
use pegboard_gateway::api::{About, Api, Principal};
use pegboard_runtime::Runtime;
use pegboard_runtime::metrics::{Limits, Metrics};
use serde_json::{Value, json};

use super::site::{Site, api, told};
use crate::stage::Lazy;

#[tokio::test]
async fn a_gateway_says_what_it_is_and_how_busy() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let (status, mut about) = site.get("/status").await;
    assert_eq!((status, about["pid"].take()), (200, json!(std::process::id())));
    assert!(about["startedAt"].take().as_u64().unwrap() > 0 && about["uptimeMs"].take().is_f64());
    insta::assert_snapshot!(about, @r#"{"version":"1.2.3","pid":null,"startedAt":null,"uptimeMs":null,"configuration":["/etc/pegboard.yaml"],"addresses":["http://127.0.0.1:7332/mcp"],"calls":{"underWay":0,"parked":0},"callers":0,"servers":{"total":4,"ready":2,"starting":0,"idle":2,"failed":0},"tools":8}"#);
}

#[tokio::test]
async fn toolboxes_are_listed_with_their_servers() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let (_, toolboxes) = site.get("/toolboxes").await;
    insta::assert_snapshot!(toolboxes, @r#"{"toolboxes":[{"name":"dev","description":"For development","servers":["notes","idle","chain"],"tools":8,"chains":["report"]},{"name":"ops","description":"","servers":["broken"],"tools":0,"chains":[]}]}"#);
}

#[tokio::test]
async fn a_server_says_how_it_is_and_can_be_made_ready() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    let (_, servers) = site.get("/servers").await;
    insta::assert_snapshot!(servers, @r#"{"servers":[{"toolbox":"dev","server":"notes","kind":"mcp","state":"ready","tools":7},{"toolbox":"dev","server":"idle","kind":"mcp","state":"idle","tools":0},{"toolbox":"dev","server":"chain","kind":"chain","state":"ready","tools":1},{"toolbox":"ops","server":"broken","kind":"mcp","state":"idle","tools":0}]}"#);
    let (status, ready) = site.post("/servers/dev/idle/open", json!({})).await;
    assert_eq!(status, 200);
    insta::assert_snapshot!(ready, @r#"{"toolbox":"dev","server":"idle","kind":"mcp","state":"ready","tools":1}"#);
    let (status, broken) = site.post("/servers/ops/broken/open", json!({})).await;
    assert_eq!((status, &broken["error"]["message"]), (503, &json!("uvx: not found")));
}

#[tokio::test]
async fn a_server_says_what_runs_behind_it_as_far_as_that_is_known() {
    let mut program = Lazy::new([]);
    program.particulars = Particulars {
        transport: Some(Transport::Stdio),
        pid: Some(4711),
        n_restarts: Some(2),
        started_in: Some(Duration::from_micros(120_500)),
    };
    let mut address = Lazy::new([]);
    address.particulars =
        Particulars { transport: Some(Transport::WebSocket), n_restarts: Some(0), ..Particulars::default() };
    let toolbox = Runtime::builder().toolbox("dev", "");
    let runtime = toolbox.provide("program", program).provide("address", address).start().await.unwrap();
    let site = Site::of(&told(&runtime), Principal::Everybody).await;
    let (_, servers) = site.get("/servers").await;
    insta::assert_snapshot!(servers, @r#"{"servers":[{"toolbox":"dev","server":"program","kind":"mcp","state":"idle","tools":0,"transport":"stdio","pid":4711,"restarts":2,"startedInMs":120.5},{"toolbox":"dev","server":"address","kind":"mcp","state":"idle","tools":0,"transport":"websocket","restarts":0}]}"#);
}

#[tokio::test]
async fn a_server_that_is_not_there_has_others_near_it() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api, Principal::Everybody).await;
    for (path, code, hint) in [
        ("/servers/dve/notes/open", "unknown_toolbox", json!("did you mean dev?")),
        ("/servers/dev/note/open", "unknown_server", json!("did you mean notes?")),
        ("/servers/dev/zzzzzz/open", "unknown_server", Value::Null),
    ] {
        let (status, problem) = site.post(path, json!({})).await;
        assert_eq!(
            (status, &problem["error"]["code"], &problem["error"]["hint"]),
            (404, &json!(code), &hint)
        );
    }
}

#[tokio::test]
async fn queues_say_how_busy_they_are() {
    let (_, runtime, _) = api().await;
    let settings = QueueSettings { max_concurrency: Some(2), ..QueueSettings::default() };
    runtime.configure_queues(&[("slow".to_owned(), settings)].into_iter().collect());
    let site = Site::of(&told(&runtime), Principal::Everybody).await;
    let (_, queues) = site.get("/queues").await;
    insta::assert_snapshot!(queues, @r#"{"queues":[{"name":"slow","running":0,"waiting":0,"maxConcurrency":2}]}"#);
}

#[tokio::test]
async fn numbers_are_there_for_prometheus() {
    let (api, _runtime, _) = api().await;
    let site = Site::of(&api.metrics(Arc::new(Metrics::new(Limits::default()))), Principal::Everybody).await;
    let (status, text) = site.get("/metrics").await;
    assert_eq!(status, 200);
    assert!(text.as_str().unwrap().contains("pegboard_catalogue_tools 0\n"), "{text}");
}

#[tokio::test]
async fn without_a_runtime_only_what_is_past_is_told() {
    let site = Site::of(&Api::new(About::default()), Principal::Everybody).await;
    for path in
        ["/status", "/toolboxes", "/servers", "/tools", "/tool?name=x", "/calls", "/queues", "/metrics"]
    {
        let (status, problem) = site.get(path).await;
        assert_eq!((status, &problem["error"]["code"]), (503, &json!("not_running")), "{path}");
    }
    let (status, problem) = site.post("/calls", json!({"tool": "x"})).await;
    assert_eq!(status, 503);
    insta::assert_snapshot!(problem, @r#"{"error":{"code":"not_running","message":"No gateway runs here: only what is past can be told","hint":"start one: pegboard serve"}}"#);
}
